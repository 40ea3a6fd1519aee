//! The system calls that have no safe wrapper: userfaultfd, and the page that the kernel wipes in a child.
//!
//! The only module of this crate with unsafe code. It refuses to know what is registered, and why.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::ioctl::{self, Setter, Updater, opcode};
use rustix::mm::{Advice, MapFlags, ProtFlags, UserfaultfdFlags};

use crate::extent::Extent;

/// The kernel's group of the calls below.
const GROUP: u8 = 0xAA;
const API_VERSION: u64 = 0xAA;
const OPCODE_API: ioctl::Opcode = opcode::read_write::<Api>(GROUP, 0x3F);
const OPCODE_REGISTER: ioctl::Opcode = opcode::read_write::<Register>(GROUP, 0x00);
const OPCODE_UNREGISTER: ioctl::Opcode = opcode::read::<AddressRange>(GROUP, 0x01);
const OPCODE_WRITE_PROTECT: ioctl::Opcode = opcode::read_write::<WriteProtect>(GROUP, 0x06);

const OPCODE_MAP_QUERY: ioctl::Opcode = opcode::read_write::<MapQuery>(b'f', 17);

const USER_MODE_ONLY: u32 = 1;
/// Write protection at all, then events for mremap, for madvise and for munmap. Never the one for fork: it would hold
/// up the fork until somebody reads it.
const FEATURES: u64 = FEATURE_WRITE_PROTECT | FEATURE_REMAP | FEATURE_REMOVE | FEATURE_UNMAP;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_REMAP: u64 = 1 << 2;
const FEATURE_REMOVE: u64 = 1 << 3;
const FEATURE_UNMAP: u64 = 1 << 6;
const MODE_WRITE_PROTECT: u64 = 1 << 1;

/// The mapping that covers the address, or the next one.
const QUERY_THIS_OR_NEXT: u64 = 0x10;
const MAPPING_SHARED: u64 = 0x08;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// How many bytes the kernel writes for one event.
const MESSAGE_BYTES: usize = 32;
/// How many events one read takes.
const MESSAGES_MAX: usize = 16;

#[repr(C)]
struct Api {
    version: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct AddressRange {
    start: u64,
    bytes: u64,
}

#[repr(C)]
struct Register {
    range: AddressRange,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    range: AddressRange,
    mode: u64,
}

/// A question about one mapping, and the answer.
#[repr(C)]
#[derive(Default)]
struct MapQuery {
    size: u64,
    query_flags: u64,
    query_address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name_address: u64,
    build_id_address: u64,
}

const _: () = assert!(size_of::<MapQuery>() == 104);
const _: () = assert!(size_of::<Api>() == 24 && size_of::<AddressRange>() == 16);
const _: () = assert!(size_of::<Register>() == 32 && size_of::<WriteProtect>() == 24);

/// What the kernel did with watched memory, or is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing is mapped at these addresses any more, or something else.
    Unmapped(Extent),
    /// The content of these addresses is lost, or about to be.
    Discarded(Extent),
    /// The memory of the first addresses is now found at the second ones, and watched there.
    Moved(Extent, Extent),
}

/// A userfaultfd that reports what happens to mappings, and protects nothing.
#[derive(Debug)]
pub(crate) struct Userfault(OwnedFd);

