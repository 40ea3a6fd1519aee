//! Words, and what the processor does with one in place.
//!
//! All of it is sequentially consistent, so that who sleeps until a word changes is not missed. A 32-bit number is a word of its
//! own.

use longarm::ffi::RmwOp;
use longarm::ffi::sync::{AtomicU32, AtomicU64, Ordering};

use crate::boundary::end;

/// A type of 4 or 8 bytes that is one word.
pub(crate) trait Word: Copy {
    /// Its bits, zero-extended.
    fn to_bits(self) -> u64;
    /// The value of the low bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! integers {
    ($($type:ident $unsigned:ident,)+) => {$(
        impl Word for $type {
            #[inline(always)]
            fn to_bits(self) -> u64 {
                u64::from(self as $unsigned)
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $unsigned as $type
            }
        }
    )+};
}
integers! { i32 u32, u32 u32, i64 u64, u64 u64, }

impl Word for f32 {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        u64::from(f32::to_bits(self))
    }

    #[inline(always)]
    fn from_bits(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
}

impl Word for f64 {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        f64::to_bits(self)
    }

    #[inline(always)]
    fn from_bits(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
}

/// Does one atomic operation on a word that is mapped here; the old value.
///
/// # Safety
/// The word is mapped and aligned.
#[inline(always)]
pub(crate) unsafe fn here(there: *mut u8, width: usize, op: RmwOp, operand: u64, compare: u64) -> u64 {
    macro_rules! on {
        ($atomic:ident, $number:ident) => {{
            // SAFETY: this function's own contract; whoever updates it does so atomically.
            let word = unsafe { $atomic::from_ptr(there.cast()) };
            let (operand, compare) = (operand as $number, compare as $number);
            let order = Ordering::SeqCst;
            let old = match op {
                RmwOp::FetchAdd => word.fetch_add(operand, order),
                RmwOp::Swap | RmwOp::Set => word.swap(operand, order),
                RmwOp::FetchAnd => word.fetch_and(operand, order),
                RmwOp::FetchOr => word.fetch_or(operand, order),
                RmwOp::FetchXor => word.fetch_xor(operand, order),
                RmwOp::CompareSwap => {
                    word.compare_exchange(compare, operand, order, order).unwrap_or_else(|found| found)
                }
                RmwOp::Fetch => word.load(order),
                // OpenSHMEM has none of them: only a broken PE asks for one.
                RmwOp::FetchMinSigned | RmwOp::FetchMaxSigned | RmwOp::FetchMinUnsigned | RmwOp::FetchMaxUnsigned => {
                    end("shmem_atomic", format_args!("minimum and maximum are not supported"))
                }
            };
            u64::from(old)
        }};
    }
    if width == 4 { on!(AtomicU32, u32) } else { on!(AtomicU64, u64) }
}
