//! The threads that drive the engine, and how the server's own one sleeps.
//!
//! One rule: a thread that waits, works. The server's thread sleeps on `outer`, which watches the engine's own poller
//! and a waker. A thread of the same process that waits in a call borrows the engine as an [`Assistant`]: it stops
//! `outer` from watching, so that the arriving packets do not wake the server's thread in vain, and starts it
//! again when it goes. Level-triggered watching makes this safe: what arrived in between is still there then. Where no processor is
//! to spare the assistant also sleeps in the place of the server's thread, so that what comes for its rank wakes one thread, not two.
//!
//! ```text
//!   server thread: lock ─► turns until quiet ─► unlock ─► sleep on outer ─┐      (an assistant has it: sleep)
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
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_netmod::{CoarseClock, Interest, Poller, Ready, Waker};
use longarm_proto::{AccessKey, Generation, Rank, WindowId};
use longarm_shm::NodeSegment;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering};
use parking_lot::{Mutex, MutexGuard};

use crate::door::{DoorError, DoorRequest, Handed};
use crate::engine::{Engine, EngineError};

const ENGINE: u64 = 0;
const WAKER: u64 = 1;
/// A server that looks where a rank of its own rests keeps the processor. After a large reply it yields there too, at the first
/// look and then once in so many: the receiver may wait for that processor. Small replies are not worth it.
const LOOKS_PER_YIELD: u32 = 8;
/// How long who asks for something waits for the engine, before it asks at the door: longer than a turn, shorter than that.
const ASK_WAIT: Duration = Duration::from_micros(20);
/// How long who has to tell of a death waits for it, before it says again that it wants it.
const DEATH_WAIT: Duration = Duration::from_millis(1);

/// How long the thread sleeps if it was woken for connections that rest, and another thread has the engine.
const AT_REST_MS: u64 = 500;

/// The node's server: the engine and what its thread sleeps on.
pub struct Server {
    engine: Mutex<Engine>,
    outer: Poller,
    /// The engine's own poller.
    inner: OwnedFd,
    unwatched: Mutex<Unwatched>,
    waker: Waker,
    stopping: AtomicBool,
    /// The server's thread sleeps, or is about to, until a time that it knew when it last had the engine.
    sleeps_for_a_time: AtomicBool,
    /// It was woken for connections that will rest, and has not had the engine since.
    is_told_of_rest: AtomicBool,
    clock: CoarseClock,
    /// Threads of this process that sleep in a call: their processors are free for the server to look on for a while.
    resting: AtomicU32,
    /// On which one the last of them was.
    resting_on: AtomicU32,
    /// What [`Server::notifications`] gave when it went to sleep.
    notifications_at_rest: [AtomicU32; 2],
    /// Where the rank of this process is notified.
    segment: Arc<NodeSegment>,
    host: u32,
    /// Turns in which something moved.
    moves: AtomicU32,
    /// How long it looks then before it sleeps. None where threads outnumber processors.
    spin: Duration,
    /// The same while no thread rests, where ranks leave the server a processor: while its rank computes, or waits elsewhere, each request of
    /// another node would have to wake a sleeper.
    spare_spin: Duration,
    /// A thread of this process wants the engine and has not got it. Who waits in a call looks just as well, and where what comes is wanted.
    wanted: AtomicBool,
}

/// Why `outer` does not watch the engine: it does if neither is set.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Unwatched {
    /// So many assistants have it. Several: all but one of them sleep, or are about to.
    assistants: u32,
    /// A thread is about to be one.
    suppressed: bool,
}

impl Unwatched {
    fn interest(self) -> Interest {
        if self == Unwatched::default() { Interest::READABLE } else { Interest::default() }
    }
}

