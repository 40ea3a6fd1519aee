//! Teams, and the active sets of old, which are teams that nobody has made.
//!
//! A handle is a number: 1 is the world, 2 the PEs of this node. A team has an area ([`crate::sync_area`]) if all of its members
//! are on this node, one for each node ([`crate::nodes`]) if several are on some, and always a group of longarm, for what
//! goes through no area.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;

use longarm::ffi::Region;
use longarm::ffi::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use longarm::{Group, World};
use parking_lot::Mutex;

use crate::boundary::{end, or_end};
use crate::nodes::{Layout, Nodes};
use crate::process::Process;
use crate::sync_area::{SyncArea, SyncAreas, TEAM_AREAS};

pub(crate) const INVALID: usize = 0;
pub(crate) const WORLD: usize = 1;
pub(crate) const SHARED: usize = 2;
/// Words of a bitmap of areas.
pub(crate) const WORDS: usize = TEAM_AREAS / 64;

/// What a team is made with, as in the header.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct TeamConfig {
    pub(crate) num_contexts: c_int,
}

/// See the module.
pub(crate) struct Team {
    /// World numbers, in the team's order.
    pub(crate) members: Box<[u32]>,
    pub(crate) me: usize,
    pub(crate) area: Option<SyncArea>,
    /// What the members of each node share for broadcasts and reductions, if there is no area for all. Active sets have none.
    pub(crate) nodes: Option<Nodes>,
    pub(crate) group: Group,
    pub(crate) config: TeamConfig,
}

/// By handle. PAIR team-set: a team is stored (Release) before its handle is given out, and loaded (Acquire).
pub(crate) struct Teams {
    places: Box<[AtomicPtr<Team>]>,
    /// By start, logarithm of the stride, and size.
    sets: Mutex<HashMap<(c_int, c_int, c_int), &'static Team>>,
    /// The last barrier of any team that is no more: later ones begin behind it.
    met: AtomicU64,
    /// How many teams this PE has seen made.
    pub(crate) made: AtomicU64,
    pub(crate) choosing: Mutex<Choosing>,
}

/// Which of this PE's threads that split teams may choose a number for the new one: two at a time might choose the same.
///
/// Only a thread that has met the other members of its parent asks. So whoever has the turn waits for threads that are in the
/// same call, and never for one that is still on its way and may wait for another split.
#[derive(Default)]
pub(crate) struct Choosing {
    /// The parents' handles. The lowest goes first, on all PEs, so that two threads do not keep each other from it for ever.
    asking: BTreeSet<usize>,
    is_taken: bool,
}

impl Choosing {
    /// Whether it is this thread's turn. If not, the members of its team agree on nothing this time.
    pub(crate) fn take(&mut self, parent: usize) -> bool {
        self.asking.insert(parent);
        let is_mine = !self.is_taken && self.asking.first() == Some(&parent);
        self.is_taken |= is_mine;
        is_mine
    }

    /// Another thread may choose before this one tries again.
    pub(crate) fn leave(&mut self, was_mine: bool) {
        self.is_taken &= !was_mine;
    }

    pub(crate) fn end(&mut self, parent: usize) {
        self.asking.remove(&parent);
        self.is_taken = false;
    }
}

impl Team {
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// A PE of the team as a number of the world.
    #[inline]
    pub(crate) fn world_pe(&self, pe: c_int) -> Option<u32> {
        self.members.get(usize::try_from(pe).ok()?).copied()
    }

    #[cold]
    pub(crate) fn no_such_pe(&self, name: &'static str, pe: c_int) -> ! {
        end(name, format_args!("there is no PE {pe} in this team; it has the PEs 0 to {}", self.size() - 1))
    }

    /// How many barriers there were in its area, or in that of this node.
    fn met(&self) -> u64 {
        self.area.as_ref().map(SyncArea::met).or(self.nodes.as_ref().map(Nodes::met)).unwrap_or(0)
    }

