//! Atomic operations on one word of a PE.
//!
//! On this node the processor does them in place. They are sequentially consistent, so that who sleeps until a word changes
//! is not missed. A 32-bit number is a word of its own.

use std::ffi::c_int;

use longarm::error::RmwError;
use longarm::ffi::sync::{AtomicU32, AtomicU64, Ordering};
use longarm::ffi::{CounterKind, Part, Rmw, RmwOp, RmwWidth};

use crate::boundary::{end, or_end};
use crate::context::{self, DEFAULT};
use crate::job::{self, Job};

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

/// Does one on a word that is mapped here; the old value.
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

/// Does one on this node over the default context, which most calls do; the old value. `None`: it takes the long way.
///
/// # Safety
/// The word belongs to nobody's reference.
#[inline(always)]
unsafe fn at_once<T: Word>(
    context: usize,
    (dest, pe): (*const T, c_int),
    op: RmwOp,
    (operand, compare): (u64, u64),
) -> Option<u64> {
    if context == DEFAULT
        && let Some(job) = job::active()
        && let Some(there) = job.direct(pe, dest.addr(), size_of::<T>())
        && there.addr().is_multiple_of(size_of::<T>())
    {
        // SAFETY: `direct` has looked at it, and it is aligned.
        let old = unsafe { here(there, size_of::<T>(), op, operand, compare) };
        done(job, pe, op, size_of::<T>());
        return Some(old);
    }
    None
}

/// # Safety
/// The word belongs to nobody's reference.
#[inline(always)]
unsafe fn rmw<T: Word>(
    name: &'static str,
    context: usize,
    (dest, pe): (*const T, c_int),
    op: RmwOp,
    operands: (u64, u64),
) -> T {
    // SAFETY: this function's own contract.
    T::from_bits(match unsafe { at_once(context, (dest, pe), op, operands) } {
        Some(old) => old,
        None => long(name, context, (dest.addr(), size_of::<T>(), pe), op, operands, true),
    })
}

/// The same where nobody asks for the old value: what goes to another node is complete after quiet.
///
/// # Safety
/// The word belongs to nobody's reference.
#[inline(always)]
unsafe fn update<T: Word>(name: &'static str, context: usize, (dest, pe): (*const T, c_int), op: RmwOp, operand: u64) {
    // SAFETY: this function's own contract.
    if unsafe { at_once(context, (dest, pe), op, (operand, 0)) }.is_none() {
        long(name, context, (dest.addr(), size_of::<T>(), pe), op, (operand, 0), false);
    }
}

#[inline(always)]
fn done(job: &Job, pe: c_int, op: RmwOp, bytes: usize) {
    if !matches!(op, RmwOp::Fetch) {
        job.world.notify(pe as u32);
    }
    job.count(pe, CounterKind::Rmw, bytes);
}

#[inline(never)]
fn long(
    name: &'static str,
    context: usize,
    (address, width, pe): (usize, usize, c_int),
    op: RmwOp,
    (operand, compare): (u64, u64),
    fetches: bool,
) -> u64 {
    let job = job::get(name);
    let (context, pe) = context::resolve(name, job, context, pe);
    let place = job.place(name, pe, address, width);
    if !place.offset.is_multiple_of(width as u64) {
        end(name, format_args!("address {address:#x} for PE {pe} is not a multiple of the {width} bytes of its word"));
    }
    if place.here.is_null() {
        let width = if width == 4 { RmwWidth::W32 } else { RmwWidth::W64 };
        let rmw = Rmw { op, width, operand, compare };
        if let Some(away) = place.away {
            return away.rmw(name, (place.rank, place.offset), rmw);
        }
        if !fetches {
            let start = |part: &Part| place.window.start_rmw_bytes(place.rank, place.offset, rmw, part);
            or_end(name, context.start(start));
            return 0;
        }
        let old = place.window.rmw_bytes(place.rank, place.offset, rmw);
        context.note_sent();
        return or_end::<_, RmwError>(name, old);
    }
    // SAFETY: `place` has looked at it, and it is aligned: heaps and segments begin at pages.
    let old = unsafe { here(place.here, width, op, operand, compare) };
    done(job, pe, op, width);
    old
}

macro_rules! fetching {
    ($($name:ident $plain:ident $op:ident,)+) => {$(
        /// # Safety
        /// The word belongs to nobody's reference.
        #[inline(always)]
        pub(crate) unsafe fn $name<T: Word>(name: &'static str, context: usize, dest: *mut T, value: T, pe: c_int) -> T {
            // SAFETY: this function's own contract.
            unsafe { rmw(name, context, (dest, pe), RmwOp::$op, (value.to_bits(), 0)) }
        }

        /// # Safety
        /// The word belongs to nobody's reference.
        #[inline(always)]
        pub(crate) unsafe fn $plain<T: Word>(name: &'static str, context: usize, dest: *mut T, value: T, pe: c_int) {
            // SAFETY: this function's own contract.
            unsafe { update(name, context, (dest, pe), RmwOp::$op, value.to_bits()) };
        }
    )+};
}
fetching! { fetch_add add FetchAdd, fetch_and and FetchAnd, fetch_or or FetchOr, fetch_xor xor FetchXor, swap set Swap, }

/// # Safety
/// The word belongs to nobody's reference.
#[inline(always)]
pub(crate) unsafe fn compare_swap<T: Word>(
    name: &'static str,
    context: usize,
    dest: *mut T,
    condition: T,
    value: T,
    pe: c_int,
) -> T {
    // SAFETY: this function's own contract.
    unsafe { rmw(name, context, (dest, pe), RmwOp::CompareSwap, (value.to_bits(), condition.to_bits())) }
}

/// # Safety
/// The word belongs to nobody's reference.
#[inline(always)]
pub(crate) unsafe fn fetch<T: Word>(name: &'static str, context: usize, source: *const T, pe: c_int) -> T {
    // SAFETY: this function's own contract.
    unsafe { rmw(name, context, (source, pe), RmwOp::Fetch, (0, 0)) }
}
