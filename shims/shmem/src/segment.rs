//! The writable segment of the main program: where it is, which program it belongs to, and how memory that the PEs of a node
//! share is mapped in its place.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;

use crate::fork;
use crate::hold::{Held, Undisturbed, has_handlers};
use crate::pages::{PAGE, copy_words, move_mapping};

/// The writable segment of the main program.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProgramData {
    pub(crate) start: usize,
    end: usize,
    /// A number that other programs do not have: of their headers, which hold the sizes of all parts, and of their notes,
    /// among which is the linker's number of the build.
    pub(crate) program: u64,
}

impl ProgramData {
    pub(crate) fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// Finds the segment by the program headers of the main program, which the loader lists first.
pub(crate) fn find() -> ProgramData {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _bytes: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a description that lives through this call.
        let info = unsafe { &*info };
        // SAFETY: the loader says where the headers are, and how many.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        // SAFETY: the headers are those of a program that is loaded at this address.
        let segment = unsafe { among(headers, info.dlpi_addr as usize) };
        // SAFETY: `found` is the segment of `find`, which waits for this call.
        unsafe { found.cast::<ProgramData>().write(segment) };
        1 // Only the first is asked for.
    }
    let mut segment = ProgramData::default();
    // SAFETY: `look` does what the loader expects, and writes to `segment`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut segment).cast()) };
    segment
}

/// # Safety
/// The headers are of a program that is loaded as they say, at `base`.
unsafe fn among(headers: &[libc::Elf64_Phdr], base: usize) -> ProgramData {
    let mut segment = ProgramData { program: FIRST_NUMBER, ..ProgramData::default() };
    let mut read_only_end = 0;
    for header in headers {
        let start = base + header.p_vaddr as usize;
        let end = start + header.p_memsz as usize;
        let numbers = [u64::from(header.p_type), header.p_vaddr, header.p_memsz, header.p_filesz];
        segment.program = numbers.iter().fold(segment.program, |sum, number| mixed(sum, *number));
        match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_W != 0 => {
                (segment.start, segment.end) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
            }
            libc::PT_GNU_RELRO => read_only_end = end / PAGE * PAGE,
            libc::PT_NOTE => {
                let notes: *const u8 = std::ptr::with_exposed_provenance(start);
                for at in 0..header.p_filesz as usize {
                    // SAFETY: notes are a part of the program that is loaded and that nobody writes to.
                    let byte = unsafe { notes.wrapping_add(at).read() };
                    segment.program = mixed(segment.program, u64::from(byte));
                }
            }
            _ => {}
        }
    }
    segment.start = segment.start.max(read_only_end.min(segment.end));
    segment
}

/// What an address is in that is no symmetric memory, as far as the loader knows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Memory that the main program does not write to once it runs: its code, and what is const.
    Constant,
    /// A library, by its file.
    Library(String),
    /// No file that the loader has mapped: the stack, or memory that was allocated.
    NoFile,
}

/// See [`Elsewhere`]. Of the main program only what lies outside of the segment is of interest.
pub(crate) fn where_else(address: usize) -> Elsewhere {
    struct Question {
        address: usize,
        objects: usize,
        answer: Elsewhere,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _bytes: usize, question: *mut c_void) -> c_int {
        // SAFETY: the loader passes a description that lives through this call.
        let info = unsafe { &*info };
        // SAFETY: `question` is that of `where_else`, which waits for this call and does not use it meanwhile.
        let question = unsafe { &mut *question.cast::<Question>() };
        // SAFETY: the loader says where the headers are, and how many.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let is_in = |header: &libc::Elf64_Phdr| {
            let offset = question.address.wrapping_sub(info.dlpi_addr as usize).wrapping_sub(header.p_vaddr as usize);
            header.p_type == libc::PT_LOAD && offset < header.p_memsz as usize
        };
        // The loader lists the main program first.
        let is_main = question.objects == 0;
        question.objects += 1;
        if !headers.iter().any(is_in) {
            return 0;
        }
        question.answer = if is_main {
            Elsewhere::Constant
        } else {
            // SAFETY: the loader gives the name as text of C that lives as long as the library.
            let file = unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) };
            Elsewhere::Library(file.to_string_lossy().into_owned())
        };
        1
    }
    let mut question = Question { address, objects: 0, answer: Elsewhere::NoFile };
    // SAFETY: `look` does what the loader expects, and writes to `question`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut question).cast()) };
    question.answer
}

/// Where the sum over a program begins: 0 stands for none.
const FIRST_NUMBER: u64 = 0xcbf2_9ce4_8422_2325;

/// A sum that tells sequences of numbers apart (Fowler, Noll and Vo's, a word at a time).
fn mixed(sum: u64, number: u64) -> u64 {
    ((sum ^ number).wrapping_mul(0x100_0000_01b3)).rotate_left(5)
}

