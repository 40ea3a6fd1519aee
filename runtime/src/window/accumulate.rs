//! Accumulate, blocking and with a handle.

use longarm_client::{OriginBytes, TransferError};
use longarm_proto::{AccumulateOp, Kernel, Rank, Scale};
use zerocopy::IntoBytes;

use super::shared::Window;
use crate::element::Number;
use crate::error::Operation;
use crate::handle::Handle;
use crate::selection::Selection;

/// What an accumulate does with each element of the target and its partner of the source.
///
/// ```
/// let world = longarm::init()?;
/// use longarm::Update;
/// let window = world.allocate_collective::<i64>(2)?;
/// window.accumulate(world.rank(), 0, Update::Replace, &[6, 6])?;
/// window.accumulate(world.rank(), 0, Update::Scaled(-2), &[1, 2])?;
/// window.accumulate(world.rank(), 0, Update::Max, &[3, 3])?;
/// assert_eq!(window.get_vec(world.rank(), 0..2)?, [4, 3]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update<T> {
    /// target += source
    Sum,
    /// target += factor × source, in the arithmetic of the element type.
    Scaled(T),
    /// The smaller one; not for complex numbers.
    Min,
    /// The larger one; not for complex numbers.
    Max,
    /// Bitwise and; integers only.
    And,
    /// Bitwise or; integers only.
    Or,
    /// Bitwise exclusive or; integers only.
    Xor,
    /// target = source, element by element.
    Replace,
}

impl<T: Number> Update<T> {
    #[inline]
    pub(crate) fn kernel(self, rank: u32) -> Result<(Kernel, Scale), TransferError> {
        let (op, scale) = match self {
            Update::Sum => (AccumulateOp::Sum, Scale::one(T::TYPE)),
            Update::Scaled(factor) => (AccumulateOp::Sum, factor.to_scale()),
            Update::Min => (AccumulateOp::Min, Scale::one(T::TYPE)),
            Update::Max => (AccumulateOp::Max, Scale::one(T::TYPE)),
            Update::And => (AccumulateOp::And, Scale::one(T::TYPE)),
            Update::Or => (AccumulateOp::Or, Scale::one(T::TYPE)),
            Update::Xor => (AccumulateOp::Xor, Scale::one(T::TYPE)),
            Update::Replace => (AccumulateOp::Replace, Scale::one(T::TYPE)),
        };
        let kernel = Kernel::new(T::TYPE, op).ok_or(TransferError::NoSuchKernel { rank: Rank(rank) })?;
        Ok((kernel, scale))
    }
}

impl<T: Number> Window<T> {
    /// Updates elements of a rank's part, those that the [`Selection`] says. Each is updated atomically with respect to every
    /// other accumulate of its type, from everywhere; integers also with respect to read-modify-writes. Pieces that overlap
    /// at the target are all applied. Completion as [`Window::put`]. `ARMCI_Acc`, `ARMCI_AccS`, `ARMCI_AccV`.
    ///
    /// ```
    /// use longarm::{Patch, Update};
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<f64>(4)?;
    /// window.accumulate(0, 1, Update::Scaled(0.5), &[3.0, 5.0])?;
    /// window.accumulate(0, &Patch::new(0, &[2], &[3]), Update::Max, &[1.0, -1.0])?; // to 0 and 3
    /// world.barrier_collective()?;
    /// assert_eq!(window.get_vec(0, 0..4)?, [1.0, 1.5, 2.5, 0.0]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`], and [`TransferError::NoSuchKernel`] for an update that the type does not have.
    pub fn accumulate(
        &self,
        rank: u32,
        selection: impl Selection,
        update: Update<T>,
        source: &[T],
    ) -> Result<(), TransferError> {
        let Some(index) = selection.index(source.len()) else {
            return self.accumulate_selected(rank, selection, update, source);
        };
        let source = OriginBytes::from(source.as_bytes());
        let client = &self.shared.client;
        // Lent from where it was made, for the reason that `Client::accumulate_run` has.
        match &update.kernel(rank) {
            Ok((kernel, scale)) => {
                client.accumulate_run(&self.shared.window, Rank(rank), Self::offset(index), (*kernel, scale), source)
            }
            Err(error) => Err(error.clone()),
        }
    }

    fn accumulate_selected(
        &self,
        rank: u32,
        selection: impl Selection,
        update: Update<T>,
        source: &[T],
    ) -> Result<(), TransferError> {
        let shapes = Self::select(selection, Operation::Accumulate, rank, source.len())?.shapes(size_of_val(source));
        let operator = update.kernel(rank)?;
        let source = OriginBytes::from(source.as_bytes());
        self.shared.client.accumulate(&self.shared.window, Rank(rank), shapes, operator, source)
    }

    /// Starts [`Window::accumulate`]. `ARMCI_NbAcc`, `ARMCI_NbAccS`, `ARMCI_NbAccV`.
    ///
    /// ```
    /// use longarm::Update;
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u32>(2)?;
    /// let more = window.start_accumulate(0, 0, Update::Sum, vec![1, 2])?;
    /// let buffer = more.wait()?; // may be reused
    /// world.barrier_collective()?;
    /// assert_eq!(window.get_vec(0, 0..2)?, buffer);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::start_put`] and [`Window::accumulate`].
    pub fn start_accumulate(
        &self,
        rank: u32,
        selection: impl Selection,
        update: Update<T>,
        source: Vec<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        if self.is_here(rank) {
            self.accumulate(rank, selection, update, &source)?;
            return Ok(Handle::done(source));
        }
        let shapes = Self::shapes(selection, Operation::Accumulate, rank, source.len())?;
        let operator = update.kernel(rank)?;
        self.start(Operation::Accumulate, rank, source, |lender| {
            self.shared.client.start_accumulate(&self.shared.window, Rank(rank), shapes, operator, lender)
        })
    }
}
