//! Windows: the memory that ranks expose, as the ranks of the same node reach it.
//!
//! ```text
//!   NodeWindow, one memfd:   ┌ part 0 ──────┐┌ part 1 ┐┌ part 2 ──────────────┐
//!                            └──────────────┘└────────┘└──────────────────────┘   each starts on a page
//!   Window = one part:       offset 0 .. bytes
//! ```
//!
//! Memory that windows have one after the other has as much room for each part: `NodeWindow::again`.
//!
//! Bytes go in and out as copies through regions; words and elements are updated in place by CPU atomics or under a
//! stripe lock. There is no reference to a byte of a window anywhere: other processes write there at any moment.
//!
//! A window orders nothing by itself, save where a method says so. Callers order (quiet, fence, barrier).
//!
//! If a process dies in a copy, any part of the bytes may have arrived. Atomics on words are done or not done. An
//! accumulate may have updated any of its elements; see `stripe` for the one under the lock.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_proto::Rmw;

use crate::amo::{self, AmoError};
use crate::outside::OutsideWindow;
use crate::segment::{Mapped, Segment, SegmentError, page_aligned};
use crate::sync::{AtomicPtr, Ordering};

/// The parts of one window that belong to the ranks of this node, in one memfd.
#[derive(Debug)]
pub struct NodeWindow {
    /// Windows that have it one after the other share it.
    segment: Arc<Segment>,
    /// Where it starts, which never changes: one look less on the hot path.
    base: AtomicPtr<u8>,
    parts: Box<[Part]>,
    /// What each part has in it. `None`: its own pages.
    room: Option<u64>,
}

/// The largest part of a window whose memory other windows have after it.
const ROOM_BYTES_MAX: u64 = 16 << 20;
/// Of memory that is to be zeros again so many bytes are written to at most: where more was touched its pages go back to the system.
const WIPED_BYTES_MAX: u64 = 256 << 10;

#[derive(Clone, Copy, Debug)]
struct Part {
    /// Where it starts in the memfd: a multiple of a page.
    start: u64,
    bytes: u64,
}

impl NodeWindow {
    fn of(segment: Arc<Segment>, parts: Box<[Part]>, room: Option<u64>) -> NodeWindow {
        let base = AtomicPtr::new(segment.start());
        NodeWindow { segment, base, parts, room }
    }

    /// Makes the memory of all parts, zeroed. `part_bytes` has the size of each local rank's part; 0 is allowed.
    ///
    /// # Errors
    ///
    /// As [`Segment::create`].
    pub fn create(name: &str, part_bytes: &[u64]) -> Result<Self, SegmentError> {
        NodeWindow::create_with_room(name, part_bytes, None)
    }

    /// [`NodeWindow::create`] with this room for each part, as [`NodeWindow::room_for`] gives it.
    ///
    /// # Errors
    ///
    /// As there, and [`SegmentError::WrongSize`] if a part has no room.
    pub fn create_with_room(name: &str, part_bytes: &[u64], room: Option<u64>) -> Result<Self, SegmentError> {
        let (parts, total_bytes) = place(part_bytes, room)?;
        let segment = Segment::create(name, total_bytes)?;
        // The ranks have mappings of their own, which are dumped.
        segment.leave_out_of_dumps();
        Ok(NodeWindow::of(Arc::new(segment), parts, room))
    }

    /// How much room each part is to have, so that windows with parts of about these sizes can have the memory one after the other.
    /// `None`: the window has memory of its own, because it is large, or its parts are too different.
    pub fn room_for(part_bytes: &[u64]) -> Option<u64> {
        let largest = *part_bytes.iter().max()?;
        if largest == 0 || largest > ROOM_BYTES_MAX {
            return None;
        }
        let room = page_aligned(largest.next_power_of_two())?;
        // Room costs addresses only, but those are limited for some users.
        let needed: u64 = part_bytes.iter().filter_map(|bytes| page_aligned(*bytes)).sum();
        (room * part_bytes.len() as u64 <= 4 * needed).then_some(room)
    }

    /// Another window in the same memory, after this one is freed. `None`: its memory has no such room.
    pub fn again(&self, part_bytes: &[u64]) -> Option<NodeWindow> {
        let (parts, bytes) = place(part_bytes, Some(self.room?)).ok()?;
        (bytes == self.bytes()).then(|| NodeWindow::of(Arc::clone(&self.segment), parts, self.room))
    }

