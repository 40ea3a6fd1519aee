//! Cells: the fixed-size slots that messages travel in within a node.
//!
//! ```text
//!   ┌ 64 bytes ──────────────────────────┬ 4096 bytes ─┐
//!   │ next cell │ for whom │ cell head   │ payload     │
//!   └────────────────────────────────────┴─────────────┘
//! ```
//!
//! Each producer (a rank, or the node's server) owns a fixed set of cells. Which of them are in use is a bitmap: the
//! producer alone sets bits, whoever has read a cell clears its bit. The lowest free cell is used first, so that few
//! cells, warm in the cache, serve a rank that sends little. The paper that the queues are from keeps free cells in a
//! queue of its kind; a bitmap has no state in between, so no death can break it, and all zeros means all free.
//!
//! PAIR cell-returned: the clearing of a cell's bit by the consumer (Release) and its owner's look at the bitmap
//! (Acquire). The consumer has read the cell before its owner writes it again.
//!
//! If a process dies: a cell that it was filling or reading stays in use for good; all others are as they were.

use crate::segment::Shared;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of payload in one cell.
pub const CELL_PAYLOAD_BYTES: usize = 4096;
/// Cells of each rank.
pub const CELLS_PER_RANK: u32 = 64;
/// Cells of the node's server, which sends on behalf of all other nodes.
pub const CELLS_OF_SERVER: u32 = 256;

/// Cells in one word of a bitmap.
pub(crate) const CELLS_PER_WORD: u32 = u64::BITS;
const _: () = assert!(CELLS_PER_RANK == CELLS_PER_WORD && CELLS_OF_SERVER.is_multiple_of(CELLS_PER_WORD));

/// What is known of a cell's payload.
///
/// `bytes` is set by the queue; everything else means what sender and receiver agreed on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellHead {
    /// World rank of the sender.
    pub source: u32,
    /// Bytes of payload in this cell.
    pub bytes: u32,
    /// Bytes of the whole message that this cell is a part of.
    pub message_bytes: u64,
    /// What the message is.
    pub kind: u32,
    /// Free for sender and receiver.
    pub tag: u32,
    /// Free for sender and receiver.
    pub words: [u64; 4],
}

const _: () = assert!(size_of::<CellHead>() == 56);
// No padding: the parts are as long as the whole.
const _: () = assert!(4 + 4 + 8 + 4 + 4 + 4 * 8 == size_of::<CellHead>());

/// A cell as it lies in the segment. Head and payload are only copied in and out, by regions.
#[repr(C, align(64))]
pub(crate) struct Cell {
    pub next: AtomicU32,
    /// The local rank it was pushed to, plus 1, from before it is enqueued until it has been read. Says to whom the
    /// cells of a dead producer were on their way.
    pub target: AtomicU32,
    head: [AtomicU64; size_of::<CellHead>() / 8],
    payload: [AtomicU64; CELL_PAYLOAD_BYTES / 8],
}

const _: () = assert!(size_of::<Cell>() == 64 + CELL_PAYLOAD_BYTES);

// SAFETY: `repr(C)`, atomics only, no padding (the sizes above add up to the whole).
unsafe impl Shared for Cell {}

/// Where the head lies in a cell.
pub(crate) const HEAD_OFFSET: u64 = std::mem::offset_of!(Cell, head) as u64;
/// Where the payload lies in a cell.
pub(crate) const PAYLOAD_OFFSET: u64 = std::mem::offset_of!(Cell, payload) as u64;
const _: () = assert!(PAYLOAD_OFFSET == 64);

/// 64 cells of one owner: which are in use. On a line of its own with its neighbours of the same owner.
#[repr(C)]
pub(crate) struct CellsInUse(AtomicU64);

// SAFETY: one atomic.
unsafe impl Shared for CellsInUse {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_given_once_and_the_lowest_free_one_first() {
        let cells = CellsInUse(AtomicU64::new(0));
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
