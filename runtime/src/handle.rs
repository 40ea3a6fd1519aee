//! Names of nonblocking operations.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use longarm_client::{Awaited, Client, Completion, Operation, TransferError};
use longarm_proto::Rank;

use crate::stage;

/// Makes what an operation brings out of its completion.
type Output<R> = Box<dyn FnOnce(&Completion) -> R + Send>;

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
    /// It was not.
    Started(Operating<R>),
    /// Its output was taken.
    Over,
}

/// An operation that somebody else completes.
struct Operating<R> {
    client: Arc<Client>,
    completion: Arc<Completion>,
    operation: Operation,
    rank: Rank,
    output: Output<R>,
}

impl<R> Handle<R> {
    pub(crate) fn new(
        client: &Arc<Client>,
        completion: Arc<Completion>,
        (operation, rank): (Operation, Rank),
        output: impl FnOnce(&Completion) -> R + Send + 'static,
    ) -> Handle<R> {
        let (client, output) = (Arc::clone(client), Box::new(output));
        Handle { state: State::Started(Operating { client, completion, operation, rank, output }) }
    }

    /// Of an operation that is complete, and has brought this. Nothing is allocated for it.
    #[inline]
    pub(crate) fn done(output: R) -> Handle<R> {
        Handle { state: State::Done(output) }
    }

    /// Whether the operation is complete; moves what can be moved first.
    pub fn test(&self) -> bool {
        if let State::Started(operating) = &self.state
            && !operating.completion.is_complete()
        {
            operating.client.poll_progress();
            if !operating.completion.is_complete() {
                stage::looked_in_vain();
            }
        }
        self.is_complete()
    }

    fn is_complete(&self) -> bool {
        match &self.state {
            State::Started(operating) => operating.completion.is_complete(),
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
            State::Started(operating) => operating.wait(),
            State::Over => over(),
        }
    }
}

impl<R> Operating<R> {
    fn wait(self) -> Result<R, TransferError> {
        self.client.wait_completion(Awaited::rank(self.operation, self.rank), &self.completion);
        self.finish()
    }

    fn finish(self) -> Result<R, TransferError> {
        match self.completion.failure() {
            Some(outcome) => Err(self.client.explain(outcome, self.operation, self.rank)),
            None => Ok((self.output)(&self.completion)),
        }
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
        if let State::Started(operating) = &self.state
            && operating.completion.poll_complete(context).is_pending()
        {
            operating.client.keep_moving();
            stage::pending(context);
            return Poll::Pending;
        }
        Poll::Ready(match std::mem::replace(&mut self.state, State::Over) {
            State::Done(output) => Ok(output),
            State::Started(operating) => operating.finish(),
            State::Over => over(),
        })
    }
}

impl<R> std::fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let complete = self.is_complete();
        match &self.state {
            State::Started(operating) => {
                let Operating { operation, rank, .. } = operating;
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
        State::Started(operating) => Some(operating.client.wait_any(look)),
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
