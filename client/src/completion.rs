//! What one operation waits for: a number of parts, the first failure among them, a value.

use std::sync::OnceLock;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use longarm_proto::Refusal;
use longarm_shm::sync::{AtomicU32, AtomicU64, Ordering};

use crate::error::LostHow;
use crate::wakers;

/// Why a part failed, before it is known which call it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The connection ended.
    Lost(LostHow),
    /// The server said no.
    Refused {
        /// Why.
        refusal: Refusal,
        /// A number that explains it.
        detail: u64,
    },
    /// A put by a device was done, in part, or not at all, and nobody knows any more.
    Doubtful,
    /// A read-modify-write by a device ended without the old value.
    NoOldValue(RmwFate),
}

/// What is known of a read-modify-write by a device whose old value did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmwFate {
    /// It was not begun: no device reaches the word.
    NotBegun,
    /// It was done; the old value was lost with the connection.
    Done,
    /// It was done once or not at all: the target has forgotten the connection.
    Unknown,
}

/// One operation on its way.
///
/// It counts the parts that are not done: frames whose payload still waits in the caller's memory, replies that
/// are due, and one for the issuer while it still adds parts.
#[derive(Debug)]
pub struct Completion {
    parts: AtomicU32,
    value: AtomicU64,
    failure: OnceLock<Outcome>,
    waker: AtomicWaker,
}

impl Completion {
    /// One part: the issuer's, ended by [`Completion::part_done`].
    pub fn new() -> Completion {
        Completion {
            parts: AtomicU32::new(1),
            value: AtomicU64::new(0),
            failure: OnceLock::new(),
            waker: AtomicWaker::new(),
        }
    }

    /// One more part. The caller holds one that is not done.
    pub fn add_part(&self) {
        let grow = |parts: u32| (parts > 0).then(|| parts + 1);
        let grown = self.parts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow);
        assert!(grown.is_ok(), "an operation that is complete gets no more parts");
    }

    /// A part is done.
    pub fn part_done(&self) {
        // PAIR part-done: who sees zero sees what every part wrote.
        let before = self.parts.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "more parts done than there were");
        if before == 1
            && let Some(waker) = self.waker.take()
        {
            wakers::wake(waker);
        }
    }

    /// A part is done and has brought a value.
    pub fn part_done_with(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
        self.part_done();
    }

    /// A part has failed; the first failure is kept.
    pub fn part_failed(&self, outcome: Outcome) {
        let _ = self.failure.set(outcome);
        self.part_done();
    }

    /// Whether all parts are done, failed ones included.
    #[inline]
    pub fn is_complete(&self) -> bool {
        // PAIR part-done.
        self.parts.load(Ordering::Acquire) == 0
    }

    /// The first failure, once complete.
    pub fn failure(&self) -> Option<&Outcome> {
        self.failure.get()
    }

    /// The value that came, once complete.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// For futures: ready once complete, else wakes the task then.
    pub fn poll_complete(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_complete() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if self.is_complete() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Default for Completion {
    fn default() -> Self {
        Completion::new()
    }
}
