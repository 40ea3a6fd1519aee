//! Everything that can grow, and how far. The compiler checks that the bounds fit together.

/// The protocol's version. Both ends of a connection must have the same one, and prove it in the handshake.
pub const PROTOCOL_VERSION: u32 = 5;

/// Bytes of a request's fixed header: one cache line.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a reply's fixed header. The data of a get, or the old values of several updates, follow it.
pub const REPLY_BYTES: usize = 32;
/// Bytes of each old value that [`Request::RmwMany`](crate::Request::RmwMany) brings back.
pub const OLD_VALUE_BYTES: usize = 8;
/// Most bytes between a request's header and its payload: tables of strides and runs, a scale, a signal.
pub const DESCRIPTOR_BYTES_MAX: usize = 4096;

/// Data of gets, and payloads of what is started, up to this many bytes are copied behind their header. Who puts, and waits until the buffer
/// is free, may have more copied.
pub const EAGER_BYTES_MAX: u64 = 16 * 1024;
/// Bytes of replies, and of data that is copied behind them, that an initiator may ask for beyond those that it has
/// acknowledged. The responder keeps as many, in case they have to be sent again.
pub const UNACKNOWLEDGED_REPLY_BYTES_MAX: usize = 1 << 20;
/// What counts as kept for data that is sent from its window: where it stands, and how far it was received. Its bytes do not count.
pub const LARGE_REPLY_BYTES: usize = 2048;
/// Requests of one rank that wait for a mutex at one server, at most. Each is a thread that waits.
pub const LOCK_WAITERS_MAX: usize = 4096;
/// Sessions that one rank has with one server, at most. It has one; others are those of which it has not said that it left.
pub const SESSIONS_PER_RANK_MAX: usize = 64;
/// Bytes of one piece of a large transfer: large enough to fill a network, small enough to share it.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// Most levels of a strided shape, which is ARMCI's own bound.
pub const LEVELS_MAX: usize = 8;
/// Most runs of a vector shape in one request. A longer list is sent as several requests.
pub const SEGMENTS_PER_FRAME_MAX: usize = (DESCRIPTOR_BYTES_MAX - DESCRIPTOR_FIXED_BYTES_MAX) / SEGMENT_BYTES;

/// Bytes of the fixed part that a message's payload starts with: who, which handler, how many arguments.
pub const MESSAGE_HEAD_BYTES: usize = 32;
/// Most word arguments of an active message.
pub const AM_ARGUMENTS_MAX: usize = 16;
/// Bytes of one argument of an active message.
pub const AM_ARGUMENT_BYTES: usize = 8;
/// Most bytes in front of an active message's own payload: the fixed part and all arguments.
pub const MESSAGE_PREFIX_BYTES_MAX: usize = MESSAGE_HEAD_BYTES + AM_ARGUMENTS_MAX * AM_ARGUMENT_BYTES;
/// Most bytes of one message, its head and arguments included.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a message in one request. A longer message goes in several.
pub const MAIL_PIECE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of mail of one initiator that a responder holds for ranks that do not take theirs in, at most: an initiator sends no more
/// beyond what the responder says it has passed on. The header of each request counts too, see [`mail_charge`].
pub const MAIL_CREDIT_BYTES: u64 = 256 << 10;
/// Of so much that it has passed on the responder tells.
pub const MAIL_TOLD_BYTES: u64 = MAIL_CREDIT_BYTES / 4;

/// Bytes of one run of a vector shape, of one level of a strided shape, or of one word of several and its operand, in a descriptor.
pub(crate) const SEGMENT_BYTES: usize = 16;
/// Bytes of a signal in a descriptor.
pub(crate) const SIGNAL_BYTES: usize = 40;
/// Bytes of a scale in a descriptor.
pub(crate) const SCALE_BYTES: usize = 16;
/// Bytes of the length of a strided shape's runs in a descriptor.
pub(crate) const RUN_BYTES_BYTES: usize = 8;
/// Bytes of the value that a compare-and-swap compares with, in a descriptor.
pub(crate) const COMPARE_BYTES: usize = 8;
/// The longest part of a descriptor that is not a table: a request has a signal or a scale, never both.
const DESCRIPTOR_FIXED_BYTES_MAX: usize = SIGNAL_BYTES;

/// What a request with so many bytes of a message takes of the credit.
#[inline]
pub const fn mail_charge(bytes: u64) -> u64 {
    HEADER_BYTES as u64 + bytes
}

const _: () = assert!(SCALE_BYTES <= DESCRIPTOR_FIXED_BYTES_MAX);
const _: () = assert!(COMPARE_BYTES <= DESCRIPTOR_BYTES_MAX);
const _: () = assert!(SEGMENTS_PER_FRAME_MAX > 0);
const _: () = assert!(DESCRIPTOR_FIXED_BYTES_MAX + SEGMENTS_PER_FRAME_MAX * SEGMENT_BYTES <= DESCRIPTOR_BYTES_MAX);
const _: () =
    assert!(DESCRIPTOR_FIXED_BYTES_MAX + RUN_BYTES_BYTES + LEVELS_MAX * SEGMENT_BYTES <= DESCRIPTOR_BYTES_MAX);
const _: () = assert!(HEADER_BYTES.is_multiple_of(REPLY_BYTES)); // In an aligned ring neither one crosses a line.
const _: () = assert!(DESCRIPTOR_BYTES_MAX as u64 <= EAGER_BYTES_MAX); // One buffer size holds either one.
const _: () = assert!(EAGER_BYTES_MAX <= CHUNK_BYTES);
const _: () = assert!(CHUNK_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(EAGER_BYTES_MAX as usize + REPLY_BYTES <= UNACKNOWLEDGED_REPLY_BYTES_MAX / 2); // Half of it is what an initiator asks for.
const _: () = assert!(64 * LARGE_REPLY_BYTES <= UNACKNOWLEDGED_REPLY_BYTES_MAX / 2); // As many large gets are always under way.
// When all has been passed on, and the last of it was not told, there is room for the longest piece.
const _: () = assert!(mail_charge(MAIL_PIECE_BYTES_MAX) <= MAIL_CREDIT_BYTES - MAIL_TOLD_BYTES);
const _: () = assert!(MESSAGE_PREFIX_BYTES_MAX as u64 <= MAIL_PIECE_BYTES_MAX); // The head of a message is in its first piece.
const _: () = assert!(MESSAGE_PREFIX_BYTES_MAX as u64 <= EAGER_BYTES_MAX); // The head of a message is always eager.
