//! Allocations that one process makes without asking anybody: `ARMCI_Memget` and its fellows.
//!
//! Every process has a pool, made by all together at the start, so that everybody knows the addresses of everybody's
//! pool for good. A segment is a piece of its owner's pool: nothing has to be told, attached or forgotten, from another
//! node neither. Memory that no segment has touched does not exist, and the pages of a freed one go back to the system.

use std::ffi::{c_char, c_int, c_long, c_void};

use longarm::ffi::Ranges;

use crate::addresses::Shown;
use crate::arguments::not_null;
use crate::boundary::call_or_end;
use crate::job::Job;
use crate::memory;
use crate::pools::{Pool, Pools};
use crate::refusal::{Done, Refusal};

/// Bytes of addresses of each process's pool, and of the pools of a node.
const POOL_BYTES: usize = 16 << 30;
const NODE_BYTES: usize = 1 << 40;
impl Pools {
    /// Makes the pools. Collective over all processes. Where the system has not so many addresses there are none, which
    /// is told to those who ask.
    pub(crate) fn prepare(&self, job: &Job) -> Done {
        let here = (0..job.world.size()).filter(|rank| job.world.shares_memory_with(*rank)).count();
        let bytes = POOL_BYTES.min(NODE_BYTES / here.max(1));
        let window = match job.world.group().allocate_collective::<u8>(bytes) {
            Ok(window) => window,
            Err(longarm::error::WindowError::Collective(error)) => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        let parts = memory::place(job, job.world.group(), &window, Shown::Never)?;
        window.leave_out_of_dumps();
        // A device would have all pages of a pool in memory, and go on with those that were given back.
        window.leave_unpinned();
        let start = parts[job.world.rank() as usize].1;
        *self.0.lock() = Some(Pool { window, parts, start, pieces: Ranges::new(0..bytes as u64) });
        Ok(())
    }

    /// Frees the pools. Collective.
    pub(crate) fn free(&self, job: &Job) -> Done {
        // Not under the lock, for it waits for the others.
        let pool = self.0.lock().take();
        let Some(pool) = pool else { return Ok(()) };
        for (rank, start) in pool.parts {
            job.addresses.remove(rank, start);
        }
        Ok(pool.window.free_collective()?)
    }
}

/// How many numbers a description has room for in C.
const DESCRIPTION_MAX: usize = 128;

/// `armci_meminfo_t`: a segment that one process has made alone.
#[repr(C)]
pub struct MemInfo {
    armci_addr: *mut c_char,
    addr: *mut c_char,
    size: usize,
    cpid: c_int,
    /// The first is where the segment starts: programs move the pointers above behind what they put there themselves.
    description: [c_long; DESCRIPTION_MAX],
}

/// Makes a segment without asking anybody. Its description goes to others as plain bytes, if they are to call
/// `ARMCI_Memat`; the address alone will do for transfers.
///
/// # Safety
/// `meminfo` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Memget(bytes: usize, meminfo: *mut MemInfo, memflg: c_int) {
    call_or_end("ARMCI_Memget", |job| {
        not_null(meminfo)?;
        if bytes == 0 || memflg != 0 {
            return Err(Refusal::fatal(format!("{bytes} bytes with flag {memflg}: bytes are positive, the flag is 0")));
        }
        let start = job.pools.take(bytes)?;
        let mut description = [0; DESCRIPTION_MAX];
        description[0] = start as c_long;
        let address: *mut c_char = std::ptr::with_exposed_provenance_mut(start);
        let cpid = job.world.rank() as c_int;
        let made = MemInfo { armci_addr: address, addr: address, size: bytes, cpid, description };
        // SAFETY: not null, and this function's own contract.
        unsafe { meminfo.write(made) };
        Ok(())
    });
}

/// The address of a segment of another process, plus `offset`: the owner's own, which is good for loads and stores too
/// where `ARMCI_Same_node` says so.
///
/// # Safety
/// `meminfo` is readable and holds what `ARMCI_Memget` wrote at its owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Memat(meminfo: *mut MemInfo, offset: c_long) -> *mut c_void {
    call_or_end("ARMCI_Memat", |job| {
        not_null(meminfo)?;
        // SAFETY: not null, and this function's own contract.
        let info = unsafe { &*meminfo };
        job.rank(info.cpid)?;
        Ok(info.armci_addr.wrapping_byte_offset(offset as isize).cast())
    })
}

/// Forgets a segment of another process. There is nothing to forget.
///
/// # Safety
/// As [`PARMCI_Memat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memdt(meminfo: *mut MemInfo, _offset: c_long) {
    call_or_end("ARMCI_Memdt", |_| not_null(meminfo));
}

/// Frees a segment of `ARMCI_Memget` at its owner. Elsewhere it only empties the description.
///
/// # Safety
/// As [`PARMCI_Memat`], and `meminfo` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Memctl(meminfo: *mut MemInfo) {
    call_or_end("ARMCI_Memctl", |job| {
        not_null(meminfo)?;
        // SAFETY: not null, and this function's own contract.
        let info = unsafe { &mut *meminfo };
        if job.rank(info.cpid)? == job.world.rank() && info.description[0] != 0 {
            job.pools.give_back(info.description[0] as usize, info.size)?;
        }
        (info.addr, info.armci_addr) = (std::ptr::null_mut(), std::ptr::null_mut());
        info.description[0] = 0;
        Ok(())
    });
}
