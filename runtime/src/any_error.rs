//! The error that all others become.

use std::fmt;

use crate::error::{
    AskError, CollectiveError, ConfigError, DeviceRmwError, HeapError, InitError, Lost, MessageError, MutexError,
    RmwError, TransferError, WaitError, WindowError,
};

/// Any error of longarm. Each of them becomes one by `?`, so a function that makes calls of several kinds returns
/// `Result<_, longarm::Error>`, or [`longarm::Result`](crate::Result).
///
/// A variant holds the error of the call as it was: its text is that of this one, and what it has as its source is this
/// one's. `main` may return it too; [`Debug`](fmt::Debug), which is what is shown then, reads as
/// [`Display`](fmt::Display), and of an [`AskError`] tells what was answered as well.
///
/// ```
/// use longarm::error::TransferError;
///
/// fn first_of(window: &longarm::Window<u64>, rank: u32) -> longarm::Result<u64> {
///     window.group().barrier_collective()?; // CollectiveError
///     Ok(window.get_one(rank, 0)?) // TransferError
/// }
///
/// let world = longarm::init()?; // InitError
/// let window = world.allocate_collective::<u64>(1)?; // WindowError
/// assert_eq!(first_of(&window, 0)?, 0);
/// let error = first_of(&window, 7).expect_err("there is one rank");
/// assert_eq!(error.to_string(), "get to rank 7: the world has 1 ranks");
/// assert!(matches!(error, longarm::Error::Transfer(TransferError::NoSuchRank { ranks: 1, .. })));
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// Of [`init`](crate::init) and its like.
    Init(#[from] InitError),
    /// Of a configuration that cannot be used.
    Config(#[from] ConfigError),
    /// Of a put, get or accumulate, of a handle, a scope, or quiet.
    Transfer(#[from] TransferError),
    /// Of a read-modify-write or a signal.
    Rmw(#[from] RmwError),
    /// Of a read-modify-write by an RDMA device.
    DeviceRmw(#[from] DeviceRmwError),
    /// Of waiting for a word.
    Wait(#[from] WaitError),
    /// Of a mutex.
    Mutex(#[from] MutexError),
    /// Of a collective.
    Collective(#[from] CollectiveError),
    /// Of making or freeing a window.
    Window(#[from] WindowError),
    /// Of the symmetric heap.
    Heap(#[from] HeapError),
    /// Of an active message.
    Message(#[from] MessageError),
    /// Of a question to another rank: an [`AskError`], as [`Error::downcast_ref`](std::error::Error) gives it.
    Ask(Box<dyn std::error::Error + Send + Sync>),
    /// A rank or the server of a node is gone.
    Lost(#[from] Lost),
}

impl<E: fmt::Debug + Send + Sync + 'static> From<AskError<E>> for Error {
    fn from(error: AskError<E>) -> Error {
        Error::Ask(Box::new(error))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // What a question was answered with need not have a `Display`.
            Error::Ask(error) => fmt::Debug::fmt(error, formatter),
            _ => fmt::Display::fmt(self, formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    #[test]
    fn an_error_keeps_its_text_its_source_and_itself() {
        let inner = InitError::Launcher(io::Error::other("no such socket"));
        let text = inner.to_string();
        let error = Error::from(inner);
        assert_eq!((error.to_string(), format!("{error:?}")), (text.clone(), text));
        assert!(matches!(&error, Error::Init(InitError::Launcher(cause)) if cause.to_string() == "no such socket"));
        // What the error of the call has as its source is the source of this one too, no step further away.
        let config = ConfigError::Refused { name: "LONGARM_NODES", value: "x".into(), accepted: "numbers".into() };
        let source_text = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
        let nested = InitError::from(config);
        let before = source_text(&nested);
        assert_eq!(Error::from(nested).source().map(ToString::to_string), before);
    }

    #[test]
    fn the_debug_of_an_error_of_a_question_shows_what_the_target_answered() {
        let answered = || AskError::Answered("no such cell");
        assert_eq!(format!("{:?}", answered()), "the question was answered with an error: \"no such cell\"");
        assert_eq!(format!("{:?}", Error::from(answered())), format!("{:?}", answered()));
        let unwritable = AskError::<()>::Unwritable { reason: "it has no end".into() };
        assert_eq!(format!("{unwritable:?}"), unwritable.to_string());
    }

    #[test]
    fn an_error_crosses_threads_and_becomes_a_boxed_one() {
        fn is_an_error<T: std::error::Error + Send + Sync + 'static>() {}
        is_an_error::<Error>();
    }

    #[test]
    fn a_result_with_an_error_is_not_much_larger_than_the_largest_of_its_errors() {
        let largest = size_of::<InitError>().max(size_of::<WindowError>()).max(size_of::<HeapError>());
        assert!(size_of::<Error>() <= largest + 8, "{} bytes against {largest}", size_of::<Error>());
    }
}
