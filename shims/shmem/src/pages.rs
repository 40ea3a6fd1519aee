//! Pages of memory: their size, how a mapping is moved, and how what is in them is copied.

use std::ffi::c_void;
use std::io::Error;

pub(crate) const PAGE: usize = 4096;

/// Moves a mapping of `old` bytes, with `new` bytes, to a place, or to some free one if that is null. Not by the function of C:
/// libraries that put themselves in front of it leave out the place.
///
/// # Safety
/// Of what is at the two places nothing is referred to, or it is the same before and after.
pub(crate) unsafe fn move_mapping(
    from: *mut c_void,
    (old, new): (usize, usize),
    to: *mut c_void,
) -> Result<*mut c_void, Error> {
    let flags = if to.is_null() { libc::MREMAP_MAYMOVE } else { libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED };
    // SAFETY: this function's own contract.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, from, old, new, flags, to) };
    if moved == -1 {
        return Err(Error::last_os_error());
    }
    Ok(std::ptr::with_exposed_provenance_mut(moved as usize))
}

/// Copies words that are not 0 into memory that is. Allocates nothing.
pub(crate) fn copy_words(from: *const u8, to: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(8) {
        // SAFETY: inside of the segment, which is mapped and readable.
        let value = unsafe { from.wrapping_add(at).cast::<u64>().read_volatile() };
        if value != 0 {
            // SAFETY: inside of the copy, which is as large, and which nobody else knows yet.
            unsafe { to.wrapping_add(at).cast::<u64>().write_volatile(value) };
        }
    }
}
