//! Connections that rest give back what their buffers have grown by.

use super::Engine;

impl Engine {
    /// Asks the connections, if that is due.
    pub(super) fn shrink_those_at_rest(&mut self, now_ms: u64) {
        if !self.resting.take_due(now_ms) {
            return;
        }
        for (_, peer) in &mut self.peers {
            if peer.connection.shrink_at_rest() {
                self.resting.note_grown(now_ms);
            }
        }
    }

    /// Whether the server's thread has to be woken, once, so that somebody is there when connections are to be asked.
    pub(crate) fn wants_to_tell_of_rest(&mut self) -> bool {
        self.resting.wants_to_tell()
    }
}
