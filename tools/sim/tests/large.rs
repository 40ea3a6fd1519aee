//! Many operations of many ranks, with everything that leaves them alive. In release only: `make test` has a step for it.
#![forbid(unsafe_code)]
#![cfg(not(debug_assertions))]

use longarm_sim::fault::FaultSet;
use longarm_sim::many::{Until, run_many};
use longarm_sim::plan::Plan;
use longarm_sim::shrink::command;

#[test]
fn four_million_operations_of_1024_ranks_are_as_they_should_be() {
    let plan = Plan { seed: 1, ranks: 1024, ops: 1000, faults: FaultSet::survivable() };
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
