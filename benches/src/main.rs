//! `longarm-bench`: what longarm does on this machine, beside what the machine itself allows.
//!
//! ```text
//!   all     the driver: measures the limits itself, starts jobs of this same program, prints tables or lines
//!   latency, gups, comb, …  one thing in any layout, with pictures: `perf`
//!   draw    pictures of lines that were printed before: `pictures`
//!   limits  only the limits
//!   rank    the program of those jobs; to be started by `longarm run`
//!   server  the other end of the socket limits; started by the driver
//!   counts  hot calls a given number of times, for an instruction counter (see counts/run.sh)
//! ```
//!
//! What is measured in one run is compared in one run: the machine has fast and slow spells.
//! Numbers come as many short batches; the median and the quickest batch are given.
#![forbid(unsafe_code)]

mod bars;
mod cli;
#[path = "../counts/mod.rs"]
mod counts;
mod driver;
mod job;
mod line;
#[path = "../micro/mod.rs"]
mod micro;
mod perf;
mod pictures;
mod plot;
mod report;
mod scale;

use std::process::ExitCode;

use clap::Parser;

/// Anything that ends a measurement. The user sees its text.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let outcome = match cli::CommandLine::parse().command {
        cli::Command::All(arguments) => driver::all(&arguments),
        cli::Command::Limits(arguments) => driver::limits_only(&arguments),
        cli::Command::Rank(arguments) => micro::rank::run(&arguments),
        cli::Command::Server(arguments) => micro::limits::server::run(&arguments),
        cli::Command::Counts(arguments) => counts::run(&arguments),
        cli::Command::Draw(arguments) => pictures::draw_files(&arguments),
        cli::Command::Measure(what) => perf::run(&what),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("longarm perf: {failure}");
            ExitCode::FAILURE
        }
    }
}
