//! The copy for x86_64, in inline assembly. See the parent module for the picture.
//!
//! Every asm block takes two pointers as plain registers and may read and write any memory (no `nomem`, no `readonly`),
//! so the compiler keeps its own view of memory apart from what happens inside.

use std::arch::asm;
use std::arch::x86_64::__m256;

use super::nontemporal_bytes_min;
use crate::vector::{load, store};
use crate::walk;

/// Two loads of one size from the two ends, then the two stores: right for overlapping sides, as nothing is stored
/// before all is loaded.
macro_rules! both_ends {
    ($dst:ident, $src:ident, $len:ident, $bytes:literal, $load:literal, $store:literal, $a:literal, $b:literal) => {{
        // SAFETY: the caller promises that both sides are valid for `len` bytes, and `len` is at least the size of one
        // load, so both ends are inside.
        unsafe {
            asm!(
                concat!($load, " {a", $a, "}, [{src}]"),
                concat!($load, " {b", $b, "}, [{src} + {len} - ", $bytes, "]"),
                concat!($store, " [{dst}], {a", $a, "}"),
                concat!($store, " [{dst} + {len} - ", $bytes, "], {b", $b, "}"),
                src = in(reg) $src,
                dst = in(reg) $dst,
                len = in(reg) $len,
                a = out(reg) _,
                b = out(reg) _,
                options(nostack, preserves_flags)
            )
        }
    }};
}

/// One load and one store of one size.
macro_rules! one_word {
    ($dst:ident, $src:ident, $load:literal, $store:literal) => {{
        // SAFETY: the caller promises that both sides are valid for `len` bytes, which is the size of this word.
        unsafe {
            asm!(
                $load,
                $store,
                src = in(reg) $src,
                dst = in(reg) $dst,
                word = out(reg) _,
                options(nostack, preserves_flags)
            )
        }
    }};
}

/// Copies at most 16 bytes.
///
/// # Safety
///
/// As for `copy`, and `len <= 16`.
#[inline(always)]
pub(crate) unsafe fn copy_tiny(dst: *mut u8, src: *const u8, len: usize) {
    // 8 first: a word of a window is by far the most frequent small copy. A word is stored once: storing it twice
    // could undo what another rank stored in between.
    if len == 8 {
        one_word!(dst, src, "mov {word:r}, [{src}]", "mov [{dst}], {word:r}");
    } else if len > 8 {
        both_ends!(dst, src, len, "8", "mov", "mov", ":r", ":r");
    } else if len == 4 {
        one_word!(dst, src, "mov {word:e}, [{src}]", "mov [{dst}], {word:e}");
    } else if len > 4 {
        both_ends!(dst, src, len, "4", "mov", "mov", ":e", ":e");
    } else if len == 2 {
        one_word!(dst, src, "movzx {word:e}, word ptr [{src}]", "mov [{dst}], {word:x}");
    } else if len == 3 {
        both_ends!(dst, src, len, "2", "mov", "mov", ":x", ":x");
    } else if len == 1 {
        one_word!(dst, src, "movzx {word:e}, byte ptr [{src}]", "mov [{dst}], {word:l}");
    }
}

/// Copies more than 16 bytes.
///
/// # Safety
///
/// As for `copy`, and `len > 16`.
#[inline(never)]
pub(super) unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    if len <= 32 {
        // SAFETY: the caller's promise, and 16 < len <= 32.
        unsafe { copy_to_32(dst, src, len) }
    } else if len <= 64 {
        // SAFETY: the caller's promise, and 32 < len <= 64.
        unsafe { copy_to_64(dst, src, len) }
    } else if len <= 256 && is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise, 64 < len <= 256, and the processor has AVX.
        unsafe { copy_to_256_avx(dst, src, len) }
    } else if len <= 128 {
        // SAFETY: the caller's promise, and 64 < len <= 128.
        unsafe { copy_to_128(dst, src, len) }
    } else {
        // SAFETY: the caller's promise, and len > 128.
        unsafe { copy_bulk(dst, src, len) }
    }
}

