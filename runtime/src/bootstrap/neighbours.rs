//! The processes of the other ranks of this node, watched for their end: for jobs without our launcher.
//!
//! Each rank has a descriptor of each other process, which becomes readable when that process ends, and one thread
//! that sleeps on all of them. So a death is known at once on its node, whatever the job's own launcher does about it.
//! How a process ended is told to its parent only.
//!
//! The process that has started this one is watched too: it is part of the job's launcher. When it is gone nobody ends this rank
//! any more, which may wait for ever for ranks that were ended elsewhere, so it ends itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, Ordering};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};

use super::OnDeath;

/// What is known of how a neighbour has ended.
const HOW: &str = "has ended without finalizing";

/// The processes, not watched yet.
pub(crate) struct Neighbours {
    processes: Vec<(Watched, OwnedFd)>,
    /// Those that were gone already.
    gone: Vec<u32>,
}

/// Whose process it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Rank(u32),
    Starter,
}

/// The thread that watches them.
pub(crate) struct NeighbourWatch {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

struct Stop {
    waker: Waker,
    is_set: AtomicBool,
}

impl Neighbours {
    /// Takes hold of these ranks' processes. One that cannot be watched is left out.
    pub(crate) fn new(ranks: impl Iterator<Item = (u32, u32)>) -> Neighbours {
        let mut neighbours = Neighbours { processes: Vec::new(), gone: Vec::new() };
        for (rank, pid) in ranks {
            let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            match rustix::process::pidfd_open(process, PidfdFlags::empty()) {
                Ok(descriptor) => neighbours.processes.push((Watched::Rank(rank), descriptor)),
                Err(rustix::io::Errno::SRCH) => neighbours.gone.push(rank),
                Err(error) => tracing::warn!(rank, pid, %error, "the end of this rank will not be noticed"),
            }
        }
        neighbours
    }

    /// Takes hold of the process that has started this one, where it can be named.
    pub(crate) fn with_starter(mut self) -> Neighbours {
        let starter = rustix::process::getppid();
        let descriptor = starter.and_then(|starter| rustix::process::pidfd_open(starter, PidfdFlags::empty()).ok());
        self.processes.extend(descriptor.map(|descriptor| (Watched::Starter, descriptor)));
        self
    }

    /// Whether there is nobody to watch.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.gone.is_empty()
    }

    /// From now on `on_death` hears of every end of a rank, and `on_orphaned` of that of whoever started this process.
    pub(crate) fn watch(
        self,
        on_death: OnDeath,
        on_orphaned: impl Fn() + Send + 'static,
    ) -> std::io::Result<NeighbourWatch> {
        let stop = Arc::new(Stop { waker: Waker::new()?, is_set: AtomicBool::new(false) });
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("longarm-deaths".into()).spawn(move || {
            self.gone.iter().for_each(|rank| on_death(*rank, HOW));
            wait_for_ends(self.processes, &stopping, |watched| match watched {
                Watched::Rank(rank) => on_death(rank, HOW),
                Watched::Starter => on_orphaned(),
            });
        })?;
        Ok(NeighbourWatch { stop, thread: Some(thread) })
    }
}

fn wait_for_ends(mut processes: Vec<(Watched, OwnedFd)>, stop: &Stop, on_end: impl Fn(Watched)) {
    while !processes.is_empty() {
        let mut events = vec![PollFd::from_borrowed_fd(stop.waker.descriptor(), PollFlags::IN)];
        events.extend(processes.iter().map(|(_, descriptor)| PollFd::new(descriptor, PollFlags::IN)));
        // An interrupted sleep is a short one.
        let _ = rustix::event::poll(&mut events, None);
        let ready: Vec<bool> = events[1..].iter().map(|event| !event.revents().is_empty()).collect();
        // Looked at after the processes: who has ended because all were leaving ended after this was set.
        if stop.is_set.load(Ordering::Acquire) {
            return;
        }
        let mut ready = ready.into_iter();
        let ended = processes.extract_if(.., |_| ready.next() == Some(true)).collect::<Vec<_>>();
        ended.into_iter().for_each(|(watched, _)| on_end(watched));
    }
}

impl NeighbourWatch {
    /// Ends mean nothing from now on.
    pub(crate) fn end(mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the ranks of this node has panicked");
        }
    }
}

impl Drop for NeighbourWatch {
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
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_ends_is_told_of_and_nobody_after_the_watch_has_ended() {
        let start = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (mut first, mut second) = (start(), start());
        let neighbours = Neighbours::new([(4, first.id()), (7, second.id())].into_iter());
        let (sender, deaths) = mpsc::channel();
        let on_death: OnDeath = Arc::new(move |rank, how| sender.send((rank, how.to_owned())).unwrap());
        let watch = neighbours.with_starter().watch(on_death, || panic!("who has started the tests lives")).unwrap();
        second.kill().unwrap();
        assert_eq!(deaths.recv(), Ok((7, HOW.to_owned())));
        watch.end();
        first.kill().unwrap();
        first.wait().unwrap();
        second.wait().unwrap();
        assert_eq!(deaths.recv(), Err(mpsc::RecvError), "nobody is left who would tell");
    }
}
