//! Memory that the tests unmap, move, discard and map again. The only unsafe code of the tests.
#![allow(unsafe_code, dead_code, reason = "real memory; and each test program uses a part of it")]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

/// Where the next mapping goes: far from where the kernel puts what has no place of its own, so that nothing else gets in
/// where a test has unmapped something.
static PLACE: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);
const PLACE_BYTES: usize = 1 << 20;

pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Addresses that a test has for itself, and maps what it wants into. Nothing in it is Rust memory: bytes go in and out by
/// [`Mapping::write`] and [`Mapping::read`], so that a test that goes wrong gets an error and no signal.
#[derive(Debug)]
pub struct Mapping {
    pub start: usize,
    pub bytes: usize,
}

impl Mapping {
    /// Fresh pages, private and without a file.
    pub fn new(pages: usize) -> Mapping {
        let bytes = pages * page_bytes();
        let start = PLACE.fetch_add(bytes.next_multiple_of(PLACE_BYTES) + PLACE_BYTES, Ordering::Relaxed);
        let mapping = Mapping { start, bytes };
        assert!(mapping.map_again(0, pages));
        mapping
    }

    /// Pages of a file or a shared memory, shared, to be read.
    pub fn of_file(file: impl AsFd, pages: usize) -> Mapping {
        let bytes = pages * page_bytes();
        // SAFETY: the kernel chooses addresses at which nothing is.
        let start = unsafe { rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        Mapping { start: start.unwrap() as usize, bytes }
    }

    /// The address of a page.
    pub fn page(&self, at: usize) -> usize {
        self.start + at * page_bytes()
    }

    /// Unmaps some pages.
    pub fn unmap(&self, first: usize, pages: usize) {
        // SAFETY: these addresses are this mapping's, and nothing in it is Rust memory.
        unsafe { rustix::mm::munmap(self.pointer(first), pages * page_bytes()) }.unwrap();
    }

    /// Maps fresh pages where nothing is; `false` if something is.
    pub fn map_again(&self, first: usize, pages: usize) -> bool {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: with this flag nothing is replaced.
        let mapped = unsafe { rustix::mm::mmap_anonymous(self.pointer(first), pages * page_bytes(), access(), flags) };
        match mapped {
            Ok(_) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => panic!("{errno}"),
        }
    }

    /// Maps fresh pages over those that are there.
    pub fn map_over(&self, first: usize, pages: usize) {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: these addresses are this mapping's, and nothing in it is Rust memory.
        unsafe { rustix::mm::mmap_anonymous(self.pointer(first), pages * page_bytes(), access(), flags) }.unwrap();
    }

    /// Discards the content of some pages.
    pub fn discard(&self, first: usize, pages: usize) {
        let advice = Advice::LinuxDontNeed;
        // SAFETY: these addresses are this mapping's, and nothing in it is Rust memory.
        unsafe { rustix::mm::madvise(self.pointer(first), pages * page_bytes(), advice) }.unwrap();
    }

    /// Makes it larger, elsewhere if something is in the way.
    pub fn grown(self, pages: usize) -> Mapping {
        let (flags, bytes) = (MremapFlags::MAYMOVE, pages * page_bytes());
        // SAFETY: these addresses are this mapping's, and nothing in it is Rust memory.
        let start = unsafe { rustix::mm::mremap(self.pointer(0), self.bytes, bytes, flags) }.unwrap();
        std::mem::forget(self);
        Mapping { start: start as usize, bytes }
    }

    /// Moves all of it into other addresses of the test, whose pages go.
    pub fn moved_onto(self, to: Mapping) -> Mapping {
        assert_eq!(self.bytes, to.bytes);
        // SAFETY: both are mappings of the test, and nothing in them is Rust memory.
        unsafe {
            rustix::mm::mremap_fixed(self.pointer(0), self.bytes, self.bytes, MremapFlags::MAYMOVE, to.pointer(0))
        }
        .unwrap();
        std::mem::forget(self);
        to
    }

    /// Lets go of the pages at its end.
    pub fn shrink(&mut self, pages: usize) {
        let bytes = pages * page_bytes();
        // SAFETY: these addresses are this mapping's, and nothing in it is Rust memory.
        unsafe { rustix::mm::mremap(self.pointer(0), self.bytes, bytes, MremapFlags::empty()) }.unwrap();
        self.bytes = bytes;
    }

    /// Writes the first byte of a page.
    pub fn write(&self, page: usize, byte: u8) {
        memory().write_all_at(&[byte], self.page(page) as u64).unwrap();
    }

    fn pointer(&self, page: usize) -> *mut c_void {
        self.page(page) as *mut c_void
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these addresses are this mapping's; where nothing is mapped any more, nothing happens.
        unsafe { rustix::mm::munmap(self.pointer(0), self.bytes) }.unwrap();
    }
}

/// The first byte of each page; `None` if one is not mapped.
pub fn first_bytes(start: usize, bytes: usize) -> Option<Vec<u8>> {
    let memory = memory();
    let pages = (start..start + bytes).step_by(page_bytes());
    pages
        .map(|page| {
            let mut byte = [0];
            memory.read_exact_at(&mut byte, page as u64).ok().map(|()| byte[0])
        })
        .collect()
}

/// Our own memory as a file: what is not mapped gives an error.
fn memory() -> File {
    File::options().read(true).write(true).open("/proc/self/mem").unwrap()
}

fn access() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// Runs this in a child process, and says how it ended: 0 if it returned `true`.
pub fn in_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls nothing but the body, which the tests keep to what a child of many threads may do, and ends
    // without unwinding or running destructors.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: it ends the child, which has no use for anything after this.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the child is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}
