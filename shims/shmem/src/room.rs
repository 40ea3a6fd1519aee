//! Rooms: shared memory in which the members of a team, all of one node, meet and show each other small things.
//!
//! ```text
//!   window at the node's first PE:  │ names of sets │ room 0 │ room 1 │ ...
//!   room:                           │ flag per PE, a line each │ slots of even meetings │ slots of odd ones │
//! ```
//!
//! A meeting has a number, the same for all members. Each member fills its slot, sets its flag to the number and waits until
//! all flags have come so far. A slot is filled again two meetings later; who begins that has seen all flags of the one in
//! between, and so knows that everybody has read what was in it.
//!
//! PAIR met: the store of one's own flag (Release) and the load of the others' (Acquire). Who sees the flag sees the slot, and
//! all that its owner wrote before. A sleeper whose announcement crosses the store may be left asleep, and wakes by itself: to
//! exclude that would take a fence, which costs as much as the meeting.
//!
//! PAIR named: a set's name is claimed by compare-exchange (Relaxed is enough: the name is all there is to see).
//!
//! If a PE dies the others wait until longarm says so, and the job ends.

use longarm::face::sync::{AtomicU64, Ordering};
use longarm::face::{Region, RegionMut};
use longarm::{Window, World};

use crate::boundary::{end, or_end};
use crate::job::Job;

/// Rooms of teams, and of active sets.
pub(crate) const TEAM_ROOMS: usize = 512;
const SET_ROOMS: usize = 512;
const LINE: usize = 64;
/// What one member shows in one meeting.
pub(crate) const SLOT_BYTES: usize = 2048;

/// All rooms of this node.
pub(crate) struct Rooms {
    base: *mut u8,
    /// PEs of this node.
    locals: usize,
    _window: Window<u8>,
}

/// One room, as a member sees it.
pub(crate) struct Room {
    base: *mut u8,
    locals: usize,
    /// Place of each member among the PEs of the node, and its rank, in the order of the team.
    members: Box<[(usize, u32)]>,
    /// This PE's place among the members.
    me: usize,
    /// The last meeting.
    met: AtomicU64,
}

impl Rooms {
    /// Collective.
    pub(crate) fn new(name: &'static str, world: &World) -> Rooms {
        let here = |rank: &u32| world.node_of(*rank) == Some(world.node());
        let locals = (0..world.size()).filter(here).count();
        let first = (0..world.size()).find(here).unwrap_or(0);
        let bytes = SET_ROOMS * 8 + (TEAM_ROOMS + SET_ROOMS) * room_bytes(locals);
        let mine = if world.rank() == first { bytes } else { 0 };
        let window = or_end(name, world.allocate_collective::<u8>(mine));
        window.leave_out_of_dumps();
        let Some(base) = or_end(name, window.pointer_at(first)) else {
            end(name, "the rooms of this node are not mapped")
        };
        Rooms { base, locals, _window: window }
    }

    /// A room by its number, for these members, of whom each begins with meeting `met` + 1.
    pub(crate) fn room(&self, number: usize, members: Box<[(usize, u32)]>, me: usize, met: u64) -> Room {
        assert!(number < TEAM_ROOMS + SET_ROOMS && me < members.len());
        let base = self.base.wrapping_add(SET_ROOMS * 8 + number * room_bytes(self.locals));
        Room { base, locals: self.locals, members, me, met: AtomicU64::new(met) }
    }

    /// The number of the room of an active set with this name, which is not 0. `None`: there are too many sets.
    pub(crate) fn of_set(&self, set: u64) -> Option<usize> {
        let mut at = set as usize % SET_ROOMS;
        for _ in 0..SET_ROOMS {
            let place: *mut u64 = self.base.cast::<u64>().wrapping_add(at);
            // SAFETY: one of the names, aligned, in memory that stays mapped; all access is atomic.
            let name = unsafe { AtomicU64::from_ptr(place) };
            // PAIR named.
            match name.compare_exchange(0, set, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(TEAM_ROOMS + at),
                Err(found) if found == set => return Some(TEAM_ROOMS + at),
                Err(_) => at = (at + 1) % SET_ROOMS,
            }
        }
        None
    }
}

fn room_bytes(locals: usize) -> usize {
    locals * (LINE + 2 * SLOT_BYTES)
}

impl Room {
    fn flag(&self, local: usize) -> &AtomicU64 {
        let place = self.base.wrapping_add(local * LINE).cast();
        // SAFETY: a flag of this room, aligned, in memory that stays mapped; all access is atomic.
        unsafe { AtomicU64::from_ptr(place) }
    }

    fn slot(&self, local: usize, meeting: u64) -> *mut u8 {
        let parity = (meeting % 2) as usize;
        self.base.wrapping_add(self.locals * LINE + (parity * self.locals + local) * SLOT_BYTES)
    }

    /// How many meetings there were.
    pub(crate) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// All members meet. What each wrote before is seen by all behind it.
    #[inline]
    pub(crate) fn meet(&self, name: &'static str, job: &Job) -> u64 {
        let meeting = self.met.fetch_add(1, Ordering::Relaxed) + 1;
        // PAIR met.
        self.flag(self.members[self.me].0).store(meeting, Ordering::Release);
        for (place, (_, rank)) in self.members.iter().enumerate() {
            if place != self.me {
                job.world.ring(*rank);
            }
        }
        let mut next = 0;
        job.wait_for(name, || {
            // PAIR met.
            while next < self.members.len() && self.flag(self.members[next].0).load(Ordering::Acquire) >= meeting {
                next += 1;
            }
            (next == self.members.len()).then_some(())
        });
        meeting
    }

    /// All members meet, and each shows some bytes; gives where each member's are. They stay until the next meeting but one
    /// begins.
    pub(crate) fn show(&self, name: &'static str, job: &Job, bytes: Region<'_>) -> impl Fn(usize) -> *mut u8 + '_ {
        assert!(bytes.len() <= SLOT_BYTES);
        let meeting = self.met.load(Ordering::Relaxed) + 1;
        // SAFETY: this PE's own slot of the next meeting, which nobody reads before it; see the module.
        let slot = unsafe { RegionMut::from_raw(self.slot(self.members[self.me].0, meeting), bytes.len()) };
        slot.copy_from(bytes);
        let meeting = self.meet(name, job);
        move |place| self.slot(self.members[place].0, meeting)
    }
}
