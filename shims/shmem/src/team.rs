//! Teams, and the active sets of old, which are teams that nobody has made.
//!
//! A handle is a number: 1 is the world, 2 the PEs of this node. A team has a room ([`crate::room`]) if all of its members
//! are on this node, one for each node ([`crate::nodes`]) if several are on some, and always a group of longarm, for what
//! goes through no room.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{c_int, c_long};

use longarm::ffi::Region;
use longarm::ffi::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use longarm::{Group, World};
use parking_lot::Mutex;

use crate::boundary::{end, or_end};
use crate::job::{self, Job};
use crate::nodes::{Layout, Nodes};
use crate::room::{Room, Rooms, TEAM_ROOMS};

pub(crate) const INVALID: usize = 0;
pub(crate) const WORLD: usize = 1;
const SHARED: usize = 2;
/// Words of a bitmap of rooms.
const WORDS: usize = TEAM_ROOMS / 64;

/// What a team is made with, as in the header.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct TeamConfig {
    num_contexts: c_int,
}

/// The one field of it.
const NUM_CONTEXTS: c_long = 1;

/// See the module.
pub(crate) struct Team {
    /// World numbers, in the team's order.
    pub(crate) members: Box<[u32]>,
    pub(crate) me: usize,
    pub(crate) room: Option<Room>,
    /// Where the members of each node meet, if there is no room for all. Active sets have none.
    nodes: Option<Nodes>,
    pub(crate) group: Group,
    config: TeamConfig,
}

/// By handle. PAIR team-set: a team is stored (Release) before its handle is given out, and loaded (Acquire).
pub(crate) struct Teams {
    places: Box<[AtomicPtr<Team>]>,
    /// By start, logarithm of the stride, and size.
    sets: Mutex<HashMap<(c_int, c_int, c_int), &'static Team>>,
    /// The last barrier of any team that is no more: later ones begin behind it.
    met: AtomicU64,
    /// How many teams this PE has seen made.
    made: AtomicU64,
    choosing: Mutex<Choosing>,
}

/// Which of this PE's threads that split teams may choose a number for the new one: two at a time might choose the same.
///
/// Only a thread that has met the other members of its parent asks. So whoever has the turn waits for threads that are in the
/// same call, and never for one that is still on its way and may wait for another split.
#[derive(Default)]
struct Choosing {
    /// The parents' handles. The lowest goes first, on all PEs, so that two threads do not keep each other from it for ever.
    asking: BTreeSet<usize>,
    is_taken: bool,
}

impl Choosing {
    /// Whether it is this thread's turn. If not, the members of its team agree on nothing this time.
    fn take(&mut self, parent: usize) -> bool {
        self.asking.insert(parent);
        let is_mine = !self.is_taken && self.asking.first() == Some(&parent);
        self.is_taken |= is_mine;
        is_mine
    }

    /// Another thread may choose before this one tries again.
    fn leave(&mut self, was_mine: bool) {
        self.is_taken &= !was_mine;
    }

