//! The word of a mutex: ranks of the node take and give it by compare-and-swaps of their own, the server by those that
//! its queue asks for, and a holder may die.
//!
//! The server is whoever holds the lock around the queue. What a rank asks it for happens or does not, whole: it is a
//! message. Ranks that look before they ask, and pass the mutex on (`handover`), run the code that runs.

use longarm_proto::{Deaths, Grant, InheritStep, LockStep, MutexQueue, Rank, UnlockStep, mutex_holder, mutex_word};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::check;
use super::mortal::{die_after, in_kernel};
use crate::handover::{self, Attempt, GivenBack, MutexLine, Step};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const RANKS: u32 = 3;
/// What a waiter finds when its turn has come.
const GIVEN: u32 = 1;
const INHERITED: u32 = 2;

struct SharedMutex {
    word: AtomicU32,
    set: AtomicU64,
    round: AtomicU32,
    /// Which rank is known to be dead, + 1.
    dead: AtomicU32,
    server: Mutex<(MutexQueue<Rank>, Deaths)>,
    told: Vec<AtomicU32>,
    contents: UnsafeCell<u32>,
}

// SAFETY: the contents are touched by the holder of the mutex only. That the word suffices is what the model checks.
unsafe impl Sync for SharedMutex {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for SharedMutex {}

/// As a mapped line does it.
impl MutexLine for SharedMutex {
    fn word(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn set(&self, index: u32) -> u64 {
        if index == 0 { self.set.load(Ordering::Acquire) } else { 0 }
    }

    fn add(&self, _: u32, bits: u64) {
        self.set.fetch_or(bits, Ordering::AcqRel);
    }

    fn take_out(&self, _: u32, bits: u64) -> u64 {
        self.set.fetch_and(!bits, Ordering::AcqRel)
    }

    fn round(&self) -> u32 {
        self.round.load(Ordering::Relaxed)
    }

    fn set_round(&self, first: u32) {
        self.round.store(first, Ordering::Relaxed);
    }
}

impl SharedMutex {
    fn new() -> Arc<SharedMutex> {
        Arc::new(SharedMutex {
            word: AtomicU32::new(0),
            set: AtomicU64::new(0),
            round: AtomicU32::new(0),
            dead: AtomicU32::new(0),
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
            let word = self.word.load(Ordering::Acquire);
            assert_ne!(mutex_holder(word), Some(who), "the server refuses who has it");
            match queue.lock(word, who, who, deaths) {
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
        self.dead.store(dead.0 + 1, Ordering::Release);
        loop {
            let word = self.word.load(Ordering::Acquire);
            match queue.inherit(word, deaths) {
                // A rank that looks adds a mark, once; nobody else changes a word that names a dead rank.
                InheritStep::Swap { from, to, step } if self.swap(from, to) => self.tell(queue.commit(step)),
                InheritStep::Swap { .. } => continue,
                InheritStep::Nothing => {}
            }
            return mutex_holder(word) == Some(dead);
        }
    }

    /// As [`SharedMutex::lock`], by a rank that looks so often before it asks.
    fn lock_looking(&self, who: Rank, looks: u32) -> bool {
        let mut attempt = Attempt::begin(self, who, who.0).unwrap();
        let mut awaits = false;
        for look in 1.. {
            match attempt.step(self, look >= looks, |rank| self.is_dead(rank)) {
                Step::Taken => return false,
                // It looks once more at once: loom lets nobody who yields be first again while others can go on.
                Step::Await if !awaits => awaits = true,
                Step::Spin | Step::Await => thread::yield_now(),
                Step::HeldAlready => panic!("{who:?} has one thread"),
                Step::AskServer => break,
            }
        }
        in_kernel(|| self.serve_lock(who));
        loop {
            match self.told[who.0 as usize].load(Ordering::Acquire) {
                0 => thread::yield_now(),
                told => return told == INHERITED,
            }
        }
    }

    fn is_dead(&self, rank: Rank) -> bool {
        self.dead.load(Ordering::Acquire) == rank.0 + 1
    }

    fn unlock_looking(&self, who: Rank) {
        let living = |local| (local < RANKS).then_some(Rank(local)).filter(|rank| !self.is_dead(*rank));
        match handover::give_back(self, (who, who.0), living) {
            GivenBack::Done => {}
            GivenBack::AskServer => self.unlock(who),
            GivenBack::NotHeld => panic!("{who:?} gives back what it does not have"),
        }
    }

    fn work_looking(&self, who: Rank, looks: u32) -> bool {
        let inherited = self.lock_looking(who, looks);
        self.contents.with_mut(|contents| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *contents += 1 }
        });
        self.unlock_looking(who);
        inherited
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

/// Looks of a rank before it asks the server, of which some are in vain.
const LOOKS: u32 = 2;
/// Atomic operations of a rank that looks and gives back, some more than of those that find it free.
const LOOKING_STEPS: u32 = 12;

#[test]
fn loom_ranks_that_look_pass_a_mutex_on_and_exclude_each_other_and_who_asks_the_server() {
    check(Some(2), || {
        let place = SharedMutex::new();
        let others: Vec<_> = [(1, LOOKS), (2, 1)]
            .map(|(rank, looks)| {
                let place = place.clone();
                thread::spawn(move || place.work_looking(Rank(rank), looks))
            })
            .into();
        place.work_looking(Rank(0), LOOKS);
        others.into_iter().for_each(|other| assert!(!other.join().unwrap()));
        // SAFETY: all threads are done, which `join` orders.
        let found = place.contents.with(|contents| unsafe { *contents });
        assert_eq!((found, place.word.load(Ordering::Acquire), place.set.load(Ordering::Acquire)), (3, 0, 0));
    });
}

#[test]
fn loom_a_rank_dies_at_any_step_of_looking_and_passing_and_nobody_waits_for_ever() {
    for (steps, looks) in (0..=LOOKING_STEPS).flat_map(|steps| [(steps, 1), (steps, LOOKS)]) {
        // The passer's last write falls between two looks of the rank that it passes to: three.
        check(Some(3), move || {
            let place = SharedMutex::new();
            let mortal = {
                let place = place.clone();
                thread::spawn(move || die_after(steps, || place.work_looking(Rank(0), LOOKS)).is_some())
            };
            let living = {
                let place = place.clone();
                thread::spawn(move || place.work_looking(Rank(1), looks))
            };
            let completed = mortal.join().unwrap();
            place.hear_of_death(Rank(0));
            living.join().unwrap();
            place.work_looking(Rank(2), 1);
            // SAFETY: all threads are done, which `join` orders.
            let found = place.contents.with(|contents| unsafe { *contents });
            assert!(found == 3 || found == 2 && !completed, "{found} updates, of 2 and the dead one's");
            assert_eq!(place.word.load(Ordering::Acquire), 0);
        });
    }
}
