//! How a test says that it cannot be done on this machine.

use std::io::Write as _;

/// Writes a line that `make test` counts, for the test of this thread. It goes to the descriptor itself: the test program
/// keeps to itself what a test that passes has printed.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("\nSKIPPED: {test}: {reason}: nothing is tested here\n");
    // Nobody reads it if it cannot be written.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