/// # Safety
///
/// As for `copy`, and `64 < len <= 256`.
#[target_feature(enable = "avx")]
unsafe fn copy_to_256_avx(dst: *mut u8, src: *const u8, len: usize) {
    if len <= 128 {
        // SAFETY: the caller's promise, and 64 < len <= 128.
        unsafe { avx_to_128(dst, src, len) }
    } else {
        // SAFETY: the caller's promise, and 128 < len <= 256.
        unsafe { avx_to_256(dst, src, len) }
    }
}

/// # Safety
///
/// As for `copy`, and `32 <= len <= 64`.
#[target_feature(enable = "avx")]
#[inline]
pub(crate) unsafe fn avx_to_64(dst: *mut u8, src: *const u8, len: usize) {
    let (dst_end, src_end) = (dst.wrapping_add(len - 32), src.wrapping_add(len - 32));
    let first = load!(__m256, ymm_reg, "vmovups", src, 0);
    let last = load!(__m256, ymm_reg, "vmovups", src_end, 0);
    store!(ymm_reg, "vmovups", dst, 0, first);
    store!(ymm_reg, "vmovups", dst_end, 0, last);
}

/// # Safety
///
/// As for `copy`, and `64 <= len <= 128`.
#[target_feature(enable = "avx")]
#[inline]
pub(crate) unsafe fn avx_to_128(dst: *mut u8, src: *const u8, len: usize) {
    let (dst_end, src_end) = (dst.wrapping_add(len - 64), src.wrapping_add(len - 64));
    let a = load!(__m256, ymm_reg, "vmovups", src, 0);
    let b = load!(__m256, ymm_reg, "vmovups", src, 32);
    let c = load!(__m256, ymm_reg, "vmovups", src_end, 0);
    let d = load!(__m256, ymm_reg, "vmovups", src_end, 32);
    store!(ymm_reg, "vmovups", dst, 0, a);
    store!(ymm_reg, "vmovups", dst, 32, b);
    store!(ymm_reg, "vmovups", dst_end, 0, c);
    store!(ymm_reg, "vmovups", dst_end, 32, d);
}

/// # Safety
///
/// As for `copy`, and `128 <= len <= 256`.
#[target_feature(enable = "avx")]
#[inline]
pub(crate) unsafe fn avx_to_256(dst: *mut u8, src: *const u8, len: usize) {
    let (dst_end, src_end) = (dst.wrapping_add(len - 128), src.wrapping_add(len - 128));
    let a = load!(__m256, ymm_reg, "vmovups", src, 0);
    let b = load!(__m256, ymm_reg, "vmovups", src, 32);
    let c = load!(__m256, ymm_reg, "vmovups", src, 64);
    let d = load!(__m256, ymm_reg, "vmovups", src, 96);
    let e = load!(__m256, ymm_reg, "vmovups", src_end, 0);
    let f = load!(__m256, ymm_reg, "vmovups", src_end, 32);
    let g = load!(__m256, ymm_reg, "vmovups", src_end, 64);
    let h = load!(__m256, ymm_reg, "vmovups", src_end, 96);
    store!(ymm_reg, "vmovups", dst, 0, a);
    store!(ymm_reg, "vmovups", dst, 32, b);
    store!(ymm_reg, "vmovups", dst, 64, c);
    store!(ymm_reg, "vmovups", dst, 96, d);
    store!(ymm_reg, "vmovups", dst_end, 0, e);
    store!(ymm_reg, "vmovups", dst_end, 32, f);
    store!(ymm_reg, "vmovups", dst_end, 64, g);
    store!(ymm_reg, "vmovups", dst_end, 96, h);
}

/// From here on the string instruction is fastest between separate ranges that it suits: it takes whole cache lines for writing
/// without reading them first, which counts where both ranges together no longer fit the second-level cache. Measured
/// with `examples/copy_speed`: equal at 256 KiB, 1.5 times as fast at 1 MiB, and slower at 4 KiB.
const STRING_BYTES_MIN: usize = 512 << 10;

