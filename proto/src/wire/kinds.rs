//! The kinds of requests and replies, and of how a shape is written down, by their numbers on the wire.

use crate::ops::wire_enum;

wire_enum! {
    /// What a request asks for.
    RequestKind {
        /// Bytes are written.
        Put = 1,
        /// Bytes are read.
        Get = 2,
        /// Elements are combined.
        Accumulate = 3,
        /// One integer is updated and its old value returned.
        Rmw = 4,
        /// An answer once everything before is done.
        Quiet = 5,
        /// A mutex, when it is our turn.
        Lock = 6,
        /// A mutex, now or not.
        TryLock = 7,
        /// A mutex is given back.
        Unlock = 8,
        /// A message for a rank.
        Message = 9,
        /// How far the replies have been received, and how far are you?
        Acknowledge = 10,
        /// The initiator is about to go for good.
        Leave = 11,
        /// Several integers are updated and their old values returned.
        RmwMany = 12,
    }
}

impl RequestKind {
    /// Whether a reply comes in any case.
    #[inline]
    pub const fn has_reply(self) -> bool {
        !matches!(self, RequestKind::Put | RequestKind::Accumulate | RequestKind::Message | RequestKind::Leave)
    }

    /// Whether the reply may come at any time. All others come in the order of their requests.
    #[inline]
    pub const fn is_answered_late(self) -> bool {
        matches!(self, RequestKind::Lock)
    }
}

wire_enum! {
    /// What a reply says.
    ReplyKind {
        /// It is done.
        Done = 1,
        /// Bytes follow.
        Data = 2,
        /// A number.
        Value = 3,
        /// The mutex is ours.
        Granted = 4,
        /// It was not done.
        Refused = 5,
        /// Nothing is answered; there is room for more mail.
        MailTaken = 6,
    }
}

wire_enum! {
    /// How the shape of a request is written down.
    ShapeKind {
        /// In the header alone.
        Contiguous = 0,
        /// The first offset in the header, the run's length and the levels in the descriptor.
        Strided = 1,
        /// The runs in the descriptor.
        Vector = 2,
    }
}
