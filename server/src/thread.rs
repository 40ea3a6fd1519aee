//! Who drives the engine, and how its thread sleeps.
//!
//! One rule: whoever waits, works. The server's thread sleeps on `outer`, which watches the engine's own poller
//! and a waker. A thread of the same process that waits in a call borrows the engine as an [`Assistant`]: it stops
//! `outer` from watching, so that the arriving packets do not wake the server's thread in vain, and starts it
//! again when it goes. Level-triggered watching makes this safe: what arrived in between is still there then.
//!
//! ```text
//!   server thread: lock ─► turns until quiet ─► unlock ─► sleep on outer ─┐
//!         ▲                                                               │
//!         └───────────────────────────────────────────────────────────────┘
//!   waiting rank:  try_lock ─► unwatch ─► turns between looks at its own affairs ─► watch ─► unlock
//! ```
//!
//! A thread that is about to send something, and to wait for what others send, may stop the watching before: else what
//! comes while it sends wakes the server's thread, which the waiting one then has to wait for. It is only a wish: it ends
//! when any such thread says so, runs handlers, gives its processor to others, or goes to sleep in a call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use longarm_netmod::{CoarseClock, Interest, Poller, Ready, Waker};
use longarm_proto::Rank;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering};
use parking_lot::{Mutex, MutexGuard};

use crate::engine::{Engine, EngineError};

const ENGINE: u64 = 0;
const WAKER: u64 = 1;

/// The node's server: the engine and what its thread sleeps on.
pub struct Server {
    engine: Mutex<Engine>,
    outer: Poller,
    /// The engine's own poller.
    inner: OwnedFd,
    unwatched: Mutex<Unwatched>,
    waker: Waker,
    stopping: AtomicBool,
    clock: CoarseClock,
    /// Threads of this process that sleep in a call: their processors are free for the server to look on for a while.
    resting: AtomicU32,
    /// How long it looks then before it sleeps. None where threads outnumber processors.
    spin: Duration,
}

/// Why `outer` does not watch the engine: it does if neither is set.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Unwatched {
    /// An assistant has it.
    assisted: bool,
    /// A thread is about to be one.
    hushed: bool,
}

impl Unwatched {
    fn interest(self) -> Interest {
        if self == Unwatched::default() { Interest::READABLE } else { Interest::default() }
    }
}

impl Server {
    /// Wraps an engine. `spin`: how long the server's thread looks for more work before it sleeps, while a thread of
    /// its process rests.
    pub fn new(engine: Engine, spin: Duration) -> Result<Server, EngineError> {
        let outer = Poller::new()?;
        let waker = Waker::new()?;
        let inner = engine.descriptor().try_clone_to_owned()?;
        outer.add(inner.as_fd(), ENGINE, Interest::READABLE)?;
        outer.add(waker.descriptor(), WAKER, Interest::READABLE)?;
        Ok(Server {
            engine: Mutex::new(engine),
            outer,
            inner,
            unwatched: Mutex::new(Unwatched::default()),
            waker,
            stopping: AtomicBool::new(false),
            clock: CoarseClock::start(),
            resting: AtomicU32::new(0),
            spin,
        })
    }

    /// The body of the server's thread. Returns after [`Server::stop`].
    pub fn run(&self) {
        let mut ready: Vec<Ready> = Vec::new();
        // PAIR stop: the flag is set before the waker is rung.
        while !self.stopping.load(Ordering::Acquire) {
            let sleep_ms_max = self.work();
            if let Err(error) = self.outer.wait(&mut ready, sleep_ms_max.map(Duration::from_millis)) {
                tracing::error!(%error, "the server cannot sleep");
                return;
            }
            if ready.iter().any(|event| event.token == WAKER) {
                self.waker.clear();
            }
        }
    }

    /// Turns until there is nothing to do, and a little longer where nobody else needs the processor. Gives how long
    /// the thread may sleep.
    fn work(&self) -> Option<u64> {
        let mut engine = self.engine.lock();
        let spins = !self.spin.is_zero();
        let mut moved_at = None;
        loop {
            if engine.turn(self.now_ms(), false) {
                moved_at = spins.then(Instant::now);
                continue;
            }
            // Relaxed: a hint; an old value costs a moment of looking or one more sleep.
            let free = spins && self.resting.load(Ordering::Relaxed) > 0;
            if free && moved_at.is_some_and(|at: Instant| at.elapsed() < self.spin) {
                // Who takes in what was just sent may wait for this very processor.
                std::thread::yield_now();
                continue;
            }
            if !engine.turn(self.now_ms(), true) {
                return engine.sleep_ms_max();
            }
            moved_at = spins.then(Instant::now);
        }
    }

    /// Says that a thread of this process goes to sleep in a call, or has woken.
    pub fn rest(&self, resting: bool) {
        if resting {
            // From here on perhaps no thread looks after the engine.
            self.hush(false);
            self.resting.fetch_add(1, Ordering::Relaxed);
        } else {
            self.resting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A thread of this process is about to send, and then to wait: until it takes the engine, nobody needs to be woken for
    /// what comes. Or that is over.
    pub fn hush(&self, hushed: bool) {
        let changed = self.set_watch(|unwatched| unwatched.hushed = hushed);
        assert!(hushed || changed.is_ok(), "what was watched before can be watched again");
    }

    fn set_watch(&self, change: impl FnOnce(&mut Unwatched)) -> io::Result<()> {
        let mut unwatched = self.unwatched.lock();
        let mut changed = *unwatched;
        change(&mut changed);
        if changed.interest() != unwatched.interest() {
            self.outer.modify(self.inner.as_fd(), ENGINE, changed.interest())?;
        }
        *unwatched = changed;
        Ok(())
    }

    /// A rank of the job died; see [`Engine::note_death`].
    pub fn note_death(&self, rank: Rank) {
        self.engine.lock().note_death(rank);
        self.waker.wake();
    }

    /// Ends [`Server::run`].
    pub fn stop(&self) {
        // PAIR stop.
        self.stopping.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The engine, if nobody drives it now.
    pub fn assist(&self) -> Option<Assistant<'_>> {
        let engine = self.engine.try_lock()?;
        if self.set_watch(|unwatched| unwatched.assisted = true).is_err() {
            return None;
        }
        Some(Assistant { server: self, engine })
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}

/// The engine in the hands of a thread that waits. Dropping gives it back.
pub struct Assistant<'a> {
    server: &'a Server,
    engine: MutexGuard<'a, Engine>,
}

impl Assistant<'_> {
    /// One turn; true if anything moved.
    pub fn turn(&mut self) -> bool {
        let now_ms = self.server.now_ms();
        self.engine.turn(now_ms, false)
    }
}

impl Drop for Assistant<'_> {
    fn drop(&mut self) {
        let watched = self.server.set_watch(|unwatched| unwatched.assisted = false);
        assert!(watched.is_ok(), "what was watched before can be watched again");
        if self.engine.sleep_ms_max().is_some() {
            // The thread has to learn that there is something to do by a certain time.
            self.server.waker.wake();
        }
    }
}
