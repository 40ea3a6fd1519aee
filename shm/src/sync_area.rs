//! Sync areas of a node's segment: where the members of a group that share the node meet by flag barriers, and lay out for each other what does
//! not fit into a line.
//!
//! ```text
//!   segment:  … state of area 0 │ state of area 1 │ … ║ area 0 ║ area 1 ║ …
//!   area:     lines of each place │ two slots of each place: of even barriers, and of odd ones
//! ```
//!
//! A member claims an area while the group is made, and tells the others of it together with what makes the group. When all of them have let
//! go of it, it is another group's (`holders.rs`). The numbers of its barriers go on from a base, the last one of the group before, so that nobody takes a line of that group for
//! one of its own.
//!
//! PAIR base: each member raises the base to its last barrier before it lets go (PAIR free of the holders), and whoever claims the area then reads it there. It
//! tells the others: when they hear of the area, one of them may already have come to a barrier, heard of a death there, and let go.
//!
//! If a process dies, it never lets go of its areas, and they are not used again. A child of a fork has no hold: those of its parent stay the parent's.

use std::sync::Arc;

use longarm_memory::RegionMut;

use crate::area_state::AreaState;
use crate::flag_barrier::Lines;
use crate::found::NodeBoard;
use crate::layout::NodeSegment;
use crate::parts::{SLOT_BYTES, SYNC_AREAS};
use crate::sync::Ordering;

/// An area that one member has claimed. Dropped, it is nobody's for ever: somebody may have been told of it who counts on it.
#[derive(Debug)]
#[must_use = "an area that is neither shared nor withdrawn is nobody's for ever"]
pub struct ClaimedArea {
    segment: Arc<NodeSegment>,
    number: u32,
    base: u64,
}

/// An area as one member of its group has it. Dropped, it is let go of.
#[derive(Debug)]
pub struct SyncArea {
    segment: Arc<NodeSegment>,
    number: u32,
    base: u64,
    /// The place of this member.
    place: u32,
    /// Its process.
    process: u32,
}

/// Bits of what is told of an area that say which one it is, from 1 on. The others are its base.
const NUMBER_BITS: u32 = 16;
const _: () = assert!(SYNC_AREAS < 1 << NUMBER_BITS);

impl NodeSegment {
    /// Claims an area for a group that is being made. `None`: there is none left.
    pub fn claim_sync_area(self: &Arc<Self>) -> Option<ClaimedArea> {
        let number =
            (0..).zip(self.area_states()).find_map(|(number, state)| state.holders.claim().then_some(number))?;
        // PAIR base.
        let base = self.area_states()[number as usize].base.load(Ordering::Relaxed);
        Some(ClaimedArea { segment: Arc::clone(self), number, base })
    }

