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
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longarm_memory::{Region, RegionMut};
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::Resource;

use crate::mapping::Mapping;

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
pub(crate) unsafe trait Shareable: Sync {}

/// A sealed memfd, mapped into this process.
/// A process that attaches one keeps no descriptor of it.
#[derive(Debug)]
pub struct Segment {
    /// The maker keeps it, to hand it out. Others have the mapping, which needs no descriptor.
    file: Option<OwnedFd>,
    /// `None` for 0 bytes, which cannot be mapped.
    map: Option<Mapping>,
    bytes: u64,
}

fn zero(bytes: RegionMut<'_>) {
    const ZEROS: [u8; 4096] = [0; 4096];
    for start in (0..bytes.len()).step_by(ZEROS.len()) {
        let some = ZEROS.len().min(bytes.len() - start);
        bytes.slice(start, some).copy_from_slice(&ZEROS[..some]);
    }
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
        // Beyond this limit the system would not only refuse, but end the process by a signal.
        if rustix::process::getrlimit(Resource::Fsize).current.is_some_and(|limit| bytes > limit) {
            return Err(SegmentError::Resize { bytes, source: Errno::FBIG.into() });
        }
        rustix::fs::ftruncate(&file, bytes).map_err(|error| SegmentError::Resize { bytes, source: error.into() })?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|error| SegmentError::Seal(error.into()))?;
        let map = Segment::map(file.as_fd(), bytes, None)?;
        Ok(Segment { file: Some(file), map, bytes })
    }

    /// Maps a segment that another process made.
    ///
    /// # Errors
    ///
    /// [`SegmentError::NotSealed`] and [`SegmentError::Inspect`] if it is not what [`Segment::create`] makes; otherwise
    /// what the system refuses.
    pub fn attach(file: OwnedFd) -> Result<Segment, SegmentError> {
        Segment::attach_at(file, None)
    }

    /// [`Segment::attach`] at an address, a multiple of a page, if the segment fits there without being in the way of
    /// anything; else anywhere.
    ///
    /// # Errors
    ///
    /// As [`Segment::attach`].
    pub fn attach_at(file: OwnedFd, address: Option<u64>) -> Result<Segment, SegmentError> {
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|error| SegmentError::Inspect(error.into()))?;
        if !seals.contains(SEALS) {
            return Err(SegmentError::NotSealed);
        }
        let status = rustix::fs::fstat(&file).map_err(|error| SegmentError::Inspect(error.into()))?;
        let bytes = u64::try_from(status.st_size).map_err(|_| SegmentError::TooLarge)?;
        let map = Segment::map(file.as_fd(), bytes, address)?;
        Ok(Segment { file: None, map, bytes })
    }

    fn map(file: BorrowedFd<'_>, bytes: u64, address: Option<u64>) -> Result<Option<Mapping>, SegmentError> {
        let length = usize::try_from(bytes).map_err(|_| SegmentError::TooLarge)?;
        if length > isize::MAX as usize {
            return Err(SegmentError::TooLarge);
        }
        if length == 0 {
            return Ok(None);
        }
        let map = Mapping::new(file, length, address);
        Ok(Some(map.map_err(|source| SegmentError::Map { bytes, source })?))
    }

    /// The descriptor, to hand to another process of this node.
    ///
    /// # Panics
    ///
    /// If this process has attached the segment: only its maker hands it out.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("the maker of a segment hands it out").as_fd()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is mapped at this address in this process. A segment of 0 bytes is nowhere.
    pub fn is_at(&self, address: u64) -> bool {
        self.map.as_ref().is_some_and(|map| map.start().addr() as u64 == address)
    }

    /// Leaves this mapping out of a core dump, which would touch every page of it to write it down. What the system refuses
    /// is left as it is.
    pub fn leave_out_of_dumps(&self) {
        let Some(map) = &self.map else { return };
        // SAFETY: the mapping has so many bytes and lives as long as `self`; the advice changes nothing in it.
        let _ =
            unsafe { rustix::mm::madvise(map.start().cast(), self.bytes as usize, rustix::mm::Advice::LinuxDontDump) };
    }

    /// Gives all pages back to the system, whoever else has it mapped: it is zeros again, and takes no memory until it
    /// is touched. For a segment whose bytes nobody needs any more.
    ///
    /// # Errors
    ///
    /// What the system refuses. The pages then go with the last mapping.
    pub fn give_back(&self) -> io::Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        // SAFETY: the mapping has so many bytes and lives as long as `self`. Nobody has references to bytes of it except
        // to atomics, and to those the zeros are a store of another process.
        let given_back =
            unsafe { rustix::mm::madvise(map.start().cast(), self.bytes as usize, rustix::mm::Advice::LinuxRemove) };
        Ok(given_back?)
    }

    /// Makes zeros of it: where at most so many bytes were touched by writing to those, else by giving all pages back. True if it has
    /// pages still. For its maker.
    pub(crate) fn wipe(&self, written_bytes_max: u64) -> bool {
        let write = |run: &Range<u64>| {
            zero(self.region_mut(run.start, run.end - run.start).expect("what the system has of it is inside"));
        };
        match self.touched(written_bytes_max) {
            Some(runs) => {
                runs.iter().for_each(write);
                !runs.is_empty()
            }
            None if self.give_back().is_ok() => false,
            None => {
                write(&(0..self.bytes));
                true
            }
        }
    }

    /// The runs of pages that the system has of it, if they are no more than so many bytes.
    fn touched(&self, bytes_max: u64) -> Option<Vec<Range<u64>>> {
        let mut runs = Vec::new();
        let (mut from, mut bytes) = (0, 0);
        while from < self.bytes {
            let start = match rustix::fs::seek(self.file(), SeekFrom::Data(from)) {
                Ok(start) => start,
                // There is nothing behind.
                Err(Errno::NXIO) => break,
                Err(_) => from,
            };
            let end = rustix::fs::seek(self.file(), SeekFrom::Hole(start)).unwrap_or(self.bytes).min(self.bytes);
            bytes += end - start;
            if bytes > bytes_max {
                return None;
            }
            runs.push(start..end);
            from = end;
        }
        Some(runs)
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
        self.map.as_ref().map_or(std::ptr::without_provenance_mut(PAGE_BYTES as usize), Mapping::start)
    }

    /// Atomics that lie in the segment.
    ///
    /// # Panics
    ///
    /// If they are not inside or not aligned: the layout is our own.
    #[inline]
    pub(crate) fn shared<T: Shareable>(&self, offset: u64, count: usize) -> &[T] {
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

    /// Where no other test of this process maps anything.
    const ADDRESS: u64 = 0x2100_0000_0000;

    #[test]
    fn a_segment_is_mapped_where_it_is_wanted_until_it_is_dropped() {
        let made = Segment::create("longarm-test", 10_000).unwrap();
        for _ in 0..2 {
            let there = Segment::attach_at(duplicate(&made), Some(ADDRESS)).unwrap();
            assert!(there.is_at(ADDRESS) && !there.is_at(ADDRESS + 4096) && !made.is_at(ADDRESS));
            assert_eq!(there.region(77, 0).unwrap().as_ptr().addr() as u64, ADDRESS + 77);
        }
        made.region_mut(0, 3).unwrap().copy_from_slice(b"abc");
        let there = Segment::attach_at(duplicate(&made), Some(ADDRESS)).unwrap();
        let mut out = [0; 3];
        there.region(0, 3).unwrap().copy_to_slice(&mut out);
        assert_eq!(&out, b"abc");
    }

    #[test]
    fn a_range_that_is_taken_or_does_not_exist_is_left_alone_and_the_segment_is_mapped_elsewhere() {
        let taken = ADDRESS + (1 << 30);
        let [first, second] = [(); 2].map(|()| Segment::create("longarm-test", 3 * 4096).unwrap());
        let there = Segment::attach_at(duplicate(&first), Some(taken)).unwrap();
        there.region_mut(0, 5).unwrap().copy_from_slice(b"first");
        // The whole of it is taken, its end, no page of it can be mapped at all, and a page is not where pages are.
        for wanted in [taken, taken - 2 * 4096, 1 << 63, taken + (1 << 20) + 1] {
            let elsewhere = Segment::attach_at(duplicate(&second), Some(wanted)).unwrap();
            assert!(!elsewhere.is_at(wanted));
            elsewhere.region_mut(0, 6).unwrap().copy_from_slice(b"second");
        }
        let mut out = [0; 5];
        there.region(0, 5).unwrap().copy_to_slice(&mut out);
        assert!(there.is_at(taken) && &out == b"first");
        let mut out = [0; 6];
        second.region(0, 6).unwrap().copy_to_slice(&mut out);
        assert_eq!(&out, b"second");
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
        let there = Segment::attach_at(duplicate(&segment), Some(ADDRESS + (2 << 30))).unwrap();
        assert!(there.bytes() == 0 && !there.is_at(ADDRESS + (2 << 30)));
    }

    #[test]
    fn a_large_segment_takes_no_memory_until_it_is_touched() {
        let segment = Segment::create("longarm-test", 4 << 30).unwrap();
        segment.region_mut((4 << 30) - 8, 8).unwrap().copy_from_slice(&7u64.to_ne_bytes());
        let blocks = rustix::fs::fstat(segment.file()).unwrap().st_blocks;
        assert!(blocks * 512 <= 2 << 20, "{blocks} blocks of 512 bytes exist");
    }

    #[test]
    fn a_mapping_can_be_left_out_of_core_dumps() {
        /// What the kernel says of the mapping that starts here.
        fn flags(segment: &Segment) -> String {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let (_, from_here) = maps.split_once(&format!("{:x}-", segment.start().addr())).expect("it is mapped");
            from_here.lines().find(|line| line.starts_with("VmFlags:")).expect("every mapping has flags").to_owned()
        }
        let segment = Segment::create("longarm-test", 1 << 20).unwrap();
        assert!(!flags(&segment).contains(" dd"));
        segment.leave_out_of_dumps();
        assert!(flags(&segment).contains(" dd"));
    }

    #[test]
    fn a_segment_that_is_given_back_takes_no_memory_and_is_zeros_in_every_mapping() {
        let made = Segment::create("longarm-test", 1 << 20).unwrap();
        let there = Segment::attach(duplicate(&made)).unwrap();
        made.region_mut(0, 1 << 20).unwrap().copy_from_slice(&vec![7; 1 << 20]);
        there.give_back().unwrap();
        assert_eq!(rustix::fs::fstat(made.file()).unwrap().st_blocks, 0);
        let mut bytes = [1; 8];
        made.region(4096, 8).unwrap().copy_to_slice(&mut bytes);
        assert_eq!(bytes, [0; 8]);
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
