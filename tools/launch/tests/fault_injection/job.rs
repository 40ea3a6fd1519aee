//! A real job, seen and met by faults from outside: `longarm run` with this program as its ranks, a proxy before every
//! server, and a look at what is left when it is over.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::control::{self, GO_BETWEEN};
use super::proxy::{Decide, Proxy};
use super::work::{Orders, Outcome};

/// What the ranks of a job are to do.
pub const ORDERS: &str = "LONGARM_TEST_ORDERS";
/// Tells the processes of one job from all others.
const MARK: &str = "LONGARM_TEST_MARK";
/// After a death ranks have as long as they need to say what they know of it.
pub fn no_hurry() -> (&'static str, String) {
    ("LONGARM_REPORT_MS", "600000".to_owned())
}
/// The last words of a rank.
const ENDS: [&str; 3] = [" says: ", " is right: ", "no world: "];
/// A job that has not ended after this hangs. No job takes a tenth of it.
const SAFETY_NET: Duration = Duration::from_secs(100);
/// How long the system may take to bury processes whose launcher was killed.
const BURIAL: Duration = Duration::from_secs(20);

/// How a job is started.
#[derive(Clone)]
pub struct Plan {
    pub ranks: u32,
    pub nodes: u32,
    pub orders: Orders,
    pub variables: Vec<(&'static str, String)>,
    /// What the proxies do; without it there is none.
    pub decide: Option<Decide>,
    /// What stands before the program in the command.
    pub wrapper: Vec<String>,
}

/// What is known of a job's inside.
#[derive(Default)]
struct Inside {
    job: Option<u64>,
    /// The ranks' processes, and what tells their end.
    processes: Vec<(u32, Pid, OwnedFd)>,
    proxies: Vec<Proxy>,
}

struct Hears {
    inside: Mutex<Inside>,
    changed: Condvar,
    decide: Option<Decide>,
    faults: Arc<AtomicU64>,
}

/// What a job says, as it says it.
pub enum Said {
    Out(String),
    Error(String),
}

/// A job that runs.
pub struct Job {
    launcher: Child,
    ranks: u32,
    hears: Arc<Hears>,
    said: Receiver<Said>,
    scratch: tempfile::TempDir,
    between: tempfile::TempDir,
    stdout: String,
    stderr: String,
    since: Instant,
}

/// A job that has ended, and left nothing.
#[derive(Debug)]
pub struct Ended {
    /// As a shell would show it: 128 and the signal for a launcher that was killed.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
    pub faults: u64,
}

impl control::Listener for Hears {
    fn started(&self, job: u64, rank: u32, pid: u32) {
        let mut inside = self.lock();
        inside.job = Some(job);
        let pid = Pid::from_raw(pid as i32).expect("a process has a number");
        // It may have been killed meanwhile.
        if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
            inside.processes.push((rank, pid, pidfd));
        }
        self.changed.notify_all();
    }

    fn published(&self, node: u32, address: SocketAddr) -> SocketAddr {
        let mut inside = self.lock();
        let Some(decide) = &self.decide else { return address };
        let proxy = Proxy::open(node, address, Arc::clone(decide), Arc::clone(&self.faults));
        let proxy = proxy.expect("there is a port left");
        let instead = proxy.address;
        inside.proxies.push(proxy);
        instead
    }
}

impl Hears {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn pass_lines(from: impl Read + Send + 'static, to: Sender<Said>, make: fn(String) -> Said) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(make(line)).is_err() {
                return;
            }
        }
    });
}

