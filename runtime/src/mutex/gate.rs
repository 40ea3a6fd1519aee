//! What stands beside a mutex of the job, for the threads and tasks of one rank: the job knows ranks only.
//!
//! ```text
//!   thread ─── the mutex is free, nobody asks: one exchange of its word takes it ───────────────► holds
//!
//!   thread ─┐
//!   thread ─┼─► gate: one at a time asks, in the order in which they came ─► the mutex, among ranks ─► holds
//!   task   ─┘
//! ```
//!
//! A gate is two words of this process, and a place for what an asker waits for:
//!
//! ```text
//!   asker             0   nobody of this rank asks for the mutex
//!                 token   somebody does, nobody waits behind
//!          WAITED|token   somebody does, and others wait in the queue
//!   holder            0   nobody of this rank is known to have it: somebody may have taken it just now, or be giving it back
//!                 token   somebody has it
//! ```
//!
//! The asker that has its answer gives the gate to the first of the queue, without letting it become 0 in between. Who
//! finds nobody asking and the mutex free takes it past the gate. So a thread may come to ask for what its own rank has: the mutex's word, or its
//! server, says so, and the asker waits for the holder to let go. A thread that saw no asker just before one came may still take the mutex first, at most once.
//!
//! # Why no asker is missed
//! An asker writes `asker`, and before it waits looks at the word by an exchange; a holder gives the word back by one, then looks at `asker`. All four
//! are sequentially consistent, so one of the two sees the other. Of another node's mutex the server says what the word says, and requests of a
//! rank reach it in the order in which they were made.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use longarm_shm::sync::{AtomicU32, AtomicUsize, Ordering};
use parking_lot::Mutex;

use super::token::TASK;
use crate::started::park;

/// Set in a gate's word while somebody waits in its queue. Tokens are even.
const WAITED: usize = 1;

const WAITING: u32 = 0;
const ENTERED: u32 = 1;
const GONE: u32 = 2;

/// Which mutex: its host and its number there.
pub(crate) type MutexId = (u32, u64);

/// The gates of all mutexes of a set.
pub(crate) struct Gates {
    /// Those of each host, made when one of them is first wanted.
    hosts: Box<[OnceLock<Box<[Gate]>>]>,
    /// Those who wait to ask.
    queues: Mutex<HashMap<MutexId, VecDeque<Arc<Turn>>>>,
}

/// The gate of one mutex, on a line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Gate {
    asker: AtomicUsize,
    holder: AtomicUsize,
    /// What the asker waits for while this rank's own holder has the mutex.
    release: Mutex<Option<Arc<Turn>>>,
}

/// Somebody who waits.
pub(crate) struct Turn {
    token: usize,
    state: AtomicU32,
    waker: AtomicWaker,
}

/// What became of who came to a gate.
pub(crate) enum Entry {
    /// It asks now.
    Entered,
    /// It is in the queue.
    Queued(Arc<Turn>),
    /// It is the thread that asks already, which would wait for itself.
    Inside,
}

impl Gate {
    /// Whether somebody of this rank asks for the mutex, or waits to.
    #[inline]
    pub(crate) fn is_asked_for(&self) -> bool {
        self.asker.load(Ordering::SeqCst) != 0
    }

    /// It has the mutex from now on.
    #[inline]
    pub(crate) fn hold(&self, token: usize) {
        self.holder.store(token, Ordering::Relaxed);
    }

    /// It is about to give the mutex back.
    #[inline]
    pub(crate) fn let_go(&self) {
        self.holder.store(0, Ordering::Relaxed);
    }

    /// For the asker, to whom the mutex's word or its server has said that this rank has it: what to wait for, if it asks once
    /// more and is told the same. The holder may have let go in between.
    pub(crate) fn await_release(&self, token: usize) -> Arc<Turn> {
        let turn = Turn::new(token);
        *self.release.lock() = Some(Arc::clone(&turn));
        turn
    }

    /// The mutex was given back. Whoever gave it back tells an asker that waits for it.
    #[inline]
    pub(crate) fn released(&self) {
        if self.is_asked_for() {
            self.tell_asker();
        }
    }

    #[cold]
    fn tell_asker(&self) {
        let asker = self.release.lock().take();
        if let Some(asker) = asker.filter(|asker| asker.enter()) {
            asker.waker.wake();
        }
    }

