//! Real jobs that are met by faults while they work: connections break at any byte, processes stop or are killed, limits are
//! reached, links go down. What can be survived leaves a result that is right to the last bit; what cannot is named by
//! every survivor. After each job nothing of it is left, and none may hang.
//!
//! This program is the trials and the ranks. A trial rolls dice from its seed, which stands in its name:
//! `cargo test -p longarm-launch --test fault_injection -- made_anew_17` repeats the faults of that one. Where the threads of
//! a job are when they happen no seed decides. `--seconds N` goes on with fresh seeds for so long, and `--detection N`
//! measures over N jobs each how long it takes until somebody is told that something is wrong.
#![forbid(unsafe_code)]

mod fault_injection {
    pub mod breaks;
    pub mod control;
    pub mod detection;
    #[path = "../differential/dice.rs"]
    #[allow(dead_code, reason = "random programs roll more kinds of them")]
    pub mod dice;
    pub mod job;
    pub mod kills;
    pub mod limits;
    pub mod links;
    pub mod proxy;
    pub mod work;
}

use std::process::ExitCode;
use std::time::{Duration, Instant};

use fault_injection::breaks::{self, Kind};
use fault_injection::control::{self, GO_BETWEEN};
use fault_injection::detection;
use fault_injection::job::ORDERS;
use fault_injection::kills;
use fault_injection::work::{Orders, Outcome, Work};
use fault_injection::{limits, links};
use libtest_mimic::{Arguments, Failed, Trial};

/// Kinds of trials of which there is one for each seed: name, how many every day, what.
type Family = (&'static str, u64, fn(u64) -> Result<(), Failed>);

const FAMILIES: [Family; 18] = [
    ("broken_connections_are_made_anew", 130, |seed| breaks::run(Kind::Breaks, seed)),
    ("silent_connections_are_made_anew", 25, |seed| breaks::run(Kind::Stalls, seed)),
    ("servers_out_of_reach_are_called_again", 15, |seed| breaks::run(Kind::Restarts, seed)),
    ("bytes_that_come_one_by_one_are_enough", 15, |seed| breaks::run(Kind::Pieces, seed)),
    ("broken_trunks_are_made_anew", 20, breaks::run_routed),
    ("connections_and_trunks_that_break_in_one_job_are_made_anew", 15, breaks::run_partly_routed),
    ("stopped_processes_are_waited_for", 10, kills::stop),
    ("nodes_stopped_for_good_are_named", 3, kills::stop_for_good),
    ("killed_ranks_are_named_by_all", 10, kills::kill),
    ("ranks_killed_early_are_named_by_all", 4, kills::kill_early),
    ("killed_launchers_leave_nothing", 4, kills::kill_launcher),
    ("links_that_went_down_and_up_carry_on", 3, links::go_down),
    ("descriptors_that_come_back_are_waited_for", 5, limits::no_descriptors),
    ("descriptors_that_come_back_are_waited_for_by_routers", 5, limits::no_descriptors_routed),
    ("descriptors_that_come_back_are_waited_for_beside_routers", 5, limits::no_descriptors_partly_routed),
    ("processes_without_addresses_say_so", 3, limits::no_addresses),
    ("servers_without_shared_memory_say_so", 3, limits::no_shared_memory),
    ("processes_killed_for_memory_are_named", 2, limits::memory_is_full),
];

fn main() -> ExitCode {
    if let Ok(orders) = std::env::var(ORDERS) {
        return be_rank(&orders);
    }
    let (mut seconds, mut jobs, mut json) = (None, None, false);
    let mut rest = Vec::new();
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        let place = match argument.as_str() {
            "--seconds" => &mut seconds,
            "--detection" => &mut jobs,
            "--json" => {
                json = true;
                continue;
            }
            _ => {
                rest.push(argument);
                continue;
            }
        };
        *place = arguments.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
        if place.is_none() {
            eprintln!("{argument} takes a number");
            return ExitCode::from(2);
        }
    }
    if let Some(jobs) = jobs {
        return detection::show(jobs as usize, json);
    }
    let arguments = Arguments::from_iter(rest);
    if let Some(seconds) = seconds {
        return soak(Duration::from_secs(seconds), arguments.filter.as_deref());
    }
    let trials = FAMILIES.iter().flat_map(|(name, count, run)| {
        (1..=*count).map(move |seed| Trial::test(format!("{name}_{seed}"), move || run(seed)))
    });
    // Three at a time: a job that a fault meets waits most of its time, and there are hundreds.
    let arguments = Arguments { test_threads: arguments.test_threads.or(Some(3)), ..arguments };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Trials with fresh seeds until the time is over.
fn soak(time: Duration, filter: Option<&str>) -> ExitCode {
    let families: Vec<&Family> =
        FAMILIES.iter().filter(|(name, ..)| filter.is_none_or(|filter| name.contains(filter))).collect();
    let mut word = [0; 8];
    getrandom::fill(&mut word).expect("the system has random numbers");
    let first = u64::from_le_bytes(word) >> 16;
    let until = Instant::now() + time;
    let next = std::sync::atomic::AtomicU64::new(0);
    let failed = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::AcqRel;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < until && !families.is_empty() {
                    let number = next.fetch_add(1, order);
                    // As often as every day.
                    let total: u64 = families.iter().map(|(_, count, _)| count).sum();
                    let mut left = number.wrapping_mul(37) % total;
                    let family = families.iter().find(|(_, count, _)| {
                        let here = left < *count;
                        left = left.saturating_sub(*count);
                        here
                    });
                    let Some((name, _, run)) = family else { continue };
                    let seed = first + number;
                    if let Err(what) = run(seed) {
                        failed.fetch_add(1, order);
                        println!("{name}_{seed} FAILED: {}", what.message().unwrap_or_default());
                    }
                }
            });
        }
    });
    let (trials, failed) = (next.into_inner(), failed.into_inner());
    println!("{trials} trials with seeds from {first}, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a rank is, works, and says of it. One that is told of an error says so, and lets the launcher end it if that
/// knows of a death; else it ends itself.
fn be_rank(orders: &str) -> ExitCode {
    if let Ok(path) = std::env::var(GO_BETWEEN)
        && let Err(error) = control::go_through(&path)
    {
        println!("cannot go through {path}: {error}");
        return ExitCode::from(4);
    }
    let orders = Orders::from_words(orders).expect("the trial gives orders");
    let world = match longarm::init() {
        Ok(world) => world,
        Err(error) => {
            println!("no world: {error}");
            return ExitCode::from(3);
        }
    };
    let me = world.rank();
    let result = (|| -> Outcome<String> {
        if let Ok(call) = std::env::var(detection::WAIT_IN) {
            detection::wait(&world, &call)?;
        }
        let mut work = Work::begin(&world, orders)?;
        for round in 0..orders.rounds {
            println!("rank {me} begins round {round}");
            work.round(round)?;
        }
        work.check()
    })();
    let result = result.and_then(|sums| {
        world.clone().finalize()?;
        Ok(sums)
    });
    match result {
        Ok(sums) => {
            println!("rank {me} is right: {sums}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("rank {me} says: {error}");
            // The launcher may not yet have said what a server says: who leaves before would be a second death, for which others may
            // take it.
            while !world.deaths().is_empty() || error.to_string().contains(kills::SERVER_SAYS) {
                std::thread::park();
            }
            // Not the way through destructors, which may wait for others.
            std::process::exit(3)
        }
    }
}
