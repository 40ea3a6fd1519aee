//! A rank's own part of a window, worked on in place.
//!
//! There is no slice of it, because others write there whenever they like: each element is read and written by itself, as the copies of
//! a put and a get do it. Why there is no guard that gives a slice between two barriers stands in
//! `docs/src/decisions/0032-no-slice-of-a-window.md`.

use std::marker::PhantomData;
use std::ops::Range;

use longarm_client::TransferError;
use longarm_memory::RegionMut;
use longarm_proto::{Rank, Rmw, RmwOp};
use longarm_shm::Window as Part;
use zerocopy::IntoBytes;

use super::shared::Window;
use crate::element::{Element, Word};
use crate::error::Operation;

/// This rank's own part of a [`Window`], as elements that are read and written where they are: [`Window::own_part`].
///
/// Others may read, write and update them meanwhile. An element of 1, 2, 4 or 8 bytes is read and written whole; of a larger one a
/// reader may see a part that is old and a part that is new, as with a put and a get. What others put is seen for certain behind a
/// barrier or a signal, and what this rank stores is seen by others behind one.
///
/// An index outside the part panics, as that of a slice does, and so does every access once the window is freed: its memory may be
/// another window's.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<f64>(4)?;
/// let mine = window.own_part()?;
/// for index in 0..mine.len() {
///     mine.store(index, index as f64);
/// }
/// mine.update(2, |element| element * 10.0);
/// assert!(!mine.is_empty() && mine.iter().sum::<f64>() == 24.0);
/// world.barrier_collective()?; // others see it from here on
/// assert_eq!(window.get_vec(world.rank(), 0..4)?, [0.0, 1.0, 20.0, 3.0]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub struct OwnPart<'a, T> {
    part: Part<'a>,
    window: &'a Window<T>,
    count: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for OwnPart<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OwnPart<'_, T> {}

impl<T: Element> Window<T> {
    /// This rank's own part, to work on in place: see [`OwnPart`].
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u8>(3)?;
    /// let mine = window.own_part()?;
    /// mine.copy_from(0, b"abc");
    /// assert_eq!(mine.load(1), b'b');
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`TransferError::FreedWindow`]; [`TransferError::Unmappable`], [`TransferError::Lost`] if its memory cannot be had from the
    /// node's server.
    pub fn own_part(&self) -> Result<OwnPart<'_, T>, TransferError> {
        let me = self.shared.inner.me();
        self.shared.window.check(Operation::Get, me, 0, 0)?;
        let part = self.shared.window.part_here(Operation::Get, me)?.expect("one's own part is on one's own node");
        Ok(OwnPart { part, window: self, count: part.bytes() as usize / size_of::<T>(), element: PhantomData })
    }
}

impl<'a, T: Element> OwnPart<'a, T> {
    /// How many elements it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reads an element; `None` outside the part.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u32>(2)?;
    /// let mine = window.own_part()?;
    /// assert_eq!((mine.get(1), mine.get(2)), (Some(0), None));
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    #[inline]
    pub fn get(&self, index: usize) -> Option<T> {
        (index < self.count).then(|| self.load(index))
    }

    /// Reads an element.
    ///
    /// # Panics
    /// If there is no such element.
    #[inline]
    pub fn load(&self, index: usize) -> T {
        let mut element = T::new_zeroed();
        self.region(index, 1).copy_to_slice(element.as_mut_bytes());
        element
    }

    /// Writes an element.
    ///
    /// # Panics
    /// If there is no such element.
    #[inline]
    pub fn store(&self, index: usize, element: T) {
        self.region(index, 1).copy_from_slice(element.as_bytes());
    }

    /// Reads an element and writes what `change` makes of it. What others write in between is lost: for words that others update
    /// too there are the read-modify-writes.
    ///
    /// # Panics
    /// If there is no such element.
    #[inline]
    pub fn update(&self, index: usize, change: impl FnOnce(T) -> T) {
        self.store(index, change(self.load(index)));
    }

    /// Copies elements out, from an index on.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<i32>(10)?;
    /// let mine = window.own_part()?;
    /// mine.copy_from(7, &[1, 2, 3]);
    /// let mut last = [0; 2];
    /// mine.copy_to(8, &mut last);
    /// assert_eq!(last, [2, 3]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Panics
    /// If they are not all inside the part.
    #[inline]
    pub fn copy_to(&self, start: usize, target: &mut [T]) {
        self.region(start, target.len()).copy_to_slice(target.as_mut_bytes());
    }

