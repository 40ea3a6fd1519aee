//! Regions: bytes that other threads and other processes may write at any moment.
//!
//! ```text
//!   Region     pointer, length ──► copy out, hand to the kernel
//!   RegionMut  pointer, length ──► the same, and copy in
//! ```
//!
//! Neither ever becomes a reference to the bytes. Every access is a copy made by [`copy`], or by the kernel in a
//! system call; on the machine both act like relaxed atomic accesses of single bytes (or of whole words, see
//! [`copy`]), so that two of them at one place at the same time give torn bytes and never undefined behaviour. That is
//! why [`RegionMut`] may be `Copy`, `Send` and `Sync`: shared memory has no exclusive owner, and pretending otherwise
//! would promise what no process can keep.

use std::marker::PhantomData;

use crate::copy::copy;

/// Bytes that can be read while others write them.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    start: *const u8,
    bytes: usize,
    lifetime: PhantomData<&'a [u8]>,
}

/// Bytes that can be read and written while others read and write them.
///
/// `Copy` on purpose: shared memory has no exclusive owner.
#[derive(Clone, Copy, Debug)]
pub struct RegionMut<'a> {
    start: *mut u8,
    bytes: usize,
    lifetime: PhantomData<&'a [u8]>,
}

// SAFETY: a region is a pointer whose target stays mapped for 'a by the contract of `from_raw` (or by the borrow in
// `from_slice`). All accesses through it are copies that behave as relaxed atomic byte accesses, so using it from
// another thread adds no data race.
unsafe impl Send for Region<'_> {}
// SAFETY: as for `Send`; a shared region offers nothing that an owned one does not.
unsafe impl Sync for Region<'_> {}
// SAFETY: as for `Region`. Writes are relaxed atomic byte stores too, and nobody holds a reference to the bytes
// during 'a: `from_slice` borrows them exclusively and `from_raw` demands it.
unsafe impl Send for RegionMut<'_> {}
// SAFETY: as for `Send`; a shared region offers nothing that an owned one does not.
unsafe impl Sync for RegionMut<'_> {}

impl<'a> Region<'a> {
    /// The bytes of a slice, which nobody writes for as long as it is borrowed.
    #[inline]
    pub fn from_slice(slice: &'a [u8]) -> Self {
        Region { start: slice.as_ptr(), bytes: slice.len(), lifetime: PhantomData }
    }

    /// A region of `len` bytes from `ptr`.
    ///
    /// # Safety
    ///
    /// For all of `'a` those of the bytes that are copied are mapped and readable, and whoever writes them does it
    /// through a [`RegionMut`], by atomics, in another process or in the kernel: never through a plain Rust reference.
    /// Between the runs of a patch nothing needs to be mapped. If `len` is 0, any pointer will do.
    #[inline]
    pub const unsafe fn from_raw(ptr: *const u8, len: usize) -> Self {
        Region { start: ptr, bytes: len, lifetime: PhantomData }
    }

    /// How many bytes it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where it starts. Only for system calls and copies; never make a reference of it.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// The part that starts at `offset` and has `len` bytes.
    ///
    /// # Panics
    ///
    /// If the part is not inside the region.
    #[inline]
    pub fn slice(self, offset: usize, len: usize) -> Region<'a> {
        check_inside(self.bytes, offset, len);
        // `wrapping_add` equals `add` here, as the part is inside; it needs no unsafe.
        Region { start: self.start.wrapping_add(offset), bytes: len, lifetime: PhantomData }
    }

    /// Copies all bytes out.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    #[inline]
    pub fn copy_to_slice(self, target: &mut [u8]) {
        assert_same_length(self.bytes, target.len());
        // SAFETY: `self` is readable for its length by `from_raw`'s contract or by its borrow; `target` is ours and
        // has the same length, asserted above.
        unsafe { copy(target.as_mut_ptr(), self.start, self.bytes) };
    }

    /// Appends all bytes to `target`.
    #[inline]
    pub fn append_to(self, target: &mut Vec<u8>) {
        target.reserve(self.bytes);
        let room = target.spare_capacity_mut();
        // SAFETY: `self` is readable for its length by `from_raw`'s contract or by its borrow; `room` is ours, writable, and at least as
        // long, as it was reserved.
        unsafe { copy(room.as_mut_ptr().cast::<u8>(), self.start, self.bytes) };
        // SAFETY: so many bytes behind the old length were just written, and are within the capacity.
        unsafe { target.set_len(target.len() + self.bytes) };
    }
}

impl<'a> RegionMut<'a> {
    /// The bytes of a slice, which nobody else touches for as long as it is borrowed.
    #[inline]
    pub fn from_slice(slice: &'a mut [u8]) -> Self {
        RegionMut { start: slice.as_mut_ptr(), bytes: slice.len(), lifetime: PhantomData }
    }

