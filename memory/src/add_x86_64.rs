//! The sums for x86_64: moves in inline assembly, arithmetic between registers. See the parent module.
//!
//! The target is aligned to a vector first where its elements allow it, then four vectors go at a time, then one, then
//! ever smaller pieces. Unused places of a small piece are zero; what is computed there is not stored. Where a source lies
//! otherwise in its lines than the target, vectors of 64 bytes are put together from two whole lines of it each: to load
//! them across the bound of two lines takes twice as long.

use std::arch::x86_64::*;

use super::{AddFns, Factor, Kind, Step};
use crate::vector::{load, store};

/// Shorter ones are not worth aligning.
const ALIGNED_BYTES_MIN: usize = 256;
/// Nor are shorter ones worth putting lines together.
const REALIGNED_BYTES_MIN: usize = 1024;
const LINE_BYTES: usize = 64;

/// The vectors that a processor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vectors {
    /// 16 bytes.
    Sse,
    /// 32 bytes.
    Avx,
    /// 64 bytes.
    Avx512,
}

impl Vectors {
    /// Those that are quickest here. The first processors with vectors of 64 bytes slow down for all else while they use them,
    /// and have not `avx512_vbmi2`, which came next.
    #[inline]
    fn best() -> Vectors {
        if is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("avx512f") {
            Vectors::Avx512
        } else if is_x86_feature_detected!("avx") {
            Vectors::Avx
        } else {
            Vectors::Sse
        }
    }

    /// Whether this processor has them.
    #[cfg(test)]
    pub(super) fn are_here(self) -> bool {
        match self {
            Vectors::Sse => true,
            Vectors::Avx => is_x86_feature_detected!("avx"),
            Vectors::Avx512 => is_x86_feature_detected!("avx512f"),
        }
    }
}

#[inline]
pub(super) fn pick(kind: Kind) -> AddFns {
    pick_for(Vectors::best(), kind)
}

/// The loop for these vectors.
#[inline]
pub(super) fn pick_for(vectors: Vectors, kind: Kind) -> AddFns {
    macro_rules! fns {
        ($vectors:ident::$sums:ident) => {
            AddFns { run: $vectors::$sums::<false>, rows: $vectors::$sums::<true> }
        };
    }
    macro_rules! of {
        ($vectors:ident) => {
            match kind {
                Kind::SumF32 => fns!($vectors::sum_f32),
                Kind::SumF64 => fns!($vectors::sum_f64),
                Kind::ScaledF32 => fns!($vectors::scaled_f32),
                Kind::ScaledF64 => fns!($vectors::scaled_f64),
                Kind::ComplexF32 => fns!($vectors::complex_f32),
                Kind::ComplexF64 => fns!($vectors::complex_f64),
            }
        };
    }
    match vectors {
        Vectors::Sse => of!(sse),
        Vectors::Avx => of!(avx),
        Vectors::Avx512 => of!(avx512),
    }
}

/// One number.
///
/// # Safety
///
/// Both sides are valid for 8 bytes.
#[inline(always)]
pub(super) unsafe fn one_f64(dst: *mut u8, src: *const u8, scale: f64) {
    let target = load!(f64, xmm_reg, "movsd", dst, 0);
    let source = load!(f64, xmm_reg, "movsd", src, 0);
    store!(xmm_reg, "movsd", dst, 0, target + scale * source);
}

/// Where a walk stands on both sides, and how many bytes are left.
struct Position {
    dst: *mut u8,
    src: *const u8,
    left: usize,
}

impl Position {
    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        self.dst = self.dst.wrapping_add(bytes);
        self.src = self.src.wrapping_add(bytes);
        self.left -= bytes;
    }
}