    /// A hold on an area that another member has claimed and shares with this one; `told`: its [`ClaimedArea::word`]; `place`: this member's among those of the
    /// group on the node. `None`: there is no such area, or no such place.
    pub fn hold_sync_area(self: &Arc<Self>, told: u64, place: u32) -> Option<SyncArea> {
        let number = (told as u32 & ((1 << NUMBER_BITS) - 1)).checked_sub(1)?;
        let is_there = number < SYNC_AREAS && place < self.local_ranks();
        let (base, process) = (told >> NUMBER_BITS, std::process::id());
        is_there.then(|| SyncArea { segment: Arc::clone(self), number, base, place, process })
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
    /// What the others are told. Never 0.
    pub fn word(&self) -> u64 {
        self.base << NUMBER_BITS | u64::from(self.number + 1)
    }

    /// All `holders` know that the area is theirs, and hold it ([`NodeSegment::hold_sync_area`]). This one may be one of them.
    pub fn share(self, holders: u32) {
        self.segment.area_states()[self.number as usize].holders.share(holders);
    }

    /// Whoever was told of it knows that it is not theirs: another group's from now on.
    pub fn withdraw(self) {
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
        self.base
    }

    /// What the member at a place lays out for a barrier, before it comes to it; the others read it when it has come. It is
    /// another barrier's two barriers later.
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
        if self.process != std::process::id() {
            return;
        }
        // PAIR base.
        self.state().base.fetch_max(self.lines()[self.place as usize].last(), Ordering::Relaxed);
        self.state().holders.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use longarm_memory::Region;
    use longarm_proto::JobId;

    use super::*;
    use crate::flag_barrier::Member;

    fn number_of_next(segment: &Arc<NodeSegment>) -> u32 {
        let claimed = segment.claim_sync_area().unwrap();
        let number = claimed.number;
        claimed.withdraw();
        number
    }

    #[test]
    fn an_area_is_another_groups_when_all_have_let_go_and_its_numbers_go_on() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 4, 3).unwrap());
        for round in 0..3 {
            let claimed = segment.claim_sync_area().unwrap();
            assert_eq!(claimed.number, 0, "the one of the group before");
            let [early, late] = [1, 2].map(|place| segment.hold_sync_area(claimed.word(), place).unwrap());
            let members = [0, 1, 2].map(|place| Member::new(late.board(), 3, place, late.base()));
            for barrier in 1..=10 {
                members.iter().for_each(|member| {
                    // All have come to all before.
                    assert!(member.owed().is_none_or(|owed| member.have_all_come(&mut 0, owed)));
                    assert_eq!(member.come(&[barrier]), 10 * round + barrier);
                });
            }
            drop(early);
            let mine = segment.hold_sync_area(claimed.word(), 0).unwrap();
            claimed.share(3);
            assert_ne!(number_of_next(&segment), 0, "two have it");
            drop(mine);
            assert_ne!(number_of_next(&segment), 0, "one has it");
            drop((members, late));
        }
    }

    #[test]
    fn a_member_that_goes_before_another_has_heard_of_the_area_changes_nothing_for_it() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 2, 2).unwrap());
        let claimed = segment.claim_sync_area().unwrap();
        let told = claimed.word();
        claimed.share(2);
        let first = segment.hold_sync_area(told, 0).unwrap();
        // It hears of a death, and waits for nobody.
        assert_eq!(Member::new(first.board(), 2, 0, first.base()).come(&[7]), 1);
        drop(first);
        let second = segment.hold_sync_area(told, 1).unwrap();
        assert_eq!(second.base(), 0);
        assert_ne!(number_of_next(&segment), 0);
        drop(second);
        let next = segment.claim_sync_area().unwrap();
        assert_eq!((next.number, next.base), (0, 1));
    }

    #[test]
    fn areas_that_are_withdrawn_are_free_and_those_that_somebody_may_count_on_are_not() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 2, 2).unwrap());
        let all: Vec<_> = (0..SYNC_AREAS).map(|_| segment.claim_sync_area().unwrap()).collect();
        let mut numbers: Vec<u32> = all.iter().map(|claimed| claimed.number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..SYNC_AREAS) && segment.claim_sync_area().is_none());
        all.into_iter().for_each(ClaimedArea::withdraw);
        drop(segment.claim_sync_area().unwrap());
        assert_eq!(number_of_next(&segment), 1);
        assert!(
            segment.hold_sync_area(u64::from(SYNC_AREAS) + 1, 0).is_none() && segment.hold_sync_area(1, 2).is_none()
        );
    }

    #[test]
    fn slots_lie_apart_and_all_inside() {
        let segment = Arc::new(NodeSegment::create(JobId(1), 3, 3).unwrap());
        let slots = || (0..SYNC_AREAS).flat_map(|number| (0..6).map(move |slot| (number, slot / 2, slot % 2)));
        let at = |number: u32, place: u32, barrier: u32| {
            let area = ManuallyDrop::new(segment.hold_sync_area(u64::from(number) + 1, 0).unwrap());
            let slot = area.slot(place, barrier.into());
            assert_eq!(slot.len(), SLOT_BYTES);
            slot.copy_from(Region::from_slice(&[(number * 6 + place * 2 + barrier) as u8 + 1; SLOT_BYTES]));
        };
        slots().for_each(|(number, place, barrier)| at(number, place, barrier));
        for (number, place, barrier) in slots() {
            let area = ManuallyDrop::new(segment.hold_sync_area(u64::from(number) + 1, 0).unwrap());
            let mut found = [0; SLOT_BYTES];
            RegionMut::from_slice(&mut found).copy_from(area.slot(place, barrier.into()).as_region());
            assert_eq!(found, [(number * 6 + place * 2 + barrier) as u8 + 1; SLOT_BYTES]);
            assert!(area.lines().iter().all(|lines| lines.last() == 0));
        }
    }
}
