//! Notices: a counter of each process at every other one, raised behind whatever was put there before.

use std::ffi::c_int;

use longarm::ffi::sync::{AtomicU64, Ordering};
use longarm::ffi::{Rmw, RmwOp, RmwWidth};
use longarm::{Compare, Window};
use parking_lot::RwLock;

use crate::boundary::{Done, Refusal, call_or_end};
use crate::job::Job;

/// See the module.
pub(crate) struct Notices {
    /// One word for every process, raised by it.
    window: RwLock<Option<Window<u64>>>,
    /// How many notices this process has sent to each one.
    sent: Box<[AtomicU64]>,
    /// How many it has waited for from each one.
    awaited: Box<[AtomicU64]>,
}

impl Notices {
    pub(crate) fn new(ranks: u32) -> Notices {
        let zeros = || (0..ranks).map(|_| AtomicU64::new(0)).collect();
        Notices { window: RwLock::new(None), sent: zeros(), awaited: zeros() }
    }

    /// Makes the counters. Collective.
    pub(crate) fn prepare(&self, job: &Job) -> Done {
        let window = job.world.allocate_collective::<u64>(self.sent.len())?;
        self.sent.iter().chain(&self.awaited).for_each(|count| count.store(0, Ordering::Relaxed));
        *self.window.write() = Some(window);
        Ok(())
    }

    /// Frees the counters. Collective.
    pub(crate) fn free(&self) -> Done {
        // Not under the lock: while this process waits for the others, its handlers may still ask for the window.
        let window = self.window.write().take();
        window.map_or(Ok(()), |window| Ok(window.free_collective()?))
    }

    fn window(&self) -> Done<Window<u64>> {
        self.window.read().clone().ok_or_else(|| Refusal::fatal("notices are ready between init and finalize"))
    }
}

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
