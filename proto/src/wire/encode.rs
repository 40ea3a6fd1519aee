//! A request to bytes. What a caller may not ask for is an assertion here: the client checks it before.

use super::at;
use super::bytes::{put_u32, put_u64};
use super::kinds::ShapeKind;
use super::request::{Request, Signal, WindowRef};
use crate::ids::RequestId;
use crate::limits::{
    DESCRIPTOR_BYTES_MAX, HEADER_BYTES, MAIL_PIECE_BYTES_MAX, MESSAGE_BYTES_MAX, SEGMENTS_PER_FRAME_MAX, SIGNAL_BYTES,
};
use crate::ops::{Kernel, Rmw, RmwOp, RmwWidth, RmwWord, Scale};
use crate::shape::Shape;

impl Request {
    /// Appends header and descriptor to `out`. The payload is the caller's to send behind them.
    ///
    /// # Panics
    /// On what no caller may ask for: a run that ends beyond the largest offset, more than
    /// [`SEGMENTS_PER_FRAME_MAX`] runs or words, or no word at all, several compare-and-swaps, runs of broken elements, a scale that does
    /// not fit its element, a message over [`MESSAGE_BYTES_MAX`].
    pub fn encode(&self, id: RequestId, out: &mut Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        header[at::KIND] = self.kind().to_wire();
        put_u64(&mut header, at::PAYLOAD, self.payload_bytes());
        put_u64(&mut header, at::ID, id.0);
        let start = out.len();
        out.extend_from_slice(&header);
        let mut frame = Frame { header: &mut header, descriptor: out };
        match self {
            Request::Put { target, shape, signal } => frame.put(target, shape, signal.as_ref()),
            Request::Get { target, shape } => frame.get(target, shape),
            Request::Accumulate { target, shape, kernel, scale } => frame.accumulate(target, shape, *kernel, scale),
            Request::Rmw { target, offset, rmw } => frame.rmw(target, *offset, rmw),
            Request::RmwMany { target, op, width, words } => frame.rmw_many(target, (*op, *width), words),
            Request::Quiet | Request::Leave => {}
            Request::Acknowledge { received_bytes } => put_u64(frame.header, at::OPERAND, *received_bytes),
            Request::Lock { target, offset }
            | Request::TryLock { target, offset }
            | Request::Unlock { target, offset } => {
                frame.target(target);
                put_u64(frame.header, at::OFFSET, *offset);
            }
            Request::Message { target, bytes, rest } => {
                assert!(*bytes <= MAIL_PIECE_BYTES_MAX, "a piece of {bytes} bytes is too long");
                assert!(*rest <= MESSAGE_BYTES_MAX - bytes, "a message of {bytes} and {rest} bytes is too long");
                put_u32(frame.header, at::RANK, target.0);
                put_u64(frame.header, at::OPERAND, *rest);
            }
        }
        let descriptor_bytes = out.len() - start - HEADER_BYTES;
        assert!(descriptor_bytes <= DESCRIPTOR_BYTES_MAX, "a descriptor of {descriptor_bytes} bytes is too long");
        put_u32(&mut header, at::DESCRIPTOR, descriptor_bytes as u32);
        out[start..start + HEADER_BYTES].copy_from_slice(&header);
    }
}

/// A request that is being written: the header apart, because the descriptor's length is known last.
struct Frame<'a> {
    header: &'a mut [u8; HEADER_BYTES],
    descriptor: &'a mut Vec<u8>,
}

