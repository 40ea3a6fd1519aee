//! Sync areas: shared memory in which the members of a team, all of one node, meet and show each other small things.
//!
//! ```text
//!   window at the node's first PE:  │ names of sets │ area 0 │ area 1 │ ...
//!   area:                           │ lines of each PE │ slots of even barriers │ slots of odd ones │
//! ```
//!
//! The areas of longarm's own groups (`shm/src/sync_area.rs`) are others: those are claimed while a group is made, and active sets are made by nobody; they find
//! an area by the set's name.
//!
//! They meet as [`longarm::ffi::flag_barrier`] says. What fits into a line is shown there; what does not, in a slot. A slot is
//! filled again two barriers later; who does that has seen that all have come to the one in between, and so knows that
//! everybody has read what was in it.
//!
//! PAIR come, of the lines: who sees a number sees the slot too, and all that its owner wrote before. Who finds all there soon
//! wakes the sleepers. One whose announcement crosses that may be left asleep, and wakes by itself: to exclude it would take a
//! fence, which costs as much as the barrier. In a job of several nodes, where who waits sleeps soon, there is one. Who
//! waits for all, because its line or slot is to be used again, may still be left asleep by members who come and wake only the one
//! that the barrier is about; it too wakes by itself.
//!
//! PAIR named: a set's name is claimed by compare-exchange (Relaxed is enough: the name is all there is to see).
//!
//! If a PE dies the others wait until longarm says so, and the job ends.

use longarm::ffi::flag_barrier::{Board, Lines, Member, WORDS};
use longarm::ffi::sync::{AtomicU64, Ordering, fence};
use longarm::ffi::{Region, RegionMut};
use longarm::{Window, World};

use crate::boundary::{end, or_end};
use crate::process::Process;

/// Sync areas of teams, and of active sets: how many.
pub(crate) const TEAM_AREAS: usize = 512;
const SET_AREAS: usize = 512;
/// What one member shows in one barrier.
pub(crate) const SLOT_BYTES: usize = 2048;
/// What of it fits into its line.
const LINE_BYTES: usize = WORDS * 8;

/// All areas of this node.
pub(crate) struct SyncAreas {
    base: *mut u8,
    /// PEs of this node.
    locals: usize,
    _window: Window<u8>,
}

/// One area, as a member sees it.
pub(crate) struct SyncArea {
    base: *mut u8,
    locals: usize,
    /// This PE's place among those of the node.
    local: usize,
    member: Member<TeamLines>,
}

/// Where the lines of the members are.
pub(crate) struct TeamLines {
    base: *mut u8,
    /// Place of each member among the PEs of the node, and its rank, in the order of the team.
    members: Box<[(usize, u32)]>,
}

impl Board for TeamLines {
    #[inline]
    fn lines(&self, place: usize) -> &Lines {
        let place = self.base.wrapping_add(self.members[place].0 * size_of::<Lines>());
        // SAFETY: the lines of one PE in this area, aligned, in memory that stays mapped; they are atomics.
        unsafe { &*place.cast() }
    }
}

impl SyncAreas {
    /// Collective.
    pub(crate) fn new(name: &'static str, world: &World) -> SyncAreas {
        let here = |rank: &u32| world.node_of(*rank) == Some(world.node());
        let locals = (0..world.size()).filter(here).count();
        let first = (0..world.size()).find(here).unwrap_or(0);
        let bytes = SET_AREAS * 8 + (TEAM_AREAS + SET_AREAS) * area_bytes(locals);
        let mine = if world.rank() == first { bytes } else { 0 };
        let window = or_end(name, world.allocate_collective::<u8>(mine));
        window.leave_out_of_dumps();
        let Some(base) = or_end(name, window.pointer_at(first)) else {
            end(name, "this node's shared memory is not mapped here; is the address space limited (ulimit -v)?")
        };
        SyncAreas { base, locals, _window: window }
    }

    /// An area by its number, for these members, of whom each begins with barrier `met` + 1.
    pub(crate) fn area(&self, number: usize, members: Box<[(usize, u32)]>, me: usize, met: u64) -> SyncArea {
        assert!(number < TEAM_AREAS + SET_AREAS && me < members.len());
        let base = self.base.wrapping_add(SET_AREAS * 8 + number * area_bytes(self.locals));
        let (local, size) = (members[me].0, members.len());
        SyncArea { base, locals: self.locals, local, member: Member::new(TeamLines { base, members }, size, me, met) }
    }

    /// The number of the area of an active set with this name, which is not 0. `None`: there are too many sets.
    pub(crate) fn of_set(&self, set: u64) -> Option<usize> {
        let mut at = set as usize % SET_AREAS;
        for _ in 0..SET_AREAS {
            let place: *mut u64 = self.base.cast::<u64>().wrapping_add(at);
            // SAFETY: one of the names, aligned, in memory that stays mapped; all access is atomic.
            let name = unsafe { AtomicU64::from_ptr(place) };
            // PAIR named.
            match name.compare_exchange(0, set, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(TEAM_AREAS + at),
                Err(found) if found == set => return Some(TEAM_AREAS + at),
                Err(_) => at = (at + 1) % SET_AREAS,
            }
        }
        None
    }
}

fn area_bytes(locals: usize) -> usize {
    locals * (size_of::<Lines>() + 2 * SLOT_BYTES)
}

