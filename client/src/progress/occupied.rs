//! The nodes towards which something is left to be done. Waiting threads look at their connections again and again, and at no others: of hundreds
//! that are open most are at rest, and each look would fetch a line of memory for each of them.
//!
//! PAIR occupied: a thread that finds a node sees what its endpoint has published before, and a thread that sees what the endpoint publishes next
//! finds the node.

use longarm_proto::NodeId;
use longarm_shm::sync::{AtomicBool, AtomicU64, Ordering};

/// See the module. A node is in it from before its endpoint has something to do until that is known to be done.
pub(crate) struct OccupiedNodes {
    /// A bit for each node.
    words: Box<[AtomicU64]>,
    /// Some connection was lost, occupied or not, although nobody knows of a death. That stays.
    any_lost: AtomicBool,
}

impl OccupiedNodes {
    /// Of a job with so many nodes: none of them yet.
    pub(crate) fn new(nodes: u32) -> OccupiedNodes {
        let words = (0..nodes.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0));
        OccupiedNodes { words: words.collect(), any_lost: AtomicBool::new(false) }
    }

    /// By who holds the endpoint of a connection that is lost. Whoever sleeps has to be woken by the caller afterwards.
    pub(crate) fn note_loss(&self) {
        // Relaxed: the endpoint says how, and who is woken after this sees it.
        self.any_lost.store(true, Ordering::Relaxed);
    }

    /// Whether that has ever happened. For loops that wait: of hundreds of connections each look would fetch a line of memory for each.
    pub(crate) fn any_lost(&self) -> bool {
        self.any_lost.load(Ordering::Relaxed)
    }

    /// By who holds the node's endpoint, and is about to say that it has something to do.
    pub(crate) fn enter(&self, node: NodeId) {
        let (word, bit) = self.place(node);
        // PAIR occupied.
        word.fetch_or(bit, Ordering::Release);
    }

    /// By who holds the node's endpoint, and has said that it has nothing to do.
    pub(crate) fn leave(&self, node: NodeId) {
        let (word, bit) = self.place(node);
        // PAIR occupied.
        word.fetch_and(!bit, Ordering::Release);
    }

    /// All of them, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> {
        (0..).zip(&self.words).flat_map(|(number, word)| {
            // PAIR occupied.
            let mut left = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = (left > 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(NodeId(number * u64::BITS + bit))
            })
        })
    }

    fn place(&self, node: NodeId) -> (&AtomicU64, u64) {
        (&self.words[(node.0 / u64::BITS) as usize], 1 << (node.0 % u64::BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_entered_and_not_left_is_found_once_and_in_order() {
        let occupied = OccupiedNodes::new(131);
        assert_eq!(occupied.iter().next(), None);
        for node in [130, 0, 63, 64, 7, 63] {
            occupied.enter(NodeId(node));
        }
        assert!(occupied.iter().eq([0, 7, 63, 64, 130].map(NodeId)));
        for node in [63, 130, 1] {
            occupied.leave(NodeId(node));
        }
        assert!(occupied.iter().eq([0, 7, 64].map(NodeId)));
    }

    #[test]
    fn threads_that_enter_and_leave_others_of_the_same_word_do_not_disturb_each_other() {
        let occupied = OccupiedNodes::new(64);
        std::thread::scope(|scope| {
            for first in 0..4 {
                let occupied = &occupied;
                scope.spawn(move || {
                    for round in 0..1000 {
                        for node in (first..64).step_by(4) {
                            occupied.enter(NodeId(node));
                            assert!(occupied.iter().any(|found| found == NodeId(node)));
                            if round < 999 {
                                occupied.leave(NodeId(node));
                            }
                        }
                    }
                });
            }
        });
        assert!(occupied.iter().eq((0..64).map(NodeId)));
    }
}
