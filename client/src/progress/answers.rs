//! Answers that come as messages, and that nobody waits for in a call: while one is due, the node that it comes from is watched as if
//! a thread slept for it, and the keeper of the questions is told when connections are lost.

use std::sync::{Arc, OnceLock};

use longarm_proto::NodeId;
use longarm_shm::sync::{AtomicU32, Ordering};

/// Told that connections may have been lost.
pub(crate) type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// Counters.
const SLOTS: usize = 64;

fn slot_of(node: NodeId) -> usize {
    node.0 as usize % SLOTS
}

/// See the module.
pub(crate) struct Answers {
    /// How many are due. Nodes whose numbers have the same remainder share a counter, so that a process needs none for each node of a large
    /// job; it may watch more nodes than it must.
    due: Arc<[AtomicU32; SLOTS]>,
    on_loss: OnceLock<OnLoss>,
}

impl Answers {
    pub(crate) fn new() -> Answers {
        Answers { due: Arc::new([const { AtomicU32::new(0) }; SLOTS]), on_loss: OnceLock::new() }
    }

    /// Whether one is due from this node.
    pub(crate) fn are_due_from(&self, node: NodeId) -> bool {
        // Relaxed: who enters one wakes the helper after.
        self.due[slot_of(node)].load(Ordering::Relaxed) > 0
    }

    /// Whether one is due from any node.
    pub(crate) fn are_any_due(&self) -> bool {
        // Relaxed: as above.
        self.due.iter().any(|due| due.load(Ordering::Relaxed) > 0)
    }

    /// One more is due from this node.
    pub(crate) fn enter(&self, node: NodeId) -> AnswerDue {
        self.due[slot_of(node)].fetch_add(1, Ordering::Relaxed);
        AnswerDue { due: Arc::clone(&self.due), slot: slot_of(node) }
    }

    /// Whom to tell. The first one is kept.
    pub(crate) fn tell(&self, on_loss: OnLoss) {
        let _ = self.on_loss.set(on_loss);
    }

    pub(crate) fn tell_of_loss(&self) {
        if let Some(on_loss) = self.on_loss.get() {
            on_loss();
        }
    }
}

/// An answer that is due, until this is dropped.
pub struct AnswerDue {
    due: Arc<[AtomicU32; SLOTS]>,
    slot: usize,
}

impl Drop for AnswerDue {
    fn drop(&mut self) {
        self.due[self.slot].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_due_from_their_nodes_until_all_are_dropped() {
        let answers = Answers::new();
        let (first, second) = (answers.enter(NodeId(1)), answers.enter(NodeId(1)));
        drop(first);
        assert!(answers.are_due_from(NodeId(1)) && !answers.are_due_from(NodeId(0)));
        drop(second);
        assert!(!answers.are_due_from(NodeId(1)));
        let sharing = answers.enter(NodeId(1 + SLOTS as u32));
        assert!(answers.are_due_from(NodeId(1)) && !answers.are_due_from(NodeId(2)));
        drop(sharing);
        assert!(!answers.are_due_from(NodeId(1)));
    }
}
