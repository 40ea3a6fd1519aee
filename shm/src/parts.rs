//! Where the parts of a node's segment lie.

use crate::area_state::AreaState;
use crate::cell::{CELLS_OF_SERVER, CELLS_PER_RANK, Cell};
use crate::combining::{ENTRIES, Entry, Seat};
use crate::counters::{PeerCounters, SETS};
use crate::eventcount::EventcountWord;
use crate::fastbox::{BOX_COUNT, Boxes, Fastbox, Turn};
use crate::flag_barrier::Lines;
use crate::in_use::CELLS_PER_WORD;
use crate::queue::QueueEnds;
use crate::segment::{PAGE_BYTES, SegmentError, page_aligned};
use crate::stripe::{STRIPE_COUNT, StripeWord};

/// The header is what lies first.
pub(crate) const HEADER_BYTES: u64 = 64;
/// Ranks of one node at most. Far above what a machine runs, and small enough that cells have 32-bit numbers.
pub const LOCAL_RANKS_MAX: u32 = 4096;

/// Sync areas of a node.
pub const SYNC_AREAS: u32 = 32;
/// Bytes of one slot of a sync area.
pub const SLOT_BYTES: usize = 4096;

/// One for mail, one for windows.
pub(crate) const EVENTCOUNTS_PER_RANK: u64 = 2;

/// Offsets of the parts, from the two numbers that they follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) world_ranks: u32,
    pub(crate) local_ranks: u32,
    pub(crate) eventcounts: u64,
    pub(crate) inboxes: u64,
    pub(crate) in_use: u64,
    pub(crate) stripes: u64,
    pub(crate) cells: u64,
    pub(crate) boxes: u64,
    /// Where the ranks meet.
    pub(crate) lines: u64,
    /// Where they combine updates: the words that are updated.
    pub(crate) entries: u64,
    /// Who waits for that.
    pub(crate) seats: u64,
    /// Who has the sync areas, and they.
    pub(crate) area_states: u64,
    pub(crate) areas: u64,
    /// From one sync area to the next one, and where its slots begin.
    pub(crate) areas_stride: u64,
    pub(crate) slots: u64,
    pub(crate) counters: u64,
    /// From one local rank's counters to the next one's.
    pub(crate) counters_stride: u64,
    pub(crate) bytes: u64,
}

impl Layout {
    pub(crate) fn new(world_ranks: u32, local_ranks: u32) -> Result<Layout, SegmentError> {
        if local_ranks > LOCAL_RANKS_MAX || local_ranks > world_ranks {
            return Err(SegmentError::TooLarge);
        }
        // With these bounds nothing overflows: the largest is 2^12 ranks x 2^32 peers x 2^8 bytes.
        let locals = u64::from(local_ranks);
        let eventcounts = HEADER_BYTES;
        let inboxes =
            (eventcounts + EVENTCOUNTS_PER_RANK * locals * size_of::<EventcountWord>() as u64).next_multiple_of(128);
        let in_use = inboxes + locals * size_of::<QueueEnds>() as u64;
        let stripes = in_use + (locals + 1) * IN_USE_BYTES;
        let stripes = stripes.next_multiple_of(64);
        let cells = (stripes + (STRIPE_COUNT * size_of::<StripeWord>()) as u64).next_multiple_of(PAGE_BYTES);
        let cells_bytes = u64::from(cell_count(local_ranks)) * size_of::<Cell>() as u64;
        let boxes = (cells + cells_bytes).next_multiple_of(PAGE_BYTES);
        let lines = boxes + locals * BOXES_STRIDE;
        let entries = lines + locals * size_of::<Lines>() as u64;
        let seats = entries + (ENTRIES * size_of::<Entry>()) as u64;
        let area_states = seats + locals * size_of::<Seat>() as u64;
        let areas = (area_states + u64::from(SYNC_AREAS) * size_of::<AreaState>() as u64).next_multiple_of(PAGE_BYTES);
        let slots = (locals * size_of::<Lines>() as u64).next_multiple_of(PAGE_BYTES);
        let areas_stride = (slots + locals * 2 * SLOT_BYTES as u64).next_multiple_of(PAGE_BYTES);
        let counters = areas + u64::from(SYNC_AREAS) * areas_stride;
        let counters_stride = PAGE_BYTES + SETS as u64 * peers_bytes(world_ranks);
        let bytes = counters + locals * counters_stride;
        Ok(Layout {
            world_ranks,
            local_ranks,
            eventcounts,
            inboxes,
            in_use,
            stripes,
            cells,
            boxes,
            lines,
            entries,
            seats,
            area_states,
            areas,
            areas_stride,
            slots,
            counters,
            counters_stride,
            bytes,
        })
    }
}

/// The bitmaps of one owner, on a line of their own. The server's four words fit too.
pub(crate) const IN_USE_BYTES: u64 = 64;
const _: () = assert!((CELLS_OF_SERVER / CELLS_PER_WORD) as u64 * 8 <= IN_USE_BYTES);

/// From the fastboxes of one receiver to those of the next one: who has them, on a page's first lines, then they.
pub(crate) const BOXES_STRIDE: u64 =
    (FIRST_BOX + (BOX_COUNT * size_of::<Fastbox>()) as u64).next_multiple_of(PAGE_BYTES);
pub(crate) const FIRST_BOX: u64 = 128;
/// Behind who has them, on the same page.
pub(crate) const TURN: u64 = 64;
const _: () = assert!(size_of::<Boxes>() as u64 <= TURN && TURN + size_of::<Turn>() as u64 <= FIRST_BOX);

pub(crate) fn cell_count(local_ranks: u32) -> u32 {
    local_ranks * CELLS_PER_RANK + CELLS_OF_SERVER
}

/// One set of counters of one rank.
pub(crate) fn peers_bytes(world_ranks: u32) -> u64 {
    let bytes = u64::from(world_ranks) * size_of::<PeerCounters>() as u64;
    page_aligned(bytes).expect("2^32 peers are far from the end of 64 bits")
}
