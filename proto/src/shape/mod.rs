//! Which bytes of a window, or of an origin's buffer, an operation touches, counted from its start.
//!
//! Three shapes: one run, a regular n-dimensional patch of runs, and a list of runs. All of them pack: the bytes
//! of a shape, run after run in the shape's own order, are what travels as payload. A [`Cursor`](cursor::Cursor) walks the runs
//! and can stop between any two bytes.
//!
//! Shapes say nothing about whether a window is large enough: compare [`Shape::end`] with its bytes.

pub(crate) mod cursor;
mod strided;

pub use strided::{Level, Pieces, ShapeError, Strided};

/// Bytes without a gap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// Bytes from the start of the window.
    pub offset: u64,
    /// How many bytes. May be 0.
    pub bytes: u64,
}

impl Run {
    /// One past the last byte. The largest number where that does not fit, which is outside of any window.
    #[inline]
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Which bytes of a window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// One run.
    Contiguous(Run),
    /// Runs of one length at regular distances.
    Strided(Strided),
    /// Any runs, in this order. They may overlap and may be empty.
    Vector(Vec<Run>),
}

impl Shape {
    /// One run of this many bytes from `offset` on.
    #[inline]
    pub const fn contiguous(offset: u64, bytes: u64) -> Shape {
        Shape::Contiguous(Run { offset, bytes })
    }

    /// Bytes of all runs together, which is the payload. The largest number where the sum does not fit.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Shape::Contiguous(run) => run.bytes,
            Shape::Strided(strided) => strided.bytes(),
            Shape::Vector(runs) => runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.bytes)),
        }
    }

    /// One past the highest byte touched. The largest number where that does not fit.
    ///
    /// An empty run ends where it starts. A list without any run ends at 0.
    #[inline]
    pub fn end(&self) -> u64 {
        match self {
            Shape::Contiguous(run) => run.end(),
            Shape::Strided(strided) => strided.end(),
            Shape::Vector(runs) => runs.iter().map(|run| run.end()).max().unwrap_or(0),
        }
    }

    /// Whether no byte is touched.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// The same bytes in the same packed order, as simply as they can be said: one run where there is no gap.
    pub fn collapsed(self) -> Shape {
        match self {
            Shape::Strided(strided) => {
                let strided = strided.collapsed();
                if strided.levels().is_empty() {
                    return Shape::contiguous(strided.offset(), strided.run_bytes());
                }
                Shape::Strided(strided)
            }
            Shape::Vector(runs) if runs.len() == 1 => Shape::Contiguous(runs[0]),
            simple => simple,
        }
    }

    /// The first run length that is not a multiple of this many bytes, if there is one. Accumulates need whole
    /// elements in every run.
    ///
    /// # Panics
    /// When `element_bytes` is 0.
    pub fn broken_run_bytes(&self, element_bytes: usize) -> Option<u64> {
        let broken = |bytes: u64| !bytes.is_multiple_of(element_bytes as u64);
        assert!(element_bytes > 0, "an element has bytes");
        match self {
            Shape::Contiguous(run) => Some(run.bytes).filter(|&bytes| broken(bytes)),
            Shape::Strided(strided) => Some(strided.run_bytes()).filter(|&bytes| !strided.is_empty() && broken(bytes)),
            Shape::Vector(runs) => runs.iter().map(|run| run.bytes).find(|&bytes| broken(bytes)),
        }
    }
}

impl From<Run> for Shape {
    fn from(run: Run) -> Shape {
        Shape::Contiguous(run)
    }
}

impl From<Strided> for Shape {
    fn from(strided: Strided) -> Shape {
        Shape::Strided(strided)
    }
}
