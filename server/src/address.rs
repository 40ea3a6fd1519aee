//! Which addresses the ranks of this node map windows at.
//!
//! A C program hands the address of its memory to its neighbours on the node, who read and write there as if it were
//! theirs. So each window gets a range of addresses of its own, out of a region that processes leave free, and each
//! rank maps the window there. The server's own mapping is anywhere: its process is that of a rank, which needs the
//! range itself.
//!
//! A range is given out again when the window is freed, and then as late as can be: a rank may keep the mapping of a
//! freed window for a while, and there the next window of this range would have to go elsewhere.

use std::ops::Range;

use longarm_memory::Ranges;
use longarm_proto::JobId;

/// Ranges start at multiples of this: a large page, which is a multiple of every size of a page.
const GRAIN_BYTES: u64 = 2 << 20;

/// Ranges that are to be aligned start at multiples of up to this, so that memory in them can be aligned to as much.
const ALIGNMENT_BYTES_MAX: u64 = 1 << 30;

/// Between where programs and their heaps are mapped and where libraries and stacks are: `docs/src/decisions`, 0010.
#[cfg(target_arch = "x86_64")]
const REGION: Range<u64> = 0x1800_0000_0000..0x2a00_0000_0000;
#[cfg(not(target_arch = "x86_64"))]
const REGION: Range<u64> = 0x2c00_0000_0000..0x3e00_0000_0000;

/// See the module.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    ranges: Ranges,
    /// Where the range that was given last ends.
    next: u64,
}

impl AddressSpace {
    /// All of the region is free. Jobs begin at different places, for processes may be in one after the other, and keep
    /// mappings of the job before.
    pub(crate) fn of_job(job: JobId) -> AddressSpace {
        let grains = (REGION.end - REGION.start) / GRAIN_BYTES;
        AddressSpace { next: REGION.start + job.0 % grains * GRAIN_BYTES, ..AddressSpace::new(REGION) }
    }

    /// All of this region is free; it starts and ends at multiples of [`GRAIN_BYTES`].
    fn new(region: Range<u64>) -> AddressSpace {
        assert!(region.start.is_multiple_of(GRAIN_BYTES) && region.end.is_multiple_of(GRAIN_BYTES));
        AddressSpace { next: region.start, ranges: Ranges::new(region) }
    }

    /// Addresses for a window of this size. `None` if it has no bytes, or if there are not so many free in a row.
    ///
    /// `aligned`: at a multiple of a large power of two, while there is room. Not for all: other large memory of a process starts at
    /// such numbers too, and a processor whose first cache looks at some bits of an address only takes the one for the other, which
    /// makes a copy between them two to three times as slow (seen on an AMD EPYC, with 8 KiB).
    pub(crate) fn take(&mut self, bytes: u64, aligned: bool) -> Option<u64> {
        let taken_bytes = whole_grains(bytes).filter(|_| bytes > 0)?;
        let alignment = if aligned { alignment_of(taken_bytes) } else { GRAIN_BYTES };
        let places = [(self.next, alignment), (0, alignment), (0, GRAIN_BYTES)];
        let mut places = places.into_iter();
        let address = places.find_map(|(from, alignment)| self.ranges.take_first(from, alignment, taken_bytes))?;
        self.next = address + taken_bytes;
        Some(address)
    }

    /// What was taken for a window of this size is free again.
    pub(crate) fn give_back(&mut self, address: u64, bytes: u64) {
        let taken_bytes = whole_grains(bytes).expect("it was taken");
        self.ranges.release(address..address + taken_bytes).expect("a range is given back once");
    }
}

/// What a window takes: whole grains, and at least one byte more than it has, so that the address behind its last byte
/// is not the first of another window.
fn whole_grains(bytes: u64) -> Option<u64> {
    (bytes / GRAIN_BYTES).checked_add(1)?.checked_mul(GRAIN_BYTES)
}

