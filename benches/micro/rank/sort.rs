//! Integer sort, as kernel IS of the NAS parallel benchmarks: ranks of keys by bucket sort, keys exchanged by
//! all-to-all.
//!
//! The keys come from the generator of the benchmark, and each iteration changes two of them as it says. At the end every
//! key is put where its rank says, and what comes out is checked over all processes: in order, of the right number, with the
//! right sum.

use std::time::Instant;

use longarm::Reduction;

use super::Job;
use crate::Failure;
use crate::micro::sample::Sample;

/// A class of the benchmark: its name, and powers of two of the number of keys and of the largest one.
type Class = (&'static str, u32, u32);
const CLASSES: [Class; 3] = [("is_S", 16, 11), ("is_W", 20, 16), ("is_A", 23, 19)];
const ITERATIONS: usize = 10;
const BUCKETS_LOG: u32 = 10;

const MODULUS: u64 = 1 << 46;
const FACTOR: u64 = 1_220_703_125;
const SEED: u64 = 314_159_265;

/// The linear congruential generator of the benchmark.
struct Generator(u64);

impl Generator {
    /// The generator after so many numbers.
    fn skipping(numbers: u64) -> Generator {
        let (mut state, mut factor, mut left) = (SEED, FACTOR, numbers);
        while left > 0 {
            if left % 2 == 1 {
                state = times(state, factor);
            }
            factor = times(factor, factor);
            left /= 2;
        }
        Generator(state)
    }

    fn number(&mut self) -> f64 {
        self.0 = times(self.0, FACTOR);
        self.0 as f64 / MODULUS as f64
    }

    /// A key below `bound`: the sum of four numbers, so that the middle is more frequent.
    fn key(&mut self, bound: u32) -> u32 {
        let sum: f64 = (0..4).map(|_| self.number()).sum();
        (f64::from(bound / 4) * sum) as u32
    }
}

fn times(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(MODULUS)) as u64
}

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let classes = if job.arguments.quick { &CLASSES[..1] } else { &CLASSES[..] };
    classes.iter().try_for_each(|class| sort(job, *class))
}

fn sort(job: &Job<'_>, (name, keys_log, bound_log): Class) -> Result<(), Failure> {
    let world = job.world;
    let (me, size) = (world.rank() as usize, world.size() as usize);
    let (total, bound) = (1_usize << keys_log, 1_u32 << bound_log);
    let (from, to) = (total * me / size, total * (me + 1) / size);
    let mut generator = Generator::skipping(4 * from as u64);
    let mut keys: Vec<u32> = (from..to).map(|_| generator.key(bound)).collect();
    let shift = bound_log - BUCKETS_LOG;
    let (mut mine, mut ranks) = (Vec::new(), vec![0; bound as usize]);
    let mut shares: Vec<Vec<u32>> = (0..size).map(|_| Vec::with_capacity(keys.len())).collect();
    world.barrier_collective()?;
    let start = Instant::now();
    for iteration in 1..=ITERATIONS {
        if me == 0 {
            keys[iteration] = iteration as u32;
            keys[iteration + ITERATIONS] = bound - iteration as u32;
        }
        exchange(job, &keys, shift, (&mut shares, &mut mine))?;
        count_smaller(&mine, &mut ranks);
        std::hint::black_box(&ranks);
    }
    world.barrier_collective()?;
    let seconds = start.elapsed().as_secs_f64();
    check(job, &keys, &by_rank(&mine.concat(), ranks), total)?;
    if job.measures() {
        // The time of one key in one iteration.
        job.tell(name, size_of::<u32>(), &Sample::of_batches(vec![seconds / (ITERATIONS * total) as f64]));
    }
    Ok(())
}

/// Fetches the keys of the buckets that are this rank's into `mine`, from each rank. `shares` is room for those that go to each.
fn exchange(
    job: &Job<'_>,
    keys: &[u32],
    shift: u32,
    (shares, mine): (&mut [Vec<u32>], &mut Vec<Vec<u32>>),
) -> Result<(), Failure> {
    let (world, size) = (job.world, job.world.size() as usize);
    let mut counts = vec![0_i64; 1 << BUCKETS_LOG];
    keys.iter().for_each(|key| counts[(key >> shift) as usize] += 1);
    let counts_here = counts.clone();
    world.allreduce_collective(Reduction::Sum, &mut counts)?;
    let total: i64 = counts.iter().sum();
    // Buckets go to ranks in order, as evenly as their sizes allow.
    let mut before = 0;
    let owners: Vec<usize> = counts
        .iter()
        .map(|count| {
            let owner = (before * size as i64 / total.max(1)) as usize;
            before += count;
            owner.min(size - 1)
        })
        .collect();
    let mut given = vec![0; size];
    owners.iter().zip(counts_here).for_each(|(owner, count)| given[*owner] += count as usize);
    deal(keys, (shares, &given), |key| owners[(key >> shift) as usize]);
    Ok(world.alltoallv_into_collective(shares, mine)?)
}

