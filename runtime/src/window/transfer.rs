//! Put and get, blocking and with a handle.

use std::sync::Arc;

use longarm_client::{LenderMut, OriginBuffer, OriginBytes, OriginBytesMut, TransferError};
use longarm_proto::Rank;
use zerocopy::IntoBytes;

use super::shared::Window;
use crate::element::Element;
use crate::error::Operation;
use crate::handle::Handle;
use crate::selection::{Extent, Selected, Selection};

impl<T: Element> Window<T> {
    /// Writes elements to a rank's part, where the [`Selection`] says: from an index on, to a range, a patch, or pieces. On
    /// return the source may be reused; the elements are visible at the target after
    /// [`World::quiet_rank`](crate::World::quiet_rank). Where pieces overlap at the target, any of them wins. `ARMCI_Put`,
    /// `ARMCI_PutS`, `ARMCI_PutV`, `shmem_put`, `shmem_iput`.
    ///
    /// ```
    /// use longarm::Patch;
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<i64>(100)?;
    /// let right = (world.rank() + 1) % world.size();
    /// window.put(right, 10, &[1, 2])?;
    /// window.put(right, &Patch::new(20, &[2], &[50]), &[3, 4])?; // to 20 and 70
    /// world.barrier_collective()?;
    /// assert_eq!(window.get_vec(world.rank(), 10..12)?, [1, 2]);
    /// assert_eq!(window.get_one(world.rank(), 70)?, 4);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`TransferError`]: the target does not exist, the window is freed or too short, the target is lost;
    /// [`TransferError::LengthMismatch`] if the selection wants another number of elements than the buffer has, and
    /// [`TransferError::BadShape`] for a patch that makes no sense. A put to a node that was never reached before may return before that node
    /// answers: that it never does is said by what waits for the put, such as a quiet or a barrier, or by the next operation towards it.
    #[inline]
    pub fn put(&self, rank: u32, selection: impl Selection, source: &[T]) -> Result<(), TransferError> {
        let Some(index) = selection.index(source.len()) else { return self.put_selected(rank, selection, source) };
        let source = OriginBytes::from(source.as_bytes());
        self.shared.client.put(&self.shared.window, Rank(rank), Self::offset(index), source)
    }

    fn put_selected(&self, rank: u32, selection: impl Selection, source: &[T]) -> Result<(), TransferError> {
        let shapes = Self::select(selection, Operation::Put, rank, source.len())?.shapes(size_of_val(source));
        let source = OriginBytes::from(source.as_bytes());
        self.shared.client.put_shaped(&self.shared.window, Rank(rank), shapes, source)
    }

