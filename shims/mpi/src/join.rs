//! Joining a job the way this process was started: by `longarm run`, inside an MPI program, or by what the environment says.
//!
//! An MPI that is in the process goes first, initialised or not: the connection to the process manager is that MPI's. Where there is
//! none, longarm finds the others by itself, and only if it finds no way a library of MPI is loaded that may know one.
//!
//! Several interfaces in one process join one world. Who comes first makes it, and initialises MPI if a process manager has
//! started a program that has not done so itself. Who leaves last ends it, and finalizes that MPI.

use std::sync::Arc;

use longarm::World;
use longarm::bootstrap::{Exchange, told_rank};
use longarm::config::Config;
use longarm::error::InitError;
use parking_lot::Mutex;

use crate::environment::{started_by_process_manager, told_by_manager};
use crate::mpi::{Communicator, Mpi};

/// A job that was joined.
pub struct Joined {
    /// The world.
    pub world: World,
    /// Where it is inside an MPI program: that MPI, and the communicator whose ranks it has.
    pub inside: Option<(&'static Mpi, Communicator)>,
}

/// What the world of this process has of MPI.
struct State {
    /// A duplicate of its own, over which the ranks tell each other things.
    everybody: Option<Communicator>,
    /// MPI was initialised here.
    owns_mpi: bool,
    /// To be called when the job is ended.
    on_abort: Vec<fn()>,
}

static STATE: Mutex<State> = Mutex::new(State { everybody: None, owns_mpi: false, on_abort: Vec::new() });

/// Joins the job of this process, over a communicator that the program names, or over all processes. `on_abort` is called when
/// the job is ended from here. Collective.
///
/// # Errors
/// What is wrong, as a line. Others may be waiting for this process then, so end the job.
pub fn join(communicator: Option<usize>, on_abort: fn()) -> Result<Joined, String> {
    // A program in C has no other way to see longarm's events. What is wrong with the variables the join says.
    longarm::log_to_stderr(&Config::from_environment().unwrap_or_default());
    let mut state = STATE.lock();
    state.on_abort.push(on_abort);
    let said = |error: &dyn std::fmt::Display| error.to_string();
    if longarm::is_launched() {
        return by_environment().map_err(|error| said(&error));
    }
    let is_meant = |mpi: &&Mpi| mpi.is_initialized() || started_by_process_manager();
    let mpi = match Mpi::find().filter(is_meant) {
        Some(mpi) => mpi,
        None => match by_environment() {
            // A program that calls no function of MPI is often not linked with the library that it was compiled for.
            Err(InitError::NoWay { launch }) => Mpi::find_or_load()
                .filter(is_meant)
                .ok_or_else(|| format!("{}\n  an MPI: there is none in this process", InitError::NoWay { launch }))?,
            joined => return joined.map_err(|error| said(&error)),
        },
    };
    if mpi.is_finalized() {
        return Err("MPI is finalized already; leave the job before MPI_Finalize".into());
    }
    if !mpi.is_initialized() {
        mpi.init_thread_multiple().map_err(|error| said(&error))?;
        state.owns_mpi = true;
    }
    if state.owns_mpi {
        check_told(mpi)?;
    }
    let over = communicator.map_or(mpi.world(), |handle| mpi.from_c(handle));
    let (rank, size) = (mpi.rank(over).map_err(|error| said(&error))?, mpi.size(over).map_err(|error| said(&error))?);
    if !longarm::is_initialized() {
        state.everybody = Some(mpi.duplicate(over).map_err(|error| said(&error))?);
    }
    let everybody = state.everybody.ok_or(
        "the world of this process is not that of its MPI: in a job of MPI start ARMCI or OpenSHMEM first, and then call \
         longarm::init_shared",
    )?;
    let world = longarm::init_inside_shared(Arc::new(ByMpi { mpi, everybody, rank, size }));
    let world = world.map_err(|error| said(&error))?;
    if (world.rank(), world.size()) != (rank, size) {
        let (joined, of) = (world.rank(), world.size());
        return Err(format!(
            "this process is {rank} of {size} in the communicator, but its world was joined before as {joined} of {of}"
        ));
    }
    Ok(Joined { world, inside: Some((mpi, over)) })
}

/// As the environment says.
fn by_environment() -> Result<Joined, InitError> {
    Ok(Joined { world: longarm::init_shared()?, inside: None })
}

/// Leaves the job. Collective. The last one to do so ends it.
///
/// # Errors
/// What is wrong, as a line.
pub fn leave(world: World) -> Result<(), String> {
    world.finalize().map_err(|error| error.to_string())?;
    let mut state = STATE.lock();
    if longarm::is_initialized() {
        return Ok(());
    }
    match (state.everybody.take(), Mpi::find().filter(|mpi| !mpi.is_finalized())) {
        (Some(everybody), Some(mpi)) => mpi.free(everybody).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

/// Whether joining has initialised MPI, which is not finalized yet.
pub fn owns_mpi() -> bool {
    STATE.lock().owns_mpi
}

/// Finalizes MPI, if joining has initialised it and nobody is in the job any more.
///
/// # Errors
/// What MPI says.
pub fn finalize_own() -> Result<(), String> {
    let mut state = STATE.lock();
    if longarm::is_initialized() || !std::mem::take(&mut state.owns_mpi) {
        return Ok(());
    }
    match Mpi::find().filter(|mpi| !mpi.is_finalized()) {
        Some(mpi) => mpi.finalize().map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// An MPI that does not understand the process manager takes each process for a job of its own, and says nothing.
fn check_told(mpi: &Mpi) -> Result<(), String> {
    let size = mpi.size(mpi.world()).map_err(|error| error.to_string())?;
    let told = told_by_manager();
    check_size(told, told_rank(), size).map_err(|seen| {
        format!(
            "{seen}, but {} sees a job of {size}; use the mpiexec of the MPI that the program was built with, and see whether the process manager \
             still runs",
            mpi.library()
        )
    })
}

/// Whether what a process manager has told, its rank and of how many, or the rank alone, fits to so many processes. What it has started, if not.
fn check_size(told: Option<(u32, u32)>, rank: Option<u32>, size: u32) -> Result<(), String> {
    match (told, rank) {
        (Some((_, told)), _) if told > 1 && size == 1 => {
            Err(format!("the process manager has started a job of {told}"))
        }
        (_, Some(rank)) if rank >= size => {
            Err(format!("the process manager has started this process as rank {rank}, counted from 0"))
        }
        _ => Ok(()),
    }
}

/// An MPI program as a job to join.
struct ByMpi {
    mpi: &'static Mpi,
    everybody: Communicator,
    rank: u32,
    size: u32,
}

impl Exchange for ByMpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        if self.mpi.is_finalized() {
            return Err("MPI is finalized already".to_owned());
        }
        self.mpi.allgather(self.everybody, mine).map_err(|error| error.to_string())
    }

    fn abort(&self, status: i32) {
        // Not under the lock, which who ends the job may hold.
        let on_abort = STATE.try_lock().map(|state| state.on_abort.clone());
        on_abort.into_iter().flatten().for_each(|call| call());
        if !self.mpi.is_finalized() {
            self.mpi.abort(self.mpi.world(), status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_that_sees_fewer_processes_than_the_manager_has_told_of_is_refused() {
        assert!(check_size(Some((0, 2)), Some(0), 1).is_err());
        assert!(check_size(None, Some(2), 1).is_err(), "PMIx tells the rank alone");
        for (told, rank, size) in [
            (Some((0, 2)), Some(0), 2),
            (None, Some(2), 5),
            (None, Some(0), 1),
            (Some((0, 1)), None, 1),
            (None, None, 1),
        ] {
            assert_eq!(check_size(told, rank, size), Ok(()), "{told:?} {rank:?} {size}");
        }
    }
}
