//! Streams between a link and memory: what both ends of a conversation do with bytes.
//!
//! - [`Outgoing`]: frames wait in a few byte buffers, large payloads stay where they are and are named by a cursor;
//!   one vectored send takes both.
//! - [`Incoming`]: one receive brings many small frames into a buffer; what is missing of a large payload is
//!   received straight into the memory it is meant for.
//!
//! Both move bytes only: what a frame means is not known here.

mod costs;
mod incoming;
mod outgoing;
mod runs;

pub use costs::Costs;
pub use incoming::{INCOMING_BYTES, Incoming};
pub use outgoing::Outgoing;
pub use runs::{RunSource, RunTarget, unpacking};
