//! What has a router look at time limits now and then, while there are some.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::alarm::Alarm;
use crate::clock::CoarseClock;
use crate::link_error::LinkError;

/// How often a router looks at time limits while there are some.
pub const ROUTER_TICK_MS: u64 = 100;

/// The alarm is made at once: later there might be no descriptor left.
pub(super) struct Tick {
    alarm: Alarm,
    /// Where no system rings.
    simulated: Option<CoarseClock>,
    is_set: bool,
    /// When it rings where no system does, while it is set.
    due_ms: u64,
}

impl Tick {
    pub(super) fn new(simulated: Option<CoarseClock>) -> Result<Tick, LinkError> {
        Ok(Tick { alarm: Alarm::silent()?, simulated, is_set: false, due_ms: 0 })
    }

    /// Rings soon, if it is not set already.
    pub(super) fn start(&mut self) {
        if self.is_set {
            return;
        }
        if let Some(clock) = self.simulated {
            (self.is_set, self.due_ms) = (true, clock.now_ms() + ROUTER_TICK_MS);
            return;
        }
        match self.alarm.set(Duration::from_millis(ROUTER_TICK_MS)) {
            Ok(()) => self.is_set = true,
            Err(error) => tracing::error!(%error, "the router cannot watch the time"),
        }
    }

    /// It rings no more until it is started.
    pub(super) fn silence(&mut self) {
        self.is_set = false;
        if let Err(error) = self.alarm.silence() {
            tracing::error!(%error, "the router cannot watch the time");
        }
    }

    #[cfg(test)]
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Whether it has rung where no system rings.
    pub(super) fn is_due(&self) -> bool {
        self.is_set && self.simulated.is_some_and(|clock| clock.now_ms() >= self.due_ms)
    }

    /// Becomes readable when it rings.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.descriptor()
    }
}
