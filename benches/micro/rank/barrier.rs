//! Barriers, which everybody takes part in, equally often.

use std::time::Instant;

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

/// Made before the first batch, for connections and the like.
const WARM_UP: u32 = 20;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let each = if job.arguments.quick { 200 } else { 1000 };
    let mut seconds = Vec::new();
    batch(job, WARM_UP)?;
    for _ in 0..job.effort.batches() {
        let start = Instant::now();
        batch(job, each)?;
        seconds.push(start.elapsed().as_secs_f64() / f64::from(each));
    }
    if job.measures() {
        job.tell(&format!("barrier{}", job.world.size()), 0, &Sample::of_batches(seconds));
    }
    Ok(())
}

fn batch(job: &Job<'_>, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        job.world.barrier_collective()?;
    }
    Ok(())
}
