//! Jobs of a process manager that has a process of its own on each host, which is killed.
//!
//! ```text
//!   trial: the manager, its store ──PMI-1──▶ proxy: a process ──PMI-1──▶ rank, or a script that runs it
//! ```
//!
//! The proxies start the ranks and pass on what both sides say, as those of hydra do. All is on one machine, and to the ranks on two.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;

use libtest_mimic::{Failed, Trial};
use longarm::World;
use rustix::io::{FdFlags, fcntl_setfd};

use super::outside::{self, NO_HURRY};
use super::witness;
use crate::{BODY, PARAMETERS};

const RANKS: usize = 2;
const MARK: &str = "LONGARM_TEST_MARK";
/// What the coordinator says of a rank whose proxy is gone.
const LOST: &str = "has lost its process manager: the manager's process on its host is gone";

/// A rank's side. Parameters: whose proxy is killed.
pub fn body(world: &World, parameters: &str) {
    world.barrier_collective().expect("all live");
    println!("at work");
    let victim: u32 = parameters.parse().expect("a rank");
    if world.rank() == victim { witness::stay() } else { witness::hear_of_the_end(world) }
}

/// A proxy's side. Parameters: the rank, and `script` or `program`.
pub fn proxy_body(parameters: &str) {
    let (rank, how) = parameters.split_once(' ').expect("a rank and how it is started");
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    // The rank has it under the same number. Nobody else starts a process here.
    fcntl_setfd(&theirs, FdFlags::empty()).expect("it is open");
    let program = std::env::current_exe().expect("it has a name");
    let mut command = Command::new(if how == "script" { "/bin/sh".into() } else { program.clone() });
    if how == "script" {
        // The shell stays until the rank has ended.
        command.args(["-c", "\"$0\"; exit 0"]).arg(&program);
    }
    command.env(BODY, "proxied").env(PARAMETERS, std::env::var("LONGARM_TEST_VICTIM").expect("it is set"));
    command.env("PMI_FD", theirs.as_raw_fd().to_string()).env("PMI_RANK", rank).env("PMI_SIZE", RANKS.to_string());
    // Our own output is the manager's.
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let mut rank = command.spawn().expect("the rank starts");
    drop(theirs);
    let mut said = ours.try_clone().expect("a copy");
    let mut answers = ours;
    std::thread::spawn(move || std::io::copy(&mut std::io::stdin(), &mut answers));
    pass_on(&mut said);
    rank.wait().expect("it was started here");
}

