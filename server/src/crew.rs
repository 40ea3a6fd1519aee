//! Threads that turn some of the engine's connections while whoever drives it turns others.
//!
//! The engine is one thread's at a time. That thread lends connections out within a turn, takes part in the work, and has all
//! of them back before the turn goes on, so that nothing else of the engine knows of them:
//!
//! ```text
//!   a turn: ask who is ready ─► lend out ─┬─► turn one, turn the next ─┬─► have all back ─► mail, grants, the rest of the turn
//!                                         └─► the crew: the same ──────┘
//! ```
//!
//! A connection is with one thread at a time, and the mutexes that hand it over order what its threads do. Tasks that none of the
//! crew has taken are done by the one who lends them out: nobody is waited for that has not begun.
//!
//! The crew is started when it is wanted for the first time. One that finds no task looks for some time, then sleeps; it is
//! woken when there is more than a little to do again. What it looks at is a hint: all that matters is under the mutexes.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longarm_shm::sync::{AtomicBool, AtomicUsize, Ordering};
use parking_lot::{Condvar, Mutex};

use crate::connection::{Connection, Ended, Turn};
use crate::serve::state::ServeState;

/// Looks at a hint before the processor is offered to others.
const LOOKS_PER_YIELD: u32 = 64;

/// The threads that an engine may have besides the one that drives it.
#[derive(Clone)]
pub struct CrewOptions {
    /// How many. 0: none.
    pub threads: usize,
    /// How long one looks for work before it sleeps.
    pub spin: Duration,
    /// What each does first, such as to choose its processors.
    pub prepare: Arc<dyn Fn() + Send + Sync>,
}

impl CrewOptions {
    /// No threads.
    pub(crate) fn none() -> CrewOptions {
        CrewOptions { threads: 0, spin: Duration::ZERO, prepare: Arc::new(|| ()) }
    }
}

/// A connection to be turned.
pub(crate) struct Task {
    /// Its number in the engine.
    pub number: usize,
    pub connection: Box<Connection>,
    pub shared: Arc<ServeState>,
}

/// What came of a task: of its connection's turn, or a panic.
pub(crate) type Outcome = std::thread::Result<Result<Turn, Ended>>;

/// One that was.
pub(crate) struct Finished {
    pub number: usize,
    pub connection: Box<Connection>,
    pub turn: Outcome,
}

impl Task {
    fn run(self) -> Finished {
        let Task { number, mut connection, shared } = self;
        // Whoever drives the engine goes on with the panic.
        let turn = std::panic::catch_unwind(AssertUnwindSafe(|| connection.turn(&shared, number)));
        Finished { number, connection, turn }
    }
}

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Task>,
    /// So many of the crew sleep.
    asleep: usize,
}

struct Common {
    tasks: Mutex<Tasks>,
    called: Condvar,
    /// How many tasks wait: a hint for who looks.
    waiting: AtomicUsize,
    finished: Mutex<Vec<Finished>>,
    /// How many are in it: a hint too.
    finished_count: AtomicUsize,
    /// So many of the crew have a task: a hint too.
    busy: AtomicUsize,
    /// Written with the tasks locked.
    over: AtomicBool,
}

/// The crew of an engine. Dropping it lets its threads end.
pub(crate) struct Crew {
    options: CrewOptions,
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
    /// A child of a fork has no crew.
    pid: u32,
    /// Tasks that were lent out and have not come back.
    out: usize,
    /// Looks for what is finished that were in vain.
    vain_looks: u32,
    /// Connections that the crew has turned so far.
    turned: u64,
}

impl Crew {
    pub(crate) fn new(options: CrewOptions) -> Crew {
        let common = Common {
            tasks: Mutex::default(),
            called: Condvar::new(),
            waiting: AtomicUsize::new(0),
            finished: Mutex::default(),
            finished_count: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        };
        let pid = std::process::id();
        Crew { options, common: Arc::new(common), threads: Vec::new(), pid, out: 0, vain_looks: 0, turned: 0 }
    }

