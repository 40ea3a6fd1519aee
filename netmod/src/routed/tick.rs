//! What has a router look at time limits now and then, while there are some.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::options::ROUTER_TICK_MS;
use crate::alarm::Alarm;
use crate::clock::CoarseClock;
use crate::link_error::LinkError;

/// It is there from the start: no descriptor may be free when it is needed.
pub(super) struct Tick {
    alarm: Alarm,
    /// Where no system rings.
    simulated: Option<CoarseClock>,
    /// When it rings there; else any time, while it is set.
    due_ms: Option<u64>,
}

impl Tick {
    pub(super) fn new(simulated: Option<CoarseClock>) -> Result<Tick, LinkError> {
        Ok(Tick { alarm: Alarm::silent()?, simulated, due_ms: None })
    }

    /// Rings soon, if it is not set already.
    pub(super) fn start(&mut self) {
        if self.due_ms.is_some() {
            return;
        }
        if let Some(clock) = self.simulated {
            self.due_ms = Some(clock.now_ms() + ROUTER_TICK_MS);
            return;
        }
        match self.alarm.set(Duration::from_millis(ROUTER_TICK_MS)) {
            Ok(()) => self.due_ms = Some(0),
            Err(error) => tracing::error!(%error, "the router cannot watch the time"),
        }
    }

    /// It rings no more until it is started.
    pub(super) fn silence(&mut self) {
        self.due_ms = None;
        if let Err(error) = self.alarm.silence() {
            tracing::error!(%error, "the router cannot watch the time");
        }
    }

    /// Whether it has rung where no system rings.
    pub(super) fn is_due(&self) -> bool {
        let is_over = |(clock, due_ms): (CoarseClock, u64)| clock.now_ms() >= due_ms;
        self.simulated.zip(self.due_ms).is_some_and(is_over)
    }

    /// Becomes readable when it rings.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.alarm.descriptor()
    }
}
