//! An eventfd: what wakes a loop that sleeps on descriptors from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Wakes a [`Poller`](crate::Poller) from any thread. Any number of wakes before a clear count as one.
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

    /// What to give to [`Poller::add`](crate::Poller::add), with [`Interest::READABLE`](crate::Interest::READABLE).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
