//! The symmetric heap: one window with a part of the same size at every rank, given out in blocks that have the same
//! offset everywhere.
//!
//! Every rank runs the same allocator on the same calls, so no message is needed to agree on offsets; the calls
//! themselves are compared, and a mismatch is an error on all ranks.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use longarm_client::ClientWindow;
use longarm_proto::Rank;
use parking_lot::Mutex;

use crate::collective::Signature;
use crate::element::Element;
use crate::error::{CollectiveError, WindowError};
use crate::group::Group;
use crate::started::Started;
use crate::window::{Window, WindowInner};
use crate::world::World;

/// Every block starts at a multiple of this many bytes, a line of the cache.
///
/// ```
/// let world = longarm::init()?;
/// let heap = world.heap_collective()?;
/// let block = heap.allocate_collective(1)?;
/// assert!(block.offset().is_multiple_of(longarm::HEAP_ALIGNMENT));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub const HEAP_ALIGNMENT: usize = 64;

/// The heap of the world. See [`World::heap_collective`].
///
/// ```
/// let world = longarm::init()?;
/// let heap = world.heap_collective()?;
/// let block = heap.allocate_collective(4096)?; // at the same offset of every rank
/// let (words, start) = (heap.window::<u64>(), heap.index_of::<u64>(&block));
/// words.put_one(0, start, 7)?;
/// let block = heap.reallocate_collective(block, 1 << 16).map_err(|(error, _kept)| error)?;
/// assert_eq!(words.get_one(0, heap.index_of::<u64>(&block))?, 7); // it has moved along
/// let page = heap.allocate_aligned_collective(4096, 100)?;
/// assert_eq!((page.offset() % 4096, page.bytes()), (0, 100));
/// heap.free_collective(block)?;
/// heap.free_collective(page)?;
/// assert_eq!(heap.free_bytes(), heap.bytes());
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub struct Heap {
    window: Arc<WindowInner>,
    memory: Arc<Memory>,
}

/// What all [`Heap`]s of a world share. The world keeps it, so it holds nothing that holds the world.
struct Memory {
    window: Arc<ClientWindow>,
    blocks: Mutex<Blocks>,
    heap_bytes: u64,
}

/// The heap as its world keeps it.
pub(crate) struct KeptHeap {
    memory: Arc<Memory>,
    /// What was handed out, as long as somebody has it.
    handed: Weak<Heap>,
}

/// Memory of the heap: the same offset and length at every rank.
///
/// ```
/// let world = longarm::init()?;
/// let heap = world.heap_collective()?;
/// let block: longarm::HeapBlock = heap.allocate_collective(100)?;
/// assert_eq!(block.bytes(), 100);
/// let bytes = heap.window::<u8>();
/// bytes.put(0, block.offset()..block.offset() + block.bytes(), &[1; 100])?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct HeapBlock {
    offset: usize,
    bytes: usize,
}

impl HeapBlock {
    /// Bytes from the start of the heap.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes that were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Why the heap gave no block.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// No room for it.
    #[error("the symmetric heap has no room for {bytes} bytes (LONGARM_HEAP_BYTES is {heap_bytes})")]
    Exhausted {
        /// What was asked for.
        bytes: usize,
        /// Size of the heap.
        heap_bytes: u64,
    },
    /// Not a power of two.
    #[error("an alignment of {alignment} bytes is not a power of two")]
    BadAlignment {
        /// What was asked for.
        alignment: usize,
    },
    /// The block is not one of this heap, or was freed before.
    #[error("there is no block at offset {offset} of the symmetric heap; was it freed before?")]
    NoSuchBlock {
        /// Where it was said to be.
        offset: usize,
    },
    /// Another rank could not move the contents of a block; its own error says why.
    #[error(
        "rank {rank} could not move the contents of the block, so no rank has; the error that it was given says why"
    )]
    NotMoved {
        /// That rank, the first of them.
        rank: Rank,
    },
    /// The ranks did not all make the same call, or one died.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The old contents could not be moved.
    #[error(transparent)]
    Transfer(#[from] crate::error::TransferError),
}