/// What a range of so many bytes, which are whole grains, starts at a multiple of: the largest power of two that is no larger.
fn alignment_of(taken_bytes: u64) -> u64 {
    (1 << taken_bytes.ilog2()).min(ALIGNMENT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 64 * GRAIN_BYTES;
    const GRAINS: u64 = 16;

    fn small() -> AddressSpace {
        AddressSpace::new(START..START + GRAINS * GRAIN_BYTES)
    }

    #[test]
    fn a_freed_range_is_used_again_after_all_others() {
        let mut space = small();
        let first = space.take(1, true).unwrap();
        space.give_back(first, 1);
        let others: Vec<u64> = (1..GRAINS).map(|_| space.take(4096, true).unwrap()).collect();
        assert!(!others.contains(&first));
        assert_eq!(space.take(1, true), Some(first));
        assert_eq!(space.take(1, true), None);
        space.give_back(others[3], 4096);
        assert_eq!(space.take(1, true), Some(others[3]));
    }

    #[test]
    fn nothing_and_too_much_have_no_address() {
        let mut space = small();
        for bytes in [0, GRAINS * GRAIN_BYTES, u64::MAX - GRAIN_BYTES, u64::MAX] {
            assert_eq!(space.take(bytes, true), None);
        }
        assert_eq!(space.take(GRAINS * GRAIN_BYTES - 1, true), Some(START));
    }

    #[test]
    fn two_jobs_begin_at_different_addresses() {
        let first = |job| AddressSpace::of_job(JobId(job)).take(1, false).unwrap();
        assert_eq!(first(0), REGION.start);
        assert_eq!(first(3), REGION.start + 3 * GRAIN_BYTES);
        assert!(REGION.contains(&first(u64::MAX)));
    }

    #[test]
    fn large_ranges_start_at_multiples_of_large_numbers_while_there_is_room() {
        let mut space = AddressSpace::of_job(JobId(1));
        for (bytes, alignment) in [(1, GRAIN_BYTES), (5 * GRAIN_BYTES, 4 * GRAIN_BYTES), (5 << 30, ALIGNMENT_BYTES_MAX)]
        {
            assert!(space.take(bytes, true).unwrap().is_multiple_of(alignment), "{bytes} bytes");
        }
        let mut space = small();
        assert_eq!(space.take(1, true), Some(START));
        assert_eq!(space.take(4 * GRAIN_BYTES - 1, false), Some(START + GRAIN_BYTES), "it need not be aligned");
        space.give_back(START + GRAIN_BYTES, 4 * GRAIN_BYTES - 1);
        // 8 grains fit aligned, and what is left takes 7 only as it is.
        assert_eq!(space.take(8 * GRAIN_BYTES - 1, true), Some(START + 8 * GRAIN_BYTES));
        assert_eq!(space.take(7 * GRAIN_BYTES - 1, true), Some(START + GRAIN_BYTES));
    }

    #[test]
    fn the_whole_region_can_be_given_out() {
        let mut space = AddressSpace::of_job(JobId(17));
        assert_eq!(space.take(REGION.end - REGION.start - 1, true), Some(REGION.start));
        assert_eq!(space.take(1, true), None);
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_what_is_given_back_can_be_taken_again(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 1..6 * GRAIN_BYTES, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut space = small();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (take, aligned, bytes, which) in steps {
                if take {
                    let Some(address) = space.take(bytes, aligned) else { continue };
                    prop_assert!(address.is_multiple_of(GRAIN_BYTES) && address >= START);
                    prop_assert!(address + bytes < START + GRAINS * GRAIN_BYTES);
                    for &(other, other_bytes) in &taken {
                        prop_assert!(address + bytes < other || other + other_bytes < address);
                    }
                    taken.push((address, bytes));
                } else if !taken.is_empty() {
                    let (address, bytes) = taken.swap_remove(which.index(taken.len()));
                    space.give_back(address, bytes);
                }
            }
            for (address, bytes) in taken {
                space.give_back(address, bytes);
            }
            prop_assert_eq!(space.ranges, small().ranges);
        }
    }
}
