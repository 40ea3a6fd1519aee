//! A mutex for a task: it waits behind the threads and tasks of its rank, then among the ranks, and blocks nobody meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use longarm_client::{Completion, LockBegun, MutexError, Taken};
use longarm_proto::Rank;

use super::park;
use crate::mutex::gate::{Entry, Turn};
use crate::mutex::{MutexGuard, Mutexes};

/// A mutex that was asked for: [`Mutexes::start_lock`]. A [`Future`](std::future::Future) that yields the guard.
///
/// Dropping it gives up the place in the queue; if the mutex comes all the same, it is given back at once.
///
/// ```
/// let world = longarm::init()?;
/// let mutexes = world.mutexes_collective(1)?;
/// let asked = mutexes.start_lock(0, 0);
/// // ... compute, and then, or by asked.await:
/// let guard = asked.wait()?;
/// guard.unlock()?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[must_use = "the mutex is given up when this is dropped"]
pub struct Locking<'a> {
    mutexes: &'a Mutexes,
    place: (u32, u64),
    state: State<'a>,
}

enum State<'a> {
    /// Others of this rank are before it.
    Queued(Arc<Turn>),
    /// It is the one of this rank that asks, and has to give its place on.
    Asked(Arc<Completion>),
    /// It is over, and so is its place.
    Over(Option<Result<Taken<'a>, MutexError>>),
}

impl Mutexes {
    /// Asks for a mutex, to be awaited: as [`Mutexes::lock`], but no thread waits. A task that asks for a mutex that it has
    /// waits for ever: which task it is nobody can tell.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// # futures_lite::future::block_on(async {
    /// let guard = mutexes.start_lock(0, 0).await?;
    /// // ... the mutex is held ...
    /// guard.unlock()?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Mutexes::lock`] returns.
    pub fn start_lock(&self, host: u32, number: u64) -> Locking<'_> {
        let (place, count) = ((host, number), self.count(host));
        let state = match self.gates.come_as_task(place, count) {
            Entry::Entered => self.ask(place),
            Entry::Queued(turn) => State::Queued(turn),
            Entry::Inside | Entry::Unknown => {
                State::Over(Some(Err(MutexError::UnknownMutex { host: Rank(host), number, count })))
            }
        };
        Locking { mutexes: self, place, state }
    }

    /// For who is the one of this rank that asks.
    fn ask(&self, (host, number): (u32, u64)) -> State<'_> {
        match self.shared.inner.client.begin_lock(&self.home, Rank(host), number) {
            Ok(LockBegun::Asked(completion)) => State::Asked(completion),
            Ok(LockBegun::Taken(taken)) => State::Over(Some(Ok(taken))),
            Err(error) => self.give_up((host, number), error),
        }
    }

    fn give_up(&self, place: (u32, u64), error: MutexError) -> State<'_> {
        self.gates.leave(place);
        State::Over(Some(Err(error)))
    }
}

impl<'a> Locking<'a> {
    /// Waits for the mutex.
    ///
    /// # Errors
    /// As [`Mutexes::lock`].
    pub fn wait(mut self) -> Result<MutexGuard<'a>, MutexError> {
        park::block_on(|context| self.poll_guard(context))
    }

    fn poll_guard(&mut self, context: &mut Context<'_>) -> Poll<Result<MutexGuard<'a>, MutexError>> {
        loop {
            match &mut self.state {
                State::Queued(turn) => {
                    if turn.poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.state = self.mutexes.ask(self.place);
                }
                State::Asked(completion) => {
                    let client = &self.mutexes.shared.inner.client;
                    // The server that was asked says so when the host dies, and its own death ends what it was asked.
                    if completion.poll_complete(context).is_pending() {
                        client.keep_moving();
                        return Poll::Pending;
                    }
                    self.state = match client.end_lock(completion, Rank(self.place.0), self.place.1) {
                        Ok(taken) => State::Over(Some(Ok(taken))),
                        Err(error) => self.mutexes.give_up(self.place, error),
                    };
                }
                State::Over(result) => {
                    let result = result.take().expect("a future that is over is not polled");
                    return Poll::Ready(result.map(|taken| self.mutexes.gated_guard(self.place, taken)));
                }
            }
        }
    }
}

impl<'a> Future for Locking<'a> {
    type Output = Result<MutexGuard<'a>, MutexError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_guard(context)
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Over(None)) {
            State::Queued(turn) if turn.abandon() => {}
            State::Queued(_) => self.mutexes.gates.leave(self.place),
            State::Asked(completion) => {
                let (mutexes, place) = (self.mutexes.clone(), self.place);
                let waker = Waker::from(Arc::new(Unwanted { mutexes, place, completion: Arc::clone(&completion) }));
                if completion.poll_complete(&mut Context::from_waker(&waker)).is_ready() {
                    waker.wake();
                } else {
                    self.mutexes.shared.inner.client.keep_moving();
                }
            }
            State::Over(Some(Ok(taken))) => drop(self.mutexes.gated_guard(self.place, taken)),
            State::Over(_) => {}
        }
    }
}

/// A mutex that is given back once it comes.
struct Unwanted {
    mutexes: Mutexes,
    place: (u32, u64),
    completion: Arc<Completion>,
}

impl Wake for Unwanted {
    fn wake(self: Arc<Self>) {
        let inner = Arc::clone(&self.mutexes.shared.inner);
        // On a worker: to give it back may take an answer, which the thread that wakes may be the one to bring.
        inner.workers.start(&inner.errands, move || {
            let (client, (host, number)) = (&self.mutexes.shared.inner.client, self.place);
            match client.end_lock(&self.completion, Rank(host), number) {
                Ok(taken) => drop(self.mutexes.gated_guard(self.place, taken)),
                Err(_) => self.mutexes.gates.leave(self.place),
            }
        });
    }
}
