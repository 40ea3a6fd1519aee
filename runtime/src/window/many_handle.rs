//! The name of a list of single elements that goes on by itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use longarm_client::TransferError;

use crate::handle::{Handle, over};

/// A list of single elements that was started: by [`Window::start_put_many`](crate::Window::start_put_many) and its like. The
/// list, or what was read, comes back when all of it is complete.
///
/// It is waited for, tested or awaited as a [`Handle`], and dropped as one. After an error of one rank those of other ranks go on.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u64>(4)?;
/// let put = window.start_put_many(vec![(0, 1, 5), (0, 3, 6)])?;
/// while !put.test() {
///     // ... compute ...
/// }
/// let list = put.wait()?; // or put.await
/// assert_eq!(list, [(0, 1, 5), (0, 3, 6)]);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[must_use = "a list without a handle is completed by quiet; say so with `drop`"]
pub struct ManyHandle<T, R> {
    output: Option<R>,
    /// What is not complete, as far as is known.
    asked: Vec<Asked<T>>,
    place: PlaceAll<T, R>,
}

/// What is under way to one rank.
pub(super) struct Asked<T> {
    /// Where its elements stand in the list.
    pub(super) places: Vec<usize>,
    pub(super) handle: Handle<Vec<T>>,
}

/// Puts what a rank's elements were into the output.
type PlaceAll<T, R> = fn(&mut R, &[usize], Vec<T>);

impl<T, R> ManyHandle<T, R> {
    /// Of a list that is given back as it is.
    pub(super) fn of_list(list: R, handles: Vec<Handle<Vec<T>>>) -> ManyHandle<T, R> {
        let asked = handles.into_iter().map(|handle| Asked { places: Vec::new(), handle }).collect();
        ManyHandle { output: Some(list), asked, place: |_, _, _| {} }
    }

    /// Whether all of it is complete; moves what can be moved first.
    pub fn test(&self) -> bool {
        self.asked.iter().all(|asked| asked.handle.test())
    }

    /// Waits, and gives back the list, or what was read.
    ///
    /// # Errors
    /// As [`Handle::wait`], of one of the ranks for which it could not be done.
    pub fn wait(mut self) -> Result<R, TransferError> {
        let mut output = self.output.take().unwrap_or_else(|| over());
        for Asked { places, handle } in self.asked {
            (self.place)(&mut output, &places, handle.wait()?);
        }
        Ok(output)
    }
}

impl<T> ManyHandle<T, Vec<T>> {
    /// Of elements, of which those that are asked for are not here yet.
    pub(super) fn of_places(elements: Vec<T>, asked: Vec<Asked<T>>) -> ManyHandle<T, Vec<T>> {
        let place: PlaceAll<T, Vec<T>> = |elements, places, read| {
            places.iter().zip(read).for_each(|(place, element)| elements[*place] = element);
        };
        ManyHandle { output: Some(elements), asked, place }
    }
}

impl<T, R> Unpin for ManyHandle<T, R> {}

impl<T, R> Future for ManyHandle<T, R> {
    type Output = Result<R, TransferError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { output, asked, place } = &mut *self;
        // One that is not complete wakes the task, which then goes on with those before it.
        while let Some(Asked { places, handle }) = asked.last_mut() {
            match Pin::new(handle).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(elements)) => place(output.as_mut().unwrap_or_else(|| over()), places, elements),
                Poll::Ready(Err(error)) => {
                    (*output, *asked) = (None, Vec::new());
                    return Poll::Ready(Err(error));
                }
            }
            asked.pop();
        }
        Poll::Ready(Ok(output.take().unwrap_or_else(|| over())))
    }
}

impl<T, R> std::fmt::Debug for ManyHandle<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.asked.iter().map(|asked| &asked.handle)).finish()
    }
}
