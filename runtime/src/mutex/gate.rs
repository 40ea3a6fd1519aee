//! What stands in front of a mutex of the job, for the threads and tasks of one rank: the job knows ranks only.
//!
//! ```text
//!   thread ─┐
//!   thread ─┼─► gate: one at a time, in the order in which they came ─► the mutex of the job, among ranks
//!   task   ─┘
//! ```
//!
//! A gate is a word of this process:
//!
//! ```text
//!              0   nobody of this rank has the mutex or asks for it
//!          token   somebody does, nobody waits here
//!   WAITED|token   somebody does, and others wait in the queue
//! ```
//!
//! The one that leaves gives a gate that is waited for to the first of the queue, without letting it become 0 in between: nobody overtakes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use longarm_shm::sync::{AtomicU32, AtomicUsize, Ordering};
use longarm_shm::thread;
use parking_lot::Mutex;

use crate::started::park;

/// Set in a gate's word while somebody waits in its queue. Tokens are addresses, or [`TASK`], and even.
const WAITED: usize = 1;
/// The token of all tasks: which one of them it is nobody can tell.
const TASK: usize = 2;

const WAITING: u32 = 0;
const ENTERED: u32 = 1;
const GONE: u32 = 2;

/// Which mutex: its host and its number there.
type Place = (u32, u64);

/// The gates of all mutexes of a set.
pub(crate) struct Gates {
    /// Those of each host, made when one of them is first wanted.
    hosts: Box<[OnceLock<Box<[AtomicUsize]>>]>,
    queues: Mutex<HashMap<Place, VecDeque<Arc<Turn>>>>,
}

/// Somebody in a queue.
pub(crate) struct Turn {
    token: usize,
    state: AtomicU32,
    waker: AtomicWaker,
}

/// What became of who came to a gate.
pub(crate) enum Entry {
    /// It is in.
    Entered,
    /// It is in the queue.
    Queued(Arc<Turn>),
    /// It is the thread that is in already, which would wait for itself.
    Inside,
    /// There is no such mutex.
    Unknown,
}

impl Gates {
    pub(crate) fn new(ranks: u32) -> Gates {
        Gates { hosts: (0..ranks).map(|_| OnceLock::new()).collect(), queues: Mutex::default() }
    }

    /// A mutex of a host with so many.
    #[inline]
    fn gate(&self, (host, number): Place, count: u64) -> Option<&AtomicUsize> {
        let gates = self.hosts.get(host as usize)?;
        let gates = match gates.get() {
            Some(gates) => gates,
            None => gates.get_or_init(|| (0..count).map(|_| AtomicUsize::new(0)).collect()),
        };
        gates.get(usize::try_from(number).ok()?)
    }

    /// The calling thread enters, if nobody is in. False: somebody is, or there is no such mutex.
    #[inline]
    pub(crate) fn try_enter(&self, place: Place, count: u64) -> bool {
        // PAIR gate: who enters sees what those who left have done.
        let enter =
            |gate: &AtomicUsize| gate.compare_exchange(0, thread::current(), Ordering::Acquire, Ordering::Relaxed);
        self.gate(place, count).is_some_and(|gate| enter(gate).is_ok())
    }

    /// The calling thread enters, when its turn comes. Never [`Entry::Queued`].
    pub(crate) fn enter(&self, place: Place, count: u64) -> Entry {
        match self.come(place, count, thread::current()) {
            Entry::Queued(turn) => {
                turn.wait();
                Entry::Entered
            }
            entry => entry,
        }
    }

    /// A task enters or takes its place in the queue.
    pub(crate) fn come_as_task(&self, place: Place, count: u64) -> Entry {
        self.come(place, count, TASK)
    }

    fn come(&self, place: Place, count: u64, token: usize) -> Entry {
        let Some(gate) = self.gate(place, count) else { return Entry::Unknown };
        // PAIR gate.
        if gate.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Entry::Entered;
        }
        let mut queues = self.queues.lock();
        let mut word = gate.load(Ordering::Relaxed);
        loop {
            if word & !WAITED == token && token != TASK {
                return Entry::Inside;
            }
            // What is waited for is given on with the lock of the queues only.
            let next = if word == 0 { token } else { word | WAITED };
            match gate.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(0) => return Entry::Entered,
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let turn = Arc::new(Turn { token, state: AtomicU32::new(WAITING), waker: AtomicWaker::new() });
        queues.entry(place).or_default().push_back(Arc::clone(&turn));
        Entry::Queued(turn)
    }

