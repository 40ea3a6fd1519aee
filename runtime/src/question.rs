//! Questions to other ranks: active messages with types, an answer, and errors that tell whose fault they are.
//!
//! ```text
//!   asker                                       target
//!   ask ── message Q::NUMBER: ticket, question ──► handler: Result<Answer, Error>
//!   Started ◄── reply ANSWERS: ticket, what ──────┘
//! ```

use std::collections::HashMap;

use longarm_client::{AnswerDue, Lost};
use longarm_proto::Rank;
use longarm_shm::sync::{AtomicU64, Ordering};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{AskError, MessageError};
use crate::message::Message;

/// The handler of all answers. Programs have all numbers below it.
pub(crate) const ANSWERS: u32 = u32::MAX;

/// What an answer is: its second word.
const ANSWERED: u64 = 0;
const FAILED: u64 = 1;
const UNREADABLE: u64 = 2;

/// What one rank asks another, and what comes back: types of the program with serde's traits. All ranks run the same program, and so agree on
/// them.
///
/// ```
/// use longarm::Question;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Divide {
///     by: i32,
///     numbers: Vec<i32>,
/// }
///
/// impl Question for Divide {
///     const NUMBER: u32 = 1;
///     type Answer = Vec<i32>;
///     type Error = String;
/// }
///
/// let world = longarm::init()?;
/// world.answer::<Divide>(|asker, question| {
///     let quotients = question.numbers.iter().map(|number| number.checked_div(question.by));
///     quotients.collect::<Option<_>>().ok_or_else(|| format!("rank {asker} wants to divide by zero"))
/// })?;
/// let right = (world.rank() + 1) % world.size();
/// let asked = world.ask(right, &Divide { by: 3, numbers: vec![9, 12] });
/// // ... compute ...
/// assert_eq!(asked.wait()?, [3, 4]); // or asked.await
/// # world.barrier_collective()?;
/// # world.finalize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Question: Serialize + DeserializeOwned {
    /// Which handler answers it. No two kinds of question, and no other message, have the same one.
    const NUMBER: u32;
    /// What comes back.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// What comes back if it cannot be answered.
    type Error: Serialize + DeserializeOwned + Send + 'static;
}

/// Runs a handler on a message, and sends what it says.
pub(crate) fn answer<Q: Question>(message: &Message<'_>, handler: &impl Fn(u32, Q) -> Result<Q::Answer, Q::Error>) {
    let asker = message.source();
    let [ticket] = *message.arguments() else {
        tracing::warn!(rank = asker, handler = Q::NUMBER, "a rank has sent something that is no question");
        return;
    };
    let (what, payload) = match postcard::from_bytes::<Q>(message.payload()) {
        Ok(question) => match handler(asker, question) {
            Ok(answer) => (ANSWERED, postcard::to_stdvec(&answer)),
            Err(error) => (FAILED, postcard::to_stdvec(&error)),
        },
        Err(error) => {
            tracing::warn!(
                rank = asker,
                handler = Q::NUMBER,
                "a rank has sent a question that cannot be read: {error}"
            );
            (UNREADABLE, Ok(error.to_string().into_bytes()))
        }
    };
    let (what, payload) =
        payload.map_or_else(|error| (UNREADABLE, error.to_string().into_bytes()), |bytes| (what, bytes));
    if let Err(error) = message.reply(ANSWERS, &[ticket, what], &payload) {
        tracing::debug!(rank = asker, "nobody is there for an answer: {error}");
    }
}

/// What an asker learns.
pub(crate) enum Heard<'a> {
    /// What the target says: which of the three, and its bytes.
    Said(u64, &'a [u8]),
    /// The message was not sent.
    NotAsked(MessageError),
    /// The target is gone.
    Lost(Lost),
}

/// What an answer means.
pub(crate) fn read<Q: Question>(rank: Rank, heard: Heard<'_>) -> Result<Q::Answer, AskError<Q::Error>> {
    let unreadable = |error: postcard::Error| AskError::UnreadableAnswer { rank, reason: error.to_string() };
    match heard {
        Heard::Said(ANSWERED, bytes) => postcard::from_bytes(bytes).map_err(unreadable),
        Heard::Said(FAILED, bytes) => Err(postcard::from_bytes(bytes).map_or_else(unreadable, AskError::Answered)),
        Heard::Said(UNREADABLE, bytes) => {
            Err(AskError::UnreadableQuestion { rank, reason: String::from_utf8_lossy(bytes).into_owned() })
        }
        Heard::Said(what, _) => {
            Err(AskError::UnreadableAnswer { rank, reason: format!("there is no kind {what} of answer") })
        }
        Heard::NotAsked(error) => Err(error.into()),
        Heard::Lost(lost) => Err(AskError::Lost(lost)),
    }
}

