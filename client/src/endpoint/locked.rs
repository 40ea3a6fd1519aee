//! Taking an endpoint's lock.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

use super::state::State;
use crate::wakers;

/// An endpoint in the hands of one thread. Who is to be woken for what that completes is woken when it is given back.
pub(super) struct Locked<'a> {
    state: MutexGuard<'a, State>,
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

impl Locked<'_> {
    #[inline]
    pub(super) fn lock(state: &Mutex<State>) -> Locked<'_> {
        let kept = wakers::keep();
        Locked { state: state.lock(), _kept: kept }
    }

    #[inline]
    pub(super) fn try_lock(state: &Mutex<State>) -> Option<Locked<'_>> {
        let kept = wakers::keep();
        state.try_lock().map(|state| Locked { state, _kept: kept })
    }
}
