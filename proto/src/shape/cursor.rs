//! A walk through the runs of a shape that can stop between any two bytes and go on later.
//!
//! Both ends of a transfer use it: a socket takes or gives any number of bytes, and the cursor says where in the
//! window the next ones lie. One run costs a few words and no allocation; a list of runs is kept, not copied.

use super::strided::step_offset;
use super::{Run, Shape, Strided};
use crate::limits::LEVELS_MAX;

/// Where a transfer stands in its shape.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Bytes in front of us, those of `current` included.
    remaining: u64,
    /// What is left of the run that we stand in. Never empty while bytes remain.
    current: Run,
    walk: Walk,
}

/// Equal runs at one distance from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The first one.
    pub run: Run,
    /// How many; at least one.
    pub count: u64,
    /// Bytes from the start of one to the start of the next. May be 0 or negative.
    pub stride: i64,
}

impl Row {
    /// Bytes of all runs together.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.run.bytes * self.count
    }

    /// From the lowest byte to the highest, those between the runs included, and where in it the first run starts.
    #[inline]
    pub fn span(&self) -> (Run, u64) {
        let reach = self.stride.unsigned_abs() * (self.count - 1);
        let before = if self.stride < 0 { reach } else { 0 };
        (Run { offset: self.run.offset - before, bytes: reach + self.run.bytes }, before)
    }
}

/// The runs behind the current one.
#[derive(Clone, Debug)]
enum Walk {
    None,
    Strided { shape: Strided, indices: [u64; LEVELS_MAX], offset: u64 },
    Vector { runs: Vec<Run>, next: usize },
}

impl Cursor {
    /// Stands before the first byte.
    #[inline]
    pub fn new(shape: Shape) -> Cursor {
        let remaining = shape.bytes();
        match shape {
            Shape::Contiguous(current) => Cursor { remaining, current, walk: Walk::None },
            Shape::Strided(shape) => {
                let current = Run { offset: shape.offset(), bytes: shape.run_bytes() };
                let walk = Walk::Strided { shape, indices: [0; LEVELS_MAX], offset: shape.offset() };
                Cursor { remaining, current, walk }
            }
            Shape::Vector(runs) => {
                let mut cursor =
                    Cursor { remaining, current: Run { offset: 0, bytes: 0 }, walk: Walk::Vector { runs, next: 0 } };
                if remaining > 0 {
                    cursor.enter_next_run();
                }
                cursor
            }
        }
    }

    /// Bytes that are still to come.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Whether all bytes were passed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.remaining == 0
    }

    /// What is left of the run that we stand in; never empty. `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<Run> {
        (self.remaining > 0).then_some(self.current)
    }

    /// Passes this many bytes, over the ends of runs where need be.
    ///
    /// # Panics
    /// When fewer bytes remain.
    #[inline]
    pub fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.remaining, "a cursor moves by {bytes} bytes with {} left", self.remaining);
        let mut bytes = bytes;
        self.remaining -= bytes;
        while bytes >= self.current.bytes && self.remaining > 0 {
            bytes -= self.current.bytes;
            self.enter_next_run();
        }
        self.current.offset = self.current.offset.wrapping_add(bytes);
        self.current.bytes -= bytes.min(self.current.bytes);
    }

    /// What is left of the present run, or the present run and as many of its like as have up to `bytes_max` bytes
    /// together. `None` at the end.
    #[inline]
    pub fn row(&self, bytes_max: u64) -> Option<Row> {
        if self.remaining == 0 {
            return None;
        }
        if let Walk::Strided { shape, indices, .. } = &self.walk
            && let [level, ..] = shape.levels()
            && self.current.bytes == shape.run_bytes()
            && self.current.bytes <= bytes_max
        {
            let count = (level.count - indices[0]).min(bytes_max / self.current.bytes);
            return Some(Row { run: self.current, count, stride: level.stride });
        }
        let run = Run { offset: self.current.offset, bytes: self.current.bytes.min(bytes_max) };
        Some(Row { run, count: 1, stride: 0 })
    }

    /// Passes a row that [`Cursor::row`] gave just now.
    ///
    /// # Panics
    /// When fewer bytes remain.
    #[inline]
    pub fn pass(&mut self, row: &Row) {
        if let Walk::Strided { indices, offset, .. } = &mut self.walk
            && row.count > 1
        {
            let before_last = row.count - 1;
            indices[0] += before_last;
            *offset = step_offset(*offset, row.stride, before_last);
            self.current.offset = *offset;
            self.remaining -= before_last * row.run.bytes;
        }
        self.advance(row.run.bytes);
    }

    /// Appends what is left of the present run and the runs after it to `out`, `runs_max` at most, without moving.
    /// None of them is empty.
    pub fn upcoming(&self, runs_max: usize, out: &mut Vec<Run>) {
        if self.remaining == 0 || runs_max == 0 {
            return;
        }
        out.push(self.current);
        let mut left = self.remaining - self.current.bytes;
        if left == 0 || runs_max == 1 {
            return;
        }
        match &self.walk {
            Walk::None => {}
            Walk::Strided { shape, indices, offset } => {
                let (mut indices, mut offset) = (*indices, *offset);
                for _ in 1..runs_max {
                    offset = next_strided(shape, &mut indices, offset);
                    out.push(Run { offset, bytes: shape.run_bytes() });
                    left -= shape.run_bytes();
                    if left == 0 {
                        break;
                    }
                }
            }
            Walk::Vector { runs, next } => {
                out.extend(runs[*next..].iter().filter(|run| run.bytes > 0).take(runs_max - 1));
            }
        }
    }

    /// Stands at the start of the next run that has bytes. There is one.
    fn enter_next_run(&mut self) {
        match &mut self.walk {
            Walk::None => unreachable!("a single run has no next one"),
            Walk::Strided { shape, indices, offset } => {
                *offset = next_strided(shape, indices, *offset);
                self.current = Run { offset: *offset, bytes: shape.run_bytes() };
            }
            Walk::Vector { runs, next } => loop {
                let run = runs[*next];
                *next += 1;
                if run.bytes > 0 {
                    self.current = run;
                    return;
                }
            },
        }
    }
}

/// Turns the odometer by one run; where that run starts.
#[inline]
fn next_strided(shape: &Strided, indices: &mut [u64; LEVELS_MAX], offset: u64) -> u64 {
    let mut offset = offset;
    for (level, at) in shape.levels().iter().zip(indices) {
        if *at + 1 < level.count {
            *at += 1;
            return step_offset(offset, level.stride, 1);
        }
        offset = step_offset(offset, level.stride.wrapping_neg(), *at);
        *at = 0;
    }
    offset
}
