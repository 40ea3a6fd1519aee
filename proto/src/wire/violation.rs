//! What a peer may not send. Each one ends the connection; none of them touches a byte of memory.

use super::kinds::{ReplyKind, RequestKind};
use crate::ids::RequestId;
use crate::limits::{
    DESCRIPTOR_BYTES_MAX, LOCK_WAITERS_MAX, MAIL_PIECE_BYTES_MAX, MESSAGE_BYTES_MAX, SEGMENTS_PER_FRAME_MAX,
};
use crate::ops::{AccumulateOp, ElementType};
use crate::shape::ShapeError;
use thiserror::Error;

/// A field of a request's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderField {
    /// How the shape is written.
    Shape,
    /// Element type or width.
    Element,
    /// Operation.
    Op,
    /// Length of the payload.
    PayloadBytes,
    /// Target rank.
    Rank,
    /// Generation of the window.
    Generation,
    /// Window.
    Window,
    /// Access key.
    Key,
    /// Offset in the window.
    Offset,
    /// Operand, or length of a get.
    Operand,
}

/// How a peer broke the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// No request has this kind.
    #[error("request kind {found} is not known")]
    UnknownRequest {
        /// The number found.
        found: u8,
    },
    /// No shape has this kind.
    #[error("shape kind {found} is not known")]
    UnknownShape {
        /// The number found.
        found: u8,
    },
    /// No element has this type.
    #[error("element type {found} is not known")]
    UnknownElement {
        /// The number found.
        found: u8,
    },
    /// No accumulate does this.
    #[error("accumulate operation {found} is not known")]
    UnknownAccumulateOp {
        /// The number found.
        found: u8,
    },
    /// The element type does not allow the operation.
    #[error("operation {op:?} makes no sense for elements {element:?}")]
    SenselessKernel {
        /// The element type found.
        element: ElementType,
        /// The operation found.
        op: AccumulateOp,
    },
    /// No read-modify-write does this.
    #[error("read-modify-write operation {found} is not known")]
    UnknownRmwOp {
        /// The number found.
        found: u8,
    },
    /// No word is this wide.
    #[error("word width {found} is not known")]
    UnknownRmwWidth {
        /// The number found.
        found: u8,
    },
    /// Several words are to be compared with something, and have no value for that.
    #[error("a list of compare-and-swaps, in which a word has nothing to compare with")]
    NothingToCompareWith,
    /// No signal does this.
    #[error("signal operation {found} is not known")]
    UnknownSignalOp {
        /// The number found.
        found: u8,
    },
    /// A field that has to be 0 is not.
    #[error("a {kind:?} request has {found} in the field {field:?}, which it does not use")]
    UnusedField {
        /// What was asked for.
        kind: RequestKind,
        /// Which field.
        field: HeaderField,
        /// What stands there.
        found: u64,
    },
    /// The descriptor is longer than any may be.
    #[error("a descriptor of {found} bytes, at most {DESCRIPTOR_BYTES_MAX} are possible")]
    DescriptorTooLong {
        /// The length found.
        found: u32,
    },
    /// The descriptor's length fits nothing that this request can say.
    #[error("a {kind:?} request with a descriptor of {found} bytes, which fits none of its forms")]
    DescriptorBytes {
        /// What was asked for.
        kind: RequestKind,
        /// The length found.
        found: u32,
    },
    /// A list of too many runs, or words.
    #[error("{found} runs or words in one frame, at most {SEGMENTS_PER_FRAME_MAX} are possible")]
    TooManyRuns {
        /// How many there are.
        found: usize,
    },
    /// A run ends beyond the largest offset.
    #[error("{bytes} bytes at offset {offset} end beyond the largest offset")]
    RunOverflow {
        /// Where it starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// The runs together have more bytes than can be counted.
    #[error("the runs have more bytes than 64 bits can count")]
    BytesOverflow,
    /// The strides and counts describe no possible shape.
    #[error("no possible shape: {0}")]
    Shape(#[from] ShapeError),
    /// Header and descriptor disagree about the length.
    #[error("the header says {declared} bytes, the shape has {found}")]
    ShapeBytes {
        /// What the header says.
        declared: u64,
        /// What the descriptor adds up to.
        found: u64,
    },
    /// An accumulate cuts an element in two.
    #[error("a run of {run_bytes} bytes is not a whole number of elements {element:?}")]
    BrokenElement {
        /// How long the run is.
        run_bytes: u64,
        /// What it should hold.
        element: ElementType,
    },
    /// Something stands behind the one value of a scale.
    #[error("a scale has bytes behind its one {element:?}")]
    Scale {
        /// The element type of the accumulate.
        element: ElementType,
    },
    /// The spare bytes of a signal are not 0.
    #[error("a signal has {found} in its spare bytes")]
    SignalSpare {
        /// What stands there.
        found: u32,
    },
    /// A message over the limit.
    #[error(
        "a message of {found} bytes and {rest} to come: {MAIL_PIECE_BYTES_MAX} at a time are possible, {MESSAGE_BYTES_MAX} together"
    )]
    MessageTooLong {
        /// The length found.
        found: u64,
        /// The rest that it announces.
        rest: u64,
    },
    /// A piece of a message that does not go on where the one before it ended.
    #[error("a piece of a message of {found} bytes and {rest} to come, where {missing} are missing")]
    MailPiece {
        /// The length found.
        found: u64,
        /// The rest that it announces.
        rest: u64,
        /// What is missing of the message.
        missing: u64,
    },
    /// More mail than the initiator has credit for.
    #[error("mail that takes {found} of a credit of which {available} are left")]
    MailOverdrawn {
        /// What it takes.
        found: u64,
        /// What was left.
        available: u64,
    },
    /// A responder says that it has passed on more mail than was sent, or less than before.
    #[error("mail of {found} is said to be passed on, which should be between {least} and {most}")]
    MailTaken {
        /// What it says.
        found: u64,
        /// What it has said before.
        least: u64,
        /// What was sent.
        most: u64,
    },
    /// A request came twice, or one is missing.
    #[error("request {found} came where request {expected} was due")]
    Sequence {
        /// The number that was due.
        expected: RequestId,
        /// The number found.
        found: RequestId,
    },
    /// No reply has this kind.
    #[error("reply kind {found} is not known")]
    UnknownReply {
        /// The number found.
        found: u8,
    },
    /// No refusal has this number.
    #[error("refusal {found} is not known")]
    UnknownRefusal {
        /// The number found.
        found: u8,
    },
    /// Something stands in a part of a reply that has to be 0.
    #[error("a {kind:?} reply has {found:#x} in bytes that it does not use")]
    ReplySpare {
        /// What kind of reply.
        kind: ReplyKind,
        /// The bits that should be 0, put together.
        found: u64,
    },
    /// A reply names a request that was never sent.
    #[error("a reply to request {found}, the last one sent is {last}")]
    NotYetSent {
        /// The number found.
        found: RequestId,
        /// The last one sent; 0 before the first.
        last: RequestId,
    },
    /// A reply names a request that waits for none: it was answered, or is answered only by a refusal.
    #[error("a {reply:?} reply to request {id}, which waits for none")]
    NothingWaits {
        /// The request named.
        id: RequestId,
        /// What came.
        reply: ReplyKind,
    },
    /// A reply overtook that of an earlier request.
    #[error("the reply to request {found} came where that to request {expected} was due")]
    ReplyOrder {
        /// The request whose reply was due.
        expected: RequestId,
        /// The request named.
        found: RequestId,
    },
    /// A reply of a kind that does not answer its request.
    #[error("a {reply:?} reply to request {id}, which was a {request:?}")]
    UnexpectedReply {
        /// The request named.
        id: RequestId,
        /// What it asked for.
        request: RequestKind,
        /// What came.
        reply: ReplyKind,
    },
    /// A reply says that less was received than an earlier one said.
    #[error("a reply says that {found} bytes of requests were received, one before it said {before}")]
    AcknowledgedLess {
        /// What it says.
        found: u64,
        /// What was said before.
        before: u64,
    },
    /// An initiator asks for more and more and never acknowledges what it has received.
    #[error("replies of {bytes} bytes and {streams} payloads were not acknowledged")]
    Unacknowledged {
        /// Bytes kept for it.
        bytes: u64,
        /// Payloads kept for it in their windows.
        streams: u64,
    },
    /// A rank waits for mutexes more often than it can have threads.
    #[error("it waits for mutexes in {found} requests, at most {LOCK_WAITERS_MAX} are possible")]
    LockWaiters {
        /// How many there would be.
        found: usize,
    },
    /// More bytes are said to be received than were sent, or fewer than were known to be.
    #[error("{found} bytes are said to be received, which should be between {least} and {most}")]
    Received {
        /// What the peer says.
        found: u64,
        /// What it is known to have received.
        least: u64,
        /// What was sent.
        most: u64,
    },
    /// The data of a reply has another length than was asked for.
    #[error("{found} bytes of data for request {id}, which asked for {expected}")]
    DataBytes {
        /// The request named.
        id: RequestId,
        /// What it asked for.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// A try for a mutex is answered by something else than yes or no.
    #[error("{found} is no answer to request {id}, which tried a lock: it is 0 or 1")]
    TryLockValue {
        /// The request named.
        id: RequestId,
        /// What came.
        found: u64,
    },
}
