//! Bytes to a request, in two steps: the header, which says how long the descriptor is, and then both together.
//!
//! Every field is checked here, so that a [`Request`] is sound in itself, whichever peer sent it: lengths agree, ends do
//! not overflow, unused fields are 0. Whether the window exists and is large enough only the server can know.

use super::at;
use super::bytes::{u32_at, u64_at};
use super::kinds::{RequestKind, ShapeKind};
use super::request::{Request, Signal, WindowRef};
use super::violation::{HeaderField, Violation};
use crate::ids::{AccessKey, Generation, Rank, RequestId, WindowId};
use crate::limits::{
    COMPARE_BYTES, DESCRIPTOR_BYTES_MAX, HEADER_BYTES, LEVELS_MAX, MAIL_PIECE_BYTES_MAX, MESSAGE_BYTES_MAX,
    RUN_BYTES_BYTES, SCALE_BYTES, SEGMENT_BYTES, SEGMENTS_PER_FRAME_MAX, SIGNAL_BYTES,
};
use crate::ops::{AccumulateOp, ElementType, Kernel, Rmw, RmwOp, RmwWidth, RmwWord, Scale, SignalOp};
use crate::shape::{Level, Run, Shape, ShapeError, Strided};

/// The checked header of a request. Read [`RequestHeader::descriptor_bytes`] more bytes, then call
/// [`RequestHeader::finish`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    kind: RequestKind,
    shape: ShapeKind,
    element: u8,
    op: u8,
    descriptor_bytes: u32,
    payload_bytes: u64,
    id: RequestId,
    target: WindowRef,
    offset: u64,
    operand: u64,
}

