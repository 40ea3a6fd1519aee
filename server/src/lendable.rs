//! A value that its owner has, and may give away for a while.

use std::ops::{Deref, DerefMut};

/// The owner has it, except while it is lent out. Whoever lends it out sees to it that it is back before it is used.
pub(crate) struct Lendable<T>(Option<Box<T>>);

const LENT_OUT: &str = "what is lent out within a turn is back before the turn goes on";

impl<T> Lendable<T> {
    pub(crate) fn new(value: T) -> Lendable<T> {
        Lendable(Some(Box::new(value)))
    }

    /// Gives it away. `None`: it is lent out already.
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        self.0.take()
    }

    pub(crate) fn into_inner(self) -> T {
        *self.0.expect(LENT_OUT)
    }

    pub(crate) fn is_lent_out(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn give_back(&mut self, value: Box<T>) {
        self.0 = Some(value);
    }
}

impl<T> Deref for Lendable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect(LENT_OUT)
    }
}

impl<T> DerefMut for Lendable<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect(LENT_OUT)
    }
}
