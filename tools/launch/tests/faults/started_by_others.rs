//! Jobs whose ranks nobody of ours has started: each was told its rank, the size of the job, where rank 0 is and a secret.
//!
//! The trial starts them, and is no more to them than whoever starts processes on many hosts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};
use longarm::World;
use longarm_control::standing::{Report, State};

use super::outside::{self, NO_HURRY};
use super::witness;
use crate::{BODY, PARAMETERS};

/// A rank's side. Parameters: what it does.
pub fn body(parameters: &str) {
    let world = match longarm::init() {
        Ok(world) => world,
        Err(error) => {
            println!("init: {error}");
            return;
        }
    };
    match parameters.rsplit_once(' ') {
        Some(("victim", rank)) => {
            witness::see_a_death(&world, rank.parse().expect("a rank"));
            witness::stay()
        }
        Some(("parent", rank)) => {
            let victim = rank.parse().expect("a rank");
            if world.rank() == victim {
                leave_a_child();
            }
            witness::see_a_death(&world, victim);
            witness::stay()
        }
        Some(("go on", victim)) => super::starts::go_on(world, victim.parse().expect("a rank")),
        Some(("outlive", victim)) => super::relays::outlive(world, victim.parse().expect("a rank")),
        Some(("worlds", times)) => join_often(world, times.parse().expect("a number")),
        _ if parameters == "count" => super::relays::count(world),
        Some(("deserter", rank)) => desert(world, rank.parse().expect("a rank")),
        _ if parameters == "stand still" => stand_still(world),
        _ => work(world),
    }
}

/// Says where it is and that all agree on a sum.
fn work(world: World) {
    let window = world.allocate_collective::<u64>(1).expect("memory is enough");
    for rank in 0..world.size() {
        window.fetch_add(rank, 0, 1).expect("all live");
    }
    world.barrier_collective().expect("all live");
    let counted = window.get_one(world.rank(), 0).expect("all live");
    println!(
        "rank {} of {} on node {} of {} counts {counted}",
        world.rank(),
        world.size(),
        world.node(),
        world.node_count()
    );
    world.finalize().expect("all live");
}

fn join_often(world: World, times: u32) {
    let mut world = Some(world);
    for time in 0..times {
        let joined = world.take().unwrap_or_else(|| longarm::init().expect("all join again"));
        println!("world {time}");
        work(joined);
    }
}

/// A child that has all of this rank's that it had when it was forked, and lives until the trial is over.
fn leave_a_child() {
    if let fork::Fork::Child = fork::fork().expect("the system has room for a process") {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    }
}

/// A rank returns an error; the others wait for it.
fn desert(world: World, deserter: u32) {
    let window = witness::window(&world);
    if world.rank() == deserter {
        // Whoever were still in the barrier would hear of it there.
        witness::await_others(&world, &window);
        drop((window, world));
        std::process::exit(3);
    }
    witness::be_counted(&window, deserter);
    witness::hear_of_the_end(&world)
}

/// Rank 0 computes until somebody has looked; the others wait for it.
fn stand_still(world: World) {
    if world.rank() == 0 {
        println!("process {}", std::process::id());
        let _ = std::io::stdin().read(&mut [0]);
    }
    world.barrier_collective().expect("all live");
    world.finalize().expect("all live");
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (ranks, nodes) in [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2)] {
        for coming in Coming::ALL {
            let name = format!("ranks_that_were_told_where_to_meet_make_a_world ({nodes} x {}){coming}", ranks / nodes);
            trials.push(Trial::test(name, move || meet(coming, ranks, nodes)));
        }
    }
    for (coming, nodes, victim) in victims() {
        let of = format!("({nodes} x {}){coming}", 4 / nodes);
        let name = format!("without_a_launcher_of_ours_a_killed_rank_{victim}_is_named_by_all {of}");
        trials.push(Trial::test(name, move || name_the_dead(coming, victim, nodes)));
        let name = format!("a_child_that_outlives_rank_{victim}_does_not_hide_its_death {of}");
        trials.push(Trial::test(name, move || hear_of_the_dead(coming, "parent", victim, nodes)));
    }
    for coming in Coming::ALL {
        let mut trial = |name: &str, run: fn(Coming) -> Result<(), Failed>| {
            trials.push(Trial::test(format!("{name}{coming}"), move || run(coming)));
        };
        trial("without_a_launcher_of_ours_a_world_is_left_and_joined_again", join_again);
        trial("without_a_launcher_of_ours_a_rank_that_ends_the_job_is_heard_by_all", deserted);
        trial("longarm_ps_and_the_watchdog_know_a_job_without_a_launcher_of_ours", standstill);
        trial("a_rank_that_does_not_come_is_named_by_those_who_do", missing);
    }
    let mut trial = |name: &str, run: fn() -> Result<(), Failed>| trials.push(Trial::test(name, run));
    trial("a_rank_with_another_secret_is_told_so_and_the_others_who_is_missing", wrong_secret);
    trial("a_rank_that_takes_the_job_for_a_larger_one_is_told_so", wrong_size);
    trial("strangers_at_the_coordinators_port_keep_nobody_out", strangers);
    trial("who_is_promised_others_and_finds_no_way_is_told_what_was_seen", no_way);
    trials
}

