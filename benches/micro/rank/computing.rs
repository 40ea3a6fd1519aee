//! The target computes and makes no call: its node's server alone has to do it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use longarm::Update;

use super::Job;
use crate::Failure;

const LARGE_BYTES: usize = 1 << 20;
/// The target computes longer than the origin measures, by this factor.
const LONGER: u32 = 2;

/// One operation after the other, each in a phase of its own.
pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u8>(if world.rank() == target { LARGE_BYTES } else { 0 })?;
    let (words, doubles) = (window.cast::<u64>(), window.cast::<f64>());
    let (mut near, ones) = (vec![1_u8; LARGE_BYTES], vec![1.0_f64; LARGE_BYTES / 8]);
    phase(job, "passive_get", 8, || Ok(window.get(target, 0, black_box(&mut near[..8]))?))?;
    phase(job, "passive_put", 8, || {
        window.put(target, 0, black_box(&[1; 8]))?;
        Ok(world.quiet()?)
    })?;
    phase(job, "passive_fadd", 8, || Ok(words.fetch_add(target, 0, 1).map(drop)?))?;
    phase(job, "passive_get", LARGE_BYTES, || Ok(window.get(target, 0, black_box(&mut near))?))?;
    phase(job, "passive_acc", LARGE_BYTES, || {
        doubles.accumulate(target, 0, Update::Sum, black_box(&ones))?;
        Ok(world.quiet()?)
    })?;
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

fn phase(
    job: &Job<'_>,
    op: &str,
    bytes: usize,
    mut operation: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let time = Duration::from_millis(if job.arguments.quick { 150 } else { 500 });
    if job.measures() {
        // The connection is opened before.
        operation()?;
    }
    job.world.barrier_collective()?;
    if job.measures() {
        // Every target has left the barrier by then.
        std::thread::sleep(time / 4);
        job.tell(op, bytes, &job.effort.measure_singly(time, operation)?);
    } else {
        compute(time * LONGER);
    }
    job.world.barrier_collective()?;
    Ok(())
}

/// Keeps its processor busy. The clock is read without entering the kernel.
fn compute(time: Duration) {
    let start = Instant::now();
    let mut number = 1_u64;
    while start.elapsed() < time {
        for _ in 0..1000 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}
