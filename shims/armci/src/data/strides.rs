//! Packing and unpacking of patches of this process's own memory, which Global Arrays borrows from ARMCI.

use std::ffi::{c_char, c_int, c_void};

use longarm::ffi::{Cursor, Region, RegionMut};

use crate::arguments::{Counts, Origin, Side, not_null};
use crate::boundary::end_with;
use crate::refusal::Done;

/// Walks the runs of a patch with the bytes of a packed buffer.
///
/// # Safety
/// The arrays are as long as `levels` says.
unsafe fn walk(
    patch: *const c_void,
    (levels, strides, count): (c_int, *const c_int, *const c_int),
    buffer: *const c_char,
    mut each: impl FnMut(*mut u8, *mut u8, usize),
) -> Done {
    not_null(patch)?;
    not_null(buffer)?;
    // SAFETY: this function's own contract.
    let counts = unsafe { Counts::new(count, levels) }?;
    if counts.is_empty() {
        return Ok(());
    }
    // SAFETY: this function's own contract.
    let origin = unsafe { Origin::new(&counts, Side { start: patch, strides }) }?;
    let mut cursor = Cursor::new(origin.shape.clone());
    let mut packed = buffer.cast_mut().cast::<u8>();
    while let Some(run) = cursor.peek() {
        let bytes = run.bytes as usize;
        each(origin.start().wrapping_add(run.offset as usize), packed, bytes);
        packed = packed.wrapping_add(bytes);
        cursor.advance(run.bytes);
    }
    Ok(())
}

/// Packs a patch into a buffer.
///
/// # Safety
/// The arrays are as long as `stride_levels` says; the patch is readable, and the buffer is writable for its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_write_strided(
    ptr: *mut c_void,
    stride_levels: c_int,
    stride_arr: *mut c_int,
    count: *mut c_int,
    buf: *mut c_char,
) {
    let pack = |patch: *mut u8, packed, bytes| {
        // SAFETY: a run of the patch, readable by this function's contract.
        let source = unsafe { Region::from_raw(patch, bytes) };
        // SAFETY: its place in the buffer, writable by this function's contract.
        unsafe { RegionMut::from_raw(packed, bytes) }.copy_from(source);
    };
    // SAFETY: this function's own contract.
    let packed = unsafe { walk(ptr, (stride_levels, stride_arr, count), buf, pack) };
    packed.unwrap_or_else(|fault| end_with("armci_write_strided", fault));
}

/// Unpacks a buffer into a patch.
///
/// # Safety
/// As [`armci_write_strided`], with the buffer readable and the patch writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_read_strided(
    ptr: *mut c_void,
    stride_levels: c_int,
    stride_arr: *mut c_int,
    count: *mut c_int,
    buf: *mut c_char,
) {
    let unpack = |patch, packed: *mut u8, bytes| {
        // SAFETY: a place in the buffer, readable by this function's contract.
        let source = unsafe { Region::from_raw(packed, bytes) };
        // SAFETY: a run of the patch, writable by this function's contract.
        unsafe { RegionMut::from_raw(patch, bytes) }.copy_from(source);
    };
    // SAFETY: this function's own contract.
    let unpacked = unsafe { walk(ptr, (stride_levels, stride_arr, count), buf, unpack) };
    unpacked.unwrap_or_else(|fault| end_with("armci_read_strided", fault));
}
