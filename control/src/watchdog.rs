//! When the ranks are asked what they wait for, and when the answers are worth a report.
//!
//! Pure: time is an argument. One inquiry is under way at a time; who wants to know something meanwhile joins it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::messages::Wait;

use crate::standing::{Gist, Report};

/// How long a rank has to answer. Its thread for this does nothing else, so only a stopped one takes longer.
const ANSWER: Duration = Duration::from_secs(1);

/// What the ranks have answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// By rank.
    pub waits: BTreeMap<u32, Vec<Wait>>,
    /// Who has not answered.
    pub silent: BTreeSet<u32>,
    /// Whether the watchdog wanted to know, and not only somebody who asked.
    pub is_routine: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Watchdog {
    /// After how long a wait is worth a report. `None`: never.
    limit: Option<Duration>,
    /// When the ranks are asked next without anybody wanting it.
    next: Option<Instant>,
    /// Number of the last inquiry.
    number: u64,
    /// The one that is under way, and how long it may take.
    inquiry: Option<(Answers, Instant)>,
    reported: Option<Gist>,
}

impl Watchdog {
    /// Asks twice in the time after which a wait is worth a report. `limit_s` of 0: never.
    pub fn new(limit_s: u64, now: Instant) -> Watchdog {
        let limit = (limit_s > 0).then(|| Duration::from_secs(limit_s));
        Watchdog { limit, next: limit.map(|limit| now + limit / 2), number: 0, inquiry: None, reported: None }
    }

    /// When [`Watchdog::is_due`] or [`Watchdog::poll_answers`] has something to do without an event.
    pub fn deadline(&self) -> Option<Instant> {
        let until = self.inquiry.as_ref().map(|(_, until)| *until);
        [self.next, until].into_iter().flatten().min()
    }

    /// Whether it is time to ask all ranks.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Asks: gives the number of the inquiry if it is a new one, for which these ranks have to be asked. One that is under
    /// way is joined.
    pub fn ask(&mut self, ranks: impl IntoIterator<Item = u32>, now: Instant) -> Option<u64> {
        let is_due = self.is_due(now);
        if let (true, Some(limit)) = (is_due, self.limit) {
            self.next = Some(now + limit / 2);
        }
        if let Some((answers, _)) = &mut self.inquiry {
            answers.is_routine |= is_due;
            return None;
        }
        self.number += 1;
        let silent = ranks.into_iter().collect();
        self.inquiry = Some((Answers { waits: BTreeMap::new(), silent, is_routine: is_due }, now + ANSWER));
        Some(self.number)
    }

    /// A rank has answered.
    pub fn handle_answer(&mut self, rank: u32, inquiry: u64, waits: Vec<Wait>) {
        // An answer to an earlier inquiry came too late for it, and is too old for this one.
        if let Some((answers, _)) = &mut self.inquiry
            && inquiry == self.number
            && answers.silent.remove(&rank)
        {
            answers.waits.insert(rank, waits);
        }
    }

    /// A rank has ended: nothing is to be expected of it.
    pub fn handle_end(&mut self, rank: u32) {
        if let Some((answers, _)) = &mut self.inquiry {
            answers.silent.remove(&rank);
        }
    }

    /// What came of the inquiry, once all have answered or have had the time to.
    pub fn poll_answers(&mut self, now: Instant) -> Option<Answers> {
        let (answers, until) = self.inquiry.as_ref()?;
        if !answers.silent.is_empty() && now < *until {
            return None;
        }
        self.inquiry.take().map(|(answers, _)| answers)
    }

    /// What to print of a report: its first line, if somebody has waited for too long and that was not said before.
    pub fn headline(&mut self, report: &Report) -> Option<String> {
        let limit_ms = self.limit?.as_millis() as u64;
        let (rank, longest) = report.longest_wait().filter(|(_, wait)| wait.waited_ms >= limit_ms)?;
        let gist = report.gist(limit_ms);
        if self.reported.as_ref() == Some(&gist) {
            return None;
        }
        self.reported = Some(gist);
        let (call, waited_s) = (&longest.call, longest.waited_ms / 1000);
        Some(format!("rank {rank} has waited in {call} for {waited_s} s; where all ranks stand:"))
    }
}

