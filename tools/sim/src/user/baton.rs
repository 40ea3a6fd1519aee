//! The right to run, which one thread of a run has at a time.

use longarm_shm::eventcount::{Eventcount, EventcountWord, KernelFutex};
use longarm_shm::sync::{AtomicU32, Ordering};

/// Where a thread waits for the right to run: an eventcount, whose futex is a shared one. The system finds a sleeper there in a hash of the whole
/// machine; for futexes of one process newer kernels keep few lists, too few for 100,000 threads.
#[derive(Default)]
pub(super) struct Baton {
    given: EventcountWord,
    /// How often it was given and taken.
    taken: AtomicU32,
}

impl Baton {
    fn eventcount(&self) -> Eventcount<'_> {
        Eventcount::with_futex(&self.given, KernelFutex::default())
    }

    /// Gives the thread that waits here the right to run. Whoever gives it has it no more.
    pub(super) fn give(&self) {
        self.eventcount().notify();
    }

    /// Waits for it. One thread does at a time.
    pub(super) fn wait(&self) {
        // Relaxed: it is the waiter's own.
        let taken = self.taken.load(Ordering::Relaxed);
        while self.eventcount().sequence() == taken {
            self.eventcount().sleep(taken, None);
        }
        self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
    }
}
