//! What goes wrong: ranks that die, strangers at the server's port, and calls with arguments that make no sense.
//!
//! This program is the tests and the ranks. A trial has the launcher start it again, with [`BODY`] naming what the
//! ranks play. What a rank finds out it prints, and the trial reads it, and ends the job when all is said. After each job
//! nothing of it may be left.
#![forbid(unsafe_code)]

mod faults {
    pub mod arguments;
    pub mod combined;
    pub mod crowd;
    pub mod deaths;
    pub mod endings;
    pub mod heirs;
    pub mod neighbours;
    pub mod outside;
    pub mod proxies;
    pub mod relays;
    pub mod standstill;
    pub mod started_by_others;
    pub mod starts;
    pub mod strangers;
    pub mod survivors;
    pub mod unanswered;
    pub mod witness;
}

use std::process::ExitCode;

use faults::{
    arguments, combined, crowd, deaths, endings, heirs, neighbours, proxies, relays, standstill, started_by_others,
    starts, strangers, survivors, unanswered,
};
use libtest_mimic::Arguments;

/// What the ranks of a job play.
const BODY: &str = "LONGARM_TEST_BODY";
/// More about it.
const PARAMETERS: &str = "LONGARM_TEST_PARAMETERS";

fn main() -> ExitCode {
    if let Ok(body) = std::env::var(BODY) {
        let parameters = std::env::var(PARAMETERS).unwrap_or_default();
        if body == "neighbours" {
            neighbours::body(&parameters);
            return ExitCode::SUCCESS;
        }
        if body == "started by others" {
            started_by_others::body(&parameters);
            return ExitCode::SUCCESS;
        }
        if body == "proxy" {
            proxies::proxy_body(&parameters);
            return ExitCode::SUCCESS;
        }
        if body == "ending" {
            endings::body(&parameters);
            return ExitCode::SUCCESS;
        }
        if body == "relay stranger" {
            return relays::fill(&parameters);
        }
        if body == "other user" {
            return crowd::as_other_user(&parameters);
        }
        longarm::log_to_stderr(&longarm::config::Config::from_environment().unwrap_or_default());
        let world = longarm::init().expect("the launcher makes a world");
        match body.as_str() {
            "death" => deaths::body(world, &parameters),
            "first call" => deaths::first_call_body(world),
            "one word" => combined::body(world, &parameters),
            "heirs" => heirs::body(world, &parameters),
            "standstill" => standstill::body(world),
            "proxied" => proxies::body(&world, &parameters),
            "held" => standstill::held_body(world),
            "survivors" => survivors::body(world, &parameters),
            "unanswered" => unanswered::body(world, &parameters),
            "work" => strangers::body(world, &parameters),
            "arguments" => arguments::body(world),
            other => panic!("{other} is nothing to play"),
        }
        return ExitCode::SUCCESS;
    }
    let mut trials = deaths::trials();
    trials.extend(endings::trials());
    trials.extend(combined::trials());
    trials.extend(heirs::trials());
    trials.extend(survivors::trials());
    trials.extend(unanswered::trials());
    trials.extend(neighbours::trials());
    trials.extend(standstill::trials());
    trials.extend(started_by_others::trials());
    trials.extend(proxies::trials());
    trials.extend(relays::trials());
    trials.extend(starts::trials());
    trials.extend(strangers::trials());
    trials.extend(crowd::trials());
    trials.extend(arguments::trials());
    // Two at a time: a job that a fault meets waits most of its time.
    let arguments = Arguments::from_args();
    let options = Arguments { test_threads: arguments.test_threads.or(Some(2)), ..arguments };
    libtest_mimic::run(&options, trials).exit_code()
}
