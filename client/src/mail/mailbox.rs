//! What a rank keeps of its mail.

use std::collections::VecDeque;

use longarm_shm::sync::{AtomicBool, AtomicUsize};
use parking_lot::Mutex;

use super::arrivals::Arrivals;
use super::message::{ActiveMessage, Dispatch};

/// The mailbox of a rank.
pub struct Mail {
    pub(super) inbox: Mutex<Arrivals>,
    /// How many letters are in the table of `inbox`. Written under its lock; for threads that look without it.
    pub(super) kept: AtomicUsize,
    /// A rank is in the table of broken ones of `inbox`.
    pub(super) any_broken: AtomicBool,
    /// Held while one message is pushed, so that its cells stay together.
    pub(super) outbox: Mutex<()>,
    /// Active messages that have arrived and not been run.
    pub(super) waiting: AtomicUsize,
    pub(super) queue: Mutex<VecDeque<Option<ActiveMessage>>>,
    pub(super) dispatching: Mutex<()>,
    pub(super) dispatch: Mutex<Option<Dispatch>>,
    /// A thread runs active messages and does nothing else. A flag alone.
    pub(super) attended: AtomicBool,
}

impl Mail {
    pub(crate) fn new() -> Mail {
        Mail {
            inbox: Mutex::new(Arrivals::default()),
            kept: AtomicUsize::new(0),
            any_broken: AtomicBool::new(false),
            outbox: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
            dispatching: Mutex::new(()),
            dispatch: Mutex::new(None),
            attended: AtomicBool::new(false),
        }
    }
}
