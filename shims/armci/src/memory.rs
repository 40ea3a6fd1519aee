//! Allocations: memory of every process of a group that all of them may name by its owner's address.
//!
//! A segment is a window of longarm. Its parts have the same address in all processes of a node, so an address that the
//! owner tells can be followed by its neighbours too. Allocations that one process makes alone are in `alone`.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::Arc;

use longarm::{Group, Window};

use crate::addresses::Shown;
use crate::allocations::Allocation;
use crate::arguments::not_null;
use crate::boundary::call;
use crate::groups;
use crate::job::Job;
use crate::refusal::{Done, FAILED, Refusal};

/// Gives the ranks that have bytes, with the addresses of their parts. Collective over the group the first time that a window has its memory: members
/// tell each other then, and look whether addresses mean the same everywhere on the node.
pub(crate) fn place(job: &Job, group: &Group, window: &Window<u8>, shown: Shown) -> Done<Vec<(u32, usize)>> {
    let known = window.memory().and_then(|memory| job.starts.of(memory));
    let starts = match known {
        Some(starts) => starts,
        None => tell_starts(job, group, window)?,
    };
    let mut parts = Vec::with_capacity(starts.len());
    for (rank, start) in group.members().into_iter().zip(starts.iter().copied()) {
        if window.len_at(rank) != Some(0) {
            job.addresses.insert(rank, start, window, shown);
            parts.push((rank, start));
        }
    }
    Ok(parts)
}

/// Where each member has its part mapped.
fn tell_starts(job: &Job, group: &Group, window: &Window<u8>) -> Done<Arc<[usize]>> {
    let members = group.members();
    let is_here = |rank: u32| job.world.shares_memory_with(rank);
    let address =
        |rank| Ok::<u64, Refusal>(window.pointer_at(rank)?.map_or(0, |start| start.expose_provenance() as u64));
    // The parts of a node lie behind one another, so where the first one is tells of them all.
    let first_here = members.iter().copied().find(|rank| is_here(*rank)).unwrap_or(job.world.rank());
    let told = group.allgather_collective(&[address(job.world.rank())?, address(first_here)?])?;
    let told: Vec<[u64; 2]> = told.as_chunks().0.to_vec();
    let mut starts_here = members.iter().zip(&told).filter(|(rank, _)| is_here(**rank)).map(|(_, told)| told[1]);
    let first = starts_here.next();
    if starts_here.any(|start| Some(start) != first) {
        job.cannot_follow_neighbours();
    }
    let starts: Arc<[usize]> = told.iter().map(|told| told[0] as usize).collect();
    // A part without bytes is nowhere, and may have some in the next window.
    if let Some(memory) = window.memory()
        && members.iter().all(|rank| window.len_at(*rank) != Some(0))
    {
        job.starts.keep(memory, &starts);
    }
    Ok(starts)
}

/// Makes a segment over a group. `table` gets the address of every member's part.
///
/// # Safety
/// `table` is writable for as many pointers as the group has members.
unsafe fn allocate(job: &Job, group: &Group, table: *mut *mut c_void, bytes: c_long) -> Done {
    not_null(table)?;
    let bytes = usize::try_from(bytes).map_err(|_| Refusal::fatal(format!("a segment of {bytes} bytes")))?;
    let window = match group.allocate_collective::<u8>(bytes) {
        Ok(window) => window,
        Err(longarm::error::WindowError::Collective(error)) => return Err(error.into()),
        Err(error) => {
            // Every member gets the same error, so all go on with the code.
            eprintln!("longarm: rank {}: no segment of {bytes} bytes: {error}", job.world.rank());
            return Err(Refusal::Code(FAILED));
        }
    };
    let parts = place(job, group, &window, Shown::InMessages)?;
    let mut with_bytes = parts.iter().peekable();
    for (place, rank) in group.members().into_iter().enumerate() {
        let start = with_bytes.next_if(|(other, _)| *other == rank).map_or(0, |(_, start)| *start);
        // SAFETY: one of the members' places, which are writable by this function's contract.
        unsafe { table.wrapping_add(place).write(std::ptr::with_exposed_provenance_mut(start)) };
    }
    if parts.is_empty() {
        // Nobody can name it again.
        return Ok(window.free_collective()?);
    }
    job.segments.0.lock().push(Allocation { window, parts });
    Ok(())
}

