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

macro_rules! put_values {
    ($($name:ident $number:ty, $said:literal;)+) => {$(
        /// Writes one value.
        ///
        /// # Safety
        /// The address is in no segment that is freed before the call returns.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(src: $number, dst: *mut c_void, proc: c_int) -> c_int {
            put_value($said, &src, dst, proc)
        }
    )+};
}
put_values! {
    PARMCI_PutValueInt c_int, "ARMCI_PutValueInt";
    PARMCI_PutValueLong c_long, "ARMCI_PutValueLong";
    PARMCI_PutValueFloat c_float, "ARMCI_PutValueFloat";
    PARMCI_PutValueDouble c_double, "ARMCI_PutValueDouble";
}

macro_rules! nb_put_values {
    ($($name:ident $number:ty, $said:literal;)+) => {$(
        /// Starts writing one value; it is copied, so nothing is lent. The transfer is complete when the call returns,
        /// which is what an unused handle says.
        ///
        /// # Safety
        /// As the blocking call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(src: $number, dst: *mut c_void, proc: c_int, _nb_handle: *mut CHandle) -> c_int {
            put_value($said, &src, dst, proc)
        }
    )+};
}
nb_put_values! {
    PARMCI_NbPutValueInt c_int, "ARMCI_NbPutValueInt";
    PARMCI_NbPutValueLong c_long, "ARMCI_NbPutValueLong";
    PARMCI_NbPutValueFloat c_float, "ARMCI_NbPutValueFloat";
    PARMCI_NbPutValueDouble c_double, "ARMCI_NbPutValueDouble";
}

macro_rules! get_values {
    ($($name:ident $number:ty, $said:literal;)+) => {$(
        /// Reads one value.
        ///
        /// # Safety
        /// The address is in no segment that is freed before the call returns.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(src: *mut c_void, proc: c_int) -> $number {
            get_value($said, src, proc)
        }
    )+};
}
get_values! {
    PARMCI_GetValueInt c_int, "ARMCI_GetValueInt";
    PARMCI_GetValueLong c_long, "ARMCI_GetValueLong";
    PARMCI_GetValueFloat c_float, "ARMCI_GetValueFloat";
    PARMCI_GetValueDouble c_double, "ARMCI_GetValueDouble";
}
