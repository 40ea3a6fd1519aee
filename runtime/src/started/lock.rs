//! A mutex for a task: it waits behind the threads and tasks of its rank, then among the ranks, and blocks nobody meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use longarm_client::{Completion, LockBegun, MutexError, Taken};
use longarm_proto::Rank;
use longarm_shm::sync::{AtomicBool, Ordering};

use super::park;
use crate::mutex::gate::{Entry, Gate, MutexId, Turn};
use crate::mutex::token::TASK;
use crate::mutex::{MutexGuard, Mutexes};
use crate::stage;

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
    place: MutexId,
    state: State<'a>,
}

/// What it awaits. The gate of the mutex is in those in which it has come to it.
enum State<'a> {
    /// Others of this rank are before it.
    Queued(&'a Gate, Arc<Turn>),
    /// It is the one of this rank that asks, and has to leave the gate. What it waits for if it is told that this rank has the mutex.
    Asked(&'a Gate, Arc<Completion>, Option<Arc<Turn>>),
    /// It asks, and this rank has the mutex.
    Held(&'a Gate, Arc<Turn>),
    /// It is over, and so is its place.
    Over(Option<Result<MutexGuard<'a>, MutexError>>),
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
        let place = (host, number);
        let state = match self.gate(place) {
            Err(unknown) => State::Over(Some(Err(unknown))),
            Ok(gate) => match self.gates.come(gate, place, TASK) {
                Entry::Queued(turn) => State::Queued(gate, turn),
                Entry::Entered => self.ask(gate, place, None),
                Entry::Inside => unreachable!("which task it is nobody can tell"),
            },
        };
        Locking { mutexes: self, place, state }
    }

    /// For who is the one of this rank that asks. `release`: it has asked before, and was told that this rank has the mutex.
    fn ask<'a>(&'a self, gate: &'a Gate, place: MutexId, release: Option<Arc<Turn>>) -> State<'a> {
        match self.shared.client.begin_lock(&self.home, Rank(place.0), place.1) {
            Ok(LockBegun::Asked(completion)) => State::Asked(gate, completion, release),
            Ok(LockBegun::Taken(taken)) => self.told(gate, place, Ok(taken), release),
            Err(error) => self.told(gate, place, Err(error), release),
        }
    }

    /// Of a mutex that a task has from now on.
    pub(super) fn guard<'a>(&'a self, gate: &'a Gate, (host, number): MutexId, taken: Taken<'a>) -> MutexGuard<'a> {
        gate.hold(TASK);
        MutexGuard { mutexes: self, gate, host, number, taken }
    }

    /// For who has asked: what came of it.
    fn told<'a>(
        &'a self,
        gate: &'a Gate,
        place: MutexId,
        answer: Result<Taken<'a>, MutexError>,
        release: Option<Arc<Turn>>,
    ) -> State<'a> {
        let client = &self.shared.client;
        let answer = match answer {
            Err(held @ MutexError::HeldAlready { .. }) => client.mutex_server(Rank(place.0)).and(Err(held)),
            answer => answer,
        };
        if matches!(answer, Err(MutexError::HeldAlready { .. })) {
            return match release {
                Some(turn) => State::Held(gate, turn),
                None => self.ask(gate, place, Some(gate.await_release(TASK))),
            };
        }
        let guard = answer.map(|taken| self.guard(gate, place, taken));
        self.gates.leave(gate, place);
        State::Over(Some(guard))
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
                State::Queued(gate, turn) | State::Held(gate, turn) => {
                    if turn.poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.state = self.mutexes.ask(gate, self.place, None);
                }
                State::Asked(gate, completion, release) => {
                    let client = &self.mutexes.shared.client;
                    // The server that was asked says so when the host dies, and its own death ends what it was asked.
                    if completion.poll_complete(context).is_pending() {
                        client.keep_moving();
                        return Poll::Pending;
                    }
                    let answer = client.end_lock(completion, Rank(self.place.0), self.place.1);
                    self.state = self.mutexes.told(gate, self.place, answer, release.take());
                }
                State::Over(guard) => {
                    return Poll::Ready(guard.take().expect("a future that is over is not polled"));
                }
            }
        }
    }
}

impl<'a> Future for Locking<'a> {
    type Output = Result<MutexGuard<'a>, MutexError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_guard(context);
        if polled.is_pending() {
            stage::pending(context);
        }
        polled
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Over(None)) {
            State::Queued(_, turn) if turn.abandon() => {}
            State::Queued(gate, _) | State::Held(gate, _) => self.mutexes.gates.leave(gate, self.place),
            State::Asked(_, completion, _) => {
                let (mutexes, place) = (self.mutexes.clone(), self.place);
                let (completion, begun) = (Arc::clone(&completion), AtomicBool::new(false));
                let waker =
                    Waker::from(Arc::new(Unwanted { mutexes, place, completion: Arc::clone(&completion), begun }));
                if completion.poll_complete(&mut Context::from_waker(&waker)).is_ready() {
                    waker.wake();
                } else {
                    self.mutexes.shared.client.keep_moving();
                }
            }
            State::Over(guard) => drop(guard),
        }
    }
}

/// A mutex that is given back once it comes.
struct Unwanted {
    mutexes: Mutexes,
    place: (u32, u64),
    completion: Arc<Completion>,
    /// Somebody gives it back.
    begun: AtomicBool,
}

impl Wake for Unwanted {
    fn wake(self: Arc<Self>) {
        // What completes while its waker is registered wakes, and is found complete by who registers as well.
        if self.begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::clone(&self.mutexes.shared.inner);
        // On a worker: to give it back may take an answer, which the thread that wakes may be the one to bring.
        inner.start_errand(self.place.0, move || {
            let (mutexes, place) = (&self.mutexes, self.place);
            let gate = mutexes.gate(place).expect("it was asked for at its gate");
            let answer = mutexes.shared.client.end_lock(&self.completion, Rank(place.0), place.1);
            let guard = answer.map(|taken| mutexes.guard(gate, place, taken));
            // Before the next one asks, who would be told that this rank has it.
            drop(guard);
            mutexes.gates.leave(gate, place);
        });
    }
}
