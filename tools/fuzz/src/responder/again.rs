//! How a peer calls again in the middle of anything, truly and otherwise.

use longarm_proto::{Reception, Session};

use super::calls::{Call, STRAY_SESSION, prove};
use super::peer::Peer;
use super::reference::NEVER_SENT_BYTES;
use crate::choices::{Choices, Script};
use crate::node::Node;

/// Calls of one peer in a play, at most, besides the first.
const CALLS_MAX: u32 = 12;
/// The ways to call again, by the name of their seeds.
const WAYS: [(&str, u8); 8] = [
    ("resumed", RESUMED),
    ("resumed_as_unknown", UNKNOWN),
    ("resumed_from_further_back", FURTHER_BACK),
    ("an_old_attempt", OLD_ATTEMPT),
    ("a_session_of_nobody", NOBODYS),
    ("received_what_was_never_sent", TOO_MUCH),
    ("received_less_than_reported", TOO_LITTLE),
    ("half_a_call", HALF),
];
const RESUMED: u8 = 0;
const UNKNOWN: u8 = 1;
const FURTHER_BACK: u8 = 2;
const OLD_ATTEMPT: u8 = 3;
const NOBODYS: u8 = 4;
const TOO_MUCH: u8 = 5;
const TOO_LITTLE: u8 = 6;
const HALF: u8 = 7;

impl Peer {
    /// Calls again by choice, with what it had broken before, or still there.
    pub(super) fn call_again(&mut self, node: &mut Node, choices: &mut Choices<'_>) {
        if self.has_left || self.calls >= CALLS_MAX {
            return;
        }
        self.calls += 1;
        let way = choices.byte();
        // Else the server is to find out that there is a newer one.
        if let how @ (0 | 1) = way >> 3 & 3 {
            self.lose_link(how);
        }
        let sure = self.is_sound() && !self.may_be_gone;
        let heard_bytes = self.heard_bytes;
        match way & 7 {
            UNKNOWN if sure => {
                self.session.is_known = false;
                self.resume(node, heard_bytes);
            }
            FURTHER_BACK => {
                let back =
                    u64::from(choices.short()).min(heard_bytes - self.stream.acknowledged_bytes.min(heard_bytes));
                self.resume(node, heard_bytes - back);
            }
            OLD_ATTEMPT => {
                let attempt = self.session.attempt.saturating_sub(choices.byte().into());
                let session = Session { attempt, is_known: true, received_bytes: heard_bytes, ..self.session };
                match self.call(node, session) {
                    Call::Refused => {}
                    Call::Welcomed(_, Reception::Gone, _) => assert!(!sure, "a session that goes on is known"),
                    Call::Welcomed(_, reception, _) => panic!("an old call was taken for a new one: {reception:?}"),
                }
            }
            NOBODYS => {
                let is_known = choices.byte().is_multiple_of(2);
                let number = self.session.number + STRAY_SESSION + u64::from(self.calls);
                let session = Session { number, attempt: 1, is_known, received_bytes: 0 };
                let Call::Welcomed(_, reception, _) = self.call(node, session) else { panic!("it was refused") };
                let due = if is_known { Reception::Gone } else { Reception::Fresh };
                assert_eq!(reception, due, "nobody's session is none");
            }
            TOO_MUCH => {
                let received_bytes = NEVER_SENT_BYTES.saturating_add(choices.word());
                let reception = self.call_with(node, received_bytes);
                assert!(matches!(reception, Call::Welcomed(_, Reception::Gone, _)), "nothing can be made of that");
                self.leave(0);
            }
            TOO_LITTLE if self.stream.acknowledged_bytes > 0 => {
                let received_bytes = u64::from(choices.short()) % self.stream.acknowledged_bytes;
                self.resume_or_end(node, received_bytes, false);
                // The report was lost with the link, and is said again: it reports what the server has not sent again yet, which may
                // take it for a violation.
                self.stream.is_doubtful |= self.link.is_some();
            }
            HALF => {
                self.session.attempt += 1;
                let session = Session { is_known: true, received_bytes: heard_bytes, ..self.session };
                self.note_told(heard_bytes);
                let (link, _) = prove(node, self.rank, session, self.pipes);
                for _ in 0..choices.byte() % 4 {
                    node.turn();
                }
                drop(link);
                self.lose_link(1);
            }
            _ => self.resume(node, heard_bytes),
        }
    }

    /// Goes on where it was, truly: it has received at least so much.
    pub(super) fn resume(&mut self, node: &mut Node, received_bytes: u64) {
        let sure = self.is_sound() && !self.may_be_gone;
        self.resume_or_end(node, received_bytes, sure);
    }

    fn resume_or_end(&mut self, node: &mut Node, received_bytes: u64, sure: bool) {
        match self.call_with(node, received_bytes) {
            Call::Welcomed(mut link, Reception::Resumed { received_bytes: taken_bytes }, rest) => {
                let least = self.taken_bytes.max(self.initiator.acknowledged_bytes());
                let possible = least..=self.said.len() as u64;
                assert!(possible.contains(&taken_bytes), "the server has {taken_bytes} bytes of {possible:?}");
                self.taken_bytes = taken_bytes;
                link.say(&self.said[taken_bytes as usize..]);
                self.link = Some(link);
                self.may_be_gone = false;
                self.again_bytes = self.heard_bytes - received_bytes;
                self.take_heard(&rest);
            }
            Call::Welcomed(_, Reception::Gone, _) => {
                assert!(!sure, "a session that nobody ended goes on");
                self.leave(0);
            }
            Call::Welcomed(_, Reception::Fresh, _) => panic!("a session does not begin twice"),
            Call::Refused => panic!("a call that is newer is taken"),
        }
    }

    /// A call says that so much was received: a later one of an honest peer says no less, whatever became of this one.
    fn note_told(&mut self, received_bytes: u64) {
        if received_bytes <= self.heard_bytes {
            self.stream.acknowledged_bytes = self.stream.acknowledged_bytes.max(received_bytes);
        }
    }

    fn call_with(&mut self, node: &mut Node, received_bytes: u64) -> Call {
        self.session.attempt += 1;
        self.note_told(received_bytes);
        let call = self.call(node, Session { received_bytes, ..self.session });
        self.session.is_known = true;
        call
    }
}

/// A call of this way as the choices of a seed, behind those that say who calls.
pub(super) fn seeds() -> impl Iterator<Item = (&'static str, fn(Script, u8) -> Script, u8)> {
    let said: fn(Script, u8) -> Script = |script, way| match way & 7 {
        FURTHER_BACK => script.byte(way).short(20),
        OLD_ATTEMPT | NOBODYS => script.byte(way).byte(0),
        TOO_MUCH => script.byte(way).word(1),
        TOO_LITTLE => script.byte(way).short(1),
        HALF => script.byte(way).byte(2),
        _ => script.byte(way),
    };
    WAYS.into_iter().map(move |(name, way)| (name, said, way))
}
