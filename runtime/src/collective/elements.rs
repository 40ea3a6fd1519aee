//! Elements from the bytes that members send, and copies of them.

use longarm_memory::{Region, RegionMut};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::element::Element;

/// Copies `source` to `target`, which is as long. Not by `copy_from_slice`: the C library's copy of some
/// KiB and more takes ten times as long on some processors (AMD Zen 3) where both sides begin at the same place of a page, as large buffers
/// of `malloc` do.
///
/// # Panics
/// If the lengths differ.
pub(super) fn copy(target: &mut [u8], source: &[u8]) {
    RegionMut::from_slice(target).copy_from(Region::from_slice(source));
}

/// The bytes of a load. As many as fit into a line need no allocation: one takes as long as half a flag barrier.
pub(crate) type LoadBytes = SmallVec<[u8; INLINE_BYTES]>;
pub(super) const INLINE_BYTES: usize = 40;

/// The bytes, copied as [`copy`] does.
pub(super) fn copied(bytes: &[u8]) -> LoadBytes {
    if bytes.len() <= INLINE_BYTES { LoadBytes::from_slice(bytes) } else { concatenated(&[bytes]).into() }
}

/// A new list of the bytes of the pieces, one piece behind the other; [`joined`] fills memory that is there.
pub(super) fn concatenated(pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
    pieces.iter().for_each(|piece| Region::from_slice(piece).append_to(&mut bytes));
    bytes
}

/// Elements from bytes of any alignment. What is left behind whole elements is left out.
pub(crate) fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len().checked_div(size_of::<T>()).unwrap_or(0);
    joined(&[&bytes[..count * size_of::<T>()]], vec![T::new_zeroed(); count])
}

/// As many lists as bodies, each of the elements of one, in the memory that the lists have.
pub(super) fn fill_lists<T: Element>(lists: &mut Vec<Vec<T>>, bodies: &[impl AsRef<[u8]>]) {
    lists.resize_with(bodies.len(), Vec::new);
    for (list, body) in lists.iter_mut().zip(bodies) {
        let count = body.as_ref().len().checked_div(size_of::<T>()).unwrap_or(0);
        list.resize_with(count, T::new_zeroed);
        joined(&[&body.as_ref()[..count * size_of::<T>()]], list.as_mut_slice());
    }
}

/// The pieces one behind the other in `all`, which has as many bytes as they have together.
pub(super) fn joined<T: Element, R: AsMut<[T]>>(pieces: &[impl AsRef<[u8]>], mut all: R) -> R {
    let mut room = all.as_mut().as_mut_bytes();
    for piece in pieces {
        let (here, rest) = room.split_at_mut(piece.as_ref().len());
        copy(here, piece.as_ref());
        room = rest;
    }
    assert!(room.is_empty(), "the pieces are as many bytes as there is room for");
    all
}
