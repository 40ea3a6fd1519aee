//! Handles of nonblocking transfers.
//!
//! A handle in C memory holds a number, 0 when it names nothing. What the number names stands here, so that a handle
//! may be copied, forgotten or waited for twice: an unknown number names nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use longarm::error::Operation;
use longarm::ffi::Completion;
use longarm::ffi::sync::{AtomicBool, AtomicU64, Ordering};
use parking_lot::Mutex;

/// `armci_hdl_t`.
#[repr(C)]
pub struct CHandle {
    number: u64,
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<CHandle>() == 32);

/// One transfer on its way.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) operation: Operation,
    pub(crate) rank: u32,
    pub(crate) completion: Arc<Completion>,
}

impl Pending {
    /// Whether a wait has something to wait for, or a failure to tell.
    fn is_worth_keeping(&self) -> bool {
        !self.completion.is_complete() || self.completion.failure().is_some()
    }
}

/// See the module.
pub(crate) struct Handles {
    /// Whether nothing was ever kept. On one node nothing is, and programs wait all the same.
    untouched: AtomicBool,
    next: AtomicU64,
    named: Mutex<HashMap<u64, Vec<Pending>>>,
    implicit: Mutex<Vec<Pending>>,
}

/// From so many implicit transfers on, those that are complete are forgotten before one more is kept.
const IMPLICIT_TIDY: usize = 256;
/// The same for handles, whenever their table is full.
const NAMED_TIDY: usize = 1024;

/// Numbers begin anywhere, so that what lies in memory that nobody has initialised is hardly ever one.
fn first_number() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles {
            untouched: AtomicBool::new(true),
            next: AtomicU64::new(first_number()),
            named: Mutex::default(),
            implicit: Mutex::default(),
        }
    }

    /// Whether nothing was ever kept.
    #[inline(always)]
    fn is_untouched(&self) -> bool {
        // Relaxed: a thread sees what it has kept itself, and whoever waits for another thread's was told of it by something that orders.
        self.untouched.load(Ordering::Relaxed)
    }

    /// Keeps a transfer under a handle, besides those that it names already.
    ///
    /// # Safety
    /// `handle` is null or points to a handle that nobody else uses meanwhile.
    pub(crate) unsafe fn keep(&self, handle: *mut CHandle, pending: Pending) {
        self.untouched.store(false, Ordering::Relaxed);
        // SAFETY: this function's own contract.
        let Some(handle) = (unsafe { handle.as_mut() }) else {
            let mut implicit = self.implicit.lock();
            if implicit.len() >= IMPLICIT_TIDY {
                implicit.retain(Pending::is_worth_keeping);
            }
            implicit.push(pending);
            return;
        };
        let mut named = self.named.lock();
        if let Some(transfers) = named.get_mut(&handle.number) {
            transfers.push(pending);
            return;
        }
        if named.len() >= NAMED_TIDY && named.len() == named.capacity() {
            // Handles that were emptied without a wait leave their numbers here.
            named.retain(|_, transfers| transfers.iter().any(Pending::is_worth_keeping));
        }
        handle.number = self.next.fetch_add(1, Ordering::Relaxed).max(1);
        named.insert(handle.number, vec![pending]);
    }

    /// What a handle names.
    #[inline]
    pub(crate) fn of(&self, handle: &CHandle) -> Vec<Pending> {
        if handle.number == 0 || self.is_untouched() {
            return Vec::new();
        }
        self.named.lock().get(&handle.number).cloned().unwrap_or_default()
    }

    /// From now on the handle names nothing. Its transfers are complete.
    pub(crate) fn forget(&self, handle: &mut CHandle) {
        let number = std::mem::take(&mut handle.number);
        if number != 0 && !self.is_untouched() {
            self.named.lock().remove(&number);
        }
    }

    /// The implicit transfers, of one rank or of all.
    #[inline]
    pub(crate) fn implicit(&self, rank: Option<u32>) -> Vec<Pending> {
        if self.is_untouched() {
            return Vec::new();
        }
        let implicit = self.implicit.lock();
        let asked = implicit.iter().filter(|pending| rank.is_none_or(|rank| pending.rank == rank));
        asked.cloned().collect()
    }

    /// The transfers under handles, of one rank or of all. Their handles go on naming them.
    #[inline]
    pub(crate) fn explicit(&self, rank: Option<u32>) -> Vec<Pending> {
        if self.is_untouched() {
            return Vec::new();
        }
        let named = self.named.lock();
        named.values().flatten().filter(|pending| rank.is_none_or(|rank| pending.rank == rank)).cloned().collect()
    }

    /// Forgets the implicit transfers that are complete, of one rank or of all: they were waited for.
    #[inline]
    pub(crate) fn forget_implicit(&self, rank: Option<u32>) {
        if self.is_untouched() {
            return;
        }
        let asked = |pending: &Pending| rank.is_none_or(|rank| pending.rank == rank);
        self.implicit.lock().retain(|pending| !(asked(pending) && pending.completion.is_complete()));
    }
}
