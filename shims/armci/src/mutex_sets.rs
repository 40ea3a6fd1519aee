//! What a process keeps of mutexes: one set of the job, by number and process, and sets of groups by handle.
//!
//! longarm's mutexes are held by a process. Between the threads of one process a gate stands in front of them, so that
//! threads may wait for each other as processes do.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longarm::ffi::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};
use longarm::{Group, Mutexes, World};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::refusal::{Done, Refusal};

/// How long who waits before a gate sleeps where the system refused the barrier by which openers see it.
const UNSEEN_NAP: Duration = Duration::from_millis(1);
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

/// Some mutexes with their gates.
pub(crate) struct Set {
    pub(crate) mutexes: Mutexes,
    group: Group,
    gates: Gates,
}

/// Which thread of this process holds a mutex.
///
/// PAIR gate: taking one and opening it. What a thread did under a mutex is done before another thread of the process goes
/// through.
///
/// # Why no waiter is missed
/// A waiter marks `waiting`, then looks at the gate; an opener opens the gate, then looks at `waiting`. Both need a full barrier between
/// their two steps, or both could miss the other, and the waiter would sleep before an open gate. Openers are many and waiters
/// few, so the waiter makes both: `membarrier` is a full barrier for itself and, at some point, for every other thread of the
/// process. If that point lies before an opener's look at `waiting`, the opener sees the mark. If it lies after, the gate was opened before
/// it, and the waiter sees that. Where the system has no such call, openers exchange the gate instead of storing it.
struct Gates {
    /// Waiters can make the openers' barriers.
    waiters_make_barriers: bool,
    /// By process and number: 0, or the number of a thread. Made when a process's mutexes are first used.
    holders: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Threads that wait before some gate.
    waiting: AtomicU32,
    sleep: Mutex<()>,
    opened: Condvar,
}

/// A number for each thread that ever locked something, from 1 on.
fn this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static ME: u64 = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    }
    ME.with(|me| *me)
}

impl Gates {
    fn of(ranks: u32) -> Gates {
        let holders = (0..ranks).map(|_| OnceLock::new()).collect();
        let waiters_make_barriers = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        let waiting = AtomicU32::new(0);
        Gates { waiters_make_barriers, holders, waiting, sleep: Mutex::new(()), opened: Condvar::new() }
    }

    /// The gate of a mutex. `None`: there is no such mutex.
    fn gate(&self, mutexes: &Mutexes, (host, number): (u32, u64)) -> Option<&AtomicU64> {
        let of_host = self.holders.get(host as usize)?;
        let of_host = of_host.get_or_init(|| (0..mutexes.count(host)).map(|_| AtomicU64::new(0)).collect());
        of_host.get(usize::try_from(number).ok()?)
    }

