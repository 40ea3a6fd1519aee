//! Waiting for nonblocking transfers. Completion is local: a fence makes it remote.

use std::ffi::c_int;

use super::handles::{CHandle, Pending};
use crate::boundary::{call, call_or_end};
use crate::job::Job;
use crate::refusal::Done;

/// Waits for the transfers of a handle. One that names nothing is no error.
///
/// # Safety
/// `handle` is null or points to a handle that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Wait(handle: *mut CHandle) -> c_int {
    call("ARMCI_Wait", |job| {
        // SAFETY: this function's own contract.
        let Some(handle) = (unsafe { handle.as_mut() }) else { return wait_implicit(job, None) };
        let outcome = wait_for(job, &job.handles.of(handle));
        job.handles.forget(handle);
        outcome
    })
}

/// 0 if the transfers of a handle are complete, 1 if not.
///
/// # Safety
/// As [`PARMCI_Wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Test(handle: *mut CHandle) -> c_int {
    call_or_end("ARMCI_Test", |job| {
        // SAFETY: this function's own contract.
        let handle = unsafe { handle.as_mut() };
        let transfers = handle.as_ref().map_or_else(|| job.handles.implicit(None), |handle| job.handles.of(handle));
        let is_complete = || transfers.iter().all(|pending| pending.completion.is_complete());
        if !is_complete() {
            job.world.progress();
        }
        if !is_complete() {
            return Ok(1);
        }
        let outcome = wait_for(job, &transfers);
        match handle {
            Some(handle) => job.handles.forget(handle),
            None => job.handles.forget_implicit(None),
        }
        outcome.map(|()| 0)
    })
}

/// Waits for all transfers: those under handles too, as programs written for ComEx expect. These may still be waited
/// for by their handles, which tell what has failed.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_WaitAll() -> c_int {
    call("ARMCI_WaitAll", |job| wait_for_all(job, None))
}

/// Waits for all transfers with one process, as [`PARMCI_WaitAll`] does.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_WaitProc(proc: c_int) -> c_int {
    call("ARMCI_WaitProc", |job| {
        let rank = job.rank(proc)?;
        wait_for_all(job, Some(rank))
    })
}

fn wait_for_all(job: &Job, rank: Option<u32>) -> Done {
    let explicit = wait_for(job, &job.handles.explicit(rank));
    wait_implicit(job, rank).and(explicit)
}

/// Waits for implicit transfers. Other threads that wait for them do so too: they are forgotten when they are complete.
fn wait_implicit(job: &Job, rank: Option<u32>) -> Done {
    let outcome = wait_for(job, &job.handles.implicit(rank));
    job.handles.forget_implicit(rank);
    outcome
}

/// Gathers transfers under one handle, which every handle does: those that are started under it are waited for together.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_SET_AGGREGATE_HANDLE(handle: *mut CHandle) {
    call_or_end("ARMCI_SET_AGGREGATE_HANDLE", |_| crate::arguments::not_null(handle));
}

/// Ends gathering; what was put together is waited for as before.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_UNSET_AGGREGATE_HANDLE(handle: *mut CHandle) {
    call_or_end("ARMCI_UNSET_AGGREGATE_HANDLE", |_| crate::arguments::not_null(handle));
}

/// Waits for all of them, and gives the first failure.
fn wait_for(job: &Job, transfers: &[Pending]) -> Done {
    let waited = transfers.iter().map(|pending| {
        let Pending { operation, rank, completion } = pending;
        job.world.wait_for_completion(*operation, *rank, completion)
    });
    let outcomes: Vec<_> = waited.collect();
    outcomes.into_iter().collect::<Result<(), _>>()?;
    Ok(())
}
