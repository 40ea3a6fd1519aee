//! Whether this process is ending the job.

use longarm::ffi::sync::{AtomicBool, Ordering};

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