    /// Whether there can be a thread in it.
    pub(crate) fn may_have_threads(&self) -> bool {
        self.options.threads > 0
    }

    /// Connections that its threads have turned so far.
    pub(crate) fn looks(&self) -> u64 {
        self.turned
    }

    /// Whether every task that was lent out has come back.
    pub(crate) fn all_are_back(&self) -> bool {
        self.out == 0
    }

    /// Whether there may be threads without a task soon.
    pub(crate) fn wants_more(&self) -> bool {
        self.common.waiting.load(Ordering::Relaxed) <= self.threads.len()
    }

    /// Works on what was lent out: runs a task that nobody has taken, if there is one, and fetches what the others have finished.
    pub(crate) fn work(&mut self, finished: &mut Vec<Finished>) {
        let before = finished.len();
        if self.common.waiting.load(Ordering::Relaxed) > 0
            && let Some(task) = self.common.take()
        {
            finished.push(task.run());
        }
        let mine = finished.len() - before;
        // Relaxed: a hint. The mutex orders what it guards.
        if self.common.finished_count.load(Ordering::Relaxed) > 0 {
            let mut theirs = self.common.finished.lock();
            self.common.finished_count.store(0, Ordering::Relaxed);
            finished.append(&mut theirs);
        }
        let all = finished.len() - before;
        self.turned += (all - mine) as u64;
        self.out -= all;
        if all == 0 {
            pause(&mut self.vain_looks);
        }
    }

    fn start(&mut self) {
        while self.threads.len() < self.options.threads {
            let (common, options) = (Arc::clone(&self.common), self.options.clone());
            let body = move || {
                (options.prepare)();
                common.run(options.spin);
            };
            match std::thread::Builder::new().name("longarm-crew".into()).spawn(body) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "the server goes on with {} threads beside its own", self.threads.len());
                    self.options.threads = self.threads.len();
                }
            }
        }
    }

    /// Lends tasks out: until [`Crew::all_are_back`], [`Crew::work`] is to be called.
    pub(crate) fn add(&mut self, tasks: Vec<Task>) {
        self.start();
        self.out += tasks.len();
        let mut queue = self.common.tasks.lock();
        queue.waiting.extend(tasks);
        self.common.waiting.store(queue.waiting.len(), Ordering::Relaxed);
        // One is for the thread that lends them out. Those who look will take theirs.
        let looking = (self.options.threads - queue.asleep).saturating_sub(self.common.busy.load(Ordering::Relaxed));
        let wanted = (queue.waiting.len() - 1).saturating_sub(looking).min(queue.asleep);
        drop(queue);
        (0..wanted).for_each(|_| _ = self.common.called.notify_one());
    }

    /// Lets the threads end, and waits for them.
    pub(crate) fn end(mut self) {
        let threads = std::mem::take(&mut self.threads);
        drop(self);
        for thread in threads {
            // What a task panicked with was passed on, and there is nothing else to panic about.
            let _ = thread.join();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // In a child of a fork the mutex may be held by a thread that it does not have.
        if self.pid == std::process::id() {
            let tasks = self.common.tasks.lock();
            self.common.over.store(true, Ordering::Relaxed);
            drop(tasks);
            self.common.called.notify_all();
        }
    }
}

impl Common {
    fn take(&self) -> Option<Task> {
        let mut tasks = self.tasks.lock();
        let task = tasks.waiting.pop_front();
        self.waiting.store(tasks.waiting.len(), Ordering::Relaxed);
        task
    }

    /// The body of a thread.
    fn run(&self, spin: Duration) {
        let mut looks: u32 = 0;
        let mut idle_since = Instant::now();
        loop {
            if self.waiting.load(Ordering::Relaxed) > 0
                && let Some(task) = self.take()
            {
                self.busy.fetch_add(1, Ordering::Relaxed);
                let finished = task.run();
                self.busy.fetch_sub(1, Ordering::Relaxed);
                self.hand_back(finished);
                idle_since = Instant::now();
                continue;
            }
            pause(&mut looks);
            if looks.is_multiple_of(LOOKS_PER_YIELD) && (idle_since.elapsed() >= spin || self.is_over()) {
                if !self.sleep() {
                    return;
                }
                idle_since = Instant::now();
            }
        }
    }

