//! The time, for programs that measure how long something takes.

use std::sync::OnceLock;
use std::time::Instant;

/// Seconds since this process has first asked. `armci_timer`.
pub fn elapsed_s() -> f64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_secs_f64()
}