    /// Copies elements in, from an index on.
    ///
    /// # Panics
    /// If they are not all inside the part.
    #[inline]
    pub fn copy_from(&self, start: usize, source: &[T]) {
        self.region(start, source.len()).copy_from_slice(source.as_bytes());
    }

    /// A copy of some elements.
    ///
    /// # Panics
    /// If they are not all inside the part.
    pub fn to_vec(&self, range: Range<usize>) -> Vec<T> {
        // Looked at before memory is taken for them.
        let region = self.region(range.start, range.len());
        let mut elements = vec![T::new_zeroed(); range.len()];
        region.copy_to_slice(elements.as_mut_slice().as_mut_bytes());
        elements
    }

    /// Writes one value to some elements.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<i16>(5)?;
    /// let mine = window.own_part()?;
    /// mine.fill(1..4, 7);
    /// assert_eq!(mine.to_vec(0..5), [0, 7, 7, 7, 0]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Panics
    /// If they are not all inside the part.
    pub fn fill(&self, range: Range<usize>, element: T) {
        let region = self.region(range.start, range.len());
        for index in 0..range.len() {
            region.slice(index * size_of::<T>(), size_of::<T>()).copy_from_slice(element.as_bytes());
        }
    }

    /// All elements in order, each read when it is its turn.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + use<'a, T> {
        let part = *self;
        (0..self.count).map(move |index| part.load(index))
    }

    #[inline]
    fn region(&self, index: usize, count: usize) -> RegionMut<'a> {
        match self.part.region_mut(Window::<T>::offset(index), Window::<T>::offset(count)) {
            Ok(_) if self.window.shared.window.is_freed() => freed(),
            Ok(region) => region,
            Err(_) => outside(index, count, self.count),
        }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn freed() -> ! {
    panic!("the window of this part is freed");
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside(index: usize, count: usize, len: usize) -> ! {
    panic!("{count} elements from index {index} on are not inside a part of {len} elements");
}

macro_rules! rmws {
    ($($(#[$doc:meta])* $name:ident $op:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            /// If there is no such word.
            #[inline]
            pub fn $name(&self, index: usize, value: T) -> T {
                self.rmw(index, $op, value, T::default())
            }
        )*
    };
}

/// Read-modify-writes, atomic with those of all ranks, as [`Window::fetch_add`] and its fellows.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<i64>(1)?;
/// let mine = window.own_part()?;
/// assert_eq!(mine.fetch_add(0, 5), 0);
/// assert_eq!(mine.fetch_max(0, 3), 5);
/// assert_eq!(mine.compare_swap(0, 5, -1), 5);
/// assert_eq!(mine.load(0), -1);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
impl<T: Word> OwnPart<'_, T> {
    rmws! {
        /// Adds, wrapping around, and gives the old value.
        fetch_add RmwOp::FetchAdd;
        /// Replaces and gives the old value.
        swap RmwOp::Swap;
        /// Bitwise and; gives the old value.
        fetch_and RmwOp::FetchAnd;
        /// Bitwise or; gives the old value.
        fetch_or RmwOp::FetchOr;
        /// Bitwise exclusive or; gives the old value.
        fetch_xor RmwOp::FetchXor;
        /// Keeps the smaller one, and gives the old value.
        fetch_min T::MIN_MAX.0;
        /// Keeps the larger one, and gives the old value.
        fetch_max T::MIN_MAX.1;
    }

    /// Replaces by `value` if the word is `expected`; gives the old value in any case.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline]
    pub fn compare_swap(&self, index: usize, expected: T, value: T) -> T {
        self.rmw(index, RmwOp::CompareSwap, value, expected)
    }

    #[inline]
    fn rmw(&self, index: usize, op: RmwOp, operand: T, compare: T) -> T {
        if self.window.shared.window.is_freed() {
            freed();
        }
        let rmw = Rmw { op, width: T::WIDTH, operand: operand.to_bits(), compare: compare.to_bits() };
        // The part starts on a page, so its words are aligned: only the index can be wrong.
        let Ok(old) = self.part.rmw(Window::<T>::offset(index), rmw) else { outside(index, 1, self.count) };
        // Another thread of this rank may sleep until the word changes.
        self.window.shared.client.ring_window(self.me());
        T::from_bits(old)
    }

    #[inline]
    fn me(&self) -> Rank {
        self.window.shared.inner.me()
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for OwnPart<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
