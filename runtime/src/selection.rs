//! Which elements a transfer means: one argument for what is contiguous, strided, or a list of pieces.

use std::ops::{Range, RangeFrom};

use longarm_client::{Operation, Shapes, TransferError};
use longarm_proto::{Rank, Run, Shape, ShapeError};

use crate::patch::{Patch, PatchPair, Segment, vector_shapes};

/// Which elements of a rank's part a transfer means, and which elements of the buffer they are paired with. Every `put`,
/// `get` and `accumulate` of a [`Window`](crate::Window) and of a [`Scope`](crate::Scope) takes one, and so does its `start_` form. A
/// put with a signal and [`Exposed`](crate::Exposed) take an index.
///
/// | selection | elements of the part | elements of the buffer |
/// |---|---|---|
/// | `5`, `5..` | from index 5 on | all, however many there are |
/// | `5..9` | 5, 6, 7, 8 | all; there have to be as many |
/// | `&patch` | those of the [`Patch`], in row-major order | all; there have to be as many |
/// | `patch.with_buffer(&other)` | those of the [`Patch`] | those of the other, equally many |
/// | `&segments` | each [`Segment`] says where | each says where |
///
/// ```
/// use longarm::prelude::*;
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<i32>(100)?; // also a matrix, 10 rows of 10
/// window.put(0, 5, &[1, 2, 3])?;
/// window.put(0, 20..22, &[4, 5])?;
/// window.put(0, &Patch::block(&[2, 2], &[7, 7], &[10]), &[6, 7, 8, 9])?; // a block of the matrix
/// window.put(0, &[Segment { target: 0, origin: 1, count: 1 }], &[10, 11])?; // only the 11, to index 0
/// assert_eq!(window.get_vec(0, 5..8)?, [1, 2, 3]);
/// let column = Patch::new(7, &[10], &[10]); // column 7
/// assert_eq!(window.get_vec(0, &column)?, [3, 0, 0, 0, 0, 0, 0, 6, 8, 0]);
/// assert_eq!(window.get_one(0, 0)?, 11);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// Only longarm's own types implement it.
pub trait Selection: sealed::Select {}

/// A [`Selection`] that says how many elements it means, and takes them in a row from the buffer: a range or a patch.
///
/// ```
/// use longarm::prelude::*;
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u8>(9)?;
/// assert_eq!(window.get_vec(0, 2..5)?.len(), 3);
/// assert_eq!(window.get_vec(0, &Patch::new(0, &[3], &[4]))?.len(), 3);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// An index has no extent; it reaches as far as the buffer does:
///
/// ```compile_fail,E0277
/// # let world = longarm::init()?;
/// # let window = world.allocate_collective::<u8>(9)?;
/// window.get_vec(0, 2)?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub trait Extent: Selection + sealed::Count {}

pub(crate) use sealed::{Count, Select, Selected, Transfer};

mod sealed {
    use super::{Operation, Shapes, TransferError};

    /// What a selection comes to, in bytes.
    #[expect(
        clippy::large_enum_variant,
        reason = "it is made and taken apart in one call, which a box would make allocate"
    )]
    pub enum Selected {
        /// All of the buffer, and as many bytes of the part from this offset on.
        Run(u64),
        /// Anything else.
        Shapes(Shapes),
    }

    /// For what, for the message of an error.
    #[derive(Clone, Copy)]
    pub struct Transfer {
        /// What is called.
        pub operation: Operation,
        /// For whom.
        pub rank: u32,
        /// Size of an element.
        pub element_bytes: usize,
        /// Elements of the buffer.
        pub count: usize,
    }

    /// How a selection is read.
    pub trait Select {
        /// From which element on, if it is a run of as many as the buffer has. Everything else, and what is wrong, is for
        /// `select`: calls that are made millions of times carry none of that along.
        #[inline]
        fn index(&self, _count: usize) -> Option<usize> {
            None
        }

        /// The bytes that are meant.
        fn select(&self, transfer: Transfer) -> Result<Selected, TransferError>;
    }

    /// How many elements are meant.
    pub trait Count {
        /// So many.
        fn count(&self) -> usize;
    }
}

impl Transfer {
    fn bad(&self, reason: ShapeError) -> TransferError {
        TransferError::BadShape { operation: self.operation, rank: Rank(self.rank), reason }
    }

    fn buffer_bytes(&self) -> u64 {
        (self.count as u64).saturating_mul(self.element_bytes as u64)
    }

    /// The buffer has as many elements as are meant.
    #[inline]
    fn fits(&self, remote_bytes: u64) -> Result<(), TransferError> {
        let local_bytes = self.buffer_bytes();
        if local_bytes == remote_bytes {
            return Ok(());
        }
        let Transfer { operation, rank, .. } = *self;
        Err(TransferError::LengthMismatch { operation, rank: Rank(rank), local_bytes, remote_bytes })
    }

    /// Bytes to an element. Too large a number is outside every window, as it should be.
    #[inline]
    fn offset(&self, index: usize) -> u64 {
        (index as u64).saturating_mul(self.element_bytes as u64)
    }
}

impl Selected {
    /// As shapes, for a buffer of this many bytes.
    pub(crate) fn shapes(self, buffer_bytes: usize) -> Shapes {
        match self {
            Selected::Run(offset) => Shapes::contiguous(Run { offset, bytes: buffer_bytes as u64 }),
            Selected::Shapes(shapes) => shapes,
        }
    }
}

