//! What reductions do with two rows of elements, and the types that only C has.

use longarm::{Complex32, Complex64};

/// A `long double`: moved as bytes, and computed with in C.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
pub(crate) struct LongDouble([u64; 2]);

/// 128 bits, which need no alignment.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bits128([u8; 16]);

const _: () = assert!(size_of::<LongDouble>() == 16 && size_of::<Bits128>() == 16);

/// One step of a reduction.
pub(crate) trait Operator<T> {
    /// Each of `count` elements at `left` becomes the combination with that at `right`.
    ///
    /// # Safety
    /// Both rows are readable, `left` is writable, and they are apart or the same.
    unsafe fn combine(left: *mut T, right: *const T, count: usize);
}

pub(crate) struct And;
pub(crate) struct Or;
pub(crate) struct Xor;
pub(crate) struct Max;
pub(crate) struct Min;
pub(crate) struct Sum;
pub(crate) struct Product;

macro_rules! operators {
    ($operator:ident, [$($type:ty)+], |$l:ident, $r:ident| $expression:expr) => {$(
        impl Operator<$type> for $operator {
            unsafe fn combine(left: *mut $type, right: *const $type, count: usize) {
                for at in 0..count {
                    // SAFETY: this function's own contract.
                    let ($l, $r) = (unsafe { left.wrapping_add(at).read() }, {
                        // SAFETY: this function's own contract.
                        unsafe { right.wrapping_add(at).read() }
                    });
                    // SAFETY: this function's own contract.
                    unsafe { left.wrapping_add(at).write($expression) };
                }
            }
        }
    )+};
}

operators!(And, [i8 i16 i32 i64 u8 u16 u32 u64], |l, r| l & r);
operators!(Or, [i8 i16 i32 i64 u8 u16 u32 u64], |l, r| l | r);
operators!(Xor, [i8 i16 i32 i64 u8 u16 u32 u64], |l, r| l ^ r);
operators!(Max, [i8 i16 i32 i64 u8 u16 u32 u64 f32 f64], |l, r| if r > l { r } else { l });
operators!(Min, [i8 i16 i32 i64 u8 u16 u32 u64 f32 f64], |l, r| if r < l { r } else { l });
operators!(Sum, [i8 i16 i32 i64 u8 u16 u32 u64], |l, r| l.wrapping_add(r));
operators!(Product, [i8 i16 i32 i64 u8 u16 u32 u64], |l, r| l.wrapping_mul(r));
operators!(Sum, [f32 f64], |l, r| l + r);
operators!(Product, [f32 f64], |l, r| l * r);
operators!(Sum, [Complex32], |l, r| Complex32 { re: l.re + r.re, im: l.im + r.im });
operators!(Sum, [Complex64], |l, r| Complex64 { re: l.re + r.re, im: l.im + r.im });
operators!(Product, [Complex32], |l, r| Complex32 { re: l.re * r.re - l.im * r.im, im: l.re * r.im + l.im * r.re });
operators!(Product, [Complex64], |l, r| Complex64 { re: l.re * r.re - l.im * r.im, im: l.re * r.im + l.im * r.re });

unsafe extern "C" {
    fn longarm_shmem_long_double_sum(left: *mut LongDouble, right: *const LongDouble, count: usize);
    fn longarm_shmem_long_double_product(left: *mut LongDouble, right: *const LongDouble, count: usize);
    fn longarm_shmem_long_double_min(left: *mut LongDouble, right: *const LongDouble, count: usize);
    fn longarm_shmem_long_double_max(left: *mut LongDouble, right: *const LongDouble, count: usize);
}

macro_rules! long_double {
    ($($operator:ident $function:ident,)+) => {$(
        impl Operator<LongDouble> for $operator {
            unsafe fn combine(left: *mut LongDouble, right: *const LongDouble, count: usize) {
                // SAFETY: this function's own contract, which is the C function's.
                unsafe { $function(left, right, count) };
            }
        }
    )+};
}
long_double! {
    Sum longarm_shmem_long_double_sum,
    Product longarm_shmem_long_double_product,
    Min longarm_shmem_long_double_min,
    Max longarm_shmem_long_double_max,
}
