//! Put and get: contiguous, strided, vector; blocking and with a handle.

use std::sync::Arc;

use longarm_client::{LenderMut, OriginBuffer, OriginBytes, OriginBytesMut, Shapes, TransferError};
use longarm_proto::Rank;
use zerocopy::IntoBytes;

use super::Window;
use crate::element::Element;
use crate::error::Operation;
use crate::handle::Handle;
use crate::patch::{Patch, Segment};

impl<T: Element> Window<T> {
    /// Writes elements to a rank's part from `index` on. On return the source may be reused; the elements are visible
    /// at the target after [`World::quiet_rank`](crate::World::quiet_rank). `ARMCI_Put`, `shmem_put`.
    ///
    /// # Errors
    /// [`TransferError`]: the target does not exist, the window is freed or too short, the target is lost.
    #[inline]
    pub fn put(&self, rank: u32, index: usize, source: &[T]) -> Result<(), TransferError> {
        let source = OriginBytes::from(source.as_bytes());
        self.shared.inner.client.put(&self.shared.client, Rank(rank), Self::offset(index), source)
    }

    /// Reads elements of a rank's part from `index` on. They show all that this rank has put or accumulated there.
    /// `ARMCI_Get`, `shmem_get`.
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn get(&self, rank: u32, index: usize, target: &mut [T]) -> Result<(), TransferError> {
        let target = OriginBytesMut::from(target.as_mut_bytes());
        self.shared.inner.client.get(&self.shared.client, Rank(rank), Self::offset(index), target)
    }

    /// [`Window::get`] into a new vector.
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn get_vec(&self, rank: u32, index: usize, count: usize) -> Result<Vec<T>, TransferError> {
        let mut elements = vec![T::new_zeroed(); count];
        self.get(rank, index, &mut elements)?;
        Ok(elements)
    }

    /// [`Window::put`] of one element. `shmem_p`.
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

    /// Writes the patch `from` of a buffer to the patch `to` of a rank's part; both have equally many elements, which
    /// are paired in row-major order. Completion as [`Window::put`]. `ARMCI_PutS`, `shmem_iput`.
    ///
    /// # Errors
    /// As [`Window::put`], [`TransferError::BadShape`], and [`TransferError::LengthMismatch`] if the patches differ or
    /// the buffer is too short.
    pub fn put_strided(&self, rank: u32, to: &Patch, source: &[T], from: &Patch) -> Result<(), TransferError> {
        let shapes = Self::patch_shapes(Operation::Put, rank, to, from)?;
        self.put_shaped(rank, shapes, source)
    }

    /// Reads the patch `from` of a rank's part into the patch `to` of a buffer. `ARMCI_GetS`, `shmem_iget`.
    ///
    /// # Errors
    /// As [`Window::put_strided`].
    pub fn get_strided(&self, rank: u32, from: &Patch, target: &mut [T], to: &Patch) -> Result<(), TransferError> {
        let shapes = Self::patch_shapes(Operation::Get, rank, from, to)?;
        self.get_shaped(rank, shapes, target)
    }

    /// Writes pieces of a buffer to pieces of a rank's part, any number in one call. Where pieces overlap at the
    /// target, any of them wins. Completion as [`Window::put`]. `ARMCI_PutV`.
    ///
    /// # Errors
    /// As [`Window::put_strided`].
    pub fn put_vector(&self, rank: u32, segments: &[Segment], source: &[T]) -> Result<(), TransferError> {
        self.put_shaped(rank, Self::segment_shapes(segments), source)
    }

    /// Reads pieces of a rank's part into pieces of a buffer. `ARMCI_GetV`.
    ///
    /// # Errors
    /// As [`Window::put_strided`].
    pub fn get_vector(&self, rank: u32, segments: &[Segment], target: &mut [T]) -> Result<(), TransferError> {
        self.get_shaped(rank, Self::segment_shapes(segments), target)
    }

    /// Starts [`Window::put`] and gives the buffer back when it may be reused. `ARMCI_NbPut`.
    ///
    /// # Errors
    /// What can be known now, as [`Window::put`]; the buffer is dropped. The rest comes from the handle.
    pub fn start_put(&self, rank: u32, index: usize, source: Vec<T>) -> Result<Handle<Vec<T>>, TransferError> {
        let shapes = Self::run_shapes(index, source.len());
        self.start_put_shaped(rank, shapes, source)
    }

