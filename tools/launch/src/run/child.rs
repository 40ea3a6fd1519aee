//! Starting processes, and watching their end: the only place of this crate with unsafe code.
//!
//! A rank gets a process group of its own, a pipe for each output, and one end of the control socket. It dies with the
//! launcher. Between fork and exec it tells the guardian its number, so that no moment is left in which a killed
//! launcher leaves an unknown process behind.
//!
//! Everything that this crate opens is closed on exec. The one descriptor that a rank inherits loses that mark after
//! the fork, inside the child, so that no other rank can get it.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use longarm_control::messages::CONTROL_FD_VARIABLE;
use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use rustix::thread::CpuSet;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::guardian;

/// What all ranks of a job have in common.
#[derive(Debug)]
pub struct Template<'a> {
    /// The file to execute.
    pub path: &'a Path,
    /// The name of the program as the user wrote it, then its arguments.
    pub command: &'a [OsString],
    /// Number of ranks.
    pub ranks: u32,
    /// The pipe to the guardian.
    pub guardian: Arc<OwnedFd>,
    /// The limit on open files that ranks get back, where the launcher changed its own.
    pub descriptors: Option<Rlimit>,
    /// Whether a debugger may hold ranks.
    pub debugger: bool,
    /// All of the environment, where it is not that of this process.
    pub environment: Option<&'a [(OsString, OsString)]>,
}

/// What is particular to one rank.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// The processor that it is bound to.
    pub processor: Option<u32>,
    /// Whether it reads from a pipe that the launcher fills. Otherwise it reads nothing.
    pub reads_stdin: bool,
}

/// A running rank.
#[derive(Debug)]
pub struct Started {
    /// The process, with its pipes. It stays a zombie until the job ends, so that nobody else gets its number.
    pub process: Child,
    /// Becomes readable when the process ends.
    pub pidfd: AsyncFd<OwnedFd>,
    /// The launcher's end of the control socket.
    pub control: UnixStream,
}

/// Starts one rank.
///
/// # Errors
/// What the system says when it has no process or descriptor left, or cannot execute the file.
pub fn start_rank(template: &Template<'_>, place: Placement) -> io::Result<Started> {
    let (control, inherited) = UnixStream::pair()?;
    control.set_nonblocking(true)?;
    let mut command = Command::new(template.path);
    if let Some(environment) = template.environment {
        command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    }
    command
        .arg0(&template.command[0])
        .args(&template.command[1..])
        .env(CONTROL_FD_VARIABLE, inherited.as_raw_fd().to_string())
        .env("LONGARM_RANK", place.rank.to_string())
        .env("LONGARM_SIZE", template.ranks.to_string())
        .env("LONGARM_NODE", place.node.to_string())
        .stdin(if place.reads_stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if template.debugger {
        command.env("LONGARM_DEBUGGER", "yes");
    }
    let launcher = rustix::process::getpid();
    let guardian = Arc::clone(&template.guardian);
    let descriptors = template.descriptors;
    let processors = place.processor.map(only);
    let prepare = move || {
        die_with(launcher, &guardian)?;
        if let Some(processors) = &processors {
            rustix::thread::sched_setaffinity(None, processors)?;
        }
        if let Some(limit) = descriptors {
            rustix::process::setrlimit(Resource::Nofile, limit)?;
        }
        rustix::io::fcntl_setfd(&inherited, FdFlags::empty())?;
        Ok(())
    };
    // SAFETY: `pre_exec` wants a closure that does only what is allowed between fork and exec in a process that may
    // have had other threads. `prepare` makes system calls on values it owns. It allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
    let mut process = command.spawn()?;
    match watch_end(&process) {
        Ok(pidfd) => Ok(Started { process, pidfd, control }),
        Err(error) => {
            end(&mut process, &template.guardian);
            Err(error)
        }
    }
}

/// Starts what leads to an agent on another host, with pipes for all that it reads and writes. It dies with this process, and
/// Ctrl-C does not reach it.
///
/// # Errors
/// What the system says when it has no process or descriptor left, or cannot execute the file.
pub fn start_transport(command: &[String], guardian: &Arc<OwnedFd>) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    let guardian = Arc::clone(guardian);
    let mut transport = Command::new(&command[0]);
    transport.args(&command[1..]);
    transport.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: as in `start_rank`: `die_with` makes system calls on values that the closure owns, and nothing else.
    unsafe { transport.pre_exec(move || die_with(parent, &guardian)) };
    transport.spawn()
}

/// Collects a process if it has ended, and has the guardian forget its number before, which may be anybody's from then on. What is
/// left of its group is killed.
///
/// # Errors
/// When it is no child of this process any more.
pub fn collect(process: &mut Child, guardian: &OwnedFd) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(process);
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    if rustix::process::waitid(WaitId::Pid(pid), ended)?.is_none() {
        return Ok(None);
    }
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    guardian::forget(guardian, pid);
    process.wait().map(Some)
}

/// Kills a process with its group, and collects it.
pub fn end(process: &mut Child, guardian: &OwnedFd) {
    let pid = Pid::from_child(process);
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    // Its number stays taken until it is collected.
    let _ = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let _ = collect(process, guardian);
}

/// Between fork and exec: tells the guardian who this is, and has the system end it with its parent.
fn die_with(parent: Pid, guardian: &OwnedFd) -> io::Result<()> {
    rustix::io::write(guardian, &rustix::process::getpid().as_raw_pid().to_le_bytes())?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above, and then no signal comes.
    if rustix::process::getppid() != Some(parent) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// A descriptor that becomes readable when a child ends.
fn watch_end(process: &Child) -> io::Result<AsyncFd<OwnedFd>> {
    let pidfd = rustix::process::pidfd_open(Pid::from_child(process), PidfdFlags::empty())?;
    // SAFETY: `register_with_interest` wants a descriptor that stays open and the same as long as the result lives.
    // The result owns it, and an `OwnedFd` neither closes nor changes its descriptor before it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// A set of one processor.
fn only(processor: u32) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor as usize);
    set
}

/// Closes the control socket of an outer job, when a rank of that job starts this launcher. Otherwise our ranks would
/// inherit it. Has to run before this process opens anything.
pub fn close_stale_control(variable: Option<&OsStr>) {
    let Some(descriptor) = variable.and_then(OsStr::to_str).and_then(|text| text.parse::<RawFd>().ok()) else { return };
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    let is_socket = link.is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
    if descriptor <= 2 || !is_socket {
        return;
    }
    // SAFETY: `from_raw_fd` wants an open descriptor that nothing else owns. It is open, as its entry in /proc shows,
    // and it came from the outer job: this process has opened nothing yet, so no value owns it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}
