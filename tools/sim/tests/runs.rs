//! Small runs of every kind. The large ones are `make test`'s step of their own.
#![forbid(unsafe_code)]

use longarm_sim::book::Kind;
use longarm_sim::fault::FaultSet;
use longarm_sim::many::{Until, run_many};
use longarm_sim::plan::Plan;
use longarm_sim::run::{Outcome, run};

fn plan(seed: u64, ranks: u32, ops: u32, faults: FaultSet) -> Plan {
    Plan { seed, ranks, ops, faults, routed: false }
}

fn expect_well(plan: Plan) -> Outcome {
    let outcome = run(plan, &mut || {}).expect("the job can be set up");
    assert!(outcome.failure.is_none(), "{}: {:#?}", longarm_sim::shrink::command(&plan), outcome.failure);
    outcome
}

/// The same where nobody dies: every operation succeeds.
fn expect_all_done(plan: Plan) -> Outcome {
    let outcome = expect_well(plan);
    assert_eq!((outcome.lost, outcome.deaths), (0, 0), "{}", longarm_sim::shrink::command(&plan));
    outcome
}

#[test]
fn one_seed_is_one_run_whatever_ran_before() {
    for faults in [FaultSet::NONE, FaultSet::mild(), FaultSet::all()] {
        let first = expect_well(plan(11, 24, 300, faults));
        expect_well(plan(12, 9, 100, faults));
        let again = expect_well(plan(11, 24, 300, faults));
        assert_eq!((first.hash, first.events, first.counts), (again.hash, again.events, again.counts));
        let other = expect_well(plan(13, 24, 300, faults));
        assert_ne!(first.hash, other.hash);
    }
}

#[test]
fn a_world_of_one_and_of_two_go_well() {
    for seed in 0..20 {
        expect_well(plan(seed, 1, 200, FaultSet::mild()));
        expect_well(plan(seed, 2, 200, FaultSet::mild()));
    }
}

#[test]
fn without_a_broken_connection_every_operation_succeeds() {
    for seed in 0..20 {
        let outcome = expect_all_done(plan(seed, 16, 300, FaultSet::mild()));
        assert_eq!((outcome.values_lost, outcome.fates_unknown), (0, 0));
    }
}

#[test]
fn connections_that_break_at_any_moment_lose_nothing_and_keep_nobody_waiting() {
    // Among them: a first connection that breaks as soon as it is there, as with seed 6 of 16 ranks.
    let faults = "drop,half-open,truncate,restart-link".parse().unwrap();
    for seed in 0..60 {
        expect_all_done(plan(seed, 6, 100, faults));
    }
    expect_well(plan(6, 16, 400, FaultSet::all()));
}

#[test]
fn where_ranks_reach_memory_without_servers_everything_is_as_with_them() {
    let faults = "drop,half-open,truncate,restart-link".parse().unwrap();
    let (mut without, mut with) = (0, 0);
    for seed in 0..80 {
        let outcome = expect_all_done(plan(seed, 6, 150, faults));
        without += u64::from(outcome.direct == 0);
        with += outcome.direct;
    }
    assert!(without > 20, "{without} of 80 runs without such transfers");
    assert!(with > 2_000, "{with} transfers with no server involved");
}

#[test]
fn a_connection_that_is_silent_for_ever_is_given_up() {
    let faults = "silent-link,forged-peer,silent-peer".parse().unwrap();
    let given_up: u64 = (0..60).map(|seed| expect_all_done(plan(seed, 6, 150, faults)).silent.closed).sum();
    assert!(given_up > 20, "{given_up} ends of silent connections were given up");
}

#[test]
fn some_runs_together_meet_every_operation_and_every_fault() {
    let many = run_many(plan(1, 16, 400, FaultSet::all()), Until::Seeds(150), None, &|_, _, _| {}).unwrap();
    assert!(many.failed.is_none(), "{:#?}", many.failed);
    let json: serde_json::Value = serde_json::from_str(&many.report.json(1)).unwrap();
    for kind in Kind::ALL {
        assert!(json["by_kind"][kind.name()].as_u64().unwrap_or(0) > 0, "{} never happened", kind.name());
    }
    for fault in FaultSet::all().iter() {
        assert!(json["faults"][fault.name()].as_u64().unwrap_or(0) > 0, "{} never happened", fault.name());
    }
    assert!(FaultSet::all().iter().count() >= 16);
    assert!(json["values_lost"].as_u64().unwrap_or(0) > 0, "no link broke under an update");
}

fn routed(seed: u64, ranks: u32, ops: u32, faults: FaultSet) -> Plan {
    Plan { routed: true, ..plan(seed, ranks, ops, faults) }
}

#[test]
fn through_routers_every_operation_succeeds_as_long_as_nobody_dies() {
    for seed in 0..40 {
        expect_all_done(routed(seed, 7, 200, FaultSet::survivable()));
    }
    // Trunks break again and again, and a call finds a link that takes four bytes at a time.
    expect_well(routed(11, 64, 300, FaultSet::survivable()));
    // Over a trunk that is silent one way the other way still brings something now and then.
    expect_all_done(routed(85, 24, 4, FaultSet::survivable()));
    expect_well(routed(281, 12, 50, FaultSet::all()));
}

#[test]
fn in_jobs_with_routers_silent_connections_are_given_up_and_strangers_are_not_let_in() {
    let faults = "silent-link,forged-peer,silent-peer,duplicate-connect".parse().unwrap();
    let (mut given_up, mut at_routers) = (0, 0);
    // Among them: ranks that wait for an acknowledgement alone, whose question took the place of a look at the clock.
    for seed in 60..120 {
        let outcome = expect_all_done(routed(seed, 9, 150, faults));
        given_up += outcome.silent.trunks_closed;
        at_routers += outcome.strangers_at_routers;
    }
    assert!(given_up > 20, "{given_up} ends of silent trunks were given up");
    assert!(at_routers > 200, "{at_routers} calls of strangers at routers");
}

#[test]
fn where_ranks_and_routers_die_the_others_are_told() {
    let mut deaths = 0;
    for seed in 0..60 {
        deaths += expect_well(routed(seed, 9, 200, "kill-rank,kill-server,drop,delay".parse().unwrap())).deaths;
    }
    // A mutex is left to a rank whose router has died before it heard that it has it.
    deaths += expect_well(routed(60, 7, 300, "kill-rank,kill-server,delay".parse().unwrap())).deaths;
    assert!(deaths > 10, "{deaths} deaths");
}

#[test]
fn one_seed_is_one_run_through_routers_too() {
    for seed in 0..12 {
        let [first, again] = [(); 2].map(|()| expect_well(routed(seed, 12, 200, FaultSet::all())));
        assert_eq!((first.hash, first.events, first.counts), (again.hash, again.events, again.counts), "seed {seed}");
    }
    let first = expect_well(routed(5, 12, 300, FaultSet::all()));
    let without = expect_well(plan(5, 12, 300, FaultSet::all()));
    assert_ne!(first.hash, without.hash);
}
