//! How the ranks of a job that something else has started come in, and how they leave: the real coordinator and the real relays, at a
//! simulated network, and ranks that say what ranks say.
//!
//! ```text
//!   rank ──┐                              faults: strangers, breaks, pauses, deaths
//!   rank ──┼── real Relay of its node ──┐
//!   rank ──┘                            ├── real Coordinator in the process of rank 0 ── real Rendezvous
//!   rank ─────── by itself ─────────────┘
//! ```
//!
//! What a rank does in which order is that of the runtime (`runtime/src/bootstrap`), whose sockets and threads are not here: the steps of a rank
//! ([`rank`]) and the turns of the two threads ([`stage`]) are written out again. Proofs, messages, frames, and all decisions are the real ones.

mod network;
mod rank;
mod stage;

use std::time::Duration;

use crate::dice::Dice;
use crate::user::Machine;
use stage::Stage;

/// How long all ranks may take to come.
const MEET_NS: u64 = 60_000_000_000;
/// When nothing is to happen any more.
const END_NS: u64 = 200_000_000_000;

/// Who comes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// How many ranks there are.
    pub ranks: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// Whether the ranks of a node come through the first of them.
    pub by_relays: bool,
}

/// When all ranks had come so far, in microseconds since the first one called: `longarm_sim::admission`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Admitted {
    /// All were let in and had said where they run.
    pub met_us: f64,
    /// All knew the server of their node.
    pub started_us: f64,
    /// From when all leave at once until all are let go.
    pub left_us: f64,
    /// For how long the thread of the coordinator was busy until all had started.
    pub busy_us: f64,
    /// Connections to rank 0.
    pub connections: u32,
}

/// What became of a job with faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// All came together, and left.
    pub are_well: bool,
    /// Who was killed, or did not come.
    pub lost: Option<u32>,
    /// How often a rank had to try again.
    pub tries_again: u64,
    /// Strangers that called.
    pub strangers: u64,
    /// Connections that were broken before they were let in.
    pub broken: u64,
    /// Pauses of the coordinator or of a relay.
    pub pauses: u64,
    /// Everything that has happened, in one number.
    pub hash: u64,
}

/// Simulates how all ranks come at once, without faults, on a machine where each thread has a processor of its own.
///
/// ```
/// use longarm_sim::Machine;
/// use longarm_sim::admission::{Coming, admit};
///
/// let admitted = admit(Coming { ranks: 40, nodes: 2, by_relays: true }, Machine::cluster())?;
/// assert!(admitted.met_us < admitted.started_us && admitted.connections == 2);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// Which rank was told what it should not be, or nothing.
///
/// # Panics
/// Unless there is a rank for each node.
pub fn admit(coming: Coming, machine: Machine) -> Result<Admitted, String> {
    let mut stage = Stage::new(coming, machine, None);
    stage.run_until(END_NS, |stage| stage.came_in == coming.ranks);
    let (met_us, started_us, busy_us) = (stage.met_ns as f64 / 1e3, stage.now_us(), stage.busy_us());
    let connections = stage.connections_of_coordinator();
    stage.all_leave();
    stage.run_until(END_NS, |stage| stage.gone == coming.ranks);
    let left_us = stage.now_us() - started_us;
    stage.check()?;
    Ok(Admitted { met_us, started_us, left_us, busy_us, connections })
}

/// Simulates the same with faults, which follow from the seed: strangers call, connections break, the threads of the coordinator and of relays do
/// nothing for a while, ranks come late, and in one of three jobs a rank is killed or never comes. Checks that all ranks come together and leave,
/// or that each that lives is told why not, in time.
///
/// ```
/// use longarm_sim::admission::{Coming, admit_with_faults};
///
/// let coming = Coming { ranks: 12, nodes: 3, by_relays: true };
/// let outcome = admit_with_faults(coming, 1)?;
/// assert_eq!(outcome, admit_with_faults(coming, 1)?, "the same seed is the same job");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// Which rank was told what it should not be, or nothing.
///
/// # Panics
/// Unless there is a rank for each node.
pub fn admit_with_faults(coming: Coming, seed: u64) -> Result<Outcome, String> {
    let mut stage = Stage::new(coming, Machine::cluster(), Some(Dice::of(seed, 80, 0)));
    stage.run_until(END_NS, |stage| stage.over == coming.ranks);
    stage.check()?;
    let are_well = stage.gone == coming.ranks;
    Ok(Outcome { are_well, ..stage.outcome.clone() })
}

fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests;
