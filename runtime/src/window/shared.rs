//! What all methods of windows stand on.

use std::marker::PhantomData;
use std::sync::Arc;

use longarm_client::{Client, ClientWindow, Shapes, TransferError};
use longarm_proto::{Rank, Run};

use super::ahead::MemoryOfNodes;
use crate::element::{Element, length_of};
use crate::error::Operation;
use crate::group::Group;
use crate::inner::Inner;
use crate::selection::{Selected, Selection, Transfer};

/// Memory for elements of type `T`, a part of it at every rank of a group, which all of them may read, write and
/// update at any time without the owner's help.
///
/// An index counts elements from the start of the target rank's part. Ranks are world ranks, whatever the group.
/// No reference into a window exists: elements are copied in and out. Cheap to clone; every clone is the same window.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<f64>(1000)?; // 1000 elements at every rank
/// let right = (world.rank() + 1) % world.size();
/// window.put(right, 0, &[3.25, 4.5])?; // the source may be reused at once
/// world.barrier_collective()?; // every put of every rank is visible
/// assert_eq!(window.get_vec(world.rank(), 0..2)?, [3.25, 4.5]);
/// assert_eq!((window.group().size(), window.is_freed()), (world.size(), false));
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub struct Window<T> {
    pub(crate) shared: Arc<WindowInner>,
    element: PhantomData<fn() -> T>,
}

pub(crate) struct WindowInner {
    pub(crate) window: Arc<ClientWindow>,
    /// That of `inner`, one load nearer: every operation goes through it.
    pub(crate) client: Arc<Client>,
    pub(crate) inner: Arc<Inner>,
    pub(crate) group: Group,
    /// What memory it is in, if windows of the world have that one after the other.
    pub(crate) memory_of_nodes: Option<MemoryOfNodes>,
}

impl WindowInner {
    pub(crate) fn new(window: Arc<ClientWindow>, group: Group, memory_of_nodes: Option<MemoryOfNodes>) -> WindowInner {
        let inner = Arc::clone(&group.inner);
        WindowInner { window, client: Arc::clone(&inner.client), inner, group, memory_of_nodes }
    }
}

impl<T> Clone for Window<T> {
    fn clone(&self) -> Self {
        Window { shared: Arc::clone(&self.shared), element: PhantomData }
    }
}

impl<T: Element> Window<T> {
    pub(crate) fn from_shared(shared: Arc<WindowInner>) -> Window<T> {
        const { assert!(size_of::<T>() > 0, "a window is made of elements that have a size") };
        Window { shared, element: PhantomData }
    }

    /// How many elements the part of a rank has; `None` if it has no part.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u16>(world.rank() as usize)?;
    /// assert_eq!((window.len_at(0), window.len_at(world.size())), (Some(0), None));
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn len_at(&self, rank: u32) -> Option<usize> {
        length_of::<T>(self.shared.window.bytes_of(Rank(rank)))
    }

    /// The group over which the window was allocated.
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// The same memory as elements of another type; a rest that is smaller than one element is out of reach.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let points = world.allocate_collective::<[f32; 3]>(10)?;
    /// points.put_one(world.rank(), 7, [1.0, 2.0, 3.0])?;
    /// assert_eq!(points.cast::<f32>().get_one(world.rank(), 22)?, 2.0);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn cast<U: Element>(&self) -> Window<U> {
        Window::from_shared(Arc::clone(&self.shared))
    }

    /// Whether [`Window::free_collective`] was called.
    pub fn is_freed(&self) -> bool {
        self.shared.window.is_freed()
    }

    /// Bytes from the start of a part to an element. Too large a number is outside every window, as it should be.
    #[inline]
    pub(crate) fn offset(index: usize) -> u64 {
        (index as u64).saturating_mul(size_of::<T>() as u64)
    }

    /// Both sides of a transfer, for a buffer of so many elements. An index, which most calls have, takes the short way.
    #[inline]
    pub(crate) fn shapes(
        selection: impl Selection,
        operation: Operation,
        rank: u32,
        count: usize,
    ) -> Result<Shapes, TransferError> {
        let buffer_bytes = count * size_of::<T>();
        match selection.index(count) {
            Some(index) => Ok(Shapes::contiguous(Run { offset: Self::offset(index), bytes: buffer_bytes as u64 })),
            None => Ok(Self::select(selection, operation, rank, count)?.shapes(buffer_bytes)),
        }
    }

    /// What a selection means, for a buffer of so many elements.
    #[inline]
    pub(crate) fn select(
        selection: impl Selection,
        operation: Operation,
        rank: u32,
        count: usize,
    ) -> Result<Selected, TransferError> {
        selection.select(Transfer { operation, rank, element_bytes: size_of::<T>(), count })
    }
}

impl<T> std::fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let identity = self.shared.window.identity();
        write!(f, "Window({}, generation {})", identity.window, identity.generation)
    }
}
