//! Mutexes: one set of the job, by number and process, and sets of groups by handle.
//!
//! longarm's mutexes are held by a process. Between the threads of one process a gate stands in front of them, so that
//! threads may wait for each other as processes do.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::thread::ThreadId;

use longarm::face::sync::{AtomicBool, AtomicU64, Ordering};
use longarm::{Group, MutexGuard, Mutexes};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::boundary::{Done, Fault, call, call_or_end};
use crate::groups;
use crate::job::Job;

/// Mutexes that one process may own.
const COUNT_MAX: c_int = 32768;
/// What creating answers to a number that is negative or too large.
const BAD_COUNT: c_int = -1;

/// The set of the job, and those of handles.
pub(crate) struct MutexSet {
    whole: RwLock<Option<Arc<Set>>>,
    by_handle: RwLock<HashMap<u64, Arc<Set>>>,
    next: AtomicU64,
}

/// Some mutexes with their gates.
pub(crate) struct Set {
    mutexes: Mutexes,
    group: Group,
    /// Which thread of this process holds a mutex, by process and number.
    gates: Mutex<HashMap<(u32, u64), ThreadId>>,
    opened: Condvar,
}

impl MutexSet {
    pub(crate) fn new() -> MutexSet {
        MutexSet { whole: RwLock::new(None), by_handle: RwLock::default(), next: AtomicU64::new(1) }
    }

    /// Forgets those that were not destroyed, when ARMCI ends.
    pub(crate) fn forget(&self) {
        *self.whole.write() = None;
        self.by_handle.write().clear();
    }

    fn whole(&self) -> Done<Arc<Set>> {
        self.whole.read().clone().ok_or_else(|| Fault::fatal("there are no mutexes; ARMCI_Create_mutexes makes them"))
    }

    fn of_handle(&self, handle: *const c_void) -> Done<Arc<Set>> {
        let set = self.by_handle.read().get(&(handle.addr() as u64)).cloned();
        set.ok_or_else(|| Fault::fatal(format!("there is no set of mutexes with handle {handle:p}")))
    }
}

impl Set {
    pub(crate) fn make(group: &Group, count: c_int) -> Done<Set> {
        let count = u64::try_from(count).map_err(|_| Fault::Code(BAD_COUNT))?;
        let mutexes = group.mutexes_collective(count)?;
        Ok(Set { mutexes, group: group.clone(), gates: Mutex::default(), opened: Condvar::new() })
    }

    fn place(&self, number: c_int, proc: c_int) -> Done<(u32, u64)> {
        let host = u32::try_from(proc).ok().and_then(|place| self.group.world_rank(place));
        let host = host.ok_or_else(|| Fault::fatal(format!("there is no process {proc}")))?;
        let number =
            u64::try_from(number).map_err(|_| Fault::fatal(format!("there is no mutex {number} of process {proc}")))?;
        Ok((host, number))
    }

    pub(crate) fn lock(&self, number: c_int, proc: c_int) -> Done {
        let place = self.place(number, proc)?;
        let me = std::thread::current().id();
        let mut gates = self.gates.lock();
        loop {
            match gates.get(&place) {
                None => break,
                Some(holder) if *holder == me => {
                    return Err(Fault::fatal(format!("this thread holds mutex {number} of process {proc} already")));
                }
                Some(_) => self.opened.wait(&mut gates),
            }
        }
        gates.insert(place, me);
        drop(gates);
        match self.mutexes.lock(place.0, place.1) {
            Ok(guard) => {
                keep(guard, number, proc);
                Ok(())
            }
            Err(error) => {
                self.open(place);
                Err(error.into())
            }
        }
    }

    pub(crate) fn try_lock(&self, number: c_int, proc: c_int) -> Done<bool> {
        let place = self.place(number, proc)?;
        let mut gates = self.gates.lock();
        if gates.contains_key(&place) {
            return Ok(false);
        }
        let taken = self.mutexes.try_lock(place.0, place.1)?;
        let Some(guard) = taken else { return Ok(false) };
        keep(guard, number, proc);
        gates.insert(place, std::thread::current().id());
        Ok(true)
    }

    /// What this process has put before is visible to whoever takes the mutex next.
    pub(crate) fn unlock(&self, job: &Job, number: c_int, proc: c_int) -> Done {
        let place = self.place(number, proc)?;
        job.world.quiet()?;
        let unlocked = self.mutexes.unlock(place.0, place.1);
        self.open(place);
        Ok(unlocked?)
    }

    fn open(&self, place: (u32, u64)) {
        self.gates.lock().remove(&place);
        self.opened.notify_all();
    }
}

/// ARMCI has no way to tell that the holder before died: it is said on stderr, the first time.
static SAID: AtomicBool = AtomicBool::new(false);

/// Keeps a mutex locked without its guard.
fn keep(guard: MutexGuard<'_>, number: c_int, proc: c_int) {
    if guard.previous_holder_died() && !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "longarm: mutex {number} of process {proc} was held by a process that died; \
             what it protects may be half changed. This is said once."
        );
    }
    guard.keep();
}

/// Makes `num` mutexes here. Collective over all processes, which may give other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Create_mutexes(num: c_int) -> c_int {
    call("ARMCI_Create_mutexes", |job| {
        if !(0..=COUNT_MAX).contains(&num) {
            return Err(Fault::Code(BAD_COUNT));
        }
        if job.mutexes.whole.read().is_some() {
            return Err(Fault::fatal("there are mutexes already; ARMCI_Destroy_mutexes frees them"));
        }
        let set = Set::make(job.world.group(), num)?;
        *job.mutexes.whole.write() = Some(Arc::new(set));
        Ok(())
    })
}

/// Frees all mutexes. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Destroy_mutexes() -> c_int {
    call("ARMCI_Destroy_mutexes", |job| {
        let set = job.mutexes.whole()?;
        set.mutexes.free_collective()?;
        *job.mutexes.whole.write() = None;
        Ok(())
    })
}

/// Takes a mutex of a process, in the order of asking. Not a fence.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Lock(mutex: c_int, proc: c_int) {
    call_or_end("ARMCI_Lock", |job| job.mutexes.whole()?.lock(mutex, proc));
}

/// Gives a mutex back. What this process has put before is visible to whoever takes it next.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Unlock(mutex: c_int, proc: c_int) {
    call_or_end("ARMCI_Unlock", |job| job.mutexes.whole()?.unlock(job, mutex, proc));
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
    call_or_end("ARMCIX_Unlock_hdl", |job| job.mutexes.of_handle(handle)?.unlock(job, mutex, proc));
}
