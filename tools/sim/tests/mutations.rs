//! Every bug on purpose is found. Built with `--cfg longarm_mutations`; without it there are none, and nothing to test.
#![forbid(unsafe_code)]
#![cfg(longarm_mutations)]

use longarm::World;
use longarm_proto::{Mutation, plant};
use longarm_sim::Failure;
use longarm_sim::fault::{Fault, FaultSet};
use longarm_sim::plan::Plan;
use longarm_sim::run::run;

/// Seeds within which most bugs have to be found, in all of the sizes below.
const SEEDS: u64 = 40;

/// Runs that have to show it: one alone no longer does after the next change of anything.
const RUNS: usize = 3;

/// Ranks and operations of the runs: small jobs first, for they fail sooner.
const SIZES: [(u32, u32); 2] = [(6, 150), (16, 300)];

fn faults(mutation: Mutation, seed: u64) -> FaultSet {
    match mutation {
        // The order of those who ask can be told where no connection breaks and nobody pauses; and only where every rank
        // could say that it leaves no session may stay.
        Mutation::MutexUnfair | Mutation::SessionKept => FaultSet::NONE,
        // Connections have to break, and nobody has to die, with whom everything ends.
        Mutation::DirectForgotten | Mutation::DirectRepeated => FaultSet::survivable(),
        // Somebody has to die with a mutex.
        Mutation::HeirNotTold => FaultSet::NONE.with(Fault::KillRank),
        // A server has to end connections.
        Mutation::ChannelEndNotTold => FaultSet::all(),
        _ if seed % 2 == 0 => FaultSet::mild(),
        _ => FaultSet::all(),
    }
}

/// Whether the bug is one of routers, which only jobs have whose ranks go through them.
fn is_of_routers(mutation: Mutation) -> bool {
    use Mutation::{ChannelCutShort, ChannelEndNotTold, ChannelLeadsHome};
    matches!(mutation, ChannelCutShort | ChannelEndNotTold | ChannelLeadsHome)
}

/// Simulated ranks take a connection for broken that has been silent for so long.
const SILENCE_NS: u64 = 200_000_000;

/// Seeds within which this bug has to be found, in all of the sizes.
fn seeds(mutation: Mutation) -> u64 {
    match mutation {
        // Most of the time silence tells what the channel did not.
        Mutation::ChannelEndNotTold => 10 * SEEDS,
        _ => SEEDS,
    }
}

/// Whether what the bug does only takes time: connections that fall silent are made anew. A program whose time is known shows it.
fn only_takes_time(mutation: Mutation) -> bool {
    mutation == Mutation::ChannelCreditKept
}

/// The first runs that show the bug, and what they show.
fn find(mutation: Mutation) -> Vec<(Plan, String)> {
    plant(Some(mutation));
    let plans = SIZES.iter().flat_map(|&(ranks, ops)| {
        let routed = is_of_routers(mutation);
        (0..seeds(mutation)).map(move |seed| Plan { seed, ranks, ops, faults: faults(mutation, seed), routed })
    });
    let shown = plans.filter_map(|plan| {
        let outcome = run(plan, &mut || {}).expect("the job can be set up");
        Some((plan, outcome.failure?.violation.what))
    });
    let found = shown.take(RUNS).collect();
    plant(None);
    found
}

#[test]
fn every_planted_bug_is_found_within_a_few_seeds() {
    // The runtime says what it thinks of itself when it panics; that is no failure of this test.
    std::panic::set_hook(Box::new(|_| {}));
    let of_jobs = Mutation::ALL.iter().filter(|mutation| !only_takes_time(**mutation));
    let results: Vec<_> = of_jobs.map(|&mutation| (mutation, find(mutation))).collect();
    let _ = std::panic::take_hook();
    for (mutation, found) in &results {
        println!("{mutation:?}: {} of {RUNS} runs", found.len());
        for (plan, what) in found {
            let short: String = what.chars().take(120).collect();
            println!("    seed {} with {} ranks: {short}", plan.seed, plan.ranks);
        }
    }
    let missed: Vec<_> = results.iter().filter(|(_, found)| found.len() < RUNS).map(|(mutation, _)| mutation).collect();
    assert!(missed.is_empty(), "not found, or not often enough: {missed:?}");
    assert!(results.len() >= 12);
}