    fn end(&mut self, parent: usize) {
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

    /// The room, for a collective in which each reads what the others have at this address. `None`: not all have it
    /// mapped, at any member, or there is no room.
    #[inline]
    pub(crate) fn room_to_read(&self, job: &Job, address: usize) -> Option<&Room> {
        let is_apart = job.statics.as_ref().is_some_and(|statics| statics.is_apart(address));
        self.room.as_ref().filter(|_| !is_apart)
    }

    /// The same for what is read inside of each node.
    #[inline]
    pub(crate) fn nodes_to_read(&self, job: &Job, address: usize) -> Option<&Nodes> {
        self.nodes.as_ref().filter(|_| !job.statics.as_ref().is_some_and(|statics| statics.is_apart(address)))
    }

    /// How many barriers there were in its room, or in that of this node.
    fn met(&self) -> u64 {
        self.room.as_ref().map(Room::met).or(self.nodes.as_ref().map(Nodes::met)).unwrap_or(0)
    }

    /// All members meet.
    pub(crate) fn meet(&self, name: &'static str, job: &Job) {
        match (&self.room, &self.nodes) {
            (Some(room), _) => room.meet(name, &job.process),
            (None, Some(nodes)) => nodes.meet(name, job),
            (None, None) => {
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
        job: &Job,
        bytes: Region<'_>,
        read: impl FnOnce(&dyn Fn(usize) -> *const u8) -> R,
    ) -> R {
        if let Some(room) = &self.room {
            let slots = room.show(name, &job.process, bytes);
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
    pub(crate) fn new(world: &World, rooms: &Rooms) -> Teams {
        let places = (0..TEAM_ROOMS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
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
            let made = make(world, rooms, members, (handle, 0), handle as u64, TeamConfig::default());
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
    pub(crate) fn of_set(&self, name: &'static str, job: &Job, set: (c_int, c_int, c_int)) -> &'static Team {
        if set == (0, 0, job.process.size as c_int)
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
                    job.process.size - 1
                ),
            )
        };
        if start < 0 || size < 1 || !(0..31).contains(&log_stride) {
            bad();
        }
        let last = i64::from(start) + (i64::from(size - 1) << log_stride);
        if last >= i64::from(job.process.size) {
            bad();
        }
        let members: Vec<u32> = (0..size as u32).map(|place| start as u32 + (place << log_stride)).collect();
        let tag = 1 << 62 | (start as u64) << 40 | (log_stride as u64) << 32 | size as u64;
        let room = job.rooms.of_set(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let room = room.unwrap_or(usize::MAX);
        let Some(team) = make(&job.process.world, &job.rooms, members, (room, 0), tag, TeamConfig::default()) else {
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

    /// What this PE has not used, a bit for each room.
    fn free_rooms(&self) -> [u64; WORDS] {
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

/// A team of these members; `None` if this PE is none of them. A room that is too large a number is none.
fn make(
    world: &World,
    rooms: &Rooms,
    members: Vec<u32>,
    (room, met): (usize, u64),
    tag: u64,
    config: TeamConfig,
) -> Option<Team> {
    let me = members.iter().position(|rank| *rank == world.rank())?;
    let group = world.group_among(&members, tag)?;
    let locals: Vec<u32> = (0..world.size()).filter(|rank| world.shares_memory_with(*rank)).collect();
    let room_of = |places: &[usize]| {
        let local =
            |rank: u32| locals.iter().position(|local| *local == rank).expect("members of a room are on this node");
        let member = |place: &usize| (local(members[*place]), members[*place]);
        let me = places.iter().position(|place| *place == me).expect("members of a room are on this node");
        rooms.room(room, places.iter().map(member).collect(), me, met)
    };
    let is_here = members.iter().all(|rank| world.shares_memory_with(*rank));
    let all: Vec<usize> = (0..members.len()).collect();
    // The room of an active set has a number for one node only.
    let layout = Layout::of(world, &members).filter(|_| room < TEAM_ROOMS);
    let nodes = layout.map(|layout| {
        let room = room_of(&layout.here(me));
        Nodes::new(world, layout, (&members, me), room, tag)
    });
    let room = (is_here && room != usize::MAX).then(|| room_of(&all));
    Some(Team { members: members.into(), me, room, nodes, group, config })
}

pub(crate) fn my_pe(name: &'static str, team: usize) -> c_int {
    job::get(name).teams.get(name, team).map_or(-1, |team| team.me as c_int)
}

pub(crate) fn n_pes(name: &'static str, team: usize) -> c_int {
    job::get(name).teams.get(name, team).map_or(-1, |team| team.size() as c_int)
}

/// # Safety
/// `config` is writable, or null if nothing is asked for.
pub(crate) unsafe fn get_config(name: &'static str, team: usize, mask: c_long, config: *mut TeamConfig) -> c_int {
    let Some(team) = job::get(name).teams.get(name, team) else { return -1 };
    if mask & !NUM_CONTEXTS != 0 || (mask != 0 && config.is_null()) {
        return -1;
    }
    if mask & NUM_CONTEXTS != 0 {
        // SAFETY: this function's own contract.
        unsafe { config.write(team.config) };
    }
    0
}

pub(crate) fn translate_pe(name: &'static str, from: usize, pe: c_int, to: usize) -> c_int {
    let job = job::get(name);
    let (Some(from), Some(to)) = (job.teams.get(name, from), job.teams.get(name, to)) else { return -1 };
    let Some(rank) = from.world_pe(pe) else { return -1 };
    to.members.iter().position(|member| *member == rank).map_or(-1, |place| place as c_int)
}

/// What a team that is being made gets; `None` if the mask asks for what there is not.
///
/// # Safety
/// `config` is readable if the mask is not 0.
unsafe fn read_config((config, mask): (*const TeamConfig, c_long)) -> Option<TeamConfig> {
    if mask & !NUM_CONTEXTS != 0 {
        return None;
    }
    if mask == 0 || config.is_null() {
        return Some(TeamConfig::default());
    }
    // SAFETY: this function's own contract.
    let config = unsafe { config.read() };
    (config.num_contexts >= 0).then_some(config)
}

/// Makes one team of some members of a parent; the others come along. `None` if this PE is no member, or there is no room.
fn split(
    name: &'static str,
    job: &Job,
    (handle, parent): (usize, &Team),
    members: Vec<u32>,
    config: TeamConfig,
) -> Option<usize> {
    let teams = &job.teams;
    // See `Choosing`.
    parent.meet(name, job);
    let agreed = loop {
        let is_mine = teams.choosing.lock().take(handle);
        let agreed = agree(name, job, parent, is_mine);
        if agreed.all_had_turn {
            break agreed;
        }
        teams.choosing.lock().leave(is_mine);
        std::thread::yield_now();
    };
    teams.made.fetch_max(agreed.made, Ordering::Relaxed);
    let room = agreed.rooms.iter().enumerate().find(|(_, word)| **word != 0);
    let room = room.map(|(at, word)| at * 64 + word.trailing_zeros() as usize);
    let made = room.and_then(|room| {
        let tag = 1 << 61 | agreed.made << 10 | room as u64;
        let team = make(&job.process.world, &job.rooms, members, (room, agreed.met), tag, config)?;
        teams.put(room, team);
        Some(room)
    });
    teams.choosing.lock().end(handle);
    made
}

/// What the members of a team have told each other about a team to come.
struct Agreed {
    /// Whether each of them had its turn to choose.
    all_had_turn: bool,
    /// What none of them uses, a bit for each room.
    rooms: [u64; WORDS],
    /// The last barrier that may have left something in the new team's room.
    met: u64,
    /// How many teams there are with this one.
    made: u64,
}

fn agree(name: &'static str, job: &Job, parent: &Team, is_mine: bool) -> Agreed {
    // PAIR team-gone. Before barriers are counted: so the count has all barriers of each room that is free here.
    let rooms = job.teams.free_rooms();
    let met = job.teams.places.iter().filter_map(|place| {
        // SAFETY: as in `find`.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    });
    let met = met.map(Team::met).max().unwrap_or(0);
    let met = met.max(job.teams.met.load(Ordering::Relaxed));
    let mut mine = [0u64; WORDS + 3];
    mine[..WORDS].copy_from_slice(&rooms);
    mine[WORDS] = u64::from(is_mine);
    mine[WORDS + 1] = met;
    mine[WORDS + 2] = job.teams.made.load(Ordering::Relaxed);
    let bytes: Vec<u8> = mine.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut agreed = mine;
    parent.show(name, job, Region::from_slice(&bytes), |place| {
        for member in 0..parent.size() {
            for (at, agreed) in agreed.iter_mut().enumerate() {
                // SAFETY: what each member shows are as many words, aligned.
                let theirs = unsafe { place(member).cast::<u64>().wrapping_add(at).read() };
                *agreed = if at <= WORDS { *agreed & theirs } else { (*agreed).max(theirs) };
            }
        }
    });
    let [rooms @ .., all_had_turn, met, made] = agreed;
    // A second barrier later a slot is filled again, and the next split may come at once.
    Agreed { all_had_turn: all_had_turn != 0, rooms, met: met + 2, made: made + 1 }
}

/// # Safety
/// `new_team` is writable, and the configuration readable if its mask is not 0.
pub(crate) unsafe fn split_strided(
    name: &'static str,
    parent: usize,
    (start, stride, size): (c_int, c_int, c_int),
    config: (*const TeamConfig, c_long),
    new_team: *mut usize,
) -> c_int {
    let job = job::get(name);
    // SAFETY: this function's own contract.
    unsafe { new_team.write(INVALID) };
    let handle = parent;
    let Some(parent) = job.teams.get(name, handle) else { return -1 };
    let count = parent.size() as i64;
    let last = i64::from(start) + i64::from(stride) * i64::from(size - 1);
    let is_inside = (0..count).contains(&i64::from(start)) && (0..count).contains(&last);
    if size < 1 || !is_inside || (stride == 0 && size > 1) {
        return -1;
    }
    // SAFETY: this function's own contract.
    let Some(config) = (unsafe { read_config(config) }) else { return -1 };
    let places = (0..i64::from(size)).map(|place| i64::from(start) + i64::from(stride) * place);
    let members: Vec<u32> = places.map(|place| parent.members[place as usize]).collect();
    let is_member = members.contains(&job.process.me);
    match split(name, job, (handle, parent), members, config) {
        Some(handle) => {
            // SAFETY: this function's own contract.
            unsafe { new_team.write(handle) };
            0
        }
        None => c_int::from(is_member),
    }
}

/// # Safety
/// The teams are writable, and the configurations readable if their masks are not 0.
pub(crate) unsafe fn split_2d(
    name: &'static str,
    parent: usize,
    x_range: c_int,
    (x_config, x_mask, x_team): (*const TeamConfig, c_long, *mut usize),
    (y_config, y_mask, y_team): (*const TeamConfig, c_long, *mut usize),
) -> c_int {
    let job = job::get(name);
    for team in [x_team, y_team] {
        // SAFETY: this function's own contract.
        unsafe { team.write(INVALID) };
    }
    let handle = parent;
    let Some(parent) = job.teams.get(name, handle) else { return -1 };
    if x_range < 1 {
        return -1;
    }
    // SAFETY: this function's own contract.
    let Some(x_config) = (unsafe { read_config((x_config, x_mask)) }) else { return -1 };
    // SAFETY: this function's own contract.
    let Some(y_config) = (unsafe { read_config((y_config, y_mask)) }) else { return -1 };
    let width = (x_range as usize).min(parent.size());
    let (x, y) = (parent.me % width, parent.me / width);
    let of = |is_in: &dyn Fn(usize) -> bool| -> Vec<u32> {
        (0..parent.size()).filter(|place| is_in(*place)).map(|place| parent.members[place]).collect()
    };
    let row = split(name, job, (handle, parent), of(&|place| place / width == y), x_config);
    let column = split(name, job, (handle, parent), of(&|place| place % width == x), y_config);
    for (team, made) in [(x_team, row), (y_team, column)] {
        // SAFETY: this function's own contract.
        unsafe { team.write(made.unwrap_or(INVALID)) };
    }
    c_int::from(row.is_none() || column.is_none())
}

pub(crate) fn destroy(name: &'static str, handle: usize) {
    let job = job::get(name);
    if handle == INVALID {
        return;
    }
    if handle == WORLD || handle == SHARED {
        end(name, "the predefined teams cannot be destroyed");
    }
    let Some(team) = job.teams.get(name, handle) else { return };
    // Nobody is behind in it when its room is given to others.
    team.meet(name, job);
    job.teams.met.fetch_max(team.met(), Ordering::Relaxed);
    // The team itself stays: another thread may still look at it.
    // PAIR team-gone: who sees (Acquire) that the room is free sees the number of its barriers above too.
    job.teams.places[handle].store(std::ptr::null_mut(), Ordering::Release);
}
