//! The turns of the coordinator's thread.

use std::time::Instant;

use super::lines::{Heard, Lines};
use super::sockets::{CHUNK_BYTES, Readiness, Sockets, UNSENT_BYTES_MAX};
use crate::coordinator::{Coordinator, Effect, Settings};
use crate::proof::{NONCE_BYTES, ProofError};

/// What the coordinator has around it besides its connections.
pub trait Surroundings: Sockets {
    /// A line for people.
    fn say(&mut self, line: &str);

    /// What a connection did wrong before anybody knew who it was.
    fn refuse(&mut self, number: u64, error: &ProofError);

    /// The answer to a question.
    fn answer(&mut self, asker: u64, text: &str);

    /// The job has to be ended, by whatever has started it.
    fn end_job(&mut self, status: i32);

    /// A message was computed that is sent in this turn. Where time is simulated that takes some.
    fn note_message(&mut self) {}
}

/// See the module.
#[derive(Debug)]
pub struct CoordinatorDesk {
    coordinator: Coordinator,
    lines: Lines,
}

impl CoordinatorDesk {
    /// Nobody has come.
    pub fn new(settings: Settings, now: Instant) -> CoordinatorDesk {
        CoordinatorDesk { coordinator: Coordinator::new(settings, now), lines: Lines::default() }
    }

    /// Somebody has connected. `add` keeps the connection under the number that it gets, and says whether it can be watched.
    /// It is not called where there are too many that have not proven themselves.
    pub fn take_in<S: Surroundings>(
        &mut self,
        around: &mut S,
        nonce: [u8; NONCE_BYTES],
        add: impl FnOnce(&mut S, u64) -> bool,
    ) {
        let Some(number) = self.coordinator.handle_connection(nonce, around.now()) else { return };
        if add(around, number) {
            self.lines.insert(number);
        } else {
            self.coordinator.handle_hang_up(number, around.now());
        }
    }

    /// Something is to be done about a connection.
    pub fn handle_ready(&mut self, around: &mut impl Surroundings, number: u64, ready: Readiness) {
        if ready.writable {
            self.send(around, number);
        }
        if ready.readable {
            match self.lines.read(around, number, &mut [0; CHUNK_BYTES]) {
                Heard::Bytes(bytes) => self.coordinator.handle_bytes(number, bytes, around.now()),
                Heard::End => self.coordinator.handle_hang_up(number, around.now()),
                Heard::Nothing => {}
            }
            self.do_effects(around);
        }
    }

    /// Somebody wants to know something.
    pub fn handle_question(&mut self, asker: u64, is_report: bool, now: Instant) {
        self.coordinator.handle_question(asker, is_report, now);
    }

    /// Ends a turn. `may_be_more`: what has come may not all have been read. As long as ranks come it is, before it is said that they
    /// were too slow.
    pub fn end_turn(&mut self, around: &mut impl Surroundings, may_be_more: bool) {
        let now = around.now();
        self.lines.handle_time(around, now);
        let waits = may_be_more && self.coordinator.is_open();
        if !waits && self.coordinator.deadline().is_some_and(|at| at <= now) {
            self.coordinator.handle_time(now);
        }
        self.do_effects(around);
    }

    /// Whether whoever connects is let in.
    pub fn is_open(&self) -> bool {
        self.coordinator.is_open()
    }

    /// Whether something could not be sent yet.
    pub fn is_behind(&self) -> bool {
        self.lines.are_behind()
    }

    /// When a turn is due without anything else happening.
    pub fn deadline(&self) -> Option<Instant> {
        [self.coordinator.deadline(), self.lines.deadline()].into_iter().flatten().min()
    }

    /// Does what there is to do. What goes to one connection goes together, as for the ranks that come through one relay. The order of all
    /// is kept.
    fn do_effects(&mut self, around: &mut impl Surroundings) {
        let mut unsent = None;
        loop {
            // The last one may find that a connection takes nothing, which has effects again.
            let next = self.coordinator.poll_effect().or_else(|| {
                unsent.take().into_iter().for_each(|last| self.send(around, last));
                self.coordinator.poll_effect()
            });
            let Some(effect) = next else { return };
            let to = if let Effect::Send { connection, .. } = &effect { Some(*connection) } else { None };
            if unsent != to {
                unsent.into_iter().for_each(|before| self.send(around, before));
                unsent = to;
            }
            match effect {
                Effect::Send { connection, bytes } => {
                    around.note_message();
                    self.lines.queue(connection, &bytes);
                }
                Effect::Close { connection } => self.lines.close(around, connection),
                Effect::Say(line) => around.say(&line),
                Effect::Refused { connection, error } => around.refuse(connection, &error),
                Effect::Answer { asker, text } => around.answer(asker, &text),
                Effect::End { status } => around.end_job(status),
            }
        }
    }

