//! Put with a flag behind it: the target sees the data before it sees the flag's new value.

use std::ffi::{c_int, c_void};

use longarm::Window;
use longarm::ffi::{Rmw, RmwOp, RmwWidth};

use super::transfer::{Doing, Ending, Strided, strided};
use crate::arguments::{Side, not_null};
use crate::boundary::call;
use crate::job::Job;
use crate::refusal::Done;

/// A flag of a process, found before anything is put.
struct Flag {
    window: Window<u8>,
    rank: u32,
    offset: u64,
}

impl Flag {
    fn find(job: &Job, flag: *const c_int, proc: c_int) -> Done<Flag> {
        not_null(flag)?;
        let rank = job.rank(proc)?;
        job.at(rank, flag.cast(), |window, offset| Ok(Flag { window: window.clone(), rank, offset }))
    }

    /// Sets it after everything that was put to the process before.
    fn set(&self, job: &Job, value: c_int) -> Done {
        let operand = u64::from(value.cast_unsigned());
        let set = Rmw { op: RmwOp::Set, width: RmwWidth::W32, operand, compare: 0 };
        job.world.fence();
        self.window.rmw_bytes(self.rank, self.offset, set)?;
        Ok(())
    }
}

/// `ARMCI_Put`, then the flag.
///
/// # Safety
/// `src` is readable for `bytes` bytes until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Put_flag(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    f: *mut c_int,
    v: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Put_flag", |job| {
        let flag = Flag::find(job, f, proc)?;
        // SAFETY: this function's own contract.
        unsafe { super::transfer::contiguous(job, Doing::Put, src, dst, (bytes, proc)) }?;
        flag.set(job, v)
    })
}

/// `ARMCI_PutS`, then the flag.
///
/// # Safety
/// As `ARMCI_PutS`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutS_flag(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    flag: *mut c_int,
    val: c_int,
    proc: c_int,
) -> c_int {
    let local = Side { start: src_ptr, strides: src_stride_arr };
    let remote = Side { start: dst_ptr, strides: dst_stride_arr };
    let arguments = Strided { local, remote, count, levels: stride_levels, proc };
    // SAFETY: this function's own contract.
    unsafe { put_patch("ARMCI_PutS_flag", &arguments, flag, val) }
}

/// The same as `ARMCI_PutS_flag`: every put of ours is direct where it can be.
///
/// # Safety
/// As `ARMCI_PutS`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutS_flag_dir(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    flag: *mut c_int,
    val: c_int,
    proc: c_int,
) -> c_int {
    let local = Side { start: src_ptr, strides: src_stride_arr };
    let remote = Side { start: dst_ptr, strides: dst_stride_arr };
    let arguments = Strided { local, remote, count, levels: stride_levels, proc };
    // SAFETY: this function's own contract.
    unsafe { put_patch("ARMCI_PutS_flag_dir", &arguments, flag, val) }
}

/// Writes a patch, then the flag.
///
/// # Safety
/// As [`strided`].
unsafe fn put_patch(name: &'static str, arguments: &Strided, flag: *mut c_int, value: c_int) -> c_int {
    call(name, |job| {
        let flag = Flag::find(job, flag, arguments.proc)?;
        // SAFETY: this function's own contract.
        unsafe { strided(job, Doing::Put, Ending::Blocking, arguments) }?;
        flag.set(job, value)
    })
}
