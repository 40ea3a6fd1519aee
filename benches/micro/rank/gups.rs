//! GUPS: updates of random words of a table that is spread over all ranks (HPC Challenge RandomAccess).
//!
//! The word at `r mod size of the table` becomes itself xor r, where r walks through the polynomial sequence of the
//! benchmark. All updates are made by atomic operations, so doing them a second time has to give the first table back:
//! that is checked, and no word may be wrong.

use std::time::Instant;

use longarm::{Reduction, Update};

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

/// Words of each rank.
const WORDS: usize = 1 << 20;
/// The same, for a look.
const QUICK_WORDS: usize = 1 << 14;
/// Updates of each rank.
const UPDATES: u64 = 1 << 18;
/// See [`UPDATES`].
const QUICK_UPDATES: u64 = 1 << 12;
/// Updates of other nodes' words that one rank has under way: the benchmark allows 1024.
const LOOK_AHEAD: usize = 512;
/// x⁶⁴ + x² + x + 1, as the benchmark has it.
const POLYNOMIAL: u64 = 7;

/// The sequence of one rank. The benchmark cuts one sequence into pieces; here each rank starts from a number of its own.
struct Sequence(u64);

impl Iterator for Sequence {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let carry = if self.0 >> 63 == 1 { POLYNOMIAL } else { 0 };
        self.0 = self.0 << 1 ^ carry;
        Some(self.0)
    }
}

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    let (words, updates) = if job.arguments.quick { (QUICK_WORDS, QUICK_UPDATES) } else { (WORDS, UPDATES) };
    let table = world.allocate_collective::<u64>(words)?;
    let (me, size) = (world.rank(), u64::from(world.size()));
    let first: Vec<u64> = (0..words as u64).map(|index| u64::from(me) * words as u64 + index).collect();
    table.put(me, 0, &first)?;
    world.barrier_collective()?;
    // Far into the sequence of this rank, where its bits are mixed.
    let start = Sequence(u64::from(me) * 0x9e37_79b9 + 1).nth(4096).expect("it has no end");
    let mut seconds = 0.0;
    for round in 0..2 {
        let began = Instant::now();
        let mut away = Vec::with_capacity(LOOK_AHEAD);
        for random in Sequence(start).take(updates as usize) {
            let place = random % (words as u64 * size);
            let (rank, index) = ((place / words as u64) as u32, (place % words as u64) as usize);
            if world.node_of(rank) == Some(world.node()) {
                table.fetch_xor(rank, index, random)?;
                continue;
            }
            away.push((rank, index, random));
            if away.len() == LOOK_AHEAD {
                table.update_many(&away, Update::Xor)?;
                world.quiet()?;
                away.clear();
            }
        }
        table.update_many(&away, Update::Xor)?;
        world.barrier_collective()?;
        if round == 0 {
            seconds = began.elapsed().as_secs_f64();
            if table.get_vec(me, 0..words)? == first {
                return Err("no word of the table has changed".into());
            }
            world.barrier_collective()?;
        }
    }
    let mut wrong =
        [table.get_vec(me, 0..words)?.iter().zip(&first).filter(|(found, first)| found != first).count() as u64];
    world.allreduce_collective(Reduction::Sum, &mut wrong)?;
    if wrong[0] > 0 {
        return Err(format!("{} words of the table are wrong after all updates were made twice", wrong[0]).into());
    }
    if job.measures() {
        // The time of one update, of all that the ranks make together.
        job.tell("gups", size_of::<u64>(), &Sample::of_batches(vec![seconds / (updates * size) as f64]));
    }
    table.free_collective()?;
    Ok(())
}
