//! Holders: who claims something sees what those before have done with it, and it is free when all have let go.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::check;
use crate::holders::Holders;

struct Shared {
    holders: Holders,
    /// One field of each of the two who hold it.
    held: [UnsafeCell<u32>; 2],
    is_told: AtomicBool,
}

// SAFETY: each holder writes its own field while it holds it, and who claims it next writes both. That these do not meet is what the model
// checks: loom reports any access that is not ordered.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

impl Shared {
    fn write(&self, place: usize) {
        self.held[place].with_mut(|held| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *held += 1 }
        });
    }
}

#[test]
fn loom_who_claims_it_next_sees_what_all_holders_have_done() {
    check(None, || {
        let shared = Arc::new(Shared {
            holders: Holders::default(),
            held: [UnsafeCell::new(0), UnsafeCell::new(0)],
            is_told: AtomicBool::new(false),
        });
        assert!(shared.holders.claim());
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                while !shared.is_told.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                shared.write(1);
                shared.holders.let_go();
            }
        });
        let next = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                if shared.holders.claim() {
                    shared.write(0);
                    shared.write(1);
                }
            }
        });
        shared.is_told.store(true, Ordering::Release);
        shared.write(0);
        shared.holders.share(2);
        shared.holders.let_go();
        other.join().unwrap();
        next.join().unwrap();
    });
}
