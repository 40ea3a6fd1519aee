//! Where the members of a group meet that share this node: a sync area of the node's segment.
//!
//! While a group is made each member claims an area and tells the others of it, together with what makes the group. Then all know all claims, so
//! nobody has to be asked: on each node the area is that of the first member there. The other claims are withdrawn. Where the first one had
//! found none, because there are many groups, the members meet by messages.

use longarm_client::FlagBarriers;
use longarm_memory::RegionMut;
use longarm_proto::Rank;
use longarm_shm::sync_area::{ClaimedArea, SyncArea};

use crate::inner::Inner;

/// See the module. Dropped with the group.
pub(crate) struct GroupArea {
    pub(crate) barriers: FlagBarriers,
    /// Let go of behind what meets there.
    area: SyncArea,
}

/// What a member claims while a group is made.
pub(crate) struct Claim(Option<ClaimedArea>);

impl Claim {
    /// For a member that will be in no group.
    pub(crate) const NONE: Claim = Claim(None);

    pub(crate) fn new(inner: &Inner) -> Claim {
        Claim(inner.client.segment().claim_sync_area())
    }

    /// What the others are told: 0 if there was none, else one more than its number.
    pub(crate) fn word(&self) -> u64 {
        self.0.as_ref().map_or(0, |claimed| 1 + u64::from(claimed.number()))
    }

    /// The group is not made, and others may have been told.
    pub(crate) fn give_up(self) {
        if let Some(claimed) = self.0 {
            claimed.give_up();
        }
    }

    /// The area of the group of these ranks, who have told these words.
    pub(crate) fn settle(self, inner: &Inner, told: &[(Rank, u64)]) -> Option<GroupArea> {
        let layout = inner.client.layout();
        let is_here = |(rank, _): &&(Rank, u64)| layout.node_of(*rank) == layout.my_node();
        let (ranks, words): (Vec<Rank>, Vec<u64>) = told.iter().filter(is_here).copied().unzip();
        let me = ranks.iter().position(|rank| *rank == inner.me()).expect("this rank is a member") as u32;
        let number = words[0].checked_sub(1).filter(|_| ranks.len() > 1)?;
        let area = if me == 0 {
            self.0?.share(ranks.len() as u32)
        } else {
            inner.client.segment().sync_area(u32::try_from(number).ok()?, me)?
        };
        let barriers = FlagBarriers::of_group(&area, ranks.into(), me);
        Some(GroupArea { barriers, area })
    }
}

impl GroupArea {
    /// Where a member, by its place among those on this node, lays something out for a barrier.
    pub(crate) fn slot(&self, place: u32, barrier: u64) -> RegionMut<'_> {
        self.area.slot(place, barrier)
    }
}