impl Job {
    pub fn start(plan: &Plan) -> Outcome<Job> {
        let scratch = tempfile::tempdir()?;
        let mark = scratch.path().display().to_string();
        let between = tempfile::tempdir()?;
        let name = between.path().join("ranks");
        let listener = UnixListener::bind(&name)?;
        let hears = Arc::new(Hears {
            inside: Mutex::default(),
            changed: Condvar::new(),
            decide: plan.decide.clone(),
            faults: Arc::new(AtomicU64::new(0)),
        });
        let (ranks, nodes) = (plan.ranks.to_string(), plan.nodes.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
        command.args(["run", "-n", &ranks, "--nodes", &nodes, "--"]).args(&plan.wrapper);
        command.arg(std::env::current_exe()?).env(ORDERS, plan.orders.to_words()).env(GO_BETWEEN, &name);
        command
            .env(MARK, &mark)
            .env("TMPDIR", scratch.path())
            .envs(plan.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn()?;
        let (sender, said) = channel();
        pass_lines(launcher.stdout.take().expect("stdout is piped"), sender.clone(), Said::Out);
        pass_lines(launcher.stderr.take().expect("stderr is piped"), sender, Said::Error);
        let listening: Arc<dyn control::Listener> = Arc::clone(&hears) as _;
        std::thread::spawn(move || control::serve(&listener, &listening));
        let (stdout, stderr) = (String::new(), String::new());
        let (ranks, since) = (plan.ranks, Instant::now());
        Ok(Job { launcher, ranks, hears, said, scratch, between, stdout, stderr, since })
    }

    /// The next line of either output. `None`: both are closed.
    pub fn next(&mut self) -> Outcome<Option<Said>> {
        let left = SAFETY_NET.saturating_sub(self.since.elapsed());
        match self.said.recv_timeout(left) {
            Ok(said) => {
                let (to, line) = match &said {
                    Said::Out(line) => (&mut self.stdout, line),
                    Said::Error(line) => (&mut self.stderr, line),
                };
                to.push_str(line);
                to.push('\n');
                Ok(Some(said))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.hangs("it makes no end").into()),
        }
    }

    /// Reads until a rank says this. `None`: it never did.
    pub fn until(&mut self, line: &str) -> Outcome<Option<Instant>> {
        while let Some(said) = self.next()? {
            if matches!(&said, Said::Out(found) if found == line) {
                return Ok(Some(Instant::now()));
            }
        }
        Ok(None)
    }

    pub fn launcher(&self) -> Pid {
        Pid::from_child(&self.launcher)
    }

    /// The process of a rank, as soon as it is known. `None`: it has ended before.
    pub fn process(&self, rank: u32) -> Option<Pid> {
        let inside = self.hears.lock();
        let find = |inside: &Inside| inside.processes.iter().find(|(other, ..)| *other == rank).map(|(_, pid, _)| *pid);
        let waiting = self.hears.changed.wait_timeout_while(inside, SAFETY_NET, |inside| find(inside).is_none());
        let (inside, _) = waiting.unwrap_or_else(std::sync::PoisonError::into_inner);
        find(&inside)
    }

    /// What the job has said until now.
    pub fn heard(&self) -> &str {
        &self.stdout
    }

    /// The same where a rank may be killed: the job ends as soon as each of the others has said what it knows of it. With
    /// [`no_hurry`] they have the time.
    pub fn end_when_others_have_spoken(mut self, victim: u32) -> Outcome<Ended> {
        let victims = format!("rank {victim} ");
        let is_last = |line: &str| !line.starts_with(&victims) && ENDS.iter().any(|words| line.contains(words));
        let (mut is_told, mut spoken) = (false, self.stdout.lines().filter(|line| is_last(line)).count());
        while let Some(said) = self.next()? {
            match said {
                Said::Error(line) => {
                    is_told |= line.starts_with("longarm: rank ") && line.contains("was killed by signal")
                }
                Said::Out(line) => spoken += usize::from(is_last(&line)),
            }
            if is_told && spoken >= self.ranks as usize - 1 {
                rustix::process::kill_process(self.launcher(), Signal::TERM)?;
                break;
            }
        }
        self.end()
    }

    /// Waits for the end, and looks at what is left.
    pub fn end(mut self) -> Outcome<Ended> {
        while self.next()?.is_some() {}
        // Its outputs are closed, so it has no reason to stay.
        let launcher = pidfd_open(self.launcher(), PidfdFlags::empty())?;
        if !ends_within(&launcher, SAFETY_NET) {
            return Err(self.hangs("the launcher has closed its outputs, and stays").into());
        }
        let status = self.launcher.wait()?;
        let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        let processes = std::mem::take(&mut self.hears.lock().processes);
        for (rank, pid, pidfd) in &processes {
            if !ends_within(pidfd, BURIAL) {
                return Err(self.hangs(&format!("rank {rank}, process {pid}, is left")).into());
            }
        }
        self.stop_listening();
        self.look_for_leftovers()?;
        let faults = self.hears.faults.load(Ordering::Acquire);
        Ok(Ended { status, stdout: self.stdout, stderr: self.stderr, faults })
    }

    fn stop_listening(&self) {
        for proxy in &self.hears.lock().proxies {
            proxy.close();
        }
        // Whoever listens for ranks hears nothing, and listens no more.
        drop(UnixStream::connect(self.between.path().join("ranks")));
    }

    fn look_for_leftovers(&self) -> Outcome<()> {
        let inside = self.hears.lock();
        let mark = format!("{MARK}={}", self.scratch.path().display());
        // The launcher's guardian ends after the ranks, if the launcher was killed.
        let left: Vec<String> = processes().filter(|pid| has_variable(pid, &mark) && !is_buried(pid)).collect();
        if !left.is_empty() {
            return Err(format!(
                "processes {left:?} are left:\n{}",
                left.iter().map(|pid| look(pid)).collect::<String>()
            )
            .into());
        }
        if let Some(file) = std::fs::read_dir(self.scratch.path())?.next() {
            return Err(format!("{} is left", file?.path().display()).into());
        }
        let Some(job) = inside.job else { return Ok(()) };
        let job = format!("{job:016x}");
        for folder in ["/dev/shm", "/tmp"] {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            if let Some(name) =
                entries.map(|entry| entry.file_name()).find(|name| name.to_string_lossy().contains(&job))
            {
                return Err(format!("{folder}/{} is left", name.display()).into());
            }
        }
        let doors = std::fs::read_to_string("/proc/net/unix")?;
        if let Some(door) = doors.lines().find(|line| line.contains(&job)) {
            return Err(format!("a socket is left: {door}").into());
        }
        memory_left()
    }

    /// Ends everything, and says what it was doing.
    fn hangs(&mut self, what: &str) -> String {
        let mut report = format!("HANG: {what}\n");
        let mark = format!("{MARK}={}", self.scratch.path().display());
        let all: Vec<String> = processes().filter(|pid| has_variable(pid, &mark)).collect();
        all.iter().for_each(|pid| report.push_str(&look(pid)));
        let launcher = self.launcher.id().to_string();
        if let Ok(standing) = Command::new(env!("CARGO_BIN_EXE_longarm")).args(["ps", &launcher]).output() {
            report.push_str(&String::from_utf8_lossy(&standing.stdout));
        }
        let _ = write!(report, "stdout:\n{}stderr:\n{}", self.stdout, self.stderr);
        let numbers = all.iter().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw));
        for pid in numbers {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        self.stop_listening();
        report
    }
}

/// Whether a process ends in time.
fn ends_within(pidfd: &OwnedFd, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], left.as_ref()) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether a process ends within the time that the system may take for it.
fn is_buried(pid: &str) -> bool {
    let pidfd = pid.parse().ok().and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    match pidfd {
        Some(Ok(pidfd)) => ends_within(&pidfd, BURIAL),
        _ => true,
    }
}

fn processes() -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Zombies have none.
fn has_variable(pid: &str, variable: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
}

/// What the threads of a process do.
fn look(pid: &str) -> String {
    let mut report = String::new();
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let variable = |name: &str| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let found = environment.split(|byte| *byte == 0).find_map(|found| found.strip_prefix(name.as_bytes()));
        found.map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    let _ = writeln!(report, "process {pid}, rank {}", variable("LONGARM_RANK="));
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let thread = thread.path().display().to_string();
        let state = read(format!("{thread}/status"));
        let state = state.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default().trim().to_owned();
        let (name, place) = (read(format!("{thread}/comm")), read(format!("{thread}/wchan")));
        let _ = writeln!(report, "  {name}: {state}, {place}, system call {}", read(format!("{thread}/syscall")));
    }
    report
}

/// Memory that this process was handed, and kept: it has no name, so no other one can have it when all ranks are gone.
fn memory_left() -> Outcome<()> {
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("/memfd:longarm") {
            return Err(format!("{} is left", target.display()).into());
        }
    }
    Ok(())
}
