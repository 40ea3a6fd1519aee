//! `longarm-suite`: runs programs that others wrote for ARMCI and Global Arrays, on every number of ranks and cut into
//! every number of nodes, and judges each run by its exit status, by what it printed and by what it left behind.
//!
//! A list (see [`list`]) says which programs there are, what they want and how they tell of a failure. The library they
//! run on is theirs by the time they were linked: this program only starts them.
#![forbid(unsafe_code)]

mod cli;
mod launcher;
mod leftovers;
mod list;
mod plan;
mod report;
mod run;
mod speed;
mod verdict;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{Arguments, CommandLine, SpeedArguments};
use crate::plan::Step;
use crate::report::{Outcome, Report};
use crate::run::Runner;
use crate::verdict::Verdict;

fn main() -> ExitCode {
    let outcome = match CommandLine::parse() {
        CommandLine::Run(arguments) => run(&arguments),
        CommandLine::Speed(arguments) => compare(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("longarm-suite: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs all that is asked for. Whether nothing failed.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let text = fs::read_to_string(&arguments.list).map_err(|error| format!("{}: {error}", arguments.list.display()))?;
    let programs = list::parse(&text).map_err(|error| format!("{}: {error}", arguments.list.display()))?;
    let steps = plan::plan(&programs, arguments)?;
    let runner = Runner::new(arguments)?;
    let progress = progress_bar(steps.iter().filter(|step| step.is_run()).count());

    let began = Instant::now();
    let mut report = Report::default();
    for step in steps {
        let outcome = match step {
            Step::Skip { program, ranks, nodes, reason } => {
                Outcome::new(program, ranks, nodes, Verdict::Skipped(reason))
            }
            Step::Run { program, ranks, nodes } => {
                progress.set_message(format!("{} on {ranks} ranks, {nodes} nodes", program.name));
                let outcome = runner.run(program, ranks, nodes)?;
                progress.inc(1);
                outcome
            }
        };
        if outcome.verdict.is_worth_a_line() {
            progress.suspend(|| println!("{}", outcome.line()));
        }
        report.outcomes.push(outcome);
    }
    progress.finish_and_clear();
    report.wall = began.elapsed();

    println!("\n{}", report.table());
    write_where_asked(&report, arguments)?;
    Ok(report.is_good())
}

/// Compares runtimes. A runtime that fails is named in the page, which is no failure of the comparison.
fn compare(arguments: &SpeedArguments) -> Result<bool, String> {
    let page = speed::measure(arguments)?;
    println!("\n{page}");
    if let Some(path) = &arguments.markdown {
        fs::write(path, &page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(true)
}

fn write_where_asked(report: &Report, arguments: &Arguments) -> Result<(), String> {
    if let Some(path) = &arguments.json {
        fs::write(path, report.json()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &arguments.markdown {
        fs::write(path, report.markdown()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// A bar on a terminal, nothing elsewhere.
fn progress_bar(runs: usize) -> ProgressBar {
    if !rustix::termios::isatty(std::io::stderr()) {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}").expect("the template is a constant");
    ProgressBar::new(runs as u64).with_style(style)
}
