//! What announces that something inside this process can go on, without a descriptor of its own for each.
//!
//! A [`Beacon`] is raised and lowered by the one who knows, and watched by at most one poller, which tells of it as of a descriptor. Many of
//! them wake the poller by one eventfd, and only if none of the others that it watches is raised already.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use slab::Slab;

use crate::interest::{Interest, Ready};
use crate::waker::Waker;

/// Something in this process that can go on, or cannot now. Level-triggered as descriptors are: who watches it is told again until it is
/// lowered.
#[derive(Debug, Default)]
pub struct Beacon {
    state: Mutex<State>,
    /// For who sleeps on a descriptor.
    event: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct State {
    is_raised: bool,
    watch: Option<(Arc<Beacons>, usize)>,
}

/// Those that one poller watches.
#[derive(Debug)]
pub(crate) struct Beacons {
    watched: Mutex<Watched>,
    /// Makes the poller's own descriptor ready.
    waker: Waker,
}

#[derive(Debug, Default)]
struct Watched {
    all: Slab<Entry>,
    /// Those that were raised, and have not been found lowered since.
    raised: VecDeque<usize>,
    /// The waker is rung, for those.
    is_rung: bool,
}

#[derive(Debug)]
struct Entry {
    token: u64,
    is_wanted: bool,
    is_raised: bool,
    /// It stands among the raised ones.
    is_listed: bool,
}

impl Beacon {
    /// Tells who watches or sleeps here, until it is lowered.
    pub fn raise(&self) {
        self.set(true);
    }

    /// Nothing can go on now.
    pub fn lower(&self) {
        self.set(false);
    }

    fn set(&self, is_raised: bool) {
        let mut state = self.state.lock();
        if state.is_raised == is_raised {
            return;
        }
        state.is_raised = is_raised;
        if let Some((beacons, number)) = &state.watch {
            beacons.set(*number, is_raised);
        }
        match self.event.get() {
            Some(event) if is_raised => event.wake(),
            Some(event) => event.clear(),
            None => {}
        }
    }

    /// A descriptor that is readable while the beacon is raised. It is made when it is first asked for.
    ///
    /// # Errors
    /// The system's, when descriptors or memory run out.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            let event = Waker::new()?;
            let state = self.state.lock();
            if state.is_raised {
                event.wake();
            }
            // Another thread may have made one meanwhile, which is as good.
            let _ = self.event.set(event);
        }
        Ok(self.event.get().expect("made just now").descriptor())
    }

    /// From now on this poller tells of it, in place of another one that did.
    pub(crate) fn watch(&self, beacons: &Arc<Beacons>, token: u64, interest: Interest) {
        let mut state = self.state.lock();
        if let Some((beacons, number)) = state.watch.take() {
            beacons.forget(number);
        }
        let number = beacons.add(token, interest, state.is_raised);
        state.watch = Some((Arc::clone(beacons), number));
    }

    /// Nobody watches it any more.
    pub(crate) fn unwatch(&self) {
        if let Some((beacons, number)) = self.state.lock().watch.take() {
            beacons.forget(number);
        }
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        self.unwatch();
    }
}

impl Beacons {
    /// For a poller, which watches the waker.
    pub(crate) fn new() -> io::Result<Beacons> {
        Ok(Beacons { watched: Mutex::default(), waker: Waker::new()? })
    }

