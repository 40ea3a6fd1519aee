//! What can be asked: names, versions, who and what can be reached, and the counters of `shmemx.h`.

use std::ffi::{c_char, c_int, c_void};

use longarm::ffi::CounterKind;

use crate::job::{self, Job};
use crate::teams::Team;

const MAJOR: c_int = 1;
const MINOR: c_int = 6;
/// As in the header.
const VENDOR: &[u8] = b"longarm\0";

/// Gives the number of the calling thread.
pub(crate) type GetThread = Option<unsafe extern "C" fn() -> u64>;

/// As in the header.
#[repr(C)]
pub(crate) struct Counters {
    pending_put: u64,
    pending_get: u64,
    completed_put: u64,
    completed_get: u64,
    target: u64,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counted {
    Writes,
    Reads,
    Targeted,
}

/// # Safety
/// Both are writable.
pub(crate) unsafe fn version(_name: &'static str, major: *mut c_int, minor: *mut c_int) {
    // SAFETY: this function's own contract.
    unsafe { major.write(MAJOR) };
    // SAFETY: this function's own contract.
    unsafe { minor.write(MINOR) };
}

/// # Safety
/// The name has room for `SHMEM_MAX_NAME_LEN` letters.
pub(crate) unsafe fn name(_name: &'static str, name: *mut c_char) {
    for (at, letter) in VENDOR.iter().enumerate() {
        // SAFETY: this function's own contract.
        unsafe { name.wrapping_add(at).write(*letter as c_char) };
    }
}

pub(crate) fn pe_accessible(name: &'static str, pe: c_int) -> c_int {
    let job = job::get(name);
    c_int::from(u32::try_from(pe).is_ok_and(|pe| pe < job.process.size))
}

pub(crate) fn addr_accessible(name: &'static str, address: *const c_void, pe: c_int) -> c_int {
    let job = job::get(name);
    c_int::from(pe_accessible(name, pe) == 1 && job.find(address.addr(), 1).is_some())
}

pub(crate) fn pointer(name: &'static str, address: *const c_void, pe: c_int) -> *mut c_void {
    let job = job::get(name);
    job.process.rank(name, pe);
    here(job, address, pe)
}

fn here(job: &Job, address: *const c_void, pe: c_int) -> *mut c_void {
    if job.find(address.addr(), 1).is_none() {
        return std::ptr::null_mut();
    }
    if pe as u32 == job.process.me {
        return address.cast_mut();
    }
    job.direct(pe, address.addr(), 1).map_or(std::ptr::null_mut(), |there| there.cast())
}

pub(crate) fn team_pointer(name: &'static str, team: usize, address: *const c_void, pe: c_int) -> *mut c_void {
    let job = job::get(name);
    let of = |team: &Team| team.world_pe(pe).map(|rank| here(job, address, rank as c_int));
    job.teams.get(name, team).and_then(of).unwrap_or(std::ptr::null_mut())
}

pub(crate) fn wtime() -> f64 {
    longarm::ffi::elapsed_s()
}

/// Nothing here needs to know threads apart. Programs call it before init.
pub(crate) fn register_gettid(_name: &'static str, _get: GetThread) {}

fn count(job: &Job, counted: Counted) -> u64 {
    let kinds: &[CounterKind] = match counted {
        Counted::Writes => &[CounterKind::Put, CounterKind::Signal],
        Counted::Reads => &[CounterKind::Get, CounterKind::Rmw],
        Counted::Targeted => &[],
    };
    let traffic = job.process.world.traffic();
    let of_kind = |kind: &CounterKind| traffic.iter().map(|peer| peer.kinds[*kind as usize].operations).sum::<u64>();
    kinds.iter().map(of_kind).sum()
}

/// Operations of all contexts together: what is counted is what a PE did with another.
///
/// # Safety
/// `value` is writable.
pub(crate) unsafe fn counter(name: &'static str, context: usize, counted: Counted, value: *mut u64) {
    let job = job::get(name);
    job.contexts.get(name, context);
    // SAFETY: this function's own contract.
    unsafe { value.write(count(job, counted)) };
}

/// # Safety
/// `counters` is writable.
pub(crate) unsafe fn counters(name: &'static str, context: usize, counters: *mut Counters) {
    let job = job::get(name);
    job.contexts.get(name, context);
    let (writes, reads) = (count(job, Counted::Writes), count(job, Counted::Reads));
    let target = count(job, Counted::Targeted);
    // "Pending" are all that were ever issued.
    let all = Counters { pending_put: writes, pending_get: reads, completed_put: writes, completed_get: reads, target };
    // SAFETY: this function's own contract.
    unsafe { counters.write(all) };
}
