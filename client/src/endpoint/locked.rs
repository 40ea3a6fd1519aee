//! Taking an endpoint's lock, and giving it back.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

use super::published::Published;
use super::state::State;
use crate::wakers;

/// [`Locked::release_as_published`] consumes it.
const GIVEN_BACK: &str = "an endpoint that was given back is not used";

/// An endpoint in the hands of one thread. When it is given back, what others may know of it is published, and who is to be woken
/// for what was completed is woken.
pub(super) struct Locked<'a> {
    /// `None` once it was given back with what is published still right.
    state: Option<MutexGuard<'a, State>>,
    published: &'a Published,
    /// Last, so that it ends when the lock is given back.
    _kept: wakers::Kept,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        self.state.as_ref().expect(GIVEN_BACK)
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect(GIVEN_BACK)
    }
}

impl<'a> Locked<'a> {
    #[inline]
    pub(super) fn lock(state: &'a Mutex<State>, published: &'a Published) -> Locked<'a> {
        let kept = wakers::keep();
        Locked { state: Some(state.lock()), published, _kept: kept }
    }

    #[inline]
    pub(super) fn try_lock(state: &'a Mutex<State>, published: &'a Published) -> Option<Locked<'a>> {
        let kept = wakers::keep();
        state.try_lock().map(|state| Locked { state: Some(state), published, _kept: kept })
    }

    /// Gives it back with nothing changed that is published: for the shortest ways.
    #[inline]
    pub(super) fn release_as_published(mut self) {
        drop(self.state.take());
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(state) = &mut self.state {
            self.published.publish(state);
        }
    }
}
