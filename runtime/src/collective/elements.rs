//! Elements from the bytes that members send.

use zerocopy::IntoBytes;

use crate::element::Element;

/// Elements from bytes of any alignment.
pub(crate) fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    joined(&[bytes])
}

/// Elements from the bytes of several pieces, one behind the other. What is left of a piece behind whole elements is left
/// out.
pub(super) fn joined<T: Element>(pieces: &[impl AsRef<[u8]>]) -> Vec<T> {
    let element_bytes = size_of::<T>();
    if element_bytes == 0 {
        return Vec::new();
    }
    let whole = |piece: &[u8]| piece.len() / element_bytes * element_bytes;
    let total: usize = pieces.iter().map(|piece| whole(piece.as_ref())).sum();
    let mut elements = vec![T::new_zeroed(); total / element_bytes];
    let mut room = elements.as_mut_slice().as_mut_bytes();
    for piece in pieces {
        let (here, rest) = room.split_at_mut(whole(piece.as_ref()));
        here.copy_from_slice(&piece.as_ref()[..here.len()]);
        room = rest;
    }
    elements
}

/// Several pieces, one behind the other, that are as many bytes together as there is room for.
pub(super) fn join_into<T: Element>(pieces: &[impl AsRef<[u8]>], elements: &mut [T]) {
    let mut room = elements.as_mut_bytes();
    for piece in pieces {
        let (here, rest) = room.split_at_mut(piece.as_ref().len());
        here.copy_from_slice(piece.as_ref());
        room = rest;
    }
    assert!(room.is_empty(), "the pieces are as many bytes as there is room for");
}
