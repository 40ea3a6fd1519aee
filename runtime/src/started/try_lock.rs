//! A mutex that a task takes if it is free, and one that it gives back: where the host's server has to answer, a worker waits for it.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use longarm_client::{MutexError, Taken};
use longarm_proto::Rank;

use super::{Started, park, promise};
use crate::mutex::gate::MutexId;
use crate::mutex::token::TASK;
use crate::mutex::{MutexGuard, Mutexes};
use crate::stage;

/// A mutex that was asked for once: [`Mutexes::start_try_lock`]. A [`Future`](std::future::Future) that yields the guard, or `None`.
///
/// When it is dropped, the mutex is given back if it was taken.
///
/// ```
/// let world = longarm::init()?;
/// let mutexes = world.mutexes_collective(1)?;
/// let asked = mutexes.start_try_lock(world.rank(), 0);
/// // ... compute, and then, or by asked.await:
/// if let Some(guard) = asked.wait()? {
///     guard.unlock()?;
/// }
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[must_use = "the mutex is given up when this is dropped"]
pub struct TryLocking<'a> {
    mutexes: &'a Mutexes,
    state: State<'a>,
}

enum State<'a> {
    /// A worker asks.
    Asked(Started<Option<Unclaimed>, MutexError>),
    /// It is over.
    Over(Option<MutexGuard<'a>>),
}

/// A mutex that a worker has taken. It is given back if nobody comes for it.
struct Unclaimed {
    mutexes: Mutexes,
    place: MutexId,
    previous_holder_died: bool,
    is_claimed: bool,
}

impl Mutexes {
    /// Starts [`Mutexes::try_lock`]: awaited, no thread of the executor waits for what the host's server answers.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// # futures_lite::future::block_on(async {
    /// if let Some(guard) = mutexes.start_try_lock(world.rank(), 0).await? {
    ///     assert!(mutexes.start_try_lock(world.rank(), 0).await?.is_none());
    ///     guard.start_unlock().await?;
    /// }
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Mutexes::try_lock`] returns.
    pub fn start_try_lock(&self, host: u32, number: u64) -> TryLocking<'_> {
        let place = (host, number);
        if let Some((gate, taken)) = self.take_past_gate(place) {
            return TryLocking { mutexes: self, state: State::Over(Some(self.guard(gate, place, taken))) };
        }
        let ((started, promised), mutexes, inner) = (promise(), self.clone(), &self.shared.inner);
        inner.start_errand(host, move || {
            if !promised.is_dropped() {
                promised.keep(Unclaimed::try_take(&mutexes, place));
            }
        });
        TryLocking { mutexes: self, state: State::Asked(started) }
    }
}

impl MutexGuard<'_> {
    /// Starts [`MutexGuard::unlock`]: awaited, no thread of the executor waits for what the server of this node answers if other ranks
    /// wait for the mutex. It goes on if what this returns is dropped.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// # futures_lite::future::block_on(async {
    /// let guard = mutexes.start_lock(0, 0).await?;
    /// // ... the mutex is held ...
    /// guard.start_unlock().await?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`MutexGuard::unlock`] returns.
    pub fn start_unlock(self) -> Started<(), MutexError> {
        let (mutexes, host, number) = (self.mutexes, self.host, self.number);
        let inner = &mutexes.shared.inner;
        if !inner.client.same_node(Rank(host)) {
            // It is on its way, and nobody waits for an answer.
            return Started::with(self.unlock());
        }
        let guard = ManuallyDrop::new(self);
        // Said by now, so that this thread may ask for the mutex again.
        guard.gate.let_go();
        if inner.client.unlock_at_once(&guard.mutexes.home, Rank(host), number) {
            guard.gate.released();
            return Started::with(Ok(()));
        }
        let ((started, promised), mutexes) = (promise(), guard.mutexes.clone());
        inner.start_errand(host, move || promised.keep(mutexes.unlock(host, number)));
        started
    }
}

impl Unclaimed {
    /// By a worker, for a task.
    fn try_take(mutexes: &Mutexes, place: MutexId) -> Result<Option<Unclaimed>, MutexError> {
        let taken = mutexes.try_take(place, TASK)?;
        Ok(taken.map(|(_, taken)| Unclaimed {
            mutexes: mutexes.clone(),
            place,
            previous_holder_died: taken.previous_holder_died,
            is_claimed: false,
        }))
    }

    fn claim<'a>(mut self, mutexes: &'a Mutexes) -> MutexGuard<'a> {
        self.is_claimed = true;
        let gate = mutexes.gate(self.place).expect("it was taken at its gate");
        mutexes.guard(gate, self.place, Taken::somehow(self.previous_holder_died))
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let (host, number) = self.place;
        if !self.is_claimed
            && let Err(error) = self.mutexes.unlock(host, number)
        {
            tracing::warn!(host, number, "a mutex that nobody wants any more could not be unlocked: {error}");
        }
    }
}

impl<'a> TryLocking<'a> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`Mutexes::try_lock`].
    pub fn wait(mut self) -> Result<Option<MutexGuard<'a>>, MutexError> {
        park::block_on(|context| self.poll_guard(context))
    }

    fn poll_guard(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<MutexGuard<'a>>, MutexError>> {
        match &mut self.state {
            State::Asked(started) => {
                let answer = std::task::ready!(started.poll_result(context));
                self.state = State::Over(None);
                Poll::Ready(answer.map(|taken| taken.map(|unclaimed| unclaimed.claim(self.mutexes))))
            }
            State::Over(guard) => Poll::Ready(Ok(Some(guard.take().expect("a future that is over is not polled")))),
        }
    }
}

impl<'a> Future for TryLocking<'a> {
    type Output = Result<Option<MutexGuard<'a>>, MutexError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_guard(context);
        if polled.is_pending() {
            stage::pending(context);
        }
        polled
    }
}
