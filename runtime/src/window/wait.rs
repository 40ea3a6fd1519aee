//! Waiting for words of one's own part to change.

use longarm_client::{WaitError, WordWidth};
use longarm_proto::RmwWidth;

pub use longarm_client::Compare;

use super::shared::Window;
use crate::element::Word;
use crate::started::Started;

/// Waiting for words of this rank's own part. While it waits, the rank works for longarm; if a rank of the job dies,
/// the wait ends with an error, because it may have been the one that was to change the word.
///
/// ```
/// use longarm::Compare;
/// let world = longarm::init()?;
/// let flags = world.allocate_collective::<u64>(3)?;
/// let left = (world.rank() + world.size() - 1) % world.size();
/// assert!(flags.test_until(1, Compare::Equal, 0)?); // looks once
/// flags.set(left, 0, 1)?;
/// flags.set(left, 2, 1)?;
/// flags.wait_until_all(&[0, 2], Compare::Equal, 1)?;
/// assert_eq!(flags.wait_until_some(&[2, 1, 0], Compare::Equal, 1)?, [0, 2]); // places in the list
/// # futures_lite::future::block_on(async {
/// assert_eq!(flags.start_wait_until_any(vec![1, 2], Compare::Equal, 1).await?, Some(1));
/// assert_eq!(flags.start_wait_until_some(vec![0, 1], Compare::Equal, 1).await?, [0]);
/// # Ok::<(), longarm::Error>(())
/// # })?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
impl<T: Word> Window<T> {
    /// Waits until the word stands in this relation to `value`, and gives what it is then. Signals and
    /// read-modify-writes wake the rank at once; a plain put does within a few milliseconds if it sleeps.
    /// `shmem_wait_until`, `shmem_signal_wait_until`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let flags = world.allocate_collective::<u32>(1)?;
    /// flags.set((world.rank() + 1) % world.size(), 0, 7)?;
    /// assert_eq!(flags.wait_until(0, longarm::Compare::NotEqual, 0)?, 7);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WaitError`]: the word is outside this rank's part, the window is freed, a rank died.
    pub fn wait_until(&self, index: usize, compare: Compare, value: T) -> Result<T, WaitError> {
        self.wait_words(|| Ok(self.look(index)?.filter_by(compare, value)))
    }

    /// Waits until one of the words does; gives its place in `indices`. `None` for an empty list.
    /// `shmem_wait_until_any`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let flags = world.allocate_collective::<u32>(3)?;
    /// flags.set((world.rank() + 1) % world.size(), 2, 1)?;
    /// assert_eq!(flags.wait_until_any(&[0, 2], longarm::Compare::Equal, 1)?, Some(1)); // the place in the list
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::wait_until`].
    pub fn wait_until_any(&self, indices: &[usize], compare: Compare, value: T) -> Result<Option<usize>, WaitError> {
        if indices.is_empty() {
            return Ok(None);
        }
        self.wait_words(|| Ok(self.test_some(indices, compare, value)?.first().copied())).map(Some)
    }

    /// Waits until at least one of the words does; gives the places of all that do then. `shmem_wait_until_some`.
    ///
    /// # Errors
    /// As [`Window::wait_until`].
    pub fn wait_until_some(&self, indices: &[usize], compare: Compare, value: T) -> Result<Vec<usize>, WaitError> {
        if indices.is_empty() {
            return Ok(Vec::new());
        }
        self.wait_words(|| Ok(Some(self.test_some(indices, compare, value)?).filter(|places| !places.is_empty())))
    }

    /// Waits until all of the words have done so, each at some moment. `shmem_wait_until_all`.
    ///
    /// # Errors
    /// As [`Window::wait_until`].
    pub fn wait_until_all(&self, indices: &[usize], compare: Compare, value: T) -> Result<(), WaitError> {
        let mut left = indices.to_vec();
        self.wait_words(|| self.look_for_all(&mut left, compare, value))
    }

    /// Whether the word stands in this relation now. `shmem_test`.
    ///
    /// # Errors
    /// As [`Window::wait_until`].
    pub fn test_until(&self, index: usize, compare: Compare, value: T) -> Result<bool, WaitError> {
        Ok(self.look(index)?.filter_by(compare, value).is_some())
    }

    /// Starts [`Window::wait_until`]: awaited, it blocks no thread. While any such wait is under way, one thread of longarm looks at
    /// the words of all of them, and sleeps as a blocking wait does.
    ///
    /// ```
    /// use longarm::Compare;
    /// let world = longarm::init()?;
    /// let flags = world.allocate_collective::<u32>(2)?;
    /// let first = flags.start_wait_until(0, Compare::Greater, 2);
    /// let both = flags.start_wait_until_all(vec![0, 1], Compare::NotEqual, 0);
    /// flags.set(world.rank(), 1, 1)?;
    /// assert!(!both.test());
    /// flags.set(world.rank(), 0, 3)?;
    /// # futures_lite::future::block_on(async {
    /// assert_eq!(first.await?, 3);
    /// both.await?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Window::wait_until`] returns.
    pub fn start_wait_until(&self, index: usize, compare: Compare, value: T) -> Started<T, WaitError> {
        self.start_wait_words(move |window| Ok(window.look(index)?.filter_by(compare, value)))
    }

