//! From a result to what C gets: a code, or the end of the job.

use std::ffi::c_int;

use crate::ending::note_ending;
use crate::job::{self, Job};
use crate::refusal::{BAD_RANK, Done, NULL_POINTER, Refusal};

/// Runs a call that returns a code: 0, or why not.
#[inline(always)]
pub(crate) fn call(name: &'static str, body: impl FnOnce(&'static Job) -> Done) -> c_int {
    match job::active() {
        Some(job) => match body(job) {
            Ok(()) => 0,
            Err(fault) => failed(name, fault),
        },
        None => inactive(name),
    }
}

/// Runs a call that has no way to report anything: what goes wrong ends the job.
#[inline(always)]
pub(crate) fn call_or_end<T>(name: &'static str, body: impl FnOnce(&'static Job) -> Done<T>) -> T {
    let Some(job) = job::active() else { inactive(name) };
    match body(job) {
        Ok(value) => value,
        Err(fault) => end_with(name, fault),
    }
}

/// Runs a call that also works before `ARMCI_Init` and after `ARMCI_Finalize`, for which a joined job is enough.
pub(crate) fn call_joined<T>(name: &'static str, body: impl FnOnce(&'static Job) -> Done<T>) -> T {
    let outcome = crate::join::joined_for_messages().and_then(body);
    match outcome {
        Ok(value) => value,
        Err(fault) => end_with(name, fault),
    }
}

#[cold]
fn failed(name: &'static str, fault: Refusal) -> c_int {
    match fault {
        Refusal::Code(code) => code,
        Refusal::Fatal(text) => end(name, &text),
    }
}

#[cold]
pub(crate) fn end_with(name: &'static str, fault: Refusal) -> ! {
    match fault {
        Refusal::Fatal(text) => end(name, &text),
        Refusal::Code(NULL_POINTER) => end(name, "a pointer is NULL"),
        Refusal::Code(BAD_RANK) => end(name, "there is no such process"),
        Refusal::Code(code) => end(name, &format!("wrong arguments (code {code})")),
    }
}

#[cold]
fn inactive(name: &'static str) -> ! {
    match job::phase() {
        job::Phase::Finished => end(name, "called after ARMCI_Finalize"),
        _ => end(name, "called before ARMCI_Init"),
    }
}

/// Ends the whole job with one line.
#[cold]
pub(crate) fn end(name: &'static str, text: &str) -> ! {
    end_with_status(&format!("{name}: {text}"), 1)
}

/// Ends the whole job with a line and an exit status.
pub(crate) fn end_with_status(line: &str, status: i32) -> ! {
    note_ending();
    match job::any() {
        Some(job) => job.world.abort(line, status),
        None => crate::join::end_before_joining(line, status),
    }
    std::process::exit(status)
}
