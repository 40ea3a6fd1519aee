//! The program's own global and static variables, which are symmetric too.
//!
//! At init the writable segment of the main program (its `.data` and `.bss`, without what the linker has made read-only) is
//! copied into a window, and the window's memory is mapped in its place. From then on a variable is memory that all PEs of
//! the node have mapped and the node's server reaches, as the heap is.
//!
//! ```text
//!   main program   │ text │ relro │ .data │ .bss          │
//!                                 └───────┴───────────────┘ mapped again: this PE's part of the window
//! ```
//!
//! Pages of `.bss` that were never touched are not copied, so a large one costs nothing. After `fork` the child gets a copy
//! of its own. Where it is switched off or refused there are no symmetric variables, and that is said.
//!
//! It refuses variables of shared libraries, as the specification does.

use std::ffi::{c_int, c_void};
use std::io::Error;

use longarm::face::sync::{AtomicUsize, Ordering};
use longarm::{Window, World};

use crate::boundary::or_end;

/// See the module.
pub(crate) struct Statics {
    pub(crate) window: Window<u8>,
    /// Where the segment of this PE begins.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// Turns it off.
const SWITCH: &str = "SHMEM_STATICS";
const PAGE: usize = 4096;

/// The segment, for the child of a fork. Numbers alone, set before the handler is.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The writable segment of the main program.
#[derive(Clone, Copy, Default)]
struct Span {
    start: usize,
    end: usize,
}

impl Statics {
    /// Collective. `None`, and a line on standard error, if it cannot be.
    pub(crate) fn new(name: &'static str, world: &World) -> Option<Statics> {
        let is_off = std::env::var(SWITCH).is_ok_and(|value| ["0", "off", "no"].contains(&value.as_str()));
        let span = if is_off { Span::default() } else { writable_segment() };
        let bytes = span.end - span.start;
        // All have to have the same program.
        let told = or_end(name, world.allgather_collective(&[bytes as u64]));
        if bytes == 0 || told.iter().any(|other| *other != bytes as u64) {
            if world.rank() == 0 && (is_off || bytes != 0) {
                let why = if is_off { "SHMEM_STATICS says so" } else { "the PEs run different programs" };
                eprintln!("longarm: global and static variables are not symmetric: {why}");
            }
            return None;
        }
        let window = or_end(name, world.allocate_collective::<u8>(bytes));
        let part = or_end(name, window.pointer_at(world.rank())).filter(|part| !part.is_null());
        let outcome = match part {
            Some(part) => replace(span, part),
            None => Err(Error::from(std::io::ErrorKind::NotFound)),
        };
        let failed = or_end(name, world.allgather_collective(&[u64::from(outcome.is_err())]));
        if failed.iter().any(|failed| *failed != 0) {
            if let Err(error) = outcome {
                eprintln!("longarm: rank {}: global and static variables are not symmetric: {error}", world.rank());
            }
            return None;
        }
        Some(Statics { window, start: span.start, bytes })
    }
}

/// Finds the segment by the program headers of the main program, which the loader lists first.
fn writable_segment() -> Span {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _bytes: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a description that lives through this call.
        let info = unsafe { &*info };
        // SAFETY: the loader says where the headers are, and how many.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let base = info.dlpi_addr as usize;
        let mut span = Span::default();
        let mut read_only_end = 0;
        for header in headers {
            let start = base + header.p_vaddr as usize;
            let end = start + header.p_memsz as usize;
            match header.p_type {
                libc::PT_LOAD if header.p_flags & libc::PF_W != 0 => {
                    span = Span { start: start / PAGE * PAGE, end: end.next_multiple_of(PAGE) };
                }
                libc::PT_GNU_RELRO => read_only_end = end / PAGE * PAGE,
                _ => {}
            }
        }
        span.start = span.start.max(read_only_end.min(span.end));
        // SAFETY: `found` is the span of `writable_segment`, which waits for this call.
        unsafe { found.cast::<Span>().write(span) };
        1 // Only the first is asked for.
    }
    let mut span = Span::default();
    // SAFETY: `look` does what the loader expects, and writes to `span`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut span).cast()) };
    span
}

