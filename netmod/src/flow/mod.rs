//! Streams between a link and memory: what both ends of a conversation do with bytes.
//!
//! - [`Outgoing`]: frames wait in a few byte buffers, large payloads stay where they are and are named by a cursor;
//!   one vectored send takes both.
//! - [`Incoming`]: one receive brings many small frames into a buffer; what is missing of a large payload is
//!   received straight into the memory it is meant for.
//!
//! Both move bytes only: what a frame means is not known here.

mod costs;
mod incoming;
mod outgoing;

use longarm_memory::{Grid, Region, RegionMut, Step};
use longarm_proto::{Row, Run};

pub use costs::Costs;
pub use incoming::{INCOMING_BYTES, Incoming};
pub use outgoing::Outgoing;

/// How many regions one vectored call moves at most.
const REGIONS_MAX: usize = 32;
/// Runs shorter than this on average are copied through a buffer rather than named one by one.
const RUN_BYTES_MIN: u64 = 2 << 10;

/// Memory that a payload is read from. Runs were checked before a cursor over them was made.
pub trait RunSource {
    /// The bytes of one run.
    fn region(&self, run: Run) -> Region<'_>;
}

/// Memory that a payload is written to. Runs were checked before a cursor over them was made.
pub trait RunTarget {
    /// The bytes of one run.
    fn region_mut(&self, run: Run) -> RegionMut<'_>;
}

/// The grid that spreads packed bytes over a row whose first run starts at `offset` of the target's region. Reversed, it packs.
///
/// ```
/// use longarm_memory::{Region, RegionMut};
/// use longarm_netmod::flow::unpacking;
/// use longarm_proto::{Row, Run};
///
/// let row = Row { run: Run { offset: 0, bytes: 2 }, count: 2, stride: 3 };
/// let mut target = *b"-----";
/// unpacking(&row, 0).copy(RegionMut::from_slice(&mut target), Region::from_slice(b"abcd"));
/// assert_eq!(&target, b"ab-cd");
/// ```
pub fn unpacking(row: &Row, offset: u64) -> Grid {
    let run_bytes = row.run.bytes as usize;
    let mut grid = Grid::new(run_bytes, offset as usize, 0);
    let step =
        Step { count: row.count as usize, target_stride: row.stride as isize, source_stride: run_bytes as isize };
    assert!(grid.repeat(step), "a grid has room for one step");
    grid
}
