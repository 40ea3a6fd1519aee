//! How long a process waits for what usually comes at once: for all its connections together, as many may end together.

use longarm_netmod::CoarseClock;
use parking_lot::Mutex;

/// Within which time the moments below are to last.
const WHILE_MS: u64 = 10_000;
/// Moments of ten milliseconds: less than a third of a second, and less than two thirds where two such times meet. The peers of a
/// server that is held up for longer might take it for silent.
const MOMENTS_MAX: u32 = 30;

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

    /// Waits moment by moment for one connection, at most so many, until it says that its word has come.
    pub(crate) fn wait(&self, moments_max: u32, mut has_come_within_one: impl FnMut() -> bool) {
        for _ in 0..moments_max {
            if !self.has_a_moment() || has_come_within_one() {
                return;
            }
        }
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
    fn connections_that_end_together_wait_for_three_tenths_of_a_second_together() {
        let patience = Patience::new();
        assert_eq!((0..500).filter(|_| patience.has_one_at(7)).count(), 30);
        assert!(!patience.has_one_at(WHILE_MS - 1));
        assert!(patience.has_one_at(WHILE_MS), "later ones have as long again");
    }

    #[test]
    fn one_connection_takes_a_part_of_it_and_stops_when_its_word_comes() {
        let patience = Patience::new();
        let mut waited = 0;
        patience.wait(10, || {
            waited += 1;
            waited == 3
        });
        assert_eq!(waited, 3);
        for connections in 1..=8 {
            let mut waited_each = 0;
            patience.wait(10, || {
                waited_each += 1;
                false
            });
            waited += waited_each;
            assert!(waited_each <= 10 && waited <= 30, "{waited_each} moments, and {waited} of {connections}");
        }
        assert_eq!(waited, 30);
    }
}
