//! The node's progress thread: one loop that drains, serves and replies.
//!
//! ```text
//!   links of remote ranks ──► connection (one each) ──► serve ──► windows of this node
//!   door (unix socket)    ──► door                       └──────► inboxes of this node's ranks
//! ```
//!
//! - [`Engine`] is the loop's body: it owns every connection and does a bounded amount of work a turn.
//! - The crew (`crew.rs`) turns some of the connections while a turn lasts, where many ranks use the node at once.
//! - [`Server`] runs the engine on a thread that sleeps when there is nothing to do, and lends it to a thread of
//!   the same process that waits in a call.
//! - [`door`] hands the memfds of this node to its ranks.
//!
//! What this crate refuses to do: touch memory before every field of a request was checked against the window
//! table, hold more than a bounded amount of memory for a connection, or end the process because of a peer.
#![forbid(unsafe_code)]

mod address;
mod connection;
mod crew;
mod crowding;
pub mod door;
mod engine;
mod inherit;
mod lendable;
mod mail;
mod mutex_waiters;
mod replies;
mod resting;
mod serve;
mod table;
mod thread;

pub use crew::CrewOptions;
pub use engine::{Census, Engine, EngineError, EngineOptions};
pub use table::{MemoryWanted, WindowParts, Windows};
pub use thread::{Assistant, Server};
