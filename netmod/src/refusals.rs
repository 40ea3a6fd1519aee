//! What the log says of strangers: something, but not as often as they come. A log that they could fill would hold up
//! the server as soon as nobody reads it.

use std::fmt;

use longarm_proto::NodeId;

/// The shortest time between two lines.
const TELL_MS: u64 = 1000;

/// See the module.
#[derive(Default)]
pub struct Refusals {
    told_ms: Option<u64>,
    untold: u64,
}

impl Refusals {
    /// Somebody was turned away.
    pub fn note(&mut self, node: NodeId, now_ms: u64, why: fmt::Arguments<'_>) {
        if self.told_ms.is_some_and(|told_ms| now_ms < told_ms + TELL_MS) {
            self.untold += 1;
            return;
        }
        self.told_ms = Some(now_ms);
        let others = std::mem::take(&mut self.untold);
        tracing::warn!(node = node.0, others, "turned away: {why}");
    }
}
