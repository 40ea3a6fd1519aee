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
//! because of [`CONTENDED`] it tells the server, unless ranks spin. Only the server sets [`CONTENDED`] and takes it away from a word, and it passes the
//! word from holder to holder without letting it become 0 in between.
//!
//! Before a rank of the node asks the server it may look at the word for a while, and be passed the mutex by its holder
//! (`longarm_shm::handover`). What of this stands in the word, [`SPINNERS`] and [`PASSED`], is nothing to the server: it keeps or drops it.
//!
//! Nothing here touches the word. Each call gets the value that the caller has read and says which
//! compare-and-swap it has to make; the queue changes only when that has succeeded, by [`MutexQueue::commit`]:
//!
//! ```
//! # use longarm_proto::{Deaths, Grant, LockStep, MutexQueue, Rank};
//! # use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
//! # let deaths = Deaths::new();
//! # let serve_lock =
//! |queue: &mut MutexQueue<u64>, word: &AtomicU32, who: Rank, waiter: u64| -> Option<Grant<u64>> {
//!     let mut waiter = waiter;
//!     loop {
//!         match queue.lock(word.load(SeqCst), who, waiter, &deaths) {
//!             LockStep::Swap { from, to, step } => match word.compare_exchange(from, to, SeqCst, SeqCst) {
//!                 Ok(_) => return queue.commit(step), // Tell this one that it holds the mutex.
//!                 Err(_) => waiter = step.into_waiter().expect("a lock's step holds its waiter"),
//!             },
//!             LockStep::Queued => return None,
//!             LockStep::NotAMutex(_refused) => return None,
//!         }
//!     }
//! }
//! # ;
//! # let (mut queue, word) = (MutexQueue::new(), AtomicU32::new(0));
//! # assert_eq!(serve_lock(&mut queue, &word, Rank(3), 30), Some(Grant { waiter: 30, inherited: false }));
//! # assert_eq!(serve_lock(&mut queue, &word, Rank(5), 50), None);
//! ```
//!
//! A mutex whose holder is gone ([`Deaths`]) is **inherited**: by the first that waits ([`MutexQueue::inherit`]), or
//! where none does by the first that asks. Its word keeps the dead holder's name until then, so that no rank of the
//! node takes it without the server and the heir is told. One that is granted to a rank that dies before it hears of it
//! is held by that rank like any other.

use crate::deaths::Deaths;
use crate::ids::Rank;
use crate::mutation::{Mutation, mutation};
use std::collections::VecDeque;

/// Set in a held mutex's word when its holder has to give it back through the server.
pub const CONTENDED: u32 = 1 << 31;

/// Set in a held mutex's word when ranks of the node look at it without sleeping: its holder may have to pass it to one of them.
pub const SPINNERS: u32 = 1 << 30;

/// Set in a held mutex's word when the holder before has passed it to the rank it names, which has not noticed yet.
pub const PASSED: u32 = 1 << 29;

/// What a word has beside the name of its holder.
const MARKS: u32 = CONTENDED | SPINNERS | PASSED;

/// The word of a mutex that this rank holds, without [`CONTENDED`] and other marks.
///
/// # Panics
/// For a rank of 2²⁹ - 1 and more, which no world has.
#[inline]
pub const fn mutex_word(holder: Rank) -> u32 {
    assert!(holder.0 < PASSED - 1, "a rank this large has no mutex word");
    holder.0 + 1
}

/// Who holds the mutex of this word. `None` when it is free, or is no mutex's word.
#[inline]
pub const fn mutex_holder(word: u32) -> Option<Rank> {
    match word & !MARKS {
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
        /// The holder before died with it.
        inherited: bool,
    },
    /// It is held, or others have waited for longer.
    Busy,
    /// The word is none that a mutex has.
    NotAMutex,
}

/// What becomes of a mutex whose holder may be gone.
#[derive(Debug)]
#[must_use]
pub enum InheritStep<W> {
    /// Compare-and-swap the word. Where that succeeds, [`MutexQueue::commit`] the step: what comes out of it holds the
    /// mutex now. Where it fails, ask again with the new value.
    Swap {
        /// The value that was read.
        from: u32,
        /// The new value.
        to: u32,
        /// What is to be committed.
        step: MutexStep<W>,
    },
    /// Nobody waits, or its holder is not gone.
    Nothing,
}

/// Somebody's turn has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant<W> {
    /// Who is to be told.
    pub waiter: W,
    /// The holder before died with the mutex: what it protects may be half changed.
    pub inherited: bool,
}

/// A change of a queue that waits for the success of a compare-and-swap.
#[derive(Debug)]
#[must_use]
pub struct MutexStep<W> {
    change: Change<W>,
    /// The word named a holder that is gone.
    inherited: bool,
}

