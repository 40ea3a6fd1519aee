//! Put and get of contiguous elements, blocking and not.

use std::ffi::{CStr, c_char, c_int, c_void};

use longarm::error::TransferError;
use longarm::ffi::{CounterKind, LenderMut, OriginBytes, OriginBytesMut, Region, RegionMut, Run, Shapes};

use crate::boundary::{end, or_end};
use crate::contexts::{Context, DEFAULT};
use crate::job::{self, Job, Location};
use crate::operator::LongDouble;

/// Bytes of so many elements. What does not fit is outside of any memory.
#[inline(always)]
pub(crate) fn bytes_of<T>(count: u64) -> usize {
    (count as usize).saturating_mul(size_of::<T>())
}

/// Copies bytes of this process to mapped memory or back.
///
/// # Safety
/// The bytes are readable at `from` and writable at `to`, and nobody has a reference to them.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: this function's own contract.
    let from = unsafe { Region::from_raw(from, bytes) };
    // SAFETY: this function's own contract.
    unsafe { RegionMut::from_raw(to, bytes) }.copy_from(from);
}

/// Puts into memory of this node over the default context, which most calls do. False: it takes the long way.
///
/// # Safety
/// The bytes are readable at `source`; those of the target belong to nobody's reference.
#[inline(always)]
unsafe fn put_at_once(context: usize, dest: *mut u8, source: *const u8, bytes: usize, pe: c_int) -> bool {
    if context == DEFAULT
        && let Some(job) = job::active()
        && let Some(there) = job.direct(pe, dest.addr(), bytes)
    {
        // SAFETY: this function's own contract, and `direct` has looked at the target.
        unsafe { copy(there, source, bytes) };
        job.count(pe, CounterKind::Put, bytes);
        return true;
    }
    false
}

/// The same for a get.
///
/// # Safety
/// The bytes at `dest` are writable; those of the source belong to nobody's exclusive reference.
#[inline(always)]
unsafe fn get_at_once(context: usize, dest: *mut u8, source: *const u8, bytes: usize, pe: c_int) -> bool {
    if context == DEFAULT
        && let Some(job) = job::active()
        && let Some(there) = job.direct(pe, source.addr(), bytes)
    {
        // SAFETY: this function's own contract, and `direct` has looked at the source.
        unsafe { copy(dest, there, bytes) };
        job.count(pe, CounterKind::Get, bytes);
        return true;
    }
    false
}

/// # Safety
/// The elements are readable at `source`; those of the target belong to nobody's reference.
#[inline(always)]
pub(crate) unsafe fn put<T>(name: &'static str, context: usize, dest: *mut T, source: *const T, count: u64, pe: c_int) {
    let bytes = bytes_of::<T>(count);
    // SAFETY: this function's own contract.
    if unsafe { put_at_once(context, dest.cast(), source.cast(), bytes, pe) } {
        return;
    }
    // SAFETY: this function's own contract.
    unsafe { put_long(name, context, dest.cast(), source.cast(), bytes, pe) };
}

/// # Safety
/// As [`put`].
#[inline(never)]
unsafe fn put_long(name: &'static str, context: usize, dest: *mut u8, source: *const u8, bytes: usize, pe: c_int) {
    let job = job::get(name);
    let (context, pe) = job.contexts.resolve(name, context, pe);
    if nothing(name, job, bytes, pe) {
        return;
    }
    let place = job.place(name, pe, dest.addr(), bytes);
    if !place.here.is_null() {
        // SAFETY: this function's own contract, and `place` has looked at the target.
        unsafe { copy(place.here, source, bytes) };
        job.count(pe, CounterKind::Put, bytes);
        return;
    }
    // SAFETY: this function's own contract.
    let source = unsafe { Region::from_raw(source, bytes) };
    if let Some(away) = place.away {
        return away.put(name, (place.rank, place.offset), source);
    }
    or_end(name, place.window.put_bytes(place.rank, place.offset, OriginBytes::from_region(source)));
    context.note_sent();
}

/// Whether a transfer is about no bytes; the PE has to be there all the same.
fn nothing(name: &'static str, job: &Job, bytes: usize, pe: c_int) -> bool {
    job.process.rank(name, pe);
    bytes == 0
}

