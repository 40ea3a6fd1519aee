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
    /// Which collectives of the world come by here.
    pub(crate) reach: Reach,
}

/// Of the collectives of the world, what the ranks of a node do without messages. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// All of it: the world is one node.
    World,
    /// The first rank of each node speaks for the others.
    ByNode,
    /// Nothing: each rank has a node of its own.
    Nobody,
}

impl Reach {
    fn of(layout: &Layout) -> Reach {
        let size = layout.rank_count();
        match layout.node_count() {
            1 if (0..size).all(|rank| layout.local_of(Rank(rank)) == rank) => Reach::World,
            nodes if nodes > 1 && nodes < size => Reach::ByNode,
            _ => Reach::Nobody,
        }
    }
}

impl FlagBarriers {
    pub(crate) fn new(segment: &Arc<NodeSegment>, layout: &Layout) -> FlagBarriers {
        let me = layout.local_of(layout.me()) as usize;
        let size = layout.ranks_of(layout.my_node()).len();
        FlagBarriers { member: Mutex::new(Member::new(segment.board(), size, me, 0)), reach: Reach::of(layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longarm_proto::NodeId;

    #[test]
    fn ranks_meet_where_several_of_them_share_a_node() {
        let reach = |nodes: &[u32]| {
            let nodes: Vec<NodeId> = nodes.iter().map(|node| NodeId(*node)).collect();
            Reach::of(&Layout::new(Rank(0), &nodes))
        };
        assert_eq!([reach(&[0]), reach(&[0, 0, 0])], [Reach::World; 2]);
        assert_eq!([reach(&[0, 0, 1]), reach(&[0, 1, 0, 1])], [Reach::ByNode; 2]);
        assert_eq!(reach(&[0, 1, 2]), Reach::Nobody);
    }
}
