//! The calls that make contexts, and ask of them.

use std::ffi::{c_int, c_long, c_void};

use crate::boundary::end;
use crate::contexts::{DEFAULT, INVALID};
use crate::job;
use crate::teams;

/// # Safety
/// `handle` is writable.
pub(crate) unsafe fn create(name: &'static str, options: c_long, handle: *mut usize) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { create_in_team(name, teams::WORLD, options, handle) }
}

/// # Safety
/// `handle` is writable.
pub(crate) unsafe fn create_in_team(name: &'static str, team: usize, _options: c_long, handle: *mut usize) -> c_int {
    let job = job::get(name);
    let made = job.teams.find(team).and_then(|found| job.contexts.add(found, team));
    // SAFETY: this function's own contract.
    unsafe { handle.write(made.unwrap_or(INVALID)) };
    c_int::from(made.is_none())
}

pub(crate) fn destroy(name: &'static str, handle: usize) {
    let job = job::get(name);
    if handle == INVALID {
        return;
    }
    if handle == DEFAULT {
        end(name, "the default context cannot be destroyed");
    }
    job.contexts.get(name, handle).quiet(name, &job.process);
    job.contexts.remove(handle);
}

/// # Safety
/// `team` is writable.
pub(crate) unsafe fn get_team(name: &'static str, handle: usize, team: *mut usize) -> c_int {
    let job = job::get(name);
    let found = job.contexts.find(handle).map(|context| context.team_handle);
    // SAFETY: this function's own contract.
    unsafe { team.write(found.unwrap_or(teams::INVALID)) };
    if found.is_some() { 0 } else { -1 }
}

/// A hint about what comes, which changes nothing here.
pub(crate) fn session(name: &'static str, handle: usize, _options: c_long, _config: *const c_void, _mask: c_long) {
    let job = job::get(name);
    if handle != INVALID {
        job.contexts.get(name, handle);
    }
}