    fn send(&mut self, around: &mut impl Surroundings, number: u64) {
        let waiting = self.lines.send(around, number);
        if waiting > UNSENT_BYTES_MAX.saturating_mul(self.coordinator.connections_over(number)) {
            self.coordinator.handle_deaf(number, waiting, around.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::desk::mock::MockSockets;
    use crate::proof::{CHALLENGE_BYTES, RankProof, Ticket};

    const PROOF: Duration = Duration::from_secs(2);
    const BOTH: Readiness = Readiness { readable: true, writable: true };

    fn desk(half_open_max: usize) -> (CoordinatorDesk, MockSockets) {
        let sockets = MockSockets::new();
        let settings = Settings {
            ticket: ticket(),
            job: 9,
            survivors_go_on: false,
            arrival: Duration::from_secs(60),
            proof: PROOF,
            half_open_max,
            report: Duration::from_millis(700),
            watchdog_s: 0,
            pid: 1,
            command: String::new(),
            is_stopped: |_| false,
        };
        (CoordinatorDesk::new(settings, sockets.now), sockets)
    }

    fn ticket() -> Ticket {
        Ticket { assembly: 5, size: 2, secret: [3; 32] }
    }

    fn take_in(desk: &mut CoordinatorDesk, sockets: &mut MockSockets, is_watched: bool) -> Option<u64> {
        let mut its_number = None;
        desk.take_in(sockets, [1; NONCE_BYTES], |_, number| {
            its_number = Some(number);
            is_watched
        });
        desk.do_effects(sockets);
        its_number
    }

    /// What it says first, and how much it says back.
    fn challenge(desk: &mut CoordinatorDesk, sockets: &mut MockSockets, number: u64) -> usize {
        let (_, hello) = RankProof::start(&ticket(), 0, [4; NONCE_BYTES]);
        sockets.of(number).incoming = hello.to_vec();
        desk.handle_ready(sockets, number, BOTH);
        sockets.of(number).sent.len()
    }

    #[test]
    fn one_that_cannot_be_watched_has_hung_up_and_one_too_many_is_not_kept() {
        let (mut desk, mut sockets) = desk(1);
        assert_eq!(take_in(&mut desk, &mut sockets, false), Some(0));
        assert_eq!(take_in(&mut desk, &mut sockets, true), Some(1), "the first one has made room");
        assert_eq!(take_in(&mut desk, &mut sockets, true), None);
        assert_eq!(challenge(&mut desk, &mut sockets, 1), CHALLENGE_BYTES);
    }

    #[test]
    fn what_has_come_is_read_before_it_is_said_that_it_was_too_late() {
        let (mut desk, mut sockets) = desk(2);
        let number = take_in(&mut desk, &mut sockets, true).unwrap();
        assert_eq!(desk.deadline(), Some(sockets.now + PROOF));
        sockets.pass(PROOF);
        desk.end_turn(&mut sockets, true);
        assert!(!sockets.of(number).is_closed);
        desk.end_turn(&mut sockets, false);
        assert!(sockets.of(number).is_closed);
    }

    #[test]
    fn what_does_not_fit_is_sent_when_there_is_room() {
        let (mut desk, mut sockets) = desk(2);
        let number = take_in(&mut desk, &mut sockets, true).unwrap();
        sockets.of(number).room = 1;
        assert_eq!((challenge(&mut desk, &mut sockets, number), desk.is_behind()), (1, true));
        sockets.of(number).room = usize::MAX;
        desk.handle_ready(&mut sockets, number, BOTH);
        assert_eq!((sockets.of(number).sent.len(), desk.is_behind()), (CHALLENGE_BYTES, false));
    }

    #[test]
    fn whoever_is_not_of_the_job_is_refused_and_let_go_of() {
        let (mut desk, mut sockets) = desk(2);
        let number = take_in(&mut desk, &mut sockets, true).unwrap();
        sockets.of(number).incoming = vec![b'x'; 1000];
        desk.handle_ready(&mut sockets, number, BOTH);
        assert!(sockets.of(number).is_closed);
        assert_eq!(sockets.refused, [number]);
        assert_eq!((sockets.said.len(), sockets.ended_with), (0, None));
    }
}
