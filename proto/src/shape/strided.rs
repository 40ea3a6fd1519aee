//! A regular n-dimensional patch, as ARMCI's strided calls and the sections of Global Arrays describe it.
//!
//! A patch is checked once, when it is made: that its bytes can be counted and that none lies before the window.
//! Afterwards positions are computed with wrapping arithmetic, because every one of them is known to fit.

use crate::limits::LEVELS_MAX;
use thiserror::Error;

/// One dimension of a patch: `count` times what the levels below it are, `stride` bytes from each to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Level {
    /// How often.
    pub count: u64,
    /// Bytes from the start of one to the start of the next. May be 0 or negative.
    pub stride: i64,
}

impl Level {
    const NONE: Level = Level { count: 0, stride: 0 };
}

/// Why a strided shape cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ShapeError {
    /// More dimensions than [`LEVELS_MAX`].
    #[error("{found} stride levels, at most {LEVELS_MAX} are possible")]
    TooManyLevels {
        /// How many there are.
        found: usize,
    },
    /// The packed bytes do not fit in 64 bits.
    #[error("the shape has more bytes than 64 bits can count")]
    BytesOverflow,
    /// Its highest byte has an offset that does not fit in 64 bits.
    #[error("the shape ends beyond the largest offset")]
    EndOverflow,
    /// Its lowest byte lies in front of the window.
    #[error("the shape starts {bytes_before} bytes before the start of the window")]
    BeforeStart {
        /// How far in front.
        bytes_before: u64,
    },
    /// An accumulate is about whole elements.
    #[error("a run has {run_bytes} bytes, which is no whole number of elements of {element_bytes}")]
    PartOfAnElement {
        /// Bytes of the run.
        run_bytes: u64,
        /// Bytes of an element.
        element_bytes: u64,
    },
}

/// Runs of `run_bytes` at regular distances: level 0 varies fastest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Strided {
    offset: u64,
    run_bytes: u64,
    level_count: usize,
    /// Those behind `level_count` are [`Level::NONE`], so that equal shapes compare equal.
    levels: [Level; LEVELS_MAX],
}

impl Strided {
    /// A patch whose first run starts at `offset`. No levels: that run alone. A count of 0 anywhere, or runs of 0
    /// bytes: nothing is touched, and strides do not matter.
    ///
    /// # Errors
    /// See [`ShapeError`].
    #[inline]
    pub fn new(offset: u64, run_bytes: u64, levels: &[Level]) -> Result<Strided, ShapeError> {
        if levels.len() > LEVELS_MAX {
            return Err(ShapeError::TooManyLevels { found: levels.len() });
        }
        let mut kept = [Level::NONE; LEVELS_MAX];
        kept[..levels.len()].copy_from_slice(levels);
        let strided = Strided { offset, run_bytes, level_count: levels.len(), levels: kept };
        if strided.is_empty() {
            return Ok(strided);
        }
        strided.packed_bytes().ok_or(ShapeError::BytesOverflow)?;
        let (low, high) = strided.extent();
        if low < 0 {
            let bytes_before = u64::try_from(-low).unwrap_or(u64::MAX);
            return Err(ShapeError::BeforeStart { bytes_before });
        }
        u64::try_from(high).map_err(|_| ShapeError::EndOverflow)?;
        Ok(strided)
    }

    /// A patch that is known to be a part of one that was checked.
    pub(super) fn part_of_checked(offset: u64, run_bytes: u64, levels: &[Level]) -> Strided {
        let mut kept = [Level::NONE; LEVELS_MAX];
        kept[..levels.len()].copy_from_slice(levels);
        Strided { offset, run_bytes, level_count: levels.len(), levels: kept }
    }

    /// Where the first run starts, in bytes from the start of the window.
    #[inline]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of each run.
    #[inline]
    pub const fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// The dimensions above the run, the fastest first.
    #[inline]
    pub fn levels(&self) -> &[Level] {
        &self.levels[..self.level_count]
    }