longarm_client::debug_as_display!(HeapError);

impl World {
    /// The symmetric heap of the world, `LONGARM_HEAP_BYTES` at each rank; memory is used where it is touched. Made
    /// at the first call, which is collective; later calls give the same one.
    ///
    /// # Errors
    /// As [`Group::allocate_collective`](crate::Group::allocate_collective).
    pub fn heap_collective(&self) -> Result<Arc<Heap>, WindowError> {
        self.heap_of_collective(self.inner.config.heap_bytes)
    }

    /// [`World::heap_collective`] with this many bytes at each rank, if this is the first call.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let heap = world.heap_of_collective(1 << 20)?;
    /// assert_eq!(heap.bytes(), 1 << 20);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`World::heap_collective`].
    pub fn heap_of_collective(&self, bytes: u64) -> Result<Arc<Heap>, WindowError> {
        heap_of(self.group(), bytes)
    }

    /// Starts [`World::heap_collective`], behind the collectives of the world that were started before.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// # futures_lite::future::block_on(async {
    /// let heap = world.start_heap_collective().await?;
    /// let block = heap.start_allocate_collective(4096).await?;
    /// let page = heap.start_allocate_aligned_collective(4096, 100).await?;
    /// let block = heap.start_reallocate_collective(block, 1 << 16).await.map_err(|(error, _kept)| error)?;
    /// heap.start_free_collective(block).await?;
    /// heap.start_free_collective(page).await?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`World::heap_collective`] returns.
    pub fn start_heap_collective(&self) -> Started<Arc<Heap>, WindowError> {
        let bytes = self.inner.config.heap_bytes;
        self.group().start(move |world| heap_of(world, bytes))
    }
}

/// The heap of the world, given the group of all ranks; of so many bytes if there is none yet.
fn heap_of(world: &Group, bytes: u64) -> Result<Arc<Heap>, WindowError> {
    // Another thread may be about to make it, on all ranks alike.
    world.finish_started();
    if let Some(heap) = &mut *world.inner.heap.lock() {
        return Ok(heap.hand_out(world));
    }
    let window = Arc::clone(&world.allocate(bytes)?.client);
    let memory = Memory { window, blocks: Mutex::new(Blocks::new(bytes as usize)), heap_bytes: bytes };
    let mut heap = KeptHeap { memory: Arc::new(memory), handed: Weak::new() };
    let handed = heap.hand_out(world);
    *world.inner.heap.lock() = Some(heap);
    Ok(handed)
}

impl KeptHeap {
    /// The heap for the program, which has one of it at a time.
    fn hand_out(&mut self, world: &Group) -> Arc<Heap> {
        if let Some(heap) = self.handed.upgrade() {
            return heap;
        }
        let (inner, client) = (Arc::clone(&world.inner), Arc::clone(&self.memory.window));
        let window = Arc::new(WindowInner { client, inner, group: world.clone() });
        let heap = Arc::new(Heap { window, memory: Arc::clone(&self.memory) });
        self.handed = Arc::downgrade(&heap);
        heap
    }
}

impl Heap {
    fn world(&self) -> &Group {
        &self.window.group
    }

    /// The whole heap as elements of a type; a block's first element is at its offset divided by the element's size.
    pub fn window<T: Element>(&self) -> Window<T> {
        Window::from_shared(Arc::clone(&self.window))
    }

    /// How many bytes each rank has.
    pub fn bytes(&self) -> usize {
        self.memory.heap_bytes as usize
    }

    /// The index of a block's first element in [`Heap::window`].
    ///
    /// # Panics
    /// If the block does not start at a multiple of the element's size: allocate it aligned to that, or address bytes.
    pub fn index_of<T: Element>(&self, block: &HeapBlock) -> usize {
        assert!(block.offset.is_multiple_of(size_of::<T>()), "the block is not aligned for this element");
        block.offset / size_of::<T>()
    }

