//! What a process remembers from call to call, and where a symmetric address is at another PE.
//!
//! One [`Job`], behind one pointer, so that a put finds it with one load. It is never freed: a thread may still look at it
//! while another finalizes.
//!
//! PAIR job-set: the store of the pointer (Release) and its loads (Acquire). Who sees the pointer sees the job.

use std::ffi::c_int;
use std::fmt::Write;

use longarm::Window;
use longarm::ffi::sync::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use longarm::ffi::{CounterKind, Rank};
use longarm_mpi::Mpi;

use crate::away::Away;
use crate::boundary::{self, end};
use crate::contexts::Contexts;
use crate::process::Process;
use crate::segment::{self, Elsewhere};
use crate::statics::{Reach, Statics};
use crate::symmetric_heap::SymmetricHeap;
use crate::sync_area::SyncAreas;
use crate::teams::Teams;

/// Where the memory of a PE is mapped here; null if it is on another node.
pub(crate) struct Peer {
    pub(crate) heap: *mut u8,
    pub(crate) statics: *mut u8,
}

/// See the module.
pub(crate) struct Job {
    pub(crate) process: Process,
    pub(crate) peers: Box<[Peer]>,
    pub(crate) heap: SymmetricHeap,
    /// `None`: the program's variables cannot be reached by others.
    pub(crate) statics: Option<Statics>,
    pub(crate) areas: SyncAreas,
    pub(crate) contexts: Contexts,
    pub(crate) teams: Teams,
    /// Of an MPI program: its MPI.
    pub(crate) mpi: Option<&'static Mpi>,
    /// What init was asked for.
    pub(crate) thread_level: c_int,
    /// How often init was called without finalize.
    pub(crate) starts: AtomicU32,
    /// The job is over.
    pub(crate) is_over: AtomicBool,
}

// SAFETY: the pointers lead to memory that stays mapped as long as the process, and that every PE may write at any time:
// it is read and written by copies and atomics.
unsafe impl Send for Job {}
// SAFETY: as for `Send`; what changes stands behind locks and atomics.
unsafe impl Sync for Job {}

/// The job between init and finalize.
static ACTIVE: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
/// The job, finalized or not.
static ANY: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());

/// The job between init and finalize.
#[inline(always)]
pub(crate) fn active() -> Option<&'static Job> {
    // PAIR job-set.
    let job = ACTIVE.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from `Box::leak` in `set`, and jobs are never freed.
    unsafe { job.as_ref() }
}

/// The job, whether or not it is over.
pub(crate) fn any() -> Option<&'static Job> {
    // PAIR job-set.
    let job = ANY.load(Ordering::Acquire);
    // SAFETY: as in `active`.
    unsafe { job.as_ref() }
}

/// The job, or the end of the process.
#[inline(always)]
pub(crate) fn get(name: &'static str) -> &'static Job {
    match active() {
        Some(job) => job,
        None => inactive(name),
    }
}

/// The job, over or not, or the end of the process.
#[inline]
pub(crate) fn past_or_present(name: &'static str) -> &'static Job {
    active().or_else(any).unwrap_or_else(|| inactive(name))
}

#[cold]
fn inactive(name: &'static str) -> ! {
    match any() {
        Some(_) => end(name, "called after shmem_finalize"),
        None => end(name, "called before shmem_init"),
    }
}

/// From now on this is the job.
pub(crate) fn set(job: Job) -> &'static Job {
    let job: &'static Job = Box::leak(Box::new(job));
    boundary::note_world(&job.process.world);
    let pointer = std::ptr::from_ref(job).cast_mut();
    // PAIR job-set, both.
    ANY.store(pointer, Ordering::Release);
    ACTIVE.store(pointer, Ordering::Release);
    job
}

/// From now on there is none.
pub(crate) fn retire() {
    ACTIVE.store(std::ptr::null_mut(), Ordering::Release);
}

/// A symmetric address at a PE.
pub(crate) struct Location<'a> {
    pub(crate) window: &'a Window<u8>,
    pub(crate) rank: u32,
    pub(crate) offset: u64,
    /// Where it is mapped here; null if it is on another node, or away.
    pub(crate) here: *mut u8,
    /// What reaches it, if it is in no window.
    pub(crate) away: Option<&'a Away>,
}

impl Job {
    /// Where bytes at a symmetric address are mapped here for a PE of this node. `None`: the long way finds out.
    #[inline(always)]
    pub(crate) fn direct(&self, pe: c_int, address: usize, bytes: usize) -> Option<*mut u8> {
        let peer = self.peers.get(pe as usize)?;
        if let Some(offset) = self.offset_in_heap(address, bytes) {
            return (!peer.heap.is_null()).then(|| peer.heap.wrapping_add(offset));
        }
        let offset = self.offset_in_statics(address, bytes)?;
        (!peer.statics.is_null()).then(|| peer.statics.wrapping_add(offset))
    }