impl SyncArea {
    fn slot(&self, local: usize, barrier: u64) -> *mut u8 {
        let parity = (barrier % 2) as usize;
        self.base.wrapping_add(self.locals * size_of::<Lines>() + (parity * self.locals + local) * SLOT_BYTES)
    }

    /// How many barriers there were.
    pub(crate) fn met(&self) -> u64 {
        self.member.met()
    }

    /// This member's place.
    pub(crate) fn me(&self) -> usize {
        self.member.me()
    }

    /// All members meet. What each wrote before is seen by all behind it.
    #[inline]
    pub(crate) fn meet(&self, name: &'static str, process: &Process) {
        let barrier = self.come(name, process, &[]);
        self.wait_for_all(name, process, barrier);
    }

    /// All members meet, and each shows some bytes, as many each; gives where each member's are. They stay until the next
    /// barrier begins.
    #[inline]
    pub(crate) fn show(
        &self,
        name: &'static str,
        process: &Process,
        bytes: Region<'_>,
    ) -> impl Fn(usize) -> *const u8 + '_ {
        let length = bytes.len();
        let barrier = self.come_showing(name, process, bytes);
        self.wait_for_all(name, process, barrier);
        move |place| self.shown(place, length)
    }

    /// All come to the next barrier, and `whom` waits for them. What each wrote before is seen by it behind that.
    pub(crate) fn tell(&self, name: &'static str, process: &Process, whom: usize) {
        let _nothing = self.show_to(name, process, whom, Region::from_slice(&[]));
    }

    /// The same, and each shows some bytes, as many each; gives where each member's are, for `whom`. They stay until it comes
    /// to the next barrier.
    pub(crate) fn show_to(
        &self,
        name: &'static str,
        process: &Process,
        whom: usize,
        bytes: Region<'_>,
    ) -> impl Fn(usize) -> *const u8 + '_ {
        let length = bytes.len();
        let barrier = self.come_showing(name, process, bytes);
        if self.member.me() == whom {
            let mut from = 0;
            wait(name, process, || self.member.have_all_come(&mut from, barrier).then_some(()));
        } else {
            process.world.notify_barrier(self.member.board().members[whom].1);
        }
        move |place| self.shown(place, length)
    }

    /// All come to the next barrier, where `root` shows as many bytes, and nobody waits but for these. They stay until the next
    /// barrier begins.
    #[inline]
    pub(crate) fn hear(&self, name: &'static str, process: &Process, root: usize, bytes: Region<'_>) -> *const u8 {
        if self.member.me() == root {
            self.come_showing(name, process, bytes);
            self.wake_others(process);
        } else {
            let barrier = self.come(name, process, &[]);
            // It may wait until its line is free.
            process.world.notify_barrier(self.member.board().members[root].1);
            wait(name, process, || self.member.has_come(root, barrier).then_some(()));
        }
        self.shown(root, bytes.len())
    }

    /// Where the bytes are that a member shows in the last barrier.
    #[inline]
    fn shown(&self, place: usize, length: usize) -> *const u8 {
        if length <= LINE_BYTES {
            return self.member.words(place).cast();
        }
        self.slot(self.member.board().members[place].0, self.member.met())
    }

    #[inline]
    fn come_showing(&self, name: &'static str, process: &Process, bytes: Region<'_>) -> u64 {
        assert!(bytes.len() <= SLOT_BYTES);
        if bytes.len() <= LINE_BYTES {
            let mut words = [0u64; WORDS];
            // SAFETY: as many bytes of `words`, which are numbers in any case.
            unsafe { RegionMut::from_raw((&raw mut words).cast(), bytes.len()) }.copy_from(bytes);
            return self.come(name, process, &words[..bytes.len().div_ceil(8)]);
        }
        let met = self.member.met();
        if !self.member.is_reached(met) {
            self.wait_for_all(name, process, met);
        }
        // SAFETY: this PE's own slot of the next barrier, which nobody reads before it; see the module.
        let slot = unsafe { RegionMut::from_raw(self.slot(self.local, met + 1), bytes.len()) };
        slot.copy_from(bytes);
        self.come(name, process, &[])
    }

    #[inline]
    fn come(&self, name: &'static str, process: &Process, words: &[u64]) -> u64 {
        if let Some(owed) = self.member.owed() {
            self.wait_for_all(name, process, owed);
        }
        let barrier = self.member.come(words);
        if !process.is_one_node {
            // SeqCst: the number before it and the look for sleepers after it, against a sleeper's announcement and its look at
            // the number. Less lets both miss each other.
            fence(Ordering::SeqCst);
        }
        barrier
    }

    #[inline]
    fn wait_for_all(&self, name: &'static str, process: &Process, barrier: u64) {
        let mut from = 0;
        if wait(name, process, || self.member.have_all_come(&mut from, barrier).then_some(())) {
            // One of the last, so that whoever sleeps can go on.
            self.wake_others(process);
        }
    }

    #[inline]
    fn wake_others(&self, process: &Process) {
        for (place, (_, rank)) in self.member.board().members.iter().enumerate() {
            if place != self.member.me() {
                process.world.notify_barrier(*rank);
            }
        }
    }
}

/// Waits until `look` gives something. True: that was soon, as it is where the others have processors of their own and are
/// about to follow.
#[inline(always)]
fn wait(name: &'static str, process: &Process, mut look: impl FnMut() -> Option<()>) -> bool {
    let is_soon = process.glance(&mut look).is_some();
    if !is_soon {
        process.wait_at_barrier(name, look);
    }
    is_soon
}
