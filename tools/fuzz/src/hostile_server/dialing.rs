//! How the hostile server takes calls: truly, late, not at all, or with a session that is another one.

use std::sync::{Arc, Mutex, PoisonError};

use longarm_client::{Dial, DialStep, Dialing, LostHow};
use longarm_proto::{NodeId, Reception, Session};

use super::link::{Answers, HostileLink};
use crate::choices::Choices;

/// What comes of a call, by the name of its seed. Lower numbers welcome the caller as a sound server does.
pub(super) const ACTIONS: [(&str, u8); 9] = [
    ("welcomed_again", HONEST),
    ("welcomed_late", LATE),
    ("welcomed_another_time", FAILED),
    ("proves_wrongly", FAILED_FOR_GOOD),
    ("gone", GONE),
    ("fresh_again", FRESH),
    ("received_too_much", TOO_MUCH),
    ("received_too_little", TOO_LITTLE),
    ("received_anything", ANYTHING),
];
pub(super) const HONEST: u8 = 0;
const LATE: u8 = 8;
const FAILED: u8 = 9;
const FAILED_FOR_GOOD: u8 = 10;
pub(super) const GONE: u8 = 11;
const FRESH: u8 = 12;
const TOO_MUCH: u8 = 13;
const TOO_LITTLE: u8 = 14;
const ANYTHING: u8 = 15;

/// See the module.
pub(super) struct HostileDial(pub(super) Arc<Mutex<Answers>>);

impl Dial for HostileDial {
    fn start(&self, _node: NodeId, session: Session) -> Result<Box<dyn Dialing>, LostHow> {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!answers.is_over, "nobody calls for a session that is lost");
        assert!(session.attempt > answers.attempt, "each call is newer than the last");
        assert_eq!(session.is_known, answers.is_known, "a session is known once it was welcomed");
        assert_eq!(session.received_bytes, answers.delivered_bytes, "a rank says how much it has received");
        answers.attempt = session.attempt;
        if answers.has_said_all() {
            answers.is_over = true;
            return Err(LostHow::Unreachable("it has nothing more to say".to_owned()));
        }
        Ok(Box::new(HostileDialing(Arc::clone(&self.0))))
    }
}

/// A call on its way.
struct HostileDialing(Arc<Mutex<Answers>>);

impl Dialing for HostileDialing {
    fn poll(&mut self) -> DialStep {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was_known = answers.is_known;
        let step = answers.by_choice(take_call).unwrap_or(Step::Failed { may_pass: true });
        match step {
            Step::Pending => DialStep::Pending,
            Step::Failed { may_pass } => {
                answers.is_over |= !may_pass;
                DialStep::Failed { reason: "it does not want to".to_owned(), may_pass }
            }
            Step::Up(reception) => {
                let resumed = Reception::Resumed { received_bytes: answers.taken_bytes };
                let truth = match was_known {
                    true => resumed,
                    false => Reception::Fresh,
                };
                if reception.is_some_and(|reception| reception != truth && reception != resumed) {
                    (answers.is_honest, answers.is_deaf) = (false, true);
                }
                let reception = reception.unwrap_or(truth);
                answers.is_known = true;
                // Not what was never sent, nor less than an earlier reply has said, nor another session.
                let possible = match reception {
                    Reception::Resumed { received_bytes } => received_bytes <= answers.sent_bytes,
                    Reception::Fresh => !was_known,
                    Reception::Gone => false,
                };
                answers.is_over |= !possible;
                drop(answers);
                DialStep::Up { link: Box::new(HostileLink::new(Arc::clone(&self.0))), reception }
            }
        }
    }
}

enum Step {
    Pending,
    Failed {
        may_pass: bool,
    },
    /// `None`: the truth.
    Up(Option<Reception>),
}

fn take_call(answers: &mut Answers, choices: &mut Choices<'_>) -> Step {
    let resumed = |received_bytes| Step::Up(Some(Reception::Resumed { received_bytes }));
    match choices.byte() % 16 {
        LATE => Step::Pending,
        FAILED => Step::Failed { may_pass: true },
        FAILED_FOR_GOOD => Step::Failed { may_pass: false },
        GONE => Step::Up(Some(Reception::Gone)),
        FRESH => Step::Up(Some(Reception::Fresh)),
        TOO_MUCH => resumed(answers.taken_bytes.saturating_add(1 + u64::from(choices.short()))),
        TOO_LITTLE => resumed(answers.taken_bytes.saturating_sub(1 + u64::from(choices.short()))),
        ANYTHING => resumed(choices.word()),
        _ => Step::Up(None),
    }
}
