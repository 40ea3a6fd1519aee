//! What becomes of a panic on a thread of longarm: what the thread was to do stays undone, and somebody may wait for it.

use std::any::Any;

use crate::bootstrap::own_end::{self, LAUNCHER_GRACE};
use crate::stage;

/// The exit status of a process that such a panic ends, as of one whose main function panicked.
pub(crate) const PANICKED: i32 = 101;

/// What a panic said, if it said something in words.
pub(crate) fn said_by(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}

/// Ends this process, once its job was told why.
pub(crate) fn end_process() -> ! {
    stage::end_thread_if_simulated();
    // A launcher would end this process too, in its time. Nothing more is to be done by it meanwhile. What the program does at its
    // exit may wait, for this thread too.
    own_end::end_after(LAUNCHER_GRACE, || ());
    std::process::exit(PANICKED);
}
