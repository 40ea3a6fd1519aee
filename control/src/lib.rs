//! What the ranks of a job and their starter say to each other, and what the starter decides.
//!
//! ```text
//!   rank ── messages ──▶ rendezvous ──▶ where ranks are, which died, which may go
//!                            │
//!                        watchdog ──▶ standing: which rank waits for which, as people read it
//! ```
//!
//! Pure: nothing here holds a socket, a process, a thread or a clock. A [`desk`] takes the turns of a thread over sockets that
//! whoever calls it has. The same half serves `longarm run` and the ranks of jobs
//! that something else has started.
#![forbid(unsafe_code)]

pub mod agent;
pub mod arrival;
pub mod coordinator;
pub mod desk;
pub mod frames;
pub mod how_ended;
pub mod invitation;
pub mod messages;
pub mod node_of_rank;
pub mod plan;
pub mod proof;
pub mod questions;
pub mod relay;
pub mod rendezvous;
mod said;
#[doc(hidden)]
pub mod scale;
pub mod spelling;
pub mod standing;
pub mod vouching;
pub mod watchdog;
