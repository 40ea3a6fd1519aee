//! Elements from the bytes that members send.

use zerocopy::IntoBytes;

use crate::element::Element;

/// Elements from bytes of any alignment. What is left behind whole elements is left out.
pub(crate) fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len().checked_div(size_of::<T>()).unwrap_or(0);
    joined(&[&bytes[..count * size_of::<T>()]], vec![T::new_zeroed(); count])
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
