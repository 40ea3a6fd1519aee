//! What a process remembers from call to call.
//!
//! One [`Job`] at a time, behind one pointer, so that a put finds it with one load. Jobs are never freed: a thread may
//! still look at one while another finalizes it.
//!
//! PAIR job-set: the store of the pointer (Release) and its loads (Acquire). Who sees the pointer sees the job.
//!
//! The phase, and whether a process is present, are flags alone: what they open and close stands behind locks of its own.

use std::ffi::{c_int, c_void};

use longarm::error::{RmwError, TransferError};
use longarm::ffi::sync::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use longarm::{Window, World};

use crate::addresses::Addresses;
use crate::allocations::{Allocations, Starts};
use crate::data::handles::Handles;
use crate::group_table::Groups;
use crate::mpi_side::MpiSide;
use crate::mutex_sets::MutexSet;
use crate::notices::Notices;
use crate::pools::Pools;
use crate::refusal::{BAD_RANK, Done, Refusal};

/// Where a process stands between init and finalize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// The ranks know each other; messages work.
    Joined = 1,
    /// Between `ARMCI_Init` and `ARMCI_Finalize`.
    Active = 2,
    /// After `ARMCI_Finalize`.
    Finished = 3,
}

/// See the module.
pub(crate) struct Job {
    pub(crate) world: World,
    /// Of the world: every call looks at it.
    size: u32,
    pub(crate) mpi: Option<MpiSide>,
    pub(crate) addresses: Addresses,
    pub(crate) segments: Allocations,
    pub(crate) starts: Starts,
    pub(crate) pools: Pools,
    pub(crate) groups: Groups,
    pub(crate) handles: Handles,
    pub(crate) mutexes: MutexSet,
    pub(crate) notices: Notices,
    phase: AtomicU32,
    /// Whether every segment so far has the same address in all processes of this node.
    together: AtomicBool,
    /// Whether this process still takes part in the job.
    present: AtomicBool,
}

static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());

/// The job between init and finalize.
#[inline(always)]
pub(crate) fn active() -> Option<&'static Job> {
    any().filter(|job| job.phase.load(Ordering::Relaxed) == Phase::Active as u32)
}

/// The job, whatever its phase.
#[inline(always)]
pub(crate) fn any() -> Option<&'static Job> {
    // PAIR job-set: who sees the pointer sees the job.
    let job = JOB.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from `Box::leak` in `set`, and jobs are never freed.
    unsafe { job.as_ref() }
}

/// Where this process stands; `Joined` where there is no job yet.
pub(crate) fn phase() -> Phase {
    match any().map(|job| job.phase.load(Ordering::Relaxed)) {
        Some(phase) if phase == Phase::Active as u32 => Phase::Active,
        Some(phase) if phase == Phase::Finished as u32 => Phase::Finished,
        _ => Phase::Joined,
    }
}

/// From now on this is the job.
pub(crate) fn set(job: Job) -> &'static Job {
    let job: &'static mut Job = Box::leak(Box::new(job));
    let pointer: *mut Job = job;
    // PAIR job-set.
    JOB.store(pointer, Ordering::Release);
    // SAFETY: the job was leaked just now; from here on there are only shared references to it.
    unsafe { &*pointer }
}

impl Job {
    pub(crate) fn new(world: World, mpi: Option<MpiSide>) -> Job {
        Job {
            addresses: Addresses::new(world.size()),
            segments: Allocations::new(),
            starts: Starts::new(),
            pools: Pools::new(),
            groups: Groups::new(&world),
            handles: Handles::new(),
            mutexes: MutexSet::new(),
            notices: Notices::new(world.size()),
            phase: AtomicU32::new(Phase::Joined as u32),
            together: AtomicBool::new(true),
            present: AtomicBool::new(true),
            mpi,
            size: world.size(),
            world,
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u32, Ordering::Relaxed);
    }

    /// Whether this process still takes part.
    pub(crate) fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }

    /// From now on it does not; true the first time.
    pub(crate) fn end_presence(&self) -> bool {
        self.present.swap(false, Ordering::Relaxed)
    }

    /// A process number as C gives it.
    #[inline(always)]
    pub(crate) fn rank(&self, proc: c_int) -> Done<u32> {
        match u32::try_from(proc) {
            Ok(rank) if rank < self.size => Ok(rank),
            _ => Err(Refusal::Code(BAD_RANK)),
        }
    }

    /// Does something with the window behind an address of a process.
    #[inline(always)]
    pub(crate) fn at<R>(
        &self,
        rank: u32,
        address: *const c_void,
        body: impl FnOnce(&Window<u8>, u64) -> Result<R, TransferError>,
    ) -> Done<R> {
        match self.addresses.find(rank, address.addr()) {
            Some((window, offset)) => body(&window, offset).map_err(|error| self.explain(rank, address, error)),
            None => Err(self.nowhere(rank, address)),
        }
    }

    #[cold]
    fn explain(&self, rank: u32, address: *const c_void, error: TransferError) -> Refusal {
        match error {
            TransferError::OutsideWindow { end, window_bytes, .. } => Refusal::fatal(format!(
                "address {address:p} of process {rank}: the bytes reach {} past the end of their segment of {window_bytes} bytes",
                end.saturating_sub(window_bytes)
            )),
            error => error.into(),
        }
    }

    /// What went wrong with one integer of a process, with its address.
    #[cold]
    pub(crate) fn explain_rmw(&self, rank: u32, address: *const c_void, error: RmwError) -> Refusal {
        match error {
            RmwError::Misaligned { word_bytes, .. } => Refusal::fatal(format!(
                "address {address:p} of process {rank} is not a multiple of the {word_bytes} bytes of its integer"
            )),
            RmwError::Transfer(error) => self.explain(rank, address, error),
            error => error.into(),
        }
    }

    /// A segment could not be mapped here where its owner has it: from now on addresses of neighbours are not said to be
    /// good for loads and stores.
    #[cold]
    pub(crate) fn cannot_follow_neighbours(&self) {
        if self.together.swap(false, Ordering::Relaxed) {
            eprintln!(
                "longarm: rank {}: a segment is not where its owner has it, because the address is taken here; ARMCI_Same_node and ARMCI_Uses_shm say no from now on",
                self.world.rank()
            );
        }
    }

    /// Whether the addresses of a process's segments may be followed here.
    pub(crate) fn can_follow(&self, rank: u32) -> bool {
        rank == self.world.rank() || (self.shares_addresses() && self.world.shares_memory_with(rank))
    }

    pub(crate) fn shares_addresses(&self) -> bool {
        self.together.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn nowhere(&self, rank: u32, address: *const c_void) -> Refusal {
        let nearest = match self.addresses.nearest(rank, address.addr()) {
            Some((start, bytes)) => format!("the nearest has {bytes} bytes from {start:#x} on"),
            None => "it has none".to_owned(),
        };
        Refusal::fatal(format!("address {address:p} is in no segment of process {rank}; {nearest}"))
    }
}

const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Job>();
};
