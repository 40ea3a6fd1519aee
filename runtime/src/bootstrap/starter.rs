//! The process that has started this one, and the connection to the process manager, watched for their ends: they are part of what has
//! started the job. When they are gone nobody ends this rank any more, which may wait for ever for ranks that were ended elsewhere, so
//! it ends itself. The process is the parent at the first look, at the latest before the ranks meet; a task of Slurm's whose parent
//! is a reaper by then has lost its own before. A script between this process and its manager hides the manager's end, and its
//! connection does not.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use longarm_managers::slurm::Step;
use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};

use super::rendezvous::Found;
use super::way::{NotJoined, Variables};
use super::{own_end, scancel};
use crate::error::InitError;

/// What processes are called that adopt the children of those that have ended. Where there is none of these the first process does.
const REAPERS: [&str; 3] = ["init", "systemd", "slurmd"];

/// Whoever has started this process.
#[derive(Clone)]
enum Starter {
    /// That process, which may have ended since.
    Process(Arc<OwnedFd>),
    /// It had ended before it could be watched.
    Gone,
    /// It cannot be named.
    Unknown,
}

impl Starter {
    /// The parent as it was at the first call. A process that loses its parent gets another one, which has not started it.
    fn of_this_process() -> Starter {
        static FIRST: Mutex<Option<(Pid, Starter)>> = Mutex::new(None);
        let mut first = FIRST.lock();
        match &*first {
            // A child of a fork has another parent.
            Some((process, starter)) if *process == getpid() => starter.clone(),
            _ => first.insert((getpid(), Starter::look())).1.clone(),
        }
    }

    fn look() -> Starter {
        let Some(parent) = getppid() else { return Starter::Unknown };
        match pidfd_open(parent, PidfdFlags::empty()) {
            // The parent ended meanwhile, and the number may name another process now.
            _ if getppid() != Some(parent) => Starter::Gone,
            Ok(_) if is_task_of_slurm() && is_reaper(parent) => Starter::Gone,
            Ok(process) => Starter::Process(Arc::new(process)),
            Err(_) => Starter::Unknown,
        }
    }
}

/// Whether Slurm itself, and no script in between, has started this process.
fn is_task_of_slurm() -> bool {
    let task = std::env::var("SLURM_TASK_PID").ok().and_then(|task| task.trim().parse().ok());
    task == Some(getpid().as_raw_nonzero().get())
}

/// Whether a process has started none of Slurm's tasks, and may have adopted one.
fn is_reaper(process: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.as_raw_nonzero()));
    process == Pid::INIT || name.is_ok_and(|name| REAPERS.contains(&name.trim_end()))
}

/// While a process meets its manager it watches for the end of the manager's process that has started it: whoever is left of the manager may
/// answer nothing any more, and the ranks that were ended elsewhere never come.
///
/// Where Slurm itself has started this process, and no script in between, the step is cancelled then, and where other ranks are missing: `srun`
/// waits for ever for the tasks of a host whose own process of Slurm's is gone.
///
/// A program alone may be one that a shell has started, which goes on when the shell ends.
///
/// # Errors
///
/// Those of `meet`.
pub(crate) fn watching_starter(
    variables: Variables<'_>,
    meet: impl FnOnce() -> Result<Found, NotJoined>,
) -> Result<Found, NotJoined> {
    let sizes = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"];
    if sizes.into_iter().find_map(variables).is_some_and(|size| size.trim() == "1") {
        return meet();
    }
    let step = step_to_cancel(variables);
    let orphaned_step = step.clone();
    let on_orphaned = move || {
        own_end::say_last(
            "this process ends: its process manager's process on this host went before the ranks had met",
        );
        if let Some(step) = &orphaned_step {
            scancel::cancel(step);
        }
        own_end::end_now();
    };
    let failed = |error: &std::io::Error| tracing::warn!(%error, "the end of whoever started this rank is not noticed");
    let watch = StarterWatch::begin(None, on_orphaned).inspect_err(failed).ok().flatten();
    let met = meet();
    if let Some(watch) = watch {
        watch.end();
    }
    if let (Some(step), Err(NotJoined::Failed(error))) = (&step, &met)
        && matches!(error, InitError::NotTogether { .. } | InitError::Exchange { .. })
        && scancel::cancels_for_all(step)
    {
        // This process is ended with the others, and may not come to say it.
        own_end::say_last(&format!("the step is cancelled, because its ranks do not come together: {error}"));
        scancel::cancel(step);
    }
    met
}

