//! What two nodes with RDMA devices say to each other beside frames: [`Record`] before they leave TCP, [`Note`] from then on;
//! and [`Buffers`], which counts the messages of both.

mod buffers;
mod note;
mod record;

pub use buffers::{Breach, Buffers, Message};
pub use note::{NOTE_BYTES, Note, Purpose, RemotePart};
pub use record::{CREDITS_MIN, KEEP_TCP, NoRecord, READY, RECORD_BYTES, Record};
