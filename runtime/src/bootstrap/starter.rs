//! The process that has started this one, and the connection to the process manager, watched for their ends: they are part of what has
//! started the job. When they are gone nobody ends this rank any more, which may wait for ever for ranks that were ended elsewhere, so
//! it ends itself. A script between this process and its manager hides the manager's end, and its connection does not.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, Ordering};
use rustix::event::{PollFd, PollFlags};
use rustix::process::PidfdFlags;

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
    /// From now on `on_end` hears of the end of the process that has started this one, or of that of the connection, whichever comes
    /// first. `None` where there is none, and the process cannot be named.
    pub(crate) fn begin(
        connection: Option<OwnedFd>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Option<StarterWatch>> {
        let starter = rustix::process::getppid();
        let process = starter.and_then(|starter| rustix::process::pidfd_open(starter, PidfdFlags::empty()).ok());
        let process = process.map(|process| (process, PollFlags::IN));
        // What comes over it is its reader's.
        let connection = connection.map(|connection| (connection, PollFlags::RDHUP));
        let watched: Vec<_> = process.into_iter().chain(connection).collect();
        if watched.is_empty() { Ok(None) } else { StarterWatch::of(watched, on_end).map(Some) }
    }

    fn of(watched: Vec<(OwnedFd, PollFlags)>, on_end: impl FnOnce() + Send + 'static) -> std::io::Result<StarterWatch> {
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
fn wait_for_end(watched: &[(OwnedFd, PollFlags)], stop: &Stop) -> bool {
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
            StarterWatch::of(vec![(process, PollFlags::IN)], move || sender.send(name).unwrap()).unwrap()
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
        let watched = vec![(OwnedFd::from(ours.try_clone().unwrap()), PollFlags::RDHUP)];
        let watch = StarterWatch::of(watched, move || sender.send(()).unwrap()).unwrap();
        theirs.write_all(b"cmd=barrier_out\n").unwrap();
        assert_eq!(ends.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        drop(theirs);
        assert_eq!(ends.recv(), Ok(()));
        watch.end();
    }
}
