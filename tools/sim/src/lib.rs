//! Whole jobs of longarm in one process, with everything that can go wrong, from a seed.
//!
//! ```text
//!   program of a rank (its own stack) ── real Client ──┐
//!   program of a rank                 ── real Client ──┤ SimLink    simulated network and time
//!                                                      ├──────────  one heap of events, dice
//!   server of a node                  ── real Engine ──┘
//!              │                                 │
//!              └── shared memory of the node ────┘      book: what was done, and whether it can be
//! ```
//!
//! Client, server, protocol and shared memory are the ones that jobs run on. What is simulated is the network, the clock,
//! and who runs when: one seed is one run, to the last byte. Ranks of a node share memory as they always do.
//!
//! - [`plan`]: what follows from the seed before anything happens. [`program`]: what a rank does.
//! - [`network`], [`schedule`], [`hooks`], [`fiber`]: time, links and turns.
//! - [`routed`], [`announced`]: routers between nodes, and the descriptors that they sleep on, in jobs of both kinds.
//! - [`fault`], [`faults`]: what goes wrong. [`book`]: what must not.
//! - [`mod@run`]: one run. [`shrink`]: the smallest one that still fails. [`report`]: what people read.
//! - [`scale`]: how long jobs of few and of many ranks take.
//! - [`admission`]: how the ranks of a job that something else has started come in and leave.
//! - [`footprint`]: how much memory a large job takes.
//! - [`user`]: programs of users on simulated ranks: [`run()`], [`run_seeds`], [`run_on`].
#![forbid(unsafe_code)]

pub mod admission;
pub mod announced;
pub mod book;
pub mod cli;
pub mod client;
pub mod dice;
pub mod fault;
pub mod faults;
pub mod fiber;
pub mod footprint;
pub mod hooks;
pub mod job;
pub mod many;
pub mod network;
pub mod plan;
pub mod program;
pub mod report;
pub mod routed;
pub mod run;
pub mod scale;
pub mod schedule;
pub mod shrink;
pub mod trace;
pub mod user;

pub use fault::{Fault, FaultSet};
pub use user::{Failure, Machine, Report, Seen, run, run_on, run_seeds, simulated_time};
