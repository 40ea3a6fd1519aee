//! Programs of users on simulated ranks: one run of one seed.
//!
//! ```text
//!   program of rank 0 (a thread) ── World ── real Client ──┐
//!   program of rank 1 (a thread) ── World ── real Client ──┤ SimLink
//!                 │                                        ├──────────  one heap of events, dice
//!                 │ baton: one thread runs at a time       │
//!   server of a node ─────────────────────── real Engine ──┘
//! ```
//!
//! The runtime, the client, the server, the protocol and the shared memory are those of every job, and so are the routers that nodes have in some seeds, or on a machine with some. Each thread of a rank is one of the
//! system, so that thread-locals, panics and stacks of the program are its own; but only who has the baton runs, and who would sleep
//! gives it to the scheduler, which resumes whom the next event concerns. What takes its turns at links and faults is what
//! the simulator's own jobs use ([`crate::network`], [`crate::faults`]).

mod baton;
mod job;
mod machine;
mod outcome;
mod place;
mod schedule;
mod stage;

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use longarm::World;

use crate::fault::FaultSet;
use crate::plan::Shape;
use job::{Job, Program};
pub use machine::{Machine, simulated_time};
pub use outcome::{Failure, Report, Seen};
use place::Place;
use schedule::Scheduler;

/// The most ranks of a program. Up to 10,000 the usual limits of a system are enough (docs/src/simulating.md).
pub const RANKS_MAX: u32 = 100_000;

/// Runs a program on simulated ranks, in one order of events, which follows from the seed.
///
/// The program is an ordinary one, with the world that it is given in place of [`longarm::init`]; it ends with
/// [`longarm::World::finalize`]. A run fails where a rank panics, returns an error or ends the job, and where ranks wait for each other for
/// ever. Where faults kill ranks the survivors go on, as with `LONGARM_ON_FAILURE=continue`: a program that is to stand that returns no
/// error then. In one of four seeds nodes have routers ([`Report::routed`]).
///
/// ```
/// use longarm_sim::FaultSet;
///
/// let report = longarm_sim::run(4, 2, 1, FaultSet::harmless(), |world| {
///     let window = world.allocate_collective::<u64>(1)?;
///     window.fetch_add(0, 0, 1)?;
///     world.barrier_collective()?;
///     assert_eq!(window.get_one(0, 0)?, 4);
///     world.finalize()?;
///     Ok::<(), longarm::Error>(())
/// })?;
/// assert!(report.deaths.is_empty() && report.events > 0);
/// # Ok::<(), longarm_sim::Failure>(())
/// ```
///
/// # Errors
/// What was seen, with the seed.
///
/// # Panics
/// Unless there are 1 to 100,000 ranks, and 1 to as many nodes.
pub fn run<E: Display>(
    ranks: u32,
    nodes: u32,
    seed: u64,
    faults: FaultSet,
    program: impl Fn(World) -> Result<(), E> + Send + Sync + 'static,
) -> Result<Report, Failure> {
    run_kept((ranks, nodes), (seed, faults), None, kept(program))
}

/// Runs a program on simulated ranks of a machine: times follow from what is done, as [`Machine`] says, and there are no faults. The same
/// program takes the same time again.
///
/// ```
/// use std::time::Duration;
///
/// use longarm_sim::Machine;
///
/// let report = longarm_sim::run_on(Machine::cluster(), 8, 4, |world| {
///     world.barrier_collective()?;
///     let before = longarm_sim::simulated_time();
///     world.barrier_collective()?;
///     assert!(longarm_sim::simulated_time() - before >= Duration::from_micros(10), "it takes the network's latency at least");
///     world.finalize()?;
///     Ok::<(), longarm::Error>(())
/// })?;
/// assert!(report.connections_max > 0);
/// # Ok::<(), longarm_sim::Failure>(())
/// ```
///
/// # Errors
/// What was seen; [`Seen::NotBegun`] where the system has no room for so many threads. [`Failure::seed`] and the faults say nothing then.
///
/// # Panics
/// Unless there are 1 to 100,000 ranks, and 1 to as many nodes.
pub fn run_on<E: Display>(
    machine: Machine,
    ranks: u32,
    nodes: u32,
    program: impl Fn(World) -> Result<(), E> + Send + Sync + 'static,
) -> Result<Report, Failure> {
    run_kept((ranks, nodes), (1, FaultSet::NONE), Some(machine), kept(program))
}

/// [`run()`] for each of some seeds, until one fails.
///
/// ```
/// use longarm_sim::FaultSet;
///
/// let found = longarm_sim::run_seeds(2, 2, 0..3, FaultSet::NONE, |world| {
///     let rank = world.rank();
///     world.finalize()?;
///     assert!(rank != 1, "on purpose");
///     Ok::<(), longarm::Error>(())
/// });
/// assert_eq!(found.unwrap_err().seed, 0);
/// ```
///
/// # Errors
/// The first failure.
pub fn run_seeds<E: Display>(
    ranks: u32,
    nodes: u32,
    seeds: Range<u64>,
    faults: FaultSet,
    program: impl Fn(World) -> Result<(), E> + Send + Sync + 'static,
) -> Result<Vec<Report>, Failure> {
    let program = kept(program);
    seeds.map(|seed| run_kept((ranks, nodes), (seed, faults), None, Arc::clone(&program))).collect()
}

fn kept<E: Display>(program: impl Fn(World) -> Result<(), E> + Send + Sync + 'static) -> Program {
    Arc::new(move |world| program(world).map_err(|error| error.to_string()))
}

fn run_kept(
    (ranks, nodes): (u32, u32),
    (seed, faults): (u64, FaultSet),
    machine: Option<Machine>,
    program: Program,
) -> Result<Report, Failure> {
    assert!((1..=RANKS_MAX).contains(&ranks), "{ranks} ranks: a program is run on 1 to {RANKS_MAX}");
    assert!((1..=ranks).contains(&nodes), "{nodes} nodes: {ranks} ranks are on 1 to {ranks}");
    let mut shape = Shape::of_program(seed, ranks, nodes, faults);
    if let Some(machine) = machine {
        shape.encrypted = false; // What that costs is not modelled.
        shape.plan.routed = machine.routers && nodes > 1;
        (shape.own_nodes_max, shape.own_links_max) = (0, 0);
    }
    let routed = shape.plan.routed;
    let failed = |seen| Failure { seed, ranks, nodes, routed, faults, seen, events: Vec::new() };
    let job = Job::begin(shape, machine).map_err(|reason| failed(Seen::NotBegun { reason }))?;
    place::enter(Place { job: Arc::clone(&job), thread: None });
    let mut scheduler = Scheduler::new(Arc::clone(&job));
    let seen = scheduler.start(&program).and_then(|()| scheduler.run());
    let outcome = outcome::of(&job, seen);
    scheduler.end();
    job.end();
    place::leave();
    outcome
}
