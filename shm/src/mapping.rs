//! Mappings of memfds, anywhere or at an address that the processes of a node have agreed on.
//!
//! Where the agreed addresses are taken in this process, the mapping is made anywhere. What was mapped there before is
//! never replaced: other people's memory may be in it.
//!
//! If a process dies, the system takes its mappings down. Nobody else sees that.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{MapFlags, ProtFlags};

/// A whole memfd, shared and writable. No swap is reserved for it.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Mapped until `owner` goes.
    start: *mut u8,
    owner: Owner,
}

/// Who takes the mapping down.
#[derive(Debug)]
enum Owner {
    Anywhere {
        _map: MmapRaw,
    },
    /// [`Mapping`] itself: memmap2 maps at no address that it is told.
    Agreed {
        bytes: usize,
    },
}

// SAFETY: a mapping belongs to the process, not to a thread, and `start` is only handed out, never used here.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; nothing changes after it was made.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, which are not 0, at `address` if they are free there, else anywhere.
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: usize, address: Option<u64>) -> io::Result<Mapping> {
        if let Some(mapping) = address.and_then(|address| Mapping::agreed(file, bytes, address)) {
            return Ok(mapping);
        }
        let map = MmapOptions::new().len(bytes).no_reserve_swap().map_raw(file.as_raw_fd())?;
        Ok(Mapping { start: map.as_mut_ptr(), owner: Owner::Anywhere { _map: map } })
    }

    /// `None` if something is mapped there, if this machine has no such address, or if the system does not want to.
    fn agreed(file: BorrowedFd<'_>, bytes: usize, address: u64) -> Option<Mapping> {
        let wanted = usize::try_from(address).ok()?;
        let start = std::ptr::without_provenance_mut(wanted);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new mapping harms nobody unless it replaces one that is in use, which `FIXED_NOREPLACE` forbids.
        let start = unsafe { rustix::mm::mmap(start, bytes, access, flags, file, 0) }.ok()?;
        let mapping = Mapping { start: start.cast(), owner: Owner::Agreed { bytes } };
        // Before Linux 4.17 the address is a wish, which may come out otherwise.
        (mapping.start.addr() == wanted).then_some(mapping)
    }

    /// Where it starts.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Owner::Agreed { bytes } = self.owner {
            // SAFETY: `agreed` mapped these bytes, only this unmaps them, and whoever uses a region of them holds a
            // borrow of the segment that owns this mapping. A bare pointer, as C programs get, is worth nothing once
            // the segment is freed, and its users know that.
            let unmapped = unsafe { rustix::mm::munmap(self.start.cast(), bytes) };
            debug_assert!(unmapped.is_ok(), "a whole mapping can be taken down");
        }
    }
}
