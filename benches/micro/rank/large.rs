//! Words at random places of a large window of another rank of the node: where it has more pages than the processor keeps addresses of,
//! each access looks one up first. Measured in small pages and, with `LONGARM_HUGE_PAGES=yes`, in huge ones.

use std::time::Instant;

use longarm::Window;
use longarm::topology::Machine;

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

const SIZES: [usize; 4] = [64 << 20, 1 << 30, 4 << 30, 8 << 30];
/// The same, for a look.
const QUICK_SIZES: [usize; 1] = [64 << 20];
/// Words of the smallest page there is.
const PAGE_WORDS: usize = 512;

/// Rank 0 gets and puts words of the last rank's part.
pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    if world.node_count() != 1 {
        return Err("large windows are measured between two ranks of one node".into());
    }
    let sizes = if job.arguments.quick { &QUICK_SIZES[..] } else { &SIZES[..] };
    // Half of it, for the system keeps something, too.
    let mut room = [Machine::probe().memory_available_bytes.unwrap_or(u64::MAX) / 2];
    world.broadcast_collective(0, &mut room)?;
    for bytes in sizes.iter().copied() {
        if bytes as u64 > room[0] {
            if job.measures() {
                eprintln!(
                    "longarm perf large: {bytes} B are skipped, half of the memory that is free has {} B",
                    room[0]
                );
            }
            continue;
        }
        measure(job, bytes)?;
    }
    Ok(())
}

fn measure(job: &Job<'_>, bytes: usize) -> Result<(), Failure> {
    let (world, words) = (job.world, bytes / size_of::<u64>());
    let is_target = world.rank() == job.arguments.target;
    world.barrier_collective()?;
    let start = Instant::now();
    let window = world.allocate_collective::<u64>(if is_target { words } else { 0 })?;
    if is_target {
        let mine = window.own_part()?;
        (0..words).step_by(PAGE_WORDS).for_each(|word| mine.store(word, word as u64));
    }
    world.barrier_collective()?;
    if job.measures() {
        // Every page of it, by which a bandwidth means something.
        let made = Sample::of_batches(vec![start.elapsed().as_secs_f64()]);
        job.tell(&name(job, "make", bytes), bytes, &made);
        measure_words(job, &window, words)?;
    }
    window.free_collective()?;
    Ok(())
}

fn measure_words(job: &Job<'_>, window: &Window<u64>, words: usize) -> Result<(), Failure> {
    let (target, bytes) = (job.arguments.target, words * size_of::<u64>());
    // This process has no page of it yet.
    for word in (0..words).step_by(PAGE_WORDS) {
        if window.get_one(target, word)? != word as u64 {
            return Err(format!("word {word} of a large window is wrong").into());
        }
    }
    // The next place depends on what was read, so that one get is not begun before the other has ended.
    let mut random = 1_u64;
    let mut next = |read: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) ^ (read & 1);
        ((random >> 20) % words as u64) as usize
    };
    let mut read = 0;
    let gets = job.effort.measure(|count| {
        for _ in 0..count {
            read = window.get_one(target, next(read))?;
        }
        Ok(())
    })?;
    job.tell(&name(job, "get", bytes), size_of::<u64>(), &gets);
    let puts = job.effort.measure(|count| {
        for _ in 0..count {
            window.put_one(target, next(0), 2)?;
        }
        Ok(job.world.quiet()?)
    })?;
    job.tell(&name(job, "put", bytes), size_of::<u64>(), &puts);
    Ok(())
}

/// What an operation on a window of so many bytes is called.
fn name(job: &Job<'_>, op: &str, bytes: usize) -> String {
    let pages = if job.world.config().huge_pages { "huge" } else { "small" };
    format!("large_{op}_{}m_{pages}", bytes >> 20)
}
