//! The end of a stream.

use super::Stream;
use crate::patience::await_word;

impl Stream {
    /// Whether all that was sent has reached the peer's buffers.
    pub(crate) fn is_delivered(&mut self) -> bool {
        let polled = self.poll();
        polled.is_err() || self.failed.is_some() || self.requests.is_empty()
    }

    /// A last try to have it all delivered: until it is, or nothing has been for `moments` of ten milliseconds.
    pub(crate) fn linger(&mut self, moments: usize, peer_lives: impl Fn() -> bool) {
        for _ in 0..moments {
            if self.is_delivered() || self.queue.completions.arm().is_err() || self.is_delivered() || !peer_lives() {
                return;
            }
            await_word(self.descriptor());
        }
    }

    /// From now on no request of the peer is done, and how far they went is known to who asks.
    pub(crate) fn finish(&mut self) {
        self.ended = true;
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if let Ok(executed) = self.end()
            && self.fabric.accounts_are_believed
        {
            self.fabric.executed.lock().remember(self.number, executed);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.finish();
        // Buffers that are filled and not taken up go back too.
        let _ = self.poll();
        for arrived in self.arrived.drain(..) {
            self.fabric.give_back(arrived.slab);
        }
        self.fabric.note_end();
    }
}