fn victims() -> impl Iterator<Item = (Coming, u32, u32)> {
    let of = |coming| [1, 2].into_iter().flat_map(move |nodes| (0..4).map(move |victim| (coming, nodes, victim)));
    Coming::ALL.into_iter().flat_map(of)
}

/// How ranks come to rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// Each by itself.
    Alone,
    /// Those of a node through its first, as they know their neighbours.
    Together,
}

impl Coming {
    const ALL: [Coming; 2] = [Coming::Alone, Coming::Together];
}

impl std::fmt::Display for Coming {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if *self == Coming::Together { ", through one of a node" } else { "" })
    }
}

/// A job of processes that were told who they are.
pub struct ExplicitJob {
    coming: Coming,
    ranks: Vec<Child>,
    coordinator: String,
    folder: tempfile::TempDir,
}

/// A rank that has ended.
pub struct Ended {
    pub success: bool,
    pub said: String,
    pub errors: String,
}

impl Ended {
    pub fn expect(&self, part: &str) -> Result<(), Failed> {
        if self.said.contains(part) || self.errors.contains(part) {
            return Ok(());
        }
        Err(format!("`{part}` is not said:\n{}\n{}", self.said, self.errors).into())
    }
}

impl ExplicitJob {
    /// Nobody yet.
    pub fn new(coming: Coming) -> Result<ExplicitJob, Failed> {
        let folder = tempfile::tempdir()?;
        // Nobody else's on this machine: who has the same one finds the same places.
        std::fs::write(folder.path().join("secret"), format!("a secret of a test, in {}", folder.path().display()))?;
        // Free a moment ago, and nobody is given it again soon.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(ExplicitJob { coming, ranks: Vec::new(), coordinator: format!("127.0.0.1:{port}"), folder })
    }

    pub fn start(
        coming: Coming,
        ranks: u32,
        nodes: u32,
        what: &str,
        variables: &[(&str, &str)],
    ) -> Result<ExplicitJob, Failed> {
        let mut job = ExplicitJob::new(coming)?;
        for rank in 0..ranks {
            job.add(rank, ranks, nodes, what, variables)?;
        }
        Ok(job)
    }

    /// The process of the rank that was added last.
    pub fn last_pid(&self) -> u32 {
        self.ranks.last().expect("one was added").id()
    }

