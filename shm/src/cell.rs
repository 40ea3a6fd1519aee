//! Cells: the fixed-size slots that messages travel in within a node.
//!
//! ```text
//!   ┌ 64 bytes ──────────────────────────┬ 4096 bytes ─┐
//!   │ next cell │ for whom │ cell head   │ payload     │
//!   └────────────────────────────────────┴─────────────┘
//! ```
//!
//! Each producer (a rank, or the node's server) owns a fixed set of cells, see `in_use`; how they travel is `inbox`'s.

use crate::in_use::CELLS_PER_WORD;
use crate::segment::Shareable;
use crate::sync::{AtomicU32, AtomicU64};

/// Bytes of payload in one cell.
pub const CELL_PAYLOAD_BYTES: usize = 4096;
/// Cells of each rank.
pub const CELLS_PER_RANK: u32 = 64;
/// Cells of the node's server, which sends on behalf of all other nodes.
pub const CELLS_OF_SERVER: u32 = 256;

const _: () = assert!(CELLS_PER_RANK == CELLS_PER_WORD && CELLS_OF_SERVER.is_multiple_of(CELLS_PER_WORD));

/// The kind of a cell with which a message begins; 0 is that of the others. What came of an older message of the same sender,
/// whose rest never came, is dropped.
pub const MESSAGE_BEGINS: u32 = 1;

/// What is known of a cell's payload.
///
/// `bytes` and `behind` are set by the queue; everything else means what sender and receiver agreed on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellHead {
    /// World rank of the sender.
    pub source: u32,
    /// Bytes of payload in this cell.
    pub bytes: u32,
    /// Bytes of the whole message that this cell is a part of.
    pub message_bytes: u64,
    /// [`MESSAGE_BEGINS`], or 0.
    pub kind: u32,
    /// Free for sender and receiver.
    pub tag: u32,
    /// Free for sender and receiver.
    pub words: [u64; 3],
    /// 0: the sender had no fastbox. Else bit 32, and below it how many messages it had put into its box before this cell.
    pub behind: u64,
}

const _: () = assert!(size_of::<CellHead>() == 56);
// No padding: the parts are as long as the whole.
const _: () = assert!(4 + 4 + 8 + 4 + 4 + 3 * 8 + 8 == size_of::<CellHead>());

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
unsafe impl Shareable for Cell {}

/// Where the head lies in a cell.
pub(crate) const HEAD_OFFSET: u64 = std::mem::offset_of!(Cell, head) as u64;
/// Where the payload lies in a cell.
pub(crate) const PAYLOAD_OFFSET: u64 = std::mem::offset_of!(Cell, payload) as u64;
const _: () = assert!(PAYLOAD_OFFSET == 64);