impl Selection for usize {}
impl Select for usize {
    #[inline]
    fn index(&self, _count: usize) -> Option<usize> {
        Some(*self)
    }

    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        Ok(Selected::Run(transfer.offset(*self)))
    }
}

impl Selection for RangeFrom<usize> {}
impl Select for RangeFrom<usize> {
    #[inline]
    fn index(&self, _count: usize) -> Option<usize> {
        Some(self.start)
    }

    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        self.start.select(transfer)
    }
}

impl Selection for Range<usize> {}
impl Extent for Range<usize> {}
impl Select for Range<usize> {
    #[inline]
    fn index(&self, count: usize) -> Option<usize> {
        (self.count() == count).then_some(self.start)
    }

    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        transfer.fits(transfer.offset(self.count()))?;
        self.start.select(transfer)
    }
}
impl Count for Range<usize> {
    #[inline]
    fn count(&self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

impl Selection for &Patch {}
impl Extent for &Patch {}
impl Select for &Patch {
    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        let target = self.shape(transfer.element_bytes).map_err(|reason| transfer.bad(reason))?;
        transfer.fits(target.bytes())?;
        let origin = Shape::Contiguous(Run { offset: 0, bytes: target.bytes() });
        Ok(Selected::Shapes(Shapes { target, origin }))
    }
}
impl Count for &Patch {
    fn count(&self) -> usize {
        self.len()
    }
}

impl Selection for PatchPair<'_> {}
impl Select for PatchPair<'_> {
    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        let shape = |patch: &Patch| patch.shape(transfer.element_bytes).map_err(|reason| transfer.bad(reason));
        Ok(Selected::Shapes(Shapes { target: shape(self.part)?, origin: shape(self.buffer)? }))
    }
}

impl Selection for &[Segment] {}
impl Select for &[Segment] {
    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        let Shapes { target, origin } = vector_shapes(self, transfer.element_bytes);
        // One segment is a run: the shortest way.
        Ok(Selected::Shapes(match (target, origin) {
            (Shape::Vector(target), Shape::Vector(origin)) if target.len() == 1 => {
                Shapes { target: Shape::Contiguous(target[0]), origin: Shape::Contiguous(origin[0]) }
            }
            (target, origin) => Shapes { target, origin },
        }))
    }
}

impl<const COUNT: usize> Selection for &[Segment; COUNT] {}
impl<const COUNT: usize> Select for &[Segment; COUNT] {
    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        self.as_slice().select(transfer)
    }
}

impl Selection for &Vec<Segment> {}
impl Select for &Vec<Segment> {
    fn select(&self, transfer: Transfer) -> Result<Selected, TransferError> {
        self.as_slice().select(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(selection: impl Selection, count: usize) -> Result<Shapes, TransferError> {
        let transfer = Transfer { operation: Operation::Put, rank: 3, element_bytes: 8, count };
        selection.select(transfer).map(|selected| selected.shapes(count * 8))
    }

    fn run(offset: u64, bytes: u64) -> Shape {
        Shape::Contiguous(Run { offset, bytes })
    }

    #[test]
    fn an_index_takes_what_the_buffer_has_and_a_range_wants_as_many() {
        for shapes in [select(5, 3), select(5.., 3), select(5..8, 3)] {
            let shapes = shapes.unwrap();
            assert_eq!((shapes.target, shapes.origin), (run(40, 24), run(0, 24)));
        }
        let mismatch = |found: Result<Shapes, TransferError>, local: u64, remote: u64| match found.unwrap_err() {
            TransferError::LengthMismatch { rank: Rank(3), local_bytes, remote_bytes, .. } => {
                assert_eq!((local_bytes, remote_bytes), (local, remote));
            }
            other => panic!("{other}"),
        };
        mismatch(select(5..9, 3), 24, 32);
        mismatch(select(5..7, 3), 24, 16);
        // Backwards is nothing.
        #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
        let backwards = 7..5;
        mismatch(select(backwards, 3), 24, 0);
        mismatch(select(0..usize::MAX, 3), 24, u64::MAX);
    }

    #[test]
    fn a_patch_takes_the_buffer_in_a_row_and_a_pair_says_where() {
        let (block, column) = (Patch::block(&[2, 3], &[4, 5], &[10]), Patch::new(1, &[6], &[2]));
        let shapes = select(&block, 6).unwrap();
        assert_eq!((shapes.target.bytes(), &shapes.origin), (48, &run(0, 48)));
        assert!(matches!(select(&block, 7), Err(TransferError::LengthMismatch { .. })));
        let pair = select(block.with_buffer(&column), 12).unwrap();
        assert_eq!((pair.target, pair.origin.end()), (shapes.target, (1 + 5 * 2 + 1) * 8));
    }

    #[test]
    fn a_list_of_one_is_a_run() {
        let one = [Segment { target: 9, origin: 2, count: 4 }];
        let shapes = select(&one, 6).unwrap();
        assert_eq!((shapes.target, shapes.origin), (run(72, 32), run(16, 32)));
        let two = vec![one[0], Segment { target: 0, origin: 0, count: 1 }];
        assert!(matches!(select(&two, 6).unwrap().target, Shape::Vector(runs) if runs.len() == 2));
    }
}