    /// The room of each part, in memory that other windows have later.
    pub fn room(&self) -> Option<u64> {
        self.room
    }

    /// Maps what another process made from the same `part_bytes`.
    ///
    /// # Errors
    ///
    /// As [`Segment::attach`], and [`SegmentError::WrongSize`] if it was made from other sizes.
    pub fn attach(file: OwnedFd, part_bytes: &[u64]) -> Result<Self, SegmentError> {
        NodeWindow::attach_at(file, part_bytes, None, None)
    }

    /// [`NodeWindow::attach`] of what was made with this room, at the address that the ranks of the node have agreed on, if nothing else is there in this
    /// process; else anywhere. [`NodeWindow::is_at`] tells.
    ///
    /// # Errors
    ///
    /// As [`NodeWindow::attach`].
    pub fn attach_at(
        file: OwnedFd,
        part_bytes: &[u64],
        room: Option<u64>,
        address: Option<u64>,
    ) -> Result<Self, SegmentError> {
        let (parts, expected) = place(part_bytes, room)?;
        let segment = Segment::attach_at(file, address)?;
        if segment.bytes() != expected {
            return Err(SegmentError::WrongSize { expected, found: segment.bytes() });
        }
        Ok(NodeWindow::of(Arc::new(segment), parts, room))
    }

    /// The descriptor, to hand to another process of this node.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.segment.file()
    }

    /// The size of all parts together, each up to the end of its last page.
    pub fn bytes(&self) -> u64 {
        self.segment.bytes()
    }

    /// Leaves this mapping out of a core dump: [`Segment::leave_out_of_dumps`].
    pub fn leave_out_of_dumps(&self) {
        self.segment.leave_out_of_dumps();
    }

    /// Gives the memory of all parts back to the system, whoever else has them mapped: [`Segment::give_back`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn give_back(&self) -> io::Result<()> {
        self.segment.give_back()
    }

    /// Makes zeros of all parts, for the next window: writes to them if few pages were touched, else gives those back. True if pages stay.
    ///
    /// # Panics
    ///
    /// If this process has attached it: only its maker does that.
    pub fn wipe(&self) -> bool {
        self.segment.wipe(WIPED_BYTES_MAX)
    }

    /// Whether part 0 starts at this address in this process, and so every part where it is in all processes that say
    /// the same. A window without bytes is nowhere.
    pub fn is_at(&self, address: u64) -> bool {
        self.segment.is_at(address)
    }

    /// How many parts there are: one for each rank of the node.
    #[inline]
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// The part of the local rank with this index.
    ///
    /// # Panics
    ///
    /// If there is no such part.
    #[inline]
    pub fn part(&self, index: usize) -> Window<'_> {
        let part = self.parts[index];
        // Relaxed: it was written before anybody had the window. The cast loses nothing: the whole segment is mapped.
        let base = self.base.load(Ordering::Relaxed).wrapping_add(part.start as usize);
        Window { base, bytes: part.bytes, start: part.start, mapped: PhantomData }
    }

    /// The size of a part.
    ///
    /// # Panics
    ///
    /// If there is no such part.
    #[inline]
    pub fn part_bytes(&self, index: usize) -> u64 {
        self.parts[index].bytes
    }
}

/// Where each part starts, and how long all are together, with what follows them in their room.
fn place(part_bytes: &[u64], room: Option<u64>) -> Result<(Box<[Part]>, u64), SegmentError> {
    let mut start = 0u64;
    let mut parts = Vec::with_capacity(part_bytes.len());
    for &bytes in part_bytes {
        parts.push(Part { start, bytes });
        if let Some(expected) = room.filter(|room| bytes > *room) {
            return Err(SegmentError::WrongSize { expected, found: bytes });
        }
        let whole = page_aligned(room.unwrap_or(bytes)).ok_or(SegmentError::TooLarge)?;
        start = start.checked_add(whole).ok_or(SegmentError::TooLarge)?;
    }
    Ok((parts.into_boxed_slice(), start))
}

/// The memory that one rank exposes.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Mapped for `bytes` bytes, aligned to 16 bytes at least.
    base: *mut u8,
    bytes: u64,
    /// Where it starts in the memfd, the same number in all processes: what stripe locks are chosen by.
    start: u64,
    mapped: Mapped<'a>,
}

