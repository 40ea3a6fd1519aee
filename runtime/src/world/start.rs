//! How a process comes to its world.

use std::sync::Arc;

use longarm_shm::sync::Ordering;
use parking_lot::Mutex;

use super::{World, join};
use crate::bootstrap::{self, Exchange, Found, Launcher};
use crate::config::{Config, ConfigError};
use crate::error::InitError;
use crate::inner::INITIALISED;

/// Joins the job that this process was started for, or makes a world of one. Collective over all processes of the job, which may do it
/// again when all of them have finalized.
///
/// It does not matter what has started the processes: `longarm run`, a process manager, or anything that has told each of them its rank and where rank 0
/// is (`LONGARM_RANK`, `LONGARM_SIZE`, `LONGARM_ROOT`, `LONGARM_SECRET_FILE`). Where the environment says that there are
/// others, and no way leads to them, it is an error that says what was seen; an MPI may be that way ([`init_inside`]).
/// `LONGARM_ALONE=yes` makes each process a world of one all the same.
///
/// `ARMCI_Init`, `shmem_init`.
///
/// # Errors
/// [`InitError`]: what is wrong with the configuration, the launcher or this node.
pub fn init() -> Result<World, InitError> {
    once(Config::from_environment, find)
}

/// [`init`] with a configuration of the program's own; of the environment's only what `longarm run` tells its ranks is
/// looked at. All ranks bring the same. A field counts as set where it is not the built-in value;
/// [`Config::set`] sets that one too.
///
/// ```
/// let mut config = longarm::config::Config::default();
/// config.window_bytes_max = 1 << 20;
/// let world = longarm::init_with(config)?;
/// assert!(world.allocate_collective::<u8>((1 << 20) + 1).is_err());
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// # Errors
/// As [`init`]; what is wrong with the configuration is said with the name of the variable.
pub fn init_with(config: Config) -> Result<World, InitError> {
    let settled = |mut config: Config| config.settle_fields().map(|()| config);
    once(|| settled(config), find)
}

/// The way that this process went before, or the first one that leads to others.
fn find(config: &mut Config) -> Result<Found, InitError> {
    match Launcher::joined_before()? {
        Some((launcher, start)) => Ok((Some(launcher), start)),
        None => bootstrap::find(config),
    }
}

/// Makes the ranks of a job that something else has started, an MPI program for instance, into a world with the same
/// ranks. Collective over all of them. Which of them share a node is found out; `LONGARM_NODES` cuts the ranks of a
/// machine into several.
///
/// ```
/// use std::sync::Arc;
///
/// /// What an MPI or another runtime gives: here that of a job of one.
/// struct Alone;
///
/// impl longarm::Exchange for Alone {
///     fn rank(&self) -> u32 {
///         0 // MPI_Comm_rank
///     }
///     fn size(&self) -> u32 {
///         1 // MPI_Comm_size
///     }
///     fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String> {
///         Ok(vec![mine.to_vec()]) // MPI_Allgather of the lengths, then MPI_Allgatherv
///     }
///     fn abort(&self, status: i32) {
///         std::process::exit(status) // MPI_Abort
///     }
/// }
///
/// let world = longarm::init_inside(Arc::new(Alone))?;
/// let again = longarm::init_inside_shared(Arc::new(Alone))?; // another library of this process
/// assert_eq!(again.size(), 1);
/// again.finalize()?;
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// # Errors
/// As [`init`], and [`InitError::Exchange`]. Others may be waiting for this rank then, so end the job.
pub fn init_inside(job: Arc<dyn Exchange>) -> Result<World, InitError> {
    once(Config::from_environment, |config| bootstrap::join_inside(job, config))
}

/// The world that something else in this process has made, an interface in C for instance, or else [`init`]. Each that got a world
/// from here or from init finalizes it, and the last one to do so leaves the job. Collective: all processes of the job come
/// to their worlds, and leave them, in the same order.
///
/// ```
/// let world = longarm::init()?;
/// let again = longarm::init_shared()?;
/// again.finalize()?;
/// world.sync_collective()?; // It is still there.
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// # Errors
/// As [`init`].
pub fn init_shared() -> Result<World, InitError> {
    shared(init)
}

/// As [`init_shared`], with [`init_inside`] where there is no world yet.
///
/// # Errors
/// As [`init_inside`].
pub fn init_inside_shared(job: Arc<dyn Exchange>) -> Result<World, InitError> {
    shared(|| init_inside(job))
}

fn shared(make: impl FnOnce() -> Result<World, InitError>) -> Result<World, InitError> {
    /// Held until the world is there that others may want to share.
    static SHARING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = SHARING.lock();
    World::current().map_or_else(make, Ok)
}

/// Whether this process has a world.
///
/// ```
/// assert!(!longarm::is_initialized());
/// let world = longarm::init()?;
/// assert!(longarm::is_initialized());
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub fn is_initialized() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// Whether `longarm run` has started this process.
///
/// ```
/// if !longarm::is_launched() {
///     eprintln!("alone, or started by something else; with several ranks: longarm run -n 4 PROGRAM");
/// }
/// ```
pub fn is_launched() -> bool {
    std::env::var_os(longarm_control::messages::CONTROL_FD_VARIABLE).is_some()
}

fn once(
    configure: impl FnOnce() -> Result<Config, ConfigError>,
    find: impl FnOnce(&mut Config) -> Result<Found, InitError>,
) -> Result<World, InitError> {
    if INITIALISED.swap(true, Ordering::AcqRel) {
        return Err(InitError::Twice);
    }
    let world = configure().map_err(InitError::from).and_then(|config| join(config, find));
    if world.is_err() {
        INITIALISED.store(false, Ordering::Release);
    }
    world
}
