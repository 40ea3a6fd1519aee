//! Nonblocking put, get and accumulate. The local bytes belong to the transfer until it was waited for.
//!
//! A null handle makes an implicit transfer. What goes through memory is complete when the call returns.

use std::ffi::{c_int, c_void};

use super::handles::CHandle;
use super::transfer::{Doing, Ending, Strided, contiguous_under, strided};
use super::vector::{Giov, vector};
use crate::arguments::{self, Side};
use crate::boundary::call;

/// Starts `ARMCI_Put`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPut(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    call("ARMCI_NbPut", |job| {
        // SAFETY: this function's own contract.
        unsafe { contiguous_under(job, Doing::Put, nb_handle, (src, dst), (bytes, proc)) }
    })
}

/// Starts `ARMCI_Get`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbGet(
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    call("ARMCI_NbGet", |job| {
        // SAFETY: this function's own contract.
        unsafe { contiguous_under(job, Doing::Get, nb_handle, (dst, src), (bytes, proc)) }
    })
}

/// Starts `ARMCI_Acc`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbAcc(
    optype: c_int,
    scale: *mut c_void,
    src: *mut c_void,
    dst: *mut c_void,
    bytes: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    call("ARMCI_NbAcc", |job| {
        let kernel = arguments::kernel(optype, scale)?;
        // SAFETY: this function's own contract.
        let scale = unsafe { arguments::scale(kernel, scale) };
        let doing = Doing::Accumulate(kernel, &scale);
        // SAFETY: this function's own contract.
        unsafe { contiguous_under(job, doing, nb_handle, (src, dst), (bytes, proc)) }
    })
}

/// Starts `ARMCI_PutS`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPutS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    let local = Side { start: src_ptr, strides: src_stride_arr };
    let remote = Side { start: dst_ptr, strides: dst_stride_arr };
    let call_arguments = Strided { local, remote, count, levels: stride_levels, proc };
    call("ARMCI_NbPutS", |job| {
        // SAFETY: this function's own contract.
        unsafe { strided(job, Doing::Put, Ending::Under(nb_handle), &call_arguments) }
    })
}

/// Starts `ARMCI_GetS`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbGetS(
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    let remote = Side { start: src_ptr, strides: src_stride_arr };
    let local = Side { start: dst_ptr, strides: dst_stride_arr };
    let call_arguments = Strided { local, remote, count, levels: stride_levels, proc };
    call("ARMCI_NbGetS", |job| {
        // SAFETY: this function's own contract.
        unsafe { strided(job, Doing::Get, Ending::Under(nb_handle), &call_arguments) }
    })
}

/// Starts `ARMCI_AccS`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbAccS(
    optype: c_int,
    scale: *mut c_void,
    src_ptr: *mut c_void,
    src_stride_arr: *mut c_int,
    dst_ptr: *mut c_void,
    dst_stride_arr: *mut c_int,
    count: *mut c_int,
    stride_levels: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    let local = Side { start: src_ptr, strides: src_stride_arr };
    let remote = Side { start: dst_ptr, strides: dst_stride_arr };
    let call_arguments = Strided { local, remote, count, levels: stride_levels, proc };
    call("ARMCI_NbAccS", |job| {
        let kernel = arguments::kernel(optype, scale)?;
        // SAFETY: this function's own contract.
        let scale = unsafe { arguments::scale(kernel, scale) };
        let doing = Doing::Accumulate(kernel, &scale);
        // SAFETY: this function's own contract.
        unsafe { strided(job, doing, Ending::Under(nb_handle), &call_arguments) }
    })
}

/// Starts `ARMCI_PutV`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle. The list itself
/// may be reused at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPutV(darr: *mut Giov, len: c_int, proc: c_int, nb_handle: *mut CHandle) -> c_int {
    call("ARMCI_NbPutV", |job| {
        // SAFETY: this function's own contract.
        unsafe { vector(job, Doing::Put, Ending::Under(nb_handle), darr, (len, proc)) }
    })
}

/// Starts `ARMCI_GetV`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle. The list itself
/// may be reused at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbGetV(darr: *mut Giov, len: c_int, proc: c_int, nb_handle: *mut CHandle) -> c_int {
    call("ARMCI_NbGetV", |job| {
        // SAFETY: this function's own contract.
        unsafe { vector(job, Doing::Get, Ending::Under(nb_handle), darr, (len, proc)) }
    })
}

/// Starts `ARMCI_AccV`.
///
/// # Safety
/// As the blocking call, until the transfer was waited for; `nb_handle` is null or points to a handle. The list itself
/// may be reused at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbAccV(
    op: c_int,
    scale: *mut c_void,
    darr: *mut Giov,
    len: c_int,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    call("ARMCI_NbAccV", |job| {
        let kernel = arguments::kernel(op, scale)?;
        // SAFETY: this function's own contract.
        let scale = unsafe { arguments::scale(kernel, scale) };
        let doing = Doing::Accumulate(kernel, &scale);
        // SAFETY: this function's own contract.
        unsafe { vector(job, doing, Ending::Under(nb_handle), darr, (len, proc)) }
    })
}
