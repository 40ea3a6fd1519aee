//! How the ranks of a node meet: in shared memory, without messages.

use std::sync::Arc;

use longarm_proto::Rank;
use longarm_shm::flag_barrier::Member;
use longarm_shm::{NodeBoard, NodeSegment};
use parking_lot::Mutex;

use crate::local::layout::Layout;

/// This rank among those of its node.
pub(crate) struct FlagBarriers {
    /// Locked for a whole barrier, or for all that one collective needs: threads of a rank come one after the other, in the order in which they
    /// call, which the program has to make the same on all ranks.
    pub(crate) member: Mutex<Member<NodeBoard>>,
    /// Whether all ranks of the world are on this node, in their order.
    pub(crate) all_are_here: bool,
}

impl FlagBarriers {
    pub(crate) fn new(segment: &Arc<NodeSegment>, layout: &Layout) -> FlagBarriers {
        let me = layout.local_of(layout.me()) as usize;
        let size = layout.ranks_of(layout.my_node()).len();
        let all_are_here = (0..layout.rank_count())
            .all(|rank| layout.node_of(Rank(rank)) == layout.my_node() && layout.local_of(Rank(rank)) == rank);
        FlagBarriers { member: Mutex::new(Member::new(segment.board(), size, me, 0)), all_are_here }
    }
}
