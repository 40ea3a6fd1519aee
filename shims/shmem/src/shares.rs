//! Shares: what each member of a reduction combines for all.

use crate::operator::Operator;
use crate::rma;

/// What a share is combined in: it stays in the nearest cache.
const BLOCK_BYTES: usize = 4096;

/// Memory for one block, aligned for every element.
#[repr(C, align(64))]
struct Block([u8; BLOCK_BYTES]);

/// From where to where the share of one of several goes.
#[inline]
pub(crate) fn share(count: usize, (place, size): (usize, usize)) -> (usize, usize) {
    (count * place / size, count * (place + 1) / size)
}

/// Combines one share of the elements of all sources, in their order.
///
/// # Safety
/// The share is readable at the sources and writable at `dest`. It may be that of one of them, which nobody else reads.
pub(crate) unsafe fn combine_share<O: Operator<T>, T>(dest: *mut T, sources: &[*const T], (from, to): (usize, usize)) {
    let most = BLOCK_BYTES / size_of::<T>();
    let mut block = Block([0; BLOCK_BYTES]);
    let row: *mut T = (&raw mut block).cast();
    for at in (from..to).step_by(most) {
        let piece = (to - at).min(most);
        // SAFETY: this function's own contract; a block has room for the piece.
        unsafe { rma::copy(row.cast(), sources[0].wrapping_add(at).cast(), piece * size_of::<T>()) };
        for theirs in &sources[1..] {
            // SAFETY: as above; the elements are aligned as the source is.
            unsafe { O::combine(row, theirs.wrapping_add(at), piece) };
        }
        // SAFETY: this function's own contract.
        unsafe { rma::copy(dest.wrapping_add(at).cast(), row.cast(), piece * size_of::<T>()) };
    }
}
