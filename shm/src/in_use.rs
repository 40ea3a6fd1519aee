//! Which cells of an owner are in use: a bitmap. The owner alone sets bits, whoever has read a cell clears its bit. The
//! lowest free cell is used first, so that few cells, warm in the cache, serve a rank that sends little. The paper that
//! the queues are from keeps free cells in a queue of its kind; a bitmap has no state in between, so no death can break
//! it, and all zeros means all free.
//!
//! PAIR cell-returned: the clearing of a cell's bit by the consumer (Release) and its owner's look at the bitmap
//! (Acquire). The consumer has read the cell before its owner writes it again.
//!
//! If a process dies: a cell that it was filling or reading stays in use for good; all others are as they were.

use crate::sync::{AtomicU64, Ordering};

/// Cells in one word of a bitmap.
pub const CELLS_PER_WORD: u32 = u64::BITS;

/// 64 cells of one owner: which are in use. On a line of its own with its neighbours of the same owner.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CellsInUse(AtomicU64);

impl CellsInUse {
    /// Takes the lowest free cell, if any is free. By the owner, one thread at a time.
    #[inline]
    pub fn take(&self) -> Option<u32> {
        // PAIR cell-returned: the consumer has read the cell.
        let used = self.0.load(Ordering::Acquire);
        let free = used.trailing_ones();
        if free == CELLS_PER_WORD {
            return None;
        }
        // Relaxed: only the owner sets bits, and it reads them by the line above.
        self.0.fetch_or(1 << free, Ordering::Relaxed);
        Some(free)
    }

    /// Gives a cell back. By whoever has read it.
    #[inline]
    pub fn give_back(&self, cell: u32) {
        // PAIR cell-returned.
        self.0.fetch_and(!(1 << cell), Ordering::Release);
    }

    /// Whether a cell is in use.
    pub fn is_used(&self, cell: u32) -> bool {
        self.0.load(Ordering::Acquire) & (1 << cell) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_given_once_and_the_lowest_free_one_first() {
        let cells = CellsInUse::default();
        for cell in 0..CELLS_PER_WORD {
            assert_eq!(cells.take(), Some(cell));
        }
        assert_eq!(cells.take(), None);
        cells.give_back(63);
        cells.give_back(7);
        assert!(!cells.is_used(7) && cells.is_used(8));
        assert_eq!((cells.take(), cells.take(), cells.take()), (Some(7), Some(63), None));
    }
}
