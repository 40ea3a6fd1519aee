//! How a C program becomes part of a job: by `longarm run`, inside an MPI program, or alone.

use longarm_mpi::{Joined, Mpi};
use parking_lot::Mutex;

use crate::ending::{is_ending, note_ending};
use crate::job::{self, Job, Phase};
use crate::mpi_side::MpiSide;
use crate::refusal::{Done, Refusal};

/// What has to happen once, or in one thread at a time.
struct Joining {
    /// `armci_msg_init` was called: the job lasts until `armci_msg_finalize`.
    by_messages: bool,
    /// The end of the process leaves the job, and MPI if it is ours; see [`leave_at_exit`].
    exit_hook: bool,
}

static JOINING: Mutex<Joining> = Mutex::new(Joining { by_messages: false, exit_hook: false });

/// The job of this process, joined now if need be. Joining is collective.
pub(crate) fn joined() -> Done<&'static Job> {
    joined_over(None)
}

/// The job for calls that work without `ARMCI_Init`. One that has ended is not begun again by a message.
pub(crate) fn joined_for_messages() -> Done<&'static Job> {
    if job::any().is_some_and(|job| !job.is_present()) {
        return Err(Refusal::fatal(
            "called after the job has ended: by ARMCI_Finalize inside an MPI program, else by armci_msg_finalize",
        ));
    }
    joined()
}

/// The same over an MPI communicator that the program names.
pub(crate) fn joined_over(communicator: Option<usize>) -> Done<&'static Job> {
    let job = match present() {
        Some(job) => job,
        None => {
            let _one_at_a_time = JOINING.lock();
            match present() {
                Some(job) => job,
                None => return join(communicator),
            }
        }
    };
    check_same(job, communicator)?;
    Ok(job)
}

/// A job that was joined before, by a message, has to have the processes of the communicator that the program names now.
fn check_same(job: &Job, communicator: Option<usize>) -> Done {
    // Without MPI's processes a communicator says nothing.
    let (Some(side), Some(handle)) = (&job.mpi, communicator) else { return Ok(()) };
    let named = side.mpi.from_c(handle);
    let (size, rank) = (side.mpi.size(named).map_err(Refusal::fatal)?, side.mpi.rank(named).map_err(Refusal::fatal)?);
    if (size, rank) != (job.world.size(), job.world.rank()) {
        return Err(Refusal::fatal(format!(
            "this process is {rank} of {size} in the communicator, but the job was joined before as {} of {}; call ARMCI_Init_mpi_comm before any other call of ARMCI",
            job.world.rank(),
            job.world.size()
        )));
    }
    Ok(())
}

/// The job, unless it has ended for good.
fn present() -> Option<&'static Job> {
    job::any().filter(|job| job.is_present())
}

fn join(communicator: Option<usize>) -> Done<&'static Job> {
    let Joined { world, inside } = longarm_mpi::join(communicator, note_ending).map_err(Refusal::fatal)?;
    let side = match inside {
        None => None,
        Some((mpi, over)) => {
            let everybody = mpi.duplicate(over).map_err(Refusal::fatal)?;
            let for_program = mpi.duplicate_for_program(over).map_err(Refusal::fatal)?;
            Some(MpiSide { mpi, everybody, for_program })
        }
    };
    Ok(job::set(Job::new(world, side)))
}

/// `armci_msg_init`: the job lasts until [`leave_messages`].
pub(crate) fn join_messages() -> Done {
    JOINING.lock().by_messages = true;
    joined().map(drop)
}

/// `ARMCI_Finalize`: the job ends here inside an MPI program that goes on without it, else later.
pub(crate) fn leave(job: &'static Job) -> Done {
    let barrier = job.world.barrier_before_finalize();
    job.mutexes.forget();
    job.groups.reset_default();
    job.enter(Phase::Finished);
    barrier?;
    let mut joining = JOINING.lock();
    // MPI cannot be initialised twice, and joining a launcher's job again takes all ranks: the job, and MPI where it is ours, stay
    // until armci_msg_finalize or the end of the process, for ARMCI_Init may come again.
    if job.mpi.is_none() || longarm_mpi::owns_mpi() {
        leave_at_exit(&mut joining);
    }
    if job.mpi.is_some() && !joining.by_messages {
        end(job, &mut joining)?;
    }
    Ok(())
}

/// `armci_msg_finalize`.
pub(crate) fn leave_messages() -> Done {
    let mut joining = JOINING.lock();
    joining.by_messages = false;
    if let Some(job) = present() {
        job.enter(Phase::Finished);
        end(job, &mut joining)?;
    }
    longarm_mpi::finalize_own().map_err(Refusal::fatal)
}

/// Leaves the job for good.
fn end(job: &'static Job, _one_at_a_time: &mut Joining) -> Done {
    if !job.end_presence() {
        return Ok(());
    }
    job.segments.forget(&job.addresses);
    longarm_mpi::leave(job.world.clone()).map_err(Refusal::fatal)?;
    job.groups.free_communicators(job.mpi.as_ref());
    if let Some(side) = &job.mpi
        && !side.mpi.is_finalized()
    {
        side.mpi.free(side.for_program).map_err(Refusal::fatal)?;
        side.mpi.free(side.everybody).map_err(Refusal::fatal)?;
    }
    Ok(())
}

fn leave_at_exit(joining: &mut Joining) {
    extern "C" fn at_exit() {
        // Whoever holds the lock is leaving, or has come to its end in the middle of that.
        let Some(mut joining) = JOINING.try_lock().filter(|_| !is_ending()) else { return };
        // Nobody is left to be told what goes wrong: the launcher sees how this rank ends.
        let is_over = job::phase() == Phase::Finished;
        let is_possible = |job: &&Job| job.mpi.as_ref().is_none_or(|side| !side.mpi.is_finalized());
        if let Some(job) = present().filter(|_| is_over).filter(is_possible) {
            let _ = end(job, &mut joining);
        }
        if is_over {
            let _ = longarm_mpi::finalize_own();
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
    if longarm::is_launched() {
        return variable("LONGARM_RANK").zip(variable("LONGARM_SIZE"));
    }
    let mpi = Mpi::find().filter(|mpi| mpi.is_initialized() && !mpi.is_finalized());
    let asked = mpi.and_then(|mpi| Some((mpi.rank(mpi.world()).ok()?, mpi.size(mpi.world()).ok()?)));
    asked.or_else(longarm_mpi::told_by_manager)
}

fn variable(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
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
