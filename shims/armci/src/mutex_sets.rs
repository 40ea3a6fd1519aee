//! What a process keeps of mutexes: one set of the job, by number and process, and sets of groups by handle.
//!
//! Threads of a process wait for each other as processes do: longarm's mutexes see to that.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use longarm::error::MutexError;
use longarm::ffi::FoundMutex;
use longarm::ffi::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use longarm::{Group, Mutexes, World};
use parking_lot::{Mutex, RwLock};

use crate::refusal::{Done, Refusal};

/// What creating answers to a number that is negative or too large.
pub(crate) const BAD_COUNT: c_int = -1;

/// The set of the job, and those of handles.
///
/// PAIR whole-set: the store of the pointer (Release) and its loads (Acquire). Who sees the pointer sees the set.
pub(crate) struct MutexSet {
    /// Null, or the last of `wholes`.
    whole: AtomicPtr<Set>,
    /// Every set that the job has had. They are not freed before the job is, which is never: a thread may still look at
    /// one while another destroys it.
    wholes: Mutex<Vec<Arc<Set>>>,
    pub(crate) by_handle: RwLock<HashMap<u64, Arc<Set>>>,
    pub(crate) next: AtomicU64,
}

/// Some mutexes, and the group whose numbers name their hosts.
pub(crate) struct Set {
    pub(crate) mutexes: Mutexes,
    group: Group,
}

impl MutexSet {
    pub(crate) fn new() -> MutexSet {
        MutexSet {
            whole: AtomicPtr::new(std::ptr::null_mut()),
            wholes: Mutex::default(),
            by_handle: RwLock::default(),
            next: AtomicU64::new(1),
        }
    }

    /// Forgets those that were not destroyed, when ARMCI ends.
    pub(crate) fn forget(&self) {
        self.set_whole(None);
        self.by_handle.write().clear();
    }

    #[inline]
    pub(crate) fn whole_if_any(&self) -> Option<&Set> {
        // PAIR whole-set.
        let whole = self.whole.load(Ordering::Acquire);
        // SAFETY: it is null or points to a set of `wholes`, which keeps it as long as `self` lives.
        unsafe { whole.as_ref() }
    }

    #[inline]
    pub(crate) fn whole(&self) -> Done<&Set> {
        self.whole_if_any().ok_or_else(|| Refusal::fatal("there are no mutexes; ARMCI_Create_mutexes makes them"))
    }

    pub(crate) fn set_whole(&self, set: Option<Set>) {
        let mut wholes = self.wholes.lock();
        let pointer = set.map_or(std::ptr::null(), |set| {
            let set = Arc::new(set);
            let pointer = Arc::as_ptr(&set);
            wholes.push(set);
            pointer
        });
        // PAIR whole-set.
        self.whole.store(pointer.cast_mut(), Ordering::Release);
    }

    pub(crate) fn of_handle(&self, handle: *const c_void) -> Done<Arc<Set>> {
        let set = self.by_handle.read().get(&(handle.addr() as u64)).cloned();
        set.ok_or_else(|| Refusal::fatal(format!("there is no set of mutexes with handle {handle:p}")))
    }
}

impl Set {
    pub(crate) fn make(group: &Group, count: c_int) -> Done<Set> {
        let count = u64::try_from(count).map_err(|_| Refusal::Code(BAD_COUNT))?;
        let mutexes = group.mutexes_collective(count)?;
        Ok(Set { mutexes, group: group.clone() })
    }

    #[inline(always)]
    pub(crate) fn place(&self, number: c_int, proc: c_int) -> Done<(u32, u64)> {
        let host = u32::try_from(proc).ok().and_then(|place| self.group.world_rank(place));
        let host = host.ok_or_else(|| Refusal::fatal(format!("there is no process {proc}")))?;
        let number = u64::try_from(number)
            .map_err(|_| Refusal::fatal(format!("there is no mutex {number} of process {proc}")))?;
        Ok((host, number))
    }

    pub(crate) fn lock(&self, number: c_int, proc: c_int) -> Done {
        let (host, number) = self.place(number, proc)?;
        match self.mutexes.lock_kept(host, number) {
            Ok(false) => Ok(()),
            Ok(true) => {
                say_that_the_holder_died(number, proc);
                Ok(())
            }
            Err(MutexError::HeldAlready { .. }) => {
                Err(Refusal::fatal(format!("this thread holds mutex {number} of process {proc} already")))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn try_lock(&self, number: c_int, proc: c_int) -> Done<bool> {
        let (host, number) = self.place(number, proc)?;
        let Some(guard) = self.mutexes.try_lock(host, number)? else { return Ok(false) };
        if guard.previous_holder_died() {
            say_that_the_holder_died(number, proc);
        }
        guard.keep();
        Ok(true)
    }

    /// Where a mutex of this node is.
    pub(crate) fn find_here(&self, number: c_int, proc: c_int) -> Option<FoundMutex<'_>> {
        let (host, number) = self.place(number, proc).ok()?;
        self.mutexes.find_here(host, number)
    }

    /// What this process has put before is visible to whoever takes the mutex next.
    pub(crate) fn unlock(&self, world: &World, number: c_int, proc: c_int) -> Done {
        let place = self.place(number, proc)?;
        world.quiet_before_handing_on()?;
        self.unlock_after_quiet(place)
    }

    /// Gives the mutex back; the caller has called quiet.
    pub(crate) fn unlock_after_quiet(&self, (host, number): (u32, u64)) -> Done {
        match self.mutexes.guard_of_kept(host, number) {
            Some(guard) => Ok(guard.unlock()?),
            // Nobody here is known to hold it, which its word or its server says better.
            None => Ok(self.mutexes.unlock(host, number)?),
        }
    }
}

/// ARMCI has no way to tell that the holder before died: it is said on stderr, the first time.
static SAID: AtomicBool = AtomicBool::new(false);

#[cold]
fn say_that_the_holder_died(number: u64, proc: c_int) {
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "longarm: mutex {number} of process {proc} was held by a process that died; \
             what it protects may be half changed. This is said once."
        );
    }
}
