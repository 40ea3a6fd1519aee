//! Processes of a job that stop for a while, and processes that are killed. Who stops is waited for; who is killed is
//! named by every survivor and by the launcher, and the job ends.

use std::time::Duration;

use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};

use super::breaks::{self, Kind, expect_right};
use super::detection;
use super::dice::Dice;
use super::job::{Ended, Job, Plan, no_hurry};
use super::work::{Orders, Outcome};

/// How long silence counts as a break, where processes stop.
const SILENCE_MS: u64 = 120;

/// How a rank is told of a death by a server, before the launcher has said it.
pub const SERVER_SAYS: &str = "is dead, as the server of its node says";

/// More rounds than any job gets to before its end comes from outside.
const FOR_EVER: u64 = 1 << 20;

/// A job of this seed: half of them have a proxy that breaks connections as well.
fn plan(seed: u64, rounds: u64, dice: &mut Dice) -> Plan {
    let (ranks, nodes) = *dice.pick(&[(2, 1), (2, 2), (3, 2), (4, 2), (4, 4)]);
    let orders = Orders { seed, rounds, bytes_max: 64 << 10 };
    let decide = if dice.chance(50) { breaks::plan(Kind::Breaks, seed).decide } else { None };
    let variables = vec![("LONGARM_SILENCE_MS", SILENCE_MS.to_string())];
    Plan { ranks, nodes, orders, variables, decide, wrapper: Vec::new() }
}

/// The node of a rank: the launcher cuts ranks into blocks, the first ones larger.
pub fn node_of(plan: &Plan, rank: u32) -> u32 {
    let (each, larger) = (plan.ranks / plan.nodes, plan.ranks % plan.nodes);
    if rank < larger * (each + 1) { rank / (each + 1) } else { larger + (rank - larger * (each + 1)) / each }
}

pub fn signal(pid: Pid, signal: Signal) -> Outcome<()> {
    // One that has ended meanwhile gets none.
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The time of a fault: not waited for by anything that is tested.
pub fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

/// Waits until a rank has come this far, and is somewhere in the middle of it.
pub fn reach(job: &mut Job, rank: u32, round: u64, dice: &mut Dice) -> Outcome<()> {
    let line = format!("rank {rank} begins round {round}");
    if job.until(&line)?.is_none() {
        return Err(format!("`{line}` was not said, but\n{}", job.heard()).into());
    }
    pause(Duration::from_micros(dice.below(8000) as u64));
    Ok(())
}

/// A rank, or several, stop and go on.
pub fn stop(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0x5109]);
    let plan = plan(seed, 3, &mut dice);
    let mut job = Job::start(&plan)?;
    let first = dice.below(plan.ranks as usize) as u32;
    reach(&mut job, first, dice.within(0, 2) as u64, &mut dice)?;
    let stopped = if dice.chance(25) { 0..plan.ranks } else { first..first + 1 };
    // Shorter than silence may be, or longer.
    let time = Duration::from_millis(dice.within(10, 4 * SILENCE_MS as usize) as u64);
    let pids: Vec<Pid> = stopped.filter_map(|rank| job.process(rank)).collect();
    pids.iter().try_for_each(|pid| signal(*pid, Signal::STOP))?;
    pause(time);
    pids.iter().try_for_each(|pid| signal(*pid, Signal::CONT))?;
    expect_right(&job.end()?, plan.ranks)
}