/// Whether the string instruction suits two ranges, by how far the target is ahead of the source: only if both begin at the
/// same place in a line of the cache. Else vectors are quicker, and twice as quick where the target is less than a line further
/// behind a page's start than the source, as a block of malloc is that receives what begins at a line.
fn suits_string(ahead: usize) -> bool {
    const LINE: usize = 64;
    ahead.is_multiple_of(LINE)
}

/// Shorter copies are not looked at whether they belong to a walk: what that costs would be seen, and they do not fill a cache.
const WALK_PIECE_BYTES_MIN: usize = 128 << 10;

/// Copies more than 128 bytes. Apart from `copy_long`, so that shorter copies do not pay for its registers.
///
/// # Safety
///
/// As for `copy`, and `len > 128`.
#[inline(never)]
pub(crate) unsafe fn copy_bulk(dst: *mut u8, src: *const u8, len: usize) {
    let ahead = dst.addr().wrapping_sub(src.addr());
    let separate = ahead >= len && ahead.wrapping_neg() >= len;
    let bytes_min = nontemporal_bytes_min();
    let around_caches =
        len >= bytes_min || len >= WALK_PIECE_BYTES_MIN && walk::is_long_with(dst.addr(), len, bytes_min);
    let string = separate && len >= STRING_BYTES_MIN && !around_caches && suits_string(ahead);
    if string && is_x86_feature_detected!("ermsb") {
        // SAFETY: the caller's promise, and the ranges are separate and longer than 64 bytes.
        unsafe { copy_string(dst, src, len) }
    } else if is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise, len > 128, and the processor has AVX.
        unsafe { copy_avx(dst, src, len, around_caches) }
    } else {
        // SAFETY: the caller's promise, and len > 128.
        unsafe { copy_sse(dst, src, len, around_caches) }
    }
}

/// The first cache line by vectors, the rest by the string instruction, with an aligned target.
///
/// # Safety
///
/// As for `copy`, the ranges do not overlap, and `len >= 64`.
unsafe fn copy_string(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the first 64 bytes are inside both ranges. The string instruction moves the bytes from the next multiple of
    // 64 in the target to its end; the direction flag is clear at every asm block.
    unsafe {
        asm!(
            "movups {a}, [rsi]",
            "movups {b}, [rsi + 16]",
            "movups {c}, [rsi + 32]",
            "movups {d}, [rsi + 48]",
            "movups [rdi], {a}",
            "movups [rdi + 16], {b}",
            "movups [rdi + 32], {c}",
            "movups [rdi + 48], {d}",
            "mov {skip}, rdi",
            "or {skip}, -64",  // Minus the bytes to the next multiple of 64: -64 where it is one.
            "sub rdi, {skip}",
            "sub rsi, {skip}",
            "add rcx, {skip}",
            "rep movsb",
            inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len => _,
            skip = out(reg) _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack)
        )
    }
}

/// # Safety
///
/// As for `copy`, and `16 < len <= 32`.
#[inline(always)]
pub(crate) unsafe fn copy_to_32(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: both sides are valid for `len >= 16` bytes, so both ends are inside.
    unsafe {
        asm!(
            "movups {a}, [{src}]",
            "movups {b}, [{src} + {len} - 16]",
            "movups [{dst}], {a}",
            "movups [{dst} + {len} - 16], {b}",
            src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _,
            options(nostack, preserves_flags)
        )
    }
}

/// # Safety
///
/// As for `copy`, and `32 < len <= 64`.
#[inline(always)]
pub(crate) unsafe fn copy_to_64(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: both sides are valid for `len >= 32` bytes, so 32 bytes from both ends are inside.
    unsafe {
        asm!(
            "movups {a}, [{src}]",
            "movups {b}, [{src} + 16]",
            "movups {c}, [{src} + {len} - 32]",
            "movups {d}, [{src} + {len} - 16]",
            "movups [{dst}], {a}",
            "movups [{dst} + 16], {b}",
            "movups [{dst} + {len} - 32], {c}",
            "movups [{dst} + {len} - 16], {d}",
            src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, preserves_flags)
        )
    }
}

