//! Models of the shared algorithms: loom runs every order of their steps, and every value that the memory model lets a
//! load see. The code under test is the code that runs; only the memory that it works on stands here.
//!
//! In the models of deaths one party dies before its atomic operation number k, for every k from the first to one behind
//! its last (`mortal`). The others know of it when its thread has ended, as ranks do from the launcher.
//!
//! Not here: what needs more than Acquire and Release of an access without a fence. Loom takes SeqCst accesses for AcqRel,
//! so it cannot follow `Eventcount::notify_if_sleeping_after_rmw`. Counters promise nothing but their sums.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p longarm-shm --release --lib loom`.

#[path = "loom_models/combining.rs"]
mod combining;
#[path = "loom_models/deaths.rs"]
mod deaths;
#[path = "loom_models/fastbox.rs"]
mod fastbox;
#[path = "loom_models/flag_barrier.rs"]
mod flag_barrier;
#[path = "loom_models/holders.rs"]
mod holders;
#[path = "loom_models/mortal.rs"]
pub(crate) mod mortal;
#[path = "loom_models/mutex_word.rs"]
mod mutex_word;

use std::time::Duration;

use longarm_proto::Rank;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::eventcount::{Eventcount, EventcountWord, Futex};
use crate::queue::{Links, Queue, QueueEnds, Taken};
use crate::stripe::{StripeWord, Stripes};
use crate::sync::{AtomicU32, Ordering};

/// Runs a model with a bound on how often a thread may be interrupted: exhaustive below it, and few real faults need
/// more than two.
fn check(preemption_bound: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemption_bound);
    builder.check(model);
}

/// Cells whose contents are plain memory, so that loom reports a consumer who does not see what was put in.
struct Pool {
    links: Vec<AtomicU32>,
    contents: Vec<UnsafeCell<u32>>,
}

impl Links for Pool {
    fn next(&self, cell: u32) -> Option<&AtomicU32> {
        self.links.get(cell as usize)
    }
}

struct Inbox {
    ends: QueueEnds,
    pool: Pool,
}

// SAFETY: the contents of a cell are touched by its owner until it is enqueued and by the consumer afterwards. That the
// queue orders the two is what the models check: loom reports any access that is not ordered.
unsafe impl Sync for Inbox {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for Inbox {}

impl Inbox {
    fn new(cells: usize) -> Arc<Inbox> {
        let links = (0..cells).map(|_| AtomicU32::new(0)).collect();
        let contents = (0..cells).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Inbox { ends: QueueEnds::default(), pool: Pool { links, contents } })
    }

    fn push(&self, cell: u32, value: u32) {
        self.pool.contents[cell as usize].with_mut(|contents| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *contents = value }
        });
        Queue::new(&self.ends, &self.pool).enqueue(cell);
    }

    fn pop(&self) -> Option<(u32, u32)> {
        match Queue::new(&self.ends, &self.pool).dequeue() {
            Taken::Cell(cell) => {
                let value = self.pool.contents[cell as usize].with(|contents| {
                    // SAFETY: as in `push`.
                    unsafe { *contents }
                });
                Some((cell, value))
            }
            Taken::Empty | Taken::Broken => None,
        }
    }

    /// Takes until `count` cells have come.
    fn pop_all(&self, count: usize) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            match self.pop() {
                Some(cell) => taken.push(cell),
                None => thread::yield_now(),
            }
        }
        taken
    }
}

#[test]
fn loom_two_producers_lose_nothing_and_keep_their_order() {
    check(Some(2), || {
        let inbox = Inbox::new(4);
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    inbox.push(producer * 2, producer * 10);
                    inbox.push(producer * 2 + 1, producer * 10 + 1);
                })
            })
            .collect();
        let taken = inbox.pop_all(4);
        for producer in 0..2 {
            let own: Vec<_> = taken.iter().filter(|(cell, _)| cell / 2 == producer).copied().collect();
            assert_eq!(own, [(producer * 2, producer * 10), (producer * 2 + 1, producer * 10 + 1)]);
        }
        assert_eq!(inbox.pop(), None);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert!(Queue::new(&inbox.ends, &inbox.pool).is_empty());
    });
}

