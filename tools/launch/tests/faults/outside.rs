//! A job seen from outside: how it is started, what it says, and what it leaves behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use libtest_mimic::Failed;

use crate::{BODY, PARAMETERS};

/// After a death ranks have as long as they need to say what they know of it.
pub const NO_HURRY: (&str, &str) = ("LONGARM_REPORT_MS", "600000");
/// Ends a job that hangs.
const SAFETY_NET_S: &str = "120";
/// Tells the processes of one job from all others.
const MARK: &str = "LONGARM_TEST_MARK";

/// A job that runs.
pub struct Job {
    launcher: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    heard: String,
    heard_errors: String,
    mark: String,
    scratch: tempfile::TempDir,
    named_before: Vec<String>,
}

/// A job that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Job {
    /// Starts this program as the ranks of a job that play `body`.
    pub fn start(layout: (u32, u32), body: &str, parameters: &str, variables: &[(&str, &str)]) -> Result<Job, Failed> {
        let scratch = tempfile::tempdir()?;
        let mark = scratch.path().display().to_string();
        let (ranks, nodes) = (layout.0.to_string(), layout.1.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
        command.args(["run", "-n", &ranks, "--nodes", &nodes, "--timeout", SAFETY_NET_S, "--"]);
        command.arg(std::env::current_exe()?).env(BODY, body).env(PARAMETERS, parameters);
        command.env(MARK, &mark).env("TMPDIR", scratch.path()).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let named_before = named_memory();
        let mut launcher = command.spawn()?;
        let stdout = BufReader::new(launcher.stdout.take().expect("stdout is piped"));
        let stderr = BufReader::new(launcher.stderr.take().expect("stderr is piped"));
        let (heard, heard_errors) = (String::new(), String::new());
        Ok(Job { launcher, stdout, stderr, heard, heard_errors, mark, scratch, named_before })
    }

    /// The next line of output, without its end.
    pub fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(format!("the job ended early, after saying:\n{}", self.heard).into());
        }
        self.heard.push_str(&line);
        Ok(line.trim_end().to_owned())
    }

    /// The next line on stderr, without its end.
    pub fn error_line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        if self.stderr.read_line(&mut line)? == 0 {
            return Err(format!("the job ended early, after saying:\n{}", self.heard_errors).into());
        }
        self.heard_errors.push_str(&line);
        Ok(line.trim_end().to_owned())
    }

    /// The launcher's process.
    pub fn launcher(&self) -> u32 {
        self.launcher.id()
    }

    /// Ends the job from outside, once so many lines have been heard that are like this.
    pub fn end_after(mut self, lines: usize, is_like: impl Fn(&str) -> bool) -> Result<Ended, Failed> {
        let mut heard = 0;
        while heard < lines {
            heard += usize::from(is_like(&self.line()?));
        }
        self.interrupt()
    }

    /// Ends the job from outside, as the user would.
    pub fn interrupt(self) -> Result<Ended, Failed> {
        let launcher = rustix::process::Pid::from_child(&self.launcher);
        rustix::process::kill_process(launcher, rustix::process::Signal::TERM)?;
        self.end()
    }

    /// Lets rank 0 read a line.
    pub fn say(&mut self, line: &str) -> Result<(), Failed> {
        let stdin = self.launcher.stdin.as_mut().expect("stdin is piped");
        Ok(writeln!(stdin, "{line}")?)
    }

    /// Waits for the end, and looks at what is left.
    pub fn end(mut self) -> Result<Ended, Failed> {
        let (mut errors, mut stderr) = (self.stderr, self.heard_errors);
        let reader = std::thread::spawn(move || errors.read_to_string(&mut stderr).map(|_| stderr));
        let mut stdout = self.heard;
        self.stdout.read_to_string(&mut stdout)?;
        let stderr = reader.join().expect("reading does not panic")?;
        let status = self.launcher.wait()?;
        if let Some(signal) = status.signal() {
            return Err(format!("the launcher was killed by signal {signal}").into());
        }
        let status = status.code().expect("it was not killed");
        let left = processes_with(&format!("{MARK}={}", self.mark));
        if !left.is_empty() {
            return Err(format!("processes {left:?} are left").into());
        }
        let named = named_memory();
        if let Some(new) = named.iter().find(|name| !self.named_before.contains(name)) {
            return Err(format!("{new} is left").into());
        }
        if let Some(file) = std::fs::read_dir(self.scratch.path())?.next() {
            return Err(format!("{} is left", file?.path().display()).into());
        }
        Ok(Ended { status, stdout, stderr })
    }
}

/// What the `longarm` command prints when it succeeds; what it complains of is the failure.
pub fn longarm(arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_longarm")).args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Things with our name in the two places where shared memory and sockets are often left behind.
fn named_memory() -> Vec<String> {
    let entries = ["/dev/shm", "/tmp"].into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let names = entries.flatten().map(|entry| entry.path().display().to_string());
    names.filter(|name| name.contains("longarm")).collect()
}

/// Processes that have this variable. Zombies have none.
pub fn processes_with(variable: &str) -> Vec<String> {
    let has = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(has).collect()
}

impl Ended {
    /// Fails unless the launcher exited with this status.
    pub fn expect_status(&self, status: i32) -> Result<(), Failed> {
        if self.status == status {
            return Ok(());
        }
        Err(format!("the status is {}, not {status}:\n{}\n{}", self.status, self.stdout, self.stderr).into())
    }

    /// Fails unless this was said on stderr.
    pub fn expect_error(&self, part: &str) -> Result<(), Failed> {
        if self.stderr.contains(part) {
            return Ok(());
        }
        Err(format!("`{part}` is not said:\n{}\n{}", self.stdout, self.stderr).into())
    }

    /// Fails unless a line of the output begins and goes on like this.
    pub fn expect_line(&self, start: &str, part: &str) -> Result<(), Failed> {
        let lines: Vec<&str> = self.stdout.lines().filter(|line| line.starts_with(start)).collect();
        if lines.iter().any(|line| line.contains(part)) {
            return Ok(());
        }
        let (stdout, stderr) = (&self.stdout, &self.stderr);
        Err(format!("no line `{start} ..` has `{part}`, but {lines:?}; all of it:\n{stdout}\n{stderr}").into())
    }
}