    /// Reads elements of a rank's part into a buffer, all of which is filled unless the [`Selection`] says where. They show
    /// all that this rank has put or accumulated there. `ARMCI_Get`, `ARMCI_GetS`, `ARMCI_GetV`, `shmem_get`, `shmem_iget`.
    ///
    /// ```
    /// use longarm::Segment;
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<i64>(100)?;
    /// window.put(0, 10, &[1, 2, 3])?;
    /// let mut found = [0; 2];
    /// window.get(0, 11, &mut found)?;
    /// assert_eq!(found, [2, 3]);
    /// window.get(0, &[Segment { target: 10, origin: 1, count: 1 }], &mut found)?;
    /// assert_eq!(found, [2, 1]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn get(&self, rank: u32, selection: impl Selection, target: &mut [T]) -> Result<(), TransferError> {
        let Some(index) = selection.index(target.len()) else { return self.get_selected(rank, selection, target) };
        let target = OriginBytesMut::from(target.as_mut_bytes());
        self.shared.client.get(&self.shared.window, Rank(rank), Self::offset(index), target)
    }

    fn get_selected(&self, rank: u32, selection: impl Selection, target: &mut [T]) -> Result<(), TransferError> {
        let shapes = Self::select(selection, Operation::Get, rank, target.len())?.shapes(size_of_val(target));
        let target = OriginBytesMut::from(target.as_mut_bytes());
        self.shared.client.get_shaped(&self.shared.window, Rank(rank), shapes, target)
    }

    /// [`Window::get`] of a range or a patch into a new vector.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u8>(10)?;
    /// assert_eq!(window.get_vec(0, 8..10)?, [0, 0]);
    /// assert!(window.get_vec(0, 0..usize::MAX).is_err()); // no memory is taken for it
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn get_vec(&self, rank: u32, selection: impl Extent) -> Result<Vec<T>, TransferError> {
        let count = selection.count();
        let (client, window) = (&self.shared.client, &self.shared.window);
        match Self::select(selection, Operation::Get, rank, count)? {
            Selected::Run(offset) => {
                let end = offset.saturating_add(Self::offset(count));
                window.check(Operation::Get, Rank(rank), offset, end)?;
                let mut elements = vec![T::new_zeroed(); count];
                client.get(window, Rank(rank), offset, OriginBytesMut::from(elements.as_mut_slice().as_mut_bytes()))?;
                Ok(elements)
            }
            Selected::Shapes(shapes) => {
                let mut elements = vec![T::new_zeroed(); count];
                let target = OriginBytesMut::from(elements.as_mut_slice().as_mut_bytes());
                client.get_shaped(window, Rank(rank), shapes, target)?;
                Ok(elements)
            }
        }
    }

    /// [`Window::put`] of one element. `shmem_p`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u8>(3)?;
    /// window.put_one(world.rank(), 2, 9)?;
    /// assert_eq!(window.get_one(world.rank(), 2)?, 9);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn put_one(&self, rank: u32, index: usize, element: T) -> Result<(), TransferError> {
        self.put(rank, index, &[element])
    }

    /// [`Window::get`] of one element. `shmem_g`.
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn get_one(&self, rank: u32, index: usize) -> Result<T, TransferError> {
        let mut element = [T::new_zeroed()];
        self.get(rank, index, &mut element)?;
        Ok(element[0])
    }

    /// Starts [`Window::put`] and gives the buffer back when it may be reused. `ARMCI_NbPut`, `ARMCI_NbPutS`,
    /// `ARMCI_NbPutV`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u64>(8)?;
    /// let put = window.start_put(0, 2..4, vec![1, 2])?;
    /// // ... compute ...
    /// let buffer = put.wait()?;
    /// world.quiet()?; // visible
    /// assert_eq!(window.get_vec(0, 2..4)?, buffer);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// What can be known now, as [`Window::put`]; the buffer is dropped. The rest comes from the handle.
    #[inline]
    pub fn start_put(
        &self,
        rank: u32,
        selection: impl Selection,
        source: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        if self.is_here(rank) {
            self.put(rank, selection, &source)?;
            return Ok(Handle::done(source));
        }
        self.start_put_elsewhere(rank, selection, source)
    }

    /// Not inlined: what is done at once is to be as short as it can be where it is called.
    #[inline(never)]
    fn start_put_elsewhere(
        &self,
        rank: u32,
        selection: impl Selection,
        source: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        if let Some(index) = selection.index(source.len())
            && self.put_together(rank, index, &source)
        {
            return Ok(Handle::done(source));
        }
        let shapes = Self::shapes(selection, Operation::Put, rank, source.len())?;
        self.start(Operation::Put, rank, source, |lender| {
            self.shared.client.start_put(&self.shared.window, Rank(rank), shapes, lender)
        })
    }

    /// Starts [`Window::get`] into a buffer, all of which is filled unless the selection says where. `ARMCI_NbGet`,
    /// `ARMCI_NbGetS`, `ARMCI_NbGetV`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u64>(8)?;
    /// window.put(0, 3, &[7])?;
    /// let get = window.start_get(0, 2, vec![0; 3])?;
    /// // ... compute ...
    /// assert_eq!(get.wait()?, [0, 7, 0]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::start_put`].
    pub fn start_get(
        &self,
        rank: u32,
        selection: impl Selection,
        mut target: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        if self.is_here(rank) {
            self.get(rank, selection, &mut target)?;
            return Ok(Handle::done(target));
        }
        let shapes = Self::shapes(selection, Operation::Get, rank, target.len())?;
        self.start(Operation::Get, rank, target, |lender| {
            self.shared.client.start_get(&self.shared.window, Rank(rank), shapes, lender)
        })
    }

    /// Whether what is started at a rank is done on return.
    #[inline]
    pub(super) fn is_here(&self, rank: u32) -> bool {
        self.shared.window.is_here(Rank(rank))
    }

    /// See [`Client::put_together`](longarm_client::Client::put_together): a small put to another node, copied on return.
    #[inline]
    pub(crate) fn put_together(&self, rank: u32, index: usize, source: &[T]) -> bool {
        let (window, offset) = (&self.shared.window, Self::offset(index));
        self.shared.client.put_together(window, Rank(rank), offset, OriginBytes::from(source.as_bytes()))
    }

    /// Starts an operation on an owned buffer.
    pub(super) fn start<E>(
        &self,
        operation: Operation,
        rank: u32,
        elements: Vec<T>,
        issue: impl FnOnce(&LenderMut<'_>) -> Result<(), E>,
    ) -> Result<Handle<Vec<T>>, E> {
        let buffer = OriginBuffer::new(elements);
        let issued = issue(&buffer.lender());
        let buffer = buffer.issued();
        issued?;
        let client = &self.shared.client;
        let completion = Arc::clone(buffer.completion());
        Ok(Handle::new(client, completion, (operation, Rank(rank)), move |_| {
            buffer.take().expect("the operation is complete")
        }))
    }
}
