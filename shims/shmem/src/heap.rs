//! The symmetric heap: blocks that have the same address, relative to the heap's start, at every PE.

use std::collections::BTreeMap;
use std::ffi::{c_long, c_void};
use std::sync::{Arc, OnceLock};

use longarm::error::{CollectiveError, HeapError};
use longarm::ffi::RegionMut;
use longarm::ffi::sync::{AtomicUsize, Ordering};
use longarm::{HEAP_ALIGNMENT, Heap, HeapBlock, Window, World};
use parking_lot::Mutex;

use crate::boundary::{end, or_end};
use crate::job::{self, Job};
use crate::pages::PAGE;

/// What a heap has where the environment says nothing. Only what is touched is used.
const DEFAULT_BYTES: u64 = 1 << 32;
/// A heap has a multiple of this, a large page, so that those of neighbours, which lie one behind the other, start at one too.
const GRAIN_BYTES: u64 = 2 << 20;
/// The variables that say it, the first that is set.
const VARIABLES: [&str; 4] =
    ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_HEAP_SIZE", "SHMALLOC_MAX_SIZE"];

/// See the module.
pub(crate) struct SymmetricHeap {
    heap: Arc<Heap>,
    pub(crate) window: Window<u8>,
    /// Where this PE's part is.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// By offset.
    blocks: Mutex<BTreeMap<usize, HeapBlock>>,
    /// One past the last byte of the last block: what lies behind it belongs to nobody. 0 where every address is compared
    /// with the blocks.
    pub(crate) live: AtomicUsize,
    /// What the heaps of all PEs start at multiples of; asked for when a call first needs it.
    alignment: OnceLock<usize>,
}

/// The size that the environment asks for.
pub(crate) fn bytes_asked_for(name: &'static str) -> u64 {
    let set = VARIABLES.iter().find_map(|variable| Some((variable, std::env::var(variable).ok()?)));
    let Some((variable, value)) = set else {
        let own = std::env::var("LONGARM_HEAP_BYTES").ok().and_then(|value| crate::size::parse(&value));
        return in_grains(own.unwrap_or(DEFAULT_BYTES));
    };
    match crate::size::parse(&value).filter(|bytes| *bytes > 0) {
        Some(bytes) => in_grains(bytes),
        None => end(
            name,
            format_args!(
                "{variable} is set to {value:?}, which is no size; it takes a number with k, m, g or t behind it, such as 3.1M"
            ),
        ),
    }
}

/// What is so large that it can only be refused stays as it is.
fn in_grains(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRAIN_BYTES).unwrap_or(bytes)
}

impl SymmetricHeap {
    /// Collective.
    pub(crate) fn new(name: &'static str, world: &World) -> SymmetricHeap {
        let bytes = bytes_asked_for(name);
        let heap = match world.heap_of_collective(bytes) {
            Ok(heap) => heap,
            Err(error) => end(
                name,
                format_args!("no symmetric heap of {bytes} bytes: {error}; SHMEM_SYMMETRIC_SIZE asks for another size"),
            ),
        };
        let window = heap.window::<u8>();
        let start = match window.pointer_at(world.rank()) {
            Ok(Some(start)) => start.expose_provenance(),
            Ok(None) => end(name, "the symmetric heap is not mapped"),
            Err(error) => end(name, error),
        };
        window.leave_out_of_dumps();
        let (blocks, live) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
        // Somebody else in this process may have asked for the heap before.
        let bytes = heap.bytes();
        SymmetricHeap { heap, window, start, bytes, blocks, live, alignment: OnceLock::new() }
    }

    /// What the heaps of all PEs start at multiples of. The first call is collective.
    fn alignment(&self, name: &'static str, world: &World) -> usize {
        *self.alignment.get_or_init(|| {
            let zeros = or_end(name, world.allgather_collective(&[self.start.trailing_zeros()]));
            1 << zeros.into_iter().min().unwrap_or(0)
        })
    }

    /// The offset of bytes that are inside of the heap, and of one block if that is asked for.
    pub(crate) fn offset_of(&self, address: usize, bytes: usize, in_one_block: bool) -> Option<usize> {
        let offset = address.wrapping_sub(self.start);
        if offset >= self.bytes || bytes > self.bytes - offset {
            return None;
        }
        let blocks = self.blocks.lock();
        let inside = match in_one_block {
            true => blocks
                .range(..=offset)
                .next_back()
                .is_some_and(|(start, block)| offset - start + bytes <= block.bytes()),
            false => {
                blocks.iter().next_back().is_some_and(|(start, block)| offset + bytes <= start + whole_bytes(block))
            }
        };
        inside.then_some(offset)
    }

