//! What a loop sleeps on: an epoll instance behind a safe wrapper.
//!
//! Level-triggered throughout: a reader that leaves bytes behind is told again. A [`Poller`] can be put into another one. It
//! does not own what it watches; a descriptor that is closed leaves by itself unless somebody holds a duplicate. What it watches besides descriptors
//! stands in `watching`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::beacon::Beacons;
use crate::interest::{Interest, Ready};

/// The token of the descriptor by which raised beacons end a wait; nobody is told of it, and nobody else may have it.
const BEACONS: u64 = u64::MAX - 0xbeac;

/// Watches many descriptors at once, and [beacons](crate::Beacon).
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    /// Made with the first beacon.
    beacons: OnceLock<Arc<Beacons>>,
}

impl Poller {
    /// Descriptors that one [`Poller::wait`] tells of, at most; the others are told of by the next one.
    pub const READY_MAX: usize = 64;

    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// The system's, when descriptors or memory run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, beacons: OnceLock::new() })
    }

    /// Starts to watch `source`. `token` comes back with every event of it.
    ///
    /// # Errors
    /// The system's; `AlreadyExists` if the descriptor is watched by this poller already.
    ///
    /// # Panics
    /// With the one token that is the poller's own.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        assert_ne!(token, BEACONS, "this token is the poller's own");
        self.add_any(source, token, interest)
    }

    fn add_any(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Changes token and interest of a watched descriptor.
    ///
    /// # Errors
    /// The system's; `NotFound` if the descriptor is not watched by this poller.
    ///
    /// # Panics
    /// As [`Poller::add`].
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        assert_ne!(token, BEACONS, "this token is the poller's own");
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
    /// An interrupted call does not end a wait without timeout. One with a timeout may then end early with nothing ready, and so it does when a
    /// beacon is lowered again at once: callers keep their own deadlines, and this crate reads no clock.
    ///
    /// # Errors
    /// The system's, never `Interrupted`.
    pub fn wait(&self, out: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let limit = timeout.map(timespec);
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; Poller::READY_MAX];
        loop {
            match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
                Ok((ready, _)) => out.extend(ready.iter().map(|event| Ready::from_event(*event))),
                Err(Errno::INTR) if timeout.is_none() => continue,
                Err(Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            let Some(beacons) = self.beacons.get() else { return Ok(()) };
            let had = out.len();
            out.retain(|ready| ready.token != BEACONS);
            // The eventfd stays readable until no beacon is raised.
            if out.len() < had {
                beacons.append_ready(out, Poller::READY_MAX);
            }
            // Those that were raised may have been lowered since.
            if !out.is_empty() || timeout.is_some() {
                return Ok(());
            }
        }
    }

    /// What it watches beside descriptors.
    pub(crate) fn beacons(&self) -> io::Result<&Arc<Beacons>> {
        if let Some(beacons) = self.beacons.get() {
            return Ok(beacons);
        }
        let beacons = Arc::new(Beacons::new()?);
        self.add_any(beacons.descriptor(), BEACONS, Interest::READABLE)?;
        // If another thread was quicker the descriptor of this one leaves as it is closed.
        let _ = self.beacons.set(beacons);
        Ok(self.beacons.get().expect("set by now"))
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    // A time too long for the kernel's type is as good as the longest one.
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Waker;

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
        let wakers: Vec<Waker> = (0..Poller::READY_MAX + 10).map(|_| Waker::new().unwrap()).collect();
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

    #[test]
    fn the_last_tokens_are_told_as_all_are_also_beside_beacons() {
        for has_beacon in [false, true] {
            let (poller, beacon) = (Poller::new().unwrap(), crate::Beacon::default());
            if has_beacon {
                poller.add_beacon(&beacon, 1, Interest::READABLE).unwrap();
                beacon.raise();
            }
            let wakers: Vec<Waker> = (0..3).map(|_| Waker::new().unwrap()).collect();
            for (waker, token) in wakers.iter().zip([u64::MAX, u64::MAX - 1, u64::MAX - 2]) {
                poller.add(waker.descriptor(), token, Interest::READABLE).unwrap();
                waker.wake();
            }
            let mut told: Vec<u64> = ready_now(&poller).into_iter().map(|ready| ready.token).collect();
            told.sort_unstable();
            let first: &[u64] = if has_beacon { &[1] } else { &[] };
            assert_eq!(told, [first, &[u64::MAX - 2, u64::MAX - 1, u64::MAX]].concat());
        }
    }

    #[test]
    #[should_panic(expected = "the poller's own")]
    fn the_token_of_the_poller_is_nobody_elses() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        let _ = poller.add(waker.descriptor(), BEACONS, Interest::READABLE);
    }
}
