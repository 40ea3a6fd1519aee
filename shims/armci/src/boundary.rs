//! From a result to what C gets: a code, or the end of the job.

use std::ffi::c_int;
use std::fmt::Display;

use longarm::error::{
    CollectiveError, Lost, MessageError, MutexError, RmwError, TransferError, WaitError, WindowError,
};
use longarm::ffi::sync::{AtomicBool, Ordering};

use crate::job::{self, Job};

/// Why a call did not do what it was asked for.
pub(crate) enum Refusal {
    /// A code that ARMCI has for it. Nothing was done.
    Code(c_int),
    /// Nothing that a program can go on from: the job ends with this line.
    Fatal(String),
}

/// The codes of the classic interface.
pub(crate) const NULL_POINTER: c_int = -1;
pub(crate) const NULL_STRIDES: c_int = -2;
pub(crate) const NEGATIVE_COUNT: c_int = -3;
pub(crate) const BAD_LEVELS: c_int = -4;
pub(crate) const BAD_RANK: c_int = -5;
pub(crate) const FAILED: c_int = -6;

impl Refusal {
    pub(crate) fn fatal(text: impl Display) -> Refusal {
        Refusal::Fatal(text.to_string())
    }
}

macro_rules! fatal_from {
    ($($error:ty)+) => {$(
        impl From<$error> for Refusal {
            #[cold]
            fn from(error: $error) -> Refusal {
                Refusal::fatal(error)
            }
        }
    )+};
}
fatal_from! { CollectiveError Lost MessageError MutexError RmwError TransferError WaitError WindowError }

/// What every call gives.
pub(crate) type Done<T = ()> = Result<T, Refusal>;

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

/// A flag alone.
static ENDING: AtomicBool = AtomicBool::new(false);

/// From now on this process is ending the job.
pub(crate) fn note_ending() {
    ENDING.store(true, Ordering::Relaxed);
}

/// Whether this process is ending the job, so that what it does at its exit is not to leave in good order.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
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