    /// A block of this many bytes at every rank; its contents are unspecified. All ranks meet. `shmem_malloc`.
    ///
    /// # Errors
    /// The same on all ranks: [`HeapError`].
    pub fn allocate_collective(&self, bytes: usize) -> Result<HeapBlock, HeapError> {
        self.allocate_aligned_collective(HEAP_ALIGNMENT, bytes)
    }

    /// As [`Heap::allocate_collective`], with an offset that is a multiple of a power of two. `shmem_align`.
    ///
    /// # Errors
    /// As [`Heap::allocate_collective`].
    pub fn allocate_aligned_collective(&self, alignment: usize, bytes: usize) -> Result<HeapBlock, HeapError> {
        self.meet("heap align", alignment)?;
        self.meet("heap allocate", bytes)?;
        if !alignment.is_power_of_two() {
            return Err(HeapError::BadAlignment { alignment });
        }
        let offset = self.memory.blocks.lock().take(alignment.max(HEAP_ALIGNMENT), bytes);
        let heap_bytes = self.memory.heap_bytes;
        Ok(HeapBlock { offset: offset.ok_or(HeapError::Exhausted { bytes, heap_bytes })?, bytes })
    }

    /// Gives a block back, after everything that was issued is complete everywhere. `shmem_free`.
    ///
    /// # Errors
    /// As [`Heap::allocate_collective`].
    pub fn free_collective(&self, block: HeapBlock) -> Result<(), HeapError> {
        self.world().barrier_collective()?;
        self.meet("heap free", block.offset)?;
        let offset = block.offset;
        self.memory.blocks.lock().give_back(offset).ok_or(HeapError::NoSuchBlock { offset })
    }

    /// A block of another size with the contents of the old one, as far as they fit: at the same place, if there is room
    /// behind it. `shmem_realloc`.
    ///
    /// # Errors
    /// As [`Heap::allocate_collective`], and [`HeapError::NotMoved`]; on all ranks if on one. The old block is then as it was, and
    /// given back with the error, and no other one is taken.
    pub fn reallocate_collective(&self, block: HeapBlock, bytes: usize) -> Result<HeapBlock, (HeapError, HeapBlock)> {
        match self.resize(&block, bytes) {
            Ok(true) => return Ok(HeapBlock { offset: block.offset, bytes }),
            Ok(false) => {}
            Err(error) => return Err((error, block)),
        }
        let fresh = match self.allocate_collective(bytes) {
            Ok(fresh) => fresh,
            Err(error) => return Err((error, block)),
        };
        let moved = self.agree_on_move(self.move_contents(&block, &fresh));
        let given_back = if moved.is_ok() { block.offset } else { fresh.offset };
        let known = self.memory.blocks.lock().give_back(given_back);
        assert!(known.is_some(), "resize has found the old block, and the new one was taken just now");
        match moved {
            Ok(()) => Ok(fresh),
            Err(error) => Err((error, block)),
        }
    }

    /// Copies what fits of this rank's part of a block.
    fn move_contents(&self, from: &HeapBlock, to: &HeapBlock) -> Result<(), HeapError> {
        let (me, window) = (self.world().rank(), self.window::<u8>());
        let kept = window.get_vec(me, from.offset..from.offset + from.bytes.min(to.bytes))?;
        Ok(window.put(me, to.offset, &kept)?)
    }

    /// All ranks have moved a block, or none has: whoever could not tells the others.
    fn agree_on_move(&self, moved: Result<(), HeapError>) -> Result<(), HeapError> {
        let failed = self.world().gather_few(Signature::plain("heap move"), &[u8::from(moved.is_err())])?;
        moved?;
        match failed.iter().position(|failed| *failed != 0) {
            Some(rank) => Err(HeapError::NotMoved { rank: Rank(rank as u32) }),
            None => Ok(()),
        }
    }

