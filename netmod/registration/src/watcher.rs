//! Where a cache that watches memory hears of what becomes of it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;

use crate::extent::Extent;
use crate::kind::Maps;
use crate::system::Userfault;

/// Where events come from, and how the thread that reads them is stopped.
pub(crate) struct Watcher {
    pub(crate) userfault: Userfault,
    pub(crate) maps: Maps,
    stop: OwnedFd,
}

impl Watcher {
    /// Opens it, and tries it on a page that nobody uses.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(page: Extent) -> Result<Watcher, Errno> {
        let userfault = Userfault::open()?;
        userfault.watch(page)?;
        userfault.unwatch(page);
        Ok(Watcher { userfault, maps: Maps::open(), stop: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Has the reading thread end. No event is read by it any more.
    pub(crate) fn stop(&self) {
        // It cannot fail: the count is far from its bound.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Sleeps until there is an event, whatever was said about the end.
    pub(crate) fn wait_for_event(&self) {
        // An interruption, or a kernel out of memory for a moment: the caller looks and comes back.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.userfault, PollFlags::IN)], None);
    }

    /// Sleeps until there is an event; `false` at the end.
    pub(crate) fn wait(&self) -> bool {
        let mut ready =
            [PollFd::new(&self.userfault, PollFlags::IN), PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut ready, None) {
                Err(Errno::INTR) => {}
                // The kernel is out of memory for a moment.
                Err(_) => std::thread::yield_now(),
                Ok(_) => return ready[1].revents().is_empty(),
            }
        }
    }
}
