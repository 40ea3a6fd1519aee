//! When connections are asked whether they rest.

/// How often, in milliseconds, those that have grown are asked: one that rests is asked twice.
const LOOK_MS: u64 = 500;

/// See the module.
#[derive(Default)]
pub(crate) struct Resting {
    /// `None`: no connection has grown since the last time.
    at_ms: Option<u64>,
    /// The server's thread was woken since then, to be there at that time.
    is_told: bool,
}

impl Resting {
    /// A connection has grown, or goes on to move something while it has.
    pub(crate) fn note_grown(&mut self, now_ms: u64) {
        self.at_ms.get_or_insert(now_ms + LOOK_MS);
    }

    pub(crate) fn due_at_ms(&self) -> Option<u64> {
        self.at_ms
    }

    /// Whether it is time. From then on it is as if no connection had grown.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.at_ms.is_some_and(|at_ms| now_ms >= at_ms);
        if is_due {
            *self = Resting::default();
        }
        is_due
    }

    /// Whether the server's thread has to be woken, once, so that somebody is there when connections are to be asked.
    pub(crate) fn wants_to_tell(&mut self) -> bool {
        self.at_ms.is_some() && !std::mem::replace(&mut self.is_told, true)
    }
}
