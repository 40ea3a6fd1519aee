//! A small thread that drives transfers in progress while the application computes.
//!
//! It is started when a call leaves much unsent or unanswered, or something that waits for company, and steps aside while a thread of the application
//! waits in a call, because that thread drives. Now and then it looks after what was sent and not acknowledged, so that
//! a broken connection is noticed although nobody waits for a reply, and asks the nodes from which a sleeping thread
//! expects mail or a changed word whether they live. When there was nothing to look after for a while
//! it sleeps until it is woken.

use std::any::Any;
use std::sync::OnceLock;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering, fence};
use parking_lot::Mutex;

/// Gets what a panic of the helper thread has thrown.
pub(crate) type OnPanic = Box<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

pub(crate) struct Helper {
    /// Made when the thread is first started: a rank that needs no helper has no descriptor for it.
    pub(crate) waker: OnceLock<Waker>,
    /// Threads of the application that wait in a call and drive.
    pub(crate) waiting: AtomicU32,
    /// It sleeps, or is about to, and looks at no other endpoint until it is woken. Swapped to false by whoever wakes
    /// it, so that a burst wakes it once.
    pub(crate) parked: AtomicBool,
    /// It sleeps for good, or is about to: what is sent from now on would not be looked after.
    pub(crate) retired: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) thread: OnceLock<std::thread::JoinHandle<()>>,
    /// Held while it is started; whether that has failed before.
    pub(crate) starting: Mutex<bool>,
    /// Whom to tell if it panics: nobody drives what is in progress from then on. It runs wakers, which are the program's code.
    pub(crate) on_panic: OnceLock<OnPanic>,
}

/// A thread of the application waits and drives.
pub(crate) struct Waiting<'a>(&'a Helper);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Helper {
    pub(crate) fn new() -> Helper {
        Helper {
            waker: OnceLock::new(),
            waiting: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            retired: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            thread: OnceLock::new(),
            starting: Mutex::new(false),
            on_panic: OnceLock::new(),
        }
    }

    pub(crate) fn begin_wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    pub(crate) fn wake(&self) {
        // SeqCst fence: see `run`.
        fence(Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst) {
            self.end_sleep();
        }
    }

    /// For the one that starts the thread, before it does.
    pub(crate) fn make_waker(&self) -> std::io::Result<()> {
        if self.waker.get().is_none() {
            // It is empty: the thread is started by one at a time.
            let _ = self.waker.set(Waker::new()?);
        }
        Ok(())
    }

    /// Ends the thread's sleep, if it was ever started.
    pub(crate) fn end_sleep(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}
