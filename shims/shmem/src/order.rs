//! Fence, quiet, barriers, and the cache calls of old, which have nothing to do.

use std::ffi::{c_int, c_void};

use crate::boundary::end;
use crate::contexts::{DEFAULT, INVALID};
use crate::job::{self, Job};
use crate::teams;
use crate::who::Who;

#[inline]
pub(crate) fn fence(name: &'static str, context: usize) {
    let job = job::get(name);
    if context != DEFAULT {
        if context == INVALID {
            return;
        }
        job.contexts.get(name, context);
    }
    job.process.world.fence();
}

/// The invalid context has nothing to complete.
#[inline]
pub(crate) fn quiet(name: &'static str, context: usize) {
    let job = job::get(name);
    if context == INVALID {
        return;
    }
    job.contexts.get(name, context).quiet(name, &job.process);
}

/// # Safety
/// `pes` is readable for `count` numbers.
pub(crate) unsafe fn pe_quiet(name: &'static str, handle: usize, pes: *const c_int, count: u64) {
    let job = job::get(name);
    if count == 0 || handle == INVALID {
        return;
    }
    if pes.is_null() {
        end(name, "the list of PEs is NULL");
    }
    for place in 0..count as usize {
        // SAFETY: this function's own contract.
        let pe = unsafe { pes.wrapping_add(place).read() };
        let (_, pe) = job.contexts.resolve(name, handle, pe);
        job.process.rank(name, pe);
    }
    quiet(name, handle);
}

/// All PEs meet when everything of the default context is complete.
pub(crate) fn barrier_all(name: &'static str) {
    let job = job::get(name);
    complete(name, job);
    meet(name, job, teams::WORLD);
}

/// Everything of the default context is complete before all PEs meet. On one node each call is, and where they meet orders the rest.
pub(crate) fn complete(name: &'static str, job: &Job) {
    if !job.process.is_one_node {
        quiet(name, DEFAULT);
    }
}

pub(crate) fn sync_all(name: &'static str) {
    meet(name, job::get(name), teams::WORLD);
}

fn meet(name: &'static str, job: &Job, handle: usize) -> c_int {
    match job.teams.get(name, handle) {
        Some(team) => {
            team.meet(name, &job.process);
            0
        }
        None => -1,
    }
}

pub(crate) fn team_sync(name: &'static str, handle: usize) -> c_int {
    meet(name, job::get(name), handle)
}

#[inline]
pub(crate) fn barrier(name: &'static str, who: Who) {
    quiet(name, DEFAULT);
    sync(name, who);
}

#[inline]
pub(crate) fn sync(name: &'static str, who: Who) {
    let job = job::get(name);
    if let Some(team) = who.team(name, job) {
        team.meet(name, &job.process);
    }
}

pub(crate) fn cache(name: &'static str) {
    job::get(name);
}

pub(crate) fn cache_line(name: &'static str, _dest: *mut c_void) {
    job::get(name);
}
