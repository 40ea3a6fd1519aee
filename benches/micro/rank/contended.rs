//! All ranks add to one word of the target at once.

use std::hint::black_box;
use std::time::Instant;

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

/// Time of one batch.
const BATCH_S: f64 = 0.04;
/// The same, for a look.
const QUICK_BATCH_S: f64 = 0.01;
/// Additions of each rank in a batch, within these bounds.
const COUNT_MIN: u64 = 200;
/// See [`COUNT_MIN`].
const COUNT_MAX: u64 = 1_000_000;

/// The time is that of a batch, divided by all additions of all ranks.
pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let words = world.allocate_collective::<u64>(16)?;
    // How often, which rank 0 decides.
    if job.measures() {
        let start = Instant::now();
        for _ in 0..COUNT_MIN {
            words.fetch_add(target, 0, 1)?;
        }
        let each = start.elapsed().as_secs_f64() / COUNT_MIN as f64;
        let batch = if job.arguments.quick { QUICK_BATCH_S } else { BATCH_S };
        let count = ((batch / each) as u64).clamp(COUNT_MIN, COUNT_MAX);
        for rank in 0..world.size() {
            words.put_one(rank, 8, count)?;
        }
        world.quiet()?;
    }
    world.barrier_collective()?;
    let count = words.get_one(world.rank(), 8)?;
    let mut seconds = Vec::new();
    for _ in 0..job.effort.batches() {
        let before = words.get_one(target, 0)?;
        world.barrier_collective()?;
        let start = Instant::now();
        for _ in 0..count {
            black_box(words.fetch_add(target, 0, 1)?);
        }
        world.barrier_collective()?;
        let all = count * u64::from(world.size());
        seconds.push(start.elapsed().as_secs_f64() / all as f64);
        if words.get_one(target, 0)? != before + all {
            return Err("additions of several ranks at once were lost".into());
        }
        world.barrier_collective()?;
    }
    if job.measures() {
        job.tell("fadd_contended", 8, &Sample::of_batches(seconds));
    }
    words.free_collective()?;
    Ok(())
}
