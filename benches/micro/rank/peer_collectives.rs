//! The collectives that `benches/peers/collectives.c` measures of other systems, and one word that all ranks want.

use std::hint::black_box;

use longarm::Reduction;

use super::Job;
use super::{collectives, contended};
use crate::Failure;

/// Bytes of one rank's part, where there is much data.
const LARGE_BYTES: [usize; 2] = [64 << 10, 1 << 20];
/// More ranks have no room for that.
const LARGE_RANKS_MAX: u32 = 4;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    collectives::measure(job, "barrier", 0, || Ok(world.barrier_collective()?))?;
    let mut word = [1_u8; 8];
    // From each in turn, so that nobody can run ahead of the others for long.
    let mut roots = (0..world.size()).cycle();
    collectives::measure(job, "broadcast", 8, || {
        let root = roots.next().unwrap_or_default();
        Ok(world.broadcast_collective(root, black_box(&mut word))?)
    })?;
    let mut number = [0.0_f64];
    collectives::measure(job, "allreduce", 8, || {
        Ok(world.allreduce_collective(Reduction::Sum, black_box(&mut number))?)
    })?;
    for bytes in LARGE_BYTES.into_iter().filter(|_| world.size() <= LARGE_RANKS_MAX) {
        let mut numbers = vec![0.0_f64; bytes / size_of::<f64>()];
        collectives::measure(job, "allreduce", bytes, || {
            Ok(world.allreduce_collective(Reduction::Sum, black_box(&mut numbers))?)
        })?;
        let mut own = vec![1_u8; bytes * world.size() as usize];
        let mut all = own.clone();
        collectives::measure(job, "allgather", bytes, || {
            renew(&mut own[..bytes]);
            Ok(world.allgather_into_collective(&own[..bytes], black_box(&mut all))?)
        })?;
        collectives::measure(job, "alltoall", bytes, || {
            renew(&mut own);
            Ok(world.alltoall_into_collective(&own, black_box(&mut all))?)
        })?;
    }
    contended::run(job)
}

/// A program sends something new each time: it changes every line of the caches first. That counts.
fn renew(bytes: &mut [u8]) {
    bytes.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
}
