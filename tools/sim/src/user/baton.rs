//! The right to run, which one thread of a run has at a time.

use parking_lot::{Condvar, Mutex};

/// Where a thread waits for the right to run.
#[derive(Default)]
pub(super) struct Baton {
    is_here: Mutex<bool>,
    given: Condvar,
}

impl Baton {
    /// Gives the thread that waits here the right to run. Whoever gives it has it no more.
    pub(super) fn give(&self) {
        *self.is_here.lock() = true;
        self.given.notify_one();
    }

    /// Waits for it.
    pub(super) fn wait(&self) {
        let mut is_here = self.is_here.lock();
        while !std::mem::replace(&mut *is_here, false) {
            self.given.wait(&mut is_here);
        }
    }
}