/// # Safety
///
/// As for `copy`, and `64 < len <= 128`.
#[inline(always)]
pub(crate) unsafe fn copy_to_128(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: both sides are valid for `len >= 64` bytes, so 64 bytes from both ends are inside.
    unsafe {
        asm!(
            "movups {a}, [{src}]",
            "movups {b}, [{src} + 16]",
            "movups {c}, [{src} + 32]",
            "movups {d}, [{src} + 48]",
            "movups {e}, [{src} + {len} - 64]",
            "movups {f}, [{src} + {len} - 48]",
            "movups {g}, [{src} + {len} - 32]",
            "movups {h}, [{src} + {len} - 16]",
            "movups [{dst}], {a}",
            "movups [{dst} + 16], {b}",
            "movups [{dst} + 32], {c}",
            "movups [{dst} + 48], {d}",
            "movups [{dst} + {len} - 64], {e}",
            "movups [{dst} + {len} - 48], {f}",
            "movups [{dst} + {len} - 32], {g}",
            "movups [{dst} + {len} - 16], {h}",
            src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            e = out(xmm_reg) _, f = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _,
            options(nostack, preserves_flags)
        )
    }
}

/// The forward loop of `long_copy`, with aligned stores or with stores that pass by the caches.
macro_rules! long_forward {
    ($dst:ident, $src:ident, $len:ident, $load:literal, $store:literal, $inner:literal, $v:literal, $bytes:literal,
     $end:literal, $b2:literal, $b3:literal, $b4:literal, $fence:literal) => {
        asm!(
            concat!($load, " ", $v, "4, [rsi + rdx - ", $bytes, "]"),
            concat!($load, " ", $v, "5, [rsi + rdx - ", $b2, "]"),
            concat!($load, " ", $v, "6, [rsi + rdx - ", $b3, "]"),
            concat!($load, " ", $v, "7, [rsi + rdx - ", $b4, "]"),
            concat!($load, " ", $v, "8, [rsi]"),
            "mov r8, rdi",
            "lea r9, [rdi + rdx]",                  // One past the target.
            concat!("lea rcx, [r9 - ", $b4, "]"),   // From here on the saved end takes over.
            "sub rsi, rdi",                          // The source is the target plus rsi from here on.
            concat!("add rdi, ", $bytes),
            concat!("and rdi, -", $bytes),           // The first aligned vector of the target.
            "cmp rdi, rcx",
            "jae 3f",
            ".p2align 5",
            "2:",
            concat!($load, " ", $v, "0, [rdi + rsi]"),
            concat!($load, " ", $v, "1, [rdi + rsi + ", $bytes, "]"),
            concat!($load, " ", $v, "2, [rdi + rsi + ", $b2, "]"),
            concat!($load, " ", $v, "3, [rdi + rsi + ", $b3, "]"),
            concat!($inner, " [rdi], ", $v, "0"),
            concat!($inner, " [rdi + ", $bytes, "], ", $v, "1"),
            concat!($inner, " [rdi + ", $b2, "], ", $v, "2"),
            concat!($inner, " [rdi + ", $b3, "], ", $v, "3"),
            concat!("add rdi, ", $b4),
            "cmp rdi, rcx",
            "jb 2b",
            "3:",
            $fence,
            concat!($store, " [r9 - ", $bytes, "], ", $v, "4"),
            concat!($store, " [r9 - ", $b2, "], ", $v, "5"),
            concat!($store, " [r9 - ", $b3, "], ", $v, "6"),
            concat!($store, " [r9 - ", $b4, "], ", $v, "7"),
            concat!($store, " [r8], ", $v, "8"),
            $end,
            inout("rdi") $dst => _, inout("rsi") $src => _, inout("rdx") $len => _,
            clobber_abi("sysv64"),
            options(nostack)
        )
    };
}