    fn hand_back(&self, finished: Finished) {
        let mut all = self.finished.lock();
        all.push(finished);
        self.finished_count.store(all.len(), Ordering::Relaxed);
    }

    /// Sleeps until there may be something to do. False: there will be nothing any more.
    fn sleep(&self) -> bool {
        let mut tasks = self.tasks.lock();
        while tasks.waiting.is_empty() && !self.is_over() {
            tasks.asleep += 1;
            self.called.wait(&mut tasks);
            tasks.asleep -= 1;
        }
        !self.is_over()
    }

    fn is_over(&self) -> bool {
        // Relaxed: whoever sleeps looks with the tasks locked; to others it is a hint.
        self.over.load(Ordering::Relaxed)
    }
}

/// One look was in vain.
fn pause(looks: &mut u32) {
    *looks = looks.wrapping_add(1);
    if looks.is_multiple_of(LOOKS_PER_YIELD) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::fd::BorrowedFd;

    use longarm_memory::{Region, RegionMut};
    use longarm_netmod::flow::Costs;
    use longarm_netmod::{Link, LinkError};
    use longarm_proto::{Identity, JobId, NodeId, Rank};
    use longarm_shm::NodeSegment;

    use super::*;
    use crate::mutex_waiters::MutexWaiters;
    use crate::table::Windows;

    /// From which nothing comes, or a panic.
    struct MockLink {
        panics: bool,
    }

    impl Link for MockLink {
        fn send(&mut self, _: &[Region<'_>]) -> Result<usize, LinkError> {
            Ok(0)
        }

        fn receive(&mut self, _: &[RegionMut<'_>]) -> Result<usize, LinkError> {
            assert!(!self.panics, "this link panics");
            Err(LinkError::Closed)
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn peer_name(&self) -> &str {
            "a mock"
        }
    }

    fn state(job: JobId) -> ServeState {
        ServeState {
            windows: Windows::of_job(job),
            node: Arc::new(NodeSegment::create(job, 2, 1).unwrap()),
            local_of_rank: HashMap::new(),
            mutexes: Mutex::new(MutexWaiters::default()),
            cells: Mutex::new(()),
            mail_waits: false,
            host: Rank(0),
        }
    }

    #[test]
    fn everything_comes_back_whatever_becomes_of_it_and_the_threads_end() {
        let job = JobId(u64::from(std::process::id()) << 32 | 0x6372);
        let mut shared = state(job);
        let mut crew = Crew::new(CrewOptions { threads: 2, spin: Duration::ZERO, ..CrewOptions::none() });
        // Again: with threads that sleep.
        for round in 0..20 {
            let lent = Arc::new(shared);
            let task = |number: usize| {
                let peer = Identity { job, rank: Rank(number as u32), node: NodeId(1) };
                let mut connection = Box::new(Connection::new(peer, Costs::TYPICAL));
                connection.attach(Box::new(MockLink { panics: (number, round) == (1, 10) }));
                Task { number, connection, shared: Arc::clone(&lent) }
            };
            crew.add((0..4).map(task).collect());
            let mut finished = Vec::new();
            while !crew.all_are_back() {
                crew.work(&mut finished);
            }
            finished.sort_by_key(|finished| finished.number);
            let outcomes: Vec<&str> = finished
                .iter()
                .map(|finished| match &finished.turn {
                    Ok(Err(Ended::Link(LinkError::Closed))) => "closed",
                    Ok(_) => "something else",
                    Err(_) => "panic",
                })
                .collect();
            let second = if round == 10 { "panic" } else { "closed" };
            assert_eq!(outcomes, ["closed", second, "closed", "closed"]);
            shared = Arc::into_inner(lent).expect("nobody has it any more");
        }
        crew.end();
    }
}
