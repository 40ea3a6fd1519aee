//! The requests, as values.

use super::kinds::RequestKind;
use crate::ids::{AccessKey, Generation, Rank, WindowId};
use crate::limits::OLD_VALUE_BYTES;
use crate::ops::{Kernel, Rmw, RmwOp, RmwWidth, RmwWord, Scale, SignalOp};
use crate::shape::Shape;

/// The part of a window that a request means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowRef {
    /// The target rank, whose part of the window is meant.
    pub rank: Rank,
    /// Which window.
    pub window: WindowId,
    /// Which life of the window's slot.
    pub generation: Generation,
    /// What lets the request in.
    pub key: AccessKey,
}

/// What happens to one aligned 8 byte word of the same target rank once the bytes of a put are there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Signal {
    /// The window that holds the word; it may be another one than that of the put.
    pub window: WindowId,
    /// Which life of the window's slot.
    pub generation: Generation,
    /// What lets the signal in.
    pub key: AccessKey,
    /// Where the word is, in bytes from the window's start.
    pub offset: u64,
    /// What is done to the word.
    pub op: SignalOp,
    /// With which value.
    pub value: u64,
}

/// What an initiator asks of a responder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Writes the payload, which is as long as the shape. No reply, unless refused.
    Put {
        /// Whose memory.
        target: WindowRef,
        /// Which bytes.
        shape: Shape,
        /// What happens afterwards.
        signal: Option<Signal>,
    },
    /// Reads bytes. The reply is `Data`.
    Get {
        /// Whose memory.
        target: WindowRef,
        /// Which bytes.
        shape: Shape,
    },
    /// Combines the payload, which is as long as the shape, with the elements there. No reply, unless refused.
    Accumulate {
        /// Whose memory.
        target: WindowRef,
        /// Which bytes. Every run is a whole number of elements.
        shape: Shape,
        /// What is done.
        kernel: Kernel,
        /// The factor of a sum. Bytes behind its one value are 0.
        scale: Scale,
    },
    /// Updates one integer. The reply is `Value`, the old value.
    Rmw {
        /// Whose memory.
        target: WindowRef,
        /// Where the word is, in bytes from the window's start.
        offset: u64,
        /// What is done.
        rmw: Rmw,
    },
    /// Updates several integers, one after the other, each as [`Request::Rmw`] does; or none, if one of them cannot be. The reply is
    /// `Data`: the old values, [`OLD_VALUE_BYTES`] each, zero-extended, in the order of the words.
    RmwMany {
        /// Whose memory.
        target: WindowRef,
        /// What is done; everything but [`RmwOp::CompareSwap`], for which a word has no second value.
        op: RmwOp,
        /// To how many bytes.
        width: RmwWidth,
        /// Which words, and with which values. At least one, at most [`crate::SEGMENTS_PER_FRAME_MAX`]; a word may be there more than once.
        words: Vec<RmwWord>,
    },
    /// Asks for `Done` once everything before is done.
    Quiet,
    /// Asks for the mutex whose word is here. The reply is `Granted`, at any later time.
    Lock {
        /// Whose memory.
        target: WindowRef,
        /// Where the word is, in bytes from the window's start.
        offset: u64,
    },
    /// Asks for the mutex if it is free. The reply is `Value`: 1 for ours, 0 for not.
    TryLock {
        /// Whose memory.
        target: WindowRef,
        /// Where the word is, in bytes from the window's start.
        offset: u64,
    },
    /// Gives the mutex back. The reply is `Done`.
    Unlock {
        /// Whose memory.
        target: WindowRef,
        /// Where the word is, in bytes from the window's start.
        offset: u64,
    },
    /// A message; what its bytes mean is not known here. No reply, unless refused.
    Message {
        /// Who gets it.
        target: Rank,
        /// How long the payload is, which is all of the message or a piece of it. At most [`crate::MAIL_PIECE_BYTES_MAX`].
        bytes: u64,
        /// Bytes of the message that later requests bring. All of it together has at most [`crate::MESSAGE_BYTES_MAX`].
        rest: u64,
    },
    /// Says how far the replies have been received, so that the responder may forget them, and asks for `Done`, which
    /// says how far the requests have been.
    Acknowledge {
        /// Bytes of replies and data received since the session began.
        received_bytes: u64,
    },
    /// Ends the session. No reply; the connection is closed behind it.
    Leave,
}

impl Request {
    /// Bytes that follow the descriptor.
    #[inline]
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Request::Put { shape, .. } | Request::Accumulate { shape, .. } => shape.bytes(),
            Request::Message { bytes, .. } => *bytes,
            Request::Get { .. }
            | Request::Rmw { .. }
            | Request::RmwMany { .. }
            | Request::Quiet
            | Request::Lock { .. }
            | Request::TryLock { .. }
            | Request::Unlock { .. }
            | Request::Acknowledge { .. }
            | Request::Leave => 0,
        }
    }

    /// Bytes of data that come with the reply, unless it is refused.
    #[inline]
    pub fn reply_data_bytes(&self) -> u64 {
        match self {
            Request::Get { shape, .. } => shape.bytes(),
            Request::RmwMany { words, .. } => (words.len() * OLD_VALUE_BYTES) as u64,
            _ => 0,
        }
    }

    /// Whether a reply comes in any case. Those without one are answered only when they are refused.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.kind().has_reply()
    }

    /// What it asks for.
    #[inline]
    pub fn kind(&self) -> RequestKind {
        match self {
            Request::Put { .. } => RequestKind::Put,
            Request::Get { .. } => RequestKind::Get,
            Request::Accumulate { .. } => RequestKind::Accumulate,
            Request::Rmw { .. } => RequestKind::Rmw,
            Request::RmwMany { .. } => RequestKind::RmwMany,
            Request::Quiet => RequestKind::Quiet,
            Request::Lock { .. } => RequestKind::Lock,
            Request::TryLock { .. } => RequestKind::TryLock,
            Request::Unlock { .. } => RequestKind::Unlock,
            Request::Message { .. } => RequestKind::Message,
            Request::Acknowledge { .. } => RequestKind::Acknowledge,
            Request::Leave => RequestKind::Leave,
        }
    }

    /// Whose memory or inbox it is for. `None` for those that are for the connection.
    #[inline]
    pub fn target_rank(&self) -> Option<Rank> {
        match self {
            Request::Put { target, .. }
            | Request::Get { target, .. }
            | Request::Accumulate { target, .. }
            | Request::Rmw { target, .. }
            | Request::RmwMany { target, .. }
            | Request::Lock { target, .. }
            | Request::TryLock { target, .. }
            | Request::Unlock { target, .. } => Some(target.rank),
            Request::Message { target, .. } => Some(*target),
            Request::Quiet | Request::Acknowledge { .. } | Request::Leave => None,
        }
    }
}