    /// Who of this rank has the mutex, or 0. A thread that has it reads its own token, and no other thread does.
    #[inline]
    pub(crate) fn holder(&self) -> usize {
        self.holder.load(Ordering::Relaxed)
    }
}

impl Gates {
    pub(crate) fn new(ranks: u32) -> Gates {
        Gates { hosts: (0..ranks).map(|_| OnceLock::new()).collect(), queues: Mutex::default() }
    }

    /// The gate of a mutex, if one of its host was wanted before.
    #[inline]
    pub(crate) fn find(&self, (host, number): MutexId) -> Option<&Gate> {
        self.hosts.get(host as usize)?.get()?.get(usize::try_from(number).ok()?)
    }

    /// The gate of a mutex of a host that has so many. `None`: there is no such mutex.
    pub(crate) fn gate(&self, (host, number): MutexId, count: u64) -> Option<&Gate> {
        let gates = self.hosts.get(host as usize)?;
        gates.get_or_init(|| (0..count).map(|_| Gate::default()).collect()).get(usize::try_from(number).ok()?)
    }

    /// Who comes asks, if nobody does. False: somebody does.
    pub(crate) fn try_enter(&self, gate: &Gate, token: usize) -> bool {
        // PAIR gate: who enters sees what those who left have done.
        gate.asker.compare_exchange(0, token, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Who comes asks, or takes its place in the queue.
    pub(crate) fn come(&self, gate: &Gate, place: MutexId, token: usize) -> Entry {
        if self.try_enter(gate, token) {
            return Entry::Entered;
        }
        let mut queues = self.queues.lock();
        let mut word = gate.asker.load(Ordering::Relaxed);
        loop {
            if word & !WAITED == token && token != TASK {
                return Entry::Inside;
            }
            // What is waited for is given on with the lock of the queues only.
            let next = if word == 0 { token } else { word | WAITED };
            // PAIR gate.
            match gate.asker.compare_exchange(word, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(0) => return Entry::Entered,
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let turn = Turn::new(token);
        queues.entry(place).or_default().push_back(Arc::clone(&turn));
        Entry::Queued(turn)
    }

    /// The asker leaves: it has its answer.
    pub(crate) fn leave(&self, gate: &Gate, place: MutexId) {
        let word = gate.asker.load(Ordering::Relaxed);
        // PAIR gate.
        if word & WAITED != 0 || gate.asker.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.give_on(gate, place);
        }
    }

    fn give_on(&self, gate: &Gate, place: MutexId) {
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
            gate.asker.store(next.token | if is_last { 0 } else { WAITED }, Ordering::SeqCst);
            if next.enter() {
                drop(queues);
                next.waker.wake();
                return;
            }
        }
        gate.asker.store(0, Ordering::SeqCst);
    }
}

impl Turn {
    fn new(token: usize) -> Arc<Turn> {
        Arc::new(Turn { token, state: AtomicU32::new(WAITING), waker: AtomicWaker::new() })
    }

    pub(crate) fn wait(&self) {
        park::block_on(|context| self.poll(context));
    }

    /// Ready once it is in.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        // PAIR gate.
        if self.state.load(Ordering::Acquire) == ENTERED { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Its turn has come. False: it waits no more.
    fn enter(&self) -> bool {
        self.state.compare_exchange(WAITING, ENTERED, Ordering::AcqRel, Ordering::Acquire).is_ok()
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

    const MUTEX: MutexId = (1, 0);
    const ME: usize = 64;

    fn queued(gates: &Gates) -> Arc<Turn> {
        match gates.come(gate(gates), MUTEX, TASK) {
            Entry::Queued(turn) => turn,
            _ => panic!("somebody is in"),
        }
    }

    fn gate(gates: &Gates) -> &Gate {
        gates.gate(MUTEX, 1).expect("there is one")
    }

    fn is_in(turn: &Turn) -> bool {
        turn.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_waits_asks_in_the_order_of_coming_and_nobody_overtakes() {
        let gates = Gates::new(2);
        let gate = gate(&gates);
        assert!(matches!(gates.come(gate, MUTEX, TASK), Entry::Entered));
        let turns = [queued(&gates), queued(&gates), queued(&gates)];
        for at in 0..3 {
            assert!(!is_in(&turns[at]) && !gates.try_enter(gate, ME));
            gates.leave(gate, MUTEX);
            assert!(gate.is_asked_for() && is_in(&turns[at]) && turns[at + 1..].iter().all(|later| !is_in(later)));
        }
        gates.leave(gate, MUTEX);
        assert!(!gate.is_asked_for() && gates.try_enter(gate, ME) && gates.queues.lock().is_empty());
    }

    #[test]
    fn who_has_gone_is_passed_over_and_who_was_let_in_meanwhile_leaves() {
        let gates = Gates::new(2);
        let gate = gate(&gates);
        assert!(gates.try_enter(gate, ME));
        let turns = [queued(&gates), queued(&gates), queued(&gates)];
        assert!(turns[0].abandon());
        gates.leave(gate, MUTEX);
        assert!(!is_in(&turns[0]) && is_in(&turns[1]));
        assert!(!turns[1].abandon(), "it is in");
        assert!(turns[2].abandon());
        gates.leave(gate, MUTEX);
        assert!(gates.try_enter(gate, ME), "nobody waits any more");
    }

    #[test]
    fn a_thread_does_not_wait_for_itself_and_there_is_no_gate_without_a_mutex() {
        let gates = Gates::new(2);
        assert!(gates.find(MUTEX).is_none(), "none was wanted");
        let gate = gate(&gates);
        assert!(matches!(gates.come(gate, MUTEX, ME), Entry::Entered));
        assert!(matches!(gates.come(gate, MUTEX, ME), Entry::Inside));
        let turn = queued(&gates);
        assert!(matches!(gates.come(gate, MUTEX, ME), Entry::Inside), "also while another one waits");
        gates.leave(gate, MUTEX);
        assert!(is_in(&turn) && gates.find(MUTEX).is_some());
        for place in [(1, 1), (0, 0), (2, 0), (u32::MAX, u64::MAX)] {
            assert!(gates.gate(place, u64::from(place.0 == 1)).is_none() && gates.find(place).is_none());
        }
    }

    #[test]
    fn an_asker_hears_of_the_release_that_comes_behind_its_look_and_nobody_of_one_that_nobody_awaits() {
        let gates = Gates::new(2);
        let gate = gate(&gates);
        gate.hold(ME);
        gate.let_go();
        gate.released(); // Nobody asks.
        gate.hold(ME);
        assert!(gates.try_enter(gate, TASK));
        let turn = gate.await_release(TASK);
        assert!(gate.holder() == ME && !is_in(&turn));
        gate.let_go();
        gate.released();
        assert!(gate.holder() == 0 && is_in(&turn));
        let again = gate.await_release(TASK);
        assert!(!is_in(&again), "each waits for a release of its own");
    }

    /// The mutex is a word here, as on one node. Half of the locks try to go past the gate.
    #[test]
    fn one_thread_at_a_time_has_the_mutex_and_no_asker_is_missed() {
        const FREE: u32 = 0;
        const RANK: u32 = 1;
        let (gates, threads, rounds) = (Gates::new(2), 4, if cfg!(miri) { 20 } else { 20_000 });
        let (word, all_there, count) = (AtomicU32::new(FREE), Barrier::new(threads), AtomicU64::new(0));
        let take = || word.compare_exchange(FREE, RANK, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let lock = |me: usize, past: bool| {
            let gate = gate(&gates);
            if past && !gate.is_asked_for() && take() {
                return gate.hold(me);
            }
            if let Entry::Queued(turn) = gates.come(gate, MUTEX, me) {
                turn.wait();
            }
            let mut release: Option<Arc<Turn>> = None;
            while !take() {
                assert_ne!(gate.holder(), me, "nobody asks for what it has");
                match release.take() {
                    None => release = Some(gate.await_release(me)),
                    Some(turn) => turn.wait(),
                }
            }
            gate.hold(me);
            gates.leave(gate, MUTEX);
        };
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (lock, word, all_there, count, gates) = (&lock, &word, &all_there, &count, &gates);
                scope.spawn(move || {
                    all_there.wait();
                    for round in 0..rounds {
                        lock(ME * (1 + thread), round % 2 == 0);
                        // Relaxed, and not one step: what the mutex orders is seen.
                        let before = count.load(Ordering::Relaxed);
                        count.store(before + 1, Ordering::Relaxed);
                        gate(gates).let_go();
                        assert_eq!(word.swap(FREE, Ordering::SeqCst), RANK);
                        gate(gates).released();
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), (threads * rounds) as u64);
        assert!(!gate(&gates).is_asked_for() && gates.queues.lock().is_empty());
    }
}