    pub fn coordinator(&self) -> &str {
        &self.coordinator
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    pub fn add(
        &mut self,
        rank: u32,
        size: u32,
        nodes: u32,
        what: &str,
        variables: &[(&str, &str)],
    ) -> Result<(), Failed> {
        self.add_inside(&[], rank, size, (nodes, what), variables)
    }

    /// The same, where another program starts the rank: one that puts it into namespaces of its own.
    pub fn add_inside(
        &mut self,
        starter: &[&str],
        rank: u32,
        size: u32,
        (nodes, what): (u32, &str),
        variables: &[(&str, &str)],
    ) -> Result<(), Failed> {
        let own = std::env::current_exe()?;
        let mut words = starter.iter().map(std::ffi::OsStr::new).chain([own.as_os_str()]);
        let mut command = Command::new(words.next().expect("there is the program itself"));
        command.args(words);
        command.env(BODY, "started by others").env(PARAMETERS, what).env("LONGARM_NODES", nodes.to_string());
        command.env("LONGARM_RANK", rank.to_string()).env("LONGARM_SIZE", size.to_string());
        command.env("LONGARM_ROOT", &self.coordinator).env("LONGARM_SECRET_FILE", self.secret());
        if self.coming == Coming::Together {
            command.env("LONGARM_LOCAL_RANK", rank.to_string()).env("LONGARM_LOCAL_SIZE", size.to_string());
        }
        command.env("LONGARM_TEST_MARK", self.folder.path()).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.ranks.push(command.spawn()?);
        Ok(())
    }

    /// Waits for the end of all, and looks whether something is left.
    pub fn end(mut self) -> Result<Vec<Ended>, Failed> {
        let mark = format!("LONGARM_TEST_MARK={}", self.folder.path().display());
        let readers =
            std::mem::take(&mut self.ranks).into_iter().map(|rank| std::thread::spawn(move || rank.wait_with_output()));
        let mut ended = Vec::new();
        for reader in readers.collect::<Vec<_>>() {
            let output = reader.join().expect("reading does not panic")?;
            let (said, errors) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
            ended.push(Ended { success: output.status.success(), said, errors });
        }
        let left = outside::processes_with(&mark);
        if left.is_empty() { Ok(ended) } else { Err(format!("processes {left:?} are left").into()) }
    }
}

impl Drop for ExplicitJob {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

fn meet(coming: Coming, ranks: u32, nodes: u32) -> Result<(), Failed> {
    let ended = ExplicitJob::start(coming, ranks, nodes, "work", &[])?.end()?;
    for (rank, ended) in ended.iter().enumerate() {
        let node = rank as u32 * nodes / ranks;
        ended.expect(&format!("rank {rank} of {ranks} on node {node} of {nodes} counts {ranks}\n"))?;
        if !ended.success || !ended.errors.is_empty() {
            return Err(format!("rank {rank} complains: {}", ended.errors).into());
        }
    }
    Ok(())
}

fn join_again(coming: Coming) -> Result<(), Failed> {
    let ended = ExplicitJob::start(coming, 3, 1, "worlds 3", &[])?.end()?;
    ended.iter().try_for_each(|rank| rank.expect("world 2"))
}

fn hear_of_the_dead(coming: Coming, kind: &str, victim: u32, nodes: u32) -> Result<(), Failed> {
    let mut job = ExplicitJob::start(coming, 4, nodes, &format!("{kind} {victim}"), &[NO_HURRY])?;
    let how = format!("failed: rank {victim} (node {}) has ended without finalizing", victim * nodes / 4);
    for (rank, process) in (0..).zip(&mut job.ranks).filter(|(rank, _)| *rank != victim) {
        let mut lines = BufReader::new(process.stdout.as_mut().expect("stdout is piped")).lines();
        for call in ["wait", "barrier"] {
            let line = lines.next().ok_or_else(|| format!("rank {rank} ended early"))??;
            if !line.starts_with(&format!("{call}: ")) || !line.contains(&how) {
                return Err(format!("rank {rank} says `{line}`").into());
            }
        }
    }
    Ok(())
}

fn name_the_dead(coming: Coming, victim: u32, nodes: u32) -> Result<(), Failed> {
    hear_of_the_dead(coming, "victim", victim, nodes)?;
    // In a hurry they end by themselves, and none of them well.
    let ended =
        ExplicitJob::start(coming, 4, nodes, &format!("victim {victim}"), &[("LONGARM_REPORT_MS", "1")])?.end()?;
    let speaker = if victim == 0 { 1 } else { 0 };
    ended[speaker].expect(&format!("rank {victim} "))?;
    if ended.iter().any(|rank| rank.success) { Err("a rank ended as if nothing had been".into()) } else { Ok(()) }
}

fn wrong_secret() -> Result<(), Failed> {
    let mut job = ExplicitJob::new(Coming::Alone)?;
    let other = job.folder.path().join("other");
    std::fs::write(&other, "another secret that is long enough")?;
    let soon = ("LONGARM_MEET_TIMEOUT_S", "2");
    job.add(0, 2, 1, "work", &[soon])?;
    job.add(1, 2, 1, "work", &[soon, ("LONGARM_SECRET_FILE", &other.display().to_string())])?;
    let ended = job.end()?;
    ended[1].expect("has it the same secret as rank 0?")?;
    ended[0].expect("rank 1 of 2 did not call longarm::init within 2 s")
}

fn missing(coming: Coming) -> Result<(), Failed> {
    let mut job = ExplicitJob::new(coming)?;
    for rank in [0, 2] {
        job.add(rank, 4, 1, "work", &[("LONGARM_MEET_TIMEOUT_S", "1")])?;
    }
    job.end()?.iter().try_for_each(|rank| rank.expect("ranks 1, 3 of 4 did not call longarm::init within 1 s"))
}

fn wrong_size() -> Result<(), Failed> {
    let mut job = ExplicitJob::new(Coming::Alone)?;
    job.add(0, 2, 1, "work", &[("LONGARM_MEET_TIMEOUT_S", "2")])?;
    job.add(1, 3, 1, "work", &[("LONGARM_MEET_TIMEOUT_S", "2")])?;
    job.end()?[1].expect("it takes the job for one of 2 ranks, and this is one of 3")
}

fn strangers() -> Result<(), Failed> {
    let mut job = ExplicitJob::new(Coming::Alone)?;
    job.add(0, 2, 1, "work", &[])?;
    let mut strangers = Vec::new();
    while strangers.len() < 30 {
        // Until rank 0 listens.
        let Ok(mut stranger) = TcpStream::connect(&job.coordinator) else { continue };
        match strangers.len() % 3 {
            0 => stranger.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nAccept: everything that there is\r\n\r\n")?,
            1 => stranger.write_all(b"LaRk")?,
            _ => {}
        }
        strangers.push(stranger);
    }
    job.add(1, 2, 1, "work", &[])?;
    let ended = job.end()?;
    drop(strangers);
    ended.iter().try_for_each(|rank| rank.expect("counts 2"))
}

/// One behind another rank, and the first one of a node that is not rank 0's.
fn deserted(coming: Coming) -> Result<(), Failed> {
    for deserter in [1, 2] {
        let ended = ExplicitJob::start(coming, 4, 2, &format!("deserter {deserter}"), &[])?.end()?;
        ended[deserter]
            .expect(&format!("rank {deserter} ends the job: it left its world without finalize"))
            .map_err(|failed| format!("the deserter {deserter}: {}", failed.message().unwrap_or("")))?;
        for rank in (0..4).filter(|rank| *rank != deserter) {
            let node = deserter / 2;
            ended[rank].expect("barrier: ")?;
            ended[rank]
                .expect(&format!("rank {deserter} (node {node}) aborted: it left its world without finalize"))?;
        }
    }
    Ok(())
}

fn standstill(coming: Coming) -> Result<(), Failed> {
    let mut job = ExplicitJob::start(coming, 3, 1, "stand still", &[("LONGARM_WATCHDOG_S", "1")])?;
    let mut line = String::new();
    BufReader::new(job.ranks[0].stdout.as_mut().expect("stdout is piped")).read_line(&mut line)?;
    let pid = line.trim().strip_prefix("process ").ok_or_else(|| format!("rank 0 says `{line}`"))?;
    let mut errors = BufReader::new(job.ranks[0].stderr.take().expect("stderr is piped"));
    let mut headline = String::new();
    errors.read_line(&mut headline)?;
    if !headline.contains("has waited in barrier for 1 s; where all ranks stand:") {
        return Err(format!("rank 0 says `{headline}`").into());
    }
    let report: Report = serde_json::from_str(&outside::longarm(&["ps", "--json", pid])?)?;
    let states: Vec<State> = report.ranks.iter().map(|rank| rank.state).collect();
    if states != [State::Computing, State::Waiting, State::Waiting] {
        return Err(format!("the ranks are {states:?}").into());
    }
    let list = outside::longarm(&["ps"])?;
    if !list.lines().any(|line| line.split_whitespace().next() == Some(pid)) {
        return Err(format!("the list has no {pid}: {list}").into());
    }
    job.ranks[0].stdin.as_mut().expect("stdin is piped").write_all(b"\n")?;
    let drained = std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let ended = job.end()?;
    drained.join().expect("reading does not panic")?;
    if ended.iter().all(|rank| rank.success) { Ok(()) } else { Err("the job did not end well".into()) }
}

fn no_way() -> Result<(), Failed> {
    let mut job = ExplicitJob::new(Coming::Alone)?;
    job.add(1, 2, 1, "work", &[("LONGARM_ROOT", ""), ("PMI_RANK", "1"), ("PMI_SIZE", "2")])?;
    let ended = job.end()?;
    let parts =
        ["init: ", "PMI_SIZE=2", "LONGARM_RANK=1", "LONGARM_ROOT is not set", "longarm run", "LONGARM_ALONE=yes"];
    parts.into_iter().try_for_each(|part| ended[0].expect(part))
}
