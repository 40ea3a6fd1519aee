//! Mutexes: one set of the job, by number and process, and sets of groups by handle.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use longarm::ffi::FoundMutex;
use longarm::ffi::sync::Ordering;

use crate::boundary::{call, call_or_end};
use crate::groups;
use crate::mutex_sets::{BAD_COUNT, Set};
use crate::refusal::{Done, Refusal};

/// Mutexes that one process may own.
const COUNT_MAX: c_int = 32768;
/// Makes `num` mutexes here. Collective over all processes, which may give other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Create_mutexes(num: c_int) -> c_int {
    call("ARMCI_Create_mutexes", |job| {
        if !(0..=COUNT_MAX).contains(&num) {
            return Err(Refusal::Code(BAD_COUNT));
        }
        if job.mutexes.whole_if_any().is_some() {
            return Err(Refusal::fatal("there are mutexes already; ARMCI_Destroy_mutexes frees them"));
        }
        let set = Set::make(job.world.group(), num)?;
        job.mutexes.set_whole(Some(set));
        Ok(())
    })
}

/// Frees all mutexes. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Destroy_mutexes() -> c_int {
    call("ARMCI_Destroy_mutexes", |job| {
        let set = job.mutexes.whole()?;
        set.mutexes.free_collective()?;
        job.mutexes.set_whole(None);
        Ok(())
    })
}

/// Takes a mutex of a process, in the order of asking. Not a fence.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Lock(mutex: c_int, proc: c_int) {
    call_or_end("ARMCI_Lock", |job| {
        let set = job.mutexes.whole()?;
        match LastMutex::of(set, mutex, proc) {
            Some(found) if found.lock_at_once() => Ok(()),
            _ => lock_and_remember(set, mutex, proc),
        }
    });
}

/// Gives a mutex back. What this process has put before is visible to whoever takes it next.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Unlock(mutex: c_int, proc: c_int) {
    call_or_end("ARMCI_Unlock", |job| {
        let set = job.mutexes.whole()?;
        let Some(found) = LastMutex::of(set, mutex, proc) else { return set.unlock(&job.world, mutex, proc) };
        job.world.quiet_before_handing_on()?;
        if found.unlock_at_once() { Ok(()) } else { set.unlock_after_quiet(set.place(mutex, proc)?) }
    });
}

/// The mutex of the job that this thread has taken last, if it is one of this node. Sets of the job are never freed.
#[derive(Clone, Copy)]
struct LastMutex {
    set: &'static Set,
    number: c_int,
    proc: c_int,
    mutex: FoundMutex<'static>,
}

thread_local! {
    // Without a destructor: found without asking whether it is initialised.
    static LAST: Cell<Option<LastMutex>> = const { Cell::new(None) };
}

impl LastMutex {
    /// Where this mutex is, if this thread has taken no other one since.
    #[inline(always)]
    fn of(set: &'static Set, number: c_int, proc: c_int) -> Option<FoundMutex<'static>> {
        let is_it = |last: &LastMutex| std::ptr::eq(last.set, set) && last.number == number && last.proc == proc;
        LAST.with(Cell::get).filter(is_it).map(|last| last.mutex)
    }
}

/// Takes a mutex the long way, and makes it the last one of this thread.
#[inline(never)]
fn lock_and_remember(set: &'static Set, number: c_int, proc: c_int) -> Done {
    set.lock(number, proc)?;
    if let Some(mutex) = set.find_here(number, proc) {
        LAST.with(|last| last.set(Some(LastMutex { set, number, proc, mutex })));
    }
    Ok(())
}

/// Makes mutexes of a group. Collective over it. Null if there can be none.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Create_mutexes_hdl(count: c_int, group: *mut c_int) -> *mut c_void {
    call_or_end("ARMCIX_Create_mutexes_hdl", |job| {
        // SAFETY: this function's own contract.
        let group = job.groups.get(unsafe { groups::number(group) }?)?;
        let set = Set::make(&group, count)?;
        let number = job.mutexes.next.fetch_add(1, Ordering::Relaxed);
        job.mutexes.by_handle.write().insert(number, Arc::new(set));
        Ok(std::ptr::without_provenance_mut(number as usize))
    })
}

/// Frees the mutexes of a handle. Collective over their group.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCIX_Destroy_mutexes_hdl(handle: *mut c_void) -> c_int {
    call("ARMCIX_Destroy_mutexes_hdl", |job| {
        job.mutexes.of_handle(handle)?.mutexes.free_collective()?;
        job.mutexes.by_handle.write().remove(&(handle.addr() as u64));
        Ok(())
    })
}

/// Takes a mutex of a handle; the process is numbered in its group.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCIX_Lock_hdl(handle: *mut c_void, mutex: c_int, proc: c_int) {
    call_or_end("ARMCIX_Lock_hdl", |job| job.mutexes.of_handle(handle)?.lock(mutex, proc));
}

/// Takes a mutex of a handle if it is free. 0 if it was taken, 1 if not.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCIX_Trylock_hdl(handle: *mut c_void, mutex: c_int, proc: c_int) -> c_int {
    call_or_end("ARMCIX_Trylock_hdl", |job| {
        let taken = job.mutexes.of_handle(handle)?.try_lock(mutex, proc)?;
        Ok(c_int::from(!taken))
    })
}

/// Gives a mutex of a handle back, as `ARMCI_Unlock`.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCIX_Unlock_hdl(handle: *mut c_void, mutex: c_int, proc: c_int) {
    call_or_end("ARMCIX_Unlock_hdl", |job| job.mutexes.of_handle(handle)?.unlock(&job.world, mutex, proc));
}
