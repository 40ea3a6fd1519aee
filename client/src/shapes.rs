//! The two sides of a transfer: which bytes of the origin go to, or come from, which bytes of the target.

use longarm_proto::{Cursor, Rank, Run, SEGMENTS_PER_FRAME_MAX, Shape};

use crate::error::{Operation, TransferError};
use crate::window::ClientWindow;

/// Bytes of the origin's buffer and of the target's part, paired in their packed order.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// Relative to the start of the target's part.
    pub target: Shape,
    /// Relative to the start of the origin's buffer.
    pub origin: Shape,
}

impl Shapes {
    /// One run of the target, the origin's buffer from its start.
    pub fn contiguous(run: Run) -> Shapes {
        Shapes { target: Shape::Contiguous(run), origin: Shape::Contiguous(Run { offset: 0, bytes: run.bytes }) }
    }

    /// Everything that can be wrong with both sides; gives the bytes.
    pub(crate) fn check(
        &self,
        operation: Operation,
        window: &ClientWindow,
        rank: Rank,
        origin_bytes: u64,
    ) -> Result<u64, TransferError> {
        let remote_bytes = self.target.bytes();
        if self.origin.bytes() != remote_bytes {
            return Err(TransferError::LengthMismatch {
                operation,
                rank,
                local_bytes: self.origin.bytes(),
                remote_bytes,
            });
        }
        if self.origin.end() > origin_bytes {
            return Err(TransferError::LengthMismatch { operation, rank, local_bytes: origin_bytes, remote_bytes });
        }
        window.check(operation, rank, first_byte(&self.target), self.target.end())?;
        Ok(remote_bytes)
    }

    /// The same transfer as pieces of which each fits one frame.
    pub(crate) fn frames(self) -> impl Iterator<Item = Shapes> {
        let (whole, pieces) = match self.target {
            Shape::Vector(runs) if runs.len() > SEGMENTS_PER_FRAME_MAX => {
                let mut origin = Cursor::new(self.origin);
                let pieces: Vec<Shapes> = runs
                    .chunks(SEGMENTS_PER_FRAME_MAX)
                    .map(|runs| {
                        let target = Shape::Vector(runs.to_vec());
                        let origin = Shape::Vector(take_runs(&mut origin, target.bytes()));
                        Shapes { target, origin }
                    })
                    .collect();
                (None, pieces)
            }
            target => (Some(Shapes { target, origin: self.origin }), Vec::new()),
        };
        whole.into_iter().chain(pieces)
    }

    /// Calls `each` with equally long runs of the origin and the target, in order.
    pub(crate) fn pairs(self, mut each: impl FnMut(Run, Run)) {
        let mut origin = Cursor::new(self.origin);
        let mut target = Cursor::new(self.target);
        while let (Some(here), Some(there)) = (origin.peek(), target.peek()) {
            let bytes = here.bytes.min(there.bytes);
            each(Run { offset: here.offset, bytes }, Run { offset: there.offset, bytes });
            origin.advance(bytes);
            target.advance(bytes);
        }
    }
}

/// The lowest byte that a shape touches, for messages.
fn first_byte(shape: &Shape) -> u64 {
    match shape {
        Shape::Contiguous(run) => run.offset,
        Shape::Strided(strided) => strided.start(),
        Shape::Vector(runs) => runs.iter().map(|run| run.offset).min().unwrap_or(0),
    }
}

fn take_runs(cursor: &mut Cursor, bytes: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let run = cursor.peek().expect("both sides have the same bytes");
        let bytes = run.bytes.min(left);
        runs.push(Run { offset: run.offset, bytes });
        cursor.advance(bytes);
        left -= bytes;
    }
    runs
}