/// Frees the segment whose part of this process starts at `start`; null where this process has none.
fn free(job: &Job, group: &Group, start: *const c_void) -> Done {
    job.world.quiet()?;
    let (rank, start) = match start.addr() {
        // That all mean the same segment is looked at when its window is freed.
        start if start != 0 && job.segments.have_no_empty_part(group) => (job.world.rank(), start),
        start => {
            let starts = group.allgather_collective(&[start as u64])?;
            let named = group.members().into_iter().zip(starts).find(|(_, start)| *start != 0);
            let Some((rank, start)) = named else { return Ok(()) };
            (rank, start as usize)
        }
    };
    let mut segments = job.segments.0.lock();
    let found = segments.iter().position(|segment| segment.parts.contains(&(rank, start)));
    let Some(found) = found else {
        return Err(Refusal::fatal(format!("address {start:#x} of process {rank} is not the start of a segment")));
    };
    let segment = segments.swap_remove(found);
    drop(segments);
    for (rank, start) in segment.parts {
        job.addresses.remove(rank, start);
    }
    Ok(segment.window.free_collective()?)
}

/// Makes a segment with `bytes` bytes here, over the default group. Collective.
///
/// # Safety
/// `ptr_arr` is writable for a pointer to each process of the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Malloc(ptr_arr: *mut *mut c_void, bytes: c_long) -> c_int {
    // SAFETY: this function's own contract.
    call("ARMCI_Malloc", |job| unsafe { allocate(job, &job.groups.default(), ptr_arr, bytes) })
}

/// `ARMCI_Malloc`; the kind of memory is up to longarm.
///
/// # Safety
/// As `ARMCI_Malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_memdev(
    ptr_arr: *mut *mut c_void,
    bytes: c_long,
    _device: *const c_char,
) -> c_int {
    // SAFETY: this function's own contract.
    call("ARMCI_Malloc_memdev", |job| unsafe { allocate(job, &job.groups.default(), ptr_arr, bytes) })
}

/// `ARMCI_Malloc` over a group.
///
/// # Safety
/// As `ARMCI_Malloc`; `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group(ptr_arr: *mut *mut c_void, bytes: c_long, group: *mut c_int) -> c_int {
    call("ARMCI_Malloc_group", |job| {
        // SAFETY: this function's own contract.
        let group = job.groups.get(unsafe { groups::number(group) }?)?;
        // SAFETY: this function's own contract.
        unsafe { allocate(job, &group, ptr_arr, bytes) }
    })
}

/// `ARMCI_Malloc_group`; the kind of memory is up to longarm.
///
/// # Safety
/// As `ARMCI_Malloc_group`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group_memdev(
    ptr_arr: *mut *mut c_void,
    bytes: c_long,
    group: *mut c_int,
    _device: *const c_char,
) -> c_int {
    call("ARMCI_Malloc_group_memdev", |job| {
        // SAFETY: this function's own contract.
        let group = job.groups.get(unsafe { groups::number(group) }?)?;
        // SAFETY: this function's own contract.
        unsafe { allocate(job, &group, ptr_arr, bytes) }
    })
}

/// Frees a segment of the default group. Collective; a process without a part passes null.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Free(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free", |job| free(job, &job.groups.default(), ptr))
}

/// `ARMCI_Free`.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Free_memdev(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free_memdev", |job| free(job, &job.groups.default(), ptr))
}

/// Frees a segment of a group.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_group(ptr: *mut c_void, group: *mut c_int) -> c_int {
    call("ARMCI_Free_group", |job| {
        // SAFETY: this function's own contract.
        let group = job.groups.get(unsafe { groups::number(group) }?)?;
        free(job, &group, ptr)
    })
}

/// Memory of this process alone, for buffers of transfers; null if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Malloc_local(bytes: c_long) -> *mut c_void {
    let Ok(bytes) = usize::try_from(bytes) else { return std::ptr::null_mut() };
    /// A line of the cache.
    const ALIGNMENT: usize = 64;
    let Some(whole) = bytes.max(1).checked_next_multiple_of(ALIGNMENT) else { return std::ptr::null_mut() };
    // SAFETY: the alignment is a power of two and the size a multiple of it.
    unsafe { libc::aligned_alloc(ALIGNMENT, whole) }
}

/// Frees memory of `ARMCI_Malloc_local`.
///
/// # Safety
/// `ptr` is null or comes from `ARMCI_Malloc_local` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_Free_local(ptr: *mut c_void) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { libc::free(ptr) };
    0
}
