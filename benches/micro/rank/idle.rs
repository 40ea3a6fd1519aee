//! What a job costs that does nothing: processor time of whole processes, all their threads included.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::Job;
use crate::Failure;
use crate::line::{Key, LONGARM, Line};
use crate::micro::sample::Sample;

const TIME: Duration = Duration::from_secs(2);

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    let window = world.allocate_collective::<u64>(8)?;
    // Something has happened before, so that connections are open.
    for rank in 0..world.size() {
        window.fetch_add(rank, 0, 1)?;
    }
    world.barrier_collective()?;
    let before = processor_seconds();
    std::thread::sleep(TIME);
    tell(job, "idle", processor_seconds() - before)?;

    world.barrier_collective()?;
    let before = processor_seconds();
    if job.measures() {
        std::thread::sleep(TIME);
    }
    world.barrier_collective()?;
    tell(job, "idle_in_barrier", processor_seconds() - before)
}

/// Prints what the busiest rank has used.
fn tell(job: &Job<'_>, op: &str, used: f64) -> Result<(), Failure> {
    let all = job.world.allgather_collective(&[used])?;
    if job.measures() {
        let most = all.iter().copied().fold(0.0, f64::max);
        let sample =
            Sample { seconds: most.max(1e-9), seconds_min: most.max(1e-9), seconds_p99: None, seconds_p999: None };
        let key = Key { transport: &job.arguments.transport, op, bytes: 0 };
        let cpu_percent = Some(most / TIME.as_secs_f64() * 100.0);
        let line = Line { np: job.world.size(), cpu_percent, ..Line::new(LONGARM, key, &sample) };
        println!("{}", line.to_json());
    }
    Ok(())
}

fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}
