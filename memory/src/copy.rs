//! The one routine that moves bytes in and out of memory that others may write.
//!
//! ```text
//!   bytes      how (x86_64)
//!   1 2 4 8    one load, one store: single-copy atomic when aligned
//!   ..16       two overlapping loads, then two overlapping stores
//!   ..256      up to eight 32-byte loads, then the stores (without AVX: of 16 bytes, up to 128 bytes)
//!   more       32-byte (16-byte without AVX) loops, forwards or backwards, with an aligned target
//!   512 KiB..  the string instruction, if the two sides do not overlap and begin at the same place in a line
//!   if asked   the forward loop with stores that pass by the caches, then a store fence; also for shorter copies that
//!              together walk through that much memory (`walk`)
//! ```
//!
//! The code is inline assembly, so the compiler neither sees nor assumes anything about the bytes: memory that another
//! process writes during the copy gives torn bytes, never undefined behaviour. The overlapping-ends layout is that of
//! the memmove of glibc.
//!
//! It refuses to order anything: callers put their own acquire and release operations around a copy. Stores that pass
//! by the caches are fenced before it returns, so a release after it covers them like all others.

use std::sync::atomic::{AtomicUsize, Ordering};

/// From how many bytes on copies pass by the caches before [`set_nontemporal_bytes_min`] was called: never. Whether that
/// pays depends on the caches and on who reads the bytes next; only who knows both should ask for it.
pub const NONTEMPORAL_BYTES_MIN_DEFAULT: usize = usize::MAX;

static NONTEMPORAL_BYTES_MIN: AtomicUsize = AtomicUsize::new(NONTEMPORAL_BYTES_MIN_DEFAULT);

/// From how many bytes on a copy passes by the caches.
#[inline]
pub fn nontemporal_bytes_min() -> usize {
    // Relaxed: a number that stands alone; an old value only means the other, equally correct, loop.
    NONTEMPORAL_BYTES_MIN.load(Ordering::Relaxed)
}

/// Sets from how many bytes on a copy passes by the caches; `usize::MAX` for never.
///
/// About cache bytes / (2 x cores sharing the cache) is right for copies that nobody reads soon.
pub fn set_nontemporal_bytes_min(bytes: usize) {
    // Relaxed: see `nontemporal_bytes_min`.
    NONTEMPORAL_BYTES_MIN.store(bytes, Ordering::Relaxed);
}

/// Copies `len` bytes from `src` to `dst`; the two may overlap.
///
/// An aligned copy of 1, 2, 4 or 8 bytes is one load and one store of that size.
///
/// # Safety
///
/// For the time of the call `src` is readable and `dst` is writable for `len` bytes, and neither is seen by a Rust
/// reference through which somebody else reads or writes at the same time.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    if len <= 16 {
        // SAFETY: the caller's promise, passed on.
        unsafe { machine::copy_tiny(dst, src, len) }
    } else {
        // SAFETY: the caller's promise, passed on.
        unsafe { machine::copy_long(dst, src, len) }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, longarm_portable))))]
#[path = "copy_x86_64.rs"]
pub(crate) mod machine;

