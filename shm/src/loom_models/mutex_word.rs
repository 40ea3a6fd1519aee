//! The word of a mutex: ranks of the node take and give it by compare-and-swaps of their own, the server by those that
//! its queue asks for, and a holder may die.
//!
//! The server is whoever holds the lock around the queue. What a rank asks it for happens or does not, whole: it is a
//! message.

use longarm_proto::{Deaths, Grant, InheritStep, LockStep, MutexQueue, Rank, UnlockStep, mutex_holder, mutex_word};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::check;
use super::mortal::{die_after, in_kernel};
use crate::sync::{AtomicU32, Ordering};

const RANKS: u32 = 3;
/// What a waiter finds when its turn has come.
const GIVEN: u32 = 1;
const INHERITED: u32 = 2;

struct SharedMutex {
    word: AtomicU32,
    server: Mutex<(MutexQueue<Rank>, Deaths)>,
    told: Vec<AtomicU32>,
    contents: UnsafeCell<u32>,
}

// SAFETY: the contents are touched by the holder of the mutex only. That the word suffices is what the model checks.
unsafe impl Sync for SharedMutex {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for SharedMutex {}

impl SharedMutex {
    fn new() -> Arc<SharedMutex> {
        Arc::new(SharedMutex {
            word: AtomicU32::new(0),
            server: Mutex::new((MutexQueue::new(), Deaths::new())),
            told: (0..RANKS).map(|_| AtomicU32::new(0)).collect(),
            contents: UnsafeCell::new(0),
        })
    }

    /// As `amo` does it.
    fn swap(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn tell(&self, grant: Option<Grant<Rank>>) {
        if let Some(Grant { waiter, inherited }) = grant {
            // As a reply does: what the server has seen is seen by who gets it.
            self.told[waiter.0 as usize].store(if inherited { INHERITED } else { GIVEN }, Ordering::Release);
        }
    }

    /// What the holder does: whether the one before died.
    fn lock(&self, who: Rank) -> bool {
        if self.swap(0, mutex_word(who)) {
            return false;
        }
        in_kernel(|| self.serve_lock(who));
        loop {
            match self.told[who.0 as usize].load(Ordering::Acquire) {
                0 => thread::yield_now(),
                told => return told == INHERITED,
            }
        }
    }

    fn serve_lock(&self, who: Rank) {
        let mut server = self.server.lock().unwrap();
        let (queue, deaths) = &mut *server;
        loop {
            match queue.lock(self.word.load(Ordering::Acquire), who, who, deaths) {
                LockStep::Swap { from, to, step } if self.swap(from, to) => return self.tell(queue.commit(step)),
                LockStep::Swap { .. } => {}
                LockStep::Queued => return,
                LockStep::NotAMutex(_) => panic!("nobody stores such a word"),
            }
        }
    }

    fn unlock(&self, who: Rank) {
        if self.swap(mutex_word(who), 0) {
            return;
        }
        in_kernel(|| {
            let mut server = self.server.lock().unwrap();
            let (queue, _) = &mut *server;
            loop {
                match queue.unlock(self.word.load(Ordering::Acquire), who) {
                    UnlockStep::Swap { from, to, step } if self.swap(from, to) => return self.tell(queue.commit(step)),
                    UnlockStep::Swap { .. } => {}
                    UnlockStep::NotHeld { holder } => panic!("{who:?} unlocks, {holder:?} holds it"),
                }
            }
        });
    }

    /// Whether it held the mutex.
    fn hear_of_death(&self, dead: Rank) -> bool {
        let mut server = self.server.lock().unwrap();
        let (queue, deaths) = &mut *server;
        deaths.note(dead);
        queue.remove(|waiter| *waiter == dead);
        assert_eq!(deaths.settle(0, |_| false), [dead]);
        // Nobody but the server changes a word that names a dead rank.
        let word = self.word.load(Ordering::Acquire);
        if let InheritStep::Swap { from, to, step } = queue.inherit(word, deaths) {
            assert!(self.swap(from, to), "somebody changed it");
            self.tell(queue.commit(step));
        }
        mutex_holder(word) == Some(dead)
    }

    fn work(&self, who: Rank) -> bool {
        let inherited = self.lock(who);
        self.contents.with_mut(|contents| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *contents += 1 }
        });
        self.unlock(who);
        inherited
    }
}

/// Atomic operations of a lock and an unlock without the server: two. With it, more, as its grant is looked for.
const STEPS: u32 = 4;

#[test]
fn loom_a_holder_of_a_mutex_dies_at_any_step_and_exactly_one_inherits_what_it_held() {
    for steps in 0..=STEPS {
        check(Some(2), move || {
            let place = SharedMutex::new();
            let mortal = {
                let place = place.clone();
                thread::spawn(move || die_after(steps, || place.work(Rank(0))).is_some())
            };
            let living = {
                let place = place.clone();
                thread::spawn(move || place.work(Rank(1)))
            };
            let completed = mortal.join().unwrap();
            let held = place.hear_of_death(Rank(0));
            let mut inherited = u32::from(living.join().unwrap());
            inherited += u32::from(place.work(Rank(2)));
            // SAFETY: all threads are done, which `join` orders.
            let found = place.contents.with(|contents| unsafe { *contents });
            assert!(found == 3 || found == 2 && !completed, "{found} updates, of 2 and the dead one's");
            assert_eq!(inherited, u32::from(held), "step {steps}: it is told once, where it was held to the end");
            assert_eq!(place.word.load(Ordering::Acquire), 0);
        });
    }
}