/// How many threads the process has; one if the system does not say.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Copies the segment into the part and maps the part in its place. After an error everything is as it was, unless the system
/// takes the segment away and then does not map the part there: the end of the program. `is_shared`: threads of the program's
/// own are running.
pub(crate) fn replace(segment: &ProgramData, part: *mut u8, is_shared: bool) -> Result<(), Error> {
    let before = fork::handle(segment.start, segment.bytes())?;
    let replaced = copied_and_mapped(segment, part, is_shared);
    if replaced.is_err() {
        fork::copy_this(before);
    }
    replaced
}

fn copied_and_mapped(segment: &ProgramData, part: *mut u8, is_shared: bool) -> Result<(), Error> {
    let bytes = segment.bytes();
    let start: *mut u8 = std::ptr::with_exposed_provenance_mut(segment.start);
    // A mapping of length 0 that is "moved" stays where it is, and its pages are mapped at the new place as well. First to
    // some free place: what the system refuses it refuses now, while the segment is there.
    // SAFETY: the part is a shared mapping of so many bytes; no mapping is replaced.
    let again = unsafe { move_mapping(part.cast(), (0, bytes), std::ptr::null_mut()) }?;
    let mut pages = Pages::new(segment.start, bytes / PAGE);
    let undisturbed = Undisturbed::new();
    // This library's own threads write to its variables, which are in the segment if it is linked as an archive, and may be
    // the ones that run the handlers of the program.
    let is_library_here = fork::in_segment(segment.start, bytes);
    let held = if is_shared || is_library_here || has_handlers() { Some(Held::new(start, bytes)) } else { None };
    let mapped = held.transpose().and_then(|held| {
        // From here to `end` nothing is written to the segment; see `Held`.
        pages.look();
        pages.copy_touched(start, part);
        // SAFETY: the mapping is the one made just now, and the new place is the program's own segment, whose contents the
        // part has by now: nobody else has written to it.
        let mapped = unsafe { move_mapping(again, (bytes, bytes), start.cast()) };
        if let Some(held) = held {
            held.end(mapped.is_ok());
        }
        mapped
    });
    drop(undisturbed);
    if let Err(error) = mapped {
        // SAFETY: the mapping made above, which nobody knows.
        unsafe { libc::munmap(again, bytes) };
        return Err(error);
    }
    // Libraries that remember what of the memory they have registered with a device listen for this call. The pages of a
    // shared mapping keep what is in them.
    // SAFETY: see above.
    unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
    Ok(())
}

/// The pages of the segment, and what the system says of them.
struct Pages {
    start: usize,
    map: Option<File>,
    /// A word for each.
    entries: Vec<u8>,
    is_known: bool,
    /// How many are mapped from the program's file: these may have contents that were never looked at.
    of_file: usize,
}

impl Pages {
    /// Allocates what is needed, and calls what will be called.
    fn new(start: usize, count: usize) -> Pages {
        let map = File::open("/proc/self/pagemap").ok();
        let of_file = file_backed_end(start, count);
        let mut pages = Pages { start, map, entries: vec![0; count * 8], is_known: false, of_file };
        pages.look();
        pages
    }

    /// Asks the system. Allocates nothing.
    fn look(&mut self) {
        let from = (self.start / PAGE * 8) as u64;
        self.is_known = self.map.as_ref().is_some_and(|map| map.read_exact_at(&mut self.entries, from).is_ok());
    }

    /// Whether a page may have something in it.
    fn is_touched(&self, page: usize) -> bool {
        /// Present, or swapped out: the highest bits of an entry.
        const TOUCHED: u8 = 3 << 6;
        !self.is_known || page < self.of_file || self.entries[page * 8 + 7] & TOUCHED != 0
    }

    /// Copies the pages that have something in them. Allocates nothing.
    fn copy_touched(&self, from: *const u8, to: *mut u8) {
        for page in 0..self.entries.len() / 8 {
            if self.is_touched(page) {
                copy_words(from.wrapping_add(page * PAGE), to.wrapping_add(page * PAGE), PAGE);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::{Elsewhere, find, where_else};

    #[test]
    fn constants_library_memory_and_the_stack_are_told_apart() {
        static CONSTANT: [u64; 4] = [1, 2, 3, 4];
        let local = 0u8;
        assert_eq!(where_else((&raw const CONSTANT).addr()), Elsewhere::Constant);
        assert_eq!(where_else((&raw const local).addr()), Elsewhere::NoFile);
        assert_eq!(where_else(0), Elsewhere::NoFile);
        let of_library = libc::getpid as *const () as usize;
        let Elsewhere::Library(file) = where_else(of_library) else { panic!("getpid is in a library") };
        assert!(file.contains("libc"), "{file}");
    }

    #[test]
    fn the_segment_holds_what_the_program_writes_to() {
        static VARIABLE: std::sync::Mutex<u64> = std::sync::Mutex::new(7);
        let segment = find();
        let offset = (&raw const VARIABLE).addr().wrapping_sub(segment.start);
        assert!(offset < segment.bytes(), "{offset:#x} in {:#x}", segment.bytes());
    }
}
