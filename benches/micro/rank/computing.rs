//! The target computes and makes no call: its node's server alone has to do it. Two kinds, which differ in what the origin did before:
//!
//! `passive_...`: one operation, behind a computation of its own, as benches/peers/driver.c measures other systems.
//! `computing_...`: one after the other, so that nothing is cold and the server finds the next request soon.

use std::hint::black_box;
use std::time::Duration;

use longarm::Update;

use super::Job;
use crate::Failure;
use crate::micro::sample::{Sample, compute_for, seconds_behind_computing};

const LARGE_BYTES: usize = 1 << 20;
/// For how long the target computes around one operation, which the origin begins behind a shorter computation of its own.
const TARGET_COMPUTES: Duration = Duration::from_millis(20);
/// The target computes longer than the origin measures one operation after the other, by this factor.
const LONGER: u32 = 2;

/// What is measured: which operation, its bytes, and the operation.
type Operation<'a> = (&'a str, usize, Box<dyn FnMut() -> Result<(), Failure> + 'a>);

/// Which kinds are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    Passive,
    Both,
}

/// Each operation in phases of its own.
pub(super) fn run(job: &Job<'_>, kinds: Kinds) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u8>(if world.rank() == target { LARGE_BYTES } else { 0 })?;
    let (words, doubles) = (window.cast::<u64>(), window.cast::<f64>());
    let (mut word, mut near, ones) = ([0; 8], vec![1_u8; LARGE_BYTES], vec![1.0_f64; LARGE_BYTES / 8]);
    let put = || {
        window.put(target, 0, black_box(&[1; 8]))?;
        Ok(world.quiet()?)
    };
    let sum = || {
        doubles.accumulate(target, 0, Update::Sum, black_box(&ones))?;
        Ok(world.quiet()?)
    };
    let operations: [Operation<'_>; 5] = [
        ("get", 8, Box::new(|| Ok(window.get(target, 0, black_box(&mut word))?))),
        ("put", 8, Box::new(put)),
        ("fadd", 8, Box::new(|| Ok(words.fetch_add(target, 0, 1).map(drop)?))),
        ("get", LARGE_BYTES, Box::new(|| Ok(window.get(target, 0, black_box(&mut near))?))),
        ("acc", LARGE_BYTES, Box::new(sum)),
    ];
    for (op, bytes, mut operation) in operations {
        if job.measures() {
            operation()?; // The connection is opened before.
        }
        behind_a_computation(job, &format!("passive_{op}"), bytes, &mut operation)?;
        if kinds == Kinds::Both {
            one_after_the_other(job, &format!("computing_{op}"), bytes, &mut operation)?;
        }
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

fn behind_a_computation(
    job: &Job<'_>,
    op: &str,
    bytes: usize,
    mut operation: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut seconds = Vec::new();
    for _ in 0..job.effort.passes() {
        job.world.barrier_collective()?;
        if job.measures() {
            seconds.push(seconds_behind_computing(&mut operation)?);
        } else {
            compute_for(TARGET_COMPUTES);
        }
        job.world.barrier_collective()?;
    }
    if job.measures() {
        job.tell(op, bytes, &Sample::of_batches(seconds));
    }
    Ok(())
}

fn one_after_the_other(
    job: &Job<'_>,
    op: &str,
    bytes: usize,
    operation: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let time = Duration::from_millis(if job.arguments.quick { 150 } else { 500 });
    job.world.barrier_collective()?;
    if job.measures() {
        // Every target has left the barrier by then.
        std::thread::sleep(time / 4);
        job.tell(op, bytes, &job.effort.measure_singly(time, operation)?);
    } else {
        compute_for(time * LONGER);
    }
    job.world.barrier_collective()?;
    Ok(())
}
