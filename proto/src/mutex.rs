//! The queue of one mutex, first come, first served, as the server that owns its word keeps it.
//!
//! The word lies in a window, where ranks of the same node change it too:
//!
//! ```text
//!                    0   free
//!             rank + 1   held, nobody waits at the server
//!   CONTENDED|rank + 1   held, the server has waiters or had some
//! ```
//!
//! A rank of the node takes a free mutex by a compare-and-swap from 0 to its rank + 1 and gives it back by one the
//! other way, with no server involved. When the first fails it asks the server and waits; when the second fails
//! because of [`CONTENDED`] it tells the server. Ranks never touch a word that has [`CONTENDED`] set, so nobody
//! overtakes who waits: the server passes the word from holder to holder without letting it become 0 in between.
//!
//! Nothing here touches the word. Each call gets the value that the caller has read and says which
//! compare-and-swap it has to make; the queue changes only when that has succeeded, by [`MutexQueue::commit`]:
//!
//! ```
//! # use longarm_proto::{LockStep, MutexQueue, Rank};
//! # use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
//! fn serve_lock(queue: &mut MutexQueue<u64>, word: &AtomicU32, who: Rank, waiter: u64) -> Option<u64> {
//!     let mut waiter = waiter;
//!     loop {
//!         match queue.lock(word.load(SeqCst), who, waiter) {
//!             LockStep::Swap { from, to, step } => match word.compare_exchange(from, to, SeqCst, SeqCst) {
//!                 Ok(_) => return queue.commit(step), // Tell this one that it holds the mutex.
//!                 Err(_) => waiter = step.into_waiter().expect("a lock's step holds its waiter"),
//!             },
//!             LockStep::Queued => return None,
//!             LockStep::NotAMutex(_refused) => return None,
//!         }
//!     }
//! }
//! # let (mut queue, word) = (MutexQueue::new(), AtomicU32::new(0));
//! # assert_eq!(serve_lock(&mut queue, &word, Rank(3), 30), Some(30));
//! # assert_eq!(serve_lock(&mut queue, &word, Rank(5), 50), None);
//! ```
//!
//! A holder that died is unlocked in its name.

use crate::ids::Rank;
use std::collections::VecDeque;

/// Set in a held mutex's word when its holder has to give it back through the server.
pub const CONTENDED: u32 = 1 << 31;

/// The word of a mutex that this rank holds, without [`CONTENDED`].
///
/// # Panics
/// For a rank of 2³¹ - 1 and more, which no world has.
#[inline]
pub const fn mutex_word(holder: Rank) -> u32 {
    assert!(holder.0 < CONTENDED - 1, "a rank this large has no mutex word");
    holder.0 + 1
}

/// Who holds the mutex of this word. `None` when it is free, or is no mutex's word.
#[inline]
pub const fn mutex_holder(word: u32) -> Option<Rank> {
    match word & !CONTENDED {
        0 => None,
        held => Some(Rank(held - 1)),
    }
}

/// The waiters of one mutex, in order. `W` is what the caller needs to tell a waiter that its turn came.
#[derive(Debug)]
pub struct MutexQueue<W> {
    waiters: VecDeque<(Rank, W)>,
}

/// What a lock has to do.
#[derive(Debug)]
#[must_use]
pub enum LockStep<W> {
    /// Compare-and-swap the word. Where that succeeds, [`MutexQueue::commit`] the step; where it fails, take the
    /// waiter back out of it and lock again with the new value.
    Swap {
        /// The value that was read.
        from: u32,
        /// The new value.
        to: u32,
        /// What is to be committed.
        step: MutexStep<W>,
    },
    /// The waiter stands in the queue. Its turn comes out of a later unlock.
    Queued,
    /// The word is none that a mutex has. The waiter is given back, to be refused.
    NotAMutex(W),
}

/// What an unlock has to do.
#[derive(Debug)]
#[must_use]
pub enum UnlockStep<W> {
    /// Compare-and-swap the word. Where that succeeds, [`MutexQueue::commit`] the step: what comes out of it holds
    /// the mutex now. Where it fails, unlock again with the new value.
    Swap {
        /// The value that was read.
        from: u32,
        /// The new value.
        to: u32,
        /// What is to be committed.
        step: MutexStep<W>,
    },
    /// Somebody else holds it, or nobody does.
    NotHeld {
        /// Who holds it.
        holder: Option<Rank>,
    },
}

/// What a try for a lock has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum TryLockStep {
    /// Compare-and-swap the word. Where that succeeds the mutex is ours; where it fails, try again with the new
    /// value. There is nothing to commit.
    Swap {
        /// The value that was read.
        from: u32,
        /// The new value.
        to: u32,
    },
    /// It is held, or others have waited for longer.
    Busy,
    /// The word is none that a mutex has.
    NotAMutex,
}

