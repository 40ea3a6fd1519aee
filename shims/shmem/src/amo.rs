//! Atomic operations on one word of a PE.
//!
//! On this node the processor does them in place ([`crate::word`]).

use std::ffi::c_int;

use longarm::error::RmwError;
use longarm::ffi::{
    AccumulateOp, CompletionPart, CounterKind, ElementType, Kernel, OriginBytes, RegionMut, Rmw, RmwOp, RmwWidth, Scale,
};

use crate::boundary::{end, or_end};
use crate::contexts::DEFAULT;
use crate::job::{self, Job};
use crate::word::{Word, rmw_here, width_of};

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
        let old = unsafe { rmw_here(there, size_of::<T>(), op, operand, compare) };
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
        None => {
            long(name, context, (dest.addr(), size_of::<T>(), pe), op, operands, Old::Now).expect("it is waited for")
        }
    })
}

/// The same with the old value in memory when quiet returns.
///
/// # Safety
/// The word belongs to nobody's reference, and the memory at `fetch` is this call's until quiet has returned.
#[inline(always)]
unsafe fn start<T: Word>(
    name: &'static str,
    context: usize,
    (fetch, dest, pe): (*mut T, *const T, c_int),
    op: RmwOp,
    operands: (u64, u64),
) {
    // SAFETY: this function's own contract.
    let old = unsafe { at_once(context, (dest, pe), op, operands) }.or_else(|| {
        // SAFETY: this function's own contract: the bytes stay until quiet, behind which nobody touches the region.
        let to = unsafe { RegionMut::from_raw(fetch.cast(), size_of::<T>()) };
        long(name, context, (dest.addr(), size_of::<T>(), pe), op, operands, Old::ByQuiet(to))
    });
    if let Some(old) = old {
        // SAFETY: this function's own contract.
        unsafe { fetch.write(T::from_bits(old)) };
    }
}

/// The same where nobody asks for the old value: what goes to another node is complete after quiet.
///
/// # Safety
/// The word belongs to nobody's reference.
#[inline(always)]
unsafe fn update<T: Word>(name: &'static str, context: usize, (dest, pe): (*const T, c_int), op: RmwOp, operand: u64) {
    // SAFETY: this function's own contract.
    if unsafe { at_once(context, (dest, pe), op, (operand, 0)) }.is_none() {
        long(name, context, (dest.addr(), size_of::<T>(), pe), op, (operand, 0), Old::Unwanted);
    }
}

#[inline(always)]
fn done(job: &Job, pe: c_int, op: RmwOp, bytes: usize) {
    if !matches!(op, RmwOp::Fetch) {
        job.process.world.notify(pe as u32);
    }
    job.count(pe, CounterKind::Rmw, bytes);
}

