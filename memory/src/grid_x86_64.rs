//! The copies of a grid's runs for x86_64: a loop of its own for each class of lengths.

use std::arch::asm;

use super::Grid;
use super::copy;
use crate::copy::machine::{avx_to_64, avx_to_128, avx_to_256, copy_tiny, copy_to_32};

/// Copies every run.
///
/// # Safety
///
/// Every run of the grid that starts at these places is valid, as for `copy`.
pub(super) unsafe fn copy_runs(grid: &Grid, dst: *mut u8, src: *const u8) {
    match grid.run_bytes {
        // The frequent lengths are constants in loops of their own.
        // SAFETY: the caller's promise, and the length is 8.
        8 => grid.walk(dst, src, |dst, src| unsafe { copy_tiny(dst, src, 8) }),
        // SAFETY: the caller's promise, and the length is 16.
        16 => grid.walk(dst, src, |dst, src| unsafe { copy_tiny(dst, src, 16) }),
        // SAFETY: the caller's promise, and the length is at most 16.
        bytes @ ..=16 => grid.walk(dst, src, |dst, src| unsafe { copy_tiny(dst, src, bytes) }),
        // SAFETY: the caller's promise, and the length is 17 to 32.
        bytes @ ..=32 => grid.walk(dst, src, |dst, src| unsafe { copy_to_32(dst, src, bytes) }),
        // SAFETY: the caller's promise, the length is 33 to 256, and the processor has AVX.
        ..=256 if is_x86_feature_detected!("avx") => unsafe { copy_runs_avx(grid, dst, src) },
        bytes => {
            let ahead = Ahead::new(grid);
            grid.walk(dst, src, |dst, src| {
                ahead.fetch(dst, src);
                // SAFETY: the caller's promise, passed on.
                unsafe { copy(dst, src, bytes) }
            });
        }
    }
}

/// What is brought into the caches while the run before it is copied. The processor finds the next lines of a run by
/// itself, but not the next run, and short runs in a large patch are mostly waiting.
struct Ahead {
    bytes: usize,
    target_stride: isize,
    source_stride: isize,
}

impl Ahead {
    /// What fewer bytes touch is in the caches most of the time.
    const GRID_BYTES_MIN: usize = 512 << 10;
    /// Longer runs have time to be found.
    const RUN_BYTES_MAX: usize = 4 << 10;
    const BYTES_MAX: usize = 1 << 10;

    fn new(grid: &Grid) -> Ahead {
        let [next, ..] = grid.steps;
        let counts = grid.steps.iter().fold(1, |product: usize, step| product.saturating_mul(step.count));
        let total_bytes = counts.saturating_mul(grid.run_bytes);
        let worth = total_bytes >= Self::GRID_BYTES_MIN && grid.run_bytes <= Self::RUN_BYTES_MAX;
        let bytes = if worth { grid.run_bytes.min(Self::BYTES_MAX) } else { 0 };
        Ahead { bytes, target_stride: next.target_stride, source_stride: next.source_stride }
    }

    /// Behind the last run this names memory that is not there, which does no harm.
    #[inline(always)]
    fn fetch(&self, dst: *mut u8, src: *const u8) {
        let (dst, src) = (dst.wrapping_offset(self.target_stride), src.wrapping_offset(self.source_stride));
        for line in (0..self.bytes).step_by(64) {
            // SAFETY: a prefetch of any address, mapped or not, changes nothing but the caches.
            unsafe {
                asm!(
                    "prefetchw [{dst}]",
                    "prefetcht0 [{src}]",
                    dst = in(reg) dst.wrapping_add(line),
                    src = in(reg) src.wrapping_add(line),
                    options(nostack, preserves_flags)
                )
            }
        }
    }
}

/// # Safety
///
/// As for `copy_runs`, and runs have 32 to 256 bytes.
#[target_feature(enable = "avx")]
unsafe fn copy_runs_avx(grid: &Grid, dst: *mut u8, src: *const u8) {
    match grid.run_bytes {
        // SAFETY: the caller's promise, and the length is 64.
        64 => grid.walk(dst, src, |dst, src| unsafe { avx_to_64(dst, src, 64) }),
        // SAFETY: the caller's promise, and the length is 32 to 64.
        bytes @ ..=64 => grid.walk(dst, src, |dst, src| unsafe { avx_to_64(dst, src, bytes) }),
        // SAFETY: the caller's promise, and the length is 65 to 128.
        bytes @ ..=128 => grid.walk(dst, src, |dst, src| unsafe { avx_to_128(dst, src, bytes) }),
        bytes => {
            let ahead = Ahead::new(grid);
            grid.walk(dst, src, |dst, src| {
                ahead.fetch(dst, src);
                // SAFETY: the caller's promise, and the length is 129 to 256.
                unsafe { avx_to_256(dst, src, bytes) }
            });
        }
    }
}
