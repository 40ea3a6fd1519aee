//! Calls that go on by themselves: what begins with `start_` and is not a transfer.
//!
//! ```text
//!   collectives, quiet      a worker runs the blocking call (`lane`): one for each group that has some under way
//!   waits for words         one worker looks at all of them (`watch`)
//!   locks                   the server answers, or the rank that had it gives it on (`lock`)
//!   tries and unlocks       a worker waits for the server's answer, if one is needed (`try_lock`, `errands`)
//! ```
//!
//! Workers are threads that are kept for the next call, so that a call starts none where one is free.

pub(crate) mod errands;
pub(crate) mod lane;
pub(crate) mod lock;
pub(crate) mod park;
mod quiet;
pub(crate) mod try_lock;
pub(crate) mod watch;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::Mutex;

use crate::stage;

/// A call that was started and goes on by itself: a collective, a quiet, a wait for a word. Its result comes as that of the blocking
/// call would.
///
/// Three ways to wait, as with a [`Handle`](crate::Handle): [`Started::wait`] blocks, [`Started::test`] looks, and it is a
/// [`Future`] for any executor, which blocks none of its threads. A collective or a quiet that is dropped goes on, for the others
/// wait for it; a wait that is dropped ends.
///
/// ```
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u64>(1)?;
/// let barrier = world.start_barrier_collective();
/// // ... compute ...
/// barrier.wait()?;
///
/// let flag = window.start_wait_until(0, longarm::Compare::Equal, 7);
/// window.set(world.rank(), 0, 7)?;
/// let seen = async { flag.await }; // on the executor of your choice
/// # let seen = futures_lite::future::block_on(seen);
/// assert_eq!(seen?, 7);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[must_use = "a call that was started is waited for, awaited, or left to itself by `drop`"]
pub struct Started<R, E>(Arc<Promise<R, E>>);

/// Where the result comes to.
struct Promise<R, E> {
    result: Mutex<Option<Result<R, E>>>,
    is_there: AtomicBool,
    waker: AtomicWaker,
}

/// What brings it.
pub(crate) struct Promised<R, E>(Arc<Promise<R, E>>);

/// A call, and what brings its result.
pub(crate) fn promise<R, E>() -> (Started<R, E>, Promised<R, E>) {
    let promise = Promise { result: Mutex::new(None), is_there: AtomicBool::new(false), waker: AtomicWaker::new() };
    let promise = Arc::new(promise);
    (Started(Arc::clone(&promise)), Promised(promise))
}

impl<R, E> Promised<R, E> {
    /// Here it is.
    pub(crate) fn keep(self, result: Result<R, E>) {
        *self.0.result.lock() = Some(result);
        // PAIR promise: who sees it finds the result.
        self.0.is_there.store(true, Ordering::Release);
        self.0.waker.wake();
    }

    /// Nobody wants it any more.
    pub(crate) fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<R, E> Started<R, E> {
    /// One whose result is known.
    pub(crate) fn with(result: Result<R, E>) -> Started<R, E> {
        let (started, promised) = promise();
        promised.keep(result);
        started
    }

    /// Whether the result is there.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let quiet = world.start_quiet();
    /// while !quiet.test() {
    ///     // ... compute ...
    /// }
    /// quiet.wait()?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn test(&self) -> bool {
        let is_there = self.is_there();
        if !is_there {
            stage::looked_in_vain();
        }
        is_there
    }

    fn is_there(&self) -> bool {
        // PAIR promise.
        self.0.is_there.load(Ordering::Acquire)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// As the blocking call.
    pub fn wait(self) -> Result<R, E> {
        park::block_on(|context| self.poll_result(context))
    }

    fn poll_result(&self, context: &mut Context<'_>) -> Poll<Result<R, E>> {
        if !self.is_there() {
            self.0.waker.register(context.waker());
            if !self.is_there() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.0.result.lock().take().expect("a result is taken once"))
    }
}

impl<R, E> Future for Started<R, E> {
    type Output = Result<R, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.poll_result(context);
        if polled.is_pending() {
            stage::pending(context);
        }
        polled
    }
}

impl<R, E> fmt::Debug for Started<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Started(complete: {})", self.is_there())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_result_comes_once_whoever_waits_and_in_whatever_way() {
        let (started, promised) = promise::<u32, ()>();
        assert!(!started.test() && !promised.is_dropped());
        assert!(started.poll_result(&mut Context::from_waker(Waker::noop())).is_pending());
        let other = std::thread::spawn(move || started.wait());
        promised.keep(Ok(7));
        assert_eq!(other.join().unwrap(), Ok(7));
        let (started, promised) = promise::<u32, &str>();
        promised.keep(Err("no"));
        assert!(started.test());
        assert_eq!(futures_lite::future::block_on(started), Err("no"));
        let (started, promised) = promise::<u32, ()>();
        drop(started);
        assert!(promised.is_dropped());
    }
}
