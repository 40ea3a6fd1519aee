//! `verbs`: InfiniBand, RoCE and iWARP.
//!
//! ```text
//!   netmod ──► link: TCP for the proof, a queue pair beside it ──► stream: bytes through preregistered buffers
//!                 │                                                   │
//!                 └── proto::rdma: what the two sides agree on        └── sys: the verbs library, found at run time
//! ```
//!
//! The crate builds with the headers of rdma-core, and its programs start without its libraries.
#![deny(unsafe_code)]

mod accounts;
mod answers;
mod batch;
mod costs;
mod counts;
mod direct;
mod executed;
mod fabric;
mod inline_poll;
mod itself;
mod keys;
mod link;
mod manager;
mod mapped;
mod near;
mod netmod;
mod options;
mod packets;
mod paging;
mod patience;
mod peers;
mod pieces;
mod report;
mod requests;
#[cfg(test)]
#[path = "../tests/skipped/mod.rs"]
mod skipped;
mod stream;
mod sys;
mod transfers;
mod unresolved;

pub use costs::Costs;
pub use counts::Counts;
pub use fabric::{VerbsError, device_names};
pub use longarm_registration::{Statistics as CacheStatistics, Watched};
pub use netmod::Verbs;
pub use options::VerbsOptions;
pub use paging::{OnDemand, PagingChoice, TrialFault as PagingFault};
pub use report::{CostReport, DeviceReport, GidReport, PortReport, devices, measure};
pub use sys::Paging;
