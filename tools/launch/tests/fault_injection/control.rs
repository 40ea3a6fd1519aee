//! Between the ranks of a job and its launcher: passes on what they say, and writes the address of a proxy on the card
//! of every node.
//!
//! Nothing of longarm knows of it. A rank that is to be met by faults starts as this program, tells the trial which descriptor
//! it has inherited from the launcher, and executes itself again with a socket to the trial in its place.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longarm::bootstrap::control::{CONTROL_FD_VARIABLE, FromRank, ToRank};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::work::Outcome;

/// Where a rank tells of its socket to the launcher.
pub const GO_BETWEEN: &str = "LONGARM_TEST_GO_BETWEEN";

/// A rank's side. Does not return: the process goes on as a rank that knows nothing of this.
pub fn go_through(path: &str) -> Outcome<()> {
    let number: i32 = std::env::var(CONTROL_FD_VARIABLE)?.parse()?;
    let mut trial = UnixStream::connect(path)?;
    trial.write_all(&number.to_le_bytes())?;
    rustix::io::fcntl_setfd(&trial, rustix::io::FdFlags::empty())?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env_remove(GO_BETWEEN).env(CONTROL_FD_VARIABLE, trial.as_raw_fd().to_string());
    Err(command.exec().into())
}

/// What the trial hears of the job, and decides.
pub trait Listener: Send + Sync {
    /// A process is this rank. The job's number is part of the names of all that the job makes.
    fn started(&self, job: u64, rank: u32, pid: u32);
    /// A node's server listens at an address: what others are told instead.
    fn published(&self, node: u32, address: SocketAddr) -> SocketAddr;
}

/// Serves all ranks of a job. Ends when somebody calls who says nothing.
pub fn serve(listener: &UnixListener, hears: &Arc<dyn Listener>) {
    for rank in listener.incoming() {
        let Ok(rank) = rank else { return };
        let launcher = match receive(&rank) {
            Ok(launcher) => launcher,
            Err(error) if error.is::<std::io::Error>() => return,
            // A rank that was killed meanwhile.
            Err(_) => continue,
        };
        let (Ok(rank_too), Ok(launcher_too)) = (rank.try_clone(), launcher.try_clone()) else { return };
        let pid = Arc::new(AtomicU32::new(0));
        let (hears_too, pid_too) = (Arc::clone(hears), Arc::clone(&pid));
        std::thread::spawn(move || pass(&rank, launcher, |line| from_rank(line, &*hears_too, &pid_too)));
        let hears_too = Arc::clone(hears);
        std::thread::spawn(move || pass(&launcher_too, rank_too, |line| from_launcher(line, &*hears_too, &pid)));
    }
}

/// The rank's socket to the launcher, which the rank keeps and does not use.
fn receive(mut rank: &UnixStream) -> Outcome<UnixStream> {
    let mut number = [0; 4];
    rank.read_exact(&mut number)?;
    let pid = rustix::net::sockopt::socket_peercred(rank)?.pid;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(UnixStream::from(pidfd_getfd(process, i32::from_le_bytes(number), PidfdGetfdFlags::empty())?))
}

/// Passes on lines until one side is gone, and lets the other one know.
fn pass(from: &UnixStream, mut to: UnixStream, change: impl Fn(&str) -> Option<String>) {
    let mut reader = BufReader::new(from);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let changed = change(&line);
        if to.write_all(changed.as_ref().unwrap_or(&line).as_bytes()).is_err() {
            break;
        }
        line.clear();
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// What the launcher hears instead of a line, if it is to hear something else.
fn from_rank(line: &str, hears: &dyn Listener, own_pid: &AtomicU32) -> Option<String> {
    match serde_json::from_str(line).ok()? {
        FromRank::Join { pid, .. } => own_pid.store(pid, Ordering::Release),
        FromRank::Publish { mut card } => {
            // In a routed job the number of the node stands before it, and the server's own address may stand behind that of its router.
            let (node, addresses) = card.address.rsplit_once('@').unwrap_or(("", &card.address));
            let instead = addresses.split('/').map(|address| {
                let address = address.parse().ok()?;
                Some(hears.published(card.node, address).to_string())
            });
            let instead = instead.collect::<Option<Vec<String>>>()?.join("/");
            card.address = if node.is_empty() { instead } else { format!("{node}@{instead}") };
            let mut line = serde_json::to_string(&FromRank::Publish { card }).ok()?;
            line.push('\n');
            return Some(line);
        }
        _ => {}
    }
    None
}

fn from_launcher(line: &str, hears: &dyn Listener, pid: &AtomicU32) -> Option<String> {
    if let Ok(ToRank::Start(start)) = serde_json::from_str(line) {
        hears.started(start.job, start.rank, pid.load(Ordering::Acquire));
    }
    None
}
