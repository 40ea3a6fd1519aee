//! Ranks and servers that get no more descriptors or no more memory. Descriptors that come back are waited for; what
//! never comes is an error that says so, or an end that everybody is told of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Failed;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::breaks::{self, Kind, expect_right};
use super::dice::Dice;
use super::job::{Ended, Job, Plan, no_hurry};
use super::kills::{expect_named, pause, reach};
use super::work::{Orders, Outcome};

fn plan(seed: u64, dice: &mut Dice, kind: Option<Kind>) -> Plan {
    let (ranks, nodes) = *dice.pick(&[(2, 2), (4, 2)]);
    let orders = Orders { seed, rounds: 3, bytes_max: 256 << 10 };
    let decide = kind.and_then(|kind| breaks::plan(kind, seed).decide);
    Plan { ranks, nodes, orders, variables: Vec::new(), decide, wrapper: Vec::new() }
}

/// Sets the soft limit of a process, and returns what it was; `None`: it has ended meanwhile.
fn limit(pid: Pid, resource: Resource, current: u64) -> Outcome<Option<Rlimit>> {
    let maximum = getrlimit(resource).maximum;
    unless_ended(prlimit(Some(pid), resource, Rlimit { current: Some(current), maximum }))
}

/// `None`: the process that it was done to has ended meanwhile, as its job was quicker.
fn unless_ended<T>(done: Result<T, impl Into<std::io::Error>>) -> Outcome<Option<T>> {
    match done.map_err(Into::into) {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// No descriptor is left in a rank or a server for a while, and connections that break cannot be made anew.
pub fn no_descriptors(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0xfd]);
    let plan = plan(seed, &mut dice, Some(Kind::Breaks));
    without_descriptors(&plan, &mut dice)
}

/// The same where only servers connect: who routes for others takes none of them in meanwhile.
pub fn no_descriptors_routed(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0xfe]);
    let mut plan = plan(seed, &mut dice, Some(Kind::Breaks));
    plan.variables.push(("LONGARM_CONNECTIONS_MAX", "0".to_owned()));
    without_descriptors(&plan, &mut dice)
}

/// The same where ranks have some connections of their own: those that cannot be taken in hold up no channel.
pub fn no_descriptors_partly_routed(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0xff]);
    let mut plan = plan(seed, &mut dice, Some(Kind::Breaks));
    (plan.ranks, plan.nodes) = (4, 4);
    plan.variables.push(("LONGARM_CONNECTIONS_MAX", "2".to_owned()));
    without_descriptors(&plan, &mut dice)
}

fn without_descriptors(plan: &Plan, dice: &mut Dice) -> Result<(), Failed> {
    let mut job = Job::start(plan)?;
    let victim = dice.below(plan.ranks as usize) as u32;
    // By now all windows are mapped, and no other one will be allocated.
    reach(&mut job, victim, 2, dice)?;
    // It may have ended meanwhile.
    if let Some(pid) = job.process(victim)
        && let Some(before) = limit(pid, Resource::Nofile, 0)?
    {
        pause(Duration::from_millis(dice.within(20, 200) as u64));
        // It may have ended meanwhile, having needed none.
        let _ = prlimit(Some(pid), Resource::Nofile, before);
    }
    expect_right(&job.end()?, plan.ranks)
}

/// Either the job is right, or everybody who says something says what is missing or who has died of it.
fn expect_right_or_explained(ended: &Ended, plan: &Plan, victim: u32) -> Result<(), Failed> {
    if ended.status == 0 {
        return expect_right(ended, plan.ranks);
    }
    // Whoever is told ends itself, and others may hear of that first.
    let explains = |line: &str| {
        let causes = ["memory", &format!("rank {victim} (node "), "exited with status 3"];
        causes.iter().any(|cause| line.contains(cause))
    };
    let said: Vec<&str> = ended.stdout.lines().filter(|line| line.contains(" says: ")).collect();
    let named = ended.stderr.contains(&format!("longarm: rank {victim} (node "));
    if said.iter().all(|line| explains(line)) && (named || !said.is_empty()) && !ended.stdout.contains("WRONG") {
        return Ok(());
    }
    Err(format!("rank {victim} had no memory: {ended:?}").into())
}

fn no_memory(seed: u64, resource: Resource, size: impl Fn(Pid) -> u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0xa5]);
    let plan = plan(seed, &mut dice, None);
    let mut job = Job::start(&plan)?;
    // The lowest ranks host servers, which make memory for their nodes.
    let victim = dice.below(plan.ranks as usize) as u32;
    reach(&mut job, victim, 0, &mut dice)?;
    if let Some(pid) = job.process(victim) {
        limit(pid, resource, size(pid))?;
    }
    expect_right_or_explained(&job.end()?, &plan, victim)
}

/// A process gets no more addresses than it has.
pub fn no_addresses(seed: u64) -> Result<(), Failed> {
    no_memory(seed, Resource::As, |pid| {
        let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or_default();
        pages * rustix::param::page_size() as u64
    })
}

/// A process may make no more shared memory: its limit on the size of files counts for that too.
pub fn no_shared_memory(seed: u64) -> Result<(), Failed> {
    no_memory(seed, Resource::Fsize, |_| 0)
}

/// A control group for memory, taken away when dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make(name: &str, bytes: u64) -> Option<MemoryGroup> {
        let group = MemoryGroup(Path::new("/sys/fs/cgroup/memory").join(name));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The system has no more memory for a process, and kills it.
pub fn memory_is_full(seed: u64) -> Result<(), Failed> {
    let mut dice = Dice::new(&[seed, 0xf0]);
    let mut plan = plan(seed, &mut dice, None);
    plan.variables.push(no_hurry());
    let name = format!("longarm-{}-{seed}", std::process::id());
    let Some(group) = MemoryGroup::make(&name, 64 << 10) else {
        eprintln!("left out: no control group for memory can be made here (that needs root, and version 1 of them)");
        return Ok(());
    };
    let mut job = Job::start(&plan)?;
    let victim = dice.below(plan.ranks as usize) as u32;
    reach(&mut job, victim, 0, &mut dice)?;
    if let Some(pid) = job.process(victim) {
        unless_ended(std::fs::write(group.0.join("cgroup.procs"), pid.as_raw_pid().to_string()))?;
    }
    let ended = job.end_when_others_have_spoken(victim)?;
    if ended.status == 0 { expect_right(&ended, plan.ranks) } else { expect_named(&plan, victim, &ended, true) }
}
