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
    match CommandLine::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Perf(arguments) => perf::perf(&arguments),
        Command::Ps(arguments) => ps::ps(&arguments),
        Command::Info(arguments) => info::info(&arguments),
        Command::Agent => run::agent::agent(),
        Command::Guardian => run::guardian::watch(),
    }
}