    /// Starts [`Window::get`] into a buffer, all of which is filled. `ARMCI_NbGet`.
    ///
    /// # Errors
    /// As [`Window::start_put`].
    pub fn start_get(&self, rank: u32, index: usize, target: Vec<T>) -> Result<Handle<Vec<T>>, TransferError> {
        let shapes = Self::run_shapes(index, target.len());
        self.start_get_shaped(rank, shapes, target)
    }

    /// Starts [`Window::put_strided`]. `ARMCI_NbPutS`.
    ///
    /// # Errors
    /// As [`Window::start_put`] and [`Window::put_strided`].
    pub fn start_put_strided(
        &self,
        rank: u32,
        to: &Patch,
        source: Vec<T>,
        from: &Patch,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        let shapes = Self::patch_shapes(Operation::Put, rank, to, from)?;
        self.start_put_shaped(rank, shapes, source)
    }

    /// Starts [`Window::get_strided`]. `ARMCI_NbGetS`.
    ///
    /// # Errors
    /// As [`Window::start_put`] and [`Window::put_strided`].
    pub fn start_get_strided(
        &self,
        rank: u32,
        from: &Patch,
        target: Vec<T>,
        to: &Patch,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        let shapes = Self::patch_shapes(Operation::Get, rank, from, to)?;
        self.start_get_shaped(rank, shapes, target)
    }

    /// Starts [`Window::put_vector`]. `ARMCI_NbPutV`.
    ///
    /// # Errors
    /// As [`Window::start_put`].
    pub fn start_put_vector(
        &self,
        rank: u32,
        segments: &[Segment],
        source: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        self.start_put_shaped(rank, Self::segment_shapes(segments), source)
    }

    /// Starts [`Window::get_vector`]. `ARMCI_NbGetV`.
    ///
    /// # Errors
    /// As [`Window::start_put`].
    pub fn start_get_vector(
        &self,
        rank: u32,
        segments: &[Segment],
        target: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        self.start_get_shaped(rank, Self::segment_shapes(segments), target)
    }

    fn put_shaped(&self, rank: u32, shapes: Shapes, source: &[T]) -> Result<(), TransferError> {
        let source = OriginBytes::from(source.as_bytes());
        self.shared.inner.client.put_shaped(&self.shared.client, Rank(rank), shapes, source)
    }

    fn get_shaped(&self, rank: u32, shapes: Shapes, target: &mut [T]) -> Result<(), TransferError> {
        let target = OriginBytesMut::from(target.as_mut_bytes());
        self.shared.inner.client.get_shaped(&self.shared.client, Rank(rank), shapes, target)
    }

    fn start_put_shaped(&self, rank: u32, shapes: Shapes, source: Vec<T>) -> Result<Handle<Vec<T>>, TransferError> {
        self.start(Operation::Put, rank, source, |lender| {
            self.shared.inner.client.start_put(&self.shared.client, Rank(rank), shapes, lender)
        })
    }

    fn start_get_shaped(&self, rank: u32, shapes: Shapes, target: Vec<T>) -> Result<Handle<Vec<T>>, TransferError> {
        self.start(Operation::Get, rank, target, |lender| {
            self.shared.inner.client.start_get(&self.shared.client, Rank(rank), shapes, lender)
        })
    }

    /// Starts an operation on an owned buffer.
    pub(super) fn start(
        &self,
        operation: Operation,
        rank: u32,
        elements: Vec<T>,
        issue: impl FnOnce(&LenderMut<'_>) -> Result<(), TransferError>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        let buffer = OriginBuffer::new(elements);
        let issued = issue(&buffer.lender());
        let buffer = buffer.issued();
        issued?;
        let client = &self.shared.inner.client;
        let completion = Arc::clone(buffer.completion());
        Ok(Handle::new(client, completion, (operation, Rank(rank)), move |_| {
            buffer.take().expect("the operation is complete")
        }))
    }
}
