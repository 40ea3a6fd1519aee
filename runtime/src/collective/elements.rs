//! Elements from the bytes that members send.

use zerocopy::IntoBytes;

use crate::element::Element;

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
        here.copy_from_slice(piece.as_ref());
        room = rest;
    }
    assert!(room.is_empty(), "the pieces are as many bytes as there is room for");
    all
}
