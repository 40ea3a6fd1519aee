//! What one operation waits for: a number of parts, the first failure among them, a value.

use std::sync::{Arc, OnceLock};
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

/// A part of an operation that is not done. Dropping it ends it.
///
/// Whoever has one can add others ([`CompletionPart::another`]): an operation that is complete gets no more.
///
/// ```
/// use longarm_client::Completion;
///
/// let (completion, first) = Completion::begin();
/// let second = first.another();
/// drop(first);
/// assert!(!completion.is_complete());
/// second.done_with(7);
/// assert_eq!((completion.is_complete(), completion.value()), (true, 7));
/// ```
///
/// Each is done once,
///
/// ```compile_fail,E0382
/// use longarm_client::Completion;
///
/// let (completion, part) = Completion::begin();
/// part.done();
/// part.done_with(7);
/// ```
///
/// and what is done adds no other:
///
/// ```compile_fail,E0382
/// use longarm_client::Completion;
///
/// let (completion, part) = Completion::begin();
/// part.done();
/// let late = part.another();
/// ```
///
/// Who only waits for an operation cannot end it, nor add to it:
///
/// ```compile_fail,E0599
/// use longarm_client::Completion;
///
/// fn end(completion: &Completion) {
///     completion.done();
/// }
/// ```
///
/// ```compile_fail,E0423
/// use longarm_client::{Completion, CompletionPart};
///
/// let (completion, part) = Completion::begin();
/// drop(part);
/// let another = CompletionPart(completion);
/// ```
#[derive(Debug)]
#[must_use = "a part that is dropped is done"]
pub struct CompletionPart(Arc<Completion>);

impl CompletionPart {
    /// What it is a part of.
    pub fn completion(&self) -> &Arc<Completion> {
        &self.0
    }

    /// One more part of the same operation.
    pub fn another(&self) -> CompletionPart {
        // Relaxed: ours is not done, so the count is not zero.
        self.0.parts.fetch_add(1, Ordering::Relaxed);
        CompletionPart(Arc::clone(&self.0))
    }

    /// It is done. What it was a part of may not be.
    pub fn done(self) -> Arc<Completion> {
        Arc::clone(&self.0)
    }

    /// It is done and has brought a value.
    pub fn done_with(self, value: u64) {
        self.0.value.store(value, Ordering::Relaxed);
    }

    /// It has failed; the first failure is kept.
    pub fn failed(self, outcome: Outcome) {
        let _ = self.0.failure.set(outcome);
    }
}

impl Drop for CompletionPart {
    fn drop(&mut self) {
        // PAIR part-done: who sees zero sees what every part wrote.
        let before = self.0.parts.fetch_sub(1, Ordering::AcqRel);
        if before == 1
            && let Some(waker) = self.0.waker.take()
        {
            wakers::wake(waker);
        }
    }
}

impl Completion {
    /// An operation that begins, and its first part: the issuer's, who ends it once all others are added.
    pub fn begin() -> (Arc<Completion>, CompletionPart) {
        let completion = Arc::new(Completion {
            parts: AtomicU32::new(1),
            value: AtomicU64::new(0),
            failure: OnceLock::new(),
            waker: AtomicWaker::new(),
        });
        (Arc::clone(&completion), CompletionPart(completion))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_complete_when_the_last_of_its_parts_is() {
        let (completion, first) = Completion::begin();
        let (second, third) = (first.another(), first.another());
        second.failed(Outcome::Lost(LostHow::Finalized));
        assert!(!completion.is_complete());
        let fourth = third.another();
        third.done_with(7);
        drop(fourth);
        assert!(!completion.is_complete(), "the issuer may still add parts");
        assert!(Arc::ptr_eq(&first.done(), &completion));
        assert!(completion.is_complete());
        assert_eq!((completion.value(), completion.failure()), (7, Some(&Outcome::Lost(LostHow::Finalized))));
    }
}
