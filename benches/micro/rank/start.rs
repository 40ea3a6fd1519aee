//! From the start of the launcher to the end of the first barrier, by the clock that all processes share.

use longarm::Reduction;
use rustix::time::{ClockId, clock_gettime};

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    job.world.barrier_collective()?;
    let mut latest = [now_ns()];
    job.world.allreduce_collective(Reduction::Max, &mut latest)?;
    if job.measures() {
        let seconds = (latest[0] - job.arguments.since_ns as i64) as f64 * 1e-9;
        let sample = Sample { seconds, seconds_min: seconds, seconds_p99: None, seconds_p999: None };
        job.tell("start", 0, &sample);
    }
    Ok(())
}

/// What the system's monotonic clock shows.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
