//! Names of nonblocking operations.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use longarm_client::{Awaited, Client, Completion, Operation, TransferError};
use longarm_proto::Rank;

use crate::stage;

/// One nonblocking operation. Its buffer, or its value, comes back when it is complete.
///
/// Three ways to wait, which can be mixed: [`Handle::wait`] blocks, [`Handle::test`] looks, and the handle itself is
/// a [`Future`] for any executor. A put's or accumulate's completion is local (the buffer may be reused); a get's
/// means that the data is here.
///
/// Dropping or forgetting a handle is safe: the operation becomes an implicit one, whose buffer is kept until it is
/// done, and which [`World::quiet`](crate::World::quiet) completes.
///
/// `ARMCI_NbPut` with `ARMCI_Wait` and `ARMCI_Test`.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u64>(4)?;
/// let put = window.start_put(0, 0, vec![1, 2])?;
/// while !put.test() {
///     // ... compute ...
/// }
/// let buffer = put.wait()?; // or put.await
/// let counter = window.start_fetch_add(0, 0, 5)?;
/// assert_eq!(counter.wait()?, buffer[0]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[must_use = "an operation without a handle is completed by quiet; say so with `drop`"]
pub struct Handle<R> {
    state: State<R>,
}

enum State<R> {
    /// It was complete when it had been started.
    Done(R),
    /// It was not. Behind a pointer: so a handle has three words, and is moved as whole words. One that was written in pieces and read as a whole took
    /// twice as long.
    Started(Box<dyn Begun<R>>),
    /// Its output was taken.
    Over,
}

/// An operation that somebody else completes.
struct Operating {
    client: Arc<Client>,
    completion: Arc<Completion>,
    operation: Operation,
    rank: Rank,
}

/// The same, and what it brings.
trait Begun<R>: Send {
    fn operating(&self) -> &Operating;

    /// Makes it out of the completion, which is complete.
    fn output(self: Box<Self>) -> R;
}

/// The same, with what makes it.
struct BegunWith<F> {
    operating: Operating,
    output: F,
}

impl<R, F: FnOnce(&Completion) -> R + Send> Begun<R> for BegunWith<F> {
    fn operating(&self) -> &Operating {
        &self.operating
    }

    fn output(self: Box<Self>) -> R {
        (self.output)(&self.operating.completion)
    }
}

const _: () = assert!(size_of::<Handle<Vec<u8>>>() == 3 * size_of::<usize>());

impl<R> Handle<R> {
    pub(crate) fn new(
        client: &Arc<Client>,
        completion: Arc<Completion>,
        (operation, rank): (Operation, Rank),
        output: impl FnOnce(&Completion) -> R + Send + 'static,
    ) -> Handle<R> {
        let operating = Operating { client: Arc::clone(client), completion, operation, rank };
        Handle { state: State::Started(Box::new(BegunWith { operating, output })) }
    }

    /// Of an operation that is complete, and has brought this. Nothing is allocated for it.
    #[inline]
    pub(crate) fn done(output: R) -> Handle<R> {
        Handle { state: State::Done(output) }
    }

    /// Whether the operation is complete; moves what can be moved first.
    pub fn test(&self) -> bool {
        if let State::Started(started) = &self.state {
            let Operating { client, completion, .. } = started.operating();
            if !completion.is_complete() {
                client.poll_progress();
            }
            if !completion.is_complete() {
                stage::looked_in_vain();
            }
        }
        self.is_complete()
    }

    fn is_complete(&self) -> bool {
        match &self.state {
            State::Started(started) => started.operating().completion.is_complete(),
            State::Done(_) | State::Over => true,
        }
    }

    /// Waits, and gives back the buffer or the value.
    ///
    /// # Errors
    /// [`TransferError::Lost`] if the target is gone, [`TransferError::Refused`] if its server said no.
    #[inline]
    pub fn wait(self) -> Result<R, TransferError> {
        match self.state {
            State::Done(output) => Ok(output),
            State::Started(started) => {
                let Operating { client, completion, operation, rank } = started.operating();
                client.wait_completion(Awaited::rank(*operation, *rank), completion);
                finish(started)
            }
            State::Over => over(),
        }
    }
}

/// What a complete operation brings.
fn finish<R>(started: Box<dyn Begun<R>>) -> Result<R, TransferError> {
    let Operating { client, completion, operation, rank } = started.operating();
    match completion.failure() {
        Some(outcome) => Err(client.explain(outcome, *operation, *rank)),
        None => Ok(started.output()),
    }
}

#[cold]
pub(crate) fn over() -> ! {
    panic!("a handle whose output was taken is asked for it again");
}

impl<R> Unpin for Handle<R> {}

impl<R> Future for Handle<R> {
    type Output = Result<R, TransferError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Started(started) = &self.state
            && let Operating { client, completion, .. } = started.operating()
            && completion.poll_complete(context).is_pending()
        {
            client.keep_moving();
            stage::pending(context);
            return Poll::Pending;
        }
        Poll::Ready(match std::mem::replace(&mut self.state, State::Over) {
            State::Done(output) => Ok(output),
            State::Started(started) => finish(started),
            State::Over => over(),
        })
    }
}

impl<R> std::fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let complete = self.is_complete();
        match &self.state {
            State::Started(started) => {
                let Operating { operation, rank, .. } = started.operating();
                write!(f, "Handle({operation} to rank {rank}, complete: {complete})")
            }
            State::Done(_) | State::Over => write!(f, "Handle(complete: {complete})"),
        }
    }
}

/// Waits until one of the operations is complete and gives its place in the list. `None` for an empty list.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u8>(9)?;
/// let gets = [window.start_get(0, 0, vec![0; 3])?, window.start_get(0, 3, vec![0; 6])?];
/// assert!(longarm::wait_any(&gets).is_some_and(|place| gets[place].test()));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub fn wait_any<R>(handles: &[Handle<R>]) -> Option<usize> {
    let look = || handles.iter().position(Handle::is_complete);
    if let Some(complete) = look() {
        return Some(complete);
    }
    match &handles.first()?.state {
        State::Started(started) => Some(started.operating().client.wait_any(look)),
        State::Done(_) | State::Over => unreachable!("it is complete"),
    }
}

/// Waits until at least one of the operations is complete and gives the places of all that are.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u8>(9)?;
/// let gets = [window.start_get(0, 0, vec![0; 3])?, window.start_get(0, 3, vec![0; 6])?];
/// assert!(longarm::wait_some(&gets).iter().all(|place| gets[*place].test()));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub fn wait_some<R>(handles: &[Handle<R>]) -> Vec<usize> {
    if wait_any(handles).is_none() {
        return Vec::new();
    }
    let complete = handles.iter().enumerate().filter(|(_, handle)| handle.is_complete());
    complete.map(|(place, _)| place).collect()
}

/// Waits until all operations are complete and gives what they bring. `ARMCI_WaitAll`.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u8>(9)?;
/// let gets = (0..3).map(|at| window.start_get(0, 3 * at, vec![0; 3])).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(longarm::wait_all(gets)?.concat(), [0; 9]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// # Errors
/// The first in the order of the handles; the others are waited for all the same.
pub fn wait_all<R>(handles: impl IntoIterator<Item = Handle<R>>) -> Result<Vec<R>, TransferError> {
    let outcomes: Vec<Result<R, TransferError>> = handles.into_iter().map(Handle::wait).collect();
    outcomes.into_iter().collect()
}
