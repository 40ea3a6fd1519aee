//! What the members of a group tell each other when they make a window.
//!
//! ```text
//!   proposal   everybody: how large its part is, and      outcome   lowest member of each node: where its memory is
//!                what was announced                                 first member: what the next window will be called
//!              first member: a name for this window or
//!                the next one
//!              lowest member of each node: what memory
//!                it serves ahead
//! ```
//!
//! Many members tell each other only what they come to (`merged.rs`).
//!
//! Each is as long as what a barrier can show, so that one barrier is enough for it on a node, and one round of messages of a hundred ranks.

use std::os::fd::RawFd;

use longarm_proto::{Generation, Rank, WindowId};

use super::name::{FreshName, Name};
use crate::group::words_of;

/// What every member tells of a window that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    /// Of its part.
    pub(super) bytes: u64,
    /// From the first member: what this window is called if it is made together, or what the next one is called if this one was served ahead.
    pub(super) fresh: Option<FreshName>,
    /// What it was told that this window of the world will be called.
    pub(super) announced: Option<Name>,
    /// From the lowest ranks of nodes that serve the announced window already: the window that its memory was made for.
    pub(super) made_for: Option<Name>,
}

impl Proposal {
    /// Of another group than the world only the first three, for nothing is announced there.
    pub(super) fn words(&self, of_world: bool) -> Vec<u64> {
        let [name, key] = FreshName::words(self.fresh);
        let words = [self.bytes, name, key, Name::word(self.announced), Name::word(self.made_for)];
        words[..if of_world { 5 } else { 3 }].to_vec()
    }

    pub(super) fn read(body: &[u8]) -> Proposal {
        let [bytes, name, key, announced, made_for] = words_of(body);
        let (announced, made_for) = (Name::read(announced), Name::read(made_for));
        Proposal { bytes, fresh: FreshName::read(name, key), announced, made_for }
    }
}

/// What all members have told.
pub(super) enum Proposals {
    /// What each has, by its place.
    Each(Vec<Proposal>),
    /// All want as much. What they come to; [`Proposal::made_for`] is what all nodes have.
    Alike(Proposal),
}

impl Proposals {
    /// What a member wants.
    pub(super) fn bytes_at(&self, place: u32) -> u64 {
        match self {
            Proposals::Each(all) => all[place as usize].bytes,
            Proposals::Alike(all) => all.bytes,
        }
    }

    /// What the first member has named.
    pub(super) fn fresh(&self) -> Option<FreshName> {
        match self {
            Proposals::Each(all) => all[0].fresh,
            Proposals::Alike(all) => all.fresh,
        }
    }

    /// What all members know the window to be called.
    pub(super) fn announced(&self) -> Option<Name> {
        match self {
            Proposals::Each(all) => all[0].announced.filter(|name| all.iter().all(|one| one.announced == Some(*name))),
            Proposals::Alike(all) => all.announced,
        }
    }

    /// The first member that wants more than this, by its place, and how much.
    pub(super) fn first_above(&self, bytes_max: u64) -> Option<(u32, u64)> {
        match self {
            Proposals::Each(all) => {
                (0..).zip(all).map(|(at, one)| (at, one.bytes)).find(|(_, bytes)| *bytes > bytes_max)
            }
            Proposals::Alike(all) => Some((0, all.bytes)).filter(|(_, bytes)| *bytes > bytes_max),
        }
    }
}

/// Where the memory of a node's parts is found, by processes of that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The window that the memory was made for.
    pub(super) made_for: (WindowId, Generation),
    /// By whom has not mapped it yet, without asking. `None`: the door has to be asked.
    pub(super) file: Option<FileOfServer>,
}

/// How a descriptor of the server's is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileOfServer {
    /// Its number in the process of the node's server.
    pub(super) number: RawFd,
    /// Where all ranks of the node map it. `None`: anywhere.
    pub(super) address: Option<u64>,
}

/// What a member tells of its part in making a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It could not have its node's memory made.
    Failed,
    /// It had nothing to do.
    Nothing,
    /// The window that the memory was made for, and the server's descriptor.
    Memory((WindowId, Generation), FileOfServer),
}

/// What a member tells when the window is made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) made: Made,
    /// From rank 0, for a window of the world: what the next one is called.
    pub(super) next: Option<FreshName>,
}

