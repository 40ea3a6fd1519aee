//! The calls that give out blocks of the symmetric heap, and take them back.

use std::ffi::{c_long, c_void};

use longarm::error::{CollectiveError, HeapError};
use longarm::ffi::RegionMut;
use longarm::{HEAP_ALIGNMENT, HeapBlock};

use crate::boundary::{end, or_end};
use crate::contexts::DEFAULT;
use crate::job::{self, Job};
use crate::order;
use crate::pages::PAGE;

#[cold]
fn not_together(name: &'static str, error: &HeapError) -> ! {
    match error {
        HeapError::Collective(CollectiveError::Mismatch { .. }) => {
            end(name, format_args!("{error}; all PEs have to call the same in the same order, with the same sizes"))
        }
        error => end(name, error),
    }
}

/// A block, or null with a line that says why there is none.
fn given(name: &'static str, job: &Job, outcome: Result<HeapBlock, HeapError>) -> *mut c_void {
    match outcome {
        Ok(block) => job.heap.keep(block),
        Err(HeapError::Exhausted { bytes, heap_bytes }) => {
            // All PEs are refused alike, so one says so.
            if job.process.me == 0 {
                let free = job.heap.heap.free_bytes();
                eprintln!(
                    "longarm: {name}: the symmetric heap of each PE has no room for {bytes} bytes: {free} of {heap_bytes} are free; SHMEM_SYMMETRIC_SIZE makes it larger"
                );
            }
            std::ptr::null_mut()
        }
        Err(error) => not_together(name, &error),
    }
}

/// A block for all, who meet as in a barrier: whoever has it may write to the parts of others at once. The specification leaves open what becomes of different sizes, and its first versions allowed them: each
/// PE gets as much as the largest asked for, with a line that says so.
fn allocate(name: &'static str, job: &Job, alignment: usize, bytes: usize) -> Result<HeapBlock, HeapError> {
    let heap = &job.heap.heap;
    order::complete(name, job);
    match heap.allocate_aligned_collective(alignment, bytes) {
        Err(error) if is_other_size(&error) => heap.allocate_aligned_collective(alignment, largest(name, job, bytes)),
        outcome => outcome,
    }
}

/// Whether all have made the same call, but not with the same number.
fn is_other_size(error: &HeapError) -> bool {
    matches!(error, HeapError::Collective(CollectiveError::Mismatch { mine, theirs, .. })
        if mine.differs_in_count_only(theirs))
}

/// What the PE that asks for most asks for.
fn largest(name: &'static str, job: &Job, bytes: usize) -> usize {
    let asked = or_end(name, job.process.world.allgather_collective(&[bytes as u64]));
    let (least, most) = asked.iter().fold((u64::MAX, 0), |(least, most), bytes| (least.min(*bytes), most.max(*bytes)));
    if job.process.me == 0 && least != most {
        eprintln!(
            "longarm: rank 0: {name}: the PEs ask for different sizes, {least} to {most} bytes; each of them gets {most}"
        );
    }
    most as usize
}

pub(crate) fn malloc(name: &'static str, bytes: u64) -> *mut c_void {
    let job = job::get(name);
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    given(name, job, allocate(name, job, HEAP_ALIGNMENT, bytes as usize))
}

pub(crate) fn malloc_with_hints(name: &'static str, bytes: u64, _hints: c_long) -> *mut c_void {
    malloc(name, bytes)
}

pub(crate) fn align(name: &'static str, alignment: u64, bytes: u64) -> *mut c_void {
    let job = job::get(name);
    let alignment = alignment as usize;
    if bytes == 0 || !alignment.is_power_of_two() {
        return std::ptr::null_mut();
    }
    // Blocks have the same offset at all PEs, so they are as aligned as the heap that is aligned least.
    if alignment > PAGE && alignment > job.heap.alignment(name, &job.process.world) {
        refuse_alignment(name, job, alignment);
        return std::ptr::null_mut();
    }
    given(name, job, allocate(name, job, alignment, bytes as usize))
}

/// All PEs refuse alike, so one says so.
#[cold]
fn refuse_alignment(name: &'static str, job: &Job, alignment: usize) {
    if job.process.me == 0 {
        eprintln!(
            "longarm: {name}: no block at a multiple of {alignment} bytes, for there are PEs whose symmetric heap starts at a multiple of {} bytes only; it is at most 1 GiB, and less where SHMEM_SYMMETRIC_SIZE is no power of two",
            job.heap.alignment(name, &job.process.world)
        );
    }
}

pub(crate) fn calloc(name: &'static str, count: u64, size: u64) -> *mut c_void {
    let job = job::get(name);
    let Some(bytes) = (count as usize).checked_mul(size as usize) else { return std::ptr::null_mut() };
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    let block = allocate(name, job, HEAP_ALIGNMENT, bytes);
    let bytes = block.as_ref().map_or(0, HeapBlock::bytes);
    let start = given(name, job, block);
    if !start.is_null() {
        clear(start.cast(), bytes);
    }
    // Nobody writes to it before it is clear everywhere.
    order::barrier_all(name);
    start
}

/// Sets bytes of a block of this PE to 0.
fn clear(start: *mut u8, bytes: usize) {
    const ZEROES: [u8; 4096] = [0; 4096];
    for at in (0..bytes).step_by(ZEROES.len()) {
        let piece = (bytes - at).min(ZEROES.len());
        // SAFETY: a piece of the block, which is mapped as long as the process.
        let target = unsafe { RegionMut::from_raw(start.wrapping_add(at), piece) };
        target.copy_from_slice(&ZEROES[..piece]);
    }
}

pub(crate) fn realloc(name: &'static str, old: *mut c_void, bytes: u64) -> *mut c_void {
    if old.is_null() {
        return malloc(name, bytes);
    }
    if bytes == 0 {
        free(name, old);
        return std::ptr::null_mut();
    }
    let job = job::get(name);
    order::quiet(name, DEFAULT);
    let block = job.heap.take(name, old.addr());
    let mut outcome = job.heap.heap.reallocate_collective(block, bytes as usize);
    if outcome.as_ref().is_err_and(|(error, _)| is_other_size(error)) {
        let bytes = largest(name, job, bytes as usize);
        outcome = outcome.or_else(|(_, block)| job.heap.heap.reallocate_collective(block, bytes));
    }
    let start = match outcome {
        Ok(fresh) => job.heap.keep(fresh),
        Err((error, block)) => {
            job.heap.keep(block);
            given(name, job, Err(error))
        }
    };
    order::barrier_all(name);
    start
}

pub(crate) fn free(name: &'static str, start: *mut c_void) {
    let job = job::get(name);
    if start.is_null() {
        return;
    }
    order::quiet(name, DEFAULT);
    let block = job.heap.take(name, start.addr());
    if let Err(error) = job.heap.heap.free_collective(block) {
        not_together(name, &error);
    }
}