    /// A region of `len` bytes from `ptr`.
    ///
    /// # Safety
    ///
    /// For all of `'a` those of the bytes that are copied are mapped, readable and writable, and whoever else touches
    /// them does it through a region, by atomics, in another process or in the kernel: never through a plain Rust
    /// reference. Between the runs of a patch nothing needs to be mapped. If `len` is 0, any pointer will do.
    #[inline]
    pub const unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        RegionMut { start: ptr, bytes: len, lifetime: PhantomData }
    }

    /// How many bytes it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where it starts. Only for system calls and copies; never make a reference of it.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// Where it starts, for writing. Only for system calls and copies; never make a reference of it.
    #[inline]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.start
    }

    /// The same bytes, for reading.
    #[inline]
    pub fn as_region(self) -> Region<'a> {
        Region { start: self.start, bytes: self.bytes, lifetime: PhantomData }
    }

    /// The part that starts at `offset` and has `len` bytes.
    ///
    /// # Panics
    ///
    /// If the part is not inside the region.
    #[inline]
    pub fn slice(self, offset: usize, len: usize) -> RegionMut<'a> {
        check_inside(self.bytes, offset, len);
        RegionMut { start: self.start.wrapping_add(offset), bytes: len, lifetime: PhantomData }
    }

    /// Copies all bytes out.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    #[inline]
    pub fn copy_to_slice(self, target: &mut [u8]) {
        self.as_region().copy_to_slice(target);
    }

    /// Copies all bytes of `source` in, also when the two overlap.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    #[inline]
    pub fn copy_from(self, source: Region<'_>) {
        assert_same_length(self.bytes, source.bytes);
        // SAFETY: both sides are valid for their length by `from_raw`'s contract or by their borrow, the lengths are
        // equal (asserted above), and `copy` allows overlap.
        unsafe { copy(self.start, source.start, self.bytes) };
    }

    /// Copies all bytes of `source` in.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    #[inline]
    pub fn copy_from_slice(self, source: &[u8]) {
        self.copy_from(Region::from_slice(source));
    }
}

#[inline]
fn check_inside(region_bytes: usize, offset: usize, len: usize) {
    if offset > region_bytes || len > region_bytes - offset {
        outside(region_bytes, offset, len);
    }
}

#[inline]
pub(crate) fn assert_same_length(target_bytes: usize, source_bytes: usize) {
    if target_bytes != source_bytes {
        different_lengths(target_bytes, source_bytes);
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside(region_bytes: usize, offset: usize, len: usize) -> ! {
    panic!("{len} bytes at offset {offset} are not inside a region of {region_bytes} bytes");
}

#[cold]
#[inline(never)]
#[track_caller]
fn different_lengths(target_bytes: usize, source_bytes: usize) -> ! {
    panic!("cannot copy {source_bytes} bytes into a region of {target_bytes} bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_copied_in_come_out_again() {
        let mut memory = [0u8; 32];
        let region = RegionMut::from_slice(&mut memory);
        region.slice(3, 5).copy_from_slice(b"hello");
        let mut out = [0u8; 7];
        region.as_region().slice(2, 7).copy_to_slice(&mut out);
        assert_eq!(&out, b"\0hello\0");
        assert_eq!(&memory[..9], b"\0\0\0hello\0");
    }

    #[test]
    fn an_overlapping_copy_keeps_the_bytes_of_the_source() {
        let mut memory: Vec<u8> = (0..200).collect();
        let region = RegionMut::from_slice(&mut memory);
        region.slice(10, 150).copy_from(region.as_region().slice(0, 150));
        let expected: Vec<u8> = (0..10).chain(0..150).chain(160..200).collect();
        assert_eq!(memory, expected);
    }

    #[test]
    fn a_part_at_the_very_end_may_be_empty() {
        let memory = [1u8; 4];
        assert!(Region::from_slice(&memory).slice(4, 0).is_empty());
    }

    #[test]
    #[should_panic(expected = "not inside a region of 4 bytes")]
    fn a_part_that_reaches_over_the_end_panics() {
        let memory = [1u8; 4];
        let _ = Region::from_slice(&memory).slice(2, 3);
    }

    #[test]
    #[should_panic(expected = "not inside a region of 4 bytes")]
    fn an_offset_that_would_wrap_around_panics() {
        let memory = [1u8; 4];
        let _ = Region::from_slice(&memory).slice(usize::MAX, 2);
    }

    #[test]
    #[should_panic(expected = "cannot copy 3 bytes into a region of 4 bytes")]
    fn a_copy_of_another_length_panics() {
        let mut memory = [1u8; 4];
        RegionMut::from_slice(&mut memory).copy_from_slice(&[0; 3]);
    }
}
