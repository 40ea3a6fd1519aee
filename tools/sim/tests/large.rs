//! Many operations of many ranks, with everything that leaves them alive; programs of very many. In release only: `make test` has a step for it.
#![forbid(unsafe_code)]
#![cfg(not(debug_assertions))]

use longarm::{Reduction, World};
use longarm_sim::admission::{Coming, Outcome, admit_with_faults};
use longarm_sim::fault::FaultSet;
use longarm_sim::many::{Until, run_many};
use longarm_sim::plan::Plan;
use longarm_sim::shrink::command;

#[test]
fn four_million_operations_of_1024_ranks_are_as_they_should_be() {
    let plan = Plan { seed: 1, ranks: 1024, ops: 1000, faults: FaultSet::survivable(), routed: false };
    let many = run_many(plan, Until::Seeds(4), None, &|operations, seeds, elapsed| {
        println!("{operations} operations, {seeds} seeds, {} s", elapsed.as_secs());
    });
    let many = many.expect("the jobs can be set up");
    if let Some(failed) = many.failed {
        panic!("{}: {:#?}", command(&failed.plan), failed.failure);
    }
    println!("{}", many.report.text(0));
    assert!(many.report.operations() >= 4_000_000, "{} operations", many.report.operations());
    // A job of these goes on for about 0.4 s. One that takes ten times as long has stood still.
    assert!(many.report.longest_ns() < 4_000_000_000, "a job of {} ns of simulated time", many.report.longest_ns());
    assert!(many.report.fault_kinds() >= 16, "{} kinds of fault", many.report.fault_kinds());
}

/// Starts, meets, sums, and updates one word from every node at once.
fn meet_and_update(world: World) -> longarm::Result<()> {
    world.barrier_collective()?;
    let ranks = u64::from(world.size());
    let mut sum = [u64::from(world.rank())];
    world.allreduce_collective(Reduction::Sum, &mut sum)?;
    assert_eq!(sum[0], ranks * (ranks - 1) / 2);
    let word = world.allocate_collective::<u64>(1)?;
    if world.rank().is_multiple_of(PER_NODE) {
        word.fetch_add(0, 0, 1)?;
    }
    world.barrier_collective()?;
    if world.rank() == world.size() - 1 {
        assert_eq!(word.get_one(0, 0)?, ranks / u64::from(PER_NODE));
    }
    Ok(world.finalize()?)
}

const PER_NODE: u32 = 20;

#[test]
fn ten_thousand_ranks_start_meet_sum_and_update_one_word() {
    let report = longarm_sim::run(10_000, 10_000 / PER_NODE, 1, FaultSet::NONE, meet_and_update).expect("it goes well");
    println!("{} events, {} ms", report.events, report.virtual_ns / 1_000_000);
}

fn do_so_while_connections_break(ranks: u32) {
    let report =
        longarm_sim::run(ranks, ranks / PER_NODE, 1, FaultSet::harmless(), meet_and_update).expect("it goes well");
    let faults: u64 = longarm_sim::Fault::ALL.iter().map(|fault| report.count_of(*fault)).sum();
    println!("{} events, {faults} faults, {} ms", report.events, report.virtual_ns / 1_000_000);
    assert!(faults > 0, "no fault has happened");
}

#[test]
fn a_thousand_ranks_do_so_while_connections_break() {
    do_so_while_connections_break(1000);
}

#[test]
fn ten_thousand_ranks_do_so_while_connections_break() {
    do_so_while_connections_break(10_000);
}

#[test]
fn ten_thousand_ranks_come_in_whatever_goes_wrong_or_are_told_why_not() {
    let coming = Coming { ranks: 10_000, nodes: 10_000 / PER_NODE, by_relays: true };
    let outcomes: Vec<Outcome> = (0..12)
        .map(|seed| admit_with_faults(coming, seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")))
        .collect();
    let well = outcomes.iter().filter(|outcome| outcome.are_well).count();
    let strangers: u64 = outcomes.iter().map(|outcome| outcome.strangers).sum();
    println!("{well} of {} jobs came together; {strangers} strangers", outcomes.len());
    assert!(well > 0 && outcomes.iter().any(|outcome| outcome.lost.is_some()) && strangers > 0);
}
