//! Put with signal.

use longarm_client::{ClientWindow, OriginBytes, RmwError};
use longarm_proto::{Rank, SignalOp};
use zerocopy::IntoBytes;

use super::shared::Window;
use crate::element::Element;
use crate::error::Operation;
use crate::handle::Handle;

/// A word, and what becomes of it once the elements are there.
struct Signal<'a> {
    word: (&'a ClientWindow, u64),
    update: (SignalOp, u64),
}

impl<'a> Signal<'a> {
    fn new(signals: &'a Window<u64>, index: usize, op: SignalOp, value: u64) -> Signal<'a> {
        Signal { word: (&signals.shared.window, Window::<u64>::offset(index)), update: (op, value) }
    }
}

impl<T: Element> Window<T> {
    /// Writes elements, then sets the word `signal_index` of `signals` at the same rank to `value`: a rank that sees the
    /// signal sees the elements. Completion as [`Window::put`]. `shmem_put_signal` with `SHMEM_SIGNAL_SET`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let row = world.allocate_collective::<f64>(64)?;
    /// let step = world.allocate_collective::<u64>(1)?;
    /// let right = (world.rank() + 1) % world.size();
    /// row.put_signal_set(right, 0, &[0.5; 64], (&step, 0), 3)?;
    /// step.wait_until(0, longarm::Compare::Equal, 3)?; // the left neighbour's row of step 3 is here
    /// assert_eq!(row.get_one(world.rank(), 63)?, 0.5);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put`], for both windows.
    pub fn put_signal_set(
        &self,
        rank: u32,
        index: usize,
        source: &[T],
        (signals, signal_index): (&Window<u64>, usize),
        value: u64,
    ) -> Result<(), RmwError> {
        self.put_signal((rank, index), source, &Signal::new(signals, signal_index, SignalOp::Set, value))
    }

    /// As [`Window::put_signal_set`], but adds to the word. `SHMEM_SIGNAL_ADD`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// use longarm::Compare;
    /// let row = world.allocate_collective::<f64>(64)?;
    /// let arrived = world.allocate_collective::<u64>(1)?;
    /// let right = (world.rank() + 1) % world.size();
    /// row.put_signal_add(right, 0, &[0.5; 64], (&arrived, 0), 1)?;
    /// arrived.wait_until(0, Compare::GreaterOrEqual, 1)?; // the left neighbour's row is here
    /// assert_eq!(row.get_one(world.rank(), 63)?, 0.5);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Window::put_signal_set`].
    pub fn put_signal_add(
        &self,
        rank: u32,
        index: usize,
        source: &[T],
        (signals, signal_index): (&Window<u64>, usize),
        value: u64,
    ) -> Result<(), RmwError> {
        self.put_signal((rank, index), source, &Signal::new(signals, signal_index, SignalOp::Add, value))
    }

    /// Starts [`Window::put_signal_set`] and gives the buffer back when it may be reused; the target sees the signal behind the
    /// elements, whether the handle is waited for or not.
    ///
    /// ```
    /// use longarm::Compare;
    /// let world = longarm::init()?;
    /// let row = world.allocate_collective::<f64>(64)?;
    /// let words = world.allocate_collective::<u64>(2)?;
    /// let right = (world.rank() + 1) % world.size();
    /// # futures_lite::future::block_on(async {
    /// let first = row.start_put_signal_set(right, 0, vec![0.5; 32], (&words, 0), 3)?;
    /// let second = row.start_put_signal_add(right, 32, vec![0.5; 32], (&words, 1), 1)?;
    /// words.start_wait_until(0, Compare::Equal, 3).await?;
    /// words.start_wait_until(1, Compare::Equal, 1).await?; // the left neighbour's row is here
    /// assert_eq!(row.get_vec(world.rank(), 0..64)?, [first.await?, second.await?].concat());
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// What can be known now, as [`Window::put_signal_set`]; the buffer is dropped. The rest comes from the handle.
    pub fn start_put_signal_set(
        &self,
        rank: u32,
        index: usize,
        source: Vec<T>,
        (signals, signal_index): (&Window<u64>, usize),
        value: u64,
    ) -> Result<Handle<Vec<T>>, RmwError> {
        self.start_put_signal((rank, index), source, &Signal::new(signals, signal_index, SignalOp::Set, value))
    }

    /// Starts [`Window::put_signal_add`], as [`Window::start_put_signal_set`].
    ///
    /// # Errors
    /// As [`Window::start_put_signal_set`].
    pub fn start_put_signal_add(
        &self,
        rank: u32,
        index: usize,
        source: Vec<T>,
        (signals, signal_index): (&Window<u64>, usize),
        value: u64,
    ) -> Result<Handle<Vec<T>>, RmwError> {
        self.start_put_signal((rank, index), source, &Signal::new(signals, signal_index, SignalOp::Add, value))
    }

    fn put_signal(&self, (rank, index): (u32, usize), source: &[T], signal: &Signal<'_>) -> Result<(), RmwError> {
        let data = (&*self.shared.window, Self::offset(index));
        let source = OriginBytes::from(source.as_bytes());
        self.shared.client.put_signal(data, signal.word, signal.update, Rank(rank), source)
    }

    fn start_put_signal(
        &self,
        (rank, index): (u32, usize),
        source: Vec<T>,
        signal: &Signal<'_>,
    ) -> Result<Handle<Vec<T>>, RmwError> {
        if self.is_here(rank) {
            self.put_signal((rank, index), &source, signal)?;
            return Ok(Handle::done(source));
        }
        let data = (&*self.shared.window, Self::offset(index));
        self.start(Operation::Put, rank, source, |lender| {
            self.shared.client.start_put_signal(data, signal.word, signal.update, Rank(rank), lender)
        })
    }
}
