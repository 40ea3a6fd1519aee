//! How a C program becomes part of a job: by `longarm run`, inside an MPI program, or alone.

use std::sync::Arc;

use longarm::bootstrap::Exchange;
use longarm_mpi::{Communicator, Mpi};
use parking_lot::Mutex;

use crate::boundary::{Done, Fault};
use crate::job::{self, Job, Phase};

/// The MPI of this process and our own communicator of all ranks.
pub(crate) struct MpiSide {
    pub(crate) mpi: &'static Mpi,
    /// A duplicate, so that no message of ours meets one of the program's.
    pub(crate) everybody: Communicator,
}

/// What has to happen once, or in one thread at a time.
struct Joining {
    /// `armci_msg_init` has initialised MPI, so `armci_msg_finalize` finalizes it.
    owns_mpi: bool,
    /// `armci_msg_init` was called: the job lasts until `armci_msg_finalize`.
    by_messages: bool,
    /// The end of the process leaves the job; see [`leave_at_exit`].
    exit_hook: bool,
}

static JOINING: Mutex<Joining> = Mutex::new(Joining { owns_mpi: false, by_messages: false, exit_hook: false });

/// The job of this process, joined now if need be. Joining is collective.
pub(crate) fn joined() -> Done<&'static Job> {
    joined_over(None)
}

/// The job for calls that work without `ARMCI_Init`. One that has ended is not begun again by a message.
pub(crate) fn joined_for_messages() -> Done<&'static Job> {
    if job::any().is_some_and(|job| !job.is_present()) {
        return Err(Fault::fatal(
            "called after the job has ended: by ARMCI_Finalize inside an MPI program, else by armci_msg_finalize",
        ));
    }
    joined()
}

/// The same over an MPI communicator that the program names.
pub(crate) fn joined_over(communicator: Option<usize>) -> Done<&'static Job> {
    if let Some(job) = present() {
        return Ok(job);
    }
    let mut joining = JOINING.lock();
    match present() {
        Some(job) => Ok(job),
        None => join(&mut joining, communicator),
    }
}

/// The job, unless it has ended for good.
fn present() -> Option<&'static Job> {
    job::any().filter(|job| job.is_present())
}

fn join(joining: &mut Joining, communicator: Option<usize>) -> Done<&'static Job> {
    if longarm::is_launched() {
        let world = longarm::init().map_err(Fault::fatal)?;
        return Ok(job::set(Job::new(world, None)));
    }
    let Some(mpi) = Mpi::find_or_load().filter(|mpi| mpi.is_initialized() || mpi.started_by_mpi()) else {
        if longarm_mpi::started_by_process_manager() {
            return Err(Fault::fatal(
                "a process manager of MPI started this process, but there is no MPI in it; link the program with that MPI, or start it with longarm run",
            ));
        }
        let world = longarm::init().map_err(Fault::fatal)?;
        return Ok(job::set(Job::new(world, None)));
    };
    if mpi.is_finalized() {
        return Err(Fault::fatal("MPI is finalized already; call ARMCI_Finalize before MPI_Finalize"));
    }
    if !mpi.is_initialized() {
        mpi.init_thread_multiple().map_err(Fault::fatal)?;
        joining.owns_mpi = true;
    }
    let over = communicator.map_or(mpi.world(), |handle| mpi.from_c(handle));
    let everybody = mpi.duplicate(over).map_err(Fault::fatal)?;
    let (rank, size) = (mpi.rank(everybody).map_err(Fault::fatal)?, mpi.size(everybody).map_err(Fault::fatal)?);
    let world = longarm::init_inside(Arc::new(ByMpi { mpi, everybody, rank, size })).map_err(Fault::fatal)?;
    Ok(job::set(Job::new(world, Some(MpiSide { mpi, everybody }))))
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
        if !self.mpi.is_finalized() {
            self.mpi.abort(self.mpi.world(), status);
        }
    }
}

/// `armci_msg_init`: the job lasts until [`leave_messages`].
pub(crate) fn join_messages() -> Done {
    JOINING.lock().by_messages = true;
    joined().map(drop)
}

