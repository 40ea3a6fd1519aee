//! Who holds something that is claimed by one, told to others, and given back by all: a count.
//!
//! ```text
//!   free ── claim ──► CLAIMED ── share(3) ──► 3 ── let_go, let_go, let_go ──► free
//!                       └── withdraw: nobody counts on it ──► free
//! ```
//!
//! Who claims it tells others of it before it knows how many they are, or before all have heard; so those may let go before it is shared. They
//! take from the claim then, and sharing leaves what is left. The one who has claimed may be one of those who hold it, and lets go after it has shared.
//!
//! PAIR free: the last one who lets go, and all before it (Release and Acquire of the same word), and the next claim (Acquire). Who claims it sees
//! what all have done with it.
//!
//! If a process dies, its hold is never let go, and nobody claims it again.

use crate::sync::{AtomicU32, Ordering};

/// More than there are ever holders.
const CLAIMED: u32 = 1 << 31;

/// See the module. Zero is free.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Holders(AtomicU32);

impl Holders {
    /// Claims it, if it is free.
    pub fn claim(&self) -> bool {
        // PAIR free.
        self.0.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes a claim back on which nobody counts.
    pub fn withdraw(&self) {
        // PAIR free.
        self.0.store(0, Ordering::Release);
    }

    /// So many hold it, or have held it. The one who has claimed it calls this.
    pub fn share(&self, holders: u32) {
        // PAIR free.
        self.0.fetch_sub(CLAIMED - holders, Ordering::Release);
    }

    /// One holds it no more.
    pub fn let_go(&self) {
        // PAIR free.
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_free_again_when_all_have_let_go_whether_it_was_shared_before_or_not() {
        for early in 0..3 {
            let holders = Holders::default();
            assert!(holders.claim() && !holders.claim());
            (0..early).for_each(|_| holders.let_go());
            holders.share(3);
            for held in (1..=3 - early).rev() {
                assert!(!holders.claim(), "{held} hold it");
                holders.let_go();
            }
            assert!(holders.claim());
            holders.withdraw();
            assert!(holders.claim());
        }
    }
}