    /// Whether no byte is touched.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.run_bytes == 0 || self.levels().iter().any(|level| level.count == 0)
    }

    /// Bytes of all runs together. Bytes that lie under several runs count several times.
    pub fn bytes(&self) -> u64 {
        self.packed_bytes().expect("the constructor counted the bytes")
    }

    /// One past the highest byte touched; `offset` when nothing is touched.
    pub fn end(&self) -> u64 {
        if self.is_empty() {
            return self.offset;
        }
        let (_, high) = self.extent();
        u64::try_from(high).expect("the constructor checked the end")
    }

    /// The lowest byte touched; `offset` when nothing is touched. Lower than `offset` with negative strides.
    pub fn start(&self) -> u64 {
        if self.is_empty() {
            return self.offset;
        }
        let (low, _) = self.extent();
        u64::try_from(low).expect("the constructor checked the start")
    }

    /// The same bytes in the same packed order, with as few levels as that takes: those of count 1 go, those
    /// without a gap become part of the run or of the level below. A patch of no bytes keeps its offset only.
    #[must_use]
    pub fn collapsed(self) -> Strided {
        if self.is_empty() {
            return Strided::part_of_checked(self.offset, 0, &[]);
        }
        let mut run_bytes = self.run_bytes;
        let mut levels = [Level::NONE; LEVELS_MAX];
        let mut level_count = 0;
        for &level in self.levels() {
            if level.count == 1 {
                continue;
            }
            // The products below are parts of the packed total, or are compared with a stride only when they fit.
            if level_count == 0 {
                if i64::try_from(run_bytes) == Ok(level.stride) {
                    run_bytes *= level.count;
                    continue;
                }
            } else {
                let below = &mut levels[level_count - 1];
                if i128::from(below.stride) * i128::from(below.count) == i128::from(level.stride) {
                    below.count *= level.count;
                    continue;
                }
            }
            levels[level_count] = level;
            level_count += 1;
        }
        Strided::part_of_checked(self.offset, run_bytes, &levels[..level_count])
    }

    /// Cuts the patch in pieces of at most `bytes_max` packed bytes, in packed order: one after the other they
    /// touch the same bytes in the same order. Runs are never cut, so a piece is longer where one run is. Nothing
    /// comes out of a patch of no bytes.
    pub fn pieces(&self, bytes_max: u64) -> Pieces {
        Pieces::new(self, bytes_max)
    }

    /// The packed total, if it can be counted.
    fn packed_bytes(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        self.levels().iter().try_fold(self.run_bytes, |bytes, level| bytes.checked_mul(level.count))
    }

    /// The lowest byte and one past the highest, of a patch whose bytes can be counted and are not 0.
    ///
    /// Its counts multiply to less than 2^64, so all levels together make less than 2^64 steps of at most 2^63
    /// bytes: the sums fit.
    fn extent(&self) -> (i128, i128) {
        let mut low = i128::from(self.offset);
        let mut high = low + i128::from(self.run_bytes);
        for level in self.levels() {
            let reach = i128::from(level.count - 1) * i128::from(level.stride);
            if reach < 0 { low += reach } else { high += reach }
        }
        (low, high)
    }
}

/// The pieces of a patch, in packed order. See [`Strided::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    whole: Strided,
    /// The level that is cut. Those below are whole in every piece, those above are walked one by one.
    cut: usize,
    /// How many of the cut level go in one piece.
    group: u64,
    /// Where we are in the cut level and in those above.
    indices: [u64; LEVELS_MAX],
    finished: bool,
}

impl Pieces {
    fn new(whole: &Strided, bytes_max: u64) -> Pieces {
        let mut cut = 0;
        let mut block_bytes = whole.run_bytes();
        while cut < whole.levels().len() && !whole.is_empty() {
            let next_bytes = block_bytes * whole.levels()[cut].count;
            if next_bytes > bytes_max {
                break;
            }
            block_bytes = next_bytes;
            cut += 1;
        }
        let group = bytes_max.checked_div(block_bytes).unwrap_or(1).max(1);
        Pieces { whole: *whole, cut, group, indices: [0; LEVELS_MAX], finished: whole.is_empty() }
    }

    /// Goes on behind the piece that starts at the present indices.
    fn step(&mut self) {
        let mut by = self.group;
        for (level, at) in self.whole.levels().iter().zip(&mut self.indices).skip(self.cut) {
            // Compared by what is left, because the sum may not fit.
            if level.count - *at > by {
                *at += by;
                return;
            }
            *at = 0;
            by = 1;
        }
        self.finished = true;
    }
}

impl Iterator for Pieces {
    type Item = Strided;

    fn next(&mut self) -> Option<Strided> {
        if self.finished {
            return None;
        }
        let all = self.whole.levels();
        let mut offset = self.whole.offset();
        for (level, &at) in all.iter().zip(&self.indices) {
            offset = step_offset(offset, level.stride, at);
        }
        let mut levels = [Level::NONE; LEVELS_MAX];
        let mut level_count = self.cut;
        levels[..self.cut].copy_from_slice(&all[..self.cut]);
        if let Some(&level) = all.get(self.cut) {
            let count = self.group.min(level.count - self.indices[self.cut]);
            levels[self.cut] = Level { count, stride: level.stride };
            level_count += 1;
        }
        self.step();
        Some(Strided::part_of_checked(offset, self.whole.run_bytes(), &levels[..level_count]))
    }
}

/// The offset `times` strides further. Partial sums may wrap around on the way; every position of a checked patch
/// fits, so the last one is right.
#[inline]
pub(super) const fn step_offset(offset: u64, stride: i64, times: u64) -> u64 {
    offset.wrapping_add((stride as u64).wrapping_mul(times))
}
