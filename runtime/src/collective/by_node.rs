//! The agreement of a world of several nodes, some of which have several ranks: the ranks of a node meet in shared memory, and the
//! first of them speaks for all with those of the other nodes.
//!
//! ```text
//!   node 0:  0 1 2 ── flag barrier ── 0 ┐                      ┌ 0 ── flag barrier ── 0 1 2
//!   node 1:  3 4 5 ── flag barrier ── 3 ┴ rounds of messages ──┴ 3 ── flag barrier ── 3 4 5
//! ```
//!
//! So there are as many rounds of messages between nodes as the number of nodes has bits, and connections for these only, whatever the
//! number of ranks.

use longarm_client::{Lost, LostHow, Operation};
use longarm_proto::{NodeId, Rank};

use super::agree::{Carried, Known, Load, OFFERED, Outcome, SAME, flags_of};
use super::call::Call;
use super::flag_barrier::{DATA_BYTES, Met, Shown};
use super::rounds::Circle;
use super::signature::Signature;
use super::told::Told;
use crate::error::CollectiveError;

impl Call<'_> {
    /// `offered`: this member's staging buffer is laid out.
    pub(super) fn agree_by_node(
        &mut self,
        mine: Signature,
        load: &mut Load,
        offered: bool,
    ) -> Result<Outcome, CollectiveError> {
        let (group, begin) = (self.group, self.slot.step);
        let layout = group.inner.client.layout();
        let death = || -> Option<Lost> { group.death() };
        let here = group.inner.client.meet_on_node(self.name, &death);
        let my_local = layout.local_of(layout.me());
        let locals = 0..layout.ranks_of(layout.my_node()).len() as u32;
        let met = here.tell_first(Shown::of(&mine, load, offered).words(), |word| {
            Met::read(word, (my_local, &mine, load), locals)
        });
        // An error of the first is told, too: all come to as many barriers, whatever becomes of the collective.
        let spoken = match met {
            Err(lost) if !here.is_first() => return Err(lost.into()),
            met => met.map_err(CollectiveError::from).transpose(),
        };
        let spoken = spoken.map(|met| met.and_then(|met| self.speak(&mine, load, self.known_of(met)?)));
        let telling = spoken.as_ref().map(|spoken| Told::of(spoken.as_ref(), load).shown());
        let heard = here.hear_first(telling.as_ref().map_or(&[], Shown::words), Told::read)?;
        let known = spoken.transpose()?;
        if matches!(heard, Told::Death) {
            return Err(here.hear_of_death().into());
        }
        drop(here);
        // As after all rounds, at those too who have taken no part in them.
        self.slot.step = begin + layout.node_count().next_power_of_two().trailing_zeros();
        let Told::Known(Known { flags, mut bytes }) = heard else {
            return Err(group.death().map_or_else(|| self.heard_of(&heard), CollectiveError::Lost));
        };
        if flags & SAME == 0 {
            return Err(self.find_differences(mine));
        }
        if let Load::OfAll(own) = &*load {
            bytes = self.hand_out(own.len(), known)?;
        }
        Ok(Outcome::of(load, bytes, flags & OFFERED != 0))
    }

    /// The place of the member that speaks for a node.
    fn first_of(&self, node: NodeId) -> u32 {
        self.group.inner.client.layout().server_host(node).0
    }

    /// What the first of this node has told of the error that it got.
    #[cold]
    fn heard_of(&self, told: &Told) -> CollectiveError {
        let layout = self.group.inner.client.layout();
        let first = layout.server_host(layout.my_node());
        let of_members = |rank: &Rank| layout.contains(*rank);
        match told {
            Told::BadMessage { rank, found } if of_members(rank) => {
                self.bad_message(rank.0, *found, "what all members call".into())
            }
            Told::Lost { rank } if of_members(rank) => {
                let (rank, operation) = (*rank, Operation::Collective);
                CollectiveError::Lost(Lost { rank, node: layout.node_of(rank), operation, how: LostHow::SaidBy(first) })
            }
            _ => self.bad_message(first.0, 0, "what all members call".into()),
        }
    }

    /// What the members of this node have come to.
    fn known_of(&self, met: Met) -> Result<Known, CollectiveError> {
        let layout = self.group.inner.client.layout();
        match met {
            Met::Differ => Ok(Known { flags: 0, bytes: Vec::new() }),
            Met::Agree { offered, bytes } => Ok(Known { flags: flags_of(offered), bytes }),
            Met::Wrong { member, found, due } => {
                let rank = layout.ranks_of(layout.my_node())[member as usize];
                Err(self.bad_message(rank.0, found, due.to_string()))
            }
        }
    }

    /// The agreement of the first ones.
    fn speak(&mut self, mine: &Signature, load: &Load, known: Known) -> Result<Known, CollectiveError> {
        let carried = match load.carried() {
            // They are too many to be shown.
            Carried::OfAll(_) if known.bytes.is_empty() => Carried::Nothing,
            carried => carried,
        };
        let circle = Circle::of_firsts(self.group.inner.client.layout());
        self.agree_around(&circle, mine, carried, known)
    }

    /// The first of the node sends the bytes of all members to the others here. Gives them as [`Load::OfAll`] has them; none if they
    /// were too many to be shown.
    fn hand_out(&mut self, piece_bytes: usize, known: Option<Known>) -> Result<Vec<u8>, CollectiveError> {
        let layout = self.group.inner.client.layout();
        let (size, me) = (self.size() as usize, self.me() as usize);
        if piece_bytes > DATA_BYTES {
            return Ok(Vec::new());
        }
        let by_rank = match known {
            Some(known) => {
                let by_rank = self.by_rank(&known.bytes, piece_bytes);
                for rank in &layout.ranks_of(layout.my_node())[1..] {
                    self.send(rank.0, &by_rank)?;
                }
                by_rank
            }
            None => self.receive_exactly(self.first_of(layout.my_node()), size * piece_bytes)?,
        };
        self.next_step();
        let around = (0..size).map(|back| (me + size - back) % size * piece_bytes);
        Ok(around.flat_map(|at| &by_rank[at..at + piece_bytes]).copied().collect())
    }

    /// The bytes of all members, that lie in the order of [`Known::bytes`], in the order of their places.
    fn by_rank(&self, bytes: &[u8], piece_bytes: usize) -> Vec<u8> {
        let layout = self.group.inner.client.layout();
        let (nodes, me) = (layout.node_count(), layout.my_node().0);
        let ranks = (0..nodes).flat_map(|back| layout.ranks_of(NodeId((me + nodes - back) % nodes)));
        let mut by_rank = vec![0; bytes.len()];
        for (rank, piece) in ranks.zip(bytes.chunks(piece_bytes)) {
            let at = rank.0 as usize * piece_bytes;
            by_rank[at..at + piece_bytes].copy_from_slice(piece);
        }
        by_rank
    }
}