/// Copies the segment into the part and maps the part in its place.
fn replace(span: Span, part: *mut u8) -> Result<(), Error> {
    let bytes = span.end - span.start;
    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(span.start);
    copy_touched(start, part, bytes);
    // A mapping of length 0 that is "moved" stays where it is, and its pages are mapped at the new place as well.
    // SAFETY: the part is a shared mapping of so many bytes, and the new place is the program's own segment, whose contents
    // the part has by now. Nothing of this library is in it: it writes to no variable of the main program meanwhile.
    let mapped = unsafe { libc::mremap(part.cast(), 0, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, start) };
    if mapped == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    START.store(span.start, Ordering::Relaxed);
    if BYTES.swap(bytes, Ordering::Relaxed) != 0 {
        // The process had a job before this one, and the handler with it.
        return Ok(());
    }
    // SAFETY: the handler is there as long as the process.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if refused == 0 { Ok(()) } else { Err(Error::from_raw_os_error(refused)) }
}

/// Copies the pages that have something in them.
fn copy_touched(from: *const u8, to: *mut u8, bytes: usize) {
    let touched = touched_pages(from.addr(), bytes / PAGE);
    for page in 0..bytes / PAGE {
        if touched.as_ref().is_some_and(|touched| !touched[page]) {
            continue;
        }
        let (from, to) = (from.wrapping_add(page * PAGE).cast::<u64>(), to.wrapping_add(page * PAGE).cast::<u64>());
        for word in 0..PAGE / 8 {
            // SAFETY: inside of the segment, which is mapped and readable.
            let value = unsafe { from.wrapping_add(word).read_volatile() };
            if value != 0 {
                // SAFETY: inside of the part, which is as large, and which nobody else knows yet.
                unsafe { to.wrapping_add(word).write_volatile(value) };
            }
        }
    }
}

/// Which pages are not the ones that have never been touched; `None` if the system does not say.
fn touched_pages(start: usize, pages: usize) -> Option<Vec<bool>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open("/proc/self/pagemap").ok()?;
    let mut entries = vec![0; pages * 8];
    file.read_exact_at(&mut entries, (start / PAGE * 8) as u64).ok()?;
    let file_end = file_backed_end(start, pages);
    let words = entries.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry));
    /// Present, or swapped out.
    const TOUCHED: u64 = 3 << 62;
    // Pages of the file may have contents that were never looked at.
    Some(words.enumerate().map(|(page, entry)| entry & TOUCHED != 0 || page < file_end).collect())
}

/// How many of the pages are mapped from the program's file.
fn file_backed_end(start: usize, pages: usize) -> usize {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return pages };
    let mut end = 0;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some((from, to)) = words.next().and_then(|range| range.split_once('-')) else { continue };
        let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else { continue };
        let inode = words.nth(3).unwrap_or("0");
        if from < start + pages * PAGE && to > start && inode != "0" {
            end = end.max((to.min(start + pages * PAGE) - start) / PAGE);
        }
    }
    end
}

/// After fork: the child's variables are its own.
unsafe extern "C" fn in_child() {
    let (start, bytes) = (START.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, anywhere.
    let copy = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if copy == libc::MAP_FAILED {
        return;
    }
    let from: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
    copy_words(from, copy.cast(), bytes);
    // SAFETY: the copy goes where the variables are, with the same contents; this thread is the child's only one.
    unsafe { libc::mremap(copy, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, from) };
}

/// Copies words that are not 0 into memory that is. Allocates nothing: it runs in a child of a fork.
fn copy_words(from: *const u8, to: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(8) {
        // SAFETY: inside of the segment, which is mapped.
        let value = unsafe { from.wrapping_add(at).cast::<u64>().read_volatile() };
        if value != 0 {
            // SAFETY: inside of the copy, which is as large.
            unsafe { to.wrapping_add(at).cast::<u64>().write_volatile(value) };
        }
    }
}
