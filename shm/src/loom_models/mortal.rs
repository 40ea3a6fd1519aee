//! Atomics that a thread may die before: what `sync` gives to the models.
//!
//! A process that is killed stops between two instructions, and nothing of it runs any more, no destructor either. In a
//! model, [`die_after`] lets a thread do some atomic operations and ends it at the next one, by unwinding; whatever runs
//! on the way out changes nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use loom::sync::atomic::{self, Ordering};

/// How many atomic operations a thread has left.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    Endless,
    Left(u32),
    Over,
}

loom::thread_local! {
    static LIFE: Cell<Life> = Cell::new(Life::Endless);
}

struct Killed;

/// Does what the kernel does for a thread: no step of its own.
pub(crate) fn in_kernel<R>(work: impl FnOnce() -> R) -> R {
    let before = LIFE.with(|life| life.replace(Life::Endless));
    let result = work();
    LIFE.with(|life| life.set(before));
    result
}

/// Runs `work` until it wants to do its atomic operation number `steps`, counted from 0. `None`: it died there.
pub(crate) fn die_after<R>(steps: u32, work: impl FnOnce() -> R) -> Option<R> {
    LIFE.with(|life| life.set(Life::Left(steps)));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    LIFE.with(|life| life.set(Life::Endless));
    match outcome {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Killed>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Whether the operation is done. It is not by the dead.
fn lives() -> bool {
    LIFE.with(|life| match life.get() {
        Life::Endless => true,
        Life::Left(0) => {
            life.set(Life::Over);
            resume_unwind(Box::new(Killed))
        }
        Life::Left(steps) => {
            life.set(Life::Left(steps - 1));
            true
        }
        Life::Over => false,
    })
}

macro_rules! mortal {
    ($($name:ident of $value:ty),+) => {$(
        /// As the standard library's.
        #[derive(Debug, Default)]
        pub struct $name(atomic::$name);

        #[allow(dead_code, missing_docs, reason = "the same for all widths, and as in the standard library")]
        impl $name {
            pub fn new(value: $value) -> Self {
                $name(atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                if lives() { self.0.load(order) } else { 0 }
            }

            pub fn store(&self, value: $value, order: Ordering) {
                if lives() {
                    self.0.store(value, order);
                }
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                if lives() { self.0.swap(value, order) } else { 0 }
            }

            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                if lives() { self.0.fetch_add(value, order) } else { 0 }
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                if lives() { self.0.fetch_sub(value, order) } else { 0 }
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                if lives() { self.0.fetch_or(value, order) } else { 0 }
            }

            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                if lives() { self.0.fetch_and(value, order) } else { 0 }
            }

            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if lives() { self.0.compare_exchange(from, to, success, failure) } else { Err(0) }
            }
        }
    )+};
}
mortal! { AtomicU32 of u32, AtomicU64 of u64 }
