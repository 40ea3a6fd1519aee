//! How long a process waits for what usually comes at once: for all its connections together, as many may end together.

use longarm_netmod::CoarseClock;
use parking_lot::Mutex;

/// Within which time the moments below are to last.
const WHILE_MS: u64 = 10_000;
/// Moments of ten milliseconds: a second.
const MOMENTS_MAX: u32 = 100;

/// Moments that were waited for, and since when they are counted.
pub(crate) struct Patience {
    clock: CoarseClock,
    state: Mutex<(u64, u32)>,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { clock: CoarseClock::start(), state: Mutex::new((0, 0)) }
    }

    /// Whether one more may be waited for.
    pub(crate) fn has_a_moment(&self) -> bool {
        self.has_one_at(self.clock.now_ms())
    }

    fn has_one_at(&self, now_ms: u64) -> bool {
        let (since_ms, moments) = &mut *self.state.lock();
        if now_ms >= *since_ms + WHILE_MS {
            (*since_ms, *moments) = (now_ms, 0);
        }
        *moments += 1;
        *moments <= MOMENTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_end_together_wait_for_a_second_together() {
        let patience = Patience::new();
        assert_eq!((0..500).filter(|_| patience.has_one_at(7)).count(), 100);
        assert!(!patience.has_one_at(WHILE_MS - 1));
        assert!(patience.has_one_at(WHILE_MS), "later ones have a second again");
    }
}
