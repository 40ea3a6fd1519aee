//! What a loop sleeps on: an epoll instance behind a safe wrapper, and an eventfd to wake it from another thread.
//!
//! Level-triggered throughout: a reader that leaves bytes behind is told again. A [`Poller`] can be put into another one. It
//! does not own what it watches; a descriptor that is closed leaves by itself unless somebody holds a duplicate.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// Events fetched by one wait. What is over comes with the next one, as nothing is lost when level-triggered.
const EVENTS_PER_WAIT_MAX: usize = 64;

/// What to be told about a descriptor. With neither set, only errors and hang-ups are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Tell when there is something to read, or the end of the stream.
    pub readable: bool,
    /// Tell when there is room to write.
    pub writable: bool,
}

impl Interest {
    /// Reading only.
    pub const READABLE: Self = Self { readable: true, writable: false };
    /// Writing only.
    pub const WRITABLE: Self = Self { readable: false, writable: true };
    /// Reading and writing.
    pub const BOTH: Self = Self { readable: true, writable: true };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.readable);
        flags.set(epoll::EventFlags::OUT, self.writable);
        flags
    }
}

/// A descriptor that can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number that was given with the descriptor.
    pub token: u64,
    /// A read will not block: bytes, end of stream, or an error to fetch.
    pub readable: bool,
    /// A write will not block: room, or an error to fetch.
    pub writable: bool,
}

/// Watches many descriptors at once.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// The system's, when descriptors or memory run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Starts to watch `source`. `token` comes back with every event of it.
    ///
    /// # Errors
    /// The system's; `AlreadyExists` if the descriptor is watched by this poller already.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Changes token and interest of a watched descriptor.
    ///
    /// # Errors
    /// The system's; `NotFound` if the descriptor is not watched by this poller.
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Stops to watch `source`.
    ///
    /// # Errors
    /// The system's; `NotFound` if the descriptor is not watched by this poller.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Sleeps until a watched descriptor can go on, at most for `timeout` (rounded up to milliseconds; `None`: as
    /// long as it takes), and puts what is ready into `out`, which it clears first.
    ///
    /// A signal does not end a wait without timeout. One with a timeout may then end early with nothing ready:
    /// callers keep their own deadlines, and this crate reads no clock.
    ///
    /// # Errors
    /// The system's, never `Interrupted`.
    pub fn wait(&self, out: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let limit = timeout.map(timespec);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_PER_WAIT_MAX];
        loop {
            match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
                Ok((ready, _)) => {
                    out.extend(ready.iter().map(|event| Ready::from_event(*event)));
                    return Ok(());
                }
                Err(Errno::INTR) if timeout.is_none() => {}
                Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Ready {
    fn from_event(event: epoll::Event) -> Self {
        let (flags, data) = (event.flags, event.data);
        // An error or a hang-up is found by whoever next reads or writes, so it counts as both.
        let over = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        Self {
            token: data.u64(),
            readable: over || flags.contains(epoll::EventFlags::IN),
            writable: over || flags.contains(epoll::EventFlags::OUT),
        }
    }
}

/// Wakes a [`Poller`] from any thread. Any number of wakes before a clear count as one.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// A waker that nobody has used yet.
    ///
    /// # Errors
    /// The system's, when descriptors or memory run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Makes [`Waker::descriptor`] readable until the next clear. Never blocks.
    pub fn wake(&self) {
        match rustix::io::write(&self.event, &1_u64.to_ne_bytes()) {
            // A full counter is as readable as it can be.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => panic!("an eventfd of our own refuses a write: {errno}"),
        }
    }

    /// Makes the descriptor silent again. Clear first and look for work after it, so that no wake is missed.
    pub fn clear(&self) {
        match rustix::io::read(&self.event, &mut [0; size_of::<u64>()]) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => panic!("an eventfd of our own refuses a read: {errno}"),
        }
    }

    /// What to give to [`Poller::add`], with [`Interest::READABLE`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    // A time too long for the kernel's type is as good as the longest one.
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_now(poller: &Poller) -> Vec<Ready> {
        let mut out = vec![Ready { token: 99, readable: true, writable: true }];
        poller.wait(&mut out, Some(Duration::ZERO)).unwrap();
        out
    }

    #[test]
    fn a_wake_is_told_until_it_is_cleared() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(waker.descriptor(), 7, Interest::READABLE).unwrap();
        assert_eq!(ready_now(&poller), []);
        waker.wake();
        waker.wake();
        let told = [Ready { token: 7, readable: true, writable: false }];
        assert_eq!(ready_now(&poller), told);
        assert_eq!(ready_now(&poller), told, "level-triggered: told again");
        waker.clear();
        assert_eq!(ready_now(&poller), []);
        waker.clear();
    }

    #[test]
    fn a_wake_from_another_thread_ends_a_wait_without_timeout() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(waker.descriptor(), 1, Interest::READABLE).unwrap();
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            poller.wait(&mut out, None).unwrap();
        });
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_changed_interest_counts_and_a_removed_descriptor_is_silent() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(waker.descriptor(), 1, Interest::READABLE).unwrap();
        poller.modify(waker.descriptor(), 2, Interest::WRITABLE).unwrap();
        assert_eq!(ready_now(&poller), [Ready { token: 2, readable: false, writable: true }]);
        poller.remove(waker.descriptor()).unwrap();
        assert_eq!(ready_now(&poller), []);
        let again = poller.remove(waker.descriptor()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_poller_inside_a_poller_is_ready_when_something_in_it_is() {
        let (outer, inner, waker) = (Poller::new().unwrap(), Poller::new().unwrap(), Waker::new().unwrap());
        inner.add(waker.descriptor(), 1, Interest::READABLE).unwrap();
        outer.add(&inner, 2, Interest::READABLE).unwrap();
        assert_eq!(ready_now(&outer), []);
        waker.wake();
        assert_eq!(ready_now(&outer), [Ready { token: 2, readable: true, writable: false }]);
    }

    #[test]
    fn more_events_than_one_wait_fetches_come_with_the_next_waits() {
        let poller = Poller::new().unwrap();
        let wakers: Vec<Waker> = (0..EVENTS_PER_WAIT_MAX + 10).map(|_| Waker::new().unwrap()).collect();
        for (token, waker) in (0..).zip(&wakers) {
            poller.add(waker.descriptor(), token, Interest::READABLE).unwrap();
            waker.wake();
        }
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < wakers.len() {
            for ready in ready_now(&poller) {
                seen.insert(ready.token);
                wakers[usize::try_from(ready.token).unwrap()].clear();
            }
        }
        assert_eq!(ready_now(&poller), []);
    }

    #[test]
    fn a_wait_with_a_timeout_of_days_is_accepted() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(waker.descriptor(), 1, Interest::READABLE).unwrap();
        waker.wake();
        let mut out = Vec::new();
        for timeout in [Duration::from_secs(1 << 20), Duration::from_secs(1 << 40), Duration::MAX] {
            poller.wait(&mut out, Some(timeout)).unwrap();
            assert_eq!(out.len(), 1);
        }
    }
}