/// # Safety
/// The elements are writable at `dest`, and nobody has a reference to them.
#[inline(always)]
pub(crate) unsafe fn get<T>(name: &'static str, context: usize, dest: *mut T, source: *const T, count: u64, pe: c_int) {
    let bytes = bytes_of::<T>(count);
    // SAFETY: this function's own contract.
    if unsafe { get_at_once(context, dest.cast(), source.cast(), bytes, pe) } {
        return;
    }
    // SAFETY: this function's own contract.
    unsafe { get_long(name, context, dest.cast(), source.cast(), bytes, pe) };
}

/// # Safety
/// As [`get`].
#[inline(never)]
unsafe fn get_long(name: &'static str, context: usize, dest: *mut u8, source: *const u8, bytes: usize, pe: c_int) {
    let job = job::get(name);
    let (_, pe) = job.contexts.resolve(name, context, pe);
    if nothing(name, job, bytes, pe) {
        return;
    }
    let place = job.place(name, pe, source.addr(), bytes);
    if !place.here.is_null() {
        // SAFETY: this function's own contract, and `place` has looked at the source.
        unsafe { copy(dest, place.here, bytes) };
        job.count(pe, CounterKind::Get, bytes);
        return;
    }
    if let Some(away) = place.away {
        // SAFETY: this function's own contract.
        return away.get(name, (place.rank, place.offset), unsafe { RegionMut::from_raw(dest, bytes) });
    }
    // SAFETY: this function's own contract.
    let target = unsafe { OriginBytesMut::from_raw(dest, bytes) };
    or_end(name, place.window.get_bytes(place.rank, place.offset, target));
}

/// # Safety
/// The element at the target belongs to nobody's reference.
#[inline(always)]
pub(crate) unsafe fn put_one<T: Copy>(name: &'static str, context: usize, dest: *mut T, value: T, pe: c_int) {
    if context == DEFAULT
        && let Some(job) = job::active()
        && let Some(there) = job.direct(pe, dest.addr(), size_of::<T>())
        && there.addr().is_multiple_of(align_of::<T>())
    {
        // SAFETY: mapped, aligned, and written by others at any time: one store, which is not torn.
        unsafe { there.cast::<T>().write_volatile(value) };
        job.count(pe, CounterKind::Put, size_of::<T>());
        return;
    }
    // SAFETY: the value is readable, and this function's own contract.
    unsafe { put_long(name, context, dest.cast(), (&raw const value).cast(), size_of::<T>(), pe) };
}

/// # Safety
/// As the C function.
#[inline(always)]
pub(crate) unsafe fn get_one<T: Copy + Default>(name: &'static str, context: usize, source: *const T, pe: c_int) -> T {
    if context == DEFAULT
        && let Some(job) = job::active()
        && let Some(there) = job.direct(pe, source.addr(), size_of::<T>())
        && there.addr().is_multiple_of(align_of::<T>())
    {
        job.count(pe, CounterKind::Get, size_of::<T>());
        // SAFETY: mapped, aligned, and written by others at any time: one load. The types are numbers.
        return unsafe { there.cast::<T>().read_volatile() };
    }
    let mut value = T::default();
    // SAFETY: the value is writable, and this function's own contract.
    unsafe { get_long(name, context, (&raw mut value).cast(), source.cast(), size_of::<T>(), pe) };
    value
}

/// # Safety
/// As [`put`], until quiet.
#[inline(always)]
pub(crate) unsafe fn put_nbi<T>(
    name: &'static str,
    context: usize,
    dest: *mut T,
    source: *const T,
    count: u64,
    pe: c_int,
) {
    let bytes = bytes_of::<T>(count);
    // SAFETY: this function's own contract.
    if unsafe { put_at_once(context, dest.cast(), source.cast(), bytes, pe) } {
        return;
    }
    // SAFETY: this function's own contract.
    unsafe { start_put(name, context, dest.cast(), source.cast(), bytes, pe) };
}

/// # Safety
/// As [`put_nbi`].
#[inline(never)]
unsafe fn start_put(name: &'static str, handle: usize, dest: *mut u8, source: *const u8, bytes: usize, pe: c_int) {
    let job = job::get(name);
    let (context, world_pe) = job.contexts.resolve(name, handle, pe);
    if nothing(name, job, bytes, world_pe) {
        return;
    }
    let place = job.place(name, world_pe, dest.addr(), bytes);
    if !place.here.is_null() || place.away.is_some() {
        // SAFETY: this function's own contract.
        return unsafe { put_long(name, handle, dest, source, bytes, pe) };
    }
    // SAFETY: this function's own contract.
    let region = unsafe { Region::from_raw(source, bytes) };
    if place.window.put_bytes_together(place.rank, place.offset, OriginBytes::from_region(region)) {
        context.note_sent();
        return;
    }
    // SAFETY: the region is only read: it goes to a put.
    let region = unsafe { RegionMut::from_raw(source.cast_mut(), bytes) };
    // SAFETY: this function's own contract: the bytes stay until quiet.
    unsafe {
        start(name, context, region, &place, |lender, shapes| place.window.start_put_shapes(place.rank, shapes, lender))
    };
}