/// What becomes of the old value of a word of another node.
enum Old {
    /// Nobody asks for it.
    Unwanted,
    /// The call waits for it.
    Now,
    /// It is written here by quiet.
    ByQuiet(RegionMut<'static>),
}

/// The old value, if it is known on return.
#[inline(never)]
fn long(
    name: &'static str,
    context: usize,
    (address, width, pe): (usize, usize, c_int),
    op: RmwOp,
    (operand, compare): (u64, u64),
    wanted: Old,
) -> Option<u64> {
    let job = job::get(name);
    let (context, pe) = job.contexts.resolve(name, context, pe);
    let place = job.place(name, pe, address, width);
    if !place.offset.is_multiple_of(width as u64) {
        end(name, format_args!("address {address:#x} for PE {pe} is not a multiple of the {width} bytes of its word"));
    }
    if place.here.is_null() {
        let width = width_of(width);
        let rmw = Rmw { op, width, operand, compare };
        if let Some(away) = place.away {
            return Some(away.rmw(name, (place.rank, place.offset), rmw));
        }
        let start = |part: &CompletionPart| place.window.start_rmw_bytes(place.rank, place.offset, rmw, part);
        match wanted {
            Old::Unwanted => {
                let bytes = operand.to_le_bytes();
                if let Some(kernel) = kernel_of(op, width)
                    && let source = OriginBytes::from(&bytes[..kernel.element().bytes()])
                    && let operator = (kernel, &Scale::one(kernel.element()))
                    && place.window.accumulate_bytes_together(place.rank, place.offset, operator, source)
                {
                    context.note_sent();
                } else {
                    or_end(name, context.start(start));
                }
            }
            Old::ByQuiet(to) => or_end(name, context.start_fetch((name, &job.process), (place.rank, to), start)),
            Old::Now => {
                let old = place.window.rmw_bytes(place.rank, place.offset, rmw);
                context.note_sent();
                return Some(or_end::<_, RmwError>(name, old));
            }
        }
        return None;
    }
    // SAFETY: `place` has looked at it, and it is aligned: heaps and segments begin at pages.
    let old = unsafe { rmw_here(place.here, width, op, operand, compare) };
    done(job, pe, op, width);
    Some(old)
}

/// The accumulate of one element that does the same to the word.
fn kernel_of(op: RmwOp, width: RmwWidth) -> Option<Kernel> {
    let element = match width {
        RmwWidth::W32 => ElementType::U32,
        RmwWidth::W64 => ElementType::U64,
    };
    let op = match op {
        RmwOp::FetchAdd => AccumulateOp::Sum,
        RmwOp::FetchAnd => AccumulateOp::And,
        RmwOp::FetchOr => AccumulateOp::Or,
        RmwOp::FetchXor => AccumulateOp::Xor,
        RmwOp::Set => AccumulateOp::Replace,
        _ => return None,
    };
    Kernel::new(element, op)
}

macro_rules! fetching {
    ($($name:ident $nbi:ident $plain:ident $op:ident,)+) => {$(
        /// # Safety
        /// The word belongs to nobody's reference.
        #[inline(always)]
        pub(crate) unsafe fn $name<T: Word>(name: &'static str, context: usize, dest: *mut T, value: T, pe: c_int) -> T {
            // SAFETY: this function's own contract.
            unsafe { rmw(name, context, (dest, pe), RmwOp::$op, (value.to_bits(), 0)) }
        }

        /// # Safety
        /// As [`start`].
        #[inline(always)]
        pub(crate) unsafe fn $nbi<T: Word>(
            name: &'static str,
            context: usize,
            fetch: *mut T,
            dest: *mut T,
            value: T,
            pe: c_int,
        ) {
            // SAFETY: this function's own contract.
            unsafe { start(name, context, (fetch, dest, pe), RmwOp::$op, (value.to_bits(), 0)) };
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
fetching! {
    fetch_add fetch_add_nbi add FetchAdd,
    fetch_and fetch_and_nbi and FetchAnd,
    fetch_or fetch_or_nbi or FetchOr,
    fetch_xor fetch_xor_nbi xor FetchXor,
    swap swap_nbi set Swap,
}

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

/// # Safety
/// As [`start`].
#[inline(always)]
pub(crate) unsafe fn compare_swap_nbi<T: Word>(
    name: &'static str,
    context: usize,
    fetch: *mut T,
    dest: *mut T,
    (condition, value): (T, T),
    pe: c_int,
) {
    // SAFETY: this function's own contract.
    unsafe { start(name, context, (fetch, dest, pe), RmwOp::CompareSwap, (value.to_bits(), condition.to_bits())) };
}

/// # Safety
/// As [`start`].
#[inline(always)]
pub(crate) unsafe fn fetch_nbi<T: Word>(
    name: &'static str,
    context: usize,
    fetch: *mut T,
    source: *const T,
    pe: c_int,
) {
    // SAFETY: this function's own contract.
    unsafe { start(name, context, (fetch, source, pe), RmwOp::Fetch, (0, 0)) };
}