    /// Waits until the gate is free and takes it. False: this thread has it already.
    #[inline]
    fn pass(&self, gate: &AtomicU64, me: u64) -> bool {
        // PAIR gate.
        match gate.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(holder) if holder == me => false,
            Err(_) => {
                self.wait(gate, me);
                true
            }
        }
    }

    #[cold]
    fn wait(&self, gate: &AtomicU64, me: u64) {
        let mut sleep = self.sleep.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // The openers' barrier; see `Gates`.
        let is_seen = !self.waiters_make_barriers || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // PAIR gate.
        while gate.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            if is_seen {
                self.opened.wait(&mut sleep);
            } else {
                self.opened.wait_for(&mut sleep, UNSEEN_NAP);
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn open(&self, gate: &AtomicU64) {
        // PAIR gate.
        if self.waiters_make_barriers {
            gate.store(0, Ordering::Release);
            // Keeps the compiler from moving the look before the store. The waiter's membarrier keeps the processor from it.
            compiler_fence(Ordering::SeqCst);
        } else {
            gate.swap(0, Ordering::SeqCst);
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // A waiter marks itself and looks at the gate under this lock: once we have had it, it is asleep or through.
            drop(self.sleep.lock());
            self.opened.notify_all();
        }
    }
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
        let gates = Gates::of(group.members().into_iter().max().map_or(0, |last| last + 1));
        Ok(Set { mutexes, group: group.clone(), gates })
    }

    fn place(&self, number: c_int, proc: c_int) -> Done<(u32, u64)> {
        let host = u32::try_from(proc).ok().and_then(|place| self.group.world_rank(place));
        let host = host.ok_or_else(|| Refusal::fatal(format!("there is no process {proc}")))?;
        let number = u64::try_from(number)
            .map_err(|_| Refusal::fatal(format!("there is no mutex {number} of process {proc}")))?;
        Ok((host, number))
    }

    pub(crate) fn lock(&self, number: c_int, proc: c_int) -> Done {
        let place = self.place(number, proc)?;
        let gate = self.gates.gate(&self.mutexes, place);
        if let Some(gate) = gate
            && !self.gates.pass(gate, this_thread())
        {
            return Err(Refusal::fatal(format!("this thread holds mutex {number} of process {proc} already")));
        }
        match self.mutexes.lock_kept(place.0, place.1) {
            Ok(previous_holder_died) => {
                if previous_holder_died {
                    say_that_the_holder_died(number, proc);
                }
                Ok(())
            }
            Err(error) => {
                if let Some(gate) = gate {
                    self.gates.open(gate);
                }
                Err(error.into())
            }
        }
    }

    pub(crate) fn try_lock(&self, number: c_int, proc: c_int) -> Done<bool> {
        let place = self.place(number, proc)?;
        let gate = self.gates.gate(&self.mutexes, place);
        if let Some(gate) = gate
            // PAIR gate.
            && gate.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            return Ok(false);
        }
        let taken = self.mutexes.try_lock(place.0, place.1);
        if let Ok(Some(guard)) = taken {
            if guard.previous_holder_died() {
                say_that_the_holder_died(number, proc);
            }
            guard.keep();
            return Ok(true);
        }
        if let Some(gate) = gate {
            self.gates.open(gate);
        }
        taken?;
        Ok(false)
    }

    /// What this process has put before is visible to whoever takes the mutex next.
    pub(crate) fn unlock(&self, world: &World, number: c_int, proc: c_int) -> Done {
        let place = self.place(number, proc)?;
        world.quiet_before_handing_on()?;
        let gate = self.gates.gate(&self.mutexes, place);
        // PAIR gate.
        let unlocked = if gate.is_some_and(|gate| gate.load(Ordering::SeqCst) == this_thread()) {
            self.mutexes.guard_of_kept(place.0, place.1).unlock()
        } else {
            // It may not be held at all, which has to be found out.
            self.mutexes.unlock(place.0, place.1)
        };
        if let Some(gate) = gate {
            self.gates.open(gate);
        }
        Ok(unlocked?)
    }
}

/// ARMCI has no way to tell that the holder before died: it is said on stderr, the first time.
static SAID: AtomicBool = AtomicBool::new(false);

#[cold]
fn say_that_the_holder_died(number: c_int, proc: c_int) {
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "longarm: mutex {number} of process {proc} was held by a process that died; \
             what it protects may be half changed. This is said once."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each round ends with nobody at the gate: who was not woken then is not woken by the next one either.
    #[test]
    fn who_waits_before_a_gate_is_woken_and_alone_behind_it() {
        const THREADS: u64 = 2;
        const ROUNDS: u64 = 100_000;
        for waiters_make_barriers in [Gates::of(1).waiters_make_barriers, false] {
            let gates = Gates { waiters_make_barriers, ..Gates::of(1) };
            let (gate, inside, arrived) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for me in 1..=THREADS {
                    let (gates, gate, inside, arrived) = (&gates, &gate, &inside, &arrived);
                    scope.spawn(move || {
                        for round in 1..=ROUNDS {
                            arrived.fetch_add(1, Ordering::SeqCst);
                            while arrived.load(Ordering::SeqCst) < THREADS * round {
                                std::thread::yield_now();
                            }
                            assert!(gates.pass(gate, me));
                            assert!(!gates.pass(gate, me), "it is this thread's already");
                            let before = inside.load(Ordering::Relaxed);
                            inside.store(before + 1, Ordering::Relaxed);
                            gates.open(gate);
                        }
                    });
                }
            });
            assert_eq!(inside.into_inner(), THREADS * ROUNDS);
            assert_eq!(gates.waiting.into_inner(), 0);
        }
    }
}