/// Every rank tells every rank a number, and all know the sum.
fn tell_all(world: World) -> longarm::Result<()> {
    let (me, ranks) = (world.rank(), world.size());
    let window = world.allocate_collective::<u64>(ranks as usize)?;
    (0..ranks).try_for_each(|rank| window.put_one(rank, me as usize, 10 + u64::from(me)))?;
    world.barrier_collective()?;
    assert!(window.get_vec(me, 0..ranks as usize)?.into_iter().eq((10..).take(ranks as usize)));
    Ok(world.finalize()?)
}

/// A bug is planted on this thread, on which nodes' servers and their routers run: ranks have threads of their own, and do without. That a channel's end
/// is not told takes a server that ends one, which no server does to a correct program.
#[test]
fn bugs_of_routers_are_found_by_a_program_of_a_user_too() {
    std::panic::set_hook(Box::new(|_| {}));
    let failures = |mutation| -> Vec<Failure> {
        plant(mutation);
        let runs = (0..4 * SEEDS).map(|seed| longarm_sim::run(6, 3, seed, FaultSet::harmless(), tell_all));
        let failures = runs.filter_map(Result::err).take(RUNS).collect();
        plant(None);
        failures
    };
    let found = [Mutation::ChannelCutShort, Mutation::ChannelLeadsHome].map(|mutation| failures(Some(mutation)));
    let without = failures(None);
    let _ = std::panic::take_hook();
    assert!(found.iter().all(|found| found.len() == RUNS && found.iter().all(|failure| failure.routed)), "{found:?}");
    assert!(without.is_empty(), "{without:?}");
}

/// Every rank puts a mebibyte at the next one, and gets it back.
fn put_and_get_back(world: World) -> longarm::Result<()> {
    let (right, words) = ((world.rank() + 1) % world.size(), 128 << 10);
    let window = world.allocate_collective::<u64>(words)?;
    let sent: Vec<u64> = (0..words as u64).map(|word| word ^ u64::from(right)).collect();
    window.put(right, 0, &sent)?;
    world.barrier_collective()?;
    assert!(window.get_vec(right, 0..words)? == sent, "it is not what was put");
    Ok(world.finalize()?)
}

#[test]
fn a_bug_of_routers_that_only_takes_time_is_seen_by_the_time_that_a_program_takes() {
    // Where ranks have enough connections of their own nothing goes by the routers.
    let slow = |mutation| -> usize {
        plant(mutation);
        let reports = longarm_sim::run_seeds(4, 2, 0..SEEDS, FaultSet::NONE, put_and_get_back).expect("it goes well");
        plant(None);
        reports.iter().filter(|report| report.virtual_ns > SILENCE_NS).count()
    };
    let (with_bug, without) = (slow(Some(Mutation::ChannelCreditKept)), slow(None));
    assert!(with_bug >= RUNS && without == 0, "{with_bug} slow runs, and {without} without the bug");
}

#[test]
fn without_a_bug_the_same_runs_go_well() {
    for (ranks, ops) in SIZES {
        for seed in 0..SEEDS / 2 {
            for faults in [FaultSet::NONE, FaultSet::mild(), FaultSet::all()] {
                for routed in [false, true] {
                    let plan = Plan { seed, ranks, ops, faults, routed };
                    let outcome = run(plan, &mut || {}).expect("the job can be set up");
                    assert!(outcome.failure.is_none(), "{plan:?}: {:#?}", outcome.failure);
                }
            }
        }
    }
}
