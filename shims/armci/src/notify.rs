//! Notices: a counter of each process at every other one, raised behind whatever was put there before.

use std::ffi::c_int;

use longarm::Compare;
use longarm::ffi::sync::Ordering;
use longarm::ffi::{Rmw, RmwOp, RmwWidth};

use crate::boundary::call_or_end;

/// Tells a process that everything put to it before is there. Gives how many notices it was sent by now.
#[unsafe(no_mangle)]
pub extern "C" fn parmci_notify(proc: c_int) -> c_int {
    call_or_end("armci_notify", |job| {
        let rank = job.rank(proc)?;
        let me = u64::from(job.world.rank());
        job.world.fence();
        let raise = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
        job.notices.window()?.cast::<u8>().rmw_bytes(rank, me * 8, raise)?;
        Ok((job.notices.sent[rank as usize].fetch_add(1, Ordering::Relaxed) + 1) as c_int)
    })
}

/// Waits for the next notice of a process. `*pval` gets how many have been waited for, this one included. Gives how many
/// have come by now.
///
/// # Safety
/// `pval` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parmci_notify_wait(proc: c_int, pval: *mut c_int) -> c_int {
    call_or_end("armci_notify_wait", |job| {
        let rank = job.rank(proc)?;
        let number = job.notices.awaited[rank as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let come = job.notices.window()?.wait_until(rank as usize, Compare::GreaterOrEqual, number)?;
        if !pval.is_null() {
            // SAFETY: not null, and this function's own contract.
            unsafe { pval.write(number as c_int) };
        }
        Ok(come as c_int)
    })
}
