//! What a rank sleeps on: how a sleeper is woken by another process, with no system call while nobody sleeps.
//!
//! One word of 64 bits: in the upper half how often it was notified; in the lower one 16 bits for those who sleep, and 16 for
//! those of them who listen. One addition notifies, and learns in the same step whether somebody sleeps; one addition announces
//! a sleeper, and learns in the same step whether it was notified. Whichever comes first in the order of that one word, the
//! other one sees it: no wake-up is lost, and no fence is needed. A sleeper waits in a shared futex on the upper half.
//!
//! ```text
//!   waiter                                   notifier
//!   seen = sequence()                        publish
//!   look: nothing there                      notify: word += 1 << 32 ──► sleepers > 0: wake all
//!   sleep(seen): word += 1, wait while upper half == seen, word -= 1
//! ```
//!
//! PAIR notified: the addition of `notify` (Release) and the reads of `sequence`, `sleep`, `sleep_unless` and
//! `listen_unless` (Acquire). Who sees the new sequence sees what was published before the notification.
//!
//! PAIR sleeping: the Acquire and Release halves of the announcements in `sleep_unless` and `listen_unless` and the fences
//! there and in `notify_if_sleeping`, see there.
//!
//! A sleeper may also listen: it waits for a descriptor of its own and others' descriptors at once, in its own way. Each notification
//! while it is counted rings that descriptor (the segment's, see `NodeSegment::set_ringer`).
//!
//! If a process dies: a sleeper that is killed stays counted, so each later notification makes a system call that wakes nobody;
//! nothing is lost. A notifier that is killed between its addition and the wake leaves a sleeper asleep until its timeout
//! or the next notification. So sleep with a timeout when a dead rank could be the one to wake you.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering, fence};

/// One ring.
const RING: u64 = 1 << 32;
/// One sleeper. There are fewer than 2^16 of them.
const SLEEPER: u64 = 1;
/// One of them listens: it is not in the futex.
const LISTENER: u64 = 1 << 16;

/// The shared word of an eventcount. All zeros is an eventcount that was never notified.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct EventcountWord {
    word: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<EventcountWord>() == 64);

/// How a thread sleeps until a word changes. There are two: the kernel's futex, and a stand-in for the model checker.
pub trait Futex {
    /// Waits while the upper half of the word is `seen`. May return early without reason.
    fn wait(&self, word: &EventcountWord, seen: u32, timeout: Option<Duration>);
    /// Wakes all that wait on the word.
    fn wake_all(&self, word: &EventcountWord);
    /// Rings the descriptor that listeners wait for.
    fn ring(&self);
}

/// The futex of the kernel, shared between processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelFutex<'a> {
    /// An eventfd, where listeners are possible.
    #[cfg_attr(loom, expect(dead_code, reason = "the models have a futex of their own"))]
    ringer: Option<&'a OnceLock<OwnedFd>>,
}

#[cfg(not(loom))]
impl Futex for KernelFutex<'_> {
    fn wait(&self, word: &EventcountWord, seen: u32, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| rustix::time::Timespec::try_from(timeout).ok());
        // Every way to return (woken, notified before, timeout, signal) is a reason for the caller to look again.
        let _ = rustix::thread::futex::wait(
            word.sequence_half(),
            rustix::thread::futex::Flags::empty(),
            seen,
            timeout.as_ref(),
        );
    }

    fn wake_all(&self, word: &EventcountWord) {
        // It fails only on an address that is not mapped, and this one is.
        let _ = rustix::thread::futex::wake(
            word.sequence_half(),
            rustix::thread::futex::Flags::empty(),
            i32::MAX.cast_unsigned(),
        );
    }

    fn ring(&self) {
        // Who listens has made it before. A full counter is as readable as it can be.
        if let Some(ringer) = self.ringer.and_then(OnceLock::get) {
            let _ = rustix::io::write(ringer, &1_u64.to_ne_bytes());
        }
    }
}

impl EventcountWord {
    /// The half that the kernel compares. Only its address is used; all our own accesses are of the whole word.
    #[cfg(not(loom))]
    fn sequence_half(&self) -> &crate::sync::AtomicU32 {
        let half = if cfg!(target_endian = "little") { 1 } else { 0 };
        let address = self.word.as_ptr().cast::<u32>().wrapping_add(half);
        // SAFETY: the address is inside `self.word`, aligned for 4 bytes, and lives as long as `self`. Nobody accesses
        // the bytes through the reference: rustix passes its address on to the kernel.
        unsafe { crate::sync::AtomicU32::from_ptr(address) }
    }

    /// What the kernel compares, for the model checker's futex.
    #[cfg(all(test, loom))]
    pub(crate) fn sequence(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> 32) as u32
    }
}