/// `ARMCI_Finalize`: the job ends here inside an MPI program that goes on without it, else later.
pub(crate) fn leave(job: &'static Job) -> Done {
    let barrier = job.world.barrier_collective();
    job.mutexes.forget();
    job.groups.reset_default();
    job.enter(Phase::Finished);
    barrier?;
    let mut joining = JOINING.lock();
    if joining.by_messages {
        return Ok(());
    }
    match &job.mpi {
        Some(_) => end(job, &mut joining),
        // A launcher's job cannot be joined twice, so it stays until the process ends: ARMCI_Init may come again.
        None => {
            leave_at_exit(&mut joining);
            Ok(())
        }
    }
}

/// `armci_msg_finalize`.
pub(crate) fn leave_messages() -> Done {
    let mut joining = JOINING.lock();
    let owned = std::mem::take(&mut joining.owns_mpi);
    joining.by_messages = false;
    if let Some(job) = present() {
        job.enter(Phase::Finished);
        end(job, &mut joining)?;
    }
    if let Some(mpi) = Mpi::find().filter(|mpi| owned && !mpi.is_finalized()) {
        mpi.finalize().map_err(Fault::fatal)?;
    }
    Ok(())
}

/// Leaves the job for good.
fn end(job: &'static Job, _one_at_a_time: &mut Joining) -> Done {
    if !job.end_presence() {
        return Ok(());
    }
    job.segments.forget(job);
    job.world.clone().finalize()?;
    job.groups.free_communicators(job);
    if let Some(side) = &job.mpi
        && !side.mpi.is_finalized()
    {
        side.mpi.free(side.everybody).map_err(Fault::fatal)?;
    }
    Ok(())
}

fn leave_at_exit(joining: &mut Joining) {
    extern "C" fn at_exit() {
        if let Some(job) = present().filter(|_| job::phase() == Phase::Finished)
            && job.end_presence()
        {
            // Nobody is left to be told: the launcher sees how this rank ends.
            let _ = job.world.clone().finalize();
        }
    }
    if !joining.exit_hook {
        // SAFETY: the function is there as long as the process, and is safe to call.
        joining.exit_hook = unsafe { libc::atexit(at_exit) } == 0;
    }
}

/// Who this process is: what the job, the launcher or MPI says. Joins only where nobody says it.
pub(crate) fn rank_and_size() -> (u32, u32) {
    told_rank_and_size().unwrap_or_else(|| match longarm_mpi::started_by_process_manager() {
        true => joined().map_or((0, 1), |job| (job.world.rank(), job.world.size())),
        false => (0, 1),
    })
}

/// Who this process is, as far as it was told without asking anybody.
pub(crate) fn told_rank_and_size() -> Option<(u32, u32)> {
    if let Some(job) = job::any() {
        return Some((job.world.rank(), job.world.size()));
    }
    let variable = |name: &str| std::env::var(name).ok()?.parse().ok();
    if longarm::is_launched() {
        return variable("LONGARM_RANK").zip(variable("LONGARM_SIZE"));
    }
    let mpi = Mpi::find().filter(|mpi| mpi.is_initialized() && !mpi.is_finalized());
    let asked = mpi.and_then(|mpi| Some((mpi.rank(mpi.world()).ok()?, mpi.size(mpi.world()).ok()?)));
    // What MPI's process managers tell before MPI is initialised.
    let told = [("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")];
    asked.or_else(|| told.iter().find_map(|(rank, size)| variable(rank).zip(variable(size))))
}

/// Ends the job of a process that has not joined it.
pub(crate) fn end_before_joining(line: &str, status: i32) {
    match told_rank_and_size() {
        Some((rank, _)) => eprintln!("longarm: rank {rank}: {line}"),
        None => eprintln!("longarm: {line}"),
    }
    if let Some(mpi) = Mpi::find().filter(|mpi| mpi.is_initialized() && !mpi.is_finalized()) {
        mpi.abort(mpi.world(), status);
    }
}