    /// The offset of an address among the variables of the program. `None`: it lies elsewhere.
    #[inline(always)]
    pub(crate) fn offset_in_statics(&self, address: usize, bytes: usize) -> Option<usize> {
        let statics = self.statics.as_ref()?;
        let offset = address.wrapping_sub(statics.start);
        (offset < statics.bytes && bytes <= statics.bytes - offset).then_some(offset)
    }

    /// The offset of an address in the part of the heap that is in use, found without a lock. `None`: it lies elsewhere, or blocks are
    /// checked, and [`Job::place`] finds out.
    #[inline(always)]
    pub(crate) fn offset_in_heap(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.heap.start);
        // 0 where blocks are checked.
        let live = self.heap.live.load(Ordering::Relaxed);
        (offset < live && bytes <= live - offset).then_some(offset)
    }

    /// A symmetric address at any PE; ends the job if there is no such PE or address.
    #[inline(never)]
    pub(crate) fn place(&self, name: &'static str, pe: c_int, address: usize, bytes: usize) -> Location<'_> {
        let rank = self.process.rank(name, pe);
        let peer = &self.peers[rank as usize];
        match self.find(address, bytes) {
            Some((window, offset)) => {
                let statics = self.statics.as_ref().filter(|_| !window.is_same(&self.heap.window));
                if statics.is_some_and(|statics| statics.reach(rank) == Reach::Nohow) {
                    self.no_variable(name, pe);
                }
                let base = if statics.is_none() { peer.heap } else { peer.statics };
                let here = if base.is_null() { base } else { base.wrapping_add(offset) };
                let away = statics.and_then(|statics| statics.away(rank)).filter(|_| here.is_null());
                Location { window, rank, offset: offset as u64, here, away }
            }
            None => self.nowhere(name, pe, address, bytes),
        }
    }

    /// Whether it is a variable that is in no window.
    pub(crate) fn is_away(&self, name: &'static str, pe: c_int, address: usize, bytes: usize) -> bool {
        self.statics.as_ref().is_some_and(Statics::has_away) && self.place(name, pe, address, bytes).away.is_some()
    }

    /// Whether an address is that of a variable that not every PE's neighbours have mapped.
    #[inline]
    pub(crate) fn is_apart(&self, address: usize) -> bool {
        self.statics.as_ref().is_some_and(|statics| statics.is_apart(address))
    }

    /// The window of a symmetric address, and the bytes from its start.
    pub(crate) fn find(&self, address: usize, bytes: usize) -> Option<(&Window<u8>, usize)> {
        if let Some(offset) = self.heap.offset_of(address, bytes) {
            return Some((&self.heap.window, offset));
        }
        let offset = self.offset_in_statics(address, bytes)?;
        Some((&self.statics.as_ref()?.window, offset))
    }

    #[cold]
    fn no_variable(&self, name: &'static str, pe: c_int) -> ! {
        end(
            name,
            format_args!(
                "PE {pe} has no such variable: it runs another program, or SHMEM_STATICS is off there; use memory of shmem_malloc"
            ),
        )
    }

    #[cold]
    fn nowhere(&self, name: &'static str, pe: c_int, address: usize, bytes: usize) -> ! {
        let heap = &self.heap;
        let mut text = format!("{bytes} bytes at address {address:#x} for PE {pe} are not symmetric: ");
        let offset = address.wrapping_sub(heap.start);
        let _ = match offset < heap.bytes {
            true => write!(
                text,
                "they are in the symmetric heap, but not inside of what shmem_malloc gave out and shmem_free did not take back (offset {offset})"
            ),
            false => write!(text, "{}", self.known_of(address)),
        };
        end(name, format_args!("{text}; use memory of shmem_malloc, or a global or static variable of the program"))
    }

    /// What can be said of an address outside of symmetric memory.
    fn known_of(&self, address: usize) -> String {
        let segment = segment::find();
        if address.wrapping_sub(segment.start) < segment.bytes() {
            return "it is a variable of the program, and these cannot be reached here".to_owned();
        }
        match segment::where_else(address) {
            Elsewhere::Constant => "they are in the part of the program that nobody writes to, where constants are: a variable that is const is not symmetric, so leave out the const".to_owned(),
            Elsewhere::Library(file) => format!("they are in the library {file}, and only variables of the program itself are symmetric"),
            Elsewhere::NoFile => {
                let variables = match &self.statics {
                    Some(statics) => {
                        format!("the program's own variables are the {} bytes from {:#x} on", statics.bytes, statics.start)
                    }
                    None => "the program's own variables cannot be reached here".to_owned(),
                };
                let heap = &self.heap;
                format!("the symmetric heap has {} bytes from {:#x} on, and {variables}", heap.bytes, heap.start)
            }
        }
    }

    /// Counts an operation on mapped memory.
    #[inline(always)]
    pub(crate) fn count(&self, pe: c_int, kind: CounterKind, bytes: usize) {
        self.heap.window.this_node().count(Rank(pe as u32), kind, bytes as u64);
    }
}
