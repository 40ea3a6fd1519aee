//! What longarm nodes say to each other: pure state machines.
//!
//! Bytes go in, values come out, and the other way round. Nothing here opens a socket, reads a clock, starts a
//! thread or touches a window, so the TCP netmod, the simulator and the fuzzers drive the very same code.
//!
//! ```text
//!   origin                                                      target's node
//!   Initiator::begin ── header, descriptor ── payload ──► Responder::handle_header, finish
//!   Initiator::handle_reply ◄── 32 byte reply ── data ───  ReplyHeader::encode
//! ```
//!
//! - [`ids`], [`ops`], [`limits`]: the numbers, the operations and the bounds that everybody shares.
//! - [`shape`]: which bytes of a window, and a cursor that walks them piece by piece.
//! - [`wire`]: the frames. Every decode checks every field before anybody acts on it.
//! - [`initiator`], [`responder`]: the two ends of a conversation.
//! - [`handshake`]: how both ends prove that they know the job's secret before the first frame.
//! - [`rdma`]: what nodes with RDMA devices agree on.
//! - [`mutex_queue`]: the word of a mutex, and its queue as the server keeps it. [`deaths`]: which ranks may be inherited from.
//! - [`mail`]: what a message between ranks looks like.
//! - [`trunk`]: how servers carry the streams of many ranks over one connection. [`credit`]: how much of a stream may be under way.
#![forbid(unsafe_code)]

pub mod credit;
pub mod deaths;
pub mod handshake;
pub mod ids;
pub mod initiator;
pub mod limits;
pub mod mail;
pub mod mutation;
pub mod mutex_queue;
pub mod ops;
pub mod rdma;
pub mod responder;
pub mod shape;
pub mod trunk;
pub mod wire;

pub use credit::*;
pub use deaths::*;
pub use handshake::*;
pub use ids::*;
pub use initiator::*;
pub use limits::*;
pub use mail::*;
pub use mutation::*;
pub use mutex_queue::*;
pub use ops::*;
pub use responder::*;
pub use shape::cursor::{Cursor, Row};
pub use shape::*;
pub use trunk::*;
pub use wire::*;
