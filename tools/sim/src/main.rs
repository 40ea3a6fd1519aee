//! `longarm-sim`: simulates whole jobs with faults, and checks every operation. See the library.
#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longarm_sim::cli::Arguments;
use longarm_sim::many::{Many, Until, run_many};
use longarm_sim::plan::Plan;
use longarm_sim::run::{Failure, Outcome};
use longarm_sim::shrink::{command, shrink};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let began = Instant::now();
    let seed = if arguments.fresh { fresh_seed() } else { arguments.seed };
    let Arguments { ranks, ops, faults, .. } = arguments;
    let plan = Plan { seed, ranks, ops, faults, routed: arguments.routed };
    let until = match (arguments.seconds, arguments.seeds) {
        (Some(seconds), _) => Until::Elapsed(Duration::from_secs(seconds)),
        (None, seeds) => Until::Seeds(seeds.unwrap_or(1)),
    };
    let bar = progress_bar(&arguments, until);
    let many = run_many(plan, until, arguments.threads, &|operations, seeds, elapsed| {
        match until {
            Until::Seeds(_) => bar.set_position(seeds),
            Until::Elapsed(_) => bar.set_position(elapsed.as_secs()),
        }
        bar.set_message(format!("{operations} operations"));
    });
    bar.finish_and_clear();
    let wall_ms = began.elapsed().as_millis() as u64;
    match many {
        Ok(Many { report, failed: None }) => {
            println!("{}", if arguments.json { report.json(wall_ms) } else { report.text(wall_ms) });
            ExitCode::SUCCESS
        }
        Ok(Many { failed: Some(failed), .. }) => {
            tell(&failed, "FAILED");
            if !arguments.no_shrink {
                let smallest = shrink(*failed);
                tell(&smallest, "the smallest run that still fails");
            }
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("longarm-sim: {message}");
            ExitCode::from(2)
        }
    }
}

fn tell(outcome: &Outcome, title: &str) {
    let Some(Failure { violation, events }) = &outcome.failure else { return };
    println!("{title}: {} ranks, {} operations in", outcome.plan.ranks, outcome.operations());
    println!("  {}", violation.what);
    println!("  the last events that concern it:");
    for event in events {
        println!("    {event}");
    }
    println!("  again: {}\n", command(&outcome.plan));
}

fn fresh_seed() -> u64 {
    // Far from the seeds that people and tests use.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    longarm_sim::dice::mix(since.as_nanos() as u64) >> 16
}

fn progress_bar(arguments: &Arguments, until: Until) -> ProgressBar {
    let length = match until {
        Until::Seeds(seeds) => seeds,
        Until::Elapsed(elapsed) => elapsed.as_secs(),
    };
    let bar = ProgressBar::new(length);
    if arguments.json || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed_precise} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