#[test]
fn loom_a_queue_that_keeps_running_empty_loses_nothing() {
    // One producer, whose cells go in again as soon as they came out: the head is stored and cleared many times.
    check(Some(3), || {
        let inbox = Inbox::new(3);
        let producer = {
            let inbox = inbox.clone();
            thread::spawn(move || (0..3).for_each(|cell| inbox.push(cell, cell + 40)))
        };
        assert_eq!(inbox.pop_all(3), [(0, 40), (1, 41), (2, 42)]);
        producer.join().unwrap();
        assert_eq!(inbox.pop(), None);
        inbox.push(1, 5);
        assert_eq!(inbox.pop(), Some((1, 5)));
    });
}

#[test]
fn loom_a_consumer_that_takes_over_between_two_pops_finds_the_rest() {
    check(Some(2), || {
        let inbox = Inbox::new(3);
        let producer = {
            let inbox = inbox.clone();
            thread::spawn(move || (0..3).for_each(|cell| inbox.push(cell, cell)))
        };
        let mut taken = inbox.pop_all(1);
        Queue::new(&inbox.ends, &inbox.pool).take_over();
        taken.extend(inbox.pop_all(2));
        assert_eq!(taken, [(0, 0), (1, 1), (2, 2)]);
        producer.join().unwrap();
    });
}

/// The kernel's futex as its manual promises it: the comparison and going to sleep are one step for who wakes.
#[derive(Clone)]
struct ModelFutex(Arc<(Mutex<()>, Condvar)>, Arc<ModelRinger>);

impl ModelFutex {
    fn new() -> Self {
        ModelFutex(Arc::new((Mutex::new(()), Condvar::new())), Arc::default())
    }
}

/// A descriptor that stays readable from the first ring on until it is silenced.
#[derive(Default)]
struct ModelRinger {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl ModelRinger {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn sleep_until_rung(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.changed.wait(is_rung).unwrap();
        }
    }

    fn silence(&self) {
        *self.is_rung.lock().unwrap() = false;
    }
}

impl Futex for ModelFutex {
    fn wait(&self, word: &EventcountWord, seen: u32, timeout: Option<Duration>) {
        assert_eq!(timeout, None, "the models have no clock, so a lost wake-up is a deadlock that loom reports");
        let guard = self.0.0.lock().unwrap();
        if mortal::in_kernel(|| word.sequence()) == seen {
            drop(self.0.1.wait(guard).unwrap());
        }
    }

    fn wake_all(&self, _word: &EventcountWord) {
        let _guard = self.0.0.lock().unwrap();
        self.0.1.notify_all();
    }

    fn ring(&self) {
        self.1.ring();
    }
}

/// An eventcount and a word that is published by notifying it.
struct Door {
    eventcount: EventcountWord,
    futex: ModelFutex,
    word: AtomicU32,
}

impl Door {
    fn new() -> Arc<Door> {
        Arc::new(Door { eventcount: EventcountWord::default(), futex: ModelFutex::new(), word: AtomicU32::new(0) })
    }

    fn eventcount(&self) -> Eventcount<'_, ModelFutex> {
        Eventcount::with_futex(&self.eventcount, self.futex.clone())
    }
}

#[test]
fn loom_no_ring_is_lost_and_what_was_published_before_it_is_seen() {
    check(None, || {
        let door = Door::new();
        let notifier = {
            let door = door.clone();
            thread::spawn(move || {
                // Relaxed: the ring has to publish it.
                door.word.store(1, Ordering::Relaxed);
                door.eventcount().notify();
            })
        };
        let eventcount = door.eventcount();
        loop {
            let seen = eventcount.sequence();
            if seen == 1 {
                break;
            }
            eventcount.sleep(seen, None);
        }
        assert_eq!(door.word.load(Ordering::Relaxed), 1);
        notifier.join().unwrap();
    });
}

#[test]
fn loom_a_waiter_that_looks_between_sequence_and_sleep_sees_the_word_of_every_notifier() {
    check(Some(2), || {
        let door = Door::new();
        let notifiers: Vec<_> = (0..2)
            .map(|_| {
                let door = door.clone();
                thread::spawn(move || {
                    door.word.fetch_add(1, Ordering::Relaxed);
                    door.eventcount().notify();
                })
            })
            .collect();
        let eventcount = door.eventcount();
        loop {
            let seen = eventcount.sequence();
            if door.word.load(Ordering::Relaxed) == 2 {
                break;
            }
            eventcount.sleep(seen, None);
        }
        notifiers.into_iter().for_each(|notifier| notifier.join().unwrap());
    });
}

