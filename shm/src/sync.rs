//! The atomics of longarm: the standard library's, or loom's where the model checker runs.
//!
//! No other file names them, so that whatever is built on them can be put under the model checker.

#[cfg(not(loom))]
pub(crate) use std::{hint::spin_loop, thread::yield_now};

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

// The model checker has to be told that a spinning thread waits for another one, or it spins forever.
#[cfg(loom)]
pub(crate) use loom::{thread::yield_now as spin_loop, thread::yield_now};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

// In the models a thread may die before any of its atomic operations.
#[cfg(all(test, loom))]
pub use crate::loom_models::mortal::{AtomicU32, AtomicU64};
#[cfg(all(not(test), loom))]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};

/// How many times a loop looks at a word that another rank is about to change before it yields or gives up.
///
/// Small enough that an oversubscribed machine loses nothing, long enough for a rank that is running to finish a copy
/// of one chunk.
#[cfg(not(loom))]
pub(crate) const SPIN_COUNT_MAX: u32 = 128;
#[cfg(loom)]
pub(crate) const SPIN_COUNT_MAX: u32 = 2;