impl Server {
    /// Wraps an engine. `spin`: how long the server's thread looks for more work before it sleeps, while a thread of
    /// its process rests. `spare_spin`: while none does; none where it has no processor that no rank wants.
    pub fn new(mut engine: Engine, spin: Duration, spare_spin: Duration) -> Result<Server, EngineError> {
        engine.let_listen()?;
        let outer = Poller::new()?;
        let waker = Waker::new()?;
        let inner = engine.descriptor().try_clone_to_owned()?;
        let (segment, host) = engine.host();
        outer.add(inner.as_fd(), ENGINE, Interest::READABLE)?;
        outer.add(waker.descriptor(), WAKER, Interest::READABLE)?;
        Ok(Server {
            engine: Mutex::new(engine),
            outer,
            inner,
            unwatched: Mutex::new(Unwatched::default()),
            waker,
            stopping: AtomicBool::new(false),
            sleeps_for_a_time: AtomicBool::new(false),
            is_told_of_rest: AtomicBool::new(false),
            clock: CoarseClock::start(),
            resting: AtomicU32::new(0),
            resting_on: AtomicU32::new(u32::MAX),
            notifications_at_rest: [AtomicU32::new(0), AtomicU32::new(0)],
            segment,
            host,
            moves: AtomicU32::new(0),
            spin,
            spare_spin,
            wanted: AtomicBool::new(false),
        })
    }

    /// The body of the server's thread. Returns after [`Server::stop`], when the engine's crew has ended too.
    pub fn run(&self) {
        self.serve();
        let crew = self.engine.lock().take_crew();
        crew.end();
    }

    fn serve(&self) {
        let mut ready: Vec<Ready> = Vec::new();
        // The flag is set before the waker is rung.
        while !self.is_stopping() {
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

    fn is_stopping(&self) -> bool {
        // PAIR stop.
        self.stopping.load(Ordering::Acquire)
    }

    /// Turns until there is nothing to do, and a little longer where nobody else needs the processor. Gives how long
    /// the thread may sleep.
    fn work(&self) -> Option<u64> {
        // Before the engine is found with another thread: that one sees it, for it gives up its place under `unwatched` before it looks.
        self.sleeps_for_a_time.store(false, Ordering::Relaxed);
        let Some(mut engine) = self.engine_to_work() else {
            // Of connections that rest this thread is told once: should nobody have the engine when they are due, it does.
            return self.is_told_of_rest.load(Ordering::Relaxed).then_some(AT_REST_MS);
        };
        self.is_told_of_rest.store(false, Ordering::Relaxed);
        // Relaxed here and below: hints; an old value costs a moment of looking or one more sleep.
        self.wanted.store(false, Ordering::Relaxed);
        let spins = !self.spin.is_zero() || !self.spare_spin.is_zero();
        let mut moved_at = None;
        let mut looks: u32 = 0;
        loop {
            let is_wanted = self.wanted.swap(false, Ordering::Relaxed);
            if is_wanted {
                MutexGuard::bump(&mut engine);
            }
            if engine.turn(self.now_ms(), false) {
                self.note_move();
                moved_at = spins.then(Instant::now);
                looks = 0;
                continue;
            }
            let rests = self.resting.load(Ordering::Relaxed) > 0;
            let spin = if rests { self.spin } else { self.spare_spin };
            let is_where_nobody_runs = rests && self.is_where_nobody_runs();
            // The thread that rested here was notified: it wants its processor back, and drives the engine itself.
            let is_notified = is_where_nobody_runs && self.notifications() != self.notifications_at_rest();
            let looks_on = !is_wanted && !is_notified && !self.is_stopping();
            if looks_on && moved_at.is_some_and(|at: Instant| at.elapsed() < spin) {
                let yields_here = engine.has_sent_large() && looks.is_multiple_of(LOOKS_PER_YIELD);
                if !yields_here && is_where_nobody_runs {
                    std::hint::spin_loop();
                } else {
                    // Whoever was answered just now may wait for this processor.
                    std::thread::yield_now();
                }
                looks = looks.wrapping_add(1);
                continue;
            }
            if !engine.turn(self.now_ms(), true) {
                let sleep_ms = engine.sleep_ms_max().into_iter().chain(engine.give_back_in_ms(self.now_ms())).min();
                self.sleeps_for_a_time.store(sleep_ms.is_some(), Ordering::Relaxed);
                return sleep_ms;
            }
            self.note_move();
            moved_at = spins.then(Instant::now);
            looks = 0;
        }
    }

    /// `None`: a waiting thread has the engine. To queue behind it would make it hand the engine over, and wake us, each time it
    /// gives it back. When it does that it watches again, and rings if there is something to do by a certain time: what we were
    /// woken for is told again, unless it is done.
    fn engine_to_work(&self) -> Option<MutexGuard<'_, Engine>> {
        self.engine.try_lock().or_else(|| {
            let is_assisted = self.unwatched.lock().assistants > 0;
            (!is_assisted).then(|| self.engine.lock())
        })
    }

    /// The engine, for a thread of this process, if nobody has it. The server's thread, if it only looks for more work, gives it back soon, to who
    /// waits for so long.
    fn engine_within(&self, wait: Duration) -> Option<MutexGuard<'_, Engine>> {
        self.engine.try_lock().or_else(|| {
            // Relaxed: a hint.
            self.wanted.store(true, Ordering::Relaxed);
            if wait.is_zero() { None } else { self.engine.try_lock_for(wait) }
        })
    }

