//! How much of a transfer hides behind the computation of the rank that started it.
//!
//! Post, compute for twice as long as the transfer alone takes, wait. The target waits in a barrier. `availability` is the
//! share of the time that went into computing; `hidden` the share of the shorter of both that cost nothing.

use std::time::Instant;

use longarm::Window;

use super::Job;
use crate::Failure;
use crate::line::{Key, LONGARM, Line, Overlap};
use crate::micro::sample::{Sample, compute};

/// Sizes of the transfers.
const BYTES: [usize; 2] = [100_000, 1_000_000];
/// How often each is done.
const TIMES: usize = 201;
/// The same, for a look.
const QUICK_TIMES: usize = 31;
/// Steps of the computation at a time, by which its speed is found.
const CALIBRATION_STEPS: u64 = 2_000_000;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u8>(if world.rank() == target { BYTES[1] } else { 0 })?;
    if job.measures() {
        let mut near = vec![1; BYTES[1]];
        let speed = steps_a_second();
        for bytes in BYTES {
            let near = &mut near[..bytes];
            measure(job, "overlap_get", bytes, speed, |work| get(job, &window, near, work))?;
            let near = &*near;
            measure(job, "overlap_put", bytes, speed, |work| put(job, &window, near, work))?;
        }
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

fn get(job: &Job<'_>, window: &Window<u8>, near: &mut [u8], work: u64) -> Result<(), Failure> {
    job.world.scope(|scope| {
        scope.get(window, job.arguments.target, 0, near);
        compute(work);
    })?;
    Ok(())
}

fn put(job: &Job<'_>, window: &Window<u8>, near: &[u8], work: u64) -> Result<(), Failure> {
    job.world.scope(|scope| {
        scope.put(window, job.arguments.target, 0, near);
        compute(work);
    })?;
    Ok(())
}

fn measure(
    job: &Job<'_>,
    op: &str,
    bytes: usize,
    speed: f64,
    mut transfer: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let times = if job.arguments.quick { QUICK_TIMES } else { TIMES };
    let mut alone = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        transfer(0)?;
        alone.push(start.elapsed().as_secs_f64());
    }
    let alone = Sample::of_batches(alone);
    let steps = (2.0 * alone.seconds * speed) as u64;
    let (mut work, mut both) = (Vec::with_capacity(times), Vec::with_capacity(times));
    for _ in 0..times {
        let start = Instant::now();
        compute(steps);
        work.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        transfer(steps)?;
        both.push(start.elapsed().as_secs_f64());
    }
    let (work, both) = (Sample::of_batches(work), Sample::of_batches(both));
    let hidden = (alone.seconds + work.seconds - both.seconds) / alone.seconds.min(work.seconds);
    let key = Key { transport: &job.arguments.transport, op, bytes: bytes as u64 };
    let overlap = Overlap {
        comm_us: alone.seconds * 1e6,
        work_us: work.seconds * 1e6,
        availability: work.seconds / both.seconds,
        hidden: Some(hidden.clamp(0.0, 1.0)),
    };
    let line = Line { np: job.world.size(), overlap: Some(overlap), ..Line::new(LONGARM, key, &both) };
    println!("{}", line.to_json());
    Ok(())
}

pub(super) fn steps_a_second() -> f64 {
    let once = || {
        let start = Instant::now();
        compute(CALIBRATION_STEPS);
        CALIBRATION_STEPS as f64 / start.elapsed().as_secs_f64()
    };
    (0..7).map(|_| once()).fold(0.0, f64::max)
}
