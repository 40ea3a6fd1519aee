//! What a message between ranks looks like: a head with its length in front, then the data.
//!
//! ```text
//!   │ bytes of the head │ kind │ fields │ data ...
//!           1              1
//! ```
//!
//! The target's server passes messages on and does not look at heads. The target rank does, whether a message comes from its own
//! node or by the server.

use crate::limits::{AM_ARGUMENTS_MAX, MESSAGE_BYTES_MAX};
use thiserror::Error;

/// The kind of a message of a collective.
pub const MAIL_COLLECTIVE: u8 = 1;
/// The kind of an active message.
pub const MAIL_ACTIVE: u8 = 2;
/// The kind of an active message that replies to one.
pub const MAIL_ACTIVE_REPLY: u8 = 3;

/// Bytes of the head of a message of a collective, its length not counted.
const COLLECTIVE_BYTES: usize = 1 + 8 + 8 + 4 + 8;
/// The same of an active message without arguments.
const ACTIVE_BYTES: usize = 1 + 4 + 1;
/// Most bytes of a head, its length counted.
pub const MAIL_HEAD_BYTES_MAX: usize = 1 + ACTIVE_BYTES + AM_ARGUMENTS_MAX * 8;

const _: () = assert!(COLLECTIVE_BYTES < MAIL_HEAD_BYTES_MAX && MAIL_HEAD_BYTES_MAX <= 1 + u8::MAX as usize);

/// What the head of a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MailHead {
    /// A part of a collective, or a message with a tag.
    Collective {
        /// The group.
        group: u64,
        /// How many collectives it has done before.
        sequence: u64,
        /// Which step of this one.
        step: u32,
        /// Bytes of the whole body, of which this message may be a piece.
        total_bytes: u64,
    },
    /// A handler is to run.
    Active {
        /// Which.
        handler: u32,
        /// Whether this is a reply.
        is_reply: bool,
        /// Its words.
        arguments: Vec<u64>,
    },
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadMail {
    /// Too long, or empty.
    #[error("a message of {found} bytes, where 1 to {MESSAGE_BYTES_MAX} are possible")]
    MessageBytes {
        /// How long it is said to be.
        found: u64,
    },
    /// It is said to come from a rank that does not exist.
    #[error("a message of a rank {found}, which does not exist")]
    NoSuchRank {
        /// The number found.
        found: u32,
    },
    /// No message has this kind.
    #[error("message kind {found} is not known")]
    UnknownKind {
        /// The number found.
        found: u8,
    },
    /// The head has not the length that its kind has.
    #[error("a message of kind {kind} with a head of {found} bytes")]
    HeadBytes {
        /// What was sent.
        kind: u8,
        /// How long its head is.
        found: usize,
    },
    /// More words than a handler takes.
    #[error("an active message with {found} arguments, at most {AM_ARGUMENTS_MAX} are possible")]
    TooManyArguments {
        /// How many.
        found: u8,
    },
    /// More data than the whole body has of which this is a piece.
    #[error("a piece of {found} bytes of a body of {total}")]
    PieceTooLong {
        /// Bytes of the piece.
        found: u64,
        /// Bytes of the body.
        total: u64,
    },
    /// A piece that does not go on where the message was.
    #[error("a piece of {found} bytes where {missing} of its message are missing")]
    WrongPiece {
        /// What the piece has, or says that is missing.
        found: u64,
        /// What is missing; 0 if none was begun.
        missing: u64,
    },
}

/// Little-endian fields, in order.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
}