type Asked = Box<dyn FnOnce(Heard<'_>) + Send>;

/// One question.
struct Entry {
    rank: Rank,
    asked: Asked,
    /// Has the rank's node watched meanwhile.
    _due: Option<AnswerDue>,
}

/// Questions that are not answered yet.
#[derive(Default)]
pub(crate) struct Questions {
    asked: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

impl Questions {
    pub(crate) fn enter(
        &self,
        rank: Rank,
        due: Option<AnswerDue>,
        asked: impl FnOnce(Heard<'_>) + Send + 'static,
    ) -> u64 {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().insert(ticket, Entry { rank, asked: Box::new(asked), _due: due });
        ticket
    }

    /// Without the lock: who hears may ask again.
    pub(crate) fn tell(&self, ticket: u64, tell: impl FnOnce(Asked)) {
        let asked = self.asked.lock().remove(&ticket);
        if let Some(entry) = asked {
            tell(entry.asked);
        }
    }

    /// A rank has died: it answers nothing more.
    pub(crate) fn lose(&self, rank: Rank, lost: &Lost) {
        self.lose_if(|asked| (asked == rank).then(|| lost.clone()));
    }

    /// Whether any are not answered yet.
    pub(crate) fn are_any(&self) -> bool {
        !self.asked.lock().is_empty()
    }

    pub(crate) fn lose_if(&self, loss_of: impl Fn(Rank) -> Option<Lost>) {
        let lost: Vec<(Asked, Lost)> = {
            let mut all = self.asked.lock();
            let of_ranks = all.iter().filter_map(|(ticket, entry)| Some((*ticket, loss_of(entry.rank)?)));
            let of_ranks: Vec<(u64, Lost)> = of_ranks.collect();
            of_ranks.into_iter().filter_map(|(ticket, lost)| Some((all.remove(&ticket)?.asked, lost))).collect()
        };
        lost.into_iter().for_each(|(asked, lost)| asked(Heard::Lost(lost)));
    }

    /// An answer has come.
    pub(crate) fn hear(&self, source: Rank, arguments: &[u64], payload: &[u8]) {
        let [ticket, what] = *arguments else {
            tracing::warn!(rank = source.0, "a rank has sent something that is no answer");
            return;
        };
        let asked = {
            let mut all = self.asked.lock();
            match all.get(&ticket) {
                Some(entry) if entry.rank == source => all.remove(&ticket),
                _ => None,
            }
        };
        match asked {
            Some(entry) => (entry.asked)(Heard::Said(what, payload)),
            None => tracing::warn!(rank = source.0, ticket, "a rank has answered what it was not asked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longarm_client::{LostHow, Operation};
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Sum(Vec<u32>);

    impl Question for Sum {
        const NUMBER: u32 = 1;
        type Answer = (u64, String);
        type Error = Option<i8>;
    }

    type Result = std::result::Result<(u64, String), AskError<Option<i8>>>;

    fn heard(what: u64, bytes: &[u8]) -> Result {
        read::<Sum>(Rank(5), Heard::Said(what, bytes))
    }

    #[test]
    fn what_comes_back_is_the_answer_or_the_error_that_was_sent() {
        let answer = (7_u64, String::from("seven"));
        let bytes = postcard::to_stdvec(&answer).unwrap();
        assert!(heard(ANSWERED, &bytes).is_ok_and(|found| found == answer));
        let bytes = postcard::to_stdvec(&Some(-3_i8)).unwrap();
        assert!(matches!(heard(FAILED, &bytes), Err(AskError::Answered(Some(-3)))));
    }

    #[test]
    fn whatever_a_broken_rank_answers_is_an_error_that_names_it() {
        let whole = postcard::to_stdvec(&(u64::MAX, String::from("a text"))).unwrap();
        let names = |found: Result| match found {
            Err(error @ (AskError::UnreadableAnswer { .. } | AskError::UnreadableQuestion { .. })) => {
                assert!(error.to_string().contains("rank 5"), "{error}");
            }
            other => panic!("{other:?}"),
        };
        (0..whole.len()).for_each(|bytes| names(heard(ANSWERED, &whole[..bytes])));
        // A text of 2^63 bytes, and one that is not UTF-8.
        names(heard(ANSWERED, &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, b'x']));
        names(heard(ANSWERED, &[1, 2, 0xff, 0xfe]));
        names(heard(FAILED, &[7]));
        names(heard(FAILED, &[]));
        names(heard(UNREADABLE, &[0xff]));
        names(heard(3, &[]));
        names(heard(u64::MAX, &whole));
    }

    #[test]
    fn only_who_was_asked_is_heard_and_only_once() {
        let questions = Questions::default();
        let told = Arc::new(AtomicU64::new(0));
        let telling = Arc::clone(&told);
        let ticket = questions.enter(Rank(2), None, move |_| {
            telling.fetch_add(1, Ordering::Relaxed);
        });
        questions.hear(Rank(3), &[ticket, ANSWERED], &[]);
        questions.hear(Rank(2), &[ticket + 1, ANSWERED], &[]);
        questions.hear(Rank(2), &[ticket], &[]);
        assert_eq!(told.load(Ordering::Relaxed), 0, "by another rank, to another ticket, without a kind");
        questions.hear(Rank(2), &[ticket, ANSWERED], &[]);
        questions.hear(Rank(2), &[ticket, ANSWERED], &[]);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        let lost = Lost {
            rank: Rank(2),
            node: longarm_proto::NodeId(0),
            operation: Operation::Message,
            how: LostHow::Finalized,
        };
        let telling = Arc::clone(&told);
        let of_lost = questions.enter(Rank(2), None, move |heard| {
            assert!(matches!(heard, Heard::Lost(_)));
            telling.fetch_add(10, Ordering::Relaxed);
        });
        let of_other = questions.enter(Rank(4), None, |_| panic!("it lives"));
        questions.lose(Rank(2), &lost);
        assert_eq!(told.load(Ordering::Relaxed), 11);
        let left: Vec<u64> = questions.asked.lock().keys().copied().collect();
        assert!(left == [of_other] && of_lost != of_other);
    }
}