impl Frame<'_> {
    fn target(&mut self, target: &WindowRef) {
        put_u32(self.header, at::RANK, target.rank.0);
        put_u32(self.header, at::GENERATION, target.generation.0);
        put_u64(self.header, at::WINDOW, target.window.0);
        put_u64(self.header, at::KEY, target.key.0);
    }

    fn put(&mut self, target: &WindowRef, shape: &Shape, signal: Option<&Signal>) {
        self.target(target);
        if let Some(signal) = signal {
            self.header[at::OP] = signal.op.to_wire() + 1;
            self.signal(signal);
        }
        self.shape(shape);
    }

    fn get(&mut self, target: &WindowRef, shape: &Shape) {
        self.target(target);
        put_u64(self.header, at::OPERAND, shape.bytes());
        self.shape(shape);
    }

    fn accumulate(&mut self, target: &WindowRef, shape: &Shape, kernel: Kernel, scale: &Scale) {
        let element = kernel.element();
        assert!(scale.fits(element), "a scale has bytes behind its {element:?}");
        let broken = shape.broken_run_bytes(element.bytes());
        assert!(broken.is_none(), "a run of {broken:?} bytes is no whole number of {element:?}");
        self.target(target);
        self.header[at::ELEMENT] = element.to_wire();
        self.header[at::OP] = kernel.op().to_wire();
        self.descriptor.extend_from_slice(&scale.0);
        self.shape(shape);
    }

    fn rmw(&mut self, target: &WindowRef, offset: u64, rmw: &Rmw) {
        self.target(target);
        self.header[at::ELEMENT] = rmw.width.to_wire();
        self.header[at::OP] = rmw.op.to_wire();
        put_u64(self.header, at::OFFSET, offset);
        put_u64(self.header, at::OPERAND, rmw.operand);
        if rmw.op == RmwOp::CompareSwap {
            self.descriptor.extend_from_slice(&rmw.compare.to_le_bytes());
        }
    }

    fn rmw_many(&mut self, target: &WindowRef, (op, width): (RmwOp, RmwWidth), words: &[RmwWord]) {
        assert!(op != RmwOp::CompareSwap, "the words of several have no value to compare with");
        assert!((1..=SEGMENTS_PER_FRAME_MAX).contains(&words.len()), "{} words in one frame", words.len());
        self.target(target);
        self.header[at::ELEMENT] = width.to_wire();
        self.header[at::OP] = op.to_wire();
        for word in words {
            self.descriptor.extend_from_slice(&word.offset.to_le_bytes());
            self.descriptor.extend_from_slice(&word.operand.to_le_bytes());
        }
    }

    fn signal(&mut self, signal: &Signal) {
        let mut bytes = [0; SIGNAL_BYTES];
        put_u64(&mut bytes, 0, signal.window.0);
        put_u64(&mut bytes, 8, signal.key.0);
        put_u64(&mut bytes, 16, signal.offset);
        put_u64(&mut bytes, 24, signal.value);
        put_u32(&mut bytes, 32, signal.generation.0);
        self.descriptor.extend_from_slice(&bytes);
    }

    fn shape(&mut self, shape: &Shape) {
        let fits = |offset: u64, bytes: u64| {
            assert!(offset.checked_add(bytes).is_some(), "{bytes} bytes at offset {offset} end beyond all offsets");
        };
        match shape {
            Shape::Contiguous(run) => {
                fits(run.offset, run.bytes);
                self.header[at::SHAPE] = ShapeKind::Contiguous.to_wire();
                put_u64(self.header, at::OFFSET, run.offset);
            }
            Shape::Strided(strided) => {
                self.header[at::SHAPE] = ShapeKind::Strided.to_wire();
                put_u64(self.header, at::OFFSET, strided.offset());
                self.descriptor.extend_from_slice(&strided.run_bytes().to_le_bytes());
                for level in strided.levels() {
                    self.descriptor.extend_from_slice(&level.count.to_le_bytes());
                    self.descriptor.extend_from_slice(&level.stride.to_le_bytes());
                }
            }
            Shape::Vector(runs) => {
                assert!(runs.len() <= SEGMENTS_PER_FRAME_MAX, "{} runs are too many for one frame", runs.len());
                let total = runs.iter().try_fold(0, |sum: u64, run| sum.checked_add(run.bytes));
                assert!(total.is_some(), "the runs have more bytes than 64 bits can count");
                self.header[at::SHAPE] = ShapeKind::Vector.to_wire();
                for run in runs {
                    fits(run.offset, run.bytes);
                    self.descriptor.extend_from_slice(&run.offset.to_le_bytes());
                    self.descriptor.extend_from_slice(&run.bytes.to_le_bytes());
                }
            }
        }
    }
}
