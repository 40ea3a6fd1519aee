//! Puts from one of several buffers, taken at random: what a cache of registrations is worth that has room for some of them.

use std::hint::black_box;

use super::Job;
use crate::Failure;
use crate::micro::buffer;

const BUFFERS: usize = 16;
const BUFFER_BYTES: usize = 256 << 10;
/// Puts of a batch at least: a batch of one would say what one buffer is worth.
const AT_A_TIME: usize = 16;
/// Pages between two buffers, so that the registrations of neighbours are not made one.
const GAP_BYTES: usize = 64 << 10;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u8>(if world.rank() == target { BUFFER_BYTES } else { 0 })?;
    if job.measures() {
        let pitch_bytes = BUFFER_BYTES + GAP_BYTES;
        let mut near = buffer::private(BUFFERS * pitch_bytes)?;
        near.fill(1);
        let mut random = 1_u32;
        let put = job.effort.measure(|count| {
            for _ in 0..count * AT_A_TIME as u64 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let start = (random >> 28) as usize * pitch_bytes;
                window.put(target, 0, black_box(&near[start..start + BUFFER_BYTES]))?;
                world.quiet()?;
            }
            Ok(())
        })?;
        job.tell("put_from_many", BUFFER_BYTES, &put.divided_by(AT_A_TIME));
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

const _: () = assert!(BUFFERS == 1 << 4, "four bits choose one");