fn pass_on(said: &mut UnixStream) {
    let mut chunk = [0; 4096];
    let mut out = std::io::stdout();
    while let Ok(bytes @ 1..) = said.read(&mut chunk) {
        if out.write_all(&chunk[..bytes]).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// What all ranks have put, and where they meet.
struct Store {
    values: Mutex<HashMap<String, String>>,
    barrier: Barrier,
}

impl Store {
    fn answer(&self, line: &str) -> String {
        let word = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap_or_default();
        match word("cmd=") {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=store".to_owned(),
            "put" => {
                self.values.lock().expect("nobody panics").insert(word("key=").to_owned(), word("value=").to_owned());
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "get" => match self.values.lock().expect("nobody panics").get(word("key=")) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            "barrier_in" => {
                self.barrier.wait();
                "cmd=barrier_out".to_owned()
            }
            other => format!("cmd={other}_ack"),
        }
    }

    fn serve(&self, said: ChildStdout, mut answers: ChildStdin) {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if writeln!(answers, "{}", self.answer(&line)).is_err() {
                return;
            }
        }
    }
}

/// A job whose ranks have a proxy each.
struct Proxied {
    proxies: Vec<(Child, BufReader<ChildStderr>)>,
    managers: Vec<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

impl Proxied {
    fn start(victim: u32, how: &str) -> Result<Proxied, Failed> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(Store { values: Mutex::default(), barrier: Barrier::new(RANKS) });
        let mut job = Proxied { proxies: Vec::new(), managers: Vec::new(), folder };
        for rank in 0..RANKS {
            let mut command = Command::new(std::env::current_exe()?);
            command.env(BODY, "proxy").env(PARAMETERS, format!("{rank} {how}")).env("LONGARM_NODES", RANKS.to_string());
            command.env("LONGARM_TEST_VICTIM", victim.to_string()).env(MARK, job.folder.path()).envs([NO_HURRY]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut proxy = command.spawn()?;
            let said = proxy.stdout.take().expect("stdout is piped");
            let answers = proxy.stdin.take().expect("stdin is piped");
            let output = BufReader::new(proxy.stderr.take().expect("stderr is piped"));
            job.proxies.push((proxy, output));
            let store = Arc::clone(&store);
            job.managers.push(std::thread::spawn(move || store.serve(said, answers)));
        }
        Ok(job)
    }

    /// Reads what a rank says until each of these stands in a line of it, in any order.
    fn await_lines(&mut self, rank: usize, parts: &[&str]) -> Result<(), Failed> {
        let mut heard = String::new();
        while !parts.iter().all(|part| heard.contains(part)) {
            if self.proxies[rank].1.read_line(&mut heard)? == 0 {
                return Err(format!("rank {rank} has not said all of {parts:?}: {heard}").into());
            }
        }
        Ok(())
    }

    /// Kills a proxy, and reads what its rank says until it is gone, and all that holds its output.
    fn kill(&mut self, rank: usize) -> Result<String, Failed> {
        self.proxies[rank].0.kill()?;
        self.proxies[rank].0.wait()?;
        let mut rest = String::new();
        self.proxies[rank].1.read_to_string(&mut rest)?;
        Ok(rest)
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        for (proxy, _) in &mut self.proxies {
            let _ = proxy.kill();
            let _ = proxy.wait();
        }
    }
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for how in ["program", "script"] {
        for victim in 0..2 {
            let name = format!(
                "a_rank_whose_managers_process_is_killed_ends_and_the_other_hears_why (rank {victim}, a {how})"
            );
            trials.push(Trial::test(name, move || lose_the_manager(victim, how)));
        }
    }
    trials.push(Trial::test("a_task_of_slurm_whose_starter_went_before_it_looked_ends", lose_the_starter_early));
    trials
}

/// A task of Slurm's that the first process has adopted, or another reaper, before it looks for the others.
fn lose_the_starter_early() -> Result<(), Failed> {
    let (said, cancelled) = join_as_an_orphan("$$")?;
    if !said.contains("its process manager's process on this host went before the ranks had met") {
        return Err(format!("an orphan says `{said}`").into());
    }
    if cancelled != "7.3\n" {
        return Err(format!("of its step it has cancelled `{cancelled}`").into());
    }
    // What a script of the task has started may have lost that script, and not Slurm's process.
    let (said, cancelled) = join_as_an_orphan("1")?;
    if !said.contains("init: ") || !cancelled.is_empty() {
        return Err(format!("another process of the task says `{said}`, and has cancelled `{cancelled}`").into());
    }
    Ok(())
}

/// A rank that begins when whoever has started it is gone, in a step 7.3 whose task has this number: what it says, and which steps it
/// has cancelled.
fn join_as_an_orphan(task: &str) -> Result<(String, String), Failed> {
    let folder = tempfile::tempdir()?;
    let (scancel, cancelled) = (folder.path().join("scancel"), folder.path().join("cancelled"));
    std::fs::write(&scancel, format!("#!/bin/sh\necho \"$@\" >>{}\n", cancelled.display()))?;
    std::fs::set_permissions(&scancel, std::fs::Permissions::from_mode(0o755))?;
    // The inner shell becomes the rank when its input ends. The outer one has ended then.
    let inner = format!("cat; SLURM_TASK_PID={task} exec \"$0\"");
    let outer = "exec 3<&0; /bin/sh -c \"$1\" \"$0\" <&3 3<&- &";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", outer]).arg(std::env::current_exe()?).arg(inner).env_clear();
    command.env(BODY, "started by others").env(PARAMETERS, "");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
    command.env("PMI_FD", "99").env("PMI_RANK", "1").env("PMI_SIZE", "2");
    command.envs([("SLURM_PROCID", "1"), ("SLURM_NODEID", "1"), ("SLURM_LOCALID", "0")]);
    command.envs([("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_STEP_NODELIST", "a,b")]);
    command.envs([("SLURM_STEP_TASKS_PER_NODE", "1(x2)"), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "3")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut starter = command.spawn()?;
    let begin = starter.stdin.take();
    starter.wait()?;
    drop(begin);
    let mut said = String::new();
    starter.stderr.take().expect("stderr is piped").read_to_string(&mut said)?;
    starter.stdout.take().expect("stdout is piped").read_to_string(&mut said)?;
    Ok((said, std::fs::read_to_string(&cancelled).unwrap_or_default()))
}

fn lose_the_manager(victim: u32, how: &str) -> Result<(), Failed> {
    let mut job = Proxied::start(victim, how)?;
    for rank in 0..RANKS {
        job.await_lines(rank, &["at work"])?;
    }
    let (victim, other) = (victim as usize, 1 - victim as usize);
    let said = job.kill(victim)?;
    if !said.contains("its process manager's process on this host is gone") {
        return Err(format!("the rank of the killed one says `{said}`").into());
    }
    let heard = format!("failed: rank {victim} (node {victim}) {LOST}");
    // Where the coordinator lives on it says so to people.
    let told = format!("{LOST}; ending the job");
    let (first, all) = ([heard.as_str()], [heard.as_str(), &told]);
    job.await_lines(other, if victim == 0 { &first } else { &all })?;
    job.kill(other)?;
    for manager in job.managers.drain(..) {
        manager.join().expect("a manager does not panic");
    }
    let left = outside::processes_with(&format!("{MARK}={}", job.folder.path().display()));
    if left.is_empty() { Ok(()) } else { Err(format!("processes {left:?} are left").into()) }
}
