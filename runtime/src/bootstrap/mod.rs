//! How a process becomes a rank: its number, where the others are, and the node it shares memory with.

pub(crate) mod addresses;
mod alone;
mod assembly;
mod coordinator;
mod dialer;
mod exchange;
mod explicit;
mod kubernetes;
pub(crate) mod launch;
mod launcher;
mod listening;
mod managed;
mod member;
mod neighbours;
mod network;
mod node;
pub(crate) mod own_end;
mod patience;
mod relay;
mod rendezvous;
mod scancel;
mod serving;
mod signs;
mod speaker;
mod srun;
mod starter;
mod way;
mod ways;

#[doc(hidden)]
pub use longarm_control::messages as control;

pub(crate) use dialer::Dialer;
pub use exchange::Exchange;
pub(crate) use exchange::join_inside;
pub use launch::{Launch, Outcome};
pub(crate) use launcher::Launcher;
#[cfg(feature = "verbs")]
pub(crate) use network::verbs_options;
pub(crate) use network::{is_routed, network};
pub use node::raise_descriptor_limit;
pub(crate) use node::{Clock, Node, NodeOptions, costs};
pub(crate) use rendezvous::{Counted, Found, OnDeath, OnInquiry, OnLoss, OnNodeCard, Rendezvous};
pub(crate) use ways::find;
#[doc(hidden)]
pub use ways::{launch, started_by_manager_of_mpi, started_by_open_mpi, told_rank, told_rank_and_size};