impl RequestHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// The field that no sound request has.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Violation> {
        let kind = bytes[at::KIND];
        let shape = bytes[at::SHAPE];
        let header = RequestHeader {
            kind: RequestKind::from_wire(kind).ok_or(Violation::UnknownRequest { found: kind })?,
            shape: ShapeKind::from_wire(shape).ok_or(Violation::UnknownShape { found: shape })?,
            element: bytes[at::ELEMENT],
            op: bytes[at::OP],
            descriptor_bytes: u32_at(bytes, at::DESCRIPTOR),
            payload_bytes: u64_at(bytes, at::PAYLOAD),
            id: RequestId(u64_at(bytes, at::ID)),
            target: WindowRef {
                rank: Rank(u32_at(bytes, at::RANK)),
                window: WindowId(u64_at(bytes, at::WINDOW)),
                generation: Generation(u32_at(bytes, at::GENERATION)),
                key: AccessKey(u64_at(bytes, at::KEY)),
            },
            offset: u64_at(bytes, at::OFFSET),
            operand: u64_at(bytes, at::OPERAND),
        };
        if header.descriptor_bytes() > DESCRIPTOR_BYTES_MAX {
            return Err(Violation::DescriptorTooLong { found: header.descriptor_bytes });
        }
        header.check()?;
        Ok(header)
    }

    /// Whether these bytes, sound or not, ask for a get.
    #[inline]
    pub fn is_get(bytes: &[u8; HEADER_BYTES]) -> bool {
        bytes[at::KIND] == RequestKind::Get as u8
    }

    /// What is asked for.
    #[inline]
    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    /// Bytes of the descriptor, right behind the header.
    #[inline]
    pub fn descriptor_bytes(&self) -> usize {
        self.descriptor_bytes as usize
    }

    /// Bytes of the payload, right behind the descriptor.
    #[inline]
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// The request's place in its connection.
    #[inline]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Puts header and descriptor together.
    ///
    /// # Errors
    /// What no sound request has in its descriptor.
    ///
    /// # Panics
    /// When `descriptor` is not [`RequestHeader::descriptor_bytes`] long.
    pub fn finish(&self, descriptor: &[u8]) -> Result<Request, Violation> {
        assert_eq!(descriptor.len(), self.descriptor_bytes(), "the header says how long its descriptor is");
        let target = self.target;
        let offset = self.offset;
        Ok(match self.kind {
            RequestKind::Put => {
                let (signal, table) = self.signal(descriptor)?;
                Request::Put { target, shape: self.shape(table, self.payload_bytes)?, signal }
            }
            RequestKind::Get => Request::Get { target, shape: self.shape(descriptor, self.operand)? },
            RequestKind::Accumulate => self.accumulate(descriptor)?,
            RequestKind::Rmw => Request::Rmw { target, offset, rmw: self.rmw(descriptor)? },
            RequestKind::RmwMany => {
                let (op, width) = self.rmw_parts()?;
                Request::RmwMany { target, op, width, words: words(descriptor) }
            }
            RequestKind::Quiet => Request::Quiet,
            RequestKind::Lock => Request::Lock { target, offset },
            RequestKind::TryLock => Request::TryLock { target, offset },
            RequestKind::Unlock => Request::Unlock { target, offset },
            RequestKind::Message => {
                Request::Message { target: target.rank, bytes: self.payload_bytes, rest: self.operand }
            }
            RequestKind::Acknowledge => Request::Acknowledge { received_bytes: self.operand },
            RequestKind::Leave => Request::Leave,
        })
    }

    /// Everything that the header alone can tell.
    fn check(&self) -> Result<(), Violation> {
        use HeaderField::{Element, Generation, Key, Offset, Op, Operand, PayloadBytes, Rank, Shape, Window};
        match self.kind {
            RequestKind::Put => {
                self.check_unused(&[Element, Operand])?;
                self.signal_op()?;
                self.check_shape(if self.op == 0 { 0 } else { SIGNAL_BYTES }, self.payload_bytes)
            }
            RequestKind::Get => {
                self.check_unused(&[Element, Op, PayloadBytes])?;
                self.check_shape(0, self.operand)
            }
            RequestKind::Accumulate => {
                self.check_unused(&[Operand])?;
                let element = self.kernel()?.element();
                if !self.payload_bytes.is_multiple_of(element.bytes() as u64) {
                    return Err(Violation::BrokenElement { run_bytes: self.payload_bytes, element });
                }
                self.check_shape(SCALE_BYTES, self.payload_bytes)
            }
            RequestKind::Rmw => {
                self.check_unused(&[Shape, PayloadBytes])?;
                let (op, _) = self.rmw_parts()?;
                self.check_descriptor(if op == RmwOp::CompareSwap { COMPARE_BYTES } else { 0 })
            }
            RequestKind::RmwMany => {
                self.check_unused(&[Shape, PayloadBytes, Offset, Operand])?;
                if self.rmw_parts()?.0 == RmwOp::CompareSwap {
                    return Err(Violation::NothingToCompareWith);
                }
                if self.descriptor_bytes() == 0 {
                    return Err(self.wrong_descriptor());
                }
                self.check_table(0)
            }
            RequestKind::Quiet | RequestKind::Leave | RequestKind::Acknowledge => {
                self.check_unused(&[Shape, Element, Op, PayloadBytes, Rank, Generation, Window, Key, Offset])?;
                if self.kind != RequestKind::Acknowledge {
                    self.check_unused(&[Operand])?;
                }
                self.check_descriptor(0)
            }
            RequestKind::Lock | RequestKind::TryLock | RequestKind::Unlock => {
                self.check_unused(&[Shape, Element, Op, PayloadBytes, Operand])?;
                self.check_descriptor(0)
            }
            RequestKind::Message => {
                self.check_unused(&[Shape, Element, Op, Generation, Window, Key, Offset])?;
                let (found, rest) = (self.payload_bytes, self.operand);
                if found > MAIL_PIECE_BYTES_MAX || rest > MESSAGE_BYTES_MAX - found {
                    return Err(Violation::MessageTooLong { found, rest });
                }
                self.check_descriptor(0)
            }
        }
    }

    fn check_unused(&self, fields: &[HeaderField]) -> Result<(), Violation> {
        for &field in fields {
            let found = match field {
                HeaderField::Shape => self.shape.to_wire().into(),
                HeaderField::Element => self.element.into(),
                HeaderField::Op => self.op.into(),
                HeaderField::PayloadBytes => self.payload_bytes,
                HeaderField::Rank => self.target.rank.0.into(),
                HeaderField::Generation => self.target.generation.0.into(),
                HeaderField::Window => self.target.window.0,
                HeaderField::Key => self.target.key.0,
                HeaderField::Offset => self.offset,
                HeaderField::Operand => self.operand,
            };
            if found != 0 {
                return Err(Violation::UnusedField { kind: self.kind, field, found });
            }
        }
        Ok(())
    }

    fn check_descriptor(&self, expected: usize) -> Result<(), Violation> {
        if self.descriptor_bytes() == expected {
            return Ok(());
        }
        Err(self.wrong_descriptor())
    }

    fn wrong_descriptor(&self) -> Violation {
        Violation::DescriptorBytes { kind: self.kind, found: self.descriptor_bytes }
    }

    /// Whether the descriptor's length is that of `fixed_bytes` and a table of the shape's kind.
    fn check_shape(&self, fixed_bytes: usize, shape_bytes: u64) -> Result<(), Violation> {
        let wrong = self.wrong_descriptor();
        let rest = self.descriptor_bytes().checked_sub(fixed_bytes).ok_or(wrong)?;
        match self.shape {
            ShapeKind::Contiguous => {
                self.check_descriptor(fixed_bytes)?;
                check_run(Run { offset: self.offset, bytes: shape_bytes })
            }
            ShapeKind::Strided => {
                let table = rest.checked_sub(RUN_BYTES_BYTES).ok_or(wrong)?;
                if !table.is_multiple_of(SEGMENT_BYTES) {
                    return Err(wrong);
                }
                if table / SEGMENT_BYTES > LEVELS_MAX {
                    return Err(ShapeError::TooManyLevels { found: table / SEGMENT_BYTES }.into());
                }
                Ok(())
            }
            ShapeKind::Vector => {
                self.check_unused(&[HeaderField::Offset])?;
                self.check_table(fixed_bytes)
            }
        }
    }

    /// Whether the descriptor's length is that of `fixed_bytes` and a list of runs or words.
    fn check_table(&self, fixed_bytes: usize) -> Result<(), Violation> {
        let wrong = self.wrong_descriptor();
        let table = self.descriptor_bytes().checked_sub(fixed_bytes).ok_or(wrong)?;
        if !table.is_multiple_of(SEGMENT_BYTES) {
            return Err(wrong);
        }
        if table / SEGMENT_BYTES > SEGMENTS_PER_FRAME_MAX {
            return Err(Violation::TooManyRuns { found: table / SEGMENT_BYTES });
        }
        Ok(())
    }

    fn kernel(&self) -> Result<Kernel, Violation> {
        let element = ElementType::from_wire(self.element).ok_or(Violation::UnknownElement { found: self.element })?;
        let op = AccumulateOp::from_wire(self.op).ok_or(Violation::UnknownAccumulateOp { found: self.op })?;
        Kernel::new(element, op).ok_or(Violation::SenselessKernel { element, op })
    }

    fn rmw_parts(&self) -> Result<(RmwOp, RmwWidth), Violation> {
        let op = RmwOp::from_wire(self.op).ok_or(Violation::UnknownRmwOp { found: self.op })?;
        let width = RmwWidth::from_wire(self.element).ok_or(Violation::UnknownRmwWidth { found: self.element })?;
        Ok((op, width))
    }

    /// A put's operation field is 0 without a signal, else one more than the signal's operation.
    fn signal_op(&self) -> Result<Option<SignalOp>, Violation> {
        let Some(number) = self.op.checked_sub(1) else { return Ok(None) };
        SignalOp::from_wire(number).map(Some).ok_or(Violation::UnknownSignalOp { found: self.op })
    }

    fn rmw(&self, descriptor: &[u8]) -> Result<Rmw, Violation> {
        let (op, width) = self.rmw_parts()?;
        let compare = if op == RmwOp::CompareSwap { u64_at(descriptor, 0) } else { 0 };
        Ok(Rmw { op, width, operand: self.operand, compare })
    }

    /// The signal, if there is one, and the rest of the descriptor.
    fn signal<'a>(&self, descriptor: &'a [u8]) -> Result<(Option<Signal>, &'a [u8]), Violation> {
        let Some(op) = self.signal_op()? else { return Ok((None, descriptor)) };
        let (fixed, table) = descriptor.split_at(SIGNAL_BYTES);
        let spare = u32_at(fixed, 36);
        if spare != 0 {
            return Err(Violation::SignalSpare { found: spare });
        }
        let signal = Signal {
            window: WindowId(u64_at(fixed, 0)),
            generation: Generation(u32_at(fixed, 32)),
            key: AccessKey(u64_at(fixed, 8)),
            offset: u64_at(fixed, 16),
            op,
            value: u64_at(fixed, 24),
        };
        Ok((Some(signal), table))
    }

    fn accumulate(&self, descriptor: &[u8]) -> Result<Request, Violation> {
        let kernel = self.kernel()?;
        let element = kernel.element();
        let (fixed, table) = descriptor.split_at(SCALE_BYTES);
        let mut scale = Scale([0; SCALE_BYTES]);
        scale.0.copy_from_slice(fixed);
        if !scale.fits(element) {
            return Err(Violation::Scale { element });
        }
        let shape = self.shape(table, self.payload_bytes)?;
        if let Some(run_bytes) = shape.broken_run_bytes(element.bytes()) {
            return Err(Violation::BrokenElement { run_bytes, element });
        }
        Ok(Request::Accumulate { target: self.target, shape, kernel, scale })
    }

    /// The shape, whose bytes have to be as many as the header says.
    fn shape(&self, table: &[u8], declared: u64) -> Result<Shape, Violation> {
        let shape = match self.shape {
            ShapeKind::Contiguous => return Ok(Shape::contiguous(self.offset, declared)),
            ShapeKind::Strided => Shape::Strided(strided(self.offset, table)?),
            ShapeKind::Vector => Shape::Vector(vector(table)?),
        };
        let found = shape.bytes();
        if found != declared {
            return Err(Violation::ShapeBytes { declared, found });
        }
        Ok(shape)
    }
}

