//! How long a process waits for what usually comes at once: for all its connections together, as many may end together.

use std::os::fd::BorrowedFd;

use longarm_netmod::CoarseClock;
use parking_lot::Mutex;

/// Within which time the moments below are to last.
const WHILE_MS: u64 = 10_000;
/// How long all of them may wait together: less than two thirds of a second where two such times meet. The peers of a server that
/// is held up for longer might take it for silent.
const WAITED_MS_MAX: u64 = 300;

/// How long one of them is.
const MOMENT_MS: i64 = 10;

/// How long was waited, and since when that is counted.
pub(crate) struct Patience {
    clock: CoarseClock,
    state: Mutex<(u64, u64)>,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { clock: CoarseClock::start(), state: Mutex::new((0, 0)) }
    }

    /// Waits moment by moment for one connection, at most so many, until it says that its word has come. A word that is there
    /// already costs nothing.
    pub(crate) fn wait(&self, moments_max: u32, has_come_within_one: impl FnMut() -> bool) {
        self.wait_by(&|| self.clock.now_ms(), moments_max, has_come_within_one);
    }

    fn wait_by(&self, now_ms: &dyn Fn() -> u64, moments_max: u32, mut has_come_within_one: impl FnMut() -> bool) {
        for _ in 0..moments_max {
            let began_ms = now_ms();
            if !self.may_wait(began_ms) {
                return;
            }
            let has_come = has_come_within_one();
            self.state.lock().1 += now_ms() - began_ms;
            if has_come {
                return;
            }
        }
    }

    fn may_wait(&self, now_ms: u64) -> bool {
        let (since_ms, waited_ms) = &mut *self.state.lock();
        if now_ms >= *since_ms + WHILE_MS {
            (*since_ms, *waited_ms) = (now_ms, 0);
        }
        *waited_ms < WAITED_MS_MAX
    }
}

/// Until something is to be read there, or a moment has passed. Whether something is.
pub(crate) fn await_word(descriptor: BorrowedFd<'_>) -> bool {
    let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: MOMENT_MS * 1_000_000 };
    let mut events = [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut events, Some(&limit)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often each of so many connections waits in vain, ten milliseconds at a time.
    fn waits_in_vain(patience: &Patience, now_ms: &Cell<u64>, connections: usize) -> Vec<u32> {
        let wait = |_| {
            let mut moments = 0;
            patience.wait_by(&|| now_ms.get(), 10, || {
                now_ms.set(now_ms.get() + 10);
                moments += 1;
                false
            });
            moments
        };
        (0..connections).map(wait).collect()
    }

    #[test]
    fn connections_that_end_together_wait_for_three_tenths_of_a_second_together() {
        let (patience, now_ms) = (Patience::new(), Cell::new(7));
        assert_eq!(waits_in_vain(&patience, &now_ms, 5), [10, 10, 10, 0, 0]);
        now_ms.set(WHILE_MS - 1);
        assert_eq!(waits_in_vain(&patience, &now_ms, 1), [0]);
        now_ms.set(WHILE_MS);
        assert_eq!(waits_in_vain(&patience, &now_ms, 1), [10], "later ones have as long again");
    }

    #[test]
    fn a_word_that_is_there_costs_nothing() {
        let (patience, now_ms) = (Patience::new(), Cell::new(0));
        for _ in 0..1000 {
            let mut looks = 0;
            patience.wait_by(&|| now_ms.get(), 10, || {
                looks += 1;
                true
            });
            assert_eq!(looks, 1);
        }
        assert_eq!(waits_in_vain(&patience, &now_ms, 1), [10]);
    }
}
