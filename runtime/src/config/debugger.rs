//! What changes where a debugger may hold ranks.

use super::Config;

/// Longer than anybody looks at a stopped rank: a year.
const FOREVER_S: u64 = 365 * 24 * 3600;

impl Config {
    #[doc(hidden)]
    /// Lifts every limit on how long somebody may be silent, whatever was set for them, where the debugger's mode is on. A rank that
    /// dies is noticed as ever: its connections are closed.
    pub fn settle_debugger(&mut self) {
        if self.debugger {
            self.silence_ms = FOREVER_S * 1000;
            self.connect_timeout_s = FOREVER_S;
            self.reconnect_s = FOREVER_S;
            self.handshake_timeout_ms = FOREVER_S * 1000;
            self.watchdog_s = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_a_debugger_may_hold_ranks_they_may_be_silent_for_ever() {
        let mut config = Config { silence_ms: 50, ..Config::default() };
        config.settle_debugger();
        assert_eq!((config.silence_ms, config.watchdog_s), (50, 10));
        config.debugger = true;
        config.settle_debugger();
        assert_eq!((config.silence_ms, config.watchdog_s), (FOREVER_S * 1000, 0));
    }
}
