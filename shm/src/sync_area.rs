//! Sync areas of a node's segment: where the members of a group that share the node meet by flag barriers, and lay out for each other what does
//! not fit into a line.
//!
//! ```text
//!   segment:  … state of area 0 │ state of area 1 │ … ║ area 0 ║ area 1 ║ …
//!   area:     lines of each place │ two slots of each place: of even barriers, and of odd ones
//! ```
//!
//! One member claims an area while the group is made, and tells the others its number together with what makes the group. When all of them have let
//! go of it, it is another group's (`holders.rs`). The numbers of its barriers go on from there, so that nobody takes a line of the group before for
//! one of its own.
//!
//! PAIR base: each member raises the base to its last barrier before it lets go (PAIR free of the holders), and whoever claims the area then reads it there. The
//! others read it when they have been told the area's number, by a message or a line, which orders that.
//!
//! If a process dies, it never lets go of its areas, and they are not used again.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use longarm_memory::RegionMut;

use crate::area_state::AreaState;
use crate::flag_barrier::Lines;
use crate::found::NodeBoard;
use crate::layout::NodeSegment;
use crate::parts::{SLOT_BYTES, SYNC_AREAS};
use crate::sync::Ordering;

/// An area of which nobody has been told: dropped, it is free again.
#[derive(Debug)]
#[must_use = "an area that is dropped is free again"]
pub struct ClaimedArea {
    segment: Arc<NodeSegment>,
    number: u32,
}

/// An area as one member of its group has it. Dropped, it is let go of.
#[derive(Debug)]
pub struct SyncArea {
    segment: Arc<NodeSegment>,
    number: u32,
    /// The place of this member.
    place: u32,
}

impl NodeSegment {
    /// Claims an area for a group that is being made. `None`: there is none left.
    pub fn claim_sync_area(self: &Arc<Self>) -> Option<ClaimedArea> {
        let number =
            (0..).zip(self.area_states()).find_map(|(number, state)| state.holders.claim().then_some(number))?;
        Some(ClaimedArea { segment: Arc::clone(self), number })
    }

    /// The area with this number, which another member has claimed and told of; `place`: this member's among those of the node. `None`: there
    /// is no such area, or no such place.
    pub fn sync_area(self: &Arc<Self>, number: u32, place: u32) -> Option<SyncArea> {
        let is_there = number < SYNC_AREAS && place < self.local_ranks();
        is_there.then(|| SyncArea { segment: Arc::clone(self), number, place })
    }

    fn area_states(&self) -> &[AreaState] {
        self.part(self.layout.area_states, SYNC_AREAS)
    }

    /// Of each place of a sync area.
    fn area_lines(&self, area: u32) -> &[Lines] {
        assert!(area < SYNC_AREAS);
        self.part(self.layout.areas + u64::from(area) * self.layout.areas_stride, self.layout.local_ranks)
    }

    /// One of the two slots of a place of a sync area.
    fn area_slot(&self, area: u32, place: u32, which: u64) -> RegionMut<'_> {
        assert!(area < SYNC_AREAS && place < self.layout.local_ranks && which < 2);
        let slots = self.layout.areas + u64::from(area) * self.layout.areas_stride + self.layout.slots;
        let start = slots + (u64::from(place) * 2 + which) * SLOT_BYTES as u64;
        self.segment.region_mut(start, SLOT_BYTES as u64).expect("sync areas lie inside the segment")
    }
}

impl ClaimedArea {
    /// What the others are told.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// All `holders` have been told, this one, whose place is 0, among them.
    pub fn share(self, holders: u32) -> SyncArea {
        let claimed = ManuallyDrop::new(self);
        claimed.segment.area_states()[claimed.number as usize].holders.share(holders);
        SyncArea { segment: Arc::clone(&claimed.segment), number: claimed.number, place: 0 }
    }

    /// Somebody may have been told, and nobody knows who: it is nobody's for ever.
    pub fn give_up(self) {
        let _kept = ManuallyDrop::new(self);
    }
}

impl Drop for ClaimedArea {
    fn drop(&mut self) {
        self.segment.area_states()[self.number as usize].holders.withdraw();
    }
}

