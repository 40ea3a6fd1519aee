//! A small thread that drives transfers in progress while the application computes.
//!
//! It is started when a call leaves something unsent or unanswered, sleeps when nothing is in progress, and steps
//! aside while a thread of the application waits in a call, because that thread drives.

use std::sync::{Arc, OnceLock, Weak};

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering, fence};
use rustix::event::{PollFd, PollFlags};

use crate::route::Client;

pub(crate) struct Helper {
    waker: Waker,
    /// Threads of the application that wait in a call and drive.
    waiting: AtomicU32,
    /// It sleeps, or is about to, and looks at no other endpoint until it is woken. Swapped to false by whoever wakes
    /// it, so that a burst wakes it once.
    parked: AtomicBool,
    stopping: AtomicBool,
    thread: OnceLock<std::thread::JoinHandle<()>>,
}

/// A thread of the application waits and drives.
pub(crate) struct Waiting<'a>(&'a Helper);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Helper {
    pub(crate) fn new() -> std::io::Result<Helper> {
        Ok(Helper {
            waker: Waker::new()?,
            waiting: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            thread: OnceLock::new(),
        })
    }

    pub(crate) fn begin_wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    fn wake(&self) {
        // SeqCst fence: see `run`.
        fence(Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

impl Client {
    /// Call after a nonblocking operation was queued and is not finished: the helper takes over.
    pub(crate) fn hand_to_helper(self: &Arc<Self>) {
        if self.time.is_simulated() {
            return;
        }
        self.helper.thread.get_or_init(|| {
            let client = Arc::downgrade(self);
            std::thread::Builder::new()
                .name("longarm-helper".into())
                .spawn(move || run(&client))
                .expect("the system starts one more thread")
        });
        self.helper.wake();
        // Threads that sleep on links watch those that were busy when they fell asleep: they look again.
        self.sleepers.completed();
    }

    /// Call when a thread stops to drive although something may be in progress.
    pub(crate) fn wake_helper_if_busy(&self) {
        if self.helper.thread.get().is_some() && self.open_endpoints().any(|endpoint| endpoint.is_busy()) {
            self.helper.wake();
        }
    }

    /// Ends the helper. Called once, at finalize.
    pub(crate) fn stop_helper(&self) {
        self.helper.stopping.store(true, Ordering::SeqCst);
        self.helper.waker.wake();
    }
}

fn run(client: &Weak<Client>) {
    loop {
        let Some(client) = client.upgrade() else { return };
        if client.helper.stopping.load(Ordering::SeqCst) {
            return;
        }
        let idle = client.helper.waiting.load(Ordering::Acquire) > 0
            || !client.open_endpoints().any(|endpoint| endpoint.is_busy());
        if !idle && client.drive_busy() {
            continue;
        }
        client.helper.parked.store(true, Ordering::SeqCst);
        // SeqCst fence: `parked` before it and the look at the endpoints after, against `wake`'s endpoint that became
        // busy before and its look at `parked` after. Also where some endpoints are watched: another one may start,
        // or one of them may have more to send.
        fence(Ordering::SeqCst);
        let work = idle
            && client.helper.waiting.load(Ordering::SeqCst) == 0
            && client.open_endpoints().any(|endpoint| endpoint.is_busy());
        if !work {
            sleep(&client, idle);
        }
        client.helper.parked.store(false, Ordering::SeqCst);
    }
}

fn sleep(client: &Client, idle: bool) {
    let mut events = vec![PollFd::from_borrowed_fd(client.helper.waker.descriptor(), PollFlags::IN)];
    if !idle {
        for endpoint in client.open_endpoints().filter(|endpoint| endpoint.is_busy()) {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, endpoint.wants_write());
            if let Some(descriptor) = endpoint.descriptor() {
                events.push(PollFd::from_borrowed_fd(descriptor, flags));
            }
        }
    }
    // Not longer than a moment while something is in progress: a link without a descriptor announces nothing.
    let all = idle || events.len() > 1;
    let timeout = (!all).then_some(rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000 });
    let _ = rustix::event::poll(&mut events, timeout.as_ref());
    client.helper.waker.clear();
}