/// What a rank sleeps on. Anybody may notify it; threads of its rank sleep on it.
#[derive(Clone, Copy, Debug)]
pub struct Eventcount<'a, F = KernelFutex<'a>> {
    word: &'a EventcountWord,
    futex: F,
}

#[cfg(not(loom))]
impl<'a> Eventcount<'a> {
    #[cfg(test)]
    pub(crate) fn new(word: &'a EventcountWord) -> Self {
        Eventcount { word, futex: KernelFutex::default() }
    }

    /// One that may have listeners, who wait for this descriptor.
    #[inline]
    pub(crate) fn with_ringer(word: &'a EventcountWord, ringer: &'a OnceLock<OwnedFd>) -> Self {
        Eventcount { word, futex: KernelFutex { ringer: Some(ringer) } }
    }
}

impl<'a, F: Futex> Eventcount<'a, F> {
    /// An eventcount that sleeps in another way than in the kernel's futex.
    pub fn with_futex(word: &'a EventcountWord, futex: F) -> Self {
        Eventcount { word, futex }
    }

    /// How often it was notified (wraps around). Read it, look for work, and sleep with the value read.
    #[inline]
    pub fn sequence(&self) -> u32 {
        // PAIR notified: what was published before the notification is seen after this.
        (self.word.word.load(Ordering::Acquire) >> 32) as u32
    }

    /// Rings: what the caller wrote before is seen by whoever sees the new sequence, and all sleepers wake.
    #[inline]
    pub fn notify(&self) {
        // PAIR notified. The old value says in the same step whether somebody had announced to sleep; who announces later
        // sees this ring.
        let old = self.word.word.fetch_add(RING, Ordering::Release);
        if sleepers(old) > 0 {
            self.wake(old);
        }
    }

    /// Rings only if somebody sleeps; costs a fence and a load otherwise.
    ///
    /// The sequence stays as it is when nobody sleeps, so only [`Eventcount::sleep_unless`], which looks once more after it
    /// has announced itself, is sure not to miss it. [`Eventcount::sleep`] is not.
    #[inline]
    pub fn notify_if_sleeping(&self) {
        // PAIR sleeping: either this fence comes first, and the sleeper's condition sees what was written before it,
        // or the sleeper's fence comes first, and the load below sees the sleeper. Acquire and release would allow
        // both to miss each other: two threads that each store one word and load the other's.
        fence(Ordering::SeqCst);
        if sleepers(self.word.word.load(Ordering::Relaxed)) > 0 {
            self.notify();
        }
    }

    /// As [`Eventcount::notify_if_sleeping`], after a sequentially consistent read-modify-write, which stands for the fence.
    #[inline]
    pub fn notify_if_sleeping_after_rmw(&self) {
        // PAIR sleeping: the read-modify-write before this, this load, and the sleeper's fence are in one order. If
        // this load does not see the sleeper, it comes before the fence, and the sleeper's condition sees the word.
        if sleepers(self.word.word.load(Ordering::SeqCst)) > 0 {
            self.notify();
        }
    }

    /// Sleeps until the eventcount has been notified since `sequence` gave `seen`, or the time is up. It may return early.
    pub fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        // PAIR notified, both halves: a notification before this is seen in the old value, a notification after this sees a sleeper.
        let old = self.word.word.fetch_add(SLEEPER, Ordering::AcqRel);
        if sequence(old) == seen {
            self.futex.wait(self.word, seen, timeout);
        }
        self.word.word.fetch_sub(SLEEPER, Ordering::Relaxed);
        // PAIR notified: see what the notifier published before it woke us.
        self.word.word.load(Ordering::Acquire);
    }

    /// As [`Eventcount::sleep`], but looks at `condition` once more after it has announced the sleeper, and does not sleep if
    /// it holds. The waiter's half of [`Eventcount::notify_if_sleeping`].
    pub fn sleep_unless(&self, seen: u32, timeout: Option<Duration>, condition: impl FnOnce() -> bool) {
        let old = self.word.word.fetch_add(SLEEPER, Ordering::AcqRel);
        // PAIR sleeping: see `notify_if_sleeping`.
        fence(Ordering::SeqCst);
        if sequence(old) == seen && !condition() {
            self.futex.wait(self.word, seen, timeout);
        }
        self.word.word.fetch_sub(SLEEPER, Ordering::Relaxed);
        // PAIR notified: see what the notifier published before it woke us.
        self.word.word.load(Ordering::Acquire);
    }

    /// As [`Eventcount::sleep_unless`] for a thread that sleeps in its own way: `sleep` has to end when the descriptor of the segment is
    /// rung, and whoever ends it must silence that before it looks for what was notified.
    pub fn listen_unless(&self, seen: u32, condition: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        let old = self.word.word.fetch_add(SLEEPER + LISTENER, Ordering::AcqRel);
        // PAIR sleeping: see `notify_if_sleeping`.
        fence(Ordering::SeqCst);
        if sequence(old) == seen && !condition() {
            sleep();
        }
        self.word.word.fetch_sub(SLEEPER + LISTENER, Ordering::Relaxed);
        // PAIR notified: see what the notifier published before it rang.
        self.word.word.load(Ordering::Acquire);
    }

    /// Wakes those that were counted in `word`.
    #[cold]
    fn wake(&self, word: u64) {
        let listeners = listeners(word);
        if sleepers(word) > listeners {
            self.futex.wake_all(self.word);
        }
        if listeners > 0 {
            self.futex.ring();
        }
    }
}

