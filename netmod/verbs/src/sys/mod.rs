//! The verbs library behind safe wrappers, but for posting work: the memory that a work request names has to live until
//! its completion, and only the caller can see to that.
//!
//! Types and constants are `rdma-sys`'s, functions are looked up in the library when the process first asks for a
//! device. So a program starts where there is no such library, and finds it where there is one.
#![allow(unsafe_code)]

mod completions;
mod context;
mod errno;
mod library;
mod manager;
mod memory;
#[cfg(test)]
pub(crate) mod mock;
mod paging;
mod queue;

pub(crate) use completions::{Failure, Finished};
pub(crate) use context::{Context, Domain, Port, PortLimits, device_names};
pub(crate) use library::{Library, NoLibrary};
#[cfg(test)]
pub(crate) use manager::BACKLOG;
pub(crate) use manager::{ManagerEvent, ManagerEvents, ManagerId, NoManager, local_addresses};
pub(crate) use memory::{Access, Pages, Registration, Slab, Slabs, Span};
pub use paging::Paging;
pub(crate) use queue::{CHAIN_MAX, Connection, Data, GATHERS_MAX, Post, Posting, Queue, QueueLimits, SharedReceive};
