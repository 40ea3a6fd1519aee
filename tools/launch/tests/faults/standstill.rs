//! A job stands still: the watchdog says by itself who waits for whom, and `longarm ps` whenever it is asked.

use libtest_mimic::{Failed, Trial};
use longarm::{Compare, World};
use rustix::process::Pid;
use serde_json::{Value, json};

use super::outside::{Job, longarm};

/// Where those who are in their place are counted, at rank 0.
const READY: usize = 0;

/// The rank's side. Rank 1 holds a mutex and computes, rank 0 wants it, rank 2 waits at a barrier, rank 3 is stopped.
pub fn body(world: World) {
    let window = world.allocate_collective::<u64>(2).expect("memory is enough");
    let mutexes = world.mutexes_collective(1).expect("memory is enough");
    world.barrier_collective().expect("all live");
    match world.rank() {
        0 => {
            window.wait_until(READY, Compare::Equal, 1).expect("all live");
            println!("in place");
            mutexes.lock(0, 0).expect("the job is ended first").keep();
        }
        1 => {
            mutexes.lock(0, 0).expect("it is free").keep();
            window.fetch_add(0, READY, 1).expect("all live");
            loop {
                std::thread::park();
            }
        }
        2 => world.barrier_collective().expect("the job is ended first"),
        _ => {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::STOP).expect("one may stop oneself");
        }
    }
}

/// The rank's side of another job: rank 1, which hosts its node's server, stops itself, and rank 0 asks its node for something.
pub fn held_body(world: World) {
    let window = world.allocate_collective::<u64>(1).expect("memory is enough");
    world.barrier_collective().expect("all live");
    match world.rank() {
        0 => {
            println!("asks");
            window.fetch_add(1, 0, 1).expect("the other one goes on");
        }
        _ => {
            println!("stops as {}", std::process::id());
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::STOP).expect("one may stop oneself");
        }
    }
    world.finalize().expect("all live");
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_job_that_stands_still_is_reported_with_who_waits_for_whom", report),
        Trial::test("ps_lists_a_running_job_and_shows_where_its_ranks_stand", ask),
        Trial::test("a_rank_that_a_debugger_holds_for_longer_than_any_limit_goes_on_in_the_mode_for_it", hold),
        Trial::test("a_job_whose_watchdog_is_off_is_not_reported_but_answers", ask_without_watchdog),
    ]
}

/// What a report says of the job, with single spaces.
const LINES: [&str; 4] = [
    "0 0 lock the holder of a mutex of rank 0 ",
    "2 1 barrier rank 3 (node 1) ",
    "computing, in no call of longarm that waits: rank 1",
    "stopped by a signal, no answer: rank 3",
];

fn report() -> Result<(), Failed> {
    let mut job = Job::start((4, 2), "standstill", "", &[("LONGARM_WATCHDOG_S", "1")])?;
    // The first report may come before all are in their place; then another one follows.
    let mut found = Vec::new();
    while found.len() < LINES.len() {
        let line = job.error_line()?;
        if line.starts_with("longarm: rank ") {
            if !line.contains(" has waited in ") || !line.ends_with(" s; where all ranks stand:") {
                return Err(format!("a report begins with `{line}`").into());
            }
            found.clear();
        }
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        found.extend(LINES.into_iter().filter(|start| line.starts_with(start)));
    }
    job.interrupt()?.expect_status(143)
}

/// Asks until all ranks are where they shall be. Rank 0 first waits for the answer that the mutex is taken.
fn standing(pid: &str) -> Result<Value, Failed> {
    loop {
        let report: Value = serde_json::from_str(&longarm(&["ps", pid, "--json"])?)?;
        let states: Vec<&str> =
            report["ranks"].as_array().into_iter().flatten().filter_map(|rank| rank["state"].as_str()).collect();
        let is_answered = report["ranks"][0]["waits"][0]["whom"] != json!({"rank": 0});
        if states == ["waiting", "computing", "waiting", "stopped"] && is_answered {
            return Ok(report);
        }
    }
}

fn ask() -> Result<(), Failed> {
    let mut job = Job::start((4, 2), "standstill", "", &[])?;
    if job.line()? != "in place" {
        return Err("rank 0 says something else".into());
    }
    let launcher = job.launcher();
    let pid = launcher.to_string();
    let report = standing(&pid)?;
    let awaited = |rank: usize| {
        let wait = &report["ranks"][rank]["waits"][0];
        (wait["call"].clone(), wait["whom"].clone())
    };
    let expected = [(json!("lock"), json!({"holder_at": 0})), (json!("barrier"), json!({"rank": 3}))];
    if [awaited(0), awaited(2)] != expected || report["job"]["ranks"] != 4 || report["ranks"][3]["node"] != 1 {
        return Err(format!("the report is {report}").into());
    }
    let missing = |text: &str| {
        let squeezed: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        LINES.into_iter().find(|start| !squeezed.iter().any(|line| line.starts_with(start)))
    };
    // A rank that gets no processor for a while has no answer.
    let mut text = longarm(&["ps", &pid])?;
    while text.lines().any(|line| line.trim_start().starts_with("no answer")) {
        text = longarm(&["ps", &pid])?;
    }
    if let Some(start) = missing(&text) {
        return Err(format!("no line begins with `{start}`:\n{text}").into());
    }
    let jobs: Value = serde_json::from_str(&longarm(&["ps", "--json"])?)?;
    let listed = jobs.as_array().into_iter().flatten().find(|job| job["pid"] == launcher);
    if listed.is_none_or(|job| job["ranks"] != 4 || job["nodes"] != 2) || !longarm(&["ps"])?.contains(&pid) {
        return Err(format!("the list is {jobs}").into());
    }
    job.interrupt()?.expect_status(143)?;
    match longarm(&["ps", &pid]) {
        Err(error) if error.message().is_some_and(|text| text.contains("runs no job of this user")) => Ok(()),
        other => Err(format!("of a job that has ended ps says {other:?}").into()),
    }
}

fn ask_without_watchdog() -> Result<(), Failed> {
    let mut job = Job::start((4, 2), "standstill", "", &[("LONGARM_WATCHDOG_S", "0")])?;
    job.line()?;
    standing(&job.launcher().to_string())?;
    let ended = job.interrupt()?;
    if ended.stderr.contains(" has waited in ") {
        return Err(format!("it is off, but: {}", ended.stderr).into());
    }
    ended.expect_status(143)
}

/// A job in which a rank stands still, as soon as it does, with that rank's process.
fn start_held(debugger: &str) -> Result<(Job, Pid), Failed> {
    let limits = [("LONGARM_SILENCE_MS", "50"), ("LONGARM_RECONNECT_S", "1"), ("LONGARM_DEBUGGER", debugger)];
    let mut job = Job::start((2, 2), "held", "", &limits)?;
    let mut held = None;
    for _ in 0..2 {
        let line = job.line()?;
        if let Some(pid) = line.strip_prefix("stops as ") {
            held = Pid::from_raw(pid.parse()?);
        }
    }
    Ok((job, held.ok_or("nobody stops")?))
}

/// The other job, without the mode, shows when the limits are over: it ends by them.
fn hold() -> Result<(), Failed> {
    let (held, rank) = start_held("yes")?;
    let (given_up, _) = start_held("no")?;
    let given_up = given_up.end()?;
    if given_up.status == 0 || !given_up.stderr.contains("node 1") {
        return Err(format!("the limits mean nothing: {given_up:?}").into());
    }
    rustix::process::kill_process(rank, rustix::process::Signal::CONT)?;
    held.end()?.expect_status(0)
}