/// The walk through both sides, for one kind of vector.
macro_rules! walk {
    ($name:ident, $feature:literal, $wide:ty, $wide_register:ident, $narrow:ty,
     [$b1:literal $b2:literal $b3:literal $b4:literal], $move:literal, $move_8:literal, $move_4:literal $(, $realigned:ident)?) => {
        /// # Safety
        ///
        /// Both sides are valid for `bytes` bytes, which are a multiple of `ELEMENT`.
        #[target_feature(enable = $feature)]
        #[inline]
        unsafe fn $name<const ELEMENT: usize>(
            dst: *mut u8,
            src: *const u8,
            bytes: usize,
            wide: impl Fn($wide, $wide) -> $wide,
            narrow: impl Fn($narrow, $narrow) -> $narrow,
        ) {
            let mut at = Position { dst, src, left: bytes };
            macro_rules! one {
                ($kind:ty, $register:ident, $text:literal, $combine:ident, $piece:literal) => {{
                    let target = load!($kind, $register, $text, at.dst, 0);
                    let source = load!($kind, $register, $text, at.src, 0);
                    store!($register, $text, at.dst, 0, $combine(target, source));
                    at.advance($piece);
                }};
            }
            if at.left >= ALIGNED_BYTES_MIN {
                if ELEMENT <= 4 && at.dst.addr() & 4 != 0 {
                    one!($narrow, xmm_reg, $move_4, narrow, 4);
                }
                if ELEMENT <= 8 && at.dst.addr() & 8 != 0 {
                    one!($narrow, xmm_reg, $move_8, narrow, 8);
                }
                while at.dst.addr() & ($b1 - 1) & !15 != 0 {
                    one!($narrow, xmm_reg, $move, narrow, 16);
                }
            }
            $(
                if at.left >= REALIGNED_BYTES_MIN
                    && at.dst.addr() & (LINE_BYTES - 1) == 0
                    && matches!(at.src.addr() & (LINE_BYTES - 1), shift if shift != 0 && shift & 3 == 0)
                {
                    // The line in which the source goes on has to be one that it has whole.
                    one!($wide, $wide_register, $move, wide, $b1);
                    // SAFETY: the source has been walked through for a line, so that it begins before this one, and at least
                    // `REALIGNED_BYTES_MIN - LINE_BYTES` are left on both sides.
                    unsafe { $realigned(&mut at, &wide) };
                }
            )?
            while at.left >= $b4 {
                let mut targets = [
                    load!($wide, $wide_register, $move, at.dst, 0),
                    load!($wide, $wide_register, $move, at.dst, $b1),
                    load!($wide, $wide_register, $move, at.dst, $b2),
                    load!($wide, $wide_register, $move, at.dst, $b3),
                ];
                let sources = [
                    load!($wide, $wide_register, $move, at.src, 0),
                    load!($wide, $wide_register, $move, at.src, $b1),
                    load!($wide, $wide_register, $move, at.src, $b2),
                    load!($wide, $wide_register, $move, at.src, $b3),
                ];
                targets[0] = wide(targets[0], sources[0]);
                targets[1] = wide(targets[1], sources[1]);
                targets[2] = wide(targets[2], sources[2]);
                targets[3] = wide(targets[3], sources[3]);
                store!($wide_register, $move, at.dst, 0, targets[0]);
                store!($wide_register, $move, at.dst, $b1, targets[1]);
                store!($wide_register, $move, at.dst, $b2, targets[2]);
                store!($wide_register, $move, at.dst, $b3, targets[3]);
                at.advance($b4);
            }
            while at.left >= $b1 {
                one!($wide, $wide_register, $move, wide, $b1);
            }
            while at.left >= 16 {
                one!($narrow, xmm_reg, $move, narrow, 16);
            }
            if ELEMENT <= 8 && at.left >= 8 {
                one!($narrow, xmm_reg, $move_8, narrow, 8);
            }
            if ELEMENT <= 4 && at.left >= 4 {
                one!($narrow, xmm_reg, $move_4, narrow, 4);
            }
            debug_assert_eq!(at.left, 0);
        }
    };
}

