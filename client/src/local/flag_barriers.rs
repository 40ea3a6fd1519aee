//! How the ranks of a world that is one node meet: in shared memory, without messages.

use std::sync::Arc;

use longarm_proto::Rank;
use longarm_shm::flag_barrier::Member;
use longarm_shm::{NodeBoard, NodeSegment};
use parking_lot::Mutex;

use crate::local::layout::Layout;

/// This rank among those who meet. Locked for a whole barrier: a thread that calls a second collective meanwhile comes to
/// the next barrier.
pub(crate) struct FlagBarriers(pub(crate) Mutex<Member<NodeBoard>>);

impl FlagBarriers {
    /// `None`: the world has several nodes.
    pub(crate) fn new(segment: &Arc<NodeSegment>, layout: &Layout) -> Option<FlagBarriers> {
        let (me, size) = (layout.me().0, layout.rank_count());
        let is_one_node = layout.node_count() == 1 && (0..size).all(|rank| layout.local_of(Rank(rank)) == rank);
        is_one_node.then(|| FlagBarriers(Mutex::new(Member::new(segment.board(), size as usize, me as usize, 0))))
    }
}