    /// Whether the calling thread has the processor of one that rests. A guess.
    fn is_where_nobody_runs(&self) -> bool {
        rustix::thread::sched_getcpu() as u32 == self.resting_on.load(Ordering::Relaxed)
    }

    /// How often the rank of this process was notified so far, of mail and of its windows (wraps around).
    fn notifications(&self) -> [u32; 2] {
        [self.segment.eventcount(self.host).sequence(), self.segment.window_eventcount(self.host).sequence()]
    }

    fn notifications_at_rest(&self) -> [u32; 2] {
        // Relaxed: a guess, as where it rests.
        self.notifications_at_rest.each_ref().map(|at_rest| at_rest.load(Ordering::Relaxed))
    }

    fn note_move(&self) {
        // Only who holds the engine writes.
        self.moves.store(self.moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// How often something moved so far: for who wants to know whether others ask for something here.
    pub fn moves(&self) -> u32 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Says that a thread of this process goes to sleep in a call, or has woken.
    pub fn rest(&self, resting: bool) {
        if resting {
            // From here on perhaps no thread looks after the engine.
            self.suppress_wakeups(false);
            self.resting_on.store(rustix::thread::sched_getcpu() as u32, Ordering::Relaxed);
            for (at_rest, now) in self.notifications_at_rest.iter().zip(self.notifications()) {
                at_rest.store(now, Ordering::Relaxed);
            }
            self.resting.fetch_add(1, Ordering::Relaxed);
        } else {
            self.resting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A thread of this process is about to send, and then to wait: until it takes the engine, nobody needs to be woken for
    /// what comes. Or that is over.
    pub fn suppress_wakeups(&self, suppressed: bool) {
        let changed = self.set_watch(|unwatched| unwatched.suppressed = suppressed);
        assert!(suppressed || changed.is_ok(), "what was watched before can be watched again");
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

    /// Does what would be asked for at the door, for a thread of this process, which wakes no other for it. `None`: another one drives the
    /// engine now; ask at the door.
    pub fn ask(&self, request: &DoorRequest) -> Option<Result<Option<Handed>, DoorError>> {
        let mut engine = self.engine_within(ASK_WAIT)?;
        let answer = engine.ask(request, self.now_ms());
        self.tell_of_give_back(&mut engine);
        Some(answer)
    }

    /// Serves a window before its ranks have met for it, for a thread of this process, in memory that a window of the same ranks with this room
    /// for each part had before. Gives the window that the memory was made for. `None`: there is none, or another thread drives the engine now.
    pub fn serve_ahead(
        &self,
        identity: (WindowId, Generation, AccessKey),
        ranks: &[Rank],
        room: u64,
    ) -> Option<(WindowId, Generation)> {
        let mut engine = self.engine_within(ASK_WAIT)?;
        let made_for = engine.serve_ahead(identity, ranks, room, self.now_ms());
        self.tell_of_give_back(&mut engine);
        made_for
    }

    /// The thread, if it sleeps for ever, has to learn that memory is to be given back by a certain time. For who has the engine.
    fn tell_of_give_back(&self, engine: &mut Engine) {
        // Relaxed: see where it is set. At worst the thread is woken in vain.
        let is_told = self.sleeps_for_a_time.load(Ordering::Relaxed);
        // Connections rest and go on again all the time: of these the thread is told once, and whoever turns the engine sees to them.
        if is_told {
            return;
        }
        let tells_of_rest = engine.wants_to_tell_of_rest();
        if tells_of_rest {
            self.is_told_of_rest.store(true, Ordering::Relaxed);
        }
        if tells_of_rest || engine.has_windows_to_give_back() {
            self.waker.wake();
        }
    }

    /// A rank of the job died; see [`Engine::note_death`].
    pub fn note_death(&self, rank: Rank) {
        let mut engine = loop {
            if let Some(engine) = self.engine_within(DEATH_WAIT) {
                break engine;
            }
        };
        engine.note_death(rank);
        drop(engine);
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
        let engine = self.engine_within(Duration::ZERO)?;
        if self.set_watch(|unwatched| unwatched.assistants += 1).is_err() {
            return None;
        }
        Some(Assistant { server: self, engine, ready: Vec::new() })
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}

/// The engine in the hands of a thread that waits. Dropping gives it back.
pub struct Assistant<'a> {
    server: &'a Server,
    engine: MutexGuard<'a, Engine>,
    /// What was ready at the end of the last sleep.
    ready: Vec<Ready>,
}

impl Assistant<'_> {
    /// One turn; true if anything moved.
    pub fn turn(&mut self) -> bool {
        let now_ms = self.server.now_ms();
        let moved = self.engine.turn(now_ms, false);
        if moved {
            self.server.note_move();
        }
        moved
    }

    /// Sleeps in place of the server's thread: until there is something to do, the eventcount at which the caller has said to listen is
    /// notified, or the time is up. What there is to do is done by [`Assistant::turn_after_sleep`].
    ///
    /// The engine is free for others meanwhile, and one thread at a time sleeps so. False: it cannot, and has not slept.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        if !self.engine.begin_to_listen() {
            return false;
        }
        let due = self.engine.sleep_ms_max().into_iter().chain(self.engine.give_back_in_ms(self.server.now_ms()));
        let timeout = due.map(Duration::from_millis).chain(timeout).min();
        let (poller, turns) = (Arc::clone(self.engine.poller()), self.engine.turns());
        let ready = &mut self.ready;
        let slept = MutexGuard::unlocked(&mut self.engine, || poller.wait(ready, timeout));
        if let Err(error) = slept {
            tracing::error!(%error, "a thread cannot sleep in the server's place");
            self.ready.clear();
        }
        if self.engine.turns() != turns {
            // Somebody else has seen to it, and numbers may be others' now. What is still ready is found again.
            self.ready.clear();
        }
        self.engine.end_listening();
        true
    }

    /// The turn after a sleep; true if anything moved.
    pub fn turn_after_sleep(&mut self) -> bool {
        let ready = std::mem::take(&mut self.ready);
        let moved = self.engine.turn_with(self.server.now_ms(), &ready);
        self.ready = ready;
        self.ready.clear();
        if moved {
            self.server.note_move();
        }
        moved
    }
}

impl Drop for Assistant<'_> {
    fn drop(&mut self) {
        let watched = self.server.set_watch(|unwatched| unwatched.assistants -= 1);
        assert!(watched.is_ok(), "what was watched before can be watched again");
        self.server.tell_of_give_back(&mut self.engine);
        if self.engine.sleep_ms_max().is_some() {
            // The thread has to learn that there is something to do by a certain time.
            self.server.waker.wake();
        }
    }
}