    /// Starts [`Window::wait_until_any`] of at least one word.
    ///
    /// # Errors
    /// The future yields what [`Window::wait_until_any`] returns.
    pub fn start_wait_until_any(
        &self,
        indices: Vec<usize>,
        compare: Compare,
        value: T,
    ) -> Started<Option<usize>, WaitError> {
        self.start_wait_words(move |window| match indices[..] {
            [] => Ok(Some(None)),
            _ => Ok(window.test_some(&indices, compare, value)?.first().copied().map(Some)),
        })
    }

    /// Starts [`Window::wait_until_some`].
    ///
    /// # Errors
    /// The future yields what [`Window::wait_until_some`] returns.
    pub fn start_wait_until_some(
        &self,
        indices: Vec<usize>,
        compare: Compare,
        value: T,
    ) -> Started<Vec<usize>, WaitError> {
        self.start_wait_words(move |window| {
            let places = window.test_some(&indices, compare, value)?;
            Ok((indices.is_empty() || !places.is_empty()).then_some(places))
        })
    }

    /// Starts [`Window::wait_until_all`].
    ///
    /// # Errors
    /// The future yields what [`Window::wait_until_all`] returns.
    pub fn start_wait_until_all(&self, indices: Vec<usize>, compare: Compare, value: T) -> Started<(), WaitError> {
        let mut left = indices;
        self.start_wait_words(move |window| window.look_for_all(&mut left, compare, value))
    }

    fn start_wait_words<R: Send + 'static>(
        &self,
        mut check: impl FnMut(&Window<T>) -> Result<Option<R>, WaitError> + Send + 'static,
    ) -> Started<R, WaitError> {
        let (inner, window) = (&self.shared.inner, self.clone());
        inner.watch.start(&inner.client, move || check(&window))
    }

    /// Leaves those words that have not stood in this relation yet; something once there are none.
    fn look_for_all(&self, left: &mut Vec<usize>, compare: Compare, value: T) -> Result<Option<()>, WaitError> {
        let mut failed = None;
        left.retain(|index| match self.look(*index) {
            Ok(word) => word.filter_by(compare, value).is_none(),
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(left.is_empty().then_some(())),
        }
    }

    fn test_some(&self, indices: &[usize], compare: Compare, value: T) -> Result<Vec<usize>, WaitError> {
        let mut places = Vec::new();
        for (place, index) in indices.iter().enumerate() {
            if self.look(*index)?.filter_by(compare, value).is_some() {
                places.push(place);
            }
        }
        Ok(places)
    }

    fn look(&self, index: usize) -> Result<Seen<T>, WaitError> {
        let width = match T::WIDTH {
            RmwWidth::W32 => WordWidth::W32,
            RmwWidth::W64 => WordWidth::W64,
        };
        let bits = self.shared.client.load_word(&self.shared.window, Self::offset(index), width)?;
        Ok(Seen(T::from_bits(bits)))
    }

    fn wait_words<R>(&self, check: impl FnMut() -> Result<Option<R>, WaitError>) -> Result<R, WaitError> {
        self.shared.client.wait_words(check)
    }
}

/// A word as it was seen.
struct Seen<T>(T);

impl<T: Word> Seen<T> {
    fn filter_by(self, compare: Compare, value: T) -> Option<T> {
        compare.holds(self.0, value).then_some(self.0)
    }
}
