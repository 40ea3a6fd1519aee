//! Names of nonblocking operations.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use longarm_client::{Awaited, Client, Completion, Operation, TransferError};
use longarm_proto::Rank;

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
    client: Arc<Client>,
    completion: Arc<Completion>,
    operation: Operation,
    rank: Rank,
    output: Option<Output<R>>,
}

impl<R> Handle<R> {
    pub(crate) fn new(
        client: &Arc<Client>,
        completion: Arc<Completion>,
        (operation, rank): (Operation, Rank),
        output: impl FnOnce(&Completion) -> R + Send + 'static,
    ) -> Handle<R> {
        Handle { client: Arc::clone(client), completion, operation, rank, output: Some(Box::new(output)) }
    }

    /// Whether the operation is complete; moves what can be moved first.
    pub fn test(&self) -> bool {
        if !self.completion.is_complete() {
            self.client.poll_progress();
        }
        self.completion.is_complete()
    }

    /// Waits, and gives back the buffer or the value.
    ///
    /// # Errors
    /// [`TransferError::Lost`] if the target is gone, [`TransferError::Refused`] if its server said no.
    pub fn wait(mut self) -> Result<R, TransferError> {
        self.client.wait_completion(Awaited::rank(self.operation, self.rank), &self.completion);
        self.finish()
    }

    fn finish(&mut self) -> Result<R, TransferError> {
        let (operation, rank) = (self.operation, self.rank);
        if let Some(outcome) = self.completion.failure() {
            return Err(self.client.explain(outcome, operation, rank));
        }
        let output = self.output.take().expect("a handle is finished once");
        Ok(output(&self.completion))
    }
}

impl<R> Unpin for Handle<R> {}

impl<R> Future for Handle<R> {
    type Output = Result<R, TransferError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.completion.poll_complete(context) {
            Poll::Pending => {
                self.client.keep_moving();
                Poll::Pending
            }
            Poll::Ready(()) => Poll::Ready(self.finish()),
        }
    }
}

impl<R> std::fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let complete = self.completion.is_complete();
        write!(f, "Handle({} to rank {}, complete: {complete})", self.operation, self.rank)
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
    let client = &handles.first()?.client;
    Some(client.wait_any(|| handles.iter().position(|handle| handle.completion.is_complete())))
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
    let complete = handles.iter().enumerate().filter(|(_, handle)| handle.completion.is_complete());
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
