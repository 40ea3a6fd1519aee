//! The copy for machines without hand-written code, and for Miri: volatile words.
//!
//! Whole aligned words where both sides are equally aligned, single bytes elsewhere. Backwards when the target lies
//! above the source inside it, as memmove does.

/// Copies at most 16 bytes.
///
/// # Safety
///
/// As for `copy`.
#[inline]
pub(super) unsafe fn copy_tiny(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise, passed on.
    unsafe { copy_long(dst, src, len) }
}

/// Copies any number of bytes.
///
/// # Safety
///
/// As for `copy`.
pub(super) unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    let aligned_for = |bytes: usize| len % bytes == 0 && dst.addr() % bytes == 0 && src.addr() % bytes == 0;
    if aligned_for(8) {
        // SAFETY: the caller's promise, and both sides and the length are multiples of 8.
        unsafe { copy_words::<u64>(dst.cast(), src.cast(), len / 8) }
    } else if aligned_for(4) {
        // SAFETY: as above, for 4.
        unsafe { copy_words::<u32>(dst.cast(), src.cast(), len / 4) }
    } else if aligned_for(2) {
        // SAFETY: as above, for 2.
        unsafe { copy_words::<u16>(dst.cast(), src.cast(), len / 2) }
    } else {
        // SAFETY: the caller's promise; bytes are always aligned.
        unsafe { copy_words::<u8>(dst, src, len) }
    }
}

/// # Safety
///
/// Both sides are aligned for `W` and valid for `count` of them.
unsafe fn copy_words<W: Copy>(dst: *mut W, src: *const W, count: usize) {
    let backwards = dst.addr().wrapping_sub(src.addr()) < count * size_of::<W>();
    for step in 0..count {
        let index = if backwards { count - 1 - step } else { step };
        // SAFETY: `index < count`, so this word is inside the source.
        let word = unsafe { src.wrapping_add(index).read_volatile() };
        // SAFETY: `index < count`, so this word is inside the target.
        unsafe { dst.wrapping_add(index).write_volatile(word) };
    }
}
