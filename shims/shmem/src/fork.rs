//! After `fork` the child's variables are its own.
//!
//! They are copied before the fork: what the parent writes after it the child does not see. The child moves the copy to where
//! the variables are, the parent forgets it. Pages that nobody has ever touched are not copied.
//!
//! ```text
//!   prepare        copy <- the segment
//!   fork           both have the copy, and share the segment
//!   child          the copy is moved to the place of the segment
//!   parent         the copy is unmapped
//! ```
//!
//! It refuses nothing, but knows only of forks of the C library that run handlers.

use std::cell::Cell;
use std::ffi::c_void;
use std::io::Error;

use longarm::ffi::sync::{AtomicBool, AtomicUsize, Ordering};

use crate::pages::{PAGE, copy_words, move_mapping};

/// The segment. Numbers alone, set before the handlers are.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The copy that this thread has made, if it is about to fork. Not in the segment, as a static would be where this library
    /// is linked as an archive.
    static COPY: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
}

/// From now on a child gets a copy of this memory; before it is shared that changes nothing. What was copied before comes
/// back, for [`copy_this`].
pub(crate) fn handle(start: usize, bytes: usize) -> Result<(usize, usize), Error> {
    if !HAS_HANDLERS.load(Ordering::Relaxed) {
        // SAFETY: the handlers are there as long as the process.
        let refused = unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
        if refused != 0 {
            return Err(Error::from_raw_os_error(refused));
        }
        HAS_HANDLERS.store(true, Ordering::Relaxed);
    }
    let before = (START.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    copy_this((start, bytes));
    Ok(before)
}

/// What a child gets a copy of.
pub(crate) fn copy_this((start, bytes): (usize, usize)) {
    START.store(start, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
}

/// Whether this library's own variables are in a part of memory.
pub(crate) fn in_segment(start: usize, bytes: usize) -> bool {
    (&raw const START).addr().wrapping_sub(start) < bytes
}

/// Memory of our own, full of zeroes.
fn map(bytes: usize) -> Option<*mut c_void> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, anywhere.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped)
}

/// Whether no memory of the system is on disk: then what is not resident is nowhere.
fn is_all_in_memory() -> bool {
    // SAFETY: zeroes are such a description.
    let mut system = unsafe { std::mem::MaybeUninit::<libc::sysinfo>::zeroed().assume_init() };
    // SAFETY: it is writable.
    let is_told = unsafe { libc::sysinfo(&mut system) } == 0;
    is_told && system.freeswap == system.totalswap
}

/// Copies the pages that have something in them. Allocates nothing: a handler of a signal may fork.
fn copy_touched(from: *mut u8, to: *mut u8, bytes: usize) {
    let pages = bytes / PAGE;
    let resident = map(pages.max(1));
    // Pages of the segment that other processes have touched, or that were taken from this one's tables, are known to the
    // memory file alone, which this call asks. Pages on disk it does not know.
    let is_known = is_all_in_memory()
        && resident.is_some_and(|resident| {
            // SAFETY: the segment is mapped, and there is a byte for each of its pages.
            unsafe { libc::mincore(from.cast(), bytes, resident.cast()) == 0 }
        })
        && is_all_in_memory();
    for page in 0..pages {
        let is_touched = !is_known
            || resident.is_none_or(|resident| {
                // SAFETY: there is a byte for each page, which was written above.
                unsafe { resident.cast::<u8>().wrapping_add(page).read() & 1 != 0 }
            });
        if is_touched {
            copy_words(from.wrapping_add(page * PAGE), to.wrapping_add(page * PAGE), PAGE);
        }
    }
    if let Some(resident) = resident {
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(resident, pages.max(1)) };
    }
}

unsafe extern "C" fn prepare() {
    let (start, bytes) = (START.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let Some(copy) = map(bytes) else { return };
    copy_touched(std::ptr::with_exposed_provenance_mut(start), copy.cast(), bytes);
    COPY.set(copy);
}

unsafe extern "C" fn in_parent() {
    let copy = COPY.replace(std::ptr::null_mut());
    if !copy.is_null() {
        // SAFETY: the mapping made before the fork, which nobody else knows.
        unsafe { libc::munmap(copy, BYTES.load(Ordering::Relaxed)) };
    }
}

unsafe extern "C" fn in_child() {
    let copy = COPY.replace(std::ptr::null_mut());
    let (start, bytes) = (START.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    if bytes == 0 {
        return;
    }
    let start: *mut c_void = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the copy goes where the variables are, with the contents that they had; this thread is the child's only one.
    if copy.is_null() || unsafe { move_mapping(copy, (bytes, bytes), start) }.is_err() {
        const WHY: &str = "longarm: the system has no memory for the variables of the child of a fork, which ends\n";
        // SAFETY: so many bytes are readable.
        unsafe { libc::write(2, WHY.as_ptr().cast(), WHY.len()) };
        // SAFETY: a child that goes on would write to the variables of its parent.
        unsafe { libc::_exit(127) };
    }
}