impl SyncArea {
    /// The lines of the members, by place.
    pub fn board(&self) -> NodeBoard {
        self.segment.board_of(self.lines())
    }

    /// The number of a barrier behind which those of its group begin.
    pub fn base(&self) -> u64 {
        // PAIR base.
        self.state().base.load(Ordering::Relaxed)
    }

    /// What the member at a place lays out for a barrier, before it comes to it; the others read it when it has come. It is
    /// another's two barriers later.
    ///
    /// # Panics
    /// If the node has no such place.
    pub fn slot(&self, place: u32, barrier: u64) -> RegionMut<'_> {
        self.segment.area_slot(self.number, place, barrier % 2)
    }

    fn lines(&self) -> &[Lines] {
        self.segment.area_lines(self.number)
    }

    fn state(&self) -> &AreaState {
        &self.segment.area_states()[self.number as usize]
    }
}

impl Drop for SyncArea {
    fn drop(&mut self) {
        // PAIR base.
        self.state().base.fetch_max(self.lines()[self.place as usize].last(), Ordering::Relaxed);
        self.state().holders.let_go();
    }
}

#[cfg(test)]
mod tests {
    use longarm_memory::Region;
    use longarm_proto::JobId;

    use super::*;
    use crate::flag_barrier::Member;

    #[test]
    fn an_area_is_another_groups_when_all_have_let_go_and_its_numbers_go_on() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 4, 3).unwrap());
        for round in 0..3 {
            let claimed = segment.claim_sync_area().unwrap();
            assert_eq!(claimed.number(), 0, "the one of the group before");
            let [early, late] = [1, 2].map(|place| segment.sync_area(0, place).unwrap());
            let members = [0, 1, 2].map(|place| Member::new(late.board(), 3, place, late.base()));
            for barrier in 1..=10 {
                members.iter().for_each(|member| {
                    // All have come to all before.
                    assert!(member.owed().is_none_or(|owed| member.have_all_come(&mut 0, owed)));
                    assert_eq!(member.come(&[barrier]), 10 * round + barrier);
                });
            }
            drop(early);
            let mine = claimed.share(3);
            assert_ne!(segment.claim_sync_area().unwrap().number(), 0, "two have it");
            drop(mine);
            assert_ne!(segment.claim_sync_area().unwrap().number(), 0, "one has it");
            drop((members, late));
        }
    }

    #[test]
    fn areas_that_nobody_was_told_of_are_free_and_those_that_somebody_may_know_are_not() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 2, 2).unwrap());
        let all: Vec<_> = (0..SYNC_AREAS).map(|_| segment.claim_sync_area().unwrap()).collect();
        let mut numbers: Vec<u32> = all.iter().map(ClaimedArea::number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..SYNC_AREAS) && segment.claim_sync_area().is_none());
        drop(all);
        segment.claim_sync_area().unwrap().give_up();
        assert_eq!(segment.claim_sync_area().unwrap().number(), 1);
        assert!(segment.sync_area(SYNC_AREAS, 0).is_none() && segment.sync_area(0, 2).is_none());
    }

    #[test]
    fn slots_lie_apart_and_all_inside() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 3, 3).unwrap());
        let slots = || (0..SYNC_AREAS).flat_map(|number| (0..6).map(move |slot| (number, slot / 2, slot % 2)));
        let at = |number: u32, place: u32, barrier: u32| {
            let area = ManuallyDrop::new(segment.sync_area(number, 0).unwrap());
            let slot = area.slot(place, barrier.into());
            assert_eq!(slot.len(), SLOT_BYTES);
            slot.copy_from(Region::from_slice(&[(number * 6 + place * 2 + barrier) as u8 + 1; SLOT_BYTES]));
        };
        slots().for_each(|(number, place, barrier)| at(number, place, barrier));
        for (number, place, barrier) in slots() {
            let area = ManuallyDrop::new(segment.sync_area(number, 0).unwrap());
            let mut found = [0; SLOT_BYTES];
            RegionMut::from_slice(&mut found).copy_from(area.slot(place, barrier.into()).as_region());
            assert_eq!(found, [(number * 6 + place * 2 + barrier) as u8 + 1; SLOT_BYTES]);
            assert!(area.lines().iter().all(|lines| lines.last() == 0));
        }
    }
}