/// Starts something about the bytes of a region, towards as many at a place.
///
/// # Safety
/// The bytes stay, as what is started needs them, until quiet.
unsafe fn start(
    name: &'static str,
    context: &Context,
    region: RegionMut<'_>,
    place: &Location<'_>,
    begin: impl FnOnce(&LenderMut<'_>, Shapes) -> Result<(), TransferError>,
) {
    let shapes = Shapes::contiguous(Run { offset: place.offset, bytes: region.len() as u64 });
    let started = context.start(|part| {
        // SAFETY: this function's own contract.
        let lender = unsafe { LenderMut::vouched(region, part) };
        begin(&lender, shapes)
    });
    or_end(name, started);
}

/// # Safety
/// As [`get`], until quiet.
#[inline(always)]
pub(crate) unsafe fn get_nbi<T>(
    name: &'static str,
    context: usize,
    dest: *mut T,
    source: *const T,
    count: u64,
    pe: c_int,
) {
    let bytes = bytes_of::<T>(count);
    // SAFETY: this function's own contract.
    if unsafe { get_at_once(context, dest.cast(), source.cast(), bytes, pe) } {
        return;
    }
    // SAFETY: this function's own contract.
    unsafe { start_get(name, context, dest.cast(), source.cast(), bytes, pe) };
}

/// # Safety
/// As [`get_nbi`].
#[inline(never)]
unsafe fn start_get(name: &'static str, handle: usize, dest: *mut u8, source: *const u8, bytes: usize, pe: c_int) {
    let job = job::get(name);
    let (context, world_pe) = job.contexts.resolve(name, handle, pe);
    if nothing(name, job, bytes, world_pe) {
        return;
    }
    let place = job.place(name, world_pe, source.addr(), bytes);
    if !place.here.is_null() || place.away.is_some() {
        // SAFETY: this function's own contract.
        return unsafe { get_long(name, handle, dest, source, bytes, pe) };
    }
    // SAFETY: this function's own contract.
    let region = unsafe { RegionMut::from_raw(dest, bytes) };
    // SAFETY: this function's own contract: the bytes stay until quiet.
    unsafe {
        start(name, context, region, &place, |lender, shapes| place.window.start_get_shapes(place.rank, shapes, lender))
    };
}

/// The name that C passes, which is one of its literals.
///
/// # Safety
/// `name` is a C string that lives as long as the process.
unsafe fn literal(name: *const c_char) -> &'static str {
    // SAFETY: this function's own contract.
    let text: &'static CStr = unsafe { CStr::from_ptr(name) };
    match text.to_str() {
        Ok(text) => text,
        Err(_) => end("shmem", "a name is no text"),
    }
}

/// For the C file: `shmem_longdouble_p`.
///
/// # Safety
/// As [`put`]; the name is a literal.
#[unsafe(no_mangle)]
unsafe extern "C" fn longarm_shmem_put_long_double(
    name: *const c_char,
    context: *mut c_void,
    dest: *mut LongDouble,
    value: *const LongDouble,
    pe: c_int,
) {
    // SAFETY: this function's own contract.
    let name = unsafe { literal(name) };
    // SAFETY: this function's own contract.
    unsafe { put(name, context.addr(), dest, value, 1, pe) };
}

/// For the C file: `shmem_longdouble_g`.
///
/// # Safety
/// As [`get`]; the name is a literal.
#[unsafe(no_mangle)]
unsafe extern "C" fn longarm_shmem_get_long_double(
    name: *const c_char,
    context: *mut c_void,
    value: *mut LongDouble,
    source: *const LongDouble,
    pe: c_int,
) {
    // SAFETY: this function's own contract.
    let name = unsafe { literal(name) };
    // SAFETY: this function's own contract.
    unsafe { get(name, context.addr(), value, source, 1, pe) };
}
