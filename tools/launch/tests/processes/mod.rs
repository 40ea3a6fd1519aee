//! What the tests of the launcher use: what it prints, and processes that are to be gone.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

/// How a command ended, and what it printed.
pub fn end(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the launcher starts");
    assert_eq!(status.signal(), None, "the launcher itself must not be killed");
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// What was printed.
pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("these programs write text")
}

/// Reads `count` lines of the launcher's stdout.
pub fn read_lines(child: &mut Child, count: usize) -> Vec<String> {
    let stdout = BufReader::new(child.stdout.as_mut().expect("stdout is piped"));
    stdout.lines().take(count).map(|line| line.expect("the output is text")).collect()
}

/// Returns when a process is gone. Zombies count as gone: they wait only for somebody to read their status.
pub fn wait_until_gone(pid: &str) {
    let Ok(process) = rustix::process::pidfd_open(number(pid), PidfdFlags::empty()) else { return };
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    while rustix::event::poll(&mut ended, None) == Err(rustix::io::Errno::INTR) {}
}

/// Kills a process that runs.
pub fn kill(pid: &str) {
    signal(pid, Signal::KILL);
}

/// Sends a signal to a process that runs.
pub fn signal(pid: &str, signal: Signal) {
    rustix::process::kill_process(number(pid), signal).expect("it runs");
}

fn number(pid: &str) -> Pid {
    Pid::from_raw(pid.parse().expect("a number")).expect("not 0")
}

/// All processes below one, with what they are called.
pub fn family_of(root: u32) -> Vec<(String, String)> {
    let entries = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let pids: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let parents: Vec<(String, String)> = pids
        .into_iter()
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.to_owned();
            Some((pid, parent))
        })
        .collect();
    let mut family = vec![root.to_string()];
    let mut next = 0;
    while next < family.len() {
        let parent = family[next].clone();
        family.extend(parents.iter().filter(|(_, own)| *own == parent).map(|(pid, _)| pid.clone()));
        next += 1;
    }
    let name = |pid: &String| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let name = |pid: &String| String::from_utf8_lossy(&name(pid)).replace('\0', " ");
    family.into_iter().map(|pid| (pid.clone(), name(&pid))).collect()
}