/// The three sums of one type, for one walk.
macro_rules! sums {
    ($walk:ident, $feature:literal, $bytes:literal, $pair_bytes:literal, [$sum:ident $scaled:ident $complex:ident],
     $fill:ident, $widen:ident, [$add:ident $multiply:ident $swap:ident],
     [$narrow_add:ident $narrow_multiply:ident $narrow_swap:ident]) => {
        /// # Safety
        ///
        /// As for the walk; if `ROWS`, for each of the rows.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $sum<const ROWS: bool>(
            dst: *mut u8,
            src: *const u8,
            bytes: usize,
            _: &Factor,
            rows: &Step,
        ) {
            let (wide, narrow) = (|to, from| $add(to, from), |to, from| $narrow_add(to, from));
            // SAFETY: the caller's promise, passed on.
            let walk = |dst, src| unsafe { $walk::<$bytes>(dst, src, bytes, wide, narrow) };
            if ROWS { rows.each(dst, src, walk) } else { walk(dst, src) }
        }

        /// # Safety
        ///
        /// As for the walk; if `ROWS`, for each of the rows.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $scaled<const ROWS: bool>(
            dst: *mut u8,
            src: *const u8,
            bytes: usize,
            factor: &Factor,
            rows: &Step,
        ) {
            let scale = $fill(factor.real, factor.real);
            let wide_scale = $widen(scale);
            let wide = |to, from| $add(to, $multiply(wide_scale, from));
            let narrow = |to, from| $narrow_add(to, $narrow_multiply(scale, from));
            // SAFETY: the caller's promise, passed on.
            let walk = |dst, src| unsafe { $walk::<$bytes>(dst, src, bytes, wide, narrow) };
            if ROWS { rows.each(dst, src, walk) } else { walk(dst, src) }
        }

        /// # Safety
        ///
        /// As for the walk; if `ROWS`, for each of the rows.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $complex<const ROWS: bool>(
            dst: *mut u8,
            src: *const u8,
            bytes: usize,
            factor: &Factor,
            rows: &Step,
        ) {
            let scale = $fill(factor.real, factor.real);
            let crossed = $fill(-factor.imaginary, factor.imaginary);
            let (wide_scale, wide_crossed) = ($widen(scale), $widen(crossed));
            let wide = |to, from| {
                let product = $add($multiply(wide_scale, from), $multiply(wide_crossed, $swap(from)));
                $add(to, product)
            };
            let narrow = |to, from| {
                let product = $narrow_add($narrow_multiply(scale, from), $narrow_multiply(crossed, $narrow_swap(from)));
                $narrow_add(to, product)
            };
            // SAFETY: the caller's promise, passed on.
            let walk = |dst, src| unsafe { $walk::<$pair_bytes>(dst, src, bytes, wide, narrow) };
            if ROWS { rows.each(dst, src, walk) } else { walk(dst, src) }
        }
    };
}

/// The two numbers in turns.
#[target_feature(enable = "sse2")]
#[inline]
fn fill_f32(first: f64, second: f64) -> __m128 {
    let (first, second) = (first as f32, second as f32);
    _mm_set_ps(second, first, second, first)
}

/// As [`fill_f32`].
#[target_feature(enable = "sse2")]
#[inline]
fn fill_f64(first: f64, second: f64) -> __m128d {
    _mm_set_pd(second, first)
}

/// Real and imaginary parts, exchanged.
#[target_feature(enable = "sse2")]
#[inline]
fn swap_f32(pairs: __m128) -> __m128 {
    _mm_shuffle_ps::<0b10_11_00_01>(pairs, pairs)
}

/// As [`swap_f32`].
#[target_feature(enable = "sse2")]
#[inline]
fn swap_f64(pair: __m128d) -> __m128d {
    _mm_shuffle_pd::<0b01>(pair, pair)
}

mod avx {
    use super::*;

    walk!(walk_f32, "avx", __m256, ymm_reg, __m128, [32 64 96 128], "vmovups", "vmovq", "vmovd");
    walk!(walk_f64, "avx", __m256d, ymm_reg, __m128d, [32 64 96 128], "vmovupd", "vmovq", "vmovd");
    sums!(walk_f32, "avx", 4, 8, [sum_f32 scaled_f32 complex_f32], fill_f32, widen_f32,
        [_mm256_add_ps _mm256_mul_ps wide_swap_f32], [_mm_add_ps _mm_mul_ps swap_f32]);
    sums!(walk_f64, "avx", 8, 16, [sum_f64 scaled_f64 complex_f64], fill_f64, widen_f64,
        [_mm256_add_pd _mm256_mul_pd wide_swap_f64], [_mm_add_pd _mm_mul_pd swap_f64]);

    #[target_feature(enable = "avx")]
    #[inline]
    fn widen_f32(half: __m128) -> __m256 {
        _mm256_set_m128(half, half)
    }

    #[target_feature(enable = "avx")]
    #[inline]
    fn widen_f64(half: __m128d) -> __m256d {
        _mm256_set_m128d(half, half)
    }

    #[target_feature(enable = "avx")]
    #[inline]
    fn wide_swap_f32(pairs: __m256) -> __m256 {
        _mm256_permute_ps::<0b10_11_00_01>(pairs)
    }

    #[target_feature(enable = "avx")]
    #[inline]
    fn wide_swap_f64(pairs: __m256d) -> __m256d {
        _mm256_permute_pd::<0b0101>(pairs)
    }
}

mod avx512 {
    use super::*;
    use std::convert::identity;

    walk!(walk_f32, "avx512f", __m512, zmm_reg, __m128, [64 128 192 256], "vmovups", "vmovq", "vmovd", realigned_f32);
    walk!(walk_f64, "avx512f", __m512d, zmm_reg, __m128d, [64 128 192 256], "vmovupd", "vmovq", "vmovd", realigned_f64);
    sums!(walk_f32, "avx512f", 4, 8, [sum_f32 scaled_f32 complex_f32], fill_f32, widen_f32,
        [_mm512_add_ps _mm512_mul_ps wide_swap_f32], [_mm_add_ps _mm_mul_ps swap_f32]);
    sums!(walk_f64, "avx512f", 8, 16, [sum_f64 scaled_f64 complex_f64], fill_f64, widen_f64,
        [_mm512_add_pd _mm512_mul_pd wide_swap_f64], [_mm_add_pd _mm_mul_pd swap_f64]);

