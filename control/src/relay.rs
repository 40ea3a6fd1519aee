//! What goes between a relay and the coordinator: the connections of many ranks, as frames over one.
//!
//! The ranks of a machine connect to a relay in the process of one of them, which alone has a connection to rank 0. Each of them is a
//! **member**, with a number of the relay's. What a member says goes through the relay as it is, its proof included, and so does what
//! it is told: a relay understands nothing of it, and gives no rank's proof but its own.
//!
//! The frames are written and read as those of agents ([`crate::frames`]). A relay has to be let in first, as a rank has
//! ([`crate::proof::Caller`]).
//!
//! When a relay, or the coordinator through it, ends a member's connection in good order, the last byte is [`LAST`]. Without it
//! the relay itself has ended.

use std::collections::{BTreeSet, VecDeque};

use crate::agent::CHUNK_BYTES_MAX;
use crate::frames::{Decoder, Fields, Frame, FrameError, add, kind};

/// The last byte that a member hears of a relay that lives. It is looked for behind the proof only, where all messages are lines of JSON.
pub const LAST: u8 = 0x04;

/// A frame from a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRelay {
    /// Somebody has connected.
    Member {
        /// Its number, which no other one has as long as it is there.
        member: u32,
    },
    /// A member has said something.
    Bytes {
        /// Its number.
        member: u32,
        /// A piece of it.
        bytes: Vec<u8>,
    },
    /// The connection of a member has ended.
    Gone {
        /// Its number.
        member: u32,
    },
    /// A member does not take what is sent to it.
    Deaf {
        /// Its number.
        member: u32,
        /// How many bytes wait for it.
        waiting: u32,
    },
}

/// A frame to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRelay {
    /// Bytes for a member.
    Bytes {
        /// Its number.
        member: u32,
        /// A piece of them.
        bytes: Vec<u8>,
    },
    /// The connection of a member is to end, once all is sent. The relay does not speak of it again.
    Close {
        /// Its number.
        member: u32,
    },
}

impl Frame for FromRelay {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            FromRelay::Member { member } => add(bytes, kind::MEMBER, *member, &[]),
            FromRelay::Bytes { member, bytes: piece } => add(bytes, kind::OF_MEMBER, *member, &[piece]),
            FromRelay::Gone { member } => add(bytes, kind::MEMBER_GONE, *member, &[]),
            FromRelay::Deaf { member, waiting } => add(bytes, kind::MEMBER_DEAF, *member, &[&waiting.to_le_bytes()]),
        }
    }

    fn decode(frame: &[u8]) -> Result<FromRelay, FrameError> {
        let mut parts = Fields::of(frame)?;
        let member = parts.whom;
        match parts.kind {
            kind::MEMBER => parts.nothing(FromRelay::Member { member }),
            kind::OF_MEMBER => Ok(FromRelay::Bytes { member, bytes: parts.chunk()? }),
            kind::MEMBER_GONE => parts.nothing(FromRelay::Gone { member }),
            kind::MEMBER_DEAF => {
                let waiting = parts.number()? as u32;
                parts.nothing(FromRelay::Deaf { member, waiting })
            }
            kind => Err(FrameError::Kind { kind }),
        }
    }
}

impl Frame for ToRelay {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            ToRelay::Bytes { member, bytes: piece } => add(bytes, kind::TO_MEMBER, *member, &[piece]),
            ToRelay::Close { member } => add(bytes, kind::CLOSE_MEMBER, *member, &[]),
        }
    }

    fn decode(frame: &[u8]) -> Result<ToRelay, FrameError> {
        let parts = Fields::of(frame)?;
        let member = parts.whom;
        match parts.kind {
            kind::TO_MEMBER => Ok(ToRelay::Bytes { member, bytes: parts.chunk()? }),
            kind::CLOSE_MEMBER => parts.nothing(ToRelay::Close { member }),
            kind => Err(FrameError::Kind { kind }),
        }
    }
}

impl ToRelay {
    /// The frames of a message for a member, as bytes.
    pub fn message(member: u32, message: &[u8]) -> Vec<u8> {
        let mut frames = Vec::with_capacity(message.len() + 16);
        for piece in message.chunks(CHUNK_BYTES_MAX) {
            ToRelay::Bytes { member, bytes: piece.to_vec() }.encode(&mut frames);
        }
        frames
    }
}

/// Something that a relay has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bytes for the coordinator.
    ToCoordinator(Vec<u8>),
    /// Bytes for a member.
    ToMember {
        /// Its number.
        member: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The connection of a member is to end, once all is sent. It is not spoken of again.
    Close {
        /// Its number.
        member: u32,
    },
}

/// The relay's half. Pure: it holds no socket, thread or clock. Feed it with the `handle_*` functions, then drain
/// [`Relay::poll_effect`] until it is `None`.
#[derive(Debug)]
pub struct Relay {
    members: BTreeSet<u32>,
    members_max: usize,
    next_member: u32,
    from_coordinator: Decoder,
    effects: VecDeque<Effect>,
}

impl Relay {
    /// A relay for so many members at a time.
    pub fn new(members_max: usize) -> Relay {
        let (members, from_coordinator, effects) = (BTreeSet::new(), Decoder::default(), VecDeque::new());
        Relay { members, members_max, next_member: 0, from_coordinator, effects }
    }

    /// Somebody has connected. `None`: there are too many; it is to be closed.
    pub fn handle_member(&mut self) -> Option<u32> {
        if self.members.len() >= self.members_max {
            return None;
        }
        while self.members.contains(&self.next_member) {
            self.next_member = self.next_member.wrapping_add(1);
        }
        let member = self.next_member;
        self.next_member = member.wrapping_add(1);
        self.members.insert(member);
        self.tell(&FromRelay::Member { member });
        Some(member)
    }

