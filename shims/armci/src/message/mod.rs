//! `armci_msg_*`: messages and collectives between processes.
//!
//! ```text
//!   armci_msg_dgop ─┐
//!   armci_msg_gop_scope ─ scope: which members of a group ─ numbers: C memory → elements ─ longarm::Group
//! ```
//!
//! Calls without a group mean the default group; `armci_msg_me`, `armci_msg_nproc` and the `to` and `from` of messages
//! are numbers of the world. All of it works before `ARMCI_Init`, too: the first call that needs the others joins them.
//!
//! A barrier here is bare: it waits for no put. `ARMCI_Barrier` does.

pub mod collective;
pub mod group;
pub mod node;
mod numbers;
pub mod point;
mod scope;
pub mod select;
pub mod tree;
