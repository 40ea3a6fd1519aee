//! What a job of so many ranks takes, in the simulator and in a real job: the same program in both.

use std::time::Duration;

use clap::ValueEnum;
use longarm::{Reduction, World};

/// Calls of a batch, of which the mean counts.
const CALLS: u32 = 5;
/// Updates by each rank of the one word that all want, and of all ranks together, about, at most.
const UPDATES: u32 = 8;
const ALL_UPDATES_MAX: u32 = 4096;
/// The most ranks in a job where each has a share for each, or much: the memory of all of them is that of one machine in the simulator.
const MEMORY_RANKS_MAX: u32 = 1000;
/// Elements of a large sum, and its calls in a batch.
const MANY: usize = (1 << 20) / size_of::<u64>();
const LARGE_CALLS: u32 = 2;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// All ranks meet
    Barrier,
    /// A sum that all get
    Allreduce,
    /// A sum of 1 MiB that all get, up to 1000 ranks
    AllreduceLarge,
    /// From rank 0 to all
    Broadcast,
    /// One update of one word, which all ranks update at once; with a share of the barrier that ends it
    FetchAdd,
    /// From each to each, up to 1000 ranks
    Alltoall,
    /// A window with a word at each rank is made, and freed
    Window,
}

impl Op {
    /// As lines call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Barrier => "scale_barrier",
            Op::Allreduce => "scale_allreduce",
            Op::AllreduceLarge => "scale_allreduce_large",
            Op::Broadcast => "scale_broadcast",
            Op::FetchAdd => "scale_fetch_add",
            Op::Alltoall => "scale_alltoall",
            Op::Window => "scale_window",
        }
    }

    /// How much each rank has, or has for each.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Op::Barrier => 0,
            Op::AllreduceLarge => 1 << 20,
            Op::Allreduce | Op::Broadcast | Op::FetchAdd | Op::Alltoall | Op::Window => 8,
        }
    }
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Batches of each thing, of which the median counts.
    pub batches: u32,
    /// Only this. `None`: everything.
    pub only: Option<Op>,
}

/// The rank whose times count: the last one. Rank 0, whose word all update, leaves the barrier before that late.
#[must_use]
pub fn is_timer(world: &World) -> bool {
    world.rank() == world.size() - 1
}

/// Times calls, as wanted.
struct Stopwatch<'a, N> {
    world: &'a World,
    now: N,
    wanted: Wanted,
    /// Microseconds of one.
    all: Vec<(Op, f64)>,
}

impl<N: Fn() -> Duration> Stopwatch<'_, N> {
    fn time(&mut self, op: Op, calls: u32, call: &mut dyn FnMut() -> longarm::Result<()>) -> longarm::Result<()> {
        if self.wanted.only.is_some_and(|only| only != op) {
            return Ok(());
        }
        call()?; // Connections and buffers are made.
        let mut times = Vec::new();
        for _ in 0..self.wanted.batches {
            self.world.barrier_collective()?;
            let began = (self.now)();
            for _ in 0..calls {
                call()?;
            }
            times.push(((self.now)() - began).as_secs_f64() * 1e6 / f64::from(calls));
        }
        times.sort_by(f64::total_cmp);
        self.all.push((op, times[times.len() / 2]));
        Ok(())
    }
}

/// Measures it: microseconds of one. `now` is the time. What the rank is given counts that [`is_timer`] says. `before_large` is called when all is
/// done but what moves much, which no rank begins before. Collective.
///
/// # Errors
/// Of the calls.
pub fn measure(
    world: &World,
    now: impl Fn() -> Duration,
    wanted: Wanted,
    before_large: impl FnOnce(),
) -> longarm::Result<Vec<(Op, f64)>> {
    let np = world.size();
    let mut watch = Stopwatch { world, now, wanted, all: Vec::new() };
    watch.time(Op::Barrier, CALLS, &mut || Ok(world.barrier_collective()?))?;
    watch.time(Op::Allreduce, CALLS, &mut || Ok(world.allreduce_collective(Reduction::Sum, &mut [1_u64])?))?;
    watch.time(Op::Broadcast, CALLS, &mut || Ok(world.broadcast_collective(0, &mut [1_u64])?))?;
    watch.time(Op::Window, CALLS, &mut || Ok(world.allocate_collective::<u64>(1)?.free_collective()?))?;
    let word = world.allocate_collective::<u64>(1)?;
    let (updates, mut calls) = ((ALL_UPDATES_MAX / np).clamp(1, UPDATES), 0);
    watch.time(Op::FetchAdd, 1, &mut || {
        calls += 1;
        for _ in 0..updates {
            word.fetch_add(0, 0, 1)?;
        }
        Ok(world.barrier_collective()?)
    })?;
    let expected = u64::from(np) * u64::from(updates) * calls;
    assert!(world.rank() != 0 || word.get_one(0, 0)? == expected, "every update counts");
    before_large();
    world.barrier_collective()?;
    if np <= MEMORY_RANKS_MAX {
        let mut mine = vec![1_u64; MANY];
        watch.time(Op::AllreduceLarge, LARGE_CALLS, &mut || {
            mine.fill(1);
            world.allreduce_collective(Reduction::Sum, &mut mine)?;
            assert!(mine[0] == u64::from(np) && mine[MANY - 1] == u64::from(np), "every rank counts");
            Ok(())
        })?;
        let shares = vec![1_u64; np as usize];
        watch.time(Op::Alltoall, CALLS, &mut || Ok(world.alltoall_collective(&shares).map(drop)?))?;
    }
    // One update of one rank, with all others at it.
    for (_, time_us) in watch.all.iter_mut().filter(|(op, _)| *op == Op::FetchAdd) {
        *time_us /= f64::from(np * updates);
    }
    Ok(watch.all)
}

/// What [`contact`] measures, as lines call it, and how much goes from each rank to each other.
pub const CONTACT: (&str, u64) = ("scale_contact", 4);

/// How each rank comes into contact with each other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contact {
    /// It puts a word there.
    Puts,
    /// It starts to get a word from there, and waits when it has started all.
    Gets,
}

/// Each rank puts a word into each other one's part, or gets one, then all meet: gives the microseconds that takes. To be called before anything
/// else: connections that are open already cost nothing. Collective.
///
/// # Errors
/// Of the calls.
pub fn contact(world: &World, how: Contact, now: impl Fn() -> Duration) -> longarm::Result<f64> {
    let (me, np) = (world.rank(), world.size());
    let words = world.allocate_collective::<u32>(np as usize)?;
    if how == Contact::Gets {
        words.put(me, 0, &vec![me + 1; np as usize])?;
        world.barrier_collective()?;
    }
    let began = now();
    // Not all of them to the same rank at the same time.
    let mut others = (0..np).map(|next| (me + next) % np);
    let mut got = match how {
        Contact::Puts => {
            others.try_for_each(|to| words.put_one(to, me as usize, me + 1))?;
            Vec::new()
        }
        Contact::Gets => {
            let started: Vec<_> = others.map(|from| words.start_get(from, me as usize, vec![0])).collect();
            let got = started.into_iter().map(|started| Ok(started?.wait()?[0]));
            got.collect::<longarm::Result<Vec<u32>>>()?
        }
    };
    world.barrier_collective()?;
    let took = now() - began;
    match how {
        Contact::Puts => got = words.get_vec(me, 0..np as usize)?,
        // They came from this rank on.
        Contact::Gets => got.rotate_right(me as usize),
    }
    assert!(got.into_iter().eq(1..=np), "every rank's word is here");
    Ok(took.as_secs_f64() * 1e6)
}
