//! Init and finalize, who this is, and the end of the job.

use std::ffi::{c_int, c_void};

use longarm::World;
use longarm::ffi::sync::{AtomicBool, AtomicU32, Ordering};
use longarm_mpi::{Joined, Mpi};
use parking_lot::Mutex;

use crate::boundary::{self, end, end_with_status, or_end};
use crate::contexts::Contexts;
use crate::job::{self, Job, Peer};
use crate::order;
use crate::process::Process;
use crate::segment;
use crate::statics::Statics;
use crate::symmetric_heap::SymmetricHeap;
use crate::sync_area::SyncAreas;
use crate::teams::Teams;

const THREAD_SINGLE: c_int = 0;
const THREAD_MULTIPLE: c_int = 3;

/// Held over init and finalize.
static STARTING: Mutex<()> = Mutex::new(());

pub(crate) fn init(name: &'static str) {
    start(name, THREAD_SINGLE);
}

/// Once more does nothing: it is not counted, for the programs that call it may not know of finalize.
pub(crate) fn start_pes(name: &'static str, _count: c_int) {
    if job::active().is_none() {
        start(name, THREAD_SINGLE);
    }
}

/// # Safety
/// `provided` is writable.
pub(crate) unsafe fn init_thread(name: &'static str, requested: c_int, provided: *mut c_int) -> c_int {
    if !(THREAD_SINGLE..=THREAD_MULTIPLE).contains(&requested) {
        return -1;
    }
    let job = start(name, requested);
    if !provided.is_null() {
        // SAFETY: this function's own contract.
        unsafe { provided.write(job.thread_level) };
    }
    0
}

/// # Safety
/// `provided` is writable.
pub(crate) unsafe fn query_thread(name: &'static str, provided: *mut c_int) {
    // SAFETY: this function's own contract.
    unsafe { provided.write(job::get(name).thread_level) };
}

/// # Safety
/// `initialized` is writable.
pub(crate) unsafe fn query_initialized(_name: &'static str, initialized: *mut c_int) {
    // SAFETY: this function's own contract.
    unsafe { initialized.write(c_int::from(job::active().is_some())) };
}

/// Also after finalize: many programs say goodbye with their number.
pub(crate) fn my_pe(name: &'static str) -> c_int {
    job::past_or_present(name).process.me as c_int
}

/// The same.
pub(crate) fn n_pes(name: &'static str) -> c_int {
    job::past_or_present(name).process.size as c_int
}

/// Starts, or counts another start.
fn start(name: &'static str, level: c_int) -> &'static Job {
    let _one_at_a_time = STARTING.lock();
    if let Some(job) = job::active() {
        job.starts.fetch_add(1, Ordering::Relaxed);
        return job;
    }
    // After finalize it begins anew: with an empty heap and no teams, and the variables as they are.
    let is_first = job::any().is_none();
    let is_threaded = segment::threads() > 1;
    let Joined { world, inside } = or_end(name, longarm_mpi::join(None, boundary::note_ending));
    // Within MPI there may be threads that unmap memory and that nobody here knows of.
    if level == THREAD_SINGLE && !is_threaded && inside.is_none() {
        world.rely_on_one_thread();
    }
    let job = job::set(join(name, world, (level, is_threaded, inside.map(|(mpi, _)| mpi))));
    if is_first {
        leave_at_exit();
        if job.process.me == 0 {
            tell();
        }
    }
    order::barrier_all(name);
    job
}

/// Whether a variable of the environment asks for something.
fn is_set(names: [&str; 2]) -> bool {
    names.iter().any(|name| std::env::var_os(name).is_some())
}

/// What the environment asks to be told.
fn tell() {
    if is_set(["SHMEM_VERSION", "SMA_VERSION"]) {
        println!("longarm {}: OpenSHMEM 1.6", env!("CARGO_PKG_VERSION"));
    }
    if is_set(["SHMEM_INFO", "SMA_INFO"]) {
        println!(
            "Environment variables of OpenSHMEM on longarm:\n\
             SHMEM_VERSION         print the version at start\n\
             SHMEM_INFO            print this at start\n\
             SHMEM_DEBUG           compare every symmetric address with the blocks that are in use\n\
             SHMEM_SYMMETRIC_SIZE  size of the symmetric heap, such as 3.1M; now {} bytes\n\
             SHMEM_STATICS         0: leave global and static variables out of symmetric memory; stay: leave them where they are\n\
             longarm info lists longarm's own.",
            job::any().map_or(0, |job| job.heap.bytes)
        );
    }
}

/// Collective.
fn join(
    name: &'static str,
    world: World,
    (thread_level, is_threaded, mpi): (c_int, bool, Option<&'static Mpi>),
) -> Job {
    let heap = SymmetricHeap::new(name, &world, is_set(["SHMEM_DEBUG", "SMA_DEBUG"]));
    let areas = SyncAreas::new(name, &world);
    let statics = Statics::new(name, &world, is_threaded);
    let peers = (0..world.size()).map(|rank| Peer {
        heap: or_end(name, heap.window.pointer_at(rank)).unwrap_or(std::ptr::null_mut()),
        statics: statics.as_ref().map_or(std::ptr::null_mut(), |it| it.mapped(name, world.rank(), rank)),
    });
    Job {
        peers: peers.collect(),
        teams: Teams::new(&world, &areas),
        contexts: Contexts::new(),
        thread_level,
        mpi,
        starts: AtomicU32::new(1),
        is_over: AtomicBool::new(false),
        heap,
        statics,
        areas,
        process: Process::new(world),
    }
}

pub(crate) fn finalize(name: &'static str) {
    let _one_at_a_time = STARTING.lock();
    let Some(job) = job::active() else {
        match job::any() {
            // Once more does nothing.
            Some(_) => return,
            None => end(name, "called before shmem_init"),
        }
    };
    if job.starts.fetch_sub(1, Ordering::Relaxed) > 1 {
        return;
    }
    leave(name, job);
}

fn leave(name: &'static str, job: &'static Job) {
    for context in job.contexts.all() {
        context.quiet(name, &job.process);
    }
    order::sync_all(name);
    job::retire();
    if !job.is_over.swap(true, Ordering::Relaxed) {
        or_end(name, longarm_mpi::leave(job.process.world.clone()));
        if longarm::is_initialized() {
            job.heap.free_all(name);
        }
        or_end(name, longarm_mpi::finalize_own());
    }
}

/// The end of a process that has not finalized: with status 0 it finalizes, and else it ends the job.
fn leave_at_exit() {
    unsafe extern "C" {
        fn on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    unsafe extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
        // An MPI program that has finalized has left the job in its own way.
        let is_possible = |job: &&Job| !boundary::is_ending() && job.mpi.is_none_or(|mpi| !mpi.is_finalized());
        let Some(job) = job::active().filter(is_possible) else { return };
        if status != 0 {
            // The launcher sees the status, and ends the others.
            job::retire();
            job.process.world.abort(&format!("the process ended with status {status} without shmem_finalize"), status);
            return;
        }
        if STARTING.try_lock().is_some() {
            leave("shmem_finalize", job);
        }
    }
    // SAFETY: the function is there as long as the process, and is safe to call.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

/// Ends the job from one PE.
pub(crate) fn global_exit(name: &'static str, status: c_int) -> ! {
    job::get(name);
    end_with_status(&format!("{name}({status})"), status)
}
