//! The process that has started this one, watched for its end: it is part of what has started the job. When it is gone nobody
//! ends this rank any more, which may wait for ever for ranks that were ended elsewhere, so it ends itself.

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
    /// From now on `on_end` hears of the end of the process that has started this one. `None` where that cannot be named.
    pub(crate) fn begin(on_end: impl FnOnce() + Send + 'static) -> std::io::Result<Option<StarterWatch>> {
        let starter = rustix::process::getppid();
        let process = starter.and_then(|starter| rustix::process::pidfd_open(starter, PidfdFlags::empty()).ok());
        process.map(|process| StarterWatch::of(process, on_end)).transpose()
    }

    fn of(process: OwnedFd, on_end: impl FnOnce() + Send + 'static) -> std::io::Result<StarterWatch> {
        let stop = Arc::new(Stop { waker: Waker::new()?, is_set: AtomicBool::new(false) });
        let stopping = Arc::clone(&stop);
        let watching = move || {
            if wait_for_end(&process, &stopping) {
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

/// Whether the process has ended, and not the watch.
fn wait_for_end(process: &OwnedFd, stop: &Stop) -> bool {
    loop {
        let mut events =
            [PollFd::from_borrowed_fd(stop.waker.descriptor(), PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        // An interrupted sleep is a short one.
        let _ = rustix::event::poll(&mut events, None);
        let has_ended = !events[1].revents().is_empty();
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
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

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
            StarterWatch::of(process, move || sender.send(name).unwrap()).unwrap()
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
}
