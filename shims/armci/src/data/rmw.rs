//! Read-modify-write of one integer, atomic with respect to every other one.

use std::ffi::{c_int, c_long, c_void};

use longarm::ffi::{Rmw, RmwOp, RmwWidth};

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
        match op {
            SWAP | FETCH_AND_ADD => {
                let local = ploc.cast::<c_int>();
                // SAFETY: not null, and this function's own contract.
                let here = unsafe { local.read_unaligned() };
                let operand = if op == SWAP { here } else { extra };
                let old = word(job, op == SWAP, (RmwWidth::W32, u64::from(operand.cast_unsigned())), prem, proc)?;
                // SAFETY: as above. The width has 32 bits, so the cast loses nothing.
                unsafe { local.write_unaligned((old as u32).cast_signed()) };
            }
            SWAP_LONG | FETCH_AND_ADD_LONG => {
                let local = ploc.cast::<c_long>();
                // SAFETY: not null, and this function's own contract.
                let here = unsafe { local.read_unaligned() };
                let operand = if op == SWAP_LONG { here } else { c_long::from(extra) };
                let old = word(job, op == SWAP_LONG, (LONG, operand.cast_unsigned()), prem, proc)?;
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

fn word(job: &Job, swaps: bool, (width, operand): (RmwWidth, u64), remote: *const c_void, proc: c_int) -> Done<u64> {
    let rank = job.rank(proc)?;
    let op = if swaps { RmwOp::Swap } else { RmwOp::FetchAdd };
    let rmw = Rmw { op, width, operand, compare: 0 };
    // SAFETY: an operation on mapped memory does not wait.
    if let Some(direct) = unsafe { job.addresses.direct(rank, remote.addr(), width.bytes()) } {
        let outcome = direct.window.rmw_bytes(rank, direct.offset, rmw);
        return outcome.map_err(|error| job.explain_rmw(rank, remote, error));
    }
    match job.addresses.find(rank, remote.addr()) {
        Some((window, offset)) => {
            window.rmw_bytes(rank, offset, rmw).map_err(|error| job.explain_rmw(rank, remote, error))
        }
        None => Err(job.nowhere(rank, remote)),
    }
}
