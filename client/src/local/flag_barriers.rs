//! Where ranks of this node meet, in shared memory, without messages: all of them, or those of a group.

use std::sync::Arc;

use longarm_memory::RegionMut;
use longarm_proto::Rank;
use longarm_shm::flag_barrier::Member;
use longarm_shm::sync_area::SyncArea;
use longarm_shm::{NodeBoard, NodeSegment};
use parking_lot::Mutex;

use crate::local::layout::Layout;

/// This rank among those that meet.
pub struct FlagBarriers {
    /// Locked for a whole barrier, or for all that one collective needs: threads of a rank come one after the other, in the order in which they
    /// call, which the program has to make the same on all ranks.
    pub(crate) member: Mutex<Member<NodeBoard>>,
    /// By place.
    pub(crate) ranks: Box<[Rank]>,
    /// Of a group, let go of behind all that meets there.
    area: Option<SyncArea>,
}

impl FlagBarriers {
    /// Of all ranks of this node.
    pub(crate) fn of_node(segment: &Arc<NodeSegment>, layout: &Layout) -> FlagBarriers {
        let me = layout.local_of(layout.me()) as usize;
        let ranks: Box<[Rank]> = layout.ranks_of(layout.my_node()).into();
        FlagBarriers { member: Mutex::new(Member::new(segment.board(), ranks.len(), me, 0)), ranks, area: None }
    }

    /// Of the members of a group that share this node, by place; this rank is at place `me`. They have the area for as long as this is.
    ///
    /// # Panics
    /// If there are fewer than `me` + 1.
    pub fn of_group(area: SyncArea, ranks: Box<[Rank]>, me: u32) -> FlagBarriers {
        let member = Member::new(area.board(), ranks.len(), me as usize, area.base());
        FlagBarriers { member: Mutex::new(member), ranks, area: Some(area) }
    }

    /// What a member of the group, by place, lays out for a barrier ([`SyncArea::slot`]). `None`: these are the ranks of the node.
    ///
    /// # Panics
    /// If the node has no such place.
    pub fn slot(&self, place: u32, barrier: u64) -> Option<RegionMut<'_>> {
        self.area.as_ref().map(|area| area.slot(place, barrier))
    }
}
