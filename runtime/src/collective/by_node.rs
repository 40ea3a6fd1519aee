//! The agreement of a group that has several members on one of several nodes: those of a node tell their leader what they call,
//! and the leader agrees with those of the other nodes (`through_leader.rs`).
//!
//! So there are as many rounds of messages between nodes as the number of nodes has bits, and connections for these only, whatever the
//! number of ranks. What little data there is goes the same way: what does not fit into a line is sent to the leader, and by it.

use super::agree::{Known, Load, OFFERED, SAME, flags_of, merge_pieces};
use super::call::Call;
use super::elements::{LoadBytes, copied, copy};
use super::flag_barrier::{COUNT_AT, DATA_BYTES, Met, Shown, shown_count};
use super::rounds::Participants;
use crate::error::CollectiveError;
use crate::group::Group;

/// What the members on a node have told their leader.
struct Heard {
    met: Met,
    /// What they show.
    bytes: LoadBytes,
    /// Who has sent more, by its number on the node, and how many bytes.
    sent: Vec<(u32, u64)>,
}

/// The leaders, of which this rank is one, and for what each speaks.
fn speakers<'a>(group: &'a Group, load: &Load) -> Participants<'a> {
    match load {
        Load::Reduced { .. } => Participants::leaders_of_subtrees(group.nodes(), group.subtrees()),
        _ => Participants::of_leaders(group.nodes()),
    }
}

impl Call<'_> {
    /// `offered`: this member's staging buffer is laid out. Gives whether all members' are.
    pub(super) fn agree_by_node(&mut self, load: &mut Load, offered: bool) -> Result<bool, CollectiveError> {
        let nodes = self.group.nodes();
        let (my_local, locals) = (nodes.local(), 0..nodes.here().len() as u32);
        if !nodes.is_leader() && load.bytes().len() > DATA_BYTES {
            self.send(nodes.my_leader(), load.bytes())?;
        }
        let sent_at = self.slot.step;
        self.next_step();
        let (shown, to_carry) = (Shown::to_leader(self.signature.digest(), load, offered), &*load);
        let read = |word: &dyn Fn(u32, usize) -> u64| {
            // Read once: a broken member may change it.
            let counts: Vec<u64> = locals.clone().map(|local| word(local, COUNT_AT)).collect();
            let word = |local: u32, at| if at == COUNT_AT { counts[local as usize] } else { word(local, at) };
            let mut bytes = LoadBytes::new();
            Heard {
                sent: locals.clone().skip(1).map(|local| (local, shown_count(word(local, COUNT_AT)))).collect(),
                met: Met::read(word, (my_local, to_carry), locals, &mut bytes),
                bytes,
            }
        };
        let known = self.through_leader(shown.words(), read, |call, heard| {
            let known = call.in_step(sent_at, |call| call.known_of(heard, to_carry))?;
            let known = call.agree_around(&speakers(call.group, to_carry), to_carry.carried(), known)?;
            Ok(call.reduced(to_carry, known))
        })?;
        if known.flags & SAME == 0 {
            return Err(self.find_differences());
        }
        let bytes = self.hand_out(load, known.bytes)?;
        load.fill(bytes);
        Ok(known.flags & OFFERED != 0)
    }

    /// What the members on this node have come to.
    fn known_of(&self, heard: Heard, load: &Load) -> Result<Known, CollectiveError> {
        let here = self.group.nodes().here();
        // What they have sent is taken in whether or not it is wanted.
        let sent = heard.sent.into_iter().filter(|(_, count)| *count > DATA_BYTES as u64).map(|(local, count)| {
            let place = here[local as usize];
            self.receive_if(place, |found| self.check_bytes(place, found, usize::try_from(count).unwrap_or(usize::MAX)))
        });
        let sent = sent.collect::<Result<Vec<Vec<u8>>, _>>()?.concat();
        match heard.met {
            Met::Differ => Ok(Known::NOTHING),
            Met::Agree { offered } => {
                let own = if load.bytes().len() > DATA_BYTES { load.bytes() } else { &[] };
                // All are of one length: all are shown, or all but this one's are sent.
                let mut bytes: LoadBytes = [&heard.bytes, own, &sent].concat().into();
                match load {
                    Load::Merged { bytes: own, merge } => {
                        let pieces = std::mem::replace(&mut bytes, copied(own));
                        merge_pieces(&mut bytes, &pieces, *merge);
                    }
                    Load::Reduced { combine, .. } => {
                        bytes = self.group.subtrees().combine_here(self.group.nodes(), &bytes, combine).into();
                    }
                    Load::Empty | Load::OfOne { .. } | Load::OfAll(_) | Load::ToEach { .. } => {}
                }
                Ok(Known { flags: flags_of(offered), bytes })
            }
            Met::Wrong { member, found, due } => Err(self.bad_message(here[member as usize], found, due.to_string())),
        }
    }

    /// What the reduction comes to, from the pieces of all nodes; other loads as they are.
    fn reduced(&self, load: &Load, known: Known) -> Known {
        let Load::Reduced { combine, .. } = load else { return known };
        if known.flags & SAME == 0 {
            return known;
        }
        let bytes = self.group.subtrees().combine_all(self.group.nodes(), &known.bytes, combine);
        Known { bytes: bytes.into(), ..known }
    }

    /// The leader of the node sends the bytes of a load to the others here, if they did not fit into a line. Gives them as the load has
    /// them.
    fn hand_out(&mut self, load: &Load, known: LoadBytes) -> Result<LoadBytes, CollectiveError> {
        let nodes = self.group.nodes();
        let due = match load {
            Load::Empty | Load::ToEach { .. } => return Ok(known),
            Load::OfOne { due, .. } => *due,
            Load::OfAll(own) => own.len() * self.size() as usize,
            Load::Merged { bytes, .. } | Load::Reduced { bytes, .. } => bytes.len(),
        };
        let mut known = known;
        if due > DATA_BYTES {
            if nodes.is_leader() {
                nodes.here()[1..].iter().try_for_each(|place| self.send(*place, &known))?;
            } else {
                known = self.receive_exactly(nodes.my_leader(), due)?.into();
            }
            self.next_step();
        }
        // That of one is checked by those who know whether it may be missing.
        if !matches!(load, Load::OfOne { .. }) {
            self.check_bytes(nodes.my_leader(), known.len() as u64, due)?;
        }
        Ok(if let Load::OfAll(own) = load { self.around(&known, own.len()) } else { known })
    }

    /// The bytes of all members, that lie in the order of [`Known::bytes`], in that of [`Load::OfAll`].
    fn around(&self, bytes: &[u8], piece_bytes: usize) -> LoadBytes {
        let nodes = self.group.nodes();
        let (size, me, count, mine) = (self.size(), self.me(), nodes.count(), nodes.mine());
        let places = (0..count).flat_map(|back| nodes.on((mine + count - back) % count));
        let mut around = LoadBytes::from_elem(0, bytes.len());
        for (place, piece) in places.zip(bytes.chunks_exact(piece_bytes)) {
            let at = ((me + size - place) % size) as usize * piece_bytes;
            copy(&mut around[at..at + piece_bytes], piece);
        }
        around
    }
}
