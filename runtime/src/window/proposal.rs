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
//! Each is as long as what a barrier can show, so that one barrier is enough for it on a node, and one round of messages of a hundred ranks.

use std::os::fd::RawFd;

use longarm_proto::{Generation, WindowId};

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
