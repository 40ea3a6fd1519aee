//! Active messages, as the world sends and takes them.

use std::sync::Arc;

use longarm_proto::Rank;

use super::World;
use crate::error::{MessageError, WaitError};
use crate::message::{Message, send};
use crate::question::ANSWERS;

impl World {
    /// Says what a message with this number does here. Handlers run one at a time; messages of one source run in their order. A
    /// handler must not wait for other ranks. A message that comes before its handler is registered waits for it.
    ///
    /// Handlers run on a thread of longarm, and on those that wait in [`World::run_handlers_until`]; in no other call. So a
    /// thread may hold a lock that a handler takes while it makes a call, as long as that call does not wait for what the handler
    /// does. Only where the system gives no thread they run on whichever waits in a call, and a warning says so.
    ///
    /// A handler is kept until the world is finalized or dropped. It may hold windows and groups; one that holds a [`World`]
    /// keeps that from being dropped, so such a world has to be finalized.
    ///
    /// A handler that panics ends this rank, and with it the job: somebody may wait for what it was to do, and would for
    /// ever. Where survivors go on (`LONGARM_ON_FAILURE=continue`) their calls that need this rank fail as after any death.
    ///
    /// # Errors
    /// [`MessageError::HandlerExists`], also for `u32::MAX`, which longarm has for answers to [`World::ask`];
    /// [`MessageError::Finalized`].
    pub fn register_handler(
        &self,
        handler: u32,
        run: impl Fn(&Message<'_>) + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        if handler == ANSWERS {
            return Err(MessageError::HandlerExists { handler });
        }
        self.inner.handlers.register(&self.inner.client, handler, Arc::new(run))
    }

    /// Waits until `check` gives something, and runs handlers on this thread meanwhile: sooner than longarm's own thread would,
    /// which has to be woken first. What a handler that ran here has done ends the wait at once; what happens elsewhere within a
    /// few milliseconds. Not to be called from a handler, nor with a lock that a handler takes.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::sync::Arc;
    ///
    /// let world = longarm::init()?;
    /// let heard = Arc::new(AtomicBool::new(false));
    /// let hears = Arc::clone(&heard);
    /// world.register_handler(1, move |_| hears.store(true, Ordering::Release))?;
    /// world.send_message(world.rank(), 1, &[], &[])?;
    /// world.run_handlers_until(|| heard.load(Ordering::Acquire).then_some(()))?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WaitError::Lost`](crate::error::WaitError::Lost): a rank died that might have been the one to send the message.
    pub fn run_handlers_until<R>(&self, check: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        self.inner.client.wait_running_handlers(check)
    }

    /// Runs a handler at another rank, or at this one, with up to 16 words and a payload. On return the payload may
    /// be reused. The handler runs some time later, whatever the target computes.
    ///
    /// # Errors
    /// [`MessageError::TooManyArguments`]; the target does not exist or is lost.
    pub fn send_message(&self, rank: u32, handler: u32, arguments: &[u64], payload: &[u8]) -> Result<(), MessageError> {
        send(&self.inner.client, Rank(rank), (handler, false), arguments, payload)
    }
}