impl Userfault {
    /// # Errors
    /// The system's: `EPERM` and `ENOSYS` where it is not allowed or not there, `EINVAL` where an event is not known.
    pub(crate) fn open() -> Result<Userfault, Errno> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let user_only = flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: the descriptor stays in this module, which asks it for events and never lets it put pages in place,
        // so no memory changes under anybody.
        let opened = unsafe { rustix::mm::userfaultfd(user_only) };
        let descriptor = match opened {
            // A kernel that does not know the flag, older than 5.11.
            Err(Errno::INVAL) => {
                // SAFETY: as above.
                unsafe { rustix::mm::userfaultfd(flags) }?
            }
            opened => opened?,
        };
        let mut api = Api { version: API_VERSION, features: FEATURES, ioctls: 0 };
        // SAFETY: the opcode takes a `uffdio_api`, whose layout `Api` has; it is read and written, nothing else.
        let call = unsafe { Updater::<OPCODE_API, Api>::new(&mut api) };
        // SAFETY: the call touches `api` alone, which outlives it.
        unsafe { ioctl::ioctl(&descriptor, call) }?;
        Ok(Userfault(descriptor))
    }

    /// Reports what happens to these addresses from now on.
    ///
    /// # Errors
    /// The system's, where one of the mappings cannot be watched, or there is none.
    pub(crate) fn watch(&self, extent: Extent) -> Result<(), Errno> {
        let mut register = Register { range: extent.into(), mode: MODE_WRITE_PROTECT, ioctls: 0 };
        // SAFETY: the opcode takes a `uffdio_register`, whose layout `Register` has.
        let call = unsafe { Updater::<OPCODE_REGISTER, Register>::new(&mut register) };
        // SAFETY: the call marks mappings for events; as no page is ever protected, no access to them changes.
        unsafe { ioctl::ioctl(&self.0, call) }
    }

    /// Reports about these addresses no more. Where nothing is mapped or watched, nothing happens.
    pub(crate) fn unwatch(&self, extent: Extent) {
        // SAFETY: the opcode takes a `uffdio_range`, whose layout `AddressRange` has, and only reads it.
        let call = unsafe { Setter::<OPCODE_UNREGISTER, AddressRange>::new(extent.into()) };
        // SAFETY: the call takes marks off mappings, and no access to them changes.
        let result = unsafe { ioctl::ioctl(&self.0, call) };
        // An extent without any mapping is refused, and has nothing to take off.
        let _ = result;
    }

    /// Whether some watched mapping has changed, or is about to, and its event has not been read yet.
    ///
    /// The kernel counts such a change before it lets go of the list of mappings, and no more once its event was read.
    /// A call that would change pages looks at that count before anything else, so one that can do nothing tells it.
    pub(crate) fn is_changing(&self) -> bool {
        let nothing = WriteProtect { range: AddressRange { start: 0, bytes: 0 }, mode: 0 };
        // SAFETY: the opcode takes a `uffdio_writeprotect`, whose layout `WriteProtect` has, and only reads it.
        let call = unsafe { Setter::<OPCODE_WRITE_PROTECT, WriteProtect>::new(nothing) };
        // SAFETY: a range of no bytes is refused before any page is looked at.
        unsafe { ioctl::ioctl(&self.0, call) == Err(Errno::AGAIN) }
    }

    /// Reads what events there are, up to a batch, without waiting; the number read. Each lets the thread go on that
    /// caused it.
    pub(crate) fn read(&self, mut take: impl FnMut(Event)) -> usize {
        let mut messages = [0u8; MESSAGE_BYTES * MESSAGES_MAX];
        let bytes = loop {
            match rustix::io::read(&self.0, &mut messages) {
                Err(Errno::INTR) => {}
                Ok(bytes) => break bytes,
                Err(_) => return 0,
            }
        };
        let (messages, _) = messages[..bytes].as_chunks::<MESSAGE_BYTES>();
        for message in messages {
            let word = |at: usize| {
                let (words, _) = message[8..].as_chunks::<8>();
                usize::try_from(u64::from_ne_bytes(words[at])).unwrap_or(usize::MAX)
            };
            match message[0] {
                EVENT_UNMAP => take(Event::Unmapped(Extent { start: word(0), end: word(1) })),
                EVENT_REMOVE => take(Event::Discarded(Extent { start: word(0), end: word(1) })),
                EVENT_REMAP => {
                    let moved = |start: usize| Extent { start, end: start.saturating_add(word(2)) };
                    take(Event::Moved(moved(word(0)), moved(word(1))));
                }
                // A fault: nothing is protected, so there is none.
                _ => {}
            }
        }
        messages.len()
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Extent> for AddressRange {
    fn from(extent: Extent) -> Self {
        AddressRange { start: extent.start as u64, bytes: extent.bytes() as u64 }
    }
}

/// The mapping that covers this address, or the next one, and whether it is private memory without a file; `None` behind the
/// last one. `maps` is the list of a process's mappings in /proc.
///
/// # Errors
/// `ENOTTY` from a kernel that does not answer such questions, older than 6.11.
pub(crate) fn mapping_at(maps: impl AsFd, address: usize) -> Result<Option<(Extent, bool)>, Errno> {
    let mut query = MapQuery {
        size: size_of::<MapQuery>() as u64,
        query_flags: QUERY_THIS_OR_NEXT,
        query_address: address as u64,
        ..MapQuery::default()
    };
    // SAFETY: the opcode takes a `procmap_query`, whose layout `MapQuery` has, and whose size the first field tells.
    let call = unsafe { Updater::<OPCODE_MAP_QUERY, MapQuery>::new(&mut query) };
    // SAFETY: neither a name nor a build id is asked for, so the call writes nothing but `query`, which outlives it.
    match unsafe { ioctl::ioctl(maps, call) } {
        Ok(()) => {
            let address = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let extent = Extent { start: address(query.start), end: address(query.end) };
            Ok(Some((extent, query.flags & MAPPING_SHARED == 0 && query.inode == 0)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Keeps the handlers of signals from running on this thread, but for that of its own faults: with that one blocked the
/// system would end the process.
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call fills the set, which is large enough by its type.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled above.
    unsafe { libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV) };
    // SAFETY: the set was filled above, and the old mask is not asked for. It cannot fail with this first argument.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}

/// A page of our own that says whether this is still the process that mapped it: the kernel hands it to a child
/// wiped, however the child was made, and looking costs one load.
#[derive(Debug)]
pub(crate) struct ForkMark {
    page: NonNull<u8>,
}

// SAFETY: the page is written once, before anybody else knows of it, and unmapped by the last owner.
unsafe impl Send for ForkMark {}
// SAFETY: as above; from then on it is only read.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// # Errors
    /// The system's, where no page can be had, or none that is wiped.
    pub(crate) fn new() -> Result<ForkMark, Errno> {
        let bytes = rustix::param::page_size();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses addresses at which nothing is.
        let page = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
        let mark = ForkMark { page: NonNull::new(page.cast()).ok_or(Errno::NOMEM)? };
        // SAFETY: the page was mapped above and is ours alone; this advice changes what a child gets of it.
        unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }?;
        // SAFETY: the page is mapped writable, and nobody else knows of it yet.
        unsafe { mark.page.as_ptr().write_volatile(1) };
        Ok(mark)
    }

    /// Whether this process is a child of the one that made the mark.
    pub(crate) fn is_in_child(&self) -> bool {
        // SAFETY: the page is mapped as long as `self` lives, and no thread writes it after `new`. Volatile, because a
        // fork changes it behind the compiler's back.
        unsafe { self.page.as_ptr().read_volatile() == 0 }
    }

    /// The page, to try things on.
    pub(crate) fn extent(&self) -> Extent {
        let start = self.page.as_ptr() as usize;
        Extent { start, end: start + rustix::param::page_size() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        let page = self.page.as_ptr().cast::<c_void>();
        // SAFETY: `new` mapped this page, and nobody else unmaps it.
        let unmapped = unsafe { rustix::mm::munmap(page, rustix::param::page_size()) };
        debug_assert!(unmapped.is_ok());
    }
}