#[test]
fn loom_a_ring_wakes_all_sleepers() {
    check(Some(2), || {
        let door = Door::new();
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let door = door.clone();
                thread::spawn(move || {
                    while door.eventcount().sequence() == 0 {
                        door.eventcount().sleep(0, None);
                    }
                })
            })
            .collect();
        door.eventcount().notify();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

#[test]
fn loom_a_ring_for_sleepers_only_is_not_missed_by_a_waiter_that_looks_again() {
    check(None, || {
        let door = Door::new();
        let notifier = {
            let door = door.clone();
            thread::spawn(move || {
                door.word.store(1, Ordering::Relaxed);
                door.eventcount().notify_if_sleeping();
            })
        };
        let eventcount = door.eventcount();
        loop {
            let seen = eventcount.sequence();
            let ready = || door.word.load(Ordering::Relaxed) == 1;
            if ready() {
                break;
            }
            eventcount.sleep_unless(seen, None, ready);
        }
        notifier.join().unwrap();
    });
}

#[test]
fn loom_a_listener_hears_of_every_notification() {
    check(Some(3), || {
        let door = Door::new();
        let notifiers = [true, false].map(|always| {
            let door = door.clone();
            thread::spawn(move || {
                door.word.fetch_add(1, Ordering::Relaxed);
                if always { door.eventcount().notify() } else { door.eventcount().notify_if_sleeping() }
            })
        });
        let (eventcount, ringer) = (door.eventcount(), &door.futex.1);
        loop {
            let seen = eventcount.sequence();
            let ready = || door.word.load(Ordering::Relaxed) == 2;
            if ready() {
                break;
            }
            eventcount.listen_unless(seen, ready, || ringer.sleep_until_rung());
            ringer.silence();
        }
        notifiers.into_iter().for_each(|notifier| notifier.join().unwrap());
    });
}

/// A block of memory under stripe locks.
struct Block {
    words: Vec<StripeWord>,
    contents: UnsafeCell<u32>,
}

// SAFETY: the contents are touched under a stripe lock only. That the lock suffices is what the models check.
unsafe impl Sync for Block {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for Block {}

impl Block {
    fn new() -> Arc<Block> {
        Arc::new(Block { words: vec![StripeWord::default()], contents: UnsafeCell::new(0) })
    }

    fn add(&self, who: Rank) {
        let guard = Stripes::new(&self.words).lock(0, who);
        self.contents.with_mut(|contents| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *contents += 1 }
        });
        drop(guard);
    }
}

#[test]
fn loom_a_stripe_lets_in_one_at_a_time_and_shows_what_the_last_one_wrote() {
    check(Some(3), || {
        let block = Block::new();
        let other = {
            let block = block.clone();
            thread::spawn(move || (0..2).for_each(|_| block.add(Rank(1))))
        };
        block.add(Rank(0));
        block.add(Rank(0));
        other.join().unwrap();
        // SAFETY: both threads are done, which `join` orders.
        assert_eq!(block.contents.with(|contents| unsafe { *contents }), 4);
    });
}

#[test]
fn loom_a_stripe_of_a_dead_holder_is_freed_and_what_it_wrote_is_seen() {
    check(Some(3), || {
        let block = Block::new();
        // The holder writes and dies with the lock; that it is dead is known by other means (here: by its thread's end).
        let dead = {
            let block = block.clone();
            thread::spawn(move || {
                std::mem::forget(Stripes::new(&block.words).lock(0, Rank(7)));
                // SAFETY: the lock is held, and loom reports who does not respect it.
                block.contents.with_mut(|contents| unsafe { *contents = 10 });
            })
        };
        let waiter = {
            let block = block.clone();
            thread::spawn(move || block.add(Rank(1)))
        };
        dead.join().unwrap();
        assert_eq!(Stripes::new(&block.words).release_of_dead(Rank(7)), 1);
        waiter.join().unwrap();
        // SAFETY: both threads are done, which `join` orders. The waiter came before the dead one or after it.
        let found = block.contents.with(|contents| unsafe { *contents });
        assert!(found == 10 || found == 11, "{found}");
    });
}
