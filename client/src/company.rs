//! When what waits for company is sent although nobody waits for it: [`GATHER`] after the first of it, by the helper.
//!
//! A timer of the kernel wakes the helper. Mostly somebody waits before it rings, and sends everything: then the timer is set
//! anew for the next requests, and the helper sleeps on. To wake the helper at once, so that it lets the time pass itself,
//! would take the processor twice from a thread that waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use longarm_shm::sync::{AtomicBool, Ordering, fence};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// How long requests that nobody waits for wait for others to be sent with.
const GATHER: Duration = Duration::from_micros(50);

/// See the module. Whenever an endpoint gathers the timer runs, or has rung and the helper has not looked yet.
pub(crate) struct Company {
    timer: OwnedFd,
    /// The timer runs for what waits now: it is not set again.
    runs: AtomicBool,
}

impl Company {
    pub(crate) fn new() -> std::io::Result<Company> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Company { timer, runs: AtomicBool::new(false) })
    }

    /// Call after an endpoint was marked as one that gathers.
    pub(crate) fn begin(&self) {
        // SeqCst fence: that mark before it and the look at `runs` after, against `take`'s `runs` before and the helper's look
        // at the marks after. Less lets both miss each other, and nobody would send what waits.
        fence(Ordering::SeqCst);
        if self.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: 0, tv_nsec: GATHER.subsec_nanos().into() },
        };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        assert!(set.is_ok(), "a timer of our own can be set");
    }

    /// Nothing gathers any more: what does next has the whole time again. A timer that runs goes on: if somebody has begun
    /// meanwhile and relied on it, it rings for them.
    pub(crate) fn end(&self) {
        if self.runs.load(Ordering::Relaxed) {
            self.runs.store(false, Ordering::Relaxed);
        }
    }

    /// For the helper, when the timer has rung: it looks at what gathers after this.
    pub(crate) fn take(&self) {
        match rustix::io::read(&self.timer, &mut [0; size_of::<u64>()]) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => panic!("a timer of our own refuses a read: {errno}"),
        }
        self.runs.store(false, Ordering::SeqCst);
        // SeqCst fence: see `begin`.
        fence(Ordering::SeqCst);
    }

    /// Readable when the timer has rung.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn rings(company: &Company) {
        poll(&mut [PollFd::from_borrowed_fd(company.descriptor(), PollFlags::IN)], None).unwrap();
        company.take();
    }

    #[test]
    fn it_rings_for_whoever_began_whatever_ended_before() {
        let company = Company::new().unwrap();
        company.begin();
        company.begin();
        rings(&company);
        company.begin();
        company.end();
        rings(&company);
        company.begin();
        company.end();
        company.begin();
        rings(&company);
    }
}
