//! Blocking calls that run elsewhere, in the order in which they were started.
//!
//! ```text
//!   group A ── lane: allreduce, barrier ─┐                ┌─ worker 1: the allreduce of A
//!   group B ── lane: barrier ────────────┼── workers ─────┤
//!   quiet   ── lane: (nothing)           ┘                └─ worker 2: the barrier of B
//! ```
//!
//! The calls of a lane run one after the other, as all members of a group call its collectives in the same order. Lanes do not
//! wait for each other: there are as many workers as lanes with calls. A worker that has nothing to do stays for the next one, for a
//! while.
//!
//! A call that panics leaves its result unsaid, and somebody may await that: the job ends, as after a panic of a handler.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longarm_shm::sync::{AtomicUsize, Ordering};
use longarm_shm::thread;
use parking_lot::{Condvar, Mutex};

use crate::panics::{end_process, said_by};
use crate::stage::{self, Stage};

/// How long a worker stays without work.
const IDLE: Duration = Duration::from_secs(10);
/// A lane that no worker has, and one that is to get one.
const NOBODY: usize = 0;
const SOMEBODY: usize = 1;

type Call = Box<dyn FnOnce() + Send>;

/// Calls that run one after the other.
pub(crate) struct Lane {
    calls: Mutex<VecDeque<Call>>,
    /// The number of the thread that runs them. [`NOBODY`] where there are none.
    worker: AtomicUsize,
    /// Told when there are none any more.
    over: Condvar,
}

/// The threads that run lanes.
#[derive(Clone, Default)]
pub(crate) struct Workers(Arc<Pool>);

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    more: Condvar,
    all_over: Condvar,
    on_panic: OnceLock<OnPanic>,
    /// Where threads are started if the rank is a simulated one.
    stage: Option<Arc<dyn Stage>>,
}

/// Told what a call said that panicked; the process ends when it returns.
type OnPanic = Box<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<Lane>>,
    idle: usize,
    /// Lanes that have calls.
    active: usize,
    stopping: bool,
}

impl Lane {
    pub(crate) fn new() -> Arc<Lane> {
        Arc::new(Lane { calls: Mutex::default(), worker: AtomicUsize::new(NOBODY), over: Condvar::new() })
    }

    /// Waits until nothing runs here, unless the calling thread is what runs here: for a call that has its place behind those that were
    /// started.
    #[inline]
    pub(crate) fn finish_before(&self) {
        // PAIR lane: what was run is seen.
        if self.worker.load(Ordering::Acquire) != NOBODY {
            self.wait_over();
        }
    }

    #[cold]
    fn wait_over(&self) {
        let is_over = || [NOBODY, thread::current()].contains(&self.worker.load(Ordering::Acquire));
        if let Some(stage) = stage::here() {
            while !is_over() {
                stage.nap();
            }
            return;
        }
        let mut calls = self.calls.lock();
        while !is_over() {
            self.over.wait(&mut calls);
        }
    }

    /// By a worker that was told to. `on_panic` gets what a call said that panicked.
    fn run(&self, on_panic: impl Fn(&str)) {
        self.worker.store(thread::current(), Ordering::Release);
        loop {
            let next = {
                let mut calls = self.calls.lock();
                let next = calls.pop_front();
                if next.is_none() {
                    // PAIR lane.
                    self.worker.store(NOBODY, Ordering::Release);
                    self.over.notify_all();
                }
                next
            };
            match next {
                Some(call) => {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                        on_panic(said_by(&*panic));
                    }
                }
                None => return,
            }
        }
    }
}

impl Workers {
    /// Those of a simulated rank, or of any.
    pub(crate) fn on(stage: Option<Arc<dyn Stage>>) -> Workers {
        Workers(Arc::new(Pool { stage, ..Pool::default() }))
    }

    /// Has a job told of a call that panicked, before this process ends for it.
    pub(crate) fn when_one_panics(&self, on_panic: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.0.on_panic.set(Box::new(on_panic));
    }

    /// Runs a call behind those that the lane has.
    pub(crate) fn start(&self, lane: &Arc<Lane>, call: impl FnOnce() + Send + 'static) {
        if self.enter(lane, call)
            && let Err(error) = self.add_worker()
        {
            tracing::warn!(%error, "a call that was started runs before the call returns: no thread can be started for it");
            self.0.work(Duration::ZERO);
        }
    }

    /// The same for who may hold locks: never on the thread that calls. Where no thread can be started, the call waits for the next one
    /// that is, or for a thread that starts something else or finishes all.
    pub(crate) fn start_elsewhere(&self, lane: &Arc<Lane>, call: impl FnOnce() + Send + 'static) {
        // Also for one that could not be started the last time.
        let lacks_worker = self.enter(lane, call) || self.lacks_worker();
        if lacks_worker && let Err(error) = self.add_worker() {
            tracing::warn!(%error, "a call that was started waits: no thread can be started for it");
        }
    }

