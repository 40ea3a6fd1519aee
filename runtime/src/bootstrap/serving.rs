//! What the threads of the coordinator and of a relay have in common: how others wake and end them, and wait for what they have still to
//! send.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longarm_control::desk::{FLUSH, Readiness};
use longarm_netmod::{Interest, Ready, Waker};
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::{Condvar, Mutex};

/// How long nobody is taken in after nobody could be: most likely no descriptor was free, and whoever waits is announced without end.
pub(super) const REST: Duration = Duration::from_millis(100);

pub(super) const NOTHING: Interest = Interest { readable: false, writable: false };

/// Such a thread, from outside. Dropped, it sends what it has to, and ends.
pub(super) struct Serving {
    turns: Arc<Turns>,
    name: &'static str,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Serving {
    /// Starts a thread that looks at these turns.
    pub(super) fn start(
        name: &'static str,
        turns: Arc<Turns>,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Serving> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Serving { turns, name, thread: Mutex::new(Some(thread)) })
    }

    /// What wakes it and waits for it, also from another thread.
    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Ends the thread, and all connections with it.
    pub(super) fn stop(&self) {
        self.turns.stops.store(true, Ordering::Release);
        self.turns.wake();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread {} has panicked", self.name);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.thread.lock().is_some() {
            self.turns.flush();
            self.stop();
        }
    }
}

/// The turns of such a thread, in each of which it does all that there is to do.
pub(crate) struct Turns {
    waker: Waker,
    stops: AtomicBool,
    past: Mutex<Past>,
    turned: Condvar,
}

#[derive(Default)]
struct Past {
    count: u64,
    /// Something could not be sent in the last one.
    is_behind: bool,
    /// There will be no other one.
    has_ended: bool,
}

impl Turns {
    pub(super) fn new() -> io::Result<Arc<Turns>> {
        let (stops, past, turned) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        Ok(Arc::new(Turns { waker: Waker::new()?, stops, past, turned }))
    }

    /// What the thread watches, so that it can be woken.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Whether the thread is to end.
    pub(super) fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// By the thread, behind each turn.
    pub(super) fn end_turn(&self, is_behind: bool) {
        let mut past = self.past.lock();
        past.count += 1;
        past.is_behind = is_behind;
        self.turned.notify_all();
    }

    /// By the thread, behind the last one.
    pub(super) fn end(&self) {
        self.past.lock().has_ended = true;
        self.turned.notify_all();
    }

    /// Waits until what was said to the thread before is done, and what it has to say is on its way.
    pub(crate) fn flush(&self) {
        let until = Instant::now() + FLUSH;
        let mut past = self.past.lock();
        let first = past.count;
        // The first turn may have begun before.
        while !past.has_ended && (past.count < first + 2 || past.is_behind) {
            self.waker.wake();
            if self.turned.wait_until(&mut past, until).timed_out() {
                return;
            }
        }
    }
}

/// What a poller has told, as a desk takes it.
pub(super) fn readiness(ready: Ready) -> Readiness {
    Readiness { readable: ready.readable, writable: ready.writable }
}

/// What a desk wants to be told, as a poller takes it.
pub(super) fn interest(Readiness { readable, writable }: Readiness) -> Interest {
    Interest { readable, writable }
}
