//! The connections that were busy last: with few of them most turns try just these, without asking the system who is ready.

use super::{Engine, RECENT_MAX};

impl Engine {
    /// Turns those that were busy last.
    pub(super) fn turn_recent(&mut self, now_ms: u64) -> bool {
        let moved = if self.recent.len() > 1 && self.wants_crew() {
            let recent = self.recent.clone();
            self.turn_together(&recent)
        } else {
            // A turn may end one, which leaves the list.
            let (mut index, mut moved) = (0, 0);
            while index < self.recent.len() {
                moved += usize::from(self.turn_peer(self.recent[index]));
                index += 1;
            }
            moved
        };
        self.crowding.note(now_ms, moved);
        moved > 0
    }

    /// As [`Engine::turn_peer`], of one that is ready.
    pub(super) fn turn_and_remember(&mut self, number: usize) -> bool {
        let moved = self.turn_peer(number);
        if moved {
            self.remember(number);
        }
        moved
    }

    pub(super) fn remember(&mut self, number: usize) {
        if self.recent.len() <= RECENT_MAX && !self.recent.contains(&number) {
            self.recent.push(number);
        }
    }
}
