//! A clock that costs next to nothing to look at, for loops that look in every turn and count in milliseconds.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since it was started. It moves with the kernel's tick, in steps of up to 10 ms, and never back.
#[derive(Clone, Copy, Debug)]
pub struct CoarseClock {
    started_ms: u64,
    source: fn() -> u64,
}

impl CoarseClock {
    /// Begins to count.
    pub fn start() -> CoarseClock {
        CoarseClock { started_ms: coarse_ms(), source: coarse_ms }
    }

    /// One that says what a simulator takes for the time.
    pub fn simulated(source: fn() -> u64) -> CoarseClock {
        CoarseClock { started_ms: 0, source }
    }

    /// How long ago that was.
    pub fn now_ms(&self) -> u64 {
        (self.source)() - self.started_ms
    }
}

fn coarse_ms() -> u64 {
    // The precise clock reads the processor's counter, which takes several times as long.
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_never_back() {
        let clock = CoarseClock::start();
        let mut last = clock.now_ms();
        while last < 12 {
            let now = clock.now_ms();
            assert!(now >= last);
            last = now;
        }
    }
}
