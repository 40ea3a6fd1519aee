//! Locks: first come, first served, and a PE waits for a word of its own.
//!
//! A lock is a `long` at every PE, 0 while nobody has it. Its low half, at the PE that is its home, has the last PE in the
//! queue; its high half, at every PE, has who comes next and whether this PE still has to wait. This is the queue of Mellor-
//! Crummey and Scott, with PE numbers for pointers.
//!
//! ```text
//!   home's low half: last + 1          waiting PE's high half: WAITS | next + 1
//! ```
//!
//! A free lock whose home is on this node is taken by one exchange, without joining the queue.
//!
//! PAIR lock-word: the fence of who clears a lock with the atomics that hand it on and that take it, which are SeqCst; towards another
//! node, with the servers' messages. What was stored under the lock is visible to the next holder.
//!
//! If the holder dies the others wait until longarm says so, and the job ends.

use std::ffi::{c_int, c_long};

use longarm::ffi::{CounterKind, RmwOp};

use crate::amo;
use crate::boundary::end;
use crate::contexts::DEFAULT;
use crate::job::{self, Job};
use crate::word::rmw_here;

/// This PE has not been given the lock yet.
const WAITS: u32 = 1 << 31;

/// Where the halves of a lock are, in this PE's addresses.
struct Words {
    last: *mut u32,
    own: *mut u32,
    home: c_int,
    /// This PE as it stands in a queue.
    me: u32,
}

impl Words {
    #[inline(always)]
    fn new(name: &'static str, job: &Job, lock: *mut i64) -> Words {
        if !lock.addr().is_multiple_of(8) {
            misaligned(name, lock);
        }
        let long_way = || job.place(name, job.process.me as c_int, lock.addr(), 8).offset;
        let offset = job.offset_in_heap(lock.addr(), 8).or_else(|| job.offset_in_statics(lock.addr(), 8));
        let offset = offset.map_or_else(long_way, |offset| offset as u64);
        // Locks that lie side by side have different homes.
        let home = remainder(offset / 8, job.process.size) as c_int;
        let last: *mut u32 = lock.cast();
        Words { last, own: last.wrapping_add(1), home, me: job.process.me + 1 }
    }
}

#[cold]
fn misaligned(name: &'static str, lock: *const i64) -> ! {
    end(name, format_args!("address {lock:p} is not a multiple of the 8 bytes of a lock"))
}

/// A division takes longer than the rest of a lock that is free.
#[inline(always)]
fn remainder(number: u64, size: u32) -> u32 {
    // The mask wants only the low bits, and a remainder is less than the size: what the casts lose does not count.
    if size.is_power_of_two() { number as u32 & (size - 1) } else { (number % u64::from(size)) as u32 }
}

/// Exchanges the last of the queue if the lock's home is on this node, and gives what was there. `None`: it is elsewhere. Wakes nobody, for
/// nobody sleeps until this half changes.
///
/// # Safety
/// As [`set`].
#[inline(always)]
unsafe fn exchange_last_here(job: &Job, words: &Words, from: u32, to: u32) -> Option<u32> {
    let there = job.direct(words.home, words.last.addr(), 4)?;
    // SAFETY: `direct` has looked at it, and a lock is aligned.
    let old = unsafe { rmw_here(there, 4, RmwOp::CompareSwap, u64::from(to), u64::from(from)) };
    job.count(words.home, CounterKind::Rmw, 4);
    Some(old as u32)
}

fn own_pe(words: &Words) -> c_int {
    (words.me - 1) as c_int
}

/// # Safety
/// The lock is a word of symmetric memory that is used by these functions only.
pub(crate) unsafe fn set(name: &'static str, lock: *mut c_long) {
    let job = job::get(name);
    let words = Words::new(name, job, lock);
    // On another node asking first would cost one more round trip whenever it is held.
    // SAFETY: this function's own contract.
    if unsafe { exchange_last_here(job, &words, 0, words.me) } == Some(0) {
        return;
    }
    // SAFETY: this function's own contract.
    unsafe { join_queue(name, job, &words) };
}

/// Waits for the lock's turn in the queue.
///
/// # Safety
/// As [`set`].
#[inline(never)]
unsafe fn join_queue(name: &'static str, job: &Job, words: &Words) {
    let me = own_pe(words);
    // SAFETY: this function's own contract.
    unsafe { amo::set(name, DEFAULT, words.own, WAITS, me) };
    // SAFETY: this function's own contract.
    let before = unsafe { amo::swap(name, DEFAULT, words.last, words.me, words.home) };
    if before == 0 {
        // SAFETY: this function's own contract. Who comes next may have said so already.
        unsafe { amo::and(name, DEFAULT, words.own, !WAITS, me) };
        return;
    }
    // SAFETY: this function's own contract.
    unsafe { amo::or(name, DEFAULT, words.own, words.me, (before - 1) as c_int) };
    job.process.wait_for(name, || {
        // SAFETY: this function's own contract.
        let own = unsafe { amo::fetch(name, DEFAULT, words.own, me) };
        (own & WAITS == 0).then_some(())
    });
}

/// # Safety
/// As [`set`].
pub(crate) unsafe fn clear(name: &'static str, lock: *mut c_long) {
    let job = job::get(name);
    let words = Words::new(name, job, lock);
    // PAIR lock-word.
    job.contexts.get(name, DEFAULT).quiet_before_handing_on(name, &job.process);
    // SAFETY: this function's own contract.
    let last = unsafe { exchange_last_here(job, &words, words.me, 0) }
        // SAFETY: as above.
        .unwrap_or_else(|| unsafe { amo::compare_swap(name, DEFAULT, words.last, words.me, 0, words.home) });
    if last != words.me {
        // SAFETY: as above.
        unsafe { hand_on(name, job, &words, last) };
    }
}

/// Gives the lock to who comes next, as somebody else is the last of the queue.
///
/// # Safety
/// As [`set`].
#[inline(never)]
unsafe fn hand_on(name: &'static str, job: &Job, words: &Words, last: u32) {
    let me = own_pe(words);
    if last == 0 {
        end(name, "the lock is not set");
    }
    let next = job.process.wait_for(name, || {
        // SAFETY: this function's own contract.
        let own = unsafe { amo::fetch(name, DEFAULT, words.own, me) };
        Some(own & !WAITS).filter(|next| *next != 0)
    });
    // SAFETY: this function's own contract.
    unsafe { amo::set(name, DEFAULT, words.own, 0, me) };
    // SAFETY: this function's own contract.
    unsafe { amo::and(name, DEFAULT, words.own, !WAITS, (next - 1) as c_int) };
}

/// # Safety
/// As [`set`].
pub(crate) unsafe fn test(name: &'static str, lock: *mut c_long) -> c_int {
    let job = job::get(name);
    let words = Words::new(name, job, lock);
    // SAFETY: this function's own contract.
    let last = unsafe { amo::compare_swap(name, DEFAULT, words.last, 0, words.me, words.home) };
    if last != 0 {
        job.process.let_others_work();
    }
    c_int::from(last != 0)
}
