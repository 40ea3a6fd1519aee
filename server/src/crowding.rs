//! Whether so many connections move in the same turns that several threads serve them sooner than one.

/// How long connections that move in the same turns are counted together.
const WINDOW_MS: u64 = 8;
/// So many of them in that time are a crowd; half as many are one still.
const CROWD: usize = 16;
/// Those beyond so many of a turn count: one thread serves two as quickly as several would.
const UNCOUNTED_PER_TURN: usize = 2;
/// As many of one turn count: a single burst, of a collective say, is no crowd.
const COUNTED_PER_TURN_MAX: usize = 8;

/// How many connections move in the same turns.
#[derive(Default)]
pub(crate) struct Crowding {
    window_ends_ms: u64,
    /// Those that count, in this window.
    moved: usize,
    /// The window before was crowded.
    before: bool,
}

impl Crowding {
    /// So many connections moved in a turn.
    pub(crate) fn note(&mut self, now_ms: u64, moved: usize) {
        if now_ms >= self.window_ends_ms {
            let is_next = now_ms < self.window_ends_ms + WINDOW_MS;
            self.before = is_next && self.moved >= if self.before { CROWD / 2 } else { CROWD };
            self.moved = 0;
            self.window_ends_ms = now_ms + WINDOW_MS;
        }
        self.moved += moved.saturating_sub(UNCOUNTED_PER_TURN).min(COUNTED_PER_TURN_MAX);
    }

    pub(crate) fn is_crowd(&self, now_ms: u64) -> bool {
        now_ms < self.window_ends_ms + WINDOW_MS && (self.before || self.moved >= CROWD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is a crowd after turns in which so many connections moved.
    fn after(crowding: &mut Crowding, turns: &[(u64, usize)]) -> bool {
        turns.iter().for_each(|(now_ms, moved)| crowding.note(*now_ms, *moved));
        crowding.is_crowd(turns.last().map_or(0, |turn| turn.0))
    }

    #[test]
    fn neither_two_ranks_nor_a_burst_are_a_crowd() {
        assert!(!after(&mut Crowding::default(), &[(5, 2); 1000]));
        assert!(!after(&mut Crowding::default(), &[(5, 500), (6, 1), (7, 0), (7, 2)]));
        assert!(after(&mut Crowding::default(), &[(5, 500), (6, 500)]));
        assert!(after(&mut Crowding::default(), &[(5, 3); CROWD]));
        let seldom: Vec<(u64, usize)> = (1..1000).map(|turn| (turn * WINDOW_MS, 8)).collect();
        assert!(!after(&mut Crowding::default(), &seldom));
    }

    #[test]
    fn a_crowd_is_one_until_few_are_left_of_it_or_nobody_has_come_for_a_while() {
        let mut crowding = Crowding::default();
        assert!(after(&mut crowding, &[(1, 10); 2]));
        assert!(crowding.is_crowd(8 + WINDOW_MS) && !crowding.is_crowd(9 + WINDOW_MS), "without another turn");
        assert!(after(&mut crowding, &[(9, 10), (18, 2)]), "one window had half as many");
        assert!(!after(&mut crowding, &[(26, 2)]));
    }
}
