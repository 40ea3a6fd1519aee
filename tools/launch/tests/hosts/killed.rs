//! Processes of a job on several hosts that are killed: nothing is left, wherever it was.
//!
//! Every process of these jobs has one end of a pipe open. Whoever reads from it hears when the last of them is gone.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

use crate::processes::{family_of, kill, read_lines};
use crate::{SIMPLE, longarm, transport};

/// A job of which every process is watched.
struct Job {
    launcher: Child,
    alive: File,
    _folder: TempDir,
}

impl Job {
    fn start(command: &Command) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut watched = Command::new("/bin/sh");
        watched
            .args(["-c", "exec 9>\"$0\"; exec \"$@\""])
            .arg(&fifo)
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => watched.env(name, value),
                None => watched.env_remove(name),
            };
        }
        watched.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let launcher = watched.spawn().expect("a shell starts");
        // Comes when the launcher is about to.
        Job { launcher, alive: File::open(&fifo).unwrap(), _folder: folder }
    }

    /// Waits for the end of the launcher, and of all else that it, an agent or a rank has started.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.launcher.wait().unwrap();
        assert_eq!(self.alive.read_to_end(&mut Vec::new()).unwrap(), 0);
        let mut stderr = String::new();
        self.launcher.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (status, stderr)
    }

    /// A process of the job in whose command line this stands.
    fn find(&self, part: &str) -> String {
        loop {
            // The launcher itself has the words on its command line.
            let family = family_of(self.launcher.id());
            if let Some((pid, _)) = family.into_iter().skip(1).find(|(_, name)| name.contains(part)) {
                return pid;
            }
        }
    }
}

/// Which process of a job is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Launcher,
    Transport,
    Agent,
    Both,
}

/// Kills it at once, when an agent is there, or when the ranks run. Nothing may be left, wherever it was.
fn leave_nothing(victim: Victim) {
    for stage in 0..3 {
        let mut command = longarm("run -n 4 --hosts a,b", &transport());
        let mut job = Job::start(command.args(["--", "/bin/sh", "-c", "sleep 1000 & echo $$; wait"]));
        if stage == 2 {
            read_lines(&mut job.launcher, 4);
        }
        let launcher = job.launcher.id().to_string();
        match (victim, stage) {
            (Victim::Launcher, 0) => {}
            (Victim::Launcher, _) => drop(job.find(" agent ")),
            (Victim::Transport, _) => kill(&job.find("the_program_that_plays_a_transport")),
            (Victim::Agent | Victim::Both, _) => kill(&job.find("longarm agent ")),
        }
        if matches!(victim, Victim::Launcher | Victim::Both) {
            kill(&launcher);
        }
        let (status, stderr) = job.end();
        assert!(!status.success(), "{victim:?} at stage {stage}");
        if matches!(victim, Victim::Transport | Victim::Agent) {
            assert!(stderr.contains("longarm: host "), "{stderr}");
        }
    }
}

/// A job on so many hosts that some agents are started by others, and a line of each rank: its host, and the process of its agent.
fn start_tree() -> (Job, Vec<String>) {
    let hosts: Vec<String> = (0..33).map(|host| format!("h{host}")).collect();
    let mut command = longarm(&format!("run --hosts {}", hosts.join(",")), SIMPLE);
    let script = "sleep 1000 & echo $HOSTNAME $PPID; wait";
    let mut job = Job::start(command.args(["--", "/bin/sh", "-c", script]));
    let lines = read_lines(&mut job.launcher, hosts.len());
    (job, lines)
}

/// Kills the agent of one host of a tree. Gives what is said of it.
fn lose_agent_of(host: &str) -> String {
    let (job, lines) = start_tree();
    let agent = lines.iter().find_map(|line| line.strip_prefix(&format!("{host} "))).unwrap();
    kill(agent);
    let (status, stderr) = job.end();
    assert_eq!(status.code(), Some(1));
    assert!(stderr.ends_with("; ending the job\n") && stderr.lines().count() == 1, "{stderr}");
    stderr
}

#[test]
fn a_killed_agent_in_the_middle_of_the_tree_takes_its_hosts_along_and_leaves_no_process() {
    let stderr = lose_agent_of("h7");
    let named = "longarm: host h7 (ranks 7-13), and through it hosts h8, h9, h10, h11, h12, h13 was lost: ";
    assert!(stderr.starts_with(named), "{stderr}");
}

#[test]
fn a_killed_launcher_leaves_no_process_on_hosts_that_others_have_started() {
    let (job, _) = start_tree();
    kill(&job.launcher.id().to_string());
    assert_eq!(job.end().0.signal(), Some(9));
}

#[test]
fn a_killed_agent_at_the_end_of_the_tree_is_named_by_the_launcher_and_leaves_no_process() {
    let stderr = lose_agent_of("h8");
    assert!(stderr.starts_with("longarm: host h8 (rank 8) was lost: "), "{stderr}");
}

#[test]
fn a_killed_launcher_leaves_no_process_on_any_host() {
    leave_nothing(Victim::Launcher);
}

#[test]
fn a_killed_transport_leaves_no_process_on_any_host() {
    leave_nothing(Victim::Transport);
}

#[test]
fn a_killed_agent_leaves_no_process_on_any_host() {
    leave_nothing(Victim::Agent);
}

#[test]
fn an_agent_and_its_launcher_killed_together_leave_no_process_on_any_host() {
    leave_nothing(Victim::Both);
}
