//! The replies: 32 bytes each, and behind them the data of a get, or the old values of several updates.

use super::bytes::{put_u64, u64_at};
use super::kinds::ReplyKind;
use super::violation::Violation;
use crate::ids::RequestId;
use crate::limits::REPLY_BYTES;
use crate::ops::wire_enum;
use thiserror::Error;

wire_enum! {
    /// Why a sound request was not done. The connection goes on.
    #[derive(Error)]
    Refusal {
        /// The bytes are not all inside the window. Detail: the window's bytes.
        #[error("the bytes are not all inside the window")]
        OutsideWindow = 1,
        /// There never was such a window. Detail: the window.
        #[error("there is no such window")]
        UnknownWindow = 2,
        /// The window was freed, or freed and allocated again. Detail: the generation that is there now.
        #[error("the window was freed")]
        FreedWindow = 3,
        /// The key does not open the window.
        #[error("the access key is wrong")]
        WrongKey = 4,
        /// The target rank lives on another node. Detail: the rank.
        #[error("the target rank is not on this node")]
        NotThisNode = 5,
        /// The word or element is not aligned to its own size. Detail: the offset.
        #[error("the offset is not aligned")]
        Misaligned = 6,
        /// The accumulate cannot be done on these bytes.
        #[error("the operation does not fit the bytes")]
        KernelMismatch = 7,
        /// The mutex is not held by who gave it back. Detail: the word.
        #[error("the mutex is not held by this rank")]
        NotHeld = 8,
        /// The word is no mutex. Detail: the word.
        #[error("there is no mutex here")]
        NotAMutex = 9,
        /// The target has no handler of this number. Detail: the number.
        #[error("the target has no such handler")]
        NoHandler = 10,
        /// The target rank is gone. Detail: the rank.
        #[error("the target rank is gone")]
        TargetLost = 11,
        /// The server had no memory for it. Detail: the bytes it wanted.
        #[error("the server is out of memory")]
        OutOfMemory = 12,
        /// This server cannot do that.
        #[error("the server does not support this")]
        NotSupported = 13,
        /// The mutex is held by who asks for it. Detail: the offset.
        #[error("the mutex is held by this rank already")]
        HeldAlready = 14,
    }
}

/// What a responder answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyBody {
    /// Quiet: everything before is done. Unlock: it is free.
    Done,
    /// Get, or several updates: this many bytes follow.
    Data {
        /// How many.
        bytes: u64,
    },
    /// Read-modify-write: the old value. Try for a lock: 0 if it was not taken, else 1, or 2 if it was inherited.
    Value(u64),
    /// Lock: it is ours now.
    Granted {
        /// The holder before died with it.
        inherited: bool,
    },
    /// No answer: the responder has passed on so much of the initiator's mail since the session began, as
    /// [`crate::mail_charge`] counts it. Its number is that of the last request taken up.
    MailTaken {
        /// How much.
        bytes: u64,
    },
    /// Any request: it was not done.
    Refused {
        /// Why.
        refusal: Refusal,
        /// More about it; see [`Refusal`]. 0 where it says nothing.
        detail: u64,
    },
}

impl ReplyBody {
    /// What it says.
    #[inline]
    pub fn kind(&self) -> ReplyKind {
        match self {
            ReplyBody::Done => ReplyKind::Done,
            ReplyBody::Data { .. } => ReplyKind::Data,
            ReplyBody::Value(_) => ReplyKind::Value,
            ReplyBody::Granted { .. } => ReplyKind::Granted,
            ReplyBody::MailTaken { .. } => ReplyKind::MailTaken,
            ReplyBody::Refused { .. } => ReplyKind::Refused,
        }
    }
}

/// A reply without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHeader {
    /// Which request it answers.
    pub id: RequestId,
    /// What the answer is.
    pub body: ReplyBody,
    /// Bytes of requests that the responder had received since the session began. It never asks for them again.
    pub received_bytes: u64,
}

impl ReplyHeader {
    /// Writes the reply over all of `bytes`.
    pub fn encode(&self, bytes: &mut [u8; REPLY_BYTES]) {
        *bytes = [0; REPLY_BYTES];
        bytes[0] = self.body.kind().to_wire();
        put_u64(bytes, 8, self.id.0);
        let value = match self.body {
            ReplyBody::Done => 0,
            ReplyBody::Granted { inherited } => u64::from(inherited),
            ReplyBody::Data { bytes } | ReplyBody::MailTaken { bytes } => bytes,
            ReplyBody::Value(value) => value,
            ReplyBody::Refused { refusal, detail } => {
                bytes[1] = refusal.to_wire();
                detail
            }
        };
        put_u64(bytes, 16, value);
        put_u64(bytes, 24, self.received_bytes);
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The part that no sound reply has.
    pub fn decode(bytes: &[u8; REPLY_BYTES]) -> Result<ReplyHeader, Violation> {
        let kind = ReplyKind::from_wire(bytes[0]).ok_or(Violation::UnknownReply { found: bytes[0] })?;
        let refusal = bytes[1];
        let value = u64_at(bytes, 16);
        // The bytes between kind and id.
        let mut spare = u64_at(bytes, 0) >> 16;
        let body = match kind {
            ReplyKind::Done => {
                spare |= value;
                ReplyBody::Done
            }
            ReplyKind::Granted => {
                spare |= value & !1;
                ReplyBody::Granted { inherited: value & 1 != 0 }
            }
            ReplyKind::Data => ReplyBody::Data { bytes: value },
            ReplyKind::MailTaken => ReplyBody::MailTaken { bytes: value },
            ReplyKind::Value => ReplyBody::Value(value),
            ReplyKind::Refused => {
                let refusal = Refusal::from_wire(refusal).ok_or(Violation::UnknownRefusal { found: refusal })?;
                ReplyBody::Refused { refusal, detail: value }
            }
        };
        if kind != ReplyKind::Refused {
            spare |= u64::from(refusal);
        }
        if spare != 0 {
            return Err(Violation::ReplySpare { kind, found: spare });
        }
        Ok(ReplyHeader { id: RequestId(u64_at(bytes, 8)), body, received_bytes: u64_at(bytes, 24) })
    }
}