    /// All members meet.
    pub(crate) fn meet(&self, name: &'static str, process: &Process) {
        match &self.area {
            Some(area) => area.meet(name, process),
            None => {
                // Stores to mapped memory before it are visible to who has met.
                fence(Ordering::SeqCst);
                or_end(name, self.group.sync_collective());
            }
        }
    }

    /// All members show some bytes, as many each, and `read` is told where those of each member are.
    pub(crate) fn show<R>(
        &self,
        name: &'static str,
        process: &Process,
        bytes: Region<'_>,
        read: impl FnOnce(&dyn Fn(usize) -> *const u8) -> R,
    ) -> R {
        if let Some(area) = &self.area {
            let slots = area.show(name, process, bytes);
            return read(&slots);
        }
        let mut mine = vec![0; bytes.len()];
        bytes.copy_to_slice(&mut mine);
        // The elements of all, in memory that is aligned for any of them.
        let all = or_end(name, self.group.allgather_collective(&mine));
        let mut aligned = vec![0u128; all.len().div_ceil(16) + self.size()];
        let stride = bytes.len().next_multiple_of(16);
        let start: *mut u8 = aligned.as_mut_ptr().cast();
        for (place, piece) in all.chunks(bytes.len().max(1)).enumerate() {
            // SAFETY: `aligned` has room for the pieces of all members at multiples of 16.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), start.wrapping_add(place * stride), piece.len()) };
        }
        read(&|place| start.wrapping_add(place * stride).cast_const())
    }
}

impl Teams {
    pub(crate) fn new(world: &World, areas: &SyncAreas) -> Teams {
        let places = (0..TEAM_AREAS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let teams = Teams {
            places,
            sets: Mutex::default(),
            met: AtomicU64::new(0),
            made: AtomicU64::new(0),
            choosing: Mutex::default(),
        };
        let all: Vec<u32> = (0..world.size()).collect();
        let here = all.iter().copied().filter(|rank| world.shares_memory_with(*rank)).collect();
        for (handle, members) in [(WORLD, all), (SHARED, here)] {
            let made = make(world, areas, members, (handle, 0), handle as u64, TeamConfig::default());
            teams.put(handle, made.expect("a PE is a member of the world and of its node"));
        }
        teams
    }

    fn put(&self, handle: usize, team: Team) {
        let team: &'static mut Team = Box::leak(Box::new(team));
        // PAIR team-set.
        self.places[handle].store(team, Ordering::Release);
    }

    /// The team of a handle. Teams are leaked: a thread may still look at one while another destroys it.
    pub(crate) fn find(&self, handle: usize) -> Option<&'static Team> {
        // PAIR team-set.
        let team = self.places.get(handle)?.load(Ordering::Acquire);
        // SAFETY: the pointer is null or comes from `Box::leak` in `put`.
        unsafe { team.as_ref() }
    }

