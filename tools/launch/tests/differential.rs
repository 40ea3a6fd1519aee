//! Random programs of all operations from all ranks, compared with a model that does one thing after the other.
//!
//! This program is the tests and the ranks. A trial has the launcher start it again as ranks with a seed, from which
//! every rank writes down what all of them do. A failure says the seed, and
//! `LONGARM_TEST_SEED=.. cargo test -p longarm-launch --test differential` repeats it. `--ops N` makes every job
//! longer, `--seeds N` makes more of them: a soak.
#![forbid(unsafe_code)]

mod differential {
    pub mod buffer;
    pub mod dice;
    pub mod form;
    pub mod model;
    pub mod number;
    pub mod program;
    pub mod rank;
    pub mod together;
    pub mod words;
}

use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use longarm::bootstrap::control::CONTROL_FD_VARIABLE;

/// The seed of a job. Set by hand it makes the tests use this one only.
const SEED: &str = "LONGARM_TEST_SEED";
/// Operations of a job, all ranks together.
const OPS: &str = "LONGARM_TEST_OPS";

/// Ranks and nodes.
const LAYOUTS: [(u32, u32); 4] = [(4, 1), (4, 2), (4, 4), (16, 4)];
/// Programs for each layout, every day.
const SEEDS: u64 = 4;
/// Operations of each, every day.
const OPERATIONS: u64 = 25_000;
const _: () = assert!(LAYOUTS.len() as u64 * SEEDS * OPERATIONS >= 200_000);
/// What a rank says that ends because another one did.
const STOPPED: &str = "stopped because of another";
/// Ends a job that hangs.
const SAFETY_NET_S: &str = "300";

/// Settings that send the same operations on other ways. The seed picks one.
const SETTINGS: [&[(&str, &str)]; 4] = [
    &[],
    &[("LONGARM_EAGER_BYTES", "64"), ("LONGARM_SEND_RING_BYTES", "64k"), ("LONGARM_SOCKET_BUFFER_BYTES", "8k")],
    &[("LONGARM_SPIN_US", "20"), ("LONGARM_NONTEMPORAL_BYTES", "4k"), ("LONGARM_SERVER_THREADS", "3")],
    &[("LONGARM_CONNECTIONS_MAX", "0")],
];

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>());
    let (seed, ops) = (number(SEED).transpose(), number(OPS).transpose());
    let (Ok(seed), Ok(ops)) = (seed, ops) else {
        eprintln!("{SEED} and {OPS} are numbers");
        return ExitCode::from(2);
    };
    let mut ops = ops.unwrap_or(OPERATIONS);
    if let Some(seed) = seed
        && std::env::var_os(CONTROL_FD_VARIABLE).is_some()
    {
        return be_rank(seed, ops);
    }
    let mut seeds = SEEDS;
    let mut rest = Vec::new();
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        let place = match argument.as_str() {
            "--ops" => &mut ops,
            "--seeds" => &mut seeds,
            _ => {
                rest.push(argument);
                continue;
            }
        };
        let Some(Ok(value)) = arguments.next().map(|text| text.parse()) else {
            eprintln!("{argument} takes a number");
            return ExitCode::from(2);
        };
        *place = value;
    }
    let seeds = seed.map_or(1..seeds + 1, |seed| seed..seed + 1);
    let jobs = LAYOUTS.iter().flat_map(|layout| seeds.clone().map(move |seed| (*layout, seed)));
    let trials = jobs.map(|((ranks, nodes), seed)| {
        Trial::test(format!("seed_{seed}_on_{ranks}_ranks_and_{nodes}_nodes"), move || run_job(ranks, nodes, seed, ops))
    });
    // One job at a time: each uses all processors.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_iter(rest) };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn be_rank(seed: u64, ops: u64) -> ExitCode {
    match differential::rank::run(seed, ops) {
        Ok(done) => {
            if std::env::var("LONGARM_RANK").is_ok_and(|rank| rank == "0") {
                println!("{done} operations");
            }
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run_job(ranks: u32, nodes: u32, seed: u64, ops: u64) -> Result<(), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
    command.args(["run", "-n", &ranks.to_string(), "--nodes", &nodes.to_string(), "--timeout", SAFETY_NET_S, "--"]);
    command.arg(std::env::current_exe()?).env(SEED, seed.to_string()).env(OPS, ops.to_string());
    command.envs(SETTINGS[seed as usize % SETTINGS.len()].iter().copied());
    let output = command.stdin(Stdio::null()).output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let repeat = format!(
        "{SEED}={seed} {OPS}={ops} cargo test -p longarm-launch --test differential -- {ranks}_ranks_and_{nodes}_nodes"
    );
    if !output.status.success() {
        // Those that only followed the first one say nothing new.
        let stderr: Vec<&str> = stderr.lines().filter(|line| !line.contains(STOPPED)).collect();
        let stderr = stderr.join("\n");
        return Err(format!("{}\n{stderr}\n{stdout}\nrepeat with: {repeat}", output.status).into());
    }
    let done = stdout.lines().find_map(|line| line.strip_suffix(" operations")?.parse::<u64>().ok());
    match done {
        Some(done) if done >= ops => Ok(()),
        done => Err(format!("{done:?} operations were done instead of {ops}: {stderr}\nrepeat with: {repeat}").into()),
    }
}