    /// Whether the block could be made longer or shorter where it is.
    fn resize(&self, block: &HeapBlock, bytes: usize) -> Result<bool, HeapError> {
        // What was issued towards the end of the block is complete before that is given to others.
        self.world().barrier_collective()?;
        self.meet("heap realloc", block.offset)?;
        self.meet("heap resize", bytes)?;
        let (mut blocks, offset) = (self.memory.blocks.lock(), block.offset);
        if !blocks.taken.contains_key(&offset) {
            return Err(HeapError::NoSuchBlock { offset });
        }
        Ok(blocks.resize(offset, bytes))
    }

    /// Starts [`Heap::allocate_collective`], behind the collectives of the world that were started before, as all that is started here.
    ///
    /// # Errors
    /// The future yields what [`Heap::allocate_collective`] returns.
    pub fn start_allocate_collective(self: &Arc<Self>, bytes: usize) -> Started<HeapBlock, HeapError> {
        self.start(move |heap| heap.allocate_collective(bytes))
    }

    /// Starts [`Heap::allocate_aligned_collective`].
    ///
    /// # Errors
    /// The future yields what [`Heap::allocate_aligned_collective`] returns.
    pub fn start_allocate_aligned_collective(
        self: &Arc<Self>,
        alignment: usize,
        bytes: usize,
    ) -> Started<HeapBlock, HeapError> {
        self.start(move |heap| heap.allocate_aligned_collective(alignment, bytes))
    }

    /// Starts [`Heap::free_collective`].
    ///
    /// # Errors
    /// The future yields what [`Heap::free_collective`] returns.
    pub fn start_free_collective(self: &Arc<Self>, block: HeapBlock) -> Started<(), HeapError> {
        self.start(move |heap| heap.free_collective(block))
    }

    /// Starts [`Heap::reallocate_collective`].
    ///
    /// # Errors
    /// The future yields what [`Heap::reallocate_collective`] returns.
    pub fn start_reallocate_collective(
        self: &Arc<Self>,
        block: HeapBlock,
        bytes: usize,
    ) -> Started<HeapBlock, (HeapError, HeapBlock)> {
        self.start(move |heap| heap.reallocate_collective(block, bytes))
    }

    fn start<R: Send + 'static, E: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Heap) -> Result<R, E> + Send + 'static,
    ) -> Started<R, E> {
        let heap = Arc::clone(self);
        self.world().start(move |_| run(&heap))
    }

    /// Bytes that are not given out, in all gaps together.
    pub fn free_bytes(&self) -> usize {
        self.memory.blocks.lock().free_bytes()
    }

    fn meet(&self, operation: &'static str, number: usize) -> Result<(), HeapError> {
        let signature = Signature::plain(operation).with_count(number as u64);
        Ok(self.world().run(signature, |_| Ok(()))?)
    }
}

/// First fit over gaps in order of offset. Deterministic: the same calls give the same offsets on every rank.
#[derive(Debug)]
struct Blocks {
    /// Bytes of each gap by its offset; neighbours are merged.
    gaps: BTreeMap<usize, usize>,
    /// Bytes taken by each block, rounding included, by its offset.
    taken: BTreeMap<usize, usize>,
}

impl Blocks {
    fn new(bytes: usize) -> Blocks {
        Blocks { gaps: BTreeMap::from([(0, bytes)]), taken: BTreeMap::new() }
    }

    /// What a block takes. An empty one takes a line all the same, so that its offset is its own.
    fn need(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(HEAP_ALIGNMENT)
    }