#[derive(Debug)]
enum Change<W> {
    /// The mutex was free or left: its new holder.
    Grant(W),
    /// The mutex was held and now says that somebody waits: the first one who does.
    Enqueue(Rank, W),
    /// The mutex was free or left with others waiting: the new waiter goes behind them, the first of them holds it.
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
        match self.change {
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
    pub fn lock(&mut self, word: u32, who: Rank, waiter: W, deaths: &Deaths) -> LockStep<W> {
        if is_no_mutex(word) {
            return LockStep::NotAMutex(waiter);
        }
        let inherited = is_left(word, deaths);
        if word != 0 && !inherited && !mutation(Mutation::MutexToTwo) {
            if word & CONTENDED != 0 {
                // Only we take the mark away, so it still has it: no swap is needed.
                if mutation(Mutation::MutexUnfair) {
                    self.waiters.push_front((who, waiter));
                } else {
                    self.waiters.push_back((who, waiter));
                }
                return LockStep::Queued;
            }
            let step = MutexStep { change: Change::Enqueue(who, waiter), inherited };
            return LockStep::Swap { from: word, to: word | CONTENDED, step };
        }
        let Some((first, _)) = self.waiters.front() else {
            let step = MutexStep { change: Change::Grant(waiter), inherited };
            return LockStep::Swap { from: word, to: mutex_word(who), step };
        };
        // Those who wait go first: the holder is gone and nobody has said so yet, or somebody stored 0 in a contended
        // word, which is not ours to judge.
        let step = MutexStep { change: Change::EnqueueAndPass(who, waiter), inherited };
        LockStep::Swap { from: word, to: mutex_word(*first) | CONTENDED, step }
    }

    /// `who` gives back the mutex whose word was read as `word`.
    pub fn unlock(&mut self, word: u32, who: Rank) -> UnlockStep<W> {
        let holder = mutex_holder(word);
        if holder != Some(who) {
            return UnlockStep::NotHeld { holder };
        }
        match self.next_word() {
            None => UnlockStep::Swap { from: word, to: 0, step: MutexStep { change: Change::Free, inherited: false } },
            Some(to) => UnlockStep::Swap { from: word, to, step: MutexStep { change: Change::Pass, inherited: false } },
        }
    }

    /// `who` wants the mutex whose word was read as `word`, if it is free or its holder is gone.
    pub fn try_lock(&self, word: u32, who: Rank, deaths: &Deaths) -> TryLockStep {
        if is_no_mutex(word) {
            return TryLockStep::NotAMutex;
        }
        let inherited = is_left(word, deaths);
        if self.waiters.is_empty() && (word == 0 || inherited) {
            return TryLockStep::Swap { from: word, to: mutex_word(who), inherited };
        }
        TryLockStep::Busy
    }

    /// Hands the mutex whose word was read as `word` on to the first who waits, if its holder is gone.
    pub fn inherit(&mut self, word: u32, deaths: &Deaths) -> InheritStep<W> {
        match self.next_word() {
            Some(to) if is_left(word, deaths) => {
                InheritStep::Swap { from: word, to, step: MutexStep { change: Change::Pass, inherited: true } }
            }
            _ => InheritStep::Nothing,
        }
    }

    /// The word once the first who waits holds the mutex; `None` if nobody does.
    fn next_word(&self) -> Option<u32> {
        let (next, _) = self.waiters.front()?;
        Some(mutex_word(*next) | if self.waiters.len() > 1 { CONTENDED } else { 0 })
    }

    /// Makes the change of a step whose compare-and-swap has succeeded. Who comes out holds the mutex now, and is
    /// to be told. Nothing else is called on the queue between a step and its commit.
    pub fn commit(&mut self, step: MutexStep<W>) -> Option<Grant<W>> {
        let MutexStep { change, inherited } = step;
        let waiter = match change {
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
        };
        let inherited = inherited && !mutation(Mutation::HeirNotTold);
        waiter.map(|waiter| Grant { waiter, inherited })
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether a waiter is among those who wait.
    pub fn has(&self, is_it: impl Fn(&W) -> bool) -> bool {
        self.waiters.iter().any(|(_, waiter)| is_it(waiter))
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

/// Whether it has marks, and names nobody.
fn is_no_mutex(word: u32) -> bool {
    word != 0 && mutex_holder(word).is_none()
}

/// Whether the holder of this word is gone and has left the mutex to others.
fn is_left(word: u32, deaths: &Deaths) -> bool {
    mutex_holder(word).is_some_and(|holder| deaths.is_gone(holder))
}

impl<W> Default for MutexQueue<W> {
    fn default() -> Self {
        MutexQueue::new()
    }
}
