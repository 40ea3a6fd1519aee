//! Transfers of every shape, in a part of the target's window where this rank alone writes: it knows every byte there.

use longarm_client::Shapes;
use longarm_proto::{Cursor, Level, Rank, Run, Shape as WireShape, Strided};

use super::{Program, Stop};
use crate::book::{self, Kind};

impl Program {
    /// Elements of 8 bytes, every other one, from a packed source.
    pub(super) fn every_other(offset: u64, count: u64) -> Shapes {
        let strided = Strided::new(offset, 8, &[Level { count, stride: 16 }]).expect("a small patch");
        let origin = WireShape::Contiguous(Run { offset: 0, bytes: 8 * count });
        Shapes { target: WireShape::Strided(strided), origin }
    }

    /// A shape inside the block: contiguous, strided or a list; and which kinds of operation it stands for.
    fn block_shape(&mut self) -> (WireShape, Kind, Kind) {
        let block = self.shape.block_bytes;
        match self.dice.below(4) {
            0 => {
                let (rows, run) = (self.dice.between(2, 8), self.dice.between(1, 24));
                let stride = run + self.dice.below(40);
                let inner = self.dice.between(1, 3);
                let outer = stride * rows + self.dice.below(64);
                let levels =
                    [Level { count: rows, stride: stride as i64 }, Level { count: inner, stride: outer as i64 }];
                let span = outer * inner + stride * rows;
                if span >= block {
                    return (WireShape::Contiguous(Run { offset: 0, bytes: run }), Kind::PutBlock, Kind::GetBlock);
                }
                let offset = self.dice.below(block - span);
                let strided = Strided::new(offset, run, &levels).expect("a small patch");
                (WireShape::Strided(strided), Kind::PutStrided, Kind::GetStrided)
            }
            1 => {
                let (mut runs, mut at) = (Vec::new(), self.dice.below(32));
                for _ in 0..self.dice.between(2, 6) {
                    let bytes = self.dice.between(1, 48);
                    runs.push(Run { offset: at, bytes });
                    at += bytes + self.dice.below(48);
                }
                (WireShape::Vector(runs), Kind::PutVector, Kind::GetVector)
            }
            _ => {
                let most = if self.dice.one_in(8) { block } else { 200 };
                let bytes = self.dice.between(1, most);
                let offset = self.dice.below(block - bytes + 1);
                (WireShape::Contiguous(Run { offset, bytes }), Kind::PutBlock, Kind::GetBlock)
            }
        }
    }

    /// The shape at its place in the target's part.
    fn at_block(&self, shape: &WireShape, target: Rank) -> WireShape {
        let start = self.shape.block_at(self.shape.place_of(target, self.rank));
        match shape {
            WireShape::Contiguous(run) => WireShape::Contiguous(Run { offset: start + run.offset, ..*run }),
            WireShape::Strided(strided) => {
                let moved = Strided::new(start + strided.offset(), strided.run_bytes(), strided.levels());
                WireShape::Strided(moved.expect("as sound as before"))
            }
            WireShape::Vector(runs) => {
                WireShape::Vector(runs.iter().map(|run| Run { offset: start + run.offset, ..*run }).collect())
            }
        }
    }

    fn shapes(&self, shape: &WireShape, target: Rank) -> Shapes {
        let bytes = shape.bytes();
        let origin = WireShape::Contiguous(Run { offset: 0, bytes });
        Shapes { target: self.at_block(shape, target), origin }
    }

    pub(super) fn block_put(&mut self, number: usize, target: Rank) -> Result<u32, Stop> {
        let (shape, kind, _) = self.block_shape();
        let bytes = shape.bytes() as usize;
        let mut source = std::mem::take(&mut self.scratch);
        source.clear();
        while source.len() < bytes {
            source.extend_from_slice(&self.dice.roll().to_le_bytes());
        }
        source.truncate(bytes);
        book::start(self.rank.0, kind, target, bytes as u64);
        let shapes = self.shapes(&shape, target);
        let put = self.client.put_shaped(&self.window, target, shapes, source.as_slice().into());
        put.map_err(|error| self.failed(kind, target, &error))?;
        book::finish(self.rank.0, kind, bytes as u64);
        let mirror = &mut self.mirrors[number];
        let mut left = source.as_slice();
        walk(shape, |run| {
            let (here, rest) = left.split_at(run.bytes as usize);
            mirror[run.offset as usize..run.end() as usize].copy_from_slice(here);
            left = rest;
        });
        self.scratch = source;
        Ok(1)
    }

    pub(super) fn block_get(&mut self, number: usize, target: Rank) -> Result<u32, Stop> {
        let (shape, _, kind) = self.block_shape();
        let bytes = shape.bytes() as usize;
        let mut got = std::mem::take(&mut self.scratch);
        got.clear();
        got.resize(bytes, 0xee);
        book::start(self.rank.0, kind, target, bytes as u64);
        let shapes = self.shapes(&shape, target);
        let done = self.client.get_shaped(&self.window, target, shapes, got.as_mut_slice().into());
        done.map_err(|error| self.failed(kind, target, &error))?;
        book::finish(self.rank.0, kind, bytes as u64);
        let mirror = &self.mirrors[number];
        let (mut left, mut wrong) = (got.as_slice(), None);
        walk(shape, |run| {
            let (here, rest) = left.split_at(run.bytes as usize);
            let there = &mirror[run.offset as usize..run.end() as usize];
            wrong = wrong.or_else(|| here.iter().zip(there).position(|(a, b)| a != b).map(|at| run.offset + at as u64));
            left = rest;
        });
        self.scratch = got;
        match wrong {
            None => Ok(1),
            Some(at) => Err(self.violated(kind, target, &format!("byte {at} of the block is not the one put last"))),
        }
    }
}

/// Calls `each` with the runs of a shape, in order.
fn walk(shape: WireShape, mut each: impl FnMut(Run)) {
    let mut cursor = Cursor::new(shape);
    while let Some(run) = cursor.peek() {
        each(run);
        cursor.advance(run.bytes);
    }
}
