//! A word that two ranks put into each other's memory in turn, each looking at its own: half of the way there and back is the
//! time that a put takes until the target sees it. So perftest's `ib_write_lat` measures it too.

use std::time::Duration;

use longarm::{Window, World};

use super::Job;
use crate::Failure;

/// So many before the clock runs.
const FIRST_PUTS: usize = 100;
/// How long the clock runs.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tells the target that this was all.
const LAST: u64 = u64::MAX;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u64>(1)?;
    world.barrier_collective()?;
    // As perftest does, both know where to write before the clock runs: connected, told the window's key, nothing under way.
    let first = if job.measures() { Some(target) } else { (world.rank() == target).then_some(0) };
    for _ in 0..FIRST_PUTS {
        if let Some(other) = first {
            window.put_one(other, 0, 0)?;
            world.quiet()?;
        }
    }
    world.barrier_collective()?;
    world.quiet()?;
    if job.measures() {
        let mut word = 0;
        // One by one, as perftest does: where two that look without a pause take the processors from whoever moves the bytes, some
        // rounds last for milliseconds, and a batch would last as long as the slowest of them.
        let there_and_back = job.effort.measure_singly(PATIENCE, || {
            word += 1;
            window.put_one(target, 0, word)?;
            while next_word(world, &window, word - 1)? != word {}
            Ok(())
        })?;
        window.put_one(target, 0, LAST)?;
        job.tell("put_one_way", size_of::<u64>(), &there_and_back.divided_by(2));
    } else if world.rank() == target {
        let mut word = 0;
        loop {
            word = next_word(world, &window, word)?;
            if word == LAST {
                break;
            }
            window.put_one(0, 0, word)?;
        }
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

/// Looks at this rank's own memory until there is another word than this.
fn next_word(world: &World, window: &Window<u64>, seen: u64) -> Result<u64, Failure> {
    loop {
        let word = window.get_one(world.rank(), 0)?;
        if word != seen {
            return Ok(word);
        }
        std::hint::spin_loop();
    }
}
