//! What a client takes from outside: the time, and what its threads do where they would sleep.
//!
//! In a job it is the system's. A simulator of whole jobs puts its own in its place: time is a number there, and who
//! would sleep lets others run.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// What a thread that rests waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RestOn {
    /// That a link can move bytes.
    Links,
    /// The eventcount that is notified of mail.
    Mail,
    /// The eventcount that is notified of windows.
    Windows,
}

/// The time of a client, and what its threads do where they would sleep.
pub trait Time: Send + Sync {
    /// Milliseconds since any fixed moment.
    fn now_ms(&self) -> u64;

    /// Nothing is left to do for now; `timeout` is how long the thread would sleep at most, `None` for as long as it takes.
    /// A simulator lets others run and says true; false: the thread sleeps as the system has it.
    ///
    /// Who rests on an eventcount is counted as its sleeper meanwhile.
    fn rest(&self, on: RestOn, timeout: Option<Duration>) -> bool {
        let _ = (on, timeout);
        false
    }

    /// The calling thread is about to read or write memory of its node, and waits for nothing now. A simulator may let others run first.
    /// Called for windows that are made so ([`crate::ClientWindow::seen_by`]).
    fn touch(&self) {}

    /// Whether time is simulated: no thread is started then; whoever simulates drives what is in progress
    /// ([`crate::Client::poll_progress`]).
    fn is_simulated(&self) -> bool {
        false
    }
}

/// How long a thread that wants a lock lets others run, at first and at most.
const LOCK_NAP: Duration = Duration::from_micros(10);
const LOCK_NAP_MAX: Duration = Duration::from_millis(1);

impl dyn Time {
    /// Takes a lock that threads of this rank hold while they wait in calls. Where time is simulated such a thread goes on only if
    /// this one lets it.
    pub(crate) fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        let mut nap = LOCK_NAP;
        loop {
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
            if !self.rest(RestOn::Links, Some(nap)) {
                return mutex.lock();
            }
            nap = (2 * nap).min(LOCK_NAP_MAX);
        }
    }
}
