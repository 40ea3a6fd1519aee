//! Collectives on data, in the world and in a group of all its ranks in the reverse order, and all-to-all by puts, gets and fetch-and-adds. Every rank takes part equally often; rank 0's time counts.

use std::hint::black_box;
use std::time::Instant;

use longarm::{Group, Reduction};

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

/// Bytes of one rank's part.
const BYTES: [usize; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];
/// About how many bytes all ranks together move in a batch, and how many rounds it has at most.
const BATCH_BYTES: usize = 64 << 20;
const ROUNDS_MAX: usize = 400;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    of_group(job, job.world.group(), "")?;
    let group = job.world.split_collective(Some(0), -i64::from(job.world.rank()))?.ok_or("every rank has a color")?;
    measure(job, "group_sync", 0, || Ok(group.sync_collective()?))?;
    of_group(job, &group, "group_")
}

/// `prefix`: of the names of what is measured.
fn of_group(job: &Job<'_>, group: &Group, prefix: &str) -> Result<(), Failure> {
    let measure = |op: &str, bytes: usize, once: &mut dyn FnMut() -> Result<(), Failure>| {
        measure(job, &format!("{prefix}{op}"), bytes, once)
    };
    for bytes in BYTES {
        let mut bytes_of_one = vec![1_u8; bytes];
        measure("broadcast", bytes, &mut || Ok(group.broadcast_collective(0, black_box(&mut bytes_of_one))?))?;
        let mut numbers = vec![0.0_f64; bytes / 8];
        measure("allreduce", bytes, &mut || Ok(group.allreduce_collective(Reduction::Sum, black_box(&mut numbers))?))?;
        measure("allgather", bytes, &mut || {
            black_box(group.allgather_collective(&bytes_of_one)?);
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn all_to_all(job: &Job<'_>) -> Result<(), Failure> {
    let (world, size) = (job.world, job.world.size() as usize);
    for bytes in BYTES {
        let me = world.rank() as usize;
        let block = |from: usize, to: usize| (0..bytes).map(move |index| pattern(from, to, index));
        let all: Vec<u8> = (0..size).flat_map(|to| block(me, to)).collect();
        let whole = world.alltoall_collective(&all)?;
        let mine = me * bytes;
        let expected: Vec<u8> = (0..size).flat_map(|from| block(from, me)).collect();
        if whole != expected {
            return Err("all-to-all has not brought what was sent".into());
        }
        measure(job, "alltoall", bytes, || {
            black_box(world.alltoall_collective(&all)?);
            Ok(())
        })?;
        let window = world.allocate_collective::<u8>(size * bytes)?;
        measure(job, "alltoall_put", bytes, || {
            world.scope(|scope| {
                for step in 0..size {
                    let to = (me + step) % size;
                    scope.put(&window, to as u32, mine, &all[to * bytes..(to + 1) * bytes]);
                }
            })?;
            Ok(world.barrier_collective()?)
        })?;
        if window.get_vec(world.rank(), 0..size * bytes)? != expected {
            return Err("all-to-all by puts has not brought what was sent".into());
        }
        // Each waits for the others while they wait for it.
        let mut got = vec![0_u8; bytes];
        measure(job, "alltoall_get", bytes, || {
            (1..size).try_for_each(|step| window.get(((me + step) % size) as u32, 0, black_box(&mut got)))?;
            Ok(world.barrier_collective()?)
        })?;
        if size > 1 && !got.iter().copied().eq(block(0, (me + size - 1) % size)) {
            return Err("gets from everybody have not brought what is there".into());
        }
        if bytes == size_of::<u64>() {
            world.barrier_collective()?;
            let words = window.cast::<u64>();
            measure(job, "alltoall_fadd", bytes, || {
                (1..size).try_for_each(|step| words.fetch_add(((me + step) % size) as u32, 0, 1).map(drop))?;
                Ok(world.barrier_collective()?)
            })?;
        }
        window.free_collective()?;
    }
    Ok(())
}

/// A byte that depends on who sends it, to whom, and where it stands.
fn pattern(from: usize, to: usize, index: usize) -> u8 {
    (from * 89 + to * 151 + index * 31 + index / 256 * 7) as u8
}

/// Times what all ranks do together.
pub(super) fn measure(
    job: &Job<'_>,
    op: &str,
    bytes: usize,
    mut once: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    // The same on all ranks: nobody may make more rounds than the others.
    let rounds = (BATCH_BYTES / (bytes * job.world.size() as usize).max(1)).clamp(4, ROUNDS_MAX);
    let rounds = if job.arguments.quick { rounds.div_ceil(8) } else { rounds };
    let mut seconds = Vec::new();
    for _ in 0..2 {
        once()?;
    }
    for _ in 0..job.effort.batches() {
        job.world.sync_collective()?;
        let start = Instant::now();
        for _ in 0..rounds {
            once()?;
        }
        seconds.push(start.elapsed().as_secs_f64() / rounds as f64);
    }
    if job.measures() {
        job.tell(op, bytes, &Sample::of_batches(seconds));
    }
    Ok(())
}
