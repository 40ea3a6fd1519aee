//! Put with signal.

use std::ffi::c_int;

use longarm::ffi::{CounterKind, OriginBytes, Region, SignalOp};

use crate::boundary::{end, or_end};
use crate::contexts::DEFAULT;
use crate::{amo, job, rma};

const SET: c_int = 0;
const ADD: c_int = 1;

/// Writes elements, then updates a word at the same PE: who sees the signal sees the elements.
///
/// # Safety
/// The elements are readable at `source`, until quiet if the call does not block; those of the target and the word belong to
/// nobody's reference.
#[inline]
pub(crate) unsafe fn put<T>(
    name: &'static str,
    context: usize,
    (dest, source, count): (*mut T, *const T, u64),
    (signal, value, op): (*mut u64, u64, c_int),
    pe: c_int,
) {
    // SAFETY: this function's own contract.
    unsafe {
        put_bytes(name, context, (dest.cast(), source.cast(), rma::bytes_of::<T>(count)), (signal, value, op), pe)
    };
}

/// # Safety
/// As [`put`].
unsafe fn put_bytes(
    name: &'static str,
    context: usize,
    (dest, source, bytes): (*mut u8, *const u8, usize),
    (signal, value, op): (*mut u64, u64, c_int),
    pe: c_int,
) {
    let job = job::get(name);
    let (context, pe) = job.contexts.resolve(name, context, pe);
    let op = match op {
        SET => SignalOp::Set,
        ADD => SignalOp::Add,
        other => {
            end(name, format_args!("there is no signal operation {other}; use SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD"))
        }
    };
    job.process.rank(name, pe);
    if bytes > 0 {
        let place = job.place(name, pe, dest.addr(), bytes);
        if place.away.is_some() || job.is_away(name, pe, signal.addr(), 8) {
            // Whichever of the two is a variable that is away, the one is complete before the other begins.
            // SAFETY: this function's own contract.
            unsafe { rma::put(name, DEFAULT, dest, source, bytes as u64, pe) };
            or_end(name, job.process.world.quiet_rank(pe as u32));
        } else if place.here.is_null() {
            let word = job.place(name, pe, signal.addr(), 8);
            // SAFETY: this function's own contract.
            let source = OriginBytes::from_region(unsafe { Region::from_raw(source, bytes) });
            let (data, word) = ((place.rank, place.offset), (word.window, word.offset));
            or_end(name, place.window.put_signal_bytes(data, source, word, (op, value)));
            context.note_sent();
            return;
        } else {
            // SAFETY: this function's own contract, and `place` has looked at the target.
            unsafe { rma::copy(place.here, source, bytes) };
            job.count(pe, CounterKind::Signal, bytes);
        }
    }
    match op {
        // SAFETY: this function's own contract. The update is seen after the bytes by who sees it.
        SignalOp::Set => unsafe { amo::set(name, DEFAULT, signal, value, pe) },
        // SAFETY: as above.
        SignalOp::Add => unsafe { amo::add(name, DEFAULT, signal, value, pe) },
    }
    context.note_sent();
}
