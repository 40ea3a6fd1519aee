//! Stripe locks: what makes an accumulate of elements that no CPU instruction can update atomic.
//!
//! A window's memory is cut into blocks of 16 KiB. The block of an element's first byte says which of 1024 locks guards
//! it; several blocks, of several windows too, may share one lock. A holder keeps a lock for one block and never takes
//! a second one meanwhile, so there is no order to keep and no deadlock.
//!
//! A lock word is 0 or the holder's rank + 1. A waiter spins a bounded number of times, then yields the processor to
//! the holder, which is combining some 16 KiB. The holder waits for nothing but pages that it touches for the first time.
//!
//! PAIR stripe: the compare-and-swap that takes a lock (Acquire) and the store that frees it (Release). What the last
//! holder wrote into the block is seen by the next one.
//!
//! If a holder dies, the lock stays taken and what it was writing may be torn: a part of it old, a part new.
//! [`Stripes::release_of_dead`] frees its locks; whoever waited goes on.

use longarm_proto::Rank;

use crate::sync::{AtomicU32, Ordering, SPIN_COUNT_MAX, spin_loop, yield_now};

/// How many stripe locks a node has.
pub const STRIPE_COUNT: usize = 1 << STRIPE_BITS;
const STRIPE_BITS: u32 = 10;

/// Bytes of a block as a power of two: what one stripe lock is held for.
#[cfg_attr(loom, expect(dead_code, reason = "only accumulate cuts memory into blocks"))]
pub(crate) const BLOCK_BITS: u32 = 14;

/// One lock on a cache line of its own. All zeros is a free one.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct StripeWord {
    holder: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<StripeWord>() == 64);

/// The stripe locks of a node.
#[derive(Clone, Copy, Debug)]
pub struct Stripes<'a> {
    words: &'a [StripeWord],
}

/// A held stripe lock; freed when dropped.
#[derive(Debug)]
pub struct StripeGuard<'a> {
    word: &'a StripeWord,
}

impl<'a> Stripes<'a> {
    /// Locks that live in the given words.
    ///
    /// # Panics
    ///
    /// If their number is no power of two.
    #[inline]
    pub fn new(words: &'a [StripeWord]) -> Self {
        assert!(words.len().is_power_of_two(), "stripe locks are a power of two in number");
        Stripes { words }
    }

    /// Takes the lock that guards `block` (bytes from the start of the memfd, divided by 16 KiB) for `who`, the rank
    /// whose process makes this call.
    #[inline]
    pub fn lock(&self, block: u64, who: Rank) -> StripeGuard<'a> {
        let word = &self.words[stripe_of(block, self.words.len())];
        if !word.try_take(who) {
            word.wait_and_take(who);
        }
        StripeGuard { word }
    }

    /// Frees what a dead rank held, and says how many locks that were. The blocks behind them may be torn.
    ///
    /// Call it only when that process is gone for certain, and any number of times.
    pub fn release_of_dead(&self, rank: Rank) -> usize {
        let dead = |word: &&StripeWord| {
            // Acquire and Release: the next holder sees what the dead one wrote, by way of us (PAIR stripe).
            word.holder.compare_exchange(rank.0 + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        self.words.iter().filter(dead).count()
    }
}

impl StripeWord {
    #[inline]
    fn try_take(&self, who: Rank) -> bool {
        // PAIR stripe: see what the last holder wrote.
        self.holder.compare_exchange(0, who.0 + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait_and_take(&self, who: Rank) {
        let mut spins = 0;
        loop {
            // A plain load while it is taken leaves the cache line shared among the waiters.
            if self.holder.load(Ordering::Relaxed) == 0 && self.try_take(who) {
                return;
            }
            if spins < SPIN_COUNT_MAX {
                spins += 1;
                spin_loop();
            } else {
                yield_now();
            }
        }
    }
}

impl Drop for StripeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // PAIR stripe: the next holder sees what we wrote.
        self.word.holder.store(0, Ordering::Release);
    }
}

/// Spreads neighbouring blocks, and the equal blocks of windows that start alike, by a multiplication (Fibonacci
/// hashing, as Knuth has it). The count is a power of two: a division would take longer than the lock.
#[inline]
fn stripe_of(block: u64, stripe_count: usize) -> usize {
    let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - STRIPE_BITS);
    hash as usize & (stripe_count - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<StripeWord> {
        std::iter::repeat_with(StripeWord::default).take(count).collect()
    }

    #[test]
    fn a_lock_names_its_holder_until_it_is_dropped() {
        let words = words(1);
        let stripes = Stripes::new(&words);
        let guard = stripes.lock(5, Rank(41));
        assert_eq!(words[0].holder.load(Ordering::Relaxed), 42);
        assert!(!words[0].try_take(Rank(1)));
        drop(guard);
        assert_eq!(words[0].holder.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn only_the_locks_of_the_dead_are_freed() {
        let words = words(STRIPE_COUNT);
        let stripes = Stripes::new(&words);
        std::mem::forget(stripes.lock(1, Rank(0)));
        std::mem::forget(stripes.lock(2, Rank(0)));
        std::mem::forget(stripes.lock(3, Rank(7)));
        assert_eq!(stripes.release_of_dead(Rank(0)), 2);
        assert_eq!(stripes.release_of_dead(Rank(0)), 0);
        assert_eq!(stripes.release_of_dead(Rank(7)), 1);
        drop(stripes.lock(3, Rank(1)));
    }

    #[test]
    fn neighbouring_blocks_use_different_locks() {
        let used: std::collections::HashSet<usize> = (0..256).map(|block| stripe_of(block, STRIPE_COUNT)).collect();
        assert_eq!(used.len(), 256);
    }
}