impl Outcome {
    /// As [`Proposal::words`].
    pub(super) fn words(&self, of_world: bool) -> Vec<u64> {
        let [name, key] = FreshName::words(self.next);
        let [first, second, third] = match self.made {
            Made::Failed => [0; 3],
            Made::Nothing => [1, 0, 0],
            // No window starts at address 0, and no number is negative.
            Made::Memory((window, generation), FileOfServer { number, address }) => {
                [2 + number as u64 + (u64::from(generation.0) << 32), window.0, address.unwrap_or(0)]
            }
        };
        [first, second, third, name, key][..if of_world { 5 } else { 3 }].to_vec()
    }

    pub(super) fn read(body: &[u8]) -> Outcome {
        let [first, window, address, name, key] = words_of(body);
        let made = match first {
            0 => Made::Failed,
            1 => Made::Nothing,
            _ => {
                let number = (first as u32).wrapping_sub(2) as RawFd;
                let made_for = (WindowId(window), Generation((first >> 32) as u32));
                Made::Memory(made_for, FileOfServer { number, address: (address != 0).then_some(address) })
            }
        };
        Outcome { made, next: FreshName::read(name, key) }
    }
}

/// What the outcomes of all members come to.
pub(super) struct MergedOutcome {
    /// What the next window of the world is called.
    pub(super) next: Option<FreshName>,
    /// The window that the memory of every node was made for, if that is the same one.
    pub(super) made_for: Option<Name>,
}

/// What has become of it at all members.
pub(super) enum Outcomes {
    /// At each, by its place.
    Each(Vec<Outcome>),
    /// All have done their part.
    Alike(MergedOutcome),
}

impl Outcomes {
    /// What rank 0 says the next window of the world is called.
    pub(super) fn next(&self) -> Option<FreshName> {
        match self {
            Outcomes::Each(all) => all[0].next,
            Outcomes::Alike(all) => all.next,
        }
    }

    /// The first member that could not have its node's memory made, by its place.
    pub(super) fn failed(&self) -> Option<u32> {
        match self {
            Outcomes::Each(all) => {
                (0..).zip(all).find(|(_, outcome)| outcome.made == Made::Failed).map(|(place, _)| place)
            }
            Outcomes::Alike(_) => None,
        }
    }

    /// Where the memory is found that the member at a place has had made for the node of both. `None`: nobody has said so.
    pub(super) fn found(&self, maker_here: u32) -> Option<Found> {
        match self {
            Outcomes::Each(all) => match all[maker_here as usize].made {
                Made::Memory(made_for, file) => Some(Found { made_for, file: Some(file) }),
                Made::Failed | Made::Nothing => None,
            },
            // Only windows of the world are told of so, which rank 0 has named.
            Outcomes::Alike(all) => all.made_for.map(|name| Found { made_for: name.window(Rank(0)), file: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::bytes_of;

    const FRESH: FreshName = FreshName { name: Name { number: 7, generation: u32::MAX }, key: u64::MAX };

    #[test]
    fn what_is_told_is_read() {
        let (name, other) = (Some(FRESH.name), Some(Name { number: u32::MAX, generation: 1 }));
        for (fresh, announced, made_for) in [
            (None, None, None),
            (Some(FRESH), None, None),
            (None, name, None),
            (None, name, other),
            (Some(FRESH), other, name),
        ] {
            let proposal = Proposal { bytes: u64::MAX, fresh, announced, made_for };
            assert_eq!(Proposal::read(&bytes_of(&proposal.words(true))), proposal);
            let of_group = Proposal { announced: None, made_for: None, ..proposal };
            assert_eq!(Proposal::read(&bytes_of(&proposal.words(false))), of_group);
        }
        let made_for = (WindowId(u64::MAX), Generation(u32::MAX));
        let memory = |number, address| Made::Memory(made_for, FileOfServer { number, address });
        for made in [Made::Failed, Made::Nothing, memory(0, None), memory(RawFd::MAX, Some(0x7000_0000_0000))] {
            for next in [None, Some(FRESH)] {
                let outcome = Outcome { made, next };
                assert_eq!(Outcome::read(&bytes_of(&outcome.words(true))), outcome);
                let of_group = Outcome { next: None, ..outcome };
                assert_eq!(Outcome::read(&bytes_of(&outcome.words(false))), of_group);
            }
        }
    }
}
