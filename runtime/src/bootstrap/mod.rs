//! How a process becomes a rank: who it is, where the others are, and the node it shares memory with.

pub mod control;
mod launcher;
mod node;

pub(crate) use launcher::Launcher;
pub(crate) use node::{Dialer, Node, NodeOptions, tcp};