// SAFETY: a window is a pointer to memory that stays mapped for 'a, which the `NodeWindow` it was borrowed from keeps.
// All accesses through it are copies of regions, which behave as relaxed atomics, or atomics.
unsafe impl Send for Window<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Window<'_> {}

/// One aligned word of 4 bytes of a window. Made by [`Window::word_u32`].
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// Mapped for 'a, and aligned.
    at: *mut u32,
    mapped: Mapped<'a>,
}

// SAFETY: as for `Window`. All accesses are atomics.
unsafe impl Send for Word<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Word<'_> {}

impl Word<'_> {
    /// As [`Window::compare_exchange_u32`], of this word.
    ///
    /// # Errors
    ///
    /// The value that was there, if it was another one. Nothing was changed.
    #[inline]
    pub fn compare_exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        // SAFETY: `Window::word_u32`, which alone makes words, checked that it is inside the window and aligned. The window is
        // mapped for the lifetime that this one has from it.
        unsafe { amo::compare_exchange_u32(self.at, from, to) }
    }
}

impl<'a> Window<'a> {
    /// A window that is the given memory, for tests of what is done to windows. `start` stands for its place in a memfd.
    #[cfg(test)]
    pub(crate) fn from_region(region: RegionMut<'a>, start: u64) -> Self {
        assert!(region.as_ptr().addr().is_multiple_of(16) && start.is_multiple_of(16));
        Window { base: region.as_mut_ptr(), bytes: region.len() as u64, start, mapped: PhantomData }
    }

    /// Its size.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where its first byte is mapped in this process. A part without bytes has an address all the same.
    #[inline]
    pub fn start_pointer(&self) -> *mut u8 {
        self.base
    }

