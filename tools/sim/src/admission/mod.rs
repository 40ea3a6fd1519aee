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
//! ([`steps`]) and the turns of the two threads ([`desk`], [`passing`]) are written out again. Proofs, messages, frames, and all decisions are the real ones.

mod desk;
mod faults;
mod job;
mod network;
mod passing;
mod rank;
mod stage;
mod steps;

use crate::dice::Dice;
use crate::user::Machine;
use job::END_NS;
pub use job::{Admitted, Coming, Outcome};
use stage::Stage;

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

#[cfg(test)]
mod tests;
