//! Which elements of a window or a buffer a strided or vector transfer means.

use longarm_proto::{LEVELS_MAX, Level, Run, Shape, ShapeError, Strided};

/// Dimensions of the largest patch.
///
/// ```
/// use longarm::{DIMENSIONS_MAX, Patch};
/// assert_eq!(Patch::packed(&[2; DIMENSIONS_MAX]).len(), 256);
/// ```
pub const DIMENSIONS_MAX: usize = 8;
const _: () = assert!(DIMENSIONS_MAX <= LEVELS_MAX);

/// A regular patch of up to 8 dimensions: element `(i, j, ..)` stands at `start + i·strides[0] + j·strides[1] + ..`.
///
/// The last dimension varies fastest, as in a row-major array. Strides count elements and may be zero or negative.
///
/// ```
/// use longarm::Patch;
/// // The 2 x 3 block at row 1, column 2 of a row-major array with 10 columns.
/// let block = Patch::block(&[2, 3], &[1, 2], &[10]);
/// assert_eq!(block, Patch::new(12, &[2, 3], &[10, 1]));
/// assert_eq!(block.len(), 6);
/// // A buffer of just these elements, and one of none.
/// assert_eq!(Patch::packed(&[2, 3]), Patch::new(0, &[2, 3], &[3, 1]));
/// assert!(Patch::packed(&[2, 0]).is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    start: usize,
    counts: Vec<usize>,
    strides: Vec<isize>,
}

impl Patch {
    /// From its parts; `counts` and `strides` have one entry a dimension.
    ///
    /// # Panics
    /// If they differ in length, or have none or more than [`DIMENSIONS_MAX`] entries.
    pub fn new(start: usize, counts: &[usize], strides: &[isize]) -> Patch {
        assert_eq!(counts.len(), strides.len(), "a patch has a count and a stride for each dimension");
        assert!((1..=DIMENSIONS_MAX).contains(&counts.len()), "a patch has 1 to {DIMENSIONS_MAX} dimensions");
        Patch { start, counts: counts.to_vec(), strides: strides.to_vec() }
    }

    /// The block of `counts` elements whose first is at `origin` of a row-major array. `leading` has the extents of
    /// all dimensions of the array but the first. A block of an array that no address space holds is no block of a window: its
    /// transfers are refused.
    ///
    /// # Panics
    /// As [`Patch::new`], and if `leading` does not have one entry less.
    pub fn block(counts: &[usize], origin: &[usize], leading: &[usize]) -> Patch {
        assert_eq!(counts.len(), origin.len(), "an origin has as many indices as the block has dimensions");
        assert_eq!(counts.len(), leading.len() + 1, "extents of all dimensions but the first");
        let mut strides = vec![1_isize; counts.len()];
        for dimension in (0..leading.len()).rev() {
            // What is too large stays too large, and lies outside of every window.
            let extent = isize::try_from(leading[dimension]).unwrap_or(isize::MAX);
            strides[dimension] = strides[dimension + 1].saturating_mul(extent);
        }
        let starts = origin.iter().zip(&strides).map(|(index, stride)| index.saturating_mul(stride.unsigned_abs()));
        let start = starts.fold(0, usize::saturating_add);
        Patch::new(start, counts, &strides)
    }

    /// The elements from the start of a packed buffer, in the same order.
    pub fn packed(counts: &[usize]) -> Patch {
        let origin = vec![0; counts.len()];
        Patch::block(counts, &origin, &counts[1..])
    }