/// The step of this process, if Slurm has started it and it is the first task on its host: of each host one is enough that cancels.
fn step_to_cancel(variables: Variables<'_>) -> Option<Step> {
    let step = Step::from_environment(&|name| variables(name)).ok().flatten();
    step.filter(|step| is_task_of_slurm() && step.local_id == 0)
}

/// The thread that watches it.
pub(crate) struct StarterWatch {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

struct Stop {
    waker: Waker,
    is_set: AtomicBool,
}

impl StarterWatch {
    /// Calls `on_end` once, on the watch's thread, when the process that has started this one or the connection ends. If that process is gone
    /// already, calls it at once on the caller's thread. `None`: there is nothing to watch, or `on_end` was called already.
    pub(crate) fn begin(
        connection: Option<OwnedFd>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Option<StarterWatch>> {
        let process = match Starter::of_this_process() {
            Starter::Process(process) => Some((process, PollFlags::IN)),
            Starter::Unknown => None,
            Starter::Gone => {
                on_end();
                return Ok(None);
            }
        };
        // What comes over it is its reader's.
        let connection = connection.map(|connection| (Arc::new(connection), PollFlags::RDHUP));
        let watched: Vec<_> = process.into_iter().chain(connection).collect();
        if watched.is_empty() { Ok(None) } else { StarterWatch::of(watched, on_end).map(Some) }
    }

    fn of(
        watched: Vec<(Arc<OwnedFd>, PollFlags)>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<StarterWatch> {
        let stop = Arc::new(Stop { waker: Waker::new()?, is_set: AtomicBool::new(false) });
        let stopping = Arc::clone(&stop);
        let watching = move || {
            if wait_for_end(&watched, &stopping) {
                on_end();
            }
        };
        let thread = std::thread::Builder::new().name("longarm-deaths".into()).spawn(watching)?;
        Ok(StarterWatch { stop, thread: Some(thread) })
    }

    /// Its end means nothing from now on.
    pub(crate) fn end(mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches whoever started this rank has panicked");
        }
    }
}

/// Whether one of them has ended, and not the watch.
fn wait_for_end(watched: &[(Arc<OwnedFd>, PollFlags)], stop: &Stop) -> bool {
    loop {
        let mut events = vec![PollFd::from_borrowed_fd(stop.waker.descriptor(), PollFlags::IN)];
        events.extend(watched.iter().map(|(descriptor, end)| PollFd::new(descriptor, *end)));
        // An interrupted sleep is a short one.
        let _ = rustix::event::poll(&mut events, None);
        let has_ended = events[1..].iter().any(|event| !event.revents().is_empty());
        if stop.is_set.load(Ordering::Acquire) {
            return false;
        }
        if has_ended {
            return true;
        }
    }
}

impl Drop for StarterWatch {
    fn drop(&mut self) {
        self.stop.set();
    }
}

impl Stop {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::process::Pid;

    use super::*;

    #[test]
    fn an_end_is_told_of_and_none_after_the_watch_has_ended() {
        let start = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (mut first, mut second) = (start(), start());
        let (sender, ends) = mpsc::channel();
        let watch = |child: &std::process::Child, name: &'static str| {
            let process = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
            let sender = sender.clone();
            StarterWatch::of(vec![(Arc::new(process), PollFlags::IN)], move || sender.send(name).unwrap()).unwrap()
        };
        let (ended, told) = (watch(&first, "first"), watch(&second, "second"));
        second.kill().unwrap();
        assert_eq!(ends.recv(), Ok("second"));
        ended.end();
        first.kill().unwrap();
        first.wait().unwrap();
        second.wait().unwrap();
        told.end();
        drop(sender);
        assert_eq!(ends.recv(), Err(mpsc::RecvError), "nobody is left who would tell");
    }

    #[test]
    fn the_end_of_a_connection_is_told_of_and_what_comes_over_it_before_is_not() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, ends) = mpsc::channel();
        let watched = vec![(Arc::new(OwnedFd::from(ours.try_clone().unwrap())), PollFlags::RDHUP)];
        let watch = StarterWatch::of(watched, move || sender.send(()).unwrap()).unwrap();
        theirs.write_all(b"cmd=barrier_out\n").unwrap();
        assert_eq!(ends.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        drop(theirs);
        assert_eq!(ends.recv(), Ok(()));
        watch.end();
    }
}