fn check_run(run: Run) -> Result<(), Violation> {
    let Run { offset, bytes } = run;
    offset.checked_add(bytes).map(|_| ()).ok_or(Violation::RunOverflow { offset, bytes })
}

/// Reads a table whose length was checked with the header.
fn strided(offset: u64, table: &[u8]) -> Result<Strided, ShapeError> {
    let (run_bytes, table) = table.split_at(RUN_BYTES_BYTES);
    let mut levels = [Level { count: 0, stride: 0 }; LEVELS_MAX];
    let mut level_count = 0;
    for (level, entry) in levels.iter_mut().zip(table.chunks_exact(SEGMENT_BYTES)) {
        *level = Level { count: u64_at(entry, 0), stride: u64_at(entry, 8) as i64 };
        level_count += 1;
    }
    Strided::new(offset, u64_at(run_bytes, 0), &levels[..level_count])
}

/// Reads a table whose length was checked with the header. This and [`vector`] are the places of the wire that allocate: the list.
fn words(table: &[u8]) -> Vec<RmwWord> {
    let word = |entry: &[u8]| RmwWord { offset: u64_at(entry, 0), operand: u64_at(entry, 8) };
    table.chunks_exact(SEGMENT_BYTES).map(word).collect()
}

/// Reads a table whose length was checked with the header.
fn vector(table: &[u8]) -> Result<Vec<Run>, Violation> {
    let mut runs = Vec::with_capacity(table.len() / SEGMENT_BYTES);
    let mut total: u64 = 0;
    for entry in table.chunks_exact(SEGMENT_BYTES) {
        let run = Run { offset: u64_at(entry, 0), bytes: u64_at(entry, 8) };
        check_run(run)?;
        total = total.checked_add(run.bytes).ok_or(Violation::BytesOverflow)?;
        runs.push(run);
    }
    Ok(runs)
}