/// What every survivor and the launcher have to say of a rank that was killed in a call of all.
pub fn expect_named(plan: &Plan, victim: u32, ended: &Ended, all_speak: bool) -> Result<(), Failed> {
    let Ended { status, stdout, stderr, .. } = ended;
    let fail = |what: String| Err(format!("{what}; the status is {status}, stdout:\n{stdout}stderr:\n{stderr}").into());
    let node = node_of(plan, victim);
    if *status != 128 + 9 {
        return fail("the status is not that of the victim".into());
    }
    let named = format!("longarm: rank {victim} (node {node}, pid ");
    if !stderr.lines().any(|line| line.starts_with(&named) && line.contains("was killed by signal 9 (SIGKILL)")) {
        return fail(format!("the launcher does not name rank {victim}"));
    }
    for rank in (0..plan.ranks).filter(|rank| *rank != victim) {
        let start = format!("rank {rank} says: ");
        // A server may have heard of it before this rank has, and does not know how.
        let hows = ["SIGKILL", SERVER_SAYS];
        let names =
            |line: &&str| line.contains(&format!("rank {victim} ")) && hows.iter().any(|how| line.contains(how));
        match stdout.lines().find(|line| line.starts_with(&start)) {
            Some(line) if names(&line) => {}
            Some(line) => return fail(format!("rank {rank} does not name rank {victim}, but says: {line}")),
            None if all_speak => return fail(format!("rank {rank} does not say that rank {victim} is dead")),
            None => {}
        }
        if stdout.lines().any(|line| line.starts_with(&format!("rank {rank} is right"))) {
            return fail(format!("rank {rank} has not noticed that rank {victim} died"));
        }
    }
    // Who has no world ends itself, and takes its node's server along.
    let causes = [&format!("rank {victim} "), "exited with status 3", "it left its world without finalize"];
    let explains = |line: &str| causes.iter().any(|cause| line.contains(cause));
    let early = stdout.lines().find(|line| line.starts_with("no world: ") && !explains(line));
    early.map_or(Ok(()), |line| fail(format!("a rank does not name rank {victim}, but says: {line}")))
}

/// A rank is killed in the middle of its work; the lowest ones of their nodes host servers.
pub fn kill(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0x511]);
    let mut plan = plan(seed, FOR_EVER, &mut dice);
    plan.variables.push(no_hurry());
    let mut job = Job::start(&plan)?;
    let victim = dice.below(plan.ranks as usize) as u32;
    reach(&mut job, victim, dice.within(0, 1) as u64, &mut dice)?;
    if let Some(pid) = job.process(victim) {
        signal(pid, Signal::KILL)?;
    }
    expect_named(&plan, victim, &job.end_when_others_have_spoken(victim)?, true)
}

/// A rank is killed while the world is being made.
pub fn kill_early(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0xea]);
    let plan = plan(seed, FOR_EVER, &mut dice);
    let job = Job::start(&plan)?;
    let victim = dice.below(plan.ranks as usize) as u32;
    let Some(pid) = job.process(victim) else { return Err("a rank has never joined".into()) };
    pause(Duration::from_micros(dice.below(3000) as u64));
    signal(pid, Signal::KILL)?;
    expect_named(&plan, victim, &job.end()?, false)
}

/// The launcher is killed: the ranks go with it, and nobody is left to say anything.
pub fn kill_launcher(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0x1a]);
    let plan = plan(seed, FOR_EVER, &mut dice);
    let mut job = Job::start(&plan)?;
    let rank = dice.below(plan.ranks as usize) as u32;
    reach(&mut job, rank, dice.within(0, 1) as u64, &mut dice)?;
    signal(job.launcher(), Signal::KILL)?;
    let ended = job.end()?;
    if ended.status != 128 + 9 || ended.stdout.contains("WRONG") {
        return Err(format!("{ended:?}").into());
    }
    Ok(())
}

/// A server's host stops for longer than a connection may take to be made anew: whoever waits for its node says so, also
/// where it has not asked that node for anything.
pub fn stop_for_good(seed: u64) -> Result<(), Failed> {
    let call = ["rmw", "barrier", "word"][seed as usize % 3];
    let variables = [("LONGARM_SILENCE_MS", "120"), ("LONGARM_RECONNECT_S", "1"), (detection::WAIT_IN, call)];
    let variables = variables.map(|(name, value)| (name, value.to_owned())).to_vec();
    let orders = Orders { seed, rounds: 0, bytes_max: 1 };
    let plan = Plan { ranks: 2, nodes: 2, orders, variables, decide: None, wrapper: Vec::new() };
    let mut job = Job::start(&plan)?;
    let victim = job.process(1);
    let (Some(victim), Some(_)) = (victim, job.until("ready")?) else { return Err("it ended early".into()) };
    signal(victim, Signal::STOP)?;
    let ended = job.end()?;
    let named = "rank 1 (node 1) hosts the server of its node, and the connection to it failed: ";
    let said = ended.stdout.lines().find(|line| line.starts_with("rank 0 says: ")).unwrap_or_default();
    if ended.status != 3 || !said.contains(named) || !said.contains("could not be made anew within 1 s") {
        return Err(format!("in {call}: {ended:?}").into());
    }
    Ok(())
}
