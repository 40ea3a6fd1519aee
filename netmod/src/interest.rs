//! What a poller is asked to tell, and what it tells.

use rustix::event::epoll;

/// What to be told about a descriptor. With neither set, only errors and hang-ups are told, and of a beacon nothing.
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

    pub(crate) fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.readable);
        flags.set(epoll::EventFlags::OUT, self.writable);
        flags
    }
}

/// A descriptor that can go on, or a beacon that is raised, which is always told as readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number that was given with the descriptor.
    pub token: u64,
    /// A read will not block: bytes, end of stream, or an error to fetch.
    pub readable: bool,
    /// A write will not block: room, or an error to fetch.
    pub writable: bool,
}

impl Ready {
    pub(crate) fn from_event(event: epoll::Event) -> Self {
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
