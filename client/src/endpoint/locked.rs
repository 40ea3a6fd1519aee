//! Taking an endpoint's lock, and giving it back.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

use super::published::Published;
use super::state::State;
use crate::wakers;

/// An endpoint in the hands of one thread. When it is given back, what others may know of it is published, and who is to be woken
/// for what was completed is woken.
pub(super) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    published: &'a Published,
    /// What is published is still right.
    as_published: bool,
    /// Last, so that it ends when the lock is given back.
    _kept: wakers::Kept,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl<'a> Locked<'a> {
    #[inline]
    pub(super) fn lock(state: &'a Mutex<State>, published: &'a Published) -> Locked<'a> {
        let kept = wakers::keep();
        Locked { state: state.lock(), published, as_published: false, _kept: kept }
    }

    #[inline]
    pub(super) fn try_lock(state: &'a Mutex<State>, published: &'a Published) -> Option<Locked<'a>> {
        let kept = wakers::keep();
        state.try_lock().map(|state| Locked { state, published, as_published: false, _kept: kept })
    }

    /// Gives it back with nothing changed that is published: for the shortest ways.
    #[inline]
    pub(super) fn release_as_published(mut self) {
        self.as_published = true;
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.as_published {
            self.published.publish(&mut self.state);
        }
    }
}
