//! Transfers of one value, which travels in a register.

use std::ffi::{c_double, c_float, c_int, c_long, c_void};

use super::handles::CHandle;
use super::transfer::{Doing, contiguous};
use crate::boundary::{call, call_or_end};

/// Writes a value that lives until the call returns.
fn put_value<T>(name: &'static str, value: &T, remote: *mut c_void, proc: c_int) -> c_int {
    let source = std::ptr::from_ref(value).cast();
    call(name, |job| {
        // SAFETY: the value is borrowed until the call returns.
        unsafe { contiguous(job, Doing::Put, source, remote, (size_of::<T>() as c_int, proc)) }
    })
}

fn get_value<T: Default + Copy>(name: &'static str, remote: *mut c_void, proc: c_int) -> T {
    call_or_end(name, |job| {
        let mut value = T::default();
        let target = (&raw mut value).cast();
        // SAFETY: the value lives until the call returns, and nothing else refers to it; numbers have every bit pattern.
        unsafe { contiguous(job, Doing::Get, target, remote, (size_of::<T>() as c_int, proc)) }?;
        Ok(value)
    })
}

/// Writes one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutValueInt(src: c_int, dst: *mut c_void, proc: c_int) -> c_int {
    put_value("ARMCI_PutValueInt", &src, dst, proc)
}

/// Starts writing one value; it is copied, so nothing is lent.
///
/// # Safety
/// As the blocking call; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPutValueInt(
    src: c_int,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    // The transfer is complete when the call returns, which is what an unused handle says.
    let _ = nb_handle;
    put_value("ARMCI_NbPutValueInt", &src, dst, proc)
}

/// Reads one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GetValueInt(src: *mut c_void, proc: c_int) -> c_int {
    get_value("ARMCI_GetValueInt", src, proc)
}

/// Writes one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutValueLong(src: c_long, dst: *mut c_void, proc: c_int) -> c_int {
    put_value("ARMCI_PutValueLong", &src, dst, proc)
}

/// Starts writing one value; it is copied, so nothing is lent.
///
/// # Safety
/// As the blocking call; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPutValueLong(
    src: c_long,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    // The transfer is complete when the call returns, which is what an unused handle says.
    let _ = nb_handle;
    put_value("ARMCI_NbPutValueLong", &src, dst, proc)
}

/// Reads one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GetValueLong(src: *mut c_void, proc: c_int) -> c_long {
    get_value("ARMCI_GetValueLong", src, proc)
}

/// Writes one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutValueFloat(src: c_float, dst: *mut c_void, proc: c_int) -> c_int {
    put_value("ARMCI_PutValueFloat", &src, dst, proc)
}

/// Starts writing one value; it is copied, so nothing is lent.
///
/// # Safety
/// As the blocking call; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPutValueFloat(
    src: c_float,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    // The transfer is complete when the call returns, which is what an unused handle says.
    let _ = nb_handle;
    put_value("ARMCI_NbPutValueFloat", &src, dst, proc)
}

/// Reads one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GetValueFloat(src: *mut c_void, proc: c_int) -> c_float {
    get_value("ARMCI_GetValueFloat", src, proc)
}

/// Writes one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_PutValueDouble(src: c_double, dst: *mut c_void, proc: c_int) -> c_int {
    put_value("ARMCI_PutValueDouble", &src, dst, proc)
}

/// Starts writing one value; it is copied, so nothing is lent.
///
/// # Safety
/// As the blocking call; `nb_handle` is null or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_NbPutValueDouble(
    src: c_double,
    dst: *mut c_void,
    proc: c_int,
    nb_handle: *mut CHandle,
) -> c_int {
    // The transfer is complete when the call returns, which is what an unused handle says.
    let _ = nb_handle;
    put_value("ARMCI_NbPutValueDouble", &src, dst, proc)
}

/// Reads one value.
///
/// # Safety
/// The address is in no segment that is freed before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GetValueDouble(src: *mut c_void, proc: c_int) -> c_double {
    get_value("ARMCI_GetValueDouble", src, proc)
}