/// A change of a queue that waits for the success of a compare-and-swap.
#[derive(Debug)]
#[must_use]
pub struct MutexStep<W>(Change<W>);

#[derive(Debug)]
enum Change<W> {
    /// The mutex was free: its new holder.
    Grant(W),
    /// The mutex was held and now says that somebody waits: the first one who does.
    Enqueue(Rank, W),
    /// The mutex was free with others waiting: the new waiter goes behind them, the first of them holds it.
    EnqueueAndPass(Rank, W),
    /// The first waiter holds the mutex.
    Pass,
    /// Nobody holds the mutex.
    Free,
}

impl<W> MutexStep<W> {
    /// The waiter that was given to [`MutexQueue::lock`], after a compare-and-swap that failed. `None` for the
    /// step of an unlock.
    pub fn into_waiter(self) -> Option<W> {
        match self.0 {
            Change::Grant(waiter) | Change::Enqueue(_, waiter) | Change::EnqueueAndPass(_, waiter) => Some(waiter),
            Change::Pass | Change::Free => None,
        }
    }
}

impl<W> MutexQueue<W> {
    /// Nobody waits.
    pub const fn new() -> Self {
        MutexQueue { waiters: VecDeque::new() }
    }

    /// `who` wants the mutex whose word was read as `word`.
    pub fn lock(&mut self, word: u32, who: Rank, waiter: W) -> LockStep<W> {
        if word == CONTENDED {
            return LockStep::NotAMutex(waiter);
        }
        if word & CONTENDED != 0 {
            // Only we change a contended word, so it still is one: no swap is needed.
            self.waiters.push_back((who, waiter));
            return LockStep::Queued;
        }
        if word != 0 {
            let step = MutexStep(Change::Enqueue(who, waiter));
            return LockStep::Swap { from: word, to: word | CONTENDED, step };
        }
        let Some((first, _)) = self.waiters.front() else {
            return LockStep::Swap { from: 0, to: mutex_word(who), step: MutexStep(Change::Grant(waiter)) };
        };
        // Somebody stored 0 in a contended word, which is not ours to judge. Those who wait go on.
        let to = mutex_word(*first) | CONTENDED;
        LockStep::Swap { from: 0, to, step: MutexStep(Change::EnqueueAndPass(who, waiter)) }
    }

    /// `who` gives back the mutex whose word was read as `word`.
    pub fn unlock(&mut self, word: u32, who: Rank) -> UnlockStep<W> {
        let holder = mutex_holder(word);
        if holder != Some(who) {
            return UnlockStep::NotHeld { holder };
        }
        let Some((next, _)) = self.waiters.front() else {
            return UnlockStep::Swap { from: word, to: 0, step: MutexStep(Change::Free) };
        };
        let contended = if self.waiters.len() > 1 { CONTENDED } else { 0 };
        UnlockStep::Swap { from: word, to: mutex_word(*next) | contended, step: MutexStep(Change::Pass) }
    }

    /// `who` wants the mutex whose word was read as `word`, if it is free.
    pub fn try_lock(&self, word: u32, who: Rank) -> TryLockStep {
        match word {
            0 if self.waiters.is_empty() => TryLockStep::Swap { from: 0, to: mutex_word(who) },
            CONTENDED => TryLockStep::NotAMutex,
            _ => TryLockStep::Busy,
        }
    }

    /// Makes the change of a step whose compare-and-swap has succeeded. Who comes out holds the mutex now, and is
    /// to be told. Nothing else is called on the queue between a step and its commit.
    pub fn commit(&mut self, step: MutexStep<W>) -> Option<W> {
        match step.0 {
            Change::Grant(waiter) => Some(waiter),
            Change::Enqueue(who, waiter) => {
                self.waiters.push_back((who, waiter));
                None
            }
            Change::EnqueueAndPass(who, waiter) => {
                self.waiters.push_back((who, waiter));
                self.waiters.pop_front().map(|(_, first)| first)
            }
            Change::Pass => {
                let (_, next) = self.waiters.pop_front().expect("a pass is made only to one who waits");
                Some(next)
            }
            Change::Free => None,
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Takes out all waiters for which `gone` is true, in order. The others keep their order. The word may stay
    /// contended with nobody waiting; the next unlock sets that right.
    pub fn remove(&mut self, mut gone: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut removed = Vec::new();
        for (who, waiter) in std::mem::take(&mut self.waiters) {
            if gone(&waiter) {
                removed.push(waiter);
            } else {
                self.waiters.push_back((who, waiter));
            }
        }
        removed
    }
}

impl<W> Default for MutexQueue<W> {
    fn default() -> Self {
        MutexQueue::new()
    }
}