    /// Who is in leaves.
    #[inline]
    pub(crate) fn leave(&self, place: Place) {
        let gate = self.hosts[place.0 as usize].get().map(|gates| &gates[place.1 as usize]);
        let gate = gate.expect("who is in came by it");
        let word = gate.load(Ordering::Relaxed);
        // PAIR gate.
        if word & WAITED != 0 || gate.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.give_on(gate, place);
        }
    }

    #[cold]
    fn give_on(&self, gate: &AtomicUsize, place: Place) {
        let mut queues = self.queues.lock();
        loop {
            let queue = queues.entry(place).or_default();
            let next = queue.pop_front();
            let is_last = queue.is_empty();
            if is_last {
                queues.remove(&place);
            }
            let Some(next) = next else { break };
            // PAIR gate.
            gate.store(next.token | if is_last { 0 } else { WAITED }, Ordering::Release);
            if next.state.compare_exchange(WAITING, ENTERED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                drop(queues);
                next.waker.wake();
                return;
            }
        }
        gate.store(0, Ordering::Release);
    }
}

impl Turn {
    fn wait(&self) {
        park::block_on(|context| self.poll(context));
    }

    /// Ready once it is in.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        // PAIR gate.
        if self.state.load(Ordering::Acquire) == ENTERED { Poll::Ready(()) } else { Poll::Pending }
    }

    /// It waits no more. False: it is in already, and has to leave.
    pub(crate) fn abandon(&self) -> bool {
        self.state.compare_exchange(WAITING, GONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::task::Waker;

    use longarm_shm::sync::AtomicU64;

    use super::*;

    const PLACE: Place = (1, 0);

    fn queued(gates: &Gates) -> Arc<Turn> {
        match gates.come_as_task(PLACE, 1) {
            Entry::Queued(turn) => turn,
            _ => panic!("somebody is in"),
        }
    }

    fn is_in(turn: &Turn) -> bool {
        turn.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_waits_enters_in_the_order_of_coming_and_nobody_overtakes() {
        let gates = Gates::new(2);
        assert!(matches!(gates.come_as_task(PLACE, 1), Entry::Entered));
        let turns = [queued(&gates), queued(&gates), queued(&gates)];
        for at in 0..3 {
            assert!(!is_in(&turns[at]) && !gates.try_enter(PLACE, 1));
            gates.leave(PLACE);
            assert!(is_in(&turns[at]) && turns[at + 1..].iter().all(|later| !is_in(later)));
        }
        gates.leave(PLACE);
        assert!(gates.try_enter(PLACE, 1) && gates.queues.lock().is_empty());
    }

    #[test]
    fn who_has_gone_is_passed_over_and_who_was_let_in_meanwhile_leaves() {
        let gates = Gates::new(2);
        assert!(gates.try_enter(PLACE, 1));
        let turns = [queued(&gates), queued(&gates), queued(&gates)];
        assert!(turns[0].abandon());
        gates.leave(PLACE);
        assert!(!is_in(&turns[0]) && is_in(&turns[1]));
        assert!(!turns[1].abandon(), "it is in");
        assert!(turns[2].abandon());
        gates.leave(PLACE);
        assert!(gates.try_enter(PLACE, 1), "nobody waits any more");
    }

    #[test]
    fn a_thread_does_not_wait_for_itself_nor_for_a_mutex_that_is_not_there() {
        let gates = Gates::new(2);
        assert!(matches!(gates.enter(PLACE, 1), Entry::Entered));
        assert!(matches!(gates.enter(PLACE, 1), Entry::Inside));
        let turn = queued(&gates);
        assert!(matches!(gates.enter(PLACE, 1), Entry::Inside), "also while another one waits");
        gates.leave(PLACE);
        assert!(is_in(&turn));
        for place in [(1, 1), (0, 0), (2, 0), (u32::MAX, u64::MAX)] {
            let count = u64::from(place.0 == 1);
            assert!(matches!(gates.enter(place, count), Entry::Unknown) && !gates.try_enter(place, count));
        }
    }

    #[test]
    fn one_thread_at_a_time_is_in() {
        let (gates, threads, rounds) = (Gates::new(2), 4, if cfg!(miri) { 20 } else { 5000 });
        let (all_there, count) = (Barrier::new(threads), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    all_there.wait();
                    for _ in 0..rounds {
                        assert!(matches!(gates.enter(PLACE, 1), Entry::Entered));
                        // Relaxed, and not one step: what the gate orders is seen.
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                        gates.leave(PLACE);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), threads as u64 * rounds);
    }
}
