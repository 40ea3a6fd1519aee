//! Read-modify-write of one integer, atomic with respect to every other one.

use std::ffi::{c_int, c_long, c_void};

use longarm::ffi::{CounterKind, Rmw, RmwOp, RmwWidth, amo};

use crate::arguments::not_null;
use crate::boundary::call;
use crate::job::Job;
use crate::refusal::{Done, Refusal};

const SWAP: c_int = 10;
const SWAP_LONG: c_int = 11;
const FETCH_AND_ADD: c_int = 12;
const FETCH_AND_ADD_LONG: c_int = 13;

/// Swaps, or fetches and adds, an `int` or a `long` of a process. The old value comes back in `*ploc`; a swap takes the
/// new one from there.
///
/// # Safety
/// `ploc` is writable for the integer until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Rmw(
    op: c_int,
    ploc: *mut c_void,
    prem: *mut c_void,
    extra: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Rmw", |job| {
        not_null(ploc)?;
        not_null(prem)?;
        // Each call of `update_word` has an operation that is known, so that each becomes one instruction.
        match op {
            SWAP | FETCH_AND_ADD => {
                let local = ploc.cast::<c_int>();
                let old = if op == SWAP {
                    // SAFETY: not null, and this function's own contract.
                    let new = unsafe { local.read_unaligned() };
                    update_word(job, RmwOp::Swap, (RmwWidth::W32, u64::from(new.cast_unsigned())), prem, proc)?
                } else {
                    update_word(job, RmwOp::FetchAdd, (RmwWidth::W32, u64::from(extra.cast_unsigned())), prem, proc)?
                };
                // SAFETY: as above. The width has 32 bits, so the cast loses nothing.
                unsafe { local.write_unaligned((old as u32).cast_signed()) };
            }
            SWAP_LONG | FETCH_AND_ADD_LONG => {
                let local = ploc.cast::<c_long>();
                let old = if op == SWAP_LONG {
                    // SAFETY: not null, and this function's own contract.
                    let new = unsafe { local.read_unaligned() };
                    update_word(job, RmwOp::Swap, (LONG, new.cast_unsigned()), prem, proc)?
                } else {
                    update_word(job, RmwOp::FetchAdd, (LONG, c_long::from(extra).cast_unsigned()), prem, proc)?
                };
                // SAFETY: as above.
                unsafe { local.write_unaligned(old.cast_signed()) };
            }
            op => return Err(Refusal::fatal(format!("there is no read-modify-write operation {op}"))),
        }
        Ok(())
    })
}

/// A `long` has 8 bytes wherever longarm runs.
const LONG: RmwWidth = RmwWidth::W64;
const _: () = assert!(size_of::<c_long>() == 8);

/// Updates a word and gives its old value: by one instruction, if its part is mapped here and this thread has used it before.
#[inline(always)]
fn update_word(
    job: &Job,
    op: RmwOp,
    (width, operand): (RmwWidth, u64),
    remote: *const c_void,
    proc: c_int,
) -> Done<u64> {
    let rmw = Rmw { op, width, operand, compare: 0 };
    // SAFETY: an operation on mapped memory does not wait.
    if let Some(direct) = unsafe { job.addresses.direct(proc, remote.addr(), width.bytes()) }
        && direct.start.addr().is_multiple_of(width.bytes())
    {
        // SAFETY: `direct` has looked at it, and it is aligned. A part is accessed by atomics and copies of regions only.
        let old = unsafe { amo::rmw(direct.start, rmw) };
        direct.ring();
        direct.count(CounterKind::Rmw, width.bytes());
        return Ok(old);
    }
    update_word_long(job, rmw, remote, proc)
}

/// The same through the tables, which also finds out what is wrong.
#[inline(never)]
fn update_word_long(job: &Job, rmw: Rmw, remote: *const c_void, proc: c_int) -> Done<u64> {
    let rank = job.rank(proc)?;
    match job.addresses.find(rank, remote.addr()) {
        Some((window, offset)) => {
            window.rmw_bytes(rank, offset, rmw).map_err(|error| job.explain_rmw(rank, remote, error))
        }
        None => Err(job.nowhere(rank, remote)),
    }
}