    /// The part of a walk in which the source begins anywhere in a line, the target at its beginning.
    macro_rules! realigned {
        ($name:ident, $wide:ty, $move:literal, $to_singles:ident, $from_singles:ident) => {
            /// # Safety
            ///
            /// Both sides are valid for what is left, the source also from the beginning of its line on, and the source begins at
            /// a multiple of 4 bytes, not at the beginning of a line.
            #[target_feature(enable = "avx512f")]
            #[inline]
            unsafe fn $name(at: &mut Position, wide: &impl Fn($wide, $wide) -> $wide) {
                let shift = at.src.addr() & (LINE_BYTES - 1);
                let mut line = at.src.wrapping_sub(shift);
                let places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
                let places = _mm512_add_epi32(places, _mm512_set1_epi32((shift / 4) as i32));
                let join = |low, high| {
                    let joined = _mm512_permutex2var_ps($to_singles(low), places, $to_singles(high));
                    $from_singles(joined)
                };
                let mut low = load!($wide, zmm_reg, $move, line, 0);
                // Four lines of the target, and what the source has in five of its own.
                while at.left >= 5 * LINE_BYTES {
                    let lines = [
                        load!($wide, zmm_reg, $move, line, 64),
                        load!($wide, zmm_reg, $move, line, 128),
                        load!($wide, zmm_reg, $move, line, 192),
                        load!($wide, zmm_reg, $move, line, 256),
                    ];
                    let mut targets = [
                        load!($wide, zmm_reg, $move, at.dst, 0),
                        load!($wide, zmm_reg, $move, at.dst, 64),
                        load!($wide, zmm_reg, $move, at.dst, 128),
                        load!($wide, zmm_reg, $move, at.dst, 192),
                    ];
                    targets[0] = wide(targets[0], join(low, lines[0]));
                    targets[1] = wide(targets[1], join(lines[0], lines[1]));
                    targets[2] = wide(targets[2], join(lines[1], lines[2]));
                    targets[3] = wide(targets[3], join(lines[2], lines[3]));
                    store!(zmm_reg, $move, at.dst, 0, targets[0]);
                    store!(zmm_reg, $move, at.dst, 64, targets[1]);
                    store!(zmm_reg, $move, at.dst, 128, targets[2]);
                    store!(zmm_reg, $move, at.dst, 192, targets[3]);
                    low = lines[3];
                    line = line.wrapping_add(4 * LINE_BYTES);
                    at.advance(4 * LINE_BYTES);
                }
            }
        };
    }

    realigned!(realigned_f32, __m512, "vmovups", identity, identity);
    realigned!(realigned_f64, __m512d, "vmovupd", _mm512_castpd_ps, _mm512_castps_pd);

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn widen_f32(quarter: __m128) -> __m512 {
        _mm512_broadcast_f32x4(quarter)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn widen_f64(quarter: __m128d) -> __m512d {
        _mm512_castps_pd(_mm512_broadcast_f32x4(_mm_castpd_ps(quarter)))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn wide_swap_f32(pairs: __m512) -> __m512 {
        _mm512_permute_ps::<0b10_11_00_01>(pairs)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn wide_swap_f64(pairs: __m512d) -> __m512d {
        _mm512_permute_pd::<0b0101_0101>(pairs)
    }
}

mod sse {
    use super::*;
    use std::convert::identity;

    walk!(walk_f32, "sse2", __m128, xmm_reg, __m128, [16 32 48 64], "movups", "movq", "movd");
    walk!(walk_f64, "sse2", __m128d, xmm_reg, __m128d, [16 32 48 64], "movupd", "movq", "movd");
    sums!(walk_f32, "sse2", 4, 8, [sum_f32 scaled_f32 complex_f32], fill_f32, identity,
        [_mm_add_ps _mm_mul_ps swap_f32], [_mm_add_ps _mm_mul_ps swap_f32]);
    sums!(walk_f64, "sse2", 8, 16, [sum_f64 scaled_f64 complex_f64], fill_f64, identity,
        [_mm_add_pd _mm_mul_pd swap_f64], [_mm_add_pd _mm_mul_pd swap_f64]);
}
