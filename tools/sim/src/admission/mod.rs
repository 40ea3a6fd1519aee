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
//! The turns of the threads of the coordinator and of the relays are the real ones too (`longarm_control::desk`), over `sockets` of the simulated
//! network; when each is taken, and what has come by then, is said by `coordinator_thread` and `relay_thread`. What a rank does in which order is that of
//! the runtime (`runtime/src/bootstrap`), whose sockets are not here: its steps (`rank`, `steps`) are written out again. `gathering` holds it all
//! together, over `network`; `faults` are what goes wrong, and `job` what is asked for and what becomes of it.

mod coordinator_thread;
mod faults;
mod gathering;
mod job;
mod network;
mod rank;
mod relay_thread;
mod serving;
mod sockets;
mod steps;

use crate::dice::Dice;
use crate::user::Machine;
use gathering::Gathering;
use job::END_NS;
pub use job::{Admitted, Coming, Outcome};

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
    let mut gathering = Gathering::new(coming, machine, None);
    gathering.run_until(END_NS, |gathering| gathering.came_in == coming.ranks);
    let (met_us, started_us, busy_us) = (gathering.met_ns as f64 / 1e3, gathering.now_us(), gathering.busy_us());
    let connections = gathering.connections_of_coordinator();
    gathering.all_leave();
    gathering.run_until(END_NS, |gathering| gathering.gone == coming.ranks);
    let left_us = gathering.now_us() - started_us;
    gathering.check()?;
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
    let mut gathering = Gathering::new(coming, Machine::cluster(), Some(Dice::of(seed, 80, 0)));
    gathering.run_until(END_NS, |gathering| gathering.over == coming.ranks);
    gathering.check()?;
    let are_well = gathering.gone == coming.ranks;
    Ok(Outcome { are_well, hash: gathering.network.hash, ..gathering.outcome })
}

#[cfg(test)]
mod tests;
