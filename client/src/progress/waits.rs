//! The threads that wait in a call of this process, with what and which rank they wait for: for reports about jobs that stand still.
//!
//! A thread enters itself before the first sleep of a call. A call that does not sleep pays nothing.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use longarm_proto::{NodeId, Rank};
use parking_lot::Mutex;

use crate::error::Operation;
use crate::local::layout::Layout;

/// Letters of a collective's name, filled up with zeros.
pub const COLLECTIVE_NAME_BYTES: usize = 16;

/// The call that a thread waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingCall {
    /// An operation on one rank, or a wait for a word.
    Operation(Operation),
    /// A collective of this name.
    Collective([u8; COLLECTIVE_NAME_BYTES]),
}

impl fmt::Display for WaitingCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitingCall::Operation(operation) => write!(formatter, "{operation}"),
            WaitingCall::Collective(name) => {
                let letters = name.iter().take_while(|byte| **byte != 0);
                formatter.write_str(&letters.map(|byte| char::from(*byte)).collect::<String>())
            }
        }
    }
}

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// This rank: the target, the host of the server that is to answer, the member whose letter is missing.
    Rank(Rank),
    /// Whoever holds a mutex of this rank.
    Holder(Rank),
    /// Any rank; nobody here knows which.
    Anyone,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// In which call.
    pub call: WaitingCall,
    /// For whom.
    pub whom: Whom,
}

impl Awaited {
    /// An operation that one rank, or the server that it hosts, is to answer.
    pub fn rank(operation: Operation, rank: Rank) -> Awaited {
        Awaited { call: WaitingCall::Operation(operation), whom: Whom::Rank(rank) }
    }

    /// An operation that anybody may complete.
    pub fn anyone(operation: Operation) -> Awaited {
        Awaited { call: WaitingCall::Operation(operation), whom: Whom::Anyone }
    }

    /// The node that it has to come from. `None`: it may come from any.
    pub(crate) fn only_node(&self, layout: &Layout) -> Option<NodeId> {
        match self.whom {
            Whom::Rank(rank) | Whom::Holder(rank) => Some(layout.node_of(rank)),
            Whom::Anyone => None,
        }
    }

    /// A mutex of a rank, for one who wants to have it.
    pub fn holder(operation: Operation, host: Rank) -> Awaited {
        Awaited { call: WaitingCall::Operation(operation), whom: Whom::Holder(host) }
    }
}

/// One thread that waits, as others are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For what and whom.
    pub awaited: Awaited,
    /// For how long.
    pub waited: Duration,
}

thread_local! {
    /// How many entries this thread has.
    static MINE: Cell<u32> = const { Cell::new(0) };
    /// How many it has had.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// How often the calling thread has begun to wait in a call so far: for a simulator, which tells one wait that goes on from another one.
pub fn waits_begun() -> u64 {
    BEGUN.get()
}

/// While this lives, a simulator does not see the calling thread's accesses to windows, as it does not see those of a thread that
/// waits.
pub struct Unseen {
    /// It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

/// For who is about to look at windows while it holds a lock: no other thread is to run meanwhile, as it might want that.
#[must_use]
pub fn unseen() -> Unseen {
    MINE.set(MINE.get() + 1);
    Unseen { not_send: PhantomData }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        MINE.set(MINE.get() - 1);
    }
}

/// Whether the calling thread stands in a list of those who wait, or does as if.
pub(crate) fn am_waiting() -> bool {
    MINE.get() > 0
}

/// The threads of this process that sleep in a call.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    next: u64,
    entries: Vec<Entry>,
}

struct Entry {
    number: u64,
    awaited: Awaited,
    since: Instant,
    /// When it was first seen by who looks after waits, by that one's clock.
    seen_ms: Option<u64>,
}

impl Waits {
    /// The calling thread sleeps from now on, until the result is dropped.
    pub(crate) fn enter(&self, awaited: Awaited) -> Entered<'_> {
        let since = Instant::now();
        let mut inner = self.0.lock();
        let number = inner.next;
        inner.next += 1;
        inner.entries.push(Entry { number, awaited, since, seen_ms: None });
        BEGUN.set(BEGUN.get() + 1);
        Entered { waits: self, number, _unseen: unseen() }
    }

    /// All of them, those that have waited longest first.
    pub(crate) fn list(&self) -> Vec<Wait> {
        let inner = self.0.lock();
        let mut waits: Vec<Wait> =
            inner.entries.iter().map(|entry| Wait { awaited: entry.awaited, waited: entry.since.elapsed() }).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited));
        waits
    }

    /// What those wait for that were first seen by this call so long ago. Most waits are over by then.
    pub(crate) fn seen_for(&self, age_ms: u64, now_ms: u64) -> Vec<Awaited> {
        let mut inner = self.0.lock();
        let is_old = |entry: &mut Entry| now_ms >= *entry.seen_ms.get_or_insert(now_ms) + age_ms;
        inner.entries.iter_mut().filter_map(|entry| is_old(entry).then_some(entry.awaited)).collect()
    }
}

/// A thread that sleeps in a call.
pub(crate) struct Entered<'a> {
    waits: &'a Waits,
    number: u64,
    _unseen: Unseen,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut inner = self.waits.0.lock();
        if let Some(place) = inner.entries.iter().position(|entry| entry.number == self.number) {
            inner.entries.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_listed_until_it_waits_no_more() {
        let waits = Waits::default();
        let (lock, get) = (Awaited::holder(Operation::Lock, Rank(3)), Awaited::rank(Operation::Get, Rank(1)));
        let awaited = |waits: &Waits| waits.list().iter().map(|wait| wait.awaited).collect::<Vec<_>>();
        let first = waits.enter(lock);
        let second = waits.enter(get);
        assert_eq!((awaited(&waits), am_waiting()), (vec![lock, get], true));
        drop(first);
        assert_eq!(awaited(&waits), [get]);
        drop(second);
        assert_eq!((awaited(&waits), am_waiting()), (vec![], false));
    }

    #[test]
    fn a_wait_is_old_some_time_after_it_was_first_seen_and_another_one_for_the_same_rank_is_not() {
        let (waits, get) = (Waits::default(), Awaited::rank(Operation::Get, Rank(1)));
        let first = waits.enter(get);
        assert_eq!(waits.seen_for(100, 7000), []);
        let _second = waits.enter(get);
        assert_eq!(waits.seen_for(100, 7099), []);
        assert_eq!(waits.seen_for(100, 7100), [get]);
        drop(first);
        assert_eq!(waits.seen_for(100, 7198), []);
        assert_eq!(waits.seen_for(100, 9000), [get], "however seldom somebody looks");
    }

    #[test]
    fn calls_are_called_by_their_names() {
        let mut name = [0; COLLECTIVE_NAME_BYTES];
        name[..7].copy_from_slice(b"barrier");
        assert_eq!(WaitingCall::Collective(name).to_string(), "barrier");
        assert_eq!(WaitingCall::Operation(Operation::Lock).to_string(), "lock");
    }
}
