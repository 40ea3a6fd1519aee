//! The `longarm` command: starts jobs, shows what they do, shows the machine.
//!
//! `longarm run` starts a program as many ranks and looks after them until all are gone; see [`run`].
//! `longarm perf` measures, by the program `longarm-bench`; see [`perf`].
//! `longarm ps` shows the running jobs and where their ranks stand; see [`ps`].
//! `longarm info` shows what longarm found on this machine and every configuration variable; see [`info`].

#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Command, CommandLine};

mod cli;
mod info;
mod perf;
mod ps;
mod run;
mod stats;
mod units;

fn main() -> ExitCode {
    if let Some(status) = started_by_run() {
        return status;
    }
    match CommandLine::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Perf(arguments) => perf::perf(&arguments),
        Command::Ps(arguments) => ps::ps(&arguments),
        Command::Info(arguments) => info::info(&arguments),
    }
}

/// What only `longarm run` starts: the agent of a host, and what ends that which a killed launcher left behind.
fn started_by_run() -> Option<ExitCode> {
    match std::env::args_os().nth(1)?.to_str()? {
        "agent" => Some(run::agent::agent()),
        "__guardian" => Some(run::guardian::watch()),
        _ => None,
    }
}
