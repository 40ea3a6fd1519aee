//! Segments: sealed memfds and their mappings.
//!
//! A segment is made by one process and attached by others that were handed its descriptor. It has no name in a file
//! system, so a killed job leaves nothing behind. Its size is sealed before anybody else sees it: nobody can shrink it
//! under a mapping, which would turn an access into a signal.
//!
//! Pages exist once they are touched; a large, sparse segment costs nothing but address space. No swap is reserved.
//!
//! If a process dies, its mapping goes; the memory lives as long as one process has it open or mapped.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use longarm_memory::{Region, RegionMut};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

/// Why a segment could not be made or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The system made no memfd.
    #[error("cannot create shared memory: {0}")]
    Create(#[source] io::Error),
    /// The system did not give it the size.
    #[error("cannot make shared memory {bytes} bytes long: {source}")]
    Resize {
        /// The size asked for.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The system did not seal its size.
    #[error("cannot seal the size of shared memory: {0}")]
    Seal(#[source] io::Error),
    /// The descriptor's size or seals cannot be read: it is not a memfd.
    #[error("cannot inspect shared memory: {0}")]
    Inspect(#[source] io::Error),
    /// The system did not map it.
    #[error("cannot map {bytes} bytes of shared memory: {source}")]
    Map {
        /// The size of the mapping.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody could still change its size.
    #[error("shared memory was handed over without seals on its size")]
    NotSealed,
    /// It has another size than it has to have.
    #[error("shared memory has {found} bytes where {expected} were expected")]
    WrongSize {
        /// The size that follows from what is known.
        expected: u64,
        /// The size it has.
        found: u64,
    },
    /// More bytes, ranks or parts than can be addressed.
    #[error("the shared memory asked for is larger than can be addressed")]
    TooLarge,
    /// It does not begin as a node's segment does.
    #[error("shared memory begins with {found:#018x}, which is no segment of a node")]
    WrongMagic {
        /// The first eight bytes.
        found: u64,
    },
    /// It was made by another version of longarm.
    #[error("the node's segment has layout version {found}, and this is version {expected}")]
    WrongVersion {
        /// Our version.
        expected: u32,
        /// The version it has.
        found: u32,
    },
}

/// Bytes that are not all inside a segment. Nothing was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at offset {offset} are not inside a segment of {segment_bytes} bytes")]
pub struct OutsideSegment {
    /// Where they start.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
    /// The size of the segment.
    pub segment_bytes: u64,
}

/// Types of which shared memory may be made: any process may write any bits into them at any moment.
///
/// # Safety
///
/// The type is `repr(C)`, made of atomics only, without padding that matters, without pointers; every bit pattern is a
/// value of it.
pub(crate) unsafe trait Shared: Sync {}

/// A sealed memfd, mapped into this process.
#[derive(Debug)]
pub struct Segment {
    file: OwnedFd,
    /// `None` for 0 bytes, which cannot be mapped.
    map: Option<MmapRaw>,
    bytes: u64,
}

/// What keeps the size as it is, now and later.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Segment {
    /// Makes a segment of zeros. `name` is only shown in the list of a process's mappings.
    ///
    /// # Errors
    ///
    /// What the system refuses; [`SegmentError::TooLarge`] if this machine cannot address so many bytes.
    pub fn create(name: &str, bytes: u64) -> Result<Segment, SegmentError> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|error| SegmentError::Create(error.into()))?;
        rustix::fs::ftruncate(&file, bytes).map_err(|error| SegmentError::Resize { bytes, source: error.into() })?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|error| SegmentError::Seal(error.into()))?;
        Segment::map(file, bytes)
    }

    /// Maps a segment that another process made.
    ///
    /// # Errors
    ///
    /// [`SegmentError::NotSealed`] and [`SegmentError::Inspect`] if it is not what [`Segment::create`] makes; otherwise
    /// what the system refuses.
    pub fn attach(file: OwnedFd) -> Result<Segment, SegmentError> {
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|error| SegmentError::Inspect(error.into()))?;
        if !seals.contains(SEALS) {
            return Err(SegmentError::NotSealed);
        }
        let status = rustix::fs::fstat(&file).map_err(|error| SegmentError::Inspect(error.into()))?;
        let bytes = u64::try_from(status.st_size).map_err(|_| SegmentError::TooLarge)?;
        Segment::map(file, bytes)
    }

    fn map(file: OwnedFd, bytes: u64) -> Result<Segment, SegmentError> {
        let length = usize::try_from(bytes).map_err(|_| SegmentError::TooLarge)?;
        if length > isize::MAX as usize {
            return Err(SegmentError::TooLarge);
        }
        let map = if length == 0 {
            None
        } else {
            let map = MmapOptions::new().len(length).no_reserve_swap().map_raw(file.as_raw_fd());
            Some(map.map_err(|source| SegmentError::Map { bytes, source })?)
        };
        Ok(Segment { file, map, bytes })
    }

    /// The descriptor, to hand to another process of this node.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of its bytes, for reading.
    ///
    /// # Errors
    ///
    /// If they are not all inside.
    pub fn region(&self, offset: u64, bytes: u64) -> Result<Region<'_>, OutsideSegment> {
        self.region_mut(offset, bytes).map(RegionMut::as_region)
    }

    /// Some of its bytes.
    ///
    /// # Errors
    ///
    /// If they are not all inside.
    pub fn region_mut(&self, offset: u64, bytes: u64) -> Result<RegionMut<'_>, OutsideSegment> {
        if offset > self.bytes || bytes > self.bytes - offset {
            return Err(OutsideSegment { offset, bytes, segment_bytes: self.bytes });
        }
        // The casts lose nothing: `map` refused what does not fit.
        let start = self.start().wrapping_add(offset as usize);
        // SAFETY: the bytes are inside the mapping, checked above, which lives as long as `self`. References into it
        // are only made to atomics (`shared`), and a region's accesses are as atomic.
        Ok(unsafe { RegionMut::from_raw(start, bytes as usize) })
    }

    /// Where the mapping starts; a pointer that must not be used if there is none.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.map.as_ref().map_or(std::ptr::without_provenance_mut(PAGE_BYTES as usize), MmapRaw::as_mut_ptr)
    }

    /// Atomics that lie in the segment.
    ///
    /// # Panics
    ///
    /// If they are not inside or not aligned: the layout is our own.
    #[inline]
    pub(crate) fn shared<T: Shared>(&self, offset: u64, count: usize) -> &[T] {
        let bytes = count.checked_mul(size_of::<T>()).expect("the layout fits the address space");
        let region = self.region_mut(offset, bytes as u64).expect("the layout lies inside the segment");
        let start = region.as_mut_ptr().cast::<T>();
        assert!(start.is_aligned(), "the layout aligns what it holds");
        // SAFETY: `count` values are inside the mapping (checked by `region_mut`) and aligned (asserted), it lives as
        // long as `self`, every bit pattern is a value (`Shared`), and all accesses are atomic as `T` has only atomics.
        unsafe { std::slice::from_raw_parts(start, count) }
    }
}

