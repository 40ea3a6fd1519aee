//! The symmetric heap: blocks that have the same address, relative to the heap's start, at every PE.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use longarm::ffi::sync::{AtomicUsize, Ordering};
use longarm::{HEAP_ALIGNMENT, Heap, HeapBlock, Window, World};
use parking_lot::Mutex;

use crate::boundary::{end, or_end};
use crate::size;

/// What a heap has where the environment says nothing. Only what is touched is used.
const DEFAULT_BYTES: u64 = 1 << 32;
/// A heap has a multiple of this, a large page, so that those of neighbours, which lie one behind the other, start at one too.
const GRAIN_BYTES: u64 = 2 << 20;
/// The variables that say it, the first that is set.
const VARIABLES: [&str; 4] =
    ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_HEAP_SIZE", "SHMALLOC_MAX_SIZE"];

/// See the module.
pub(crate) struct SymmetricHeap {
    pub(crate) heap: Arc<Heap>,
    pub(crate) window: Window<u8>,
    /// Where this PE's part is.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// By offset.
    blocks: Mutex<BTreeMap<usize, HeapBlock>>,
    /// One past the last byte of the last block: what lies behind it belongs to nobody. 0 where every address is compared
    /// with the blocks.
    pub(crate) live: AtomicUsize,
    /// Every address is compared with the blocks.
    checks_blocks: bool,
    /// What the heaps of all PEs start at multiples of; asked for when a call first needs it.
    alignment: OnceLock<usize>,
}

/// The size that the environment asks for.
fn bytes_asked_for(name: &'static str) -> u64 {
    let set = VARIABLES.iter().find_map(|variable| Some((variable, std::env::var(variable).ok()?)));
    let Some((variable, value)) = set else {
        let own = std::env::var("LONGARM_HEAP_BYTES").ok().and_then(|value| size::parse(&value));
        return in_grains(own.unwrap_or(DEFAULT_BYTES));
    };
    match size::parse(&value).filter(|bytes| *bytes > 0) {
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
    /// Collective. `checks_blocks`: every address is compared with the blocks that are in use.
    pub(crate) fn new(name: &'static str, world: &World, checks_blocks: bool) -> SymmetricHeap {
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
        SymmetricHeap { heap, window, start, bytes, blocks, live, checks_blocks, alignment: OnceLock::new() }
    }

    /// What the heaps of all PEs start at multiples of. The first call is collective.
    pub(crate) fn alignment(&self, name: &'static str, world: &World) -> usize {
        *self.alignment.get_or_init(|| {
            let zeros = or_end(name, world.allgather_collective(&[self.start.trailing_zeros()]));
            1 << zeros.into_iter().min().unwrap_or(0)
        })
    }

    /// The offset of bytes that are inside of the heap, and of one block where blocks are checked.
    pub(crate) fn offset_of(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.start);
        if offset >= self.bytes || bytes > self.bytes - offset {
            return None;
        }
        let blocks = self.blocks.lock();
        let inside = match self.checks_blocks {
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

    pub(crate) fn keep(&self, block: HeapBlock) -> *mut c_void {
        let offset = block.offset();
        let mut blocks = self.blocks.lock();
        blocks.insert(offset, block);
        self.note_live(&blocks);
        std::ptr::with_exposed_provenance_mut(self.start + offset)
    }

    fn note_live(&self, blocks: &BTreeMap<usize, HeapBlock>) {
        let end = blocks.iter().next_back().map_or(0, |(start, block)| start + whole_bytes(block));
        self.live.store(if self.checks_blocks { 0 } else { end }, Ordering::Relaxed);
    }

    /// Collective. All blocks go back: the world goes on without OpenSHMEM.
    pub(crate) fn free_all(&self, name: &'static str) {
        let blocks = std::mem::take(&mut *self.blocks.lock());
        for block in blocks.into_values() {
            or_end(name, self.heap.free_collective(block));
        }
    }

    pub(crate) fn take(&self, name: &'static str, address: usize) -> HeapBlock {
        let mut blocks = self.blocks.lock();
        let found = blocks.remove(&address.wrapping_sub(self.start));
        self.note_live(&blocks);
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

/// The lines of a block, the last one to its end: nothing else is in it.
fn whole_bytes(block: &HeapBlock) -> usize {
    block.bytes().next_multiple_of(HEAP_ALIGNMENT)
}