/// The long loops, for one vector size. Each loads what the far end needs before the first store, runs over an aligned
/// target, and stores the saved end last, so that the loop may stop anywhere inside it.
///
/// Registers: rdi target, rsi source, rdx length, rcx the bound of the loop, r8 the saved start of the target.
macro_rules! long_copy {
    ($name:ident, $load:literal, $store:literal, $aligned:literal, $stream:literal, $v:literal, $bytes:literal, $end:literal,
     $b2:literal, $b3:literal, $b4:literal) => {
        /// # Safety
        ///
        /// As for `copy`, `len` is at least four vectors, and the processor has the instructions.
        unsafe fn $name(dst: *mut u8, src: *const u8, len: usize, around_caches: bool) {
            let ahead = dst.addr().wrapping_sub(src.addr());
            if ahead < len {
                // The target starts inside the source: from the end backwards.
                // SAFETY: the loop stores only inside [dst + $bytes, dst + len) and loads the same offsets; the four
                // vectors at the start of the source are loaded before any store and stored last.
                unsafe {
                    asm!(
                        concat!($load, " ", $v, "4, [rsi]"),
                        concat!($load, " ", $v, "5, [rsi + ", $bytes, "]"),
                        concat!($load, " ", $v, "6, [rsi + ", $b2, "]"),
                        concat!($load, " ", $v, "7, [rsi + ", $b3, "]"),
                        concat!($load, " ", $v, "8, [rsi + rdx - ", $bytes, "]"),
                        "lea r9, [rdi + rdx]",       // One past the target,
                        "mov r8, r9",
                        concat!("and r9, -", $bytes), // aligned downwards.
                        "sub rsi, rdi",               // The source is the target plus rsi from here on.
                        concat!("lea rcx, [rdi + ", $b4, "]"),
                        "cmp r9, rcx",
                        "jbe 3f",
                        "2:",
                        concat!($load, " ", $v, "0, [r9 + rsi - ", $bytes, "]"),
                        concat!($load, " ", $v, "1, [r9 + rsi - ", $b2, "]"),
                        concat!($load, " ", $v, "2, [r9 + rsi - ", $b3, "]"),
                        concat!($load, " ", $v, "3, [r9 + rsi - ", $b4, "]"),
                        concat!($aligned, " [r9 - ", $bytes, "], ", $v, "0"),
                        concat!($aligned, " [r9 - ", $b2, "], ", $v, "1"),
                        concat!($aligned, " [r9 - ", $b3, "], ", $v, "2"),
                        concat!($aligned, " [r9 - ", $b4, "], ", $v, "3"),
                        concat!("sub r9, ", $b4),
                        "cmp r9, rcx",
                        "ja 2b",
                        "3:",
                        concat!($store, " [rdi], ", $v, "4"),
                        concat!($store, " [rdi + ", $bytes, "], ", $v, "5"),
                        concat!($store, " [rdi + ", $b2, "], ", $v, "6"),
                        concat!($store, " [rdi + ", $b3, "], ", $v, "7"),
                        concat!($store, " [r8 - ", $bytes, "], ", $v, "8"),
                        $end,
                        inout("rdi") dst => _, inout("rsi") src => _, inout("rdx") len => _,
                        clobber_abi("sysv64"),
                        options(nostack)
                    )
                }
            } else if around_caches && ahead.wrapping_neg() >= len {
                // SAFETY: as for the plain forward loop below.
                unsafe { long_forward!(dst, src, len, $load, $store, $stream, $v, $bytes, $end, $b2, $b3, $b4, "sfence") }
            } else {
                // SAFETY: the loop stores only inside [dst, dst + len - $bytes) and loads the same offsets; the four
                // vectors at the end of the source are loaded before any store and stored last.
                unsafe { long_forward!(dst, src, len, $load, $store, $aligned, $v, $bytes, $end, $b2, $b3, $b4, "") }
            }
        }
    };
}

long_copy!(copy_avx, "vmovdqu", "vmovdqu", "vmovdqa", "vmovntdq", "ymm", "32", "vzeroupper", "64", "96", "128");
long_copy!(copy_sse, "movups", "movups", "movaps", "movntps", "xmm", "16", "", "32", "48", "64");
