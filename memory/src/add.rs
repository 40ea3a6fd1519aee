//! Adding floating-point numbers to memory that others may write: target += scale × source.
//!
//! ```text
//!   Adder::f64(2.5)            picks the loop once: by type, by whether there is a scale, by the processor
//!      │
//!      └─ add(target, source)  as often as there are runs: loads and stores in inline assembly, numbers in registers
//! ```
//!
//! A product is rounded before it is added (no fused multiply-add), so the sums are the same on every machine. A scale of
//! one multiplies nothing.
//!
//! It refuses to make sums atomic: callers hold a lock. As in `copy` the compiler assumes nothing about the bytes, so a
//! process that breaks that rule loses sums and nothing else.

use crate::grid::{Rows, Step};
use crate::region::{Region, RegionMut, assert_same_length};

/// A factor. Of a real one the imaginary part is not looked at; those of f32 fit in an f64 without rounding.
#[derive(Clone, Copy, Debug)]
struct Factor {
    real: f64,
    imaginary: f64,
}

/// What a loop does with each pair of elements.
#[derive(Clone, Copy, Debug)]
enum Kind {
    SumF32,
    SumF64,
    ScaledF32,
    ScaledF64,
    ComplexF32,
    ComplexF64,
}

/// Adds `bytes` bytes of elements, in each of the rows that the step leads through. A plain function, so that it can be picked once and
/// called for each run, or for many.
type AddFn = unsafe fn(dst: *mut u8, src: *const u8, bytes: usize, factor: &Factor, rows: &Step);

/// The loops for one kind of sums.
#[derive(Clone, Copy, Debug)]
struct AddFns {
    /// For one run: the step is [`Step::ONCE`]. A loop around the loop would take registers from long runs.
    run: AddFn,
    /// For as many as the step says.
    rows: AddFn,
}

/// Adds scaled numbers of one type.
#[derive(Clone, Copy, Debug)]
pub struct Adder {
    add: AddFns,
    factor: Factor,
    element_bytes: usize,
}

impl Adder {
    /// target += scale × source.
    #[inline]
    pub fn f32(scale: f32) -> Adder {
        let factor = Factor { real: scale.into(), imaginary: 0.0 };
        Adder::new(if scale == 1.0 { Kind::SumF32 } else { Kind::ScaledF32 }, factor, 4)
    }

    /// target += scale × source.
    #[inline]
    pub fn f64(scale: f64) -> Adder {
        let factor = Factor { real: scale, imaginary: 0.0 };
        Adder::new(if scale == 1.0 { Kind::SumF64 } else { Kind::ScaledF64 }, factor, 8)
    }

    /// target += scale × source, of pairs of a real and an imaginary part.
    #[inline]
    pub fn c32([real, imaginary]: [f32; 2]) -> Adder {
        let one = real == 1.0 && imaginary == 0.0;
        let factor = Factor { real: real.into(), imaginary: imaginary.into() };
        Adder::new(if one { Kind::SumF32 } else { Kind::ComplexF32 }, factor, 8)
    }

    /// target += scale × source, of pairs of a real and an imaginary part.
    #[inline]
    pub fn c64([real, imaginary]: [f64; 2]) -> Adder {
        let one = real == 1.0 && imaginary == 0.0;
        let factor = Factor { real, imaginary };
        Adder::new(if one { Kind::SumF64 } else { Kind::ComplexF64 }, factor, 16)
    }

    #[inline]
    fn new(kind: Kind, factor: Factor, element_bytes: usize) -> Adder {
        Adder { add: machine::pick(kind), factor, element_bytes }
    }

    /// Adds all elements of `source` to those of `target`, in no order. Where the two overlap in another way than
    /// completely, which sums are read again is not said.
    ///
    /// # Panics
    ///
    /// If the lengths differ or are not whole elements.
    #[inline]
    pub fn add(&self, target: RegionMut<'_>, source: Region<'_>) {
        let bytes = source.len();
        assert_same_length(target.len(), bytes);
        assert!(bytes & (self.element_bytes - 1) == 0, "{bytes} bytes are not whole elements");
        // SAFETY: both sides are valid for their length by the contract of regions, the lengths are equal and whole
        // elements (asserted), and `pick` gave a loop that this processor has the instructions for.
        unsafe { (self.add.run)(target.as_mut_ptr(), source.as_ptr(), bytes, &self.factor, &Step::ONCE) };
    }

    /// [`Adder::add`] of each pair of runs, in order: for runs so short that a call for each would take longer than its sum.
    ///
    /// # Panics
    ///
    /// If a run is not of whole elements.
    #[inline]
    pub fn add_rows(&self, rows: Rows<'_, '_>) {
        let bytes = rows.run_bytes();
        assert!(bytes & (self.element_bytes - 1) == 0, "{bytes} bytes are not whole elements");
        let (dst, src, step) = rows.places();
        // SAFETY: as in `add`, for every run: all of them are inside of regions.
        unsafe { (self.add.rows)(dst, src, bytes, &self.factor, &step) };
    }
}

/// target += scale × source, of one f64: what [`Adder::f64`] does, with nothing to pick.
///
/// # Panics
///
/// If one of them has not 8 bytes.
#[inline]
pub fn add_one_f64(target: RegionMut<'_>, source: Region<'_>, scale: f64) {
    assert_same_length(target.len(), size_of::<f64>());
    assert_same_length(size_of::<f64>(), source.len());
    // SAFETY: both sides are valid for their length by the contract of regions, which is that of a number (asserted).
    unsafe { machine::one_f64(target.as_mut_ptr(), source.as_ptr(), scale) };
}

#[cfg(all(target_arch = "x86_64", not(any(miri, longarm_portable))))]
#[path = "add_x86_64.rs"]
mod machine;

#[cfg(not(all(target_arch = "x86_64", not(any(miri, longarm_portable)))))]
#[path = "add_portable.rs"]
mod machine;

#[cfg(test)]
#[path = "add_tests.rs"]
mod tests;