#[cfg(test)]
mod tests {
    use crate::messages::Whom;

    use super::*;
    use crate::standing::{RankStanding, State, Summary};

    fn wait(waited_ms: u64) -> Wait {
        Wait { call: "barrier".to_owned(), whom: Whom::Rank(1), waited_ms }
    }

    fn report(waited_ms: u64) -> Report {
        let job = Summary { pid: 1, ranks: 2, nodes: 1, hosts: None, seconds: 1.0, command: String::new() };
        let waits = vec![wait(waited_ms)];
        Report { job, ranks: vec![RankStanding { rank: 0, node: 0, host: None, pid: 2, state: State::Waiting, waits }] }
    }

    #[test]
    fn an_inquiry_ends_when_all_have_answered_or_have_had_the_time_to() {
        let now = Instant::now();
        let mut watchdog = Watchdog::new(10, now);
        assert_eq!(watchdog.ask([0, 1, 2], now), Some(1));
        watchdog.handle_answer(0, 1, vec![wait(5)]);
        watchdog.handle_end(2);
        assert_eq!(watchdog.poll_answers(now), None, "rank 1 is still to answer");
        watchdog.handle_answer(1, 1, vec![]);
        let answers = watchdog.poll_answers(now).unwrap();
        assert_eq!(answers.waits, BTreeMap::from([(0, vec![wait(5)]), (1, vec![])]));
        assert!(answers.silent.is_empty() && !answers.is_routine);
        assert_eq!(watchdog.ask([0, 1], now), Some(2));
        watchdog.handle_answer(0, 1, vec![]);
        watchdog.handle_answer(1, 2, vec![]);
        let answers = watchdog.poll_answers(watchdog.deadline().unwrap()).unwrap();
        assert_eq!(answers.silent, BTreeSet::from([0]), "its answer was to an earlier inquiry");
    }

    #[test]
    fn the_ranks_are_asked_twice_in_the_time_that_they_may_wait() {
        let now = Instant::now();
        let mut watchdog = Watchdog::new(10, now);
        let half = Duration::from_secs(5);
        assert_eq!((watchdog.deadline(), watchdog.is_due(now)), (Some(now + half), false));
        assert_eq!(watchdog.ask([0], now + half), Some(1));
        assert!(!watchdog.is_due(now + half));
        watchdog.handle_answer(0, 1, vec![]);
        assert!(watchdog.poll_answers(now + half).unwrap().is_routine);
        assert_eq!(watchdog.deadline(), Some(now + 2 * half));
        let mut off = Watchdog::new(0, now);
        assert_eq!((off.deadline(), off.headline(&report(u64::MAX))), (None, None));
    }

    #[test]
    fn who_asks_during_an_inquiry_joins_it() {
        let now = Instant::now();
        let mut watchdog = Watchdog::new(2, now);
        assert_eq!(watchdog.ask([0], now), Some(1));
        let due = now + Duration::from_secs(1);
        assert_eq!(watchdog.ask([0], due), None);
        watchdog.handle_answer(0, 1, vec![]);
        assert!(watchdog.poll_answers(due).unwrap().is_routine);
    }

    #[test]
    fn a_report_is_printed_once_unless_it_says_something_new() {
        let mut watchdog = Watchdog::new(10, Instant::now());
        assert_eq!(watchdog.headline(&report(9_999)), None);
        let headline = watchdog.headline(&report(12_345)).unwrap();
        assert!(headline.starts_with("rank 0 has waited in barrier for 12 s;"), "{headline}");
        assert_eq!(watchdog.headline(&report(17_345)), None);
        let mut other = report(20_000);
        other.ranks[0].waits[0].whom = Whom::Rank(2);
        assert!(watchdog.headline(&other).is_some());
    }
}