    /// This patch of a rank's part, with that one of the buffer. Both have equally many elements, which are paired in
    /// row-major order.
    ///
    /// ```
    /// use longarm::Patch;
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u16>(6)?;
    /// let (every_second, backwards) = (Patch::new(0, &[3], &[2]), Patch::new(2, &[3], &[-1]));
    /// window.put(0, every_second.with_buffer(&backwards), &[1, 2, 3])?;
    /// assert_eq!(window.get_vec(0, 0..6)?, [3, 0, 2, 0, 1, 0]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn with_buffer<'a>(&'a self, buffer: &'a Patch) -> PatchPair<'a> {
        PatchPair { part: self, buffer }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.counts.iter().copied().fold(1, usize::saturating_mul)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.counts.contains(&0)
    }

    /// In bytes, for elements of this size.
    pub(crate) fn shape(&self, element_bytes: usize) -> Result<Shape, ShapeError> {
        let size = element_bytes as u64;
        let (mut levels, mut run_bytes) = (Vec::with_capacity(DIMENSIONS_MAX), size);
        for (dimension, (count, stride)) in self.counts.iter().zip(&self.strides).enumerate().rev() {
            if dimension == self.counts.len() - 1 && *stride == 1 {
                run_bytes = size.saturating_mul(*count as u64);
            } else {
                levels.push(Level { count: *count as u64, stride: (*stride as i64).saturating_mul(size as i64) });
            }
        }
        let offset = (self.start as u64).saturating_mul(size);
        Ok(Shape::Strided(Strided::new(offset, run_bytes, &levels)?.collapsed()))
    }
}

/// A patch of a rank's part and one of the buffer; see [`Patch::with_buffer`].
///
/// ```
/// use longarm::{Patch, PatchPair};
/// let (column, row) = (Patch::new(0, &[3], &[3]), Patch::packed(&[3]));
/// let gather: PatchPair<'_> = column.with_buffer(&row); // a column of the window, packed in the buffer
/// # let world = longarm::init()?;
/// # let window = world.allocate_collective::<u8>(9)?;
/// let mut buffer = [9; 3];
/// window.get(0, gather, &mut buffer)?;
/// assert_eq!(buffer, [0; 3]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchPair<'a> {
    pub(crate) part: &'a Patch,
    pub(crate) buffer: &'a Patch,
}

/// One piece of a vector transfer, in elements. Pieces without elements are passed over.
///
/// ```
/// use longarm::Segment;
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u8>(10)?;
/// let segments = [Segment { target: 8, origin: 0, count: 2 }, Segment { target: 0, origin: 2, count: 1 }];
/// window.put(0, &segments[..], &[1, 2, 3])?;
/// assert_eq!(window.get_vec(0, 0..10)?, [3, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First element in the target's part of the window.
    pub target: usize,
    /// First element in the origin's buffer.
    pub origin: usize,
    /// How many elements.
    pub count: usize,
}

/// Target and origin of a list of segments, in bytes.
pub(crate) fn vector_shapes(segments: &[Segment], element_bytes: usize) -> longarm_client::Shapes {
    let size = element_bytes as u64;
    let run = |start: usize, count: usize| Run {
        offset: (start as u64).saturating_mul(size),
        bytes: (count as u64).saturating_mul(size),
    };
    let full = segments.iter().filter(|segment| segment.count > 0);
    longarm_client::Shapes {
        target: Shape::Vector(full.clone().map(|segment| run(segment.target, segment.count)).collect()),
        origin: Shape::Vector(full.map(|segment| run(segment.origin, segment.count)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_an_array_beyond_all_addresses_lies_outside_of_every_window() {
        // Larger than any window may be.
        let is_far = |block: &Patch, element_bytes| match block.shape(element_bytes) {
            Ok(shape) => shape.end() > 1 << 62,
            Err(_) => true,
        };
        let far = Patch::block(&[2, 2, 2], &[3, 0, 0], &[1 << 40, 1 << 40]);
        assert!(is_far(&far, 8), "{far:?}");
        let origin_far = Patch::block(&[1, 1], &[1 << 40, 7], &[1 << 40]);
        assert!(is_far(&origin_far, 8), "{origin_far:?}");
        let extent = Patch::block(&[2, 1], &[0, 0], &[usize::MAX]);
        assert!(is_far(&extent, 1) && is_far(&extent, 8), "{extent:?}");
        // Where the rows are is of no account to a block within the first.
        let first_row = Patch::block(&[1, 1, 4], &[0, 0, 2], &[1 << 40, 1 << 40]);
        assert_eq!(first_row.shape(8), Patch::new(2, &[4], &[1]).shape(8));
        assert_eq!(Patch::new(0, &[1 << 40, 1 << 40], &[1, 1]).len(), usize::MAX);
    }
}
