//! Blocking put, get and accumulate: contiguous, strided, vector.
//!
//! A put or accumulate returns when the source may be reused; a get when the bytes are here. Calls of one process to
//! one target take effect in order.

use std::ffi::{c_int, c_void};

use super::transfer::{Doing, Ending, Strided, contiguous, strided};
use super::vector::{Giov, vector};
use crate::arguments::{self, Side};
use crate::boundary::call;

/// Writes `bytes` bytes to a process.
///
/// # Safety
/// `src` is readable for `bytes` bytes until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Put(src: *mut c_void, dst: *mut c_void, bytes: c_int, proc: c_int) -> c_int {
    // SAFETY: this function's own contract.
    call("ARMCI_Put", |job| unsafe { contiguous(job, Doing::Put, src, dst, (bytes, proc)) })
}

/// Reads `bytes` bytes from a process.
///
/// # Safety
/// `dst` is writable for `bytes` bytes until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Get(src: *mut c_void, dst: *mut c_void, bytes: c_int, proc: c_int) -> c_int {
    // SAFETY: this function's own contract.
    call("ARMCI_Get", |job| unsafe { contiguous(job, Doing::Get, dst, src, (bytes, proc)) })
}

/// Adds scaled elements to those of a process, each atomically.
///
/// # Safety
/// `src` is readable for `bytes` bytes and `scale` for one element until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Acc(
    optype: c_int,
    scale: *mut c_void,
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
) -> c_int {
    call("ARMCI_Acc", |job| {
        let kernel = arguments::kernel(optype, scale)?;
        // SAFETY: this function's own contract.
        let scale = unsafe { arguments::scale(kernel, scale) };
        let doing = Doing::Accumulate(kernel, &scale);
        // SAFETY: this function's own contract.
        unsafe { contiguous(job, doing, src, dst, (bytes, proc)) }
    })
}

/// Writes a patch.
///
/// # Safety
/// The arrays are as long as `stride_levels` says, and the local patch is readable until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
) -> c_int {
    let local = Side { start: src_ptr, strides: src_stride_arr };
    let remote = Side { start: dst_ptr, strides: dst_stride_arr };
    let call_arguments = Strided { local, remote, count, levels: stride_levels, proc };
    // SAFETY: this function's own contract.
    call("ARMCI_PutS", |job| unsafe { strided(job, Doing::Put, Ending::Blocking, &call_arguments) })
}

/// Reads a patch.
///
/// # Safety
/// The arrays are as long as `stride_levels` says, and the local patch is writable until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GetS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
) -> c_int {
    let remote = Side { start: src_ptr, strides: src_stride_arr };
    let local = Side { start: dst_ptr, strides: dst_stride_arr };
    let call_arguments = Strided { local, remote, count, levels: stride_levels, proc };
    // SAFETY: this function's own contract.
    call("ARMCI_GetS", |job| unsafe { strided(job, Doing::Get, Ending::Blocking, &call_arguments) })
}

/// Adds a scaled patch.
///
/// # Safety
/// As [`PARMCI_PutS`] and [`PARMCI_Acc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_AccS(
    optype: c_int,
    scale: *mut c_void,
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
) -> c_int {
    let local = Side { start: src_ptr, strides: src_stride_arr };
    let remote = Side { start: dst_ptr, strides: dst_stride_arr };
    let call_arguments = Strided { local, remote, count, levels: stride_levels, proc };
    call("ARMCI_AccS", |job| {
        let kernel = arguments::kernel(optype, scale)?;
        // SAFETY: this function's own contract.
        let scale = unsafe { arguments::scale(kernel, scale) };
        let doing = Doing::Accumulate(kernel, &scale);
        // SAFETY: this function's own contract.
        unsafe { strided(job, doing, Ending::Blocking, &call_arguments) }
    })
}

/// Writes pairs of a list.
///
/// # Safety
/// `darr` has `len` entries whose arrays are as long as they say; the local bytes are readable until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutV(darr: *mut Giov, len: c_int, proc: c_int) -> c_int {
    // SAFETY: this function's own contract.
    call("ARMCI_PutV", |job| unsafe { vector(job, Doing::Put, Ending::Blocking, darr, (len, proc)) })
}

/// Reads pairs of a list.
///
/// # Safety
/// As [`PARMCI_PutV`], with the local bytes writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GetV(darr: *mut Giov, len: c_int, proc: c_int) -> c_int {
    // SAFETY: this function's own contract.
    call("ARMCI_GetV", |job| unsafe { vector(job, Doing::Get, Ending::Blocking, darr, (len, proc)) })
}

/// Adds scaled pairs of a list. Places that are listed twice are added to twice.
///
/// # Safety
/// As [`PARMCI_PutV`] and [`PARMCI_Acc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_AccV(op: c_int, scale: *mut c_void, darr: *mut Giov, len: c_int, proc: c_int) -> c_int {
    call("ARMCI_AccV", |job| {
        let kernel = arguments::kernel(op, scale)?;
        // SAFETY: this function's own contract.
        let scale = unsafe { arguments::scale(kernel, scale) };
        let doing = Doing::Accumulate(kernel, &scale);
        // SAFETY: this function's own contract.
        unsafe { vector(job, doing, Ending::Blocking, darr, (len, proc)) }
    })
}