    fn take(&mut self, alignment: usize, bytes: usize) -> Option<usize> {
        let need = Blocks::need(bytes)?;
        let (gap, gap_bytes, start) = self.gaps.iter().find_map(|(gap, gap_bytes)| {
            let start = gap.checked_next_multiple_of(alignment)?;
            let end = start.checked_add(need)?;
            (end <= gap + gap_bytes).then_some((*gap, *gap_bytes, start))
        })?;
        self.gaps.remove(&gap);
        if start > gap {
            self.gaps.insert(gap, start - gap);
        }
        let (end, gap_end) = (start + need, gap + gap_bytes);
        if end < gap_end {
            self.gaps.insert(end, gap_end - end);
        }
        self.taken.insert(start, need);
        Some(start)
    }

    fn give_back(&mut self, offset: usize) -> Option<()> {
        let bytes = self.taken.remove(&offset)?;
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((before, before_bytes)) = self.gaps.range(..offset).next_back()
            && before + before_bytes == offset
        {
            start = *before;
        }
        if let Some(behind_bytes) = self.gaps.remove(&end) {
            end += behind_bytes;
        }
        self.gaps.insert(start, end - start);
        Some(())
    }

    /// Makes a block longer or shorter where it is. False: that cannot be, and nothing has changed.
    fn resize(&mut self, offset: usize, bytes: usize) -> bool {
        let Some((taken, need)) = self.taken.get_mut(&offset).zip(Blocks::need(bytes)) else { return false };
        let end = offset + *taken;
        let gap_bytes = self.gaps.get(&end).copied().unwrap_or(0);
        // The block and the gap behind it, cut in another place.
        let Some(rest) = (*taken + gap_bytes).checked_sub(need) else { return false };
        *taken = need;
        self.gaps.remove(&end);
        if rest > 0 {
            self.gaps.insert(offset + need, rest);
        }
        true
    }

    fn free_bytes(&self) -> usize {
        self.gaps.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut blocks = Blocks::new(1 << 20);
        let offsets: Vec<usize> = [100, 4096, 1, 0, 70_000].map(|bytes| blocks.take(64, bytes).unwrap()).to_vec();
        assert!(offsets.is_sorted());
        for order in [3, 0, 4, 1, 2] {
            assert!(blocks.give_back(offsets[order]).is_some());
        }
        assert!(blocks.give_back(offsets[0]).is_none(), "a block is given back once");
        assert_eq!(blocks.free_bytes(), 1 << 20);
        assert_eq!(blocks.gaps.len(), 1);
    }

    #[test]
    fn a_block_grows_into_the_gap_behind_it_and_gives_back_what_it_does_not_need() {
        let mut blocks = Blocks::new(1 << 20);
        let (first, second) = (blocks.take(64, 100).unwrap(), blocks.take(64, 100).unwrap());
        assert!(!blocks.resize(first, 129), "the second block is behind it");
        assert!(blocks.resize(first, 128) && blocks.resize(first, 1));
        assert_eq!(blocks.free_bytes(), (1 << 20) - 64 - 128);
        assert!(blocks.resize(first, 128), "into what it gave back");
        assert!(blocks.resize(second, (1 << 20) - 128), "the rest of the heap");
        assert_eq!((blocks.free_bytes(), blocks.gaps.len()), (0, 0));
        assert!(!blocks.resize(second, 1 << 20) && !blocks.resize(second, usize::MAX) && !blocks.resize(64, 1));
        assert!(blocks.resize(second, 0));
        assert!(blocks.give_back(first).is_some() && blocks.give_back(second).is_some());
        assert_eq!((blocks.free_bytes(), blocks.gaps.len()), (1 << 20, 1));
    }

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let mut blocks = Blocks::new(1 << 20);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for (alignment, bytes) in [(64, 10), (4096, 10), (64, 3000), (65536, 1), (64, 64)] {
            let offset = blocks.take(alignment, bytes).unwrap();
            assert_eq!(offset % alignment, 0);
            for (other, other_bytes) in &taken {
                assert!(offset + bytes <= *other || other + other_bytes <= offset);
            }
            taken.push((offset, bytes));
        }
        assert_eq!(blocks.take(64, 1 << 20), None);
        assert_eq!(blocks.take(64, usize::MAX), None);
    }
}