    /// A member has said something.
    pub fn handle_bytes(&mut self, member: u32, bytes: &[u8]) {
        if self.members.contains(&member) {
            for piece in bytes.chunks(CHUNK_BYTES_MAX) {
                self.tell(&FromRelay::Bytes { member, bytes: piece.to_vec() });
            }
        }
    }

    /// The connection of a member has ended.
    pub fn handle_hang_up(&mut self, member: u32) {
        if self.members.remove(&member) {
            self.tell(&FromRelay::Gone { member });
        }
    }

    /// A member does not take what is sent to it: so many bytes wait.
    pub fn handle_deaf(&mut self, member: u32, waiting: usize) {
        if self.members.remove(&member) {
            self.tell(&FromRelay::Deaf { member, waiting: u32::try_from(waiting).unwrap_or(u32::MAX) });
            self.effects.push_back(Effect::Close { member });
        }
    }

    /// Bytes came from the coordinator.
    ///
    /// # Errors
    /// When they are none of its. Nothing that follows can be understood.
    pub fn handle_root_bytes(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.from_coordinator.feed(bytes);
        while let Some(frame) = self.from_coordinator.next_frame::<ToRelay>()? {
            // It may not have heard yet that a member is gone.
            match frame {
                ToRelay::Bytes { member, bytes } if self.members.contains(&member) => {
                    self.effects.push_back(Effect::ToMember { member, bytes });
                }
                ToRelay::Close { member } if self.members.remove(&member) => {
                    self.effects.push_back(Effect::Close { member });
                }
                ToRelay::Bytes { .. } | ToRelay::Close { .. } => {}
            }
        }
        Ok(())
    }

    /// The next thing to do. `None` when there is none left.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn tell(&mut self, frame: &FromRelay) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.effects.push_back(Effect::ToCoordinator(bytes));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from_relay() -> impl Strategy<Value = FromRelay> {
        let piece = proptest::collection::vec(any::<u8>(), 0..64);
        prop_oneof![
            any::<u32>().prop_map(|member| FromRelay::Member { member }),
            (any::<u32>(), piece).prop_map(|(member, bytes)| FromRelay::Bytes { member, bytes }),
            any::<u32>().prop_map(|member| FromRelay::Gone { member }),
            (any::<u32>(), any::<u32>()).prop_map(|(member, waiting)| FromRelay::Deaf { member, waiting }),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_back_as_they_were_written_however_they_are_cut(
            frames in proptest::collection::vec(from_relay(), 0..20),
            cut in 1_usize..40,
        ) {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            let (mut decoder, mut read) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next_frame::<FromRelay>().unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn a_message_for_a_member_comes_whole_and_nobody_else_gets_any_of_it(
            messages in proptest::collection::vec((0_u32..3, 0_usize..100_000), 0..8),
            cut in 1_usize..5000,
        ) {
            let mut relay = Relay::new(3);
            (0..3).for_each(|_| assert!(relay.handle_member().is_some()));
            while relay.poll_effect().is_some() {}
            let mut heard = vec![Vec::new(); 3];
            let mut expected = heard.clone();
            let mut bytes = Vec::new();
            for (number, (member, length)) in messages.iter().enumerate() {
                let message: Vec<u8> = (0..*length).map(|at| (at + number) as u8).collect();
                bytes.extend(ToRelay::message(*member, &message));
                expected[*member as usize].extend(message);
            }
            for piece in bytes.chunks(cut) {
                relay.handle_root_bytes(piece).unwrap();
                while let Some(effect) = relay.poll_effect() {
                    let Effect::ToMember { member, bytes } = effect else { panic!("{effect:?}") };
                    heard[member as usize].extend(bytes);
                }
            }
            prop_assert_eq!(heard, expected);
        }
    }

    fn told(relay: &mut Relay) -> Vec<FromRelay> {
        let mut decoder = Decoder::default();
        while let Some(effect) = relay.poll_effect() {
            if let Effect::ToCoordinator(bytes) = effect {
                decoder.feed(&bytes);
            }
        }
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    #[test]
    fn no_more_members_than_there_may_be_are_taken_in_and_the_end_of_each_is_told_once() {
        let mut relay = Relay::new(2);
        assert_eq!((relay.handle_member(), relay.handle_member(), relay.handle_member()), (Some(0), Some(1), None));
        relay.handle_hang_up(0);
        relay.handle_hang_up(0);
        relay.handle_bytes(0, b"late");
        relay.handle_deaf(1, 1 << 40);
        relay.handle_hang_up(1);
        assert_eq!(relay.handle_member(), Some(2), "numbers are not given again soon");
        let expected = [
            FromRelay::Member { member: 0 },
            FromRelay::Member { member: 1 },
            FromRelay::Gone { member: 0 },
            FromRelay::Deaf { member: 1, waiting: u32::MAX },
            FromRelay::Member { member: 2 },
        ];
        assert_eq!(told(&mut relay), expected);
    }

    #[test]
    fn what_is_no_frame_of_the_coordinator_ends_the_conversation() {
        let mut bytes = Vec::new();
        FromRelay::Member { member: 0 }.encode(&mut bytes);
        assert!(Relay::new(1).handle_root_bytes(&bytes).is_err());
        assert!(Relay::new(1).handle_root_bytes(&[0xff; 9]).is_err());
    }
}
