//! The copy for machines without hand-written code, and for Miri: relaxed atomic words.
//!
//! ```text
//!   1 2 4 8 bytes                 one load and one store, each side that is aligned for it; single bytes on the other
//!   both sides equally aligned    ░▒▒▒████████████▒░   the widest words that both sides are aligned for, bytes at the edges
//!   else                          single bytes
//! ```
//!
//! Backwards when the target lies above the source inside it, as memmove does.
//!
//! Two threads that copy at one place at the same time are what regions are for, so every access is atomic. Accesses of
//! different widths may meet. Of these Rust's model says nothing good; its compiler's (LLVM's) speaks of each byte by
//! itself, and so does every processor that this is compiled for.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What one access moves.
trait Word: Copy {
    /// # Safety
    ///
    /// `from` is aligned, and readable as `copy` asks for.
    unsafe fn load(from: *const Self) -> Self;

    /// # Safety
    ///
    /// `to` is aligned, and writable as `copy` asks for.
    unsafe fn store(to: *mut Self, word: Self);
}

macro_rules! words {
    ($($word:ty, $atomic:ty;)+) => {$(
        impl Word for $word {
            #[inline(always)]
            unsafe fn load(from: *const $word) -> $word {
                // SAFETY: aligned and readable, as the caller promises; nothing but a load is done with the reference, so
                // that it may be memory that nobody can write.
                let word = unsafe { &*from.cast::<$atomic>() };
                // Relaxed: callers order copies by what they put around them.
                word.load(Ordering::Relaxed)
            }

            #[inline(always)]
            unsafe fn store(to: *mut $word, word: $word) {
                // SAFETY: aligned and writable, as the caller promises, and others touch it by atomic accesses only.
                let target = unsafe { <$atomic>::from_ptr(to) };
                // Relaxed: as for the load.
                target.store(word, Ordering::Relaxed);
            }
        }
    )+};
}

words! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Copies at most 16 bytes.
///
/// # Safety
///
/// As for `copy`.
#[inline]
pub(super) unsafe fn copy_tiny(dst: *mut u8, src: *const u8, len: usize) {
    match len {
        // SAFETY: the caller's promise, for as many bytes.
        8 => unsafe { copy_one::<u64, 8>(dst, src, u64::from_ne_bytes, u64::to_ne_bytes) },
        // SAFETY: the caller's promise, for as many bytes.
        4 => unsafe { copy_one::<u32, 4>(dst, src, u32::from_ne_bytes, u32::to_ne_bytes) },
        // SAFETY: the caller's promise, for as many bytes.
        2 => unsafe { copy_one::<u16, 2>(dst, src, u16::from_ne_bytes, u16::to_ne_bytes) },
        // SAFETY: the caller's promise, passed on.
        _ => unsafe { copy_long(dst, src, len) },
    }
}

/// Copies one word, each side whole if it is aligned, whatever the other one is.
///
/// # Safety
///
/// As for `copy`, for `BYTES` bytes, which is the size of a `W`.
#[inline(always)]
unsafe fn copy_one<W: Word, const BYTES: usize>(
    dst: *mut u8,
    src: *const u8,
    joined: fn([u8; BYTES]) -> W,
    split: fn(W) -> [u8; BYTES],
) {
    let (to, from) = (dst.cast::<W>(), src.cast::<W>());
    let word = if from.is_aligned() {
        // SAFETY: aligned, and inside the source.
        unsafe { W::load(from) }
    } else {
        // SAFETY: `byte < BYTES`, so it is inside the source.
        joined(std::array::from_fn(|byte| unsafe { u8::load(src.wrapping_add(byte)) }))
    };
    if to.is_aligned() {
        // SAFETY: aligned, and inside the target.
        unsafe { W::store(to, word) }
    } else {
        for (at, byte) in split(word).into_iter().enumerate() {
            // SAFETY: `at < BYTES`, so it is inside the target.
            unsafe { u8::store(dst.wrapping_add(at), byte) }
        }
    }
}

/// Copies any number of bytes.
///
/// # Safety
///
/// As for `copy`.
pub(super) unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    let apart = dst.addr().wrapping_sub(src.addr());
    if apart.is_multiple_of(8) {
        // SAFETY: the caller's promise, and both sides are equally aligned for 8 bytes.
        unsafe { copy_words::<u64>(dst, src, len) }
    } else if apart.is_multiple_of(4) {
        // SAFETY: as above, for 4.
        unsafe { copy_words::<u32>(dst, src, len) }
    } else if apart.is_multiple_of(2) {
        // SAFETY: as above, for 2.
        unsafe { copy_words::<u16>(dst, src, len) }
    } else {
        // SAFETY: as above, for 1.
        unsafe { copy_words::<u8>(dst, src, len) }
    }
}

/// # Safety
///
/// As for `copy`, and the two sides are whole words apart.
unsafe fn copy_words<W: Word>(dst: *mut u8, src: *const u8, len: usize) {
    let word_bytes = size_of::<W>();
    let head = (dst.addr().wrapping_neg() % word_bytes).min(len);
    let tail = head + (len - head) / word_bytes * word_bytes;
    let backwards = dst.addr().wrapping_sub(src.addr()) < len;
    let byte = |at: usize| {
        // SAFETY: `at < len` wherever this is called, so the byte is inside the source.
        let byte = unsafe { u8::load(src.wrapping_add(at)) };
        // SAFETY: as for the source.
        unsafe { u8::store(dst.wrapping_add(at), byte) }
    };
    let word = |at: usize| {
        // SAFETY: a whole word from `at` on is inside the source, and aligned, as `head` is where the target is, and with it
        // the source.
        let word = unsafe { W::load(src.wrapping_add(at).cast()) };
        // SAFETY: as for the source.
        unsafe { W::store(dst.wrapping_add(at).cast(), word) }
    };
    if backwards {
        (tail..len).rev().for_each(byte);
        (head..tail).step_by(word_bytes).rev().for_each(word);
        (0..head).rev().for_each(byte);
    } else {
        (0..head).for_each(byte);
        (head..tail).step_by(word_bytes).for_each(word);
        (tail..len).for_each(byte);
    }
}
