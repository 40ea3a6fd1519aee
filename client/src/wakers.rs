//! Tasks are woken where this thread holds nothing of ours: a waker is the program's code, which may call straight back into
//! the client.
//!
//! Operations complete deep inside an endpoint's lock, or inside a network's link below that. Whoever takes such a lock
//! first says that wakers are to be kept ([`keep`]); they are run when the last of those guards of the thread is dropped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::task::Waker;

/// In `GUARDS`: something is in `KEPT`.
const ANY: u32 = 1;
/// In `GUARDS`: a guard.
const GUARD: u32 = 2;

thread_local! {
    /// How many guards this thread has, and whether something is kept: one word, for the shortest operations look at it.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    static KEPT: RefCell<VecDeque<Waker>> = const { RefCell::new(VecDeque::new()) };
}

/// While it is there this thread keeps the wakers of what it completes. Take it before a lock, so that it is dropped after.
#[must_use]
pub(crate) struct Kept {
    /// It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

/// From now on this thread keeps wakers.
#[inline]
pub(crate) fn keep() -> Kept {
    GUARDS.set(GUARDS.get() + GUARD);
    Kept { not_send: PhantomData }
}

impl Drop for Kept {
    #[inline]
    fn drop(&mut self) {
        let left = GUARDS.get() - GUARD;
        GUARDS.set(left);
        if left == ANY {
            run();
        }
    }
}

/// Whether this thread keeps any.
pub(crate) fn any() -> bool {
    GUARDS.get() & ANY != 0
}

fn note_any(any: bool) {
    GUARDS.set(GUARDS.get() & !ANY | if any { ANY } else { 0 });
}

/// Wakes a task, now or once this thread lets go of what it holds.
pub(crate) fn wake(waker: Waker) {
    let mut waker = Some(waker);
    if GUARDS.get() >= GUARD {
        // A thread that is ending may have given the list back already.
        let _ = KEPT.try_with(|kept| kept.borrow_mut().extend(waker.take()));
        note_any(waker.is_none());
    }
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cold]
fn run() {
    // One by one: what a waker calls may complete something itself, and where one panics the others are run later.
    while let Some(waker) = next() {
        waker.wake();
    }
}

fn next() -> Option<Waker> {
    let next = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        (kept.pop_front(), !kept.is_empty())
    });
    let (waker, are_more) = next.unwrap_or((None, false));
    note_any(are_more);
    waker
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use longarm_shm::sync::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakers_are_kept_until_the_last_guard_is_gone() {
        let counts = Arc::<Counts>::default();
        let count = || counts.0.load(Ordering::Relaxed);
        wake(Waker::from(Arc::clone(&counts)));
        assert_eq!((count(), any()), (1, false), "nothing is held");
        let outer = keep();
        let inner = keep();
        wake(Waker::from(Arc::clone(&counts)));
        drop(inner);
        assert_eq!((count(), any()), (1, true));
        drop(outer);
        assert_eq!((count(), any()), (2, false));
    }

    #[test]
    fn what_a_waker_completes_is_woken_too() {
        struct Chain(Arc<Counts>);
        impl Wake for Chain {
            fn wake(self: Arc<Self>) {
                assert!(!any(), "a call in here keeps the server that it drives");
                let _inner = keep();
                wake(Waker::from(Arc::clone(&self.0)));
            }
        }
        let counts = Arc::<Counts>::default();
        let outer = keep();
        wake(Waker::from(Arc::new(Chain(Arc::clone(&counts)))));
        drop(outer);
        assert_eq!((counts.0.load(Ordering::Relaxed), any()), (1, false));
    }

    #[test]
    fn where_a_waker_panics_the_others_are_woken_later() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let counts = Arc::<Counts>::default();
        let unwound = std::panic::catch_unwind(|| {
            let _guard = keep();
            wake(Waker::from(Arc::new(Panics)));
            wake(Waker::from(Arc::clone(&counts)));
        });
        assert!(unwound.is_err());
        drop(keep());
        assert_eq!((counts.0.load(Ordering::Relaxed), any()), (1, false));
    }
}
