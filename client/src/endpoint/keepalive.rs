//! Whether the peer still lives: it is asked when nothing was heard of it for a while, and given up when it stays
//! silent. Only while something is waited for; a connection that moves bytes is never asked.

/// What the look at the clock came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beat {
    /// All is well, or nothing is waited for.
    Well,
    /// Ask whether it lives.
    Ask,
    /// It has been silent for too long.
    Silent,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keepalive {
    /// When something was last heard, or waiting began.
    heard_ms: u64,
    /// When the clock was last looked at.
    looked_ms: u64,
    /// Something moved since then.
    moved: bool,
    asked: bool,
}

impl Keepalive {
    /// Bytes came, a transfer of a device is done, or bytes went out that are not the question itself.
    pub(super) fn moved(&mut self) {
        self.moved = true;
    }

    /// Whether its question is under way, whose own bytes say nothing of the peer.
    pub(super) fn has_asked(&self) -> bool {
        self.asked
    }

    /// In place of a look, when something was done while the question was under way: its own sending perhaps. A look that is left out for that is no
    /// absence. Looks are up to an eighth of the silence apart, and with one left out the time between two of them reaches the quarter.
    pub(super) fn glance(&mut self, now_ms: u64, silence_ms: u64) {
        if self.was_away(now_ms, silence_ms) {
            self.begin(now_ms);
        }
    }

    /// From now on it is silent.
    fn begin(&mut self, now_ms: u64) {
        (self.moved, self.asked) = (false, false);
        self.heard_ms = now_ms;
    }

    /// Who was not looking for long knows nothing: this process itself may have been stopped.
    fn was_away(&mut self, now_ms: u64, silence_ms: u64) -> bool {
        now_ms.saturating_sub(std::mem::replace(&mut self.looked_ms, now_ms)) > silence_ms / 4
    }

    /// To be called when nothing moves. `waiting`: something is expected of the peer.
    pub(super) fn look(&mut self, now_ms: u64, waiting: bool, silence_ms: u64) -> Beat {
        let was_away = self.was_away(now_ms, silence_ms);
        if self.moved || was_away || !waiting {
            self.begin(now_ms);
            return Beat::Well;
        }
        let silent_ms = now_ms.saturating_sub(self.heard_ms);
        if silent_ms >= silence_ms {
            return Beat::Silent;
        }
        if !self.asked && silent_ms >= silence_ms / 2 {
            self.asked = true;
            return Beat::Ask;
        }
        Beat::Well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_once_and_then_given_up() {
        let mut keepalive = Keepalive::default();
        let beats: Vec<Beat> = (0..=20).map(|step| keepalive.look(step * 50, true, 1000)).collect();
        assert_eq!(beats.iter().filter(|beat| **beat == Beat::Ask).count(), 1);
        assert_eq!(beats[10], Beat::Ask);
        assert_eq!(beats.iter().position(|beat| *beat == Beat::Silent), Some(20));
    }

    /// Looks every fifth of the silence until it asks, at 120 ms.
    fn that_has_asked() -> Keepalive {
        let mut keepalive = Keepalive::default();
        let beats = [0, 40, 80, 120].map(|now_ms| keepalive.look(now_ms, true, 200));
        assert_eq!(beats, [Beat::Well, Beat::Well, Beat::Well, Beat::Ask]);
        keepalive
    }

    #[test]
    fn a_question_that_goes_out_in_place_of_a_look_does_not_make_its_peer_heard() {
        let mut keepalive = that_has_asked();
        keepalive.glance(160, 200);
        assert_eq!(keepalive.look(200, true, 200), Beat::Silent);
    }

    #[test]
    fn who_was_stopped_before_the_question_went_out_blames_nobody() {
        let mut keepalive = that_has_asked();
        keepalive.glance(120 + 90, 200);
        assert_eq!(keepalive.look(211, true, 200), Beat::Well);
        let beats: Vec<Beat> = (1..=5).map(|step| keepalive.look(211 + step * 40, true, 200)).collect();
        assert_eq!(
            beats,
            [Beat::Well, Beat::Well, Beat::Ask, Beat::Well, Beat::Silent],
            "it is asked again, and given up later"
        );
    }

    #[test]
    fn what_moves_is_alive_and_who_waits_for_nothing_does_not_ask() {
        let mut keepalive = Keepalive::default();
        for step in 0..100 {
            keepalive.moved();
            assert_eq!(keepalive.look(step * 100, true, 1000), Beat::Well);
        }
        for step in 100..200 {
            assert_eq!(keepalive.look(step * 100, false, 1000), Beat::Well);
        }
    }

    #[test]
    fn a_process_that_was_stopped_itself_blames_nobody() {
        let mut keepalive = Keepalive::default();
        for now_ms in [0, 100, 200, 90_000, 90_100] {
            assert_eq!(keepalive.look(now_ms, true, 1000), Beat::Well);
        }
    }
}
