//! Buffers that are lent to a scope.

use longarm::{Scope, Window};
use zerocopy::{FromBytes, IntoBytes};

use super::form::Shape;
use super::model::UNTOUCHED;
use super::number::{Kind, update_of, with_element, with_number};
use super::program::{Body, Op};

/// Bytes that are aligned for every element type.
pub struct Buffer {
    words: Vec<u64>,
    bytes: usize,
}

impl Buffer {
    /// For an operation whose buffer has these bytes: before it if it writes, afterwards if it reads.
    pub fn new(op: &Op, expected: &[u8]) -> Buffer {
        let mut words = vec![0_u64; expected.len().div_ceil(8)];
        let bytes = &mut words.as_mut_slice().as_mut_bytes()[..expected.len()];
        match op.body {
            Body::Get { .. } => bytes.fill(UNTOUCHED),
            _ => bytes.copy_from_slice(expected),
        }
        Buffer { words, bytes: expected.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.words.as_slice().as_bytes()[..self.bytes]
    }

    /// Starts the operation on this buffer.
    pub fn start<'env>(&'env mut self, scope: &Scope<'env>, windows: &[Option<Window<u8>>], op: &Op) {
        let bytes = &mut self.words.as_mut_slice().as_mut_bytes()[..self.bytes];
        let window = |slot: usize| windows[slot].as_ref().expect("who is no member has no operation on it");
        match &op.body {
            Body::Put { place, kind, shape, .. } => with_element!(*kind, T => {
                let source = <[T]>::ref_from_bytes(bytes).expect("whole elements, aligned");
                let window = window(place.slot).cast::<T>();
                match shape {
                    Shape::Run { index, .. } => scope.put(&window, place.rank, *index, source),
                    Shape::Strided { target, buffer, .. } => {
                        scope.put(&window, place.rank, target.patch().with_buffer(&buffer.patch()), source);
                    }
                    Shape::Vector { segments, .. } => scope.put(&window, place.rank, segments, source),
                }
            }),
            Body::Get { place, kind, shape, .. } => with_element!(*kind, T => {
                let target = <[T]>::mut_from_bytes(bytes).expect("whole elements, aligned");
                let window = window(place.slot).cast::<T>();
                match shape {
                    Shape::Run { index, .. } => scope.get(&window, place.rank, *index, target),
                    Shape::Strided { target: from, buffer, .. } => {
                        scope.get(&window, place.rank, from.patch().with_buffer(&buffer.patch()), target);
                    }
                    Shape::Vector { segments, .. } => scope.get(&window, place.rank, segments, target),
                }
            }),
            Body::Accumulate { place, kind, shape, deed, factor, .. } => with_number!(*kind, T => {
                let source = <[T]>::ref_from_bytes(bytes).expect("whole elements, aligned");
                let (window, rank) = (window(place.slot).cast::<T>(), place.rank);
                let update = update_of::<T>(*deed, *factor);
                match shape {
                    Shape::Run { index, .. } => scope.accumulate(&window, rank, *index, update, source),
                    Shape::Strided { target, buffer, .. } => {
                        scope.accumulate(&window, rank, target.patch().with_buffer(&buffer.patch()), update, source);
                    }
                    Shape::Vector { segments, .. } => scope.accumulate(&window, rank, segments, update, source),
                }
            }),
            _ => unreachable!("only transfers are drawn into scopes"),
        }
    }
}
