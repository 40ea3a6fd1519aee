//! The frames: requests with a 64 byte header and a descriptor, replies of 32 bytes.
//!
//! ```text
//!            0     1      2        3   4                 8        16          24           28
//!   request  kind  shape  element  op  descriptor_bytes  payload  request id  target rank  generation
//!            32      40   48      56
//!            window  key  offset  operand
//!
//!            0     1        2   8           16     24
//!   reply    kind  refusal  0   request id  value  received
//! ```
//!
//! Everything is little-endian. A field that a kind does not use is 0, and a decode refuses anything else: that
//! leaves every field free for a later version, and a frame has exactly one spelling. The descriptor holds what
//! does not fit the header, its fixed part first: a signal, a scale or a compare value, then the table of levels,
//! runs or words. The payload follows the descriptor; the data of a get, and the old values of several updates, follow their reply. All three are opaque here.

mod at;
mod bytes;
mod decode;
mod encode;
mod kinds;
mod reply;
mod request;
mod violation;

pub use decode::RequestHeader;
pub use kinds::{ReplyKind, RequestKind, ShapeKind};
pub use reply::{Refusal, ReplyBody, ReplyHeader};
pub use request::{Request, Signal, WindowRef};
pub use violation::{HeaderField, Violation};

pub(crate) use bytes::{put_u32, put_u64, u32_at, u64_at};
