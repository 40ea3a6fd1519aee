//! Tasks that look again when somebody has died.

use std::sync::{Arc, Weak};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

/// Those that wait for somebody. One that is gone is forgotten when others come.
#[derive(Default)]
pub(crate) struct DeathWakers(Mutex<Vec<Weak<AtomicWaker>>>);

impl DeathWakers {
    /// One more, as long as the result is there.
    pub(crate) fn enter(&self) -> Arc<AtomicWaker> {
        let waker = Arc::new(AtomicWaker::new());
        let mut entered = self.0.lock();
        if entered.len() == entered.capacity() {
            entered.retain(|other| other.strong_count() > 0);
        }
        entered.push(Arc::downgrade(&waker));
        waker
    }

    /// Somebody has died, and that is noted.
    pub(crate) fn wake_all(&self) {
        // Without the lock: a waker is the program's.
        let entered: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        entered.iter().for_each(|waker| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let wakers = DeathWakers::default();
        let first = wakers.enter();
        (0..1000).for_each(|_| drop(wakers.enter()));
        assert!(wakers.0.lock().len() < 10);
        assert!(wakers.0.lock().iter().any(|waker| waker.upgrade().is_some_and(|other| Arc::ptr_eq(&other, &first))));
    }
}
