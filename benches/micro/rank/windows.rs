//! Windows that all ranks make, write to and free again.

use std::time::Instant;

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

/// Bytes of each rank's part.
const SIZES: [usize; 3] = [8, 64 << 10, 1 << 20];
/// Made before the first batch, for connections and the like.
const WARM_UP: u32 = 20;

/// The time is that of a window: made, one word put into each rank's own part, freed.
pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let each = if job.arguments.quick { 50 } else { 200 };
    for bytes in SIZES {
        batch(job, bytes, WARM_UP)?;
        let mut seconds = Vec::new();
        for _ in 0..job.effort.batches() {
            let start = Instant::now();
            batch(job, bytes, each)?;
            seconds.push(start.elapsed().as_secs_f64() / f64::from(each));
        }
        if job.measures() {
            job.tell(&format!("window{}", job.world.size()), bytes, &Sample::of_batches(seconds));
        }
    }
    Ok(())
}

fn batch(job: &Job<'_>, bytes: usize, count: u32) -> Result<(), Failure> {
    let world = job.world;
    for number in 0..count {
        let window = world.allocate_collective::<u64>(bytes / size_of::<u64>())?;
        window.put_one(world.rank(), 0, u64::from(number) + 1)?;
        window.free_collective()?;
    }
    Ok(())
}