    /// True: no worker is free for it.
    fn enter(&self, lane: &Arc<Lane>, call: impl FnOnce() + Send + 'static) -> bool {
        {
            let mut calls = lane.calls.lock();
            calls.push_back(Box::new(call));
            if lane.worker.load(Ordering::Acquire) != NOBODY {
                return false;
            }
            lane.worker.store(SOMEBODY, Ordering::Release);
        }
        let mut state = self.0.state.lock();
        state.ready.push_back(Arc::clone(lane));
        state.active += 1;
        let suffices = state.ready.len() <= state.idle;
        drop(state);
        self.0.more.notify_one();
        !suffices
    }

    fn lacks_worker(&self) -> bool {
        let state = self.0.state.lock();
        state.ready.len() > state.idle
    }

    fn add_worker(&self) -> std::io::Result<()> {
        let pool = Arc::clone(&self.0);
        if let Some(stage) = &self.0.stage {
            stage.start_thread("longarm-worker", Box::new(move || pool.work(Duration::ZERO)));
            return Ok(());
        }
        std::thread::Builder::new().name("longarm-worker".into()).spawn(move || pool.work(IDLE)).map(drop)
    }

    /// Waits until all that was started is over.
    pub(crate) fn finish_all(&self) {
        // What no thread could be started for.
        self.0.work(Duration::ZERO);
        if let Some(stage) = &self.0.stage {
            while self.0.state.lock().active > 0 {
                stage.nap();
            }
        }
        let mut state = self.0.state.lock();
        while state.active > 0 {
            self.0.all_over.wait(&mut state);
        }
    }

    /// Those that have nothing to do end now, the others when they have done it.
    pub(crate) fn stop(&self) {
        self.0.state.lock().stopping = true;
        self.0.more.notify_all();
    }
}

impl Pool {
    fn end(&self, said: &str) {
        if let Some(on_panic) = self.on_panic.get() {
            on_panic(&format!("a thread that runs calls which were started panicked: {said}"));
        }
        end_process()
    }

    fn work(&self, patience: Duration) {
        let mut state = self.state.lock();
        loop {
            while let Some(lane) = state.ready.pop_front() {
                drop(state);
                lane.run(|said| self.end(said));
                drop(lane);
                state = self.state.lock();
                state.active -= 1;
                self.all_over.notify_all();
            }
            if state.stopping || patience.is_zero() {
                return;
            }
            state.idle += 1;
            let timed_out = self.more.wait_for(&mut state, patience).timed_out();
            state.idle -= 1;
            if timed_out && state.ready.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn calls_of_a_lane_run_in_their_order_and_lanes_do_not_wait_for_each_other() {
        let (workers, first, second) = (Workers::default(), Lane::new(), Lane::new());
        let (note, noted) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let noting = note.clone();
        workers.start(&first, move || {
            gone.recv().unwrap();
            noting.send(1).unwrap();
        });
        let noting = note.clone();
        workers.start(&first, move || noting.send(2).unwrap());
        workers.start(&second, move || note.send(3).unwrap());
        assert_eq!(noted.recv(), Ok(3), "the other lane goes on");
        second.finish_before();
        go.send(()).unwrap();
        first.finish_before();
        workers.finish_all();
        assert_eq!(noted.try_iter().collect::<Vec<_>>(), [1, 2]);
        workers.stop();
    }

    #[test]
    fn what_got_no_thread_is_done_at_the_latest_when_all_is_finished() {
        let (workers, lane) = (Workers::default(), Lane::new());
        let (note, noted) = mpsc::channel();
        assert!(workers.enter(&lane, move || note.send(std::thread::current().id()).unwrap()), "nobody is free");
        workers.finish_all();
        assert_eq!(noted.try_recv(), Ok(std::thread::current().id()));
        let (note, noted) = mpsc::channel();
        workers.start_elsewhere(&lane, move || note.send(std::thread::current().id()).unwrap());
        assert_ne!(noted.recv(), Ok(std::thread::current().id()));
        workers.stop();
    }

    #[test]
    fn a_worker_is_kept_for_the_next_call() {
        let (workers, lane) = (Workers::default(), Lane::new());
        let (note, noted) = mpsc::channel();
        let run = || {
            let note = note.clone();
            workers.start(&lane, move || note.send(std::thread::current().id()).unwrap());
            lane.finish_before();
            // Once it waits for more.
            while workers.0.state.lock().idle == 0 {
                std::thread::yield_now();
            }
            noted.recv().unwrap()
        };
        let first = run();
        assert!((0..20).all(|_| run() == first));
        workers.stop();
    }

    #[test]
    fn a_call_that_looks_whether_those_before_it_are_over_does_not_wait_for_itself() {
        let (workers, lane) = (Workers::default(), Lane::new());
        let inside = Arc::clone(&lane);
        workers.start(&lane, move || inside.finish_before());
        lane.finish_before();
        workers.stop();
    }
}