    fn keep(&self, job: &Job, block: HeapBlock) -> *mut c_void {
        let offset = block.offset();
        let mut blocks = self.blocks.lock();
        blocks.insert(offset, block);
        self.note_live(job, &blocks);
        std::ptr::with_exposed_provenance_mut(self.start + offset)
    }

    fn note_live(&self, job: &Job, blocks: &BTreeMap<usize, HeapBlock>) {
        let end = blocks.iter().next_back().map_or(0, |(start, block)| start + whole_bytes(block));
        self.live.store(if job.checks_blocks { 0 } else { end }, Ordering::Relaxed);
    }

    /// Collective. All blocks go back: the world goes on without OpenSHMEM.
    pub(crate) fn free_all(&self, name: &'static str) {
        let blocks = std::mem::take(&mut *self.blocks.lock());
        for block in blocks.into_values() {
            or_end(name, self.heap.free_collective(block));
        }
    }

    fn take(&self, name: &'static str, job: &Job, address: usize) -> HeapBlock {
        let mut blocks = self.blocks.lock();
        let found = blocks.remove(&address.wrapping_sub(self.start));
        self.note_live(job, &blocks);
        match found {
            Some(block) => block,
            None => self.no_block(name, address),
        }
    }

    /// All PEs that make this mistake say the same: by the offset, not by their addresses.
    #[cold]
    fn no_block(&self, name: &'static str, address: usize) -> ! {
        let offset = address.wrapping_sub(self.start);
        match offset < self.bytes {
            true => end(
                name,
                format_args!("offset {offset} of the symmetric heap is not the start of a block; was it freed before?"),
            ),
            false => end(
                name,
                format_args!("address {address:#x} is not the start of a block: it is outside of the symmetric heap"),
            ),
        }
    }
}

#[cold]
fn not_together(name: &'static str, error: &HeapError) -> ! {
    match error {
        HeapError::Collective(CollectiveError::Mismatch { .. }) => {
            end(name, format_args!("{error}; all PEs have to call the same in the same order, with the same sizes"))
        }
        error => end(name, error),
    }
}

/// The lines of a block, the last one to its end: nothing else is in it.
fn whole_bytes(block: &HeapBlock) -> usize {
    block.bytes().next_multiple_of(HEAP_ALIGNMENT)
}

/// A block, or null with a line that says why there is none.
fn given(name: &'static str, job: &Job, outcome: Result<HeapBlock, HeapError>) -> *mut c_void {
    match outcome {
        Ok(block) => job.heap.keep(job, block),
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

/// A block for all. The specification leaves open what becomes of different sizes, and its first versions allowed them: each
/// PE gets as much as the largest asked for, with a line that says so.
fn allocate(name: &'static str, job: &Job, alignment: usize, bytes: usize) -> Result<HeapBlock, HeapError> {
    let heap = &job.heap.heap;
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
    let start = given(name, job, allocate(name, job, HEAP_ALIGNMENT, bytes as usize));
    crate::order::barrier_all(name);
    start
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
    let start = given(name, job, allocate(name, job, alignment, bytes as usize));
    crate::order::barrier_all(name);
    start
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
    crate::order::barrier_all(name);
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
    crate::order::quiet(name, crate::context::DEFAULT);
    let block = job.heap.take(name, job, old.addr());
    let mut outcome = job.heap.heap.reallocate_collective(block, bytes as usize);
    if outcome.as_ref().is_err_and(|(error, _)| is_other_size(error)) {
        let bytes = largest(name, job, bytes as usize);
        outcome = outcome.or_else(|(_, block)| job.heap.heap.reallocate_collective(block, bytes));
    }
    let start = match outcome {
        Ok(fresh) => job.heap.keep(job, fresh),
        Err((error, block)) => {
            job.heap.keep(job, block);
            given(name, job, Err(error))
        }
    };
    crate::order::barrier_all(name);
    start
}

pub(crate) fn free(name: &'static str, start: *mut c_void) {
    let job = job::get(name);
    if start.is_null() {
        return;
    }
    crate::order::quiet(name, crate::context::DEFAULT);
    let block = job.heap.take(name, job, start.addr());
    if let Err(error) = job.heap.heap.free_collective(block) {
        not_together(name, &error);
    }
}
