//! The symmetric heap: one window with a part of the same size at every rank, given out in blocks that have the same
//! offset everywhere.
//!
//! Every rank runs the same allocator on the same calls, so no message is needed to agree on offsets; the calls
//! themselves are compared, and a mismatch is an error on all ranks.

pub(crate) mod kept;

use std::any::Any;
use std::sync::{Arc, Weak};

use longarm_proto::Rank;
use parking_lot::Mutex;

use crate::collective::Signature;
use crate::element::Element;
use crate::error::{CollectiveError, HeapError, WindowError};
use crate::group::Group;
use crate::started::Started;
use crate::window::{Window, WindowInner};
use crate::world::World;
pub use kept::HEAP_ALIGNMENT;
use kept::{Blocks, KeptHeap, Memory};

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
        self.start_heap_of_collective(self.inner.config.heap_bytes)
    }

    /// Starts [`World::heap_of_collective`], as [`World::start_heap_collective`].
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let heap = world.start_heap_of_collective(1 << 20).wait()?;
    /// assert_eq!(heap.bytes(), 1 << 20);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`World::heap_of_collective`] returns.
    pub fn start_heap_of_collective(&self, bytes: u64) -> Started<Arc<Heap>, WindowError> {
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
    let window = Arc::clone(&world.allocate_at(bytes, true)?.window);
    let memory = Memory { window, blocks: Mutex::new(Blocks::new(bytes as usize)), heap_bytes: bytes };
    let mut heap = KeptHeap { memory: Arc::new(memory), handed: Weak::<Heap>::new() };
    let handed = heap.hand_out(world);
    *world.inner.heap.lock() = Some(heap);
    Ok(handed)
}

impl KeptHeap {
    /// The heap for the program, which has one of it at a time.
    fn hand_out(&mut self, world: &Group) -> Arc<Heap> {
        if let Some(heap) = self.handed.upgrade().and_then(|heap| heap.downcast().ok()) {
            return heap;
        }
        let window = Arc::new(WindowInner::new(Arc::clone(&self.memory.window), world.clone(), None));
        let heap = Arc::new(Heap { window, memory: Arc::clone(&self.memory) });
        let handed: Arc<dyn Any + Send + Sync> = Arc::<Heap>::clone(&heap);
        self.handed = Arc::downgrade(&handed);
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
        self.meet(Signature::aligned("heap allocate", alignment, bytes as u64))?;
        if !alignment.is_power_of_two() {
            return Err(HeapError::BadAlignment { alignment });
        }
        let offset = self.memory.blocks.lock().take(alignment.max(HEAP_ALIGNMENT), bytes);
        let heap_bytes = self.memory.heap_bytes;
        let block = HeapBlock { offset: offset.ok_or(HeapError::Exhausted { bytes, heap_bytes })?, bytes };
        self.take_huge_pages(&block);
        Ok(block)
    }

    /// Gives a block back, after everything that was issued is complete everywhere. `shmem_free`.
    ///
    /// # Errors
    /// As [`Heap::allocate_collective`].
    pub fn free_collective(&self, block: HeapBlock) -> Result<(), HeapError> {
        let offset = block.offset;
        let quiet = self.world().inner.client.quiet();
        self.meet(Signature::plain("heap free").with_count(offset as u64))?;
        let known = self.memory.blocks.lock().give_back(offset);
        // Not before all have met: the others wait for this rank.
        quiet.map_err(CollectiveError::from)?;
        known.ok_or(HeapError::NoSuchBlock { offset })
    }

    /// A block of another size with the contents of the old one, as far as they fit: at the same place, if there is room
    /// behind it. `shmem_realloc`.
    ///
    /// # Errors
    /// As [`Heap::allocate_collective`], and [`HeapError::NotMoved`]; on all ranks if on one. The old block is then as it was, and
    /// given back with the error, and no other one is taken.
    pub fn reallocate_collective(&self, block: HeapBlock, bytes: usize) -> Result<HeapBlock, (HeapError, HeapBlock)> {
        match self.resize(&block, bytes) {
            Ok(true) => {
                let grows = bytes > block.bytes;
                let block = HeapBlock { offset: block.offset, bytes };
                if grows {
                    self.take_huge_pages(&block);
                }
                return Ok(block);
            }
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

    fn take_huge_pages(&self, block: &HeapBlock) {
        let bytes = block.offset as u64..(block.offset + block.bytes) as u64;
        self.world().inner.take_huge_pages(&self.memory.window, bytes);
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
        let quiet = self.world().inner.client.quiet();
        // A signature has room for one such number.
        self.meet(Signature::plain("heap realloc").with_count(block.offset as u64))?;
        self.meet(Signature::plain("heap resize").with_count(bytes as u64))?;
        quiet.map_err(CollectiveError::from)?;
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

    fn meet(&self, signature: Signature) -> Result<(), HeapError> {
        Ok(self.world().run(signature, |_| Ok(()))?)
    }
}
