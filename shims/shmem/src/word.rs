//! Words, and what the processor does with one in place.
//!
//! All of it is sequentially consistent, so that who sleeps until a word changes is not missed. A 32-bit number is a word of its
//! own.

use longarm::ffi::{Rmw, RmwOp, RmwWidth, amo};

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

/// The width of words of 4 or 8 bytes, of which all types of OpenSHMEM's atomic operations are.
#[inline(always)]
pub(crate) fn width_of(bytes: usize) -> RmwWidth {
    if bytes == 4 { RmwWidth::W32 } else { RmwWidth::W64 }
}

/// Does one atomic operation on a word that is mapped here; the old value.
///
/// # Safety
/// The word is mapped and aligned.
#[inline(always)]
pub(crate) unsafe fn rmw_here(there: *mut u8, width: usize, op: RmwOp, operand: u64, compare: u64) -> u64 {
    let width = width_of(width);
    // SAFETY: this function's own contract; whoever updates the word does so atomically.
    unsafe { amo::rmw(there, Rmw { op, width, operand, compare }) }
}