#[cfg(not(all(target_arch = "x86_64", not(any(miri, longarm_portable)))))]
#[path = "copy_portable.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS_SMALL: std::ops::Range<usize> = 0..600;

    /// Held by tests whose path depends on the one threshold of the process.
    static THRESHOLD: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * 131 + index / 251 + 7) as u8).collect()
    }

    /// Copies inside one buffer and compares all of it, margins included, with the standard library's answer.
    fn check(buffer_bytes: usize, to: usize, from: usize, len: usize) {
        let mut ours = pattern(buffer_bytes);
        let mut expected = ours.clone();
        expected.copy_within(from..from + len, to);
        assert!(to + len <= buffer_bytes && from + len <= buffer_bytes);
        let base = ours.as_mut_ptr();
        // SAFETY: both ranges are inside the buffer, asserted above, and nobody else sees it.
        unsafe { copy(base.wrapping_add(to), base.wrapping_add(from), len) };
        assert!(ours == expected, "copy of {len} bytes from {from} to {to} differs");
    }

    #[test]
    fn every_small_length_at_every_alignment_is_copied_whole_and_nothing_else() {
        let step = if cfg!(miri) { 37 } else { 1 };
        for len in LENGTHS_SMALL.step_by(step) {
            for (to, from) in [(0, 700), (1, 700), (701, 3), (7, 711), (705, 0), (64, 704)] {
                check(1400, to, from, len);
            }
        }
    }

    #[test]
    fn every_overlap_moves_like_a_temporary_copy() {
        let lengths: &[usize] = if cfg!(miri) {
            &[8, 40, 300]
        } else {
            &[1, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 129, 255, 256, 257, 400, 1000, 3000]
        };
        let step = if cfg!(miri) { 29 } else { 1 };
        for &len in lengths {
            for distance in (0..300).step_by(step) {
                check(4000, distance, 0, len);
                check(4000, 0, distance, len);
                check(4000, 5 + distance, 5, len);
            }
        }
    }

    #[test]
    fn long_copies_are_right_separate_and_overlapping() {
        let _threshold = THRESHOLD.lock();
        let lengths: &[usize] = if cfg!(miri) { &[4097] } else { &[4096, 65_535, 65_536, 1 << 20, (1 << 20) + 77] };
        for &len in lengths {
            for (to_margin, from_margin) in [(0, 0), (31, 31), (1, 0), (0, 9), (31, 33)] {
                let base = len + 64;
                check(2 * base + 128, to_margin, base + from_margin, len);
                check(2 * base + 128, base + to_margin, from_margin, len);
                check(2 * base + 128, 100 + to_margin, from_margin, len);
                check(2 * base + 128, from_margin, 100 + to_margin, len);
            }
        }
    }

    #[test]
    fn copies_that_pass_by_the_caches_are_right() {
        let _threshold = THRESHOLD.lock();
        let len = if cfg!(miri) { 3000 } else { 300_001 };
        set_nontemporal_bytes_min(2048);
        for (to_margin, from_margin) in [(0, 0), (1, 0), (0, 9), (31, 33)] {
            let base = len + 64;
            check(2 * base + 128, to_margin, base + from_margin, len);
            check(2 * base + 128, 50 + to_margin, from_margin, len);
            check(2 * base + 128, from_margin, 50 + to_margin, len);
        }
        set_nontemporal_bytes_min(NONTEMPORAL_BYTES_MIN_DEFAULT);
        assert_eq!(nontemporal_bytes_min(), NONTEMPORAL_BYTES_MIN_DEFAULT);
    }

    #[cfg(not(miri))]
    #[test]
    fn an_aligned_word_is_never_seen_half_written() {
        use std::sync::atomic::{AtomicBool, AtomicU64};
        // The other side of a copy is not aligned: that of the word alone counts.
        let apart = |bytes: [u8; 8], shift: usize| {
            let mut all = [0; 16];
            all[shift..shift + 8].copy_from_slice(&bytes);
            all
        };
        for shift in [0, 1, 4] {
            let word = AtomicU64::new(0);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let [none, all] = [0, u64::MAX].map(|value: u64| apart(value.to_ne_bytes(), shift));
                    for round in 0..70_000u64 {
                        let value = if round % 2 == 0 { &none } else { &all };
                        // SAFETY: eight bytes of an atomic, which every other thread reads by an atomic load or by `copy`.
                        unsafe { copy(word.as_ptr().cast(), value[shift..].as_ptr(), 8) };
                    }
                    done.store(true, Ordering::Release);
                });
                while !done.load(Ordering::Acquire) {
                    let mut seen = [1u8; 16];
                    // SAFETY: as above; `seen` is ours.
                    unsafe { copy(seen[shift..].as_mut_ptr(), word.as_ptr().cast(), 8) };
                    let seen = u64::from_ne_bytes(*seen[shift..].first_chunk().expect("eight bytes"));
                    assert!(seen == 0 || seen == u64::MAX, "a torn word: {seen:#x}");
                    let seen = word.load(Ordering::Relaxed);
                    assert!(seen == 0 || seen == u64::MAX, "a torn word: {seen:#x}");
                }
            });
        }
    }

    /// What it is for a checker of data races to see: the bytes may be any, and each is one that was written there.
    #[test]
    fn two_threads_that_copy_at_one_place_make_no_data_race() {
        use crate::region::RegionMut;
        let rounds = if cfg!(miri) { 3 } else { 300 };
        let mut shared = [0_u8; 120];
        let region = RegionMut::from_slice(&mut shared);
        std::thread::scope(|scope| {
            for value in [1_u8, 2] {
                scope.spawn(move || {
                    let (source, mut seen) = ([value; 120], [0_u8; 120]);
                    for round in 0..rounds {
                        // Both threads use the same parts, of all lengths and alignments, in the same order.
                        let (start, bytes) = (round % 17, (round * 7) % 103);
                        region.slice(start, bytes).copy_from_slice(&source[..bytes]);
                        region.as_region().slice(start, bytes).copy_to_slice(&mut seen[..bytes]);
                        assert!(seen[..bytes].iter().all(|byte| [1, 2].contains(byte)), "bytes that nobody wrote");
                    }
                });
            }
        });
    }
}
