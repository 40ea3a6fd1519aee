//! Threads of this process that sleep on descriptors.

use std::sync::Arc;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicU32, Ordering, fence};
use parking_lot::Mutex;

thread_local! {
    static MY_WAKER: Option<Arc<Waker>> = Waker::new().ok().map(Arc::new);
}

/// What wakes the calling thread. `None` where the thread is ending and has given it back already, as in what a program does at
/// its exit.
pub(crate) fn my_waker() -> Option<Arc<Waker>> {
    MY_WAKER.try_with(Clone::clone).ok().flatten()
}

/// They are entered here. Whoever completes something wakes them.
pub(crate) struct Sleepers {
    count: AtomicU32,
    wakers: Mutex<Vec<Arc<Waker>>>,
}

impl Sleepers {
    pub(crate) fn new() -> Sleepers {
        Sleepers { count: AtomicU32::new(0), wakers: Mutex::new(Vec::new()) }
    }

    /// Call after something was completed.
    #[inline]
    pub(crate) fn completed(&self) {
        // SeqCst fence: the completion before it and the count after it, against the sleeper's count before and
        // its look at the completion after. Less lets both miss each other.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    pub(crate) fn wake_all(&self) {
        for waker in self.wakers.lock().iter() {
            waker.wake();
        }
    }

    pub(crate) fn enter(&self, waker: &Arc<Waker>) {
        self.wakers.lock().push(Arc::clone(waker));
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// `rung`: the waker may have been rung. One that is rung after all shortens the next sleep, no more.
    pub(crate) fn leave(&self, waker: &Arc<Waker>, rung: bool) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        let mut wakers = self.wakers.lock();
        if let Some(at) = wakers.iter().position(|other| Arc::ptr_eq(other, waker)) {
            wakers.swap_remove(at);
        }
        if rung {
            waker.clear();
        }
    }
}