/// Listeners too.
#[inline]
const fn sleepers(word: u64) -> u16 {
    word as u16
}

#[inline]
const fn listeners(word: u64) -> u16 {
    (word as u32 >> 16) as u16
}

#[inline]
const fn sequence(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_keeps_the_waiter_awake() {
        let word = EventcountWord::default();
        let eventcount = Eventcount::new(&word);
        let seen = eventcount.sequence();
        eventcount.notify();
        assert_eq!(eventcount.sequence(), seen + 1);
        eventcount.sleep(seen, None);
    }

    #[test]
    fn a_condition_that_holds_keeps_the_waiter_awake() {
        let word = EventcountWord::default();
        let eventcount = Eventcount::new(&word);
        eventcount.notify_if_sleeping();
        assert_eq!(eventcount.sequence(), 0);
        eventcount.sleep_unless(0, None, || true);
    }

    #[test]
    fn a_sleep_ends_when_its_time_is_up() {
        let word = EventcountWord::default();
        let eventcount = Eventcount::new(&word);
        eventcount.sleep(0, Some(Duration::from_millis(1)));
        eventcount.sleep_unless(0, Some(Duration::from_millis(1)), || false);
        assert_eq!(eventcount.word.word.load(Ordering::Relaxed), 0, "nobody is counted as sleeping any more");
    }

    #[test]
    fn a_notification_rings_for_a_listener_and_wakes_nobody_in_the_futex_for_it() {
        let (word, ringer) = (EventcountWord::default(), OnceLock::new());
        ringer.set(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap()).unwrap();
        let rung = || {
            let mut count = [0; 8];
            rustix::io::read(ringer.get().unwrap(), &mut count).map(|_| u64::from_ne_bytes(count))
        };
        let eventcount = Eventcount::with_ringer(&word, &ringer);
        eventcount.notify();
        eventcount.listen_unless(0, || panic!("it was notified"), || panic!("it was notified"));
        eventcount.listen_unless(1, || true, || panic!("there is what it waits for"));
        assert_eq!(rung(), Err(rustix::io::Errno::AGAIN), "nobody listened");
        eventcount.listen_unless(
            1,
            || false,
            || {
                eventcount.notify_if_sleeping();
                assert_eq!(rung(), Ok(1));
            },
        );
        eventcount.notify_if_sleeping();
        assert_eq!((rung(), eventcount.sequence()), (Err(rustix::io::Errno::AGAIN), 2), "nobody listens any more");
        assert_eq!(sleepers(word.word.load(Ordering::Relaxed)), 0);
    }

    #[test]
    fn two_threads_that_take_turns_by_eventcount_never_get_stuck() {
        let words = [EventcountWord::default(), EventcountWord::default()];
        let turns = 20_000;
        std::thread::scope(|scope| {
            for me in 0..2 {
                let words = &words;
                scope.spawn(move || {
                    let (mine, other) = (Eventcount::new(&words[me]), Eventcount::new(&words[1 - me]));
                    for turn in 0..turns {
                        if me == 0 {
                            other.notify();
                        }
                        while mine.sequence() == turn {
                            mine.sleep(turn, None);
                        }
                        if me == 1 {
                            other.notify();
                        }
                    }
                });
            }
        });
        assert_eq!(Eventcount::new(&words[0]).sequence(), turns);
        assert_eq!(Eventcount::new(&words[1]).sequence(), turns);
    }

    #[test]
    fn the_sequence_wraps_without_touching_the_sleepers() {
        let word = EventcountWord { word: AtomicU64::new(u64::from(u32::MAX) << 32) };
        let eventcount = Eventcount::new(&word);
        eventcount.notify();
        assert_eq!(eventcount.sequence(), 0);
        assert_eq!(word.word.load(Ordering::Relaxed), 0);
    }
}
