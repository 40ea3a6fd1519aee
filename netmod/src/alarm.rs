//! A deadline as a descriptor, so that blocking calls need no clock: the kernel counts, we poll.
//!
//! An interrupted wait is simply repeated; the timer has gone on meanwhile, so no time is lost or gained.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::poller::timespec;

/// More seconds than any caller waits, and few enough that the kernel can add them to its clock.
const DEADLINE_SECONDS_MAX: u64 = 1 << 30;

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// The descriptor can go on, or there was none to sleep on: try again.
    Try,
    /// The time is over.
    Rang,
}

/// Rings once, a given time after it was made, and then stays rung.
pub(crate) struct Alarm {
    timer: OwnedFd,
}

impl Alarm {
    pub(crate) fn after(deadline: Duration) -> Result<Self, LinkError> {
        let alarm = Self::silent()?;
        alarm.set(deadline)?;
        Ok(alarm)
    }

    /// One that does not ring before it is set.
    pub(crate) fn silent() -> Result<Self, LinkError> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { timer })
    }

    /// Rings then, and not before. Needs no descriptor.
    pub(crate) fn set(&self, deadline: Duration) -> Result<(), LinkError> {
        // A zero time would disarm the timer instead of ringing at once.
        self.arm(deadline.clamp(Duration::from_nanos(1), Duration::from_secs(DEADLINE_SECONDS_MAX)))
    }

    /// It has not rung, and will not until it is set.
    pub(crate) fn silence(&self) -> Result<(), LinkError> {
        self.arm(Duration::ZERO)
    }

    fn arm(&self, time: Duration) -> Result<(), LinkError> {
        let times = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: timespec(time) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }

    /// Becomes readable when it rings.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Sleeps until `source` is ready or the alarm rings. With nothing to sleep on it gives the processor away once.
    /// Who both is ready and late is late, so that a peer that trickles bytes cannot stretch a deadline.
    pub(crate) fn wait(&self, source: Option<BorrowedFd<'_>>, interest: Interest) -> Result<Wake, LinkError> {
        let timer = PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN);
        let rang = match source {
            Some(source) => {
                let mut both = [timer, PollFd::from_borrowed_fd(source, poll_flags(interest))];
                poll_uninterrupted(&mut both, None)?;
                !both[0].revents().is_empty()
            }
            None => {
                std::thread::yield_now();
                let mut alone = [timer];
                poll_uninterrupted(&mut alone, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
                !alone[0].revents().is_empty()
            }
        };
        Ok(if rang { Wake::Rang } else { Wake::Try })
    }
}

fn poll_flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.readable);
    flags.set(PollFlags::OUT, interest.writable);
    flags
}

fn poll_uninterrupted(sources: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<(), LinkError> {
    loop {
        match poll(sources, timeout) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Waker;

    #[test]
    fn an_alarm_of_no_time_rings_although_the_source_is_ready() {
        let waker = Waker::new().unwrap();
        waker.wake();
        let alarm = Alarm::after(Duration::ZERO).unwrap();
        // Nothing is ever ready here, so this returns only because the alarm rings.
        let silent = Waker::new().unwrap();
        assert_eq!(alarm.wait(Some(silent.descriptor()), Interest::READABLE), Ok(Wake::Rang));
        assert_eq!(alarm.wait(Some(waker.descriptor()), Interest::READABLE), Ok(Wake::Rang));
    }

    #[test]
    fn the_longest_time_there_is_does_not_ring_before_the_source_is_ready() {
        let waker = Waker::new().unwrap();
        waker.wake();
        let alarm = Alarm::after(Duration::MAX).unwrap();
        assert_eq!(alarm.wait(Some(waker.descriptor()), Interest::READABLE), Ok(Wake::Try));
        assert_eq!(alarm.wait(None, Interest::READABLE), Ok(Wake::Try));
    }
}
