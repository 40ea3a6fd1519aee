//! The heap as its world keeps it, and which of its bytes are given out.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use longarm_client::ClientWindow;
use longarm_memory::Ranges;
use parking_lot::Mutex;

/// Every block starts at a multiple of this many bytes, a line of the cache.
///
/// ```
/// let world = longarm::init()?;
/// let heap = world.heap_collective()?;
/// let block = heap.allocate_collective(1)?;
/// assert!(block.offset().is_multiple_of(longarm::HEAP_ALIGNMENT));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub const HEAP_ALIGNMENT: usize = 64;

/// What all [`Heap`](super::Heap)s of a world share. The world keeps it, so it holds nothing that holds the world.
pub(super) struct Memory {
    pub(super) window: Arc<ClientWindow>,
    pub(super) blocks: Mutex<Blocks>,
    pub(super) heap_bytes: u64,
}

/// The heap as its world keeps it.
pub(crate) struct KeptHeap {
    pub(super) memory: Arc<Memory>,
    /// What was handed out, as long as somebody has it.
    pub(super) handed: Weak<dyn Any + Send + Sync>,
}

/// The blocks that are given out. The same calls give the same offsets on every rank.
#[derive(Debug)]
pub(super) struct Blocks {
    ranges: Ranges,
    /// Where each block ends, rounding included, by its offset.
    pub(super) taken: BTreeMap<usize, usize>,
}

impl Blocks {
    pub(super) fn new(bytes: usize) -> Blocks {
        Blocks { ranges: Ranges::new(0..bytes as u64), taken: BTreeMap::new() }
    }

    /// What a block takes. An empty one takes a line all the same, so that its offset is its own.
    fn need(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(HEAP_ALIGNMENT)
    }

    pub(super) fn take(&mut self, alignment: usize, bytes: usize) -> Option<usize> {
        let need = Blocks::need(bytes)?;
        let start = self.ranges.take_first(0, alignment as u64, need as u64)? as usize;
        self.taken.insert(start, start + need);
        Some(start)
    }

    pub(super) fn give_back(&mut self, offset: usize) -> Option<()> {
        let end = self.taken.remove(&offset)?;
        self.ranges.release(offset as u64..end as u64).expect("a block is taken until it is given back");
        Some(())
    }

    /// Makes a block longer or shorter where it is. False: that cannot be, and nothing has changed.
    pub(super) fn resize(&mut self, offset: usize, bytes: usize) -> bool {
        let Some((end, need)) = self.taken.get_mut(&offset).zip(Blocks::need(bytes)) else { return false };
        let Some(new_end) = offset.checked_add(need) else { return false };
        let (before, after) = (*end as u64, new_end as u64);
        let is_done = before == after
            || (before < after && self.ranges.take_at(before..after))
            || (after < before && self.ranges.release(after..before).is_ok());
        if is_done {
            *end = new_end;
        }
        is_done
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.ranges.free_length() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut blocks = Blocks::new(1 << 20);
        let offsets: Vec<usize> = [100, 4096, 1, 0, 70_000].map(|bytes| blocks.take(64, bytes).unwrap()).to_vec();
        assert!(offsets.is_sorted());
        for order in [3, 0, 4, 1, 2] {
            assert!(blocks.give_back(offsets[order]).is_some());
        }
        assert!(blocks.give_back(offsets[0]).is_none(), "a block is given back once");
        assert_eq!(blocks.free_bytes(), 1 << 20);
        assert_eq!(blocks.take(64, 1 << 20), Some(0), "in one piece");
    }

    #[test]
    fn a_block_grows_into_the_gap_behind_it_and_gives_back_what_it_does_not_need() {
        let mut blocks = Blocks::new(1 << 20);
        let (first, second) = (blocks.take(64, 100).unwrap(), blocks.take(64, 100).unwrap());
        assert!(!blocks.resize(first, 129), "the second block is behind it");
        assert!(blocks.resize(first, 128) && blocks.resize(first, 1));
        assert_eq!(blocks.free_bytes(), (1 << 20) - 64 - 128);
        assert!(blocks.resize(first, 128), "into what it gave back");
        assert!(blocks.resize(second, (1 << 20) - 128), "the rest of the heap");
        assert_eq!(blocks.free_bytes(), 0);
        assert!(!blocks.resize(second, 1 << 20) && !blocks.resize(second, usize::MAX) && !blocks.resize(64, 1));
        assert!(blocks.resize(second, 0));
        assert!(blocks.give_back(first).is_some() && blocks.give_back(second).is_some());
        assert_eq!((blocks.free_bytes(), blocks.take(64, 1 << 20)), (1 << 20, Some(0)));
    }

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let mut blocks = Blocks::new(1 << 20);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for (alignment, bytes) in [(64, 10), (4096, 10), (64, 3000), (65536, 1), (64, 64)] {
            let offset = blocks.take(alignment, bytes).unwrap();
            assert_eq!(offset % alignment, 0);
            for (other, other_bytes) in &taken {
                assert!(offset + bytes <= *other || other + other_bytes <= offset);
            }
            taken.push((offset, bytes));
        }
        assert_eq!(blocks.take(64, 1 << 20), None);
        assert_eq!(blocks.take(64, usize::MAX), None);
    }
}