    /// What makes the poller's descriptor ready while there may be a beacon that is raised.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.descriptor()
    }

    fn add(&self, token: u64, interest: Interest, is_raised: bool) -> usize {
        let mut watched = self.watched.lock();
        let entry = Entry { token, is_wanted: interest != Interest::default(), is_raised, is_listed: false };
        let number = watched.all.insert(entry);
        self.list(&mut watched, number);
        number
    }

    fn set(&self, number: usize, is_raised: bool) {
        let mut watched = self.watched.lock();
        watched.all[number].is_raised = is_raised;
        self.list(&mut watched, number);
    }

    fn list(&self, watched: &mut Watched, number: usize) {
        let entry = &mut watched.all[number];
        if entry.is_listed || !entry.is_raised || !entry.is_wanted {
            return;
        }
        entry.is_listed = true;
        watched.raised.push_back(number);
        if !std::mem::replace(&mut watched.is_rung, true) {
            self.waker.wake();
        }
    }

    fn forget(&self, number: usize) {
        let mut watched = self.watched.lock();
        if watched.all.remove(number).is_listed {
            watched.raised.retain(|raised| *raised != number);
        }
    }

    /// Adds up to so many of those that are raised. Those that are over come first with the next call.
    pub(crate) fn append_ready(&self, out: &mut Vec<Ready>, max: usize) {
        let mut watched = self.watched.lock();
        for _ in 0..watched.raised.len().min(max) {
            let Some(number) = watched.raised.pop_front() else { break };
            let entry = &mut watched.all[number];
            if entry.is_raised && entry.is_wanted {
                out.push(Ready { token: entry.token, readable: true, writable: false });
                watched.raised.push_back(number);
            } else {
                entry.is_listed = false;
            }
        }
        if watched.raised.is_empty() && std::mem::take(&mut watched.is_rung) {
            self.waker.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::poller::Poller;

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn tokens(poller: &Poller) -> Vec<u64> {
        let mut out = Vec::new();
        poller.wait(&mut out, Some(Duration::ZERO)).unwrap();
        out.into_iter().map(|ready| ready.token).collect()
    }

    fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&NOW)).unwrap() == 1
    }

    #[test]
    fn a_beacon_is_told_until_it_is_lowered() {
        let (poller, beacon) = (Poller::new().unwrap(), Beacon::default());
        beacon.raise();
        poller.add_beacon(&beacon, 7, Interest::READABLE).unwrap();
        assert_eq!(tokens(&poller), [7], "it was raised before");
        assert_eq!(tokens(&poller), [7], "level-triggered: told again");
        beacon.lower();
        assert_eq!(tokens(&poller), []);
        beacon.raise();
        poller.add_beacon(&beacon, 8, Interest::default()).unwrap();
        assert_eq!(tokens(&poller), [], "nothing is wanted");
        poller.add_beacon(&beacon, 9, Interest::READABLE).unwrap();
        assert_eq!(tokens(&poller), [9]);
        beacon.unwatch();
        assert_eq!(tokens(&poller), []);
    }

    #[test]
    fn a_poller_is_ready_while_a_beacon_is_raised_and_one_moves_to_another_poller() {
        let (outer, inner, other) = (Poller::new().unwrap(), Poller::new().unwrap(), Poller::new().unwrap());
        let beacon = Beacon::default();
        inner.add_beacon(&beacon, 1, Interest::READABLE).unwrap();
        outer.add(&inner, 2, Interest::READABLE).unwrap();
        assert_eq!(tokens(&outer), []);
        beacon.raise();
        assert_eq!((tokens(&outer), tokens(&inner), tokens(&outer)), (vec![2], vec![1], vec![2]));
        other.add_beacon(&beacon, 3, Interest::READABLE).unwrap();
        assert_eq!((tokens(&inner), tokens(&outer), tokens(&other)), (vec![], vec![], vec![3]));
        drop(beacon);
        assert_eq!(tokens(&other), [], "what is gone is forgotten");
    }

    #[test]
    fn all_beacons_have_their_turn_beside_descriptors() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(waker.descriptor(), 1000, Interest::READABLE).unwrap();
        waker.wake();
        let beacons: Vec<Beacon> = (0..200).map(|_| Beacon::default()).collect();
        for (token, beacon) in (0..).zip(&beacons) {
            poller.add_beacon(beacon, token, Interest::READABLE).unwrap();
            beacon.raise();
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut waits = 0;
        while seen.len() < 201 {
            seen.extend(tokens(&poller));
            waits += 1;
            assert!(waits <= 4, "{} of 201 after 4 waits", seen.len());
        }
    }

    #[test]
    fn a_descriptor_is_readable_while_the_beacon_is_raised() {
        let beacon = Beacon::default();
        beacon.raise();
        assert!(is_readable(beacon.descriptor().unwrap()), "raised before there was one");
        beacon.lower();
        assert!(!is_readable(beacon.descriptor().unwrap()));
        beacon.raise();
        assert!(is_readable(beacon.descriptor().unwrap()));
    }

    #[test]
    fn a_beacon_of_another_thread_ends_a_wait_without_timeout() {
        let (poller, beacon) = (Poller::new().unwrap(), Beacon::default());
        poller.add_beacon(&beacon, 1, Interest::READABLE).unwrap();
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| beacon.raise());
            poller.wait(&mut out, None).unwrap();
        });
        assert_eq!(out, [Ready { token: 1, readable: true, writable: false }]);
    }
}
