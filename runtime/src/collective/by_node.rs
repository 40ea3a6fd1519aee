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

use super::agree::{DIGEST_BYTES, Load, OFFERED, SAME};
use super::call::Call;
use super::flag_barrier::{self, DATA_BYTES, Met, Shown};
use super::signature::Signature;
use crate::error::CollectiveError;

/// What the first of a node shows that could not find out whether all agree.
const FAILED: u8 = 4;
/// And that has heard of a death, which every rank hears of in its own time.
const DEATH: u8 = 8;

/// What is known of some nodes.
struct Known {
    /// [`SAME`] and [`OFFERED`].
    flags: u8,
    /// What little data their members have. Of all members: those of this node, of the node before it, and so on around, on each by
    /// rank.
    bytes: Vec<u8>,
}

/// What the first of a node tells the others of its error: the rank, and how much that has sent if it was no message.
#[cold]
fn told_of(error: &CollectiveError) -> Shown {
    match error {
        CollectiveError::BadMessage { rank, found, .. } => {
            Shown::told(FAILED.into(), &[&rank.0.to_le_bytes()[..], &found.to_le_bytes()].concat())
        }
        error => match error.lost() {
            Some(lost) if matches!(lost.how, LostHow::Died(_)) => Shown::told((FAILED | DEATH).into(), &[]),
            Some(lost) => Shown::told(FAILED.into(), &lost.rank.0.to_le_bytes()),
            None => Shown::told(FAILED.into(), &[]),
        },
    }
}

impl Call<'_> {
    /// Whether all members have laid out their staging buffer, as this one says by `offered`. `None`: all call the same, but the load is
    /// too much, and has to be carried otherwise.
    pub(super) fn agree_by_node(
        &mut self,
        mine: Signature,
        load: &mut Load,
        offered: bool,
    ) -> Result<Option<bool>, CollectiveError> {
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
        let shown = match &spoken {
            Some(Ok(known)) if matches!(load, Load::OfOne { .. }) => Shown::told(known.flags.into(), &known.bytes),
            Some(Ok(known)) => Shown::told(known.flags.into(), &[]),
            Some(Err(error)) => told_of(error),
            None => Shown::told(0, &[]),
        };
        let heard = here.hear_first(shown.words(), |word| flag_barrier::told(word))?;
        let known = spoken.transpose()?;
        let (flags, mut bytes) = heard.map_or((FAILED, Vec::new()), |(word, bytes)| (word as u8, bytes));
        if flags & DEATH != 0 {
            return Err(here.hear_of_death().into());
        }
        drop(here);
        // As after all rounds, at those too who have taken no part in them.
        self.slot.step = begin + layout.node_count().next_power_of_two().trailing_zeros();
        if flags & FAILED != 0 {
            return Err(group.death().map_or_else(|| self.heard_of(&bytes), CollectiveError::Lost));
        }
        if flags & SAME == 0 {
            return self.find_differences(mine).map(|()| None);
        }
        if let Load::OfAll(own) = &*load {
            bytes = self.hand_out(own.len(), known)?;
        }
        Ok(load.fill(bytes).then_some(flags & OFFERED != 0))
    }

    /// The place of the member that speaks for a node.
    fn first_of(&self, node: NodeId) -> u32 {
        self.group.inner.client.layout().server_host(node).0
    }

    /// What the first of this node has told of the error that it got.
    #[cold]
    fn heard_of(&self, told: &[u8]) -> CollectiveError {
        let layout = self.group.inner.client.layout();
        let first = layout.server_host(layout.my_node());
        let bad = |rank: Rank, found: u64| self.bad_message(rank.0, found, "what all members call".into());
        let Some((rank, found)) =
            told.split_first_chunk().filter(|(rank, _)| layout.contains(Rank(u32::from_le_bytes(**rank))))
        else {
            return bad(first, told.len() as u64);
        };
        let rank = Rank(u32::from_le_bytes(*rank));
        match found.try_into() {
            Ok(found) => bad(rank, u64::from_le_bytes(found)),
            Err(_) => {
                let (node, operation) = (layout.node_of(rank), Operation::Collective);
                CollectiveError::Lost(Lost { rank, node, operation, how: LostHow::SaidBy(first) })
            }
        }
    }

    /// What the members of this node have come to.
    fn known_of(&self, met: Met) -> Result<Known, CollectiveError> {
        let layout = self.group.inner.client.layout();
        match met {
            Met::Differ => Ok(Known { flags: 0, bytes: Vec::new() }),
            Met::Agree { offered, bytes } => Ok(Known { flags: SAME | if offered { OFFERED } else { 0 }, bytes }),
            Met::Wrong { member, found, due } => {
                let rank = layout.ranks_of(layout.my_node())[member as usize];
                Err(self.bad_message(rank.0, found, due.to_string()))
            }
        }
    }

    /// Dissemination among the first ones: as in [`Call::agree`], with nodes in place of members.
    fn speak(&mut self, mine: &Signature, load: &Load, mut known: Known) -> Result<Known, CollectiveError> {
        let layout = self.group.inner.client.layout();
        let (nodes, me) = (layout.node_count(), layout.my_node().0);
        let digest = mine.digest().to_le_bytes();
        // How many bytes there are of so many nodes: of one, of the one before it, and so on.
        let piece_bytes = match load {
            Load::OfAll(own) if !known.bytes.is_empty() => own.len(),
            _ => 0,
        };
        let bytes_of = |node: u32, count: u32| -> usize {
            let ranks = (0..count).map(|back| layout.ranks_of(NodeId((node + nodes - back) % nodes)).len());
            ranks.sum::<usize>() * piece_bytes
        };
        let mut distance = 1;
        while distance < nodes {
            let to = self.first_of(NodeId((me + distance) % nodes));
            let from_node = (me + nodes - distance) % nodes;
            let from = self.first_of(NodeId(from_node));
            // Before this round there are bytes of `distance` nodes; near the end not all are missing there.
            let count = distance.min(nodes - distance);
            let told = match load {
                // Not all that should be is here then, and nobody wants it.
                _ if known.flags & SAME == 0 => &[],
                Load::OfAll(_) => &known.bytes[..bytes_of(me, count)],
                _ => &known.bytes[..],
            };
            let _expecting = self.expect(from);
            self.send(to, &[&digest[..], &[known.flags], told].concat())?;
            let heard = self.receive(from)?;
            let Some((&[ref theirs @ .., their_flags], bytes)) = heard.split_first_chunk::<{ DIGEST_BYTES + 1 }>()
            else {
                return Err(self.bad_message(from, heard.len() as u64, "a digest".into()));
            };
            known.flags &= their_flags & if *theirs == digest { !0 } else { !SAME };
            if known.flags & SAME != 0 {
                let due = match load {
                    Load::OfOne { due, .. } if !bytes.is_empty() => *due,
                    _ => bytes_of(from_node, count),
                };
                self.check_bytes(from, bytes.len() as u64, due)?;
                if piece_bytes > 0 || known.bytes.is_empty() {
                    known.bytes.extend_from_slice(bytes);
                }
            }
            distance *= 2;
            self.next_step();
        }
        Ok(known)
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