    /// Some of its bytes, for reading.
    ///
    /// # Errors
    ///
    /// If they are not all inside.
    #[inline]
    pub fn region(&self, offset: u64, bytes: u64) -> Result<Region<'a>, OutsideWindow> {
        self.region_mut(offset, bytes).map(RegionMut::as_region)
    }

    /// Some of its bytes.
    ///
    /// # Errors
    ///
    /// If they are not all inside.
    #[inline]
    pub fn region_mut(&self, offset: u64, bytes: u64) -> Result<RegionMut<'a>, OutsideWindow> {
        if offset > self.bytes || bytes > self.bytes - offset {
            return Err(OutsideWindow { offset, bytes, window_bytes: self.bytes });
        }
        // The casts lose nothing: the window is mapped.
        let start = self.base.wrapping_add(offset as usize);
        // SAFETY: the bytes are inside the window, checked above, which is mapped for 'a; nobody makes references to
        // its bytes.
        Ok(unsafe { RegionMut::from_raw(start, bytes as usize) })
    }

    /// All of its bytes.
    #[inline]
    pub fn whole(&self) -> RegionMut<'a> {
        // SAFETY: the window is mapped for 'a; nobody makes references to its bytes. The cast loses nothing.
        unsafe { RegionMut::from_raw(self.base, self.bytes as usize) }
    }

    /// Does a read-modify-write and returns the old value, zero-extended from 4 bytes where the width is 4.
    ///
    /// It is in the one order of all read-modify-writes (SeqCst), see `amo`.
    ///
    /// # Errors
    ///
    /// [`AmoError`] if the word is not inside or not aligned. Nothing was touched.
    #[inline]
    pub fn rmw(&self, offset: u64, rmw: Rmw) -> Result<u64, AmoError> {
        let word = self.word(offset, rmw.width.bytes() as u64)?;
        // SAFETY: `word` checked that the word is inside the mapped window and aligned to its width.
        Ok(unsafe { amo::rmw(word, rmw) })
    }

    /// Reads a word of 4 bytes. PAIR: Acquire, with any atomic that wrote the value with Release.
    ///
    /// # Errors
    ///
    /// [`AmoError`] if the word is not inside or not aligned.
    #[inline]
    pub fn load_u32(&self, offset: u64) -> Result<u32, AmoError> {
        let word = self.word(offset, 4)?;
        // SAFETY: `word` checked that the word is inside the mapped window and aligned.
        Ok(unsafe { amo::load_u32(word.cast()) })
    }

    /// Reads a word of 8 bytes. PAIR: Acquire, with any atomic that wrote the value with Release.
    ///
    /// # Errors
    ///
    /// [`AmoError`] if the word is not inside or not aligned.
    #[inline]
    pub fn load_u64(&self, offset: u64) -> Result<u64, AmoError> {
        let word = self.word(offset, 8)?;
        // SAFETY: `word` checked that the word is inside the mapped window and aligned.
        Ok(unsafe { amo::load_u64(word.cast()) })
    }

    /// Stores `to` if the word of 4 bytes is `from`; gives the old value, in `Err` if it was another one.
    ///
    /// Sequentially consistent, as the word of a mutex needs it, which is what it is for.
    ///
    /// # Errors
    ///
    /// [`AmoError`] if the word is not inside or not aligned. Nothing was touched.
    #[inline]
    pub fn compare_exchange_u32(&self, offset: u64, from: u32, to: u32) -> Result<Result<u32, u32>, AmoError> {
        Ok(self.word_u32(offset)?.compare_exchange(from, to))
    }

    /// A word of 4 bytes, for callers that come back to it: the way to it is longer than what is done there.
    ///
    /// # Errors
    ///
    /// [`AmoError`] if the word is not inside or not aligned.
    #[inline]
    pub fn word_u32(&self, offset: u64) -> Result<Word<'a>, AmoError> {
        Ok(Word { at: self.word(offset, 4)?.cast(), mapped: self.mapped })
    }

    /// Where it starts in the memfd, in bytes: what stripe locks are chosen by.
    #[inline]
    pub(crate) fn place_bytes(&self) -> u64 {
        self.start
    }

    /// The address of an aligned word inside the window.
    #[inline]
    fn word(&self, offset: u64, bytes: u64) -> Result<*mut u8, AmoError> {
        // The window starts on a page, so an offset is as aligned as its address.
        if !offset.is_multiple_of(bytes) {
            return Err(AmoError::Misaligned { offset });
        }
        Ok(self.region_mut(offset, bytes)?.as_mut_ptr())
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use longarm_proto::{RmwOp, RmwWidth};

    fn add(operand: u64, width: RmwWidth) -> Rmw {
        Rmw { op: RmwOp::FetchAdd, width, operand, compare: 0 }
    }

    #[test]
    fn parts_are_apart_and_seen_by_who_attaches() {
        let sizes = [5000, 0, 16, 4096];
        let made = NodeWindow::create("longarm-test", &sizes).unwrap();
        let attached = NodeWindow::attach(made.file().try_clone_to_owned().unwrap(), &sizes).unwrap();
        assert_eq!(attached.part_count(), 4);
        for (index, &bytes) in sizes.iter().enumerate() {
            assert_eq!((made.part_bytes(index), made.part(index).bytes()), (bytes, bytes));
            let fill = vec![index as u8 + 1; bytes as usize];
            made.part(index).region_mut(0, bytes).unwrap().copy_from_slice(&fill);
        }
        for (index, &bytes) in sizes.iter().enumerate() {
            let mut seen = vec![0; bytes as usize];
            attached.part(index).region(0, bytes).unwrap().copy_to_slice(&mut seen);
            assert!(seen.iter().all(|&byte| byte == index as u8 + 1));
        }
    }

    #[test]
    fn other_sizes_are_refused_at_attach() {
        let made = NodeWindow::create("longarm-test", &[100, 100]).unwrap();
        let file = made.file().try_clone_to_owned().unwrap();
        let error = NodeWindow::attach(file, &[100]).unwrap_err();
        assert!(matches!(error, SegmentError::WrongSize { expected: 4096, found: 8192 }));
        assert!(matches!(NodeWindow::create("longarm-test", &[u64::MAX, 1]), Err(SegmentError::TooLarge)));
        assert!(matches!(NodeWindow::create("longarm-test", &[1 << 63, 1 << 63]), Err(SegmentError::TooLarge)));
    }

    #[test]
    fn one_window_after_the_other_has_memory_with_room_and_finds_zeros() {
        let pages = 3 << 20;
        for sizes in [[5000, 3], [pages, pages - 1]] {
            let room = NodeWindow::room_for(&sizes);
            let made = NodeWindow::create_with_room("longarm-test", &sizes, room).unwrap();
            let file = made.file().try_clone_to_owned().unwrap();
            let attached = NodeWindow::attach_at(file, &sizes, room, None).unwrap();
            for (part, &bytes) in sizes.iter().enumerate() {
                attached.part(part).whole().copy_from_slice(&vec![7; bytes as usize]);
            }
            assert_eq!(made.wipe(), sizes[0] < pages, "few pages stay");
            let swapped = [sizes[1], sizes[0] + 1];
            let (next_made, next) = (made.again(&swapped).unwrap(), attached.again(&swapped).unwrap());
            next.part(1).region_mut(sizes[0], 1).unwrap().copy_from_slice(&[9]);
            let mut seen = vec![1; swapped[1] as usize];
            next_made.part(1).region(0, swapped[1]).unwrap().copy_to_slice(&mut seen);
            assert_eq!(
                seen.iter().position(|byte| *byte != 0),
                Some(sizes[0] as usize),
                "zeros, then what was written"
            );
            assert_eq!(next_made.part(0).bytes(), swapped[0]);
            assert!(made.again(&[room.unwrap() + 1, 1]).is_none(), "no room");
            assert!(made.again(&[1]).is_none(), "another number of parts");
        }
    }

    #[test]
    fn large_windows_and_those_with_different_parts_have_memory_of_their_own() {
        assert_eq!(NodeWindow::room_for(&[1, 0]), Some(4096));
        assert_eq!(NodeWindow::room_for(&[8; 64]), Some(4096));
        assert_eq!(NodeWindow::room_for(&[5000, 8192, 8193]), Some(16384));
        assert_eq!(NodeWindow::room_for(&[0, 0]), None);
        assert_eq!(NodeWindow::room_for(&[ROOM_BYTES_MAX + 1]), None);
        assert_eq!(NodeWindow::room_for(&[1 << 20, 0, 0, 0, 0]), None);
        let own = NodeWindow::create("longarm-test", &[4096]).unwrap();
        assert!(own.again(&[4096]).is_none() && own.room().is_none());
    }

    #[test]
    fn a_window_of_no_bytes_refuses_every_byte() {
        let made = NodeWindow::create("longarm-test", &[0, 0]).unwrap();
        assert!(made.part(1).region(0, 0).unwrap().is_empty());
        assert!(made.part(1).region(0, 1).is_err());
        assert!(made.part(1).rmw(0, add(1, RmwWidth::W64)).is_err());
    }

    #[test]
    fn words_outside_or_misaligned_are_refused_and_untouched() {
        let made = NodeWindow::create("longarm-test", &[20]).unwrap();
        let window = made.part(0);
        let outside = AmoError::OutsideWindow { offset: 16, bytes: 8, window_bytes: 20 };
        assert_eq!(window.rmw(16, add(1, RmwWidth::W64)), Err(outside));
        assert_eq!(window.rmw(4, add(1, RmwWidth::W64)), Err(AmoError::Misaligned { offset: 4 }));
        assert_eq!(window.rmw(2, add(1, RmwWidth::W32)), Err(AmoError::Misaligned { offset: 2 }));
        assert!(window.load_u64(16).is_err());
        assert!(window.load_u32(20).is_err());
        assert!(window.load_u32(u64::MAX - 3).is_err());
        assert!(window.compare_exchange_u32(1, 0, 1).is_err());
        let mut seen = [1; 20];
        window.region(0, 20).unwrap().copy_to_slice(&mut seen);
        assert_eq!(seen, [0; 20]);
    }

    #[test]
    fn words_are_read_and_exchanged_in_place() {
        let made = NodeWindow::create("longarm-test", &[32]).unwrap();
        let window = made.part(0);
        assert_eq!(window.rmw(8, add(u64::MAX, RmwWidth::W64)), Ok(0));
        assert_eq!(window.load_u64(8), Ok(u64::MAX));
        assert_eq!(window.rmw(16, add(u64::MAX, RmwWidth::W32)), Ok(0));
        assert_eq!(window.rmw(16, add(0, RmwWidth::W32)), Ok(u64::from(u32::MAX)), "old values are zero-extended");
        assert_eq!(window.load_u64(16), Ok(u64::from(u32::MAX)), "the neighbour is untouched");
        assert_eq!(window.compare_exchange_u32(20, 0, 5), Ok(Ok(0)));
        assert_eq!(window.compare_exchange_u32(20, 0, 6), Ok(Err(5)));
        assert_eq!(window.load_u32(20), Ok(5));
        let word = window.word_u32(20).unwrap();
        assert_eq!((word.compare_exchange(5, 7), word.compare_exchange(5, 8)), (Ok(5), Err(7)));
        assert_eq!(window.load_u64(16), Ok(7 << 32 | u64::from(u32::MAX)), "the word before it is untouched");
        assert!(window.word_u32(30).is_err() && window.word_u32(32).is_err());
    }
}