/// Gives each key to the share of its owner, in their order. Each gets as many as `given` says.
fn deal(keys: &[u32], (shares, given): (&mut [Vec<u32>], &[usize]), owner: impl Fn(u32) -> usize) {
    let mut places: Vec<_> = shares
        .iter_mut()
        .zip(given)
        .map(|(share, count)| {
            share.resize(*count, 0);
            share.iter_mut()
        })
        .collect();
    for key in keys {
        *places[owner(*key)].next().expect("as many as are given") = *key;
    }
}

/// How many keys are smaller than each value.
fn count_smaller(keys: &[Vec<u32>], ranks: &mut [u32]) {
    ranks.fill(0);
    keys.iter().flatten().for_each(|key| ranks[*key as usize] += 1);
    let mut before = 0;
    for rank in ranks {
        before += std::mem::replace(rank, before);
    }
}

/// The keys, each where its rank says. A place that no rank names keeps a 0.
fn by_rank(keys: &[u32], mut ranks: Vec<u32>) -> Vec<u32> {
    let mut sorted = vec![0; keys.len()];
    for key in keys {
        let rank = &mut ranks[*key as usize];
        if let Some(place) = sorted.get_mut(*rank as usize) {
            *place = *key;
        }
        *rank += 1;
    }
    sorted
}

/// All keys are there, in order, and those of one process are not larger than those of the next.
fn check(job: &Job<'_>, keys: &[u32], mine: &[u32], total: usize) -> Result<(), Failure> {
    let sum = |keys: &[u32]| keys.iter().map(|key| i64::from(*key)).sum::<i64>();
    let mut sums = [mine.len() as i64, sum(mine) - sum(keys)];
    job.world.allreduce_collective(Reduction::Sum, &mut sums)?;
    let ends = [mine.iter().min(), mine.iter().max()].map(|end| end.map_or(-1, |key| i64::from(*key)));
    let all = job.world.allgather_collective(&ends)?;
    let ends: Vec<&[i64]> = all.chunks(2).filter(|ends| ends[0] >= 0).collect();
    let in_order = mine.is_sorted() && ends.windows(2).all(|pair| pair[0][1] <= pair[1][0]);
    if sums != [total as i64, 0] || !in_order {
        return Err("the keys are not sorted, or not all there".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_skips_goes_on_where_one_that_does_not_is() {
        let mut whole = Generator::skipping(0);
        (0..1000).for_each(|_| _ = whole.number());
        assert_eq!(Generator::skipping(1000).0, whole.0);
    }

    #[test]
    fn ranks_count_the_smaller_keys_and_sort_them() {
        let mut ranks = [9; 5];
        count_smaller(&[vec![3, 1], vec![3, 0]], &mut ranks);
        assert_eq!(ranks, [0, 1, 2, 2, 4]);
        assert_eq!(by_rank(&[3, 1, 3, 0], ranks.to_vec()), [0, 1, 3, 3]);
    }

    #[test]
    fn keys_are_dealt_to_their_owners_in_their_order() {
        let mut shares = vec![vec![9; 7], Vec::new()];
        deal(&[3, 10, 1, 12, 2], (&mut shares, &[3, 2]), |key| usize::from(key >= 10));
        assert_eq!(shares, [vec![3, 1, 2], vec![10, 12]]);
    }

    #[test]
    fn keys_are_below_their_bound_and_around_the_middle() {
        let mut generator = Generator::skipping(0);
        let keys: Vec<u32> = (0..4000).map(|_| generator.key(2048)).collect();
        let mean = keys.iter().sum::<u32>() / 4000;
        assert!(keys.iter().all(|key| *key < 2048) && (950..1100).contains(&mean), "{mean}");
    }
}
