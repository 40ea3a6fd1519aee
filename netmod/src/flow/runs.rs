//! Memory as its owners show it to both directions: run by run, and how runs become packed bytes and back.

use bytes::BytesMut;
use longarm_memory::{Grid, Region, RegionMut, Step};
use longarm_proto::{Cursor, Row, Run};

/// How many regions one vectored call moves at most.
pub(super) const REGIONS_MAX: usize = 32;
/// Runs shorter than this on average are copied through a buffer rather than named one by one.
pub(super) const RUN_BYTES_MIN: u64 = 2 << 10;

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

/// Copies the next bytes of a cursor behind those that are there.
pub(super) fn pack(source: &impl RunSource, cursor: &mut Cursor, bytes: u64, out: &mut BytesMut) {
    let mut at = out.len();
    out.resize(at + bytes as usize, 0);
    while at < out.len() {
        let row = cursor.row((out.len() - at) as u64).expect("the cursor has at least the bytes asked for");
        let (span, first) = row.span();
        let target = RegionMut::from_slice(&mut out[at..at + row.bytes() as usize]);
        unpacking(&row, first).reversed().copy(target, source.region(span));
        at += row.bytes() as usize;
        cursor.pass(&row);
    }
}
