//! What the ranks of a job and whoever starts them say to each other, and what is decided by whoever starts them.
//!
//! ```text
//!   rank ── messages ──▶ rendezvous ──▶ who is where, who died, who may go
//!                            │
//!                        watchdog ──▶ standing: who waits for whom, as people read it
//! ```
//!
//! Pure: nothing here holds a socket, a process, a thread or a clock. The same half serves `longarm run` and the ranks of jobs
//! that something else has started.
#![forbid(unsafe_code)]

pub mod agent;
pub mod arrival;
pub mod coordinator;
pub mod frames;
pub mod invitation;
pub mod messages;
pub mod node_of_rank;
pub mod plan;
pub mod proof;
pub mod questions;
pub mod rendezvous;
mod said;
#[doc(hidden)]
pub mod scale;
pub mod spelling;
pub mod standing;
pub mod vouching;
pub mod watchdog;