/// Parts of segments that are touched by different ranks start at multiples of this.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The next multiple of a page, if there is one.
pub(crate) fn page_aligned(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

/// A lifetime that a mapping is borrowed for, by structures that keep raw pointers.
pub(crate) type Mapped<'a> = PhantomData<&'a Segment>;

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn duplicate(segment: &Segment) -> OwnedFd {
        segment.file().try_clone_to_owned().unwrap()
    }

    #[test]
    fn what_one_mapping_writes_another_one_reads() {
        let first = Segment::create("longarm-test", 10_000).unwrap();
        let second = Segment::attach(duplicate(&first)).unwrap();
        assert_eq!(second.bytes(), 10_000);
        first.region_mut(9_990, 10).unwrap().copy_from_slice(b"0123456789");
        let mut out = [0; 4];
        second.region(9_993, 4).unwrap().copy_to_slice(&mut out);
        assert_eq!(&out, b"3456");
    }

    #[test]
    fn bytes_outside_are_refused_also_when_their_end_wraps_around() {
        let segment = Segment::create("longarm-test", 100).unwrap();
        assert!(segment.region(0, 100).is_ok());
        assert!(segment.region(100, 0).is_ok());
        let refused = OutsideSegment { offset: 101, bytes: 0, segment_bytes: 100 };
        assert_eq!(segment.region(101, 0).unwrap_err(), refused);
        assert!(segment.region(1, 100).is_err());
        assert!(segment.region(u64::MAX, 2).is_err());
        assert!(segment.region(2, u64::MAX).is_err());
    }

    #[test]
    fn an_empty_segment_has_no_mapping_and_empty_regions() {
        let segment = Segment::create("longarm-test", 0).unwrap();
        assert!(segment.region(0, 0).unwrap().is_empty());
        assert!(segment.region(0, 1).is_err());
        assert_eq!(Segment::attach(duplicate(&segment)).unwrap().bytes(), 0);
    }

    #[test]
    fn a_large_segment_takes_no_memory_until_it_is_touched() {
        let segment = Segment::create("longarm-test", 4 << 30).unwrap();
        segment.region_mut((4 << 30) - 8, 8).unwrap().copy_from_slice(&7u64.to_ne_bytes());
        let blocks = rustix::fs::fstat(segment.file()).unwrap().st_blocks;
        assert!(blocks * 512 <= 2 << 20, "{blocks} blocks of 512 bytes exist");
    }

    #[test]
    fn an_unsealed_memfd_and_a_pipe_are_refused() {
        let open = rustix::fs::memfd_create("longarm-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert!(matches!(Segment::attach(open), Err(SegmentError::NotSealed)));
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(matches!(Segment::attach(pipe), Err(SegmentError::Inspect(_))));
    }

    #[test]
    fn nobody_can_change_the_size_afterwards() {
        let segment = Segment::create("longarm-test", 8192).unwrap();
        assert!(rustix::fs::ftruncate(segment.file(), 4096).is_err());
        assert!(rustix::fs::ftruncate(segment.file(), 16384).is_err());
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        assert!(Segment::create("longarm-test", 1 << 62).is_err());
        assert!(Segment::create("longarm-test", u64::MAX).is_err());
    }
}
