//! The sums for machines without hand-written code, and for Miri: element by element, through private memory.

use super::{AddFn, AddFns, Factor, Kind, Step};
use crate::copy::copy;

pub(super) fn pick(kind: Kind) -> AddFns {
    let rows: AddFn = match kind {
        Kind::SumF32 => |dst, src, bytes, _, rows| {
            // SAFETY: the caller's promise, passed on.
            unsafe {
                each::<4>(dst, src, bytes, rows, |to, from| {
                    (f32::from_ne_bytes(to) + f32::from_ne_bytes(from)).to_ne_bytes()
                })
            }
        },
        Kind::SumF64 => |dst, src, bytes, _, rows| {
            // SAFETY: the caller's promise, passed on.
            unsafe {
                each::<8>(dst, src, bytes, rows, |to, from| {
                    (f64::from_ne_bytes(to) + f64::from_ne_bytes(from)).to_ne_bytes()
                })
            }
        },
        Kind::ScaledF32 => |dst, src, bytes, factor, rows| {
            let scale = factor.real as f32;
            let add = |to, from| (f32::from_ne_bytes(to) + scale * f32::from_ne_bytes(from)).to_ne_bytes();
            // SAFETY: the caller's promise, passed on.
            unsafe { each::<4>(dst, src, bytes, rows, add) }
        },
        Kind::ScaledF64 => |dst, src, bytes, factor, rows| {
            let scale = factor.real;
            let add = |to, from| (f64::from_ne_bytes(to) + scale * f64::from_ne_bytes(from)).to_ne_bytes();
            // SAFETY: the caller's promise, passed on.
            unsafe { each::<8>(dst, src, bytes, rows, add) }
        },
        Kind::ComplexF32 => complex_f32,
        Kind::ComplexF64 => complex_f64,
    };
    AddFns { run: rows, rows }
}

/// One number.
///
/// # Safety
///
/// Both sides are valid for 8 bytes.
pub(super) unsafe fn one_f64(dst: *mut u8, src: *const u8, scale: f64) {
    let add = |to, from| (f64::from_ne_bytes(to) + scale * f64::from_ne_bytes(from)).to_ne_bytes();
    // SAFETY: the caller's promise, passed on.
    unsafe { each::<8>(dst, src, 8, &Step::ONCE, add) }
}

/// # Safety
///
/// As for `each`.
unsafe fn complex_f32(dst: *mut u8, src: *const u8, bytes: usize, factor: &Factor, rows: &Step) {
    let (real, imaginary) = (factor.real as f32, factor.imaginary as f32);
    let parts = |pair: [u8; 8]| [0, 4].map(|at| f32::from_ne_bytes(std::array::from_fn(|byte| pair[at + byte])));
    let add = |to, from| {
        let ([to_real, to_imaginary], [from_real, from_imaginary]) = (parts(to), parts(from));
        let sums = [
            to_real + (real * from_real - imaginary * from_imaginary),
            to_imaginary + (real * from_imaginary + imaginary * from_real),
        ];
        let bytes = sums.map(f32::to_ne_bytes);
        std::array::from_fn(|byte| bytes[byte / 4][byte % 4])
    };
    // SAFETY: the caller's promise, passed on.
    unsafe { each::<8>(dst, src, bytes, rows, add) }
}

/// # Safety
///
/// As for `each`.
unsafe fn complex_f64(dst: *mut u8, src: *const u8, bytes: usize, factor: &Factor, rows: &Step) {
    let (real, imaginary) = (factor.real, factor.imaginary);
    let parts = |pair: [u8; 16]| [0, 8].map(|at| f64::from_ne_bytes(std::array::from_fn(|byte| pair[at + byte])));
    let add = |to, from| {
        let ([to_real, to_imaginary], [from_real, from_imaginary]) = (parts(to), parts(from));
        let sums = [
            to_real + (real * from_real - imaginary * from_imaginary),
            to_imaginary + (real * from_imaginary + imaginary * from_real),
        ];
        let bytes = sums.map(f64::to_ne_bytes);
        std::array::from_fn(|byte| bytes[byte / 8][byte % 8])
    };
    // SAFETY: the caller's promise, passed on.
    unsafe { each::<16>(dst, src, bytes, rows, add) }
}

/// # Safety
///
/// Both sides of each of the rows are valid for `bytes` bytes, which are a multiple of `ELEMENT`.
unsafe fn each<const ELEMENT: usize>(
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    rows: &Step,
    add: impl Fn([u8; ELEMENT], [u8; ELEMENT]) -> [u8; ELEMENT],
) {
    rows.each(dst, src, |dst, src| {
        for at in (0..bytes).step_by(ELEMENT) {
            let (mut to, mut from) = ([0; ELEMENT], [0; ELEMENT]);
            let (target, source) = (dst.wrapping_add(at), src.wrapping_add(at));
            // SAFETY: a whole element from `at` on is inside the target; `to` is ours.
            unsafe { copy(to.as_mut_ptr(), target, ELEMENT) };
            // SAFETY: a whole element from `at` on is inside the source; `from` is ours.
            unsafe { copy(from.as_mut_ptr(), source, ELEMENT) };
            let sum = add(to, from);
            // SAFETY: as for the load of the target.
            unsafe { copy(target, sum.as_ptr(), ELEMENT) };
        }
    });
}
