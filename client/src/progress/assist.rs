//! The server of this node, if this process hosts it: waiting threads drive it, and say so.

use std::time::Duration;

use longarm_shm::sync::AtomicU32;

use crate::wakers;

/// A server in this process, which a waiting thread may drive.
pub trait Assist: Send + Sync {
    /// Takes it, unless another thread drives it.
    fn take(&self) -> Option<Box<dyn AssistTurn + '_>>;

    /// Says that a thread goes to sleep in a call, or has woken: its processor is free meanwhile.
    fn rest(&self, resting: bool);

    /// Says that a thread is about to wait, and will take it then, or that this is over: no other thread needs to be woken
    /// for it. That a thread goes to sleep ends it too.
    fn suppress_wakeups(&self, suppressed: bool);

    /// How often something moved in it so far.
    fn moves(&self) -> u32;
}

/// A server in the hands of a waiting thread. Dropping gives it back.
pub trait AssistTurn {
    /// One turn; true if anything moved.
    fn turn(&mut self) -> bool;

    /// Sleeps until there is something for the server to do, until an eventcount is notified at which this process listens
    /// ([`longarm_shm::Eventcount::listen_unless`]), or until the time is up. False: it cannot now, and has not slept.
    fn sleep(&mut self, timeout: Option<Duration>) -> bool;

    /// The turn after a sleep, which knows what is ready; true if anything moved.
    fn turn_after_sleep(&mut self) -> bool;
}

/// What is known of those who ask this node's server.
#[derive(Default)]
pub(crate) struct Asked {
    /// How often something had moved there at the last look.
    pub(crate) moves: AtomicU32,
    /// Calls for which it counts as asked if nothing moves.
    pub(crate) calls: AtomicU32,
}

/// While it is there a thread is about to wait for another node: see [`crate::Client::expect_from`].
#[must_use]
pub struct Expecting<'a>(pub(crate) &'a dyn Assist);

impl Expecting<'_> {
    /// It waits for another one now: perhaps others were to be woken while it waited for the one before.
    pub fn renew(&self) {
        self.0.suppress_wakeups(true);
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        self.0.suppress_wakeups(false);
    }
}

/// The server of this process in the hands of a waiting thread, which wakes nobody meanwhile.
pub(crate) struct Assistant<'a> {
    pub(crate) turn: Box<dyn AssistTurn + 'a>,
    _kept: wakers::Kept,
}

impl Assistant<'_> {
    pub(crate) fn take(assist: &dyn Assist) -> Option<Assistant<'_>> {
        let kept = wakers::keep();
        assist.take().map(|turn| Assistant { turn, _kept: kept })
    }
}