impl MailHead {
    /// Reads a head, without the byte that says how long it is.
    ///
    /// # Errors
    /// What no sound head has.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<MailHead, BadMail> {
        let kind = bytes.first().copied().unwrap_or(0);
        let is_known = matches!(kind, MAIL_COLLECTIVE | MAIL_ACTIVE | MAIL_ACTIVE_REPLY);
        if !is_known {
            return Err(BadMail::UnknownKind { found: kind });
        }
        let wrong_length = BadMail::HeadBytes { kind, found: bytes.len() };
        if kind == MAIL_COLLECTIVE {
            return collective(bytes).ok_or(wrong_length);
        }
        match bytes.get(ACTIVE_BYTES - 1) {
            Some(&found) if usize::from(found) > AM_ARGUMENTS_MAX => Err(BadMail::TooManyArguments { found }),
            _ => active(bytes, kind == MAIL_ACTIVE_REPLY).ok_or(wrong_length),
        }
    }

    /// Whether so much data may stand behind this head.
    ///
    /// # Errors
    /// When it may not.
    #[inline]
    pub fn check_body(&self, body_bytes: u64) -> Result<(), BadMail> {
        match self {
            MailHead::Collective { total_bytes, .. } if body_bytes > *total_bytes => {
                Err(BadMail::PieceTooLong { found: body_bytes, total: *total_bytes })
            }
            _ => Ok(()),
        }
    }
}

#[inline]
fn collective(bytes: &[u8]) -> Option<MailHead> {
    let mut fields = Fields(bytes.get(1..)?);
    let (group, sequence, step) = (fields.u64()?, fields.u64()?, fields.u32()?);
    let total_bytes = fields.u64()?;
    fields.0.is_empty().then_some(MailHead::Collective { group, sequence, step, total_bytes })
}

#[inline]
fn active(bytes: &[u8], is_reply: bool) -> Option<MailHead> {
    let mut fields = Fields(bytes.get(1..)?);
    let (handler, count) = (fields.u32()?, fields.u8()?);
    if fields.0.len() != 8 * usize::from(count) {
        return None;
    }
    let arguments = (0..count).map(|_| fields.u64()).collect::<Option<Vec<u64>>>()?;
    Some(MailHead::Active { handler, is_reply, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_collective(total_bytes: u64) -> Vec<u8> {
        let fields = [&[MAIL_COLLECTIVE][..], &5_u64.to_le_bytes(), &6_u64.to_le_bytes(), &7_u32.to_le_bytes()];
        [&fields.concat(), &total_bytes.to_le_bytes()[..]].concat()
    }

    fn of_active(count: u8, words: &[u64]) -> Vec<u8> {
        let mut head = vec![MAIL_ACTIVE_REPLY];
        head.extend(9_u32.to_le_bytes());
        head.push(count);
        words.iter().for_each(|word| head.extend(word.to_le_bytes()));
        head
    }

    #[test]
    fn heads_are_read_as_they_were_meant() {
        let head = MailHead::Collective { group: 5, sequence: 6, step: 7, total_bytes: 8 };
        assert_eq!(MailHead::decode(&of_collective(8)), Ok(head));
        let head = MailHead::Active { handler: 9, is_reply: true, arguments: vec![1, 2] };
        assert_eq!(MailHead::decode(&of_active(2, &[1, 2])), Ok(head));
    }

    #[test]
    fn a_head_of_every_wrong_length_is_an_error() {
        for whole in [of_collective(8), of_active(0, &[]), of_active(16, &[3; 16])] {
            for bytes in 1..whole.len() {
                let found = MailHead::decode(&whole[..bytes]);
                assert_eq!(found, Err(BadMail::HeadBytes { kind: whole[0], found: bytes }));
            }
            let longer = [&whole[..], &[0]].concat();
            assert!(matches!(MailHead::decode(&longer), Err(BadMail::HeadBytes { .. })));
        }
    }

    #[test]
    fn kinds_and_numbers_that_nobody_sends_are_errors() {
        assert_eq!(MailHead::decode(&[]), Err(BadMail::UnknownKind { found: 0 }));
        assert_eq!(MailHead::decode(&[4; 30]), Err(BadMail::UnknownKind { found: 4 }));
        assert_eq!(MailHead::decode(&of_active(17, &[3; 17])), Err(BadMail::TooManyArguments { found: 17 }));
        let head = MailHead::decode(&of_collective(8)).unwrap();
        assert_eq!(head.check_body(8), Ok(()));
        assert_eq!(head.check_body(9), Err(BadMail::PieceTooLong { found: 9, total: 8 }));
    }
}