    /// The team of a handle; `None` if it is the invalid one.
    pub(crate) fn get(&self, name: &'static str, handle: usize) -> Option<&'static Team> {
        if handle == INVALID {
            return None;
        }
        match self.find(handle) {
            Some(team) => Some(team),
            None => end(name, format_args!("there is no team {handle:#x}; was it destroyed before?")),
        }
    }

    /// The team of an active set.
    pub(crate) fn of_set(
        &self,
        name: &'static str,
        (process, areas): (&Process, &SyncAreas),
        set: (c_int, c_int, c_int),
    ) -> &'static Team {
        if set == (0, 0, process.size as c_int)
            && let Some(world) = self.find(WORLD)
        {
            return world;
        }
        let mut sets = self.sets.lock();
        if let Some(team) = sets.get(&set) {
            return team;
        }
        let (start, log_stride, size) = set;
        let bad = || -> ! {
            end(
                name,
                format_args!(
                    "the active set of {size} PEs from PE {start} on with stride 2^{log_stride} is not inside of the PEs 0 to {}",
                    process.size - 1
                ),
            )
        };
        if start < 0 || size < 1 || !(0..31).contains(&log_stride) {
            bad();
        }
        let last = i64::from(start) + (i64::from(size - 1) << log_stride);
        if last >= i64::from(process.size) {
            bad();
        }
        let members: Vec<u32> = (0..size as u32).map(|place| start as u32 + (place << log_stride)).collect();
        let tag = 1 << 62 | (start as u64) << 40 | (log_stride as u64) << 32 | size as u64;
        let area = areas.of_set(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let area = area.unwrap_or(usize::MAX);
        let Some(team) = make(&process.world, areas, members, (area, 0), tag, TeamConfig::default()) else {
            end(
                name,
                format_args!(
                    "this PE is not in the active set of {size} PEs from PE {start} on with stride 2^{log_stride}"
                ),
            )
        };
        let team: &'static Team = Box::leak(Box::new(team));
        sets.insert(set, team);
        team
    }

    /// A team of these members, whose handle is the number of its area. `None`: this PE is none of them.
    pub(crate) fn add(
        &self,
        world: &World,
        areas: &SyncAreas,
        members: Vec<u32>,
        (area, met): (usize, u64),
        tag: u64,
        config: TeamConfig,
    ) -> Option<usize> {
        self.put(area, make(world, areas, members, (area, met), tag, config)?);
        Some(area)
    }

    /// A team is no more, and its handle may be given out again, with its area.
    pub(crate) fn remove(&self, handle: usize, team: &Team) {
        self.met.fetch_max(team.met(), Ordering::Relaxed);
        // The team itself stays: another thread may still look at it.
        // PAIR team-gone: who sees (Acquire) that the area is free sees the number of its barriers above too.
        self.places[handle].store(std::ptr::null_mut(), Ordering::Release);
    }

    /// The last barrier of any team that there is or was.
    pub(crate) fn met(&self) -> u64 {
        let teams = (0..TEAM_AREAS).filter_map(|handle| self.find(handle));
        let met = teams.map(Team::met).max().unwrap_or(0);
        met.max(self.met.load(Ordering::Relaxed))
    }

    /// What this PE has not used, a bit for each area.
    pub(crate) fn free_areas(&self) -> [u64; WORDS] {
        let mut free = [u64::MAX; WORDS];
        free[0] &= !0b111;
        for (handle, place) in self.places.iter().enumerate() {
            if !place.load(Ordering::Acquire).is_null() {
                free[handle / 64] &= !(1 << (handle % 64));
            }
        }
        free
    }
}

/// A team of these members; `None` if this PE is none of them. An area's number beyond the last one stands for no area.
fn make(
    world: &World,
    areas: &SyncAreas,
    members: Vec<u32>,
    (area, met): (usize, u64),
    tag: u64,
    config: TeamConfig,
) -> Option<Team> {
    let me = members.iter().position(|rank| *rank == world.rank())?;
    let group = world.group_among(&members, tag)?;
    let locals: Vec<u32> = (0..world.size()).filter(|rank| world.shares_memory_with(*rank)).collect();
    let area_of = |places: &[usize]| {
        let local =
            |rank: u32| locals.iter().position(|local| *local == rank).expect("members of an area are on this node");
        let member = |place: &usize| (local(members[*place]), members[*place]);
        let me = places.iter().position(|place| *place == me).expect("members of an area are on this node");
        areas.area(area, places.iter().map(member).collect(), me, met)
    };
    let is_here = members.iter().all(|rank| world.shares_memory_with(*rank));
    let all: Vec<usize> = (0..members.len()).collect();
    // The area of an active set has a number for one node only.
    let layout = Layout::of(world, &members).filter(|_| area < TEAM_AREAS);
    let nodes = layout.map(|layout| {
        let area = area_of(&layout.here(me));
        Nodes::new(world, layout, (&members, me), area, tag)
    });
    let area = (is_here && area != usize::MAX).then(|| area_of(&all));
    Some(Team { members: members.into(), me, area, nodes, group, config })
}
