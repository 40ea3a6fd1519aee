//! The intervals that are known, in order, in a list that never grows.
//!
//! A sorted list and not a tree, because whoever holds the lock around it must not call the allocator (the head of
//! `cache` says why): insertion moves what lies behind, within the room made at the beginning.

use std::ops::Range;

use crate::extent::Extent;

struct Slot<T> {
    extent: Extent,
    last_use: u64,
    value: T,
}

/// Extents that never overlap, each with a value and the moment of its last use.
pub(crate) struct IntervalMap<T> {
    slots: Vec<Slot<T>>,
    /// Counts uses; the moment that orders them.
    uses: u64,
    /// Where the last search ended.
    last_found: usize,
}

impl<T> IntervalMap<T> {
    /// With room for so many, for good.
    pub(crate) fn new(slots_max: usize) -> Self {
        IntervalMap { slots: Vec::with_capacity(slots_max), uses: 0, last_found: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The one that covers all of it, which counts as used now.
    pub(crate) fn find(&mut self, wanted: Extent) -> Option<&T> {
        let known = self.slots.get(self.last_found).is_some_and(|slot| slot.extent.covers(wanted));
        if !known {
            let behind = self.slots.partition_point(|slot| slot.extent.start <= wanted.start);
            let at = behind.checked_sub(1)?;
            if !self.slots[at].extent.covers(wanted) {
                return None;
            }
            self.last_found = at;
        }
        self.uses += 1;
        let slot = &mut self.slots[self.last_found];
        slot.last_use = self.uses;
        Some(&slot.value)
    }

    /// Which ones share a byte with this.
    pub(crate) fn overlapping(&self, extent: Extent) -> Range<usize> {
        let first = self.slots.partition_point(|slot| slot.extent.end <= extent.start);
        let behind = self.slots.partition_point(|slot| slot.extent.start < extent.end);
        first..behind.max(first)
    }

    /// The one that ends where this begins, and the one that begins where it ends.
    pub(crate) fn touching(&self, extent: Extent) -> [Option<Extent>; 2] {
        let among = self.overlapping(extent);
        let before = among.start.checked_sub(1).map(|at| self.slots[at].extent);
        let after = self.slots.get(among.end).map(|slot| slot.extent);
        [before.filter(|before| before.end == extent.start), after.filter(|after| after.start == extent.end)]
    }

    pub(crate) fn extent(&self, at: usize) -> Extent {
        self.slots[at].extent
    }

    /// Where the one is whose last use lies furthest back, of those that may go.
    pub(crate) fn oldest(&self, mut may_go: impl FnMut(&T) -> bool) -> Option<usize> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| may_go(&slot.value));
        slots.min_by_key(|(_, slot)| slot.last_use).map(|(at, _)| at)
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, at: usize) -> (Extent, T) {
        let slot = self.slots.remove(at);
        (slot.extent, slot.value)
    }

    /// Puts one in, used now. Nothing that overlaps it is inside, and there is room: the caller has seen to both.
    pub(crate) fn insert(&mut self, extent: Extent, value: T) {
        let among = self.overlapping(extent);
        assert!(among.is_empty() && self.slots.len() < self.slots.capacity());
        self.uses += 1;
        self.last_found = among.start;
        self.slots.insert(among.start, Slot { extent, last_use: self.uses, value });
    }
}
