//! How long it takes until somebody is told that something is wrong: measured over many jobs, and shown. Nothing is
//! asserted: how long it takes is a property of the machine too.

use std::process::ExitCode;
use std::time::Duration;

use longarm::{Compare, World};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use super::job::{Job, Plan};
use super::kills::signal;
use super::work::{Orders, Outcome};

/// What the ranks of a job wait in; without it they work.
pub const WAIT_IN: &str = "LONGARM_TEST_WAIT_IN";

struct Case {
    name: &'static str,
    /// Ranks and nodes; the last rank is met by faults.
    layout: (u32, u32),
    call: &'static str,
    signal: Signal,
    variables: &'static [(&'static str, &'static str)],
    what: What,
}

/// What is measured from the fault on.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// Until a rank that waits gets an error.
    Error,
    /// Until nothing of the job is left.
    End,
}

const CASES: [Case; 7] = [
    Case {
        name: "death on the node, wait for a word",
        layout: (2, 1),
        call: "word",
        signal: Signal::KILL,
        variables: &[],
        what: What::Error,
    },
    Case {
        name: "death on the node, barrier",
        layout: (2, 1),
        call: "barrier",
        signal: Signal::KILL,
        variables: &[],
        what: What::Error,
    },
    Case {
        name: "death on another node, read-modify-writes",
        layout: (2, 2),
        call: "rmw",
        signal: Signal::KILL,
        variables: &[],
        what: What::Error,
    },
    Case {
        name: "death on another node, barrier",
        layout: (2, 2),
        call: "barrier",
        signal: Signal::KILL,
        variables: &[],
        what: What::Error,
    },
    Case {
        name: "silent host, read-modify-writes, no second connection",
        layout: (2, 2),
        call: "rmw",
        signal: Signal::STOP,
        variables: &[("LONGARM_RECONNECT_S", "0")],
        what: What::Error,
    },
    Case {
        name: "silent host, barrier, no second connection",
        layout: (2, 2),
        call: "barrier",
        signal: Signal::STOP,
        variables: &[("LONGARM_RECONNECT_S", "0")],
        what: What::Error,
    },
    Case {
        name: "death of a rank, until the job is down",
        layout: (4, 2),
        call: "barrier",
        signal: Signal::KILL,
        variables: &[],
        what: What::End,
    },
];

/// A moment that all processes of a machine agree on.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A rank's side: the last rank computes, the others wait for it, and say when they are told.
pub fn wait(world: &World, call: &str) -> Outcome<()> {
    let window = world.allocate_collective::<u64>(2)?;
    let last = world.size() - 1;
    world.barrier_collective()?;
    if world.rank() == last {
        println!("ready");
        loop {
            std::thread::park();
        }
    }
    let told: Outcome<()> = match call {
        "word" => window.wait_until(0, Compare::NotEqual, 0).map(drop).map_err(Into::into),
        "rmw" => loop {
            if let Err(error) = window.fetch_add(last, 1, 1) {
                break Err(error.into());
            }
        },
        _ => world.barrier_collective().map_err(Into::into),
    };
    let now = now();
    println!("told at {}", now.as_nanos());
    told
}

impl Case {
    fn measure(&self) -> Outcome<Duration> {
        let (ranks, nodes) = self.layout;
        let variables = self.variables.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let variables = variables.chain([(WAIT_IN, self.call.to_owned())]).collect();
        let orders = Orders { seed: 0, rounds: 0, bytes_max: 1 };
        let plan = Plan { ranks, nodes, orders, variables, decide: None, wrapper: Vec::new() };
        let mut job = Job::start(&plan)?;
        let victim = job.process(ranks - 1);
        let (Some(victim), Some(_)) = (victim, job.until("ready")?) else { return Err("it ended early".into()) };
        // Until everybody is in its call: this is no measurement of how they get there.
        std::thread::park_timeout(Duration::from_millis(60));
        let injected = now();
        signal(victim, self.signal)?;
        let ended = job.end()?;
        let over = now();
        if self.what == What::End {
            return Ok(over.saturating_sub(injected));
        }
        let told = ended.stdout.lines().find_map(|line| line.strip_prefix("told at ")?.parse().ok());
        let told = told.ok_or_else(|| format!("nobody was told: {ended:?}"))?;
        Ok(Duration::from_nanos(told).saturating_sub(injected))
    }
}

/// Measures every case in so many jobs, and shows how long it took.
pub fn show(jobs: usize, json: bool) -> ExitCode {
    let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    if !json {
        println!("{:<56} {:>5} {:>9} {:>9} {:>9} {:>9}", "milliseconds", "jobs", "least", "median", "95 %", "most");
    }
    let mut rows = Vec::new();
    for case in &CASES {
        let mut times = Vec::new();
        for _ in 0..jobs {
            match case.measure() {
                Ok(time) => times.push(time),
                Err(error) => {
                    eprintln!("{}: {error}", case.name);
                    return ExitCode::FAILURE;
                }
            }
        }
        times.sort_unstable();
        let at = |share: f64| ms(times[((times.len() - 1) as f64 * share).round() as usize]);
        let (least, median, most_of, most) = (at(0.0), at(0.5), at(0.95), at(1.0));
        if !json {
            println!("{:<56} {jobs:>5} {least:>9.2} {median:>9.2} {most_of:>9.2} {most:>9.2}", case.name);
        }
        rows.push(serde_json::json!({
            "case": case.name, "jobs": jobs, "least_ms": least, "median_ms": median, "p95_ms": most_of, "most_ms": most,
        }));
    }
    if json {
        println!("{}", serde_json::Value::from(rows));
    }
    ExitCode::SUCCESS
}
