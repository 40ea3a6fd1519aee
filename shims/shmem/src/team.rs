//! The calls that make teams, and ask of them.

use std::ffi::{c_int, c_long};

use longarm::ffi::Region;
use longarm::ffi::sync::Ordering;

use crate::boundary::end;
use crate::job::{self, Job};
use crate::teams::{INVALID, SHARED, Team, TeamConfig, WORDS, WORLD};

/// The one field of a team's configuration.
const NUM_CONTEXTS: c_long = 1;

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

/// Makes one team of some members of a parent; the others come along. `None` if this PE is no member, or there is no area.
fn split(
    name: &'static str,
    job: &Job,
    (handle, parent): (usize, &Team),
    members: Vec<u32>,
    config: TeamConfig,
) -> Option<usize> {
    let teams = &job.teams;
    // See `Choosing`.
    parent.meet(name, &job.process);
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
    let area = agreed.areas.iter().enumerate().find(|(_, word)| **word != 0);
    let area = area.map(|(at, word)| at * 64 + word.trailing_zeros() as usize);
    let made = area.and_then(|area| {
        let tag = 1 << 61 | agreed.made << 10 | area as u64;
        teams.add(&job.process.world, &job.areas, members, (area, agreed.met), tag, config)
    });
    teams.choosing.lock().end(handle);
    made
}

/// What the members of a team have told each other about a team to come.
struct Agreed {
    /// Whether each of them had its turn to choose.
    all_had_turn: bool,
    /// What none of them uses, a bit for each area.
    areas: [u64; WORDS],
    /// The last barrier that may have left something in the new team's area.
    met: u64,
    /// How many teams there are with this one.
    made: u64,
}

fn agree(name: &'static str, job: &Job, parent: &Team, is_mine: bool) -> Agreed {
    // PAIR team-gone. Before barriers are counted: so the count has all barriers of each area that is free here.
    let areas = job.teams.free_areas();
    let met = job.teams.met();
    let mut mine = [0u64; WORDS + 3];
    mine[..WORDS].copy_from_slice(&areas);
    mine[WORDS] = u64::from(is_mine);
    mine[WORDS + 1] = met;
    mine[WORDS + 2] = job.teams.made.load(Ordering::Relaxed);
    let bytes: Vec<u8> = mine.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut agreed = mine;
    parent.show(name, &job.process, Region::from_slice(&bytes), |place| {
        for member in 0..parent.size() {
            for (at, agreed) in agreed.iter_mut().enumerate() {
                // SAFETY: what each member shows are as many words, aligned.
                let theirs = unsafe { place(member).cast::<u64>().wrapping_add(at).read() };
                *agreed = if at <= WORDS { *agreed & theirs } else { (*agreed).max(theirs) };
            }
        }
    });
    let [areas @ .., all_had_turn, met, made] = agreed;
    // A second barrier later a slot is filled again, and the next split may come at once.
    Agreed { all_had_turn: all_had_turn != 0, areas, met: met + 2, made: made + 1 }
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
    // Nobody is behind in it when its area is given to others.
    team.meet(name, &job.process);
    job.teams.remove(handle, team);
}
