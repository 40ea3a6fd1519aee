//! Read-modify-write of one word, blocking and with a handle.

use longarm_client::{Completion, RmwError};
use longarm_proto::{Rank, Rmw, RmwOp};

use super::shared::Window;
use crate::element::Word;
use crate::error::Operation;
use crate::handle::Handle;

/// Methods that differ in the operation only: one blocking, one with a handle.
macro_rules! rmw_methods {
    ($($(#[$doc:meta])* $name:ident $start:ident $op:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`RmwError`]: everything that can be wrong with a put; words of a window are always aligned.
            #[inline]
            pub fn $name(&self, rank: u32, index: usize, value: T) -> Result<T, RmwError> {
                self.rmw(rank, index, $op, value, T::default())
            }

            #[doc = concat!("Starts [`Window::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// What can be known now; the rest comes from the handle.
            pub fn $start(&self, rank: u32, index: usize, value: T) -> Result<Handle<T>, RmwError> {
                self.start_rmw(rank, index, $op, value, T::default())
            }
        )*
    };
}

/// Read-modify-writes. Each is atomic with respect to every other on the word, from everywhere, to integer
/// accumulates, and to aligned puts and gets of one word. `ARMCI_Rmw`, `shmem_atomic_*`.
///
/// ```
/// let world = longarm::init()?;
/// let words = world.allocate_collective::<u64>(2)?;
/// assert_eq!(words.fetch_add(0, 0, 5)?, 0); // the old value
/// assert_eq!(words.fetch_or(0, 0, 2)?, 5);
/// assert_eq!(words.fetch_and(0, 0, 6)?, 7);
/// assert_eq!(words.fetch_xor(0, 0, 1)?, 6);
/// assert_eq!(words.swap(0, 0, 1)?, 7);
///
/// // The same with handles, which are waited for or awaited.
/// let started = [words.start_fetch_add(0, 1, 9)?, words.start_compare_swap(0, 1, 9, 10)?, words.start_fetch(0, 1)?];
/// let seen: Vec<u64> = started.into_iter().map(|handle| handle.wait()).collect::<Result<_, _>>()?;
/// assert_eq!(seen, [0, 9, 10]); // of one rank to one word: in their order
/// words.start_set(0, 1, 4)?.wait()?;
/// # words.start_swap(0, 1, 4)?.wait()?;
/// # words.start_fetch_and(0, 1, 4)?.wait()?;
/// # words.start_fetch_or(0, 1, 4)?.wait()?;
/// # words.start_fetch_xor(0, 1, 0)?.wait()?;
/// # words.start_fetch_min(0, 1, 4)?.wait()?;
/// assert_eq!(words.start_fetch_max(0, 1, 3)?.wait()?, 4);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
impl<T: Word> Window<T> {
    rmw_methods! {
        /// Adds, wrapping around, and gives the old value.
        fetch_add start_fetch_add RmwOp::FetchAdd;
        /// Replaces and gives the old value.
        swap start_swap RmwOp::Swap;
        /// Bitwise and; gives the old value.
        fetch_and start_fetch_and RmwOp::FetchAnd;
        /// Bitwise or; gives the old value.
        fetch_or start_fetch_or RmwOp::FetchOr;
        /// Bitwise exclusive or; gives the old value.
        fetch_xor start_fetch_xor RmwOp::FetchXor;
        /// Keeps the smaller one of the word and the value, and gives the old word. Signed words compare as signed numbers.
        ///
        /// ```
        /// let world = longarm::init()?;
        /// let best = world.allocate_collective::<i64>(1)?; // 0 at first
        /// assert_eq!(best.fetch_min(0, 0, -5)?, 0);
        /// assert_eq!(best.fetch_min(0, 0, 3)?, -5);
        /// assert_eq!(best.fetch(0, 0)?, -5);
        /// # world.finalize()?;
        /// # Ok::<(), longarm::Error>(())
        /// ```
        fetch_min start_fetch_min T::MIN_MAX.0;
        /// Keeps the larger one of the word and the value, and gives the old word. Signed words compare as signed numbers.
        ///
        /// ```
        /// let world = longarm::init()?;
        /// let latest = world.allocate_collective::<u32>(1)?;
        /// assert_eq!(latest.fetch_max(0, 0, 7)?, 0);
        /// assert_eq!(latest.fetch_max(0, 0, 5)?, 7);
        /// # world.finalize()?;
        /// # Ok::<(), longarm::Error>(())
        /// ```
        fetch_max start_fetch_max T::MIN_MAX.1;
    }

    /// Replaces by `value` if the word is `expected`; gives the old value in any case.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let words = world.allocate_collective::<u32>(1)?;
    /// assert_eq!(words.compare_swap(world.rank(), 0, 0, 5)?, 0);
    /// assert_eq!(words.compare_swap(world.rank(), 0, 0, 9)?, 5); // nothing was changed
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    #[inline]
    pub fn compare_swap(&self, rank: u32, index: usize, expected: T, value: T) -> Result<T, RmwError> {
        self.rmw(rank, index, RmwOp::CompareSwap, value, expected)
    }

    /// Starts [`Window::compare_swap`].
    ///
    /// # Errors
    /// As [`Window::start_fetch_add`].
    pub fn start_compare_swap(&self, rank: u32, index: usize, expected: T, value: T) -> Result<Handle<T>, RmwError> {
        self.start_rmw(rank, index, RmwOp::CompareSwap, value, expected)
    }

    /// Reads the word atomically.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    #[inline]
    pub fn fetch(&self, rank: u32, index: usize) -> Result<T, RmwError> {
        self.rmw(rank, index, RmwOp::Fetch, T::default(), T::default())
    }

    /// Starts [`Window::fetch`].
    ///
    /// # Errors
    /// As [`Window::start_fetch_add`].
    pub fn start_fetch(&self, rank: u32, index: usize) -> Result<Handle<T>, RmwError> {
        self.start_rmw(rank, index, RmwOp::Fetch, T::default(), T::default())
    }

    /// Writes the word atomically; on return it is visible at the target.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let words = world.allocate_collective::<i64>(1)?;
    /// words.set(world.rank(), 0, -3)?;
    /// assert_eq!(words.fetch(world.rank(), 0)?, -3);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    #[inline]
    pub fn set(&self, rank: u32, index: usize, value: T) -> Result<(), RmwError> {
        self.rmw(rank, index, RmwOp::Set, value, T::default()).map(drop)
    }

    /// Starts [`Window::set`]; the handle's value means nothing.
    ///
    /// # Errors
    /// As [`Window::start_fetch_add`].
    pub fn start_set(&self, rank: u32, index: usize, value: T) -> Result<Handle<T>, RmwError> {
        self.start_rmw(rank, index, RmwOp::Set, value, T::default())
    }

    #[inline]
    fn rmw(&self, rank: u32, index: usize, op: RmwOp, operand: T, compare: T) -> Result<T, RmwError> {
        let rmw = Rmw { op, width: T::WIDTH, operand: operand.to_bits(), compare: compare.to_bits() };
        let offset = Self::offset(index);
        self.shared.client.rmw(&self.shared.window, Rank(rank), offset, rmw).map(T::from_bits)
    }

    fn start_rmw(&self, rank: u32, index: usize, op: RmwOp, operand: T, compare: T) -> Result<Handle<T>, RmwError> {
        if self.is_here(rank) {
            return self.rmw(rank, index, op, operand, compare).map(Handle::done);
        }
        let rmw = Rmw { op, width: T::WIDTH, operand: operand.to_bits(), compare: compare.to_bits() };
        let (completion, part) = Completion::begin();
        let client = &self.shared.client;
        let issued = client.start_rmw(&self.shared.window, Rank(rank), Self::offset(index), rmw, &part);
        drop(part);
        issued?;
        let output = |completion: &Completion| T::from_bits(completion.value());
        Ok(Handle::new(client, completion, (Operation::Rmw, Rank(rank)), output))
    }
}
