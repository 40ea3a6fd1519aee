//! Questions to other ranks, as the world asks and answers them.

use std::sync::Arc;

use longarm_client::{Client, Lost, Operation};
use longarm_proto::Rank;

use super::World;
use crate::error::{AskError, MessageError};
use crate::question::{ANSWERS, Heard, Question, answer, read};
use crate::started::{Started, promise};

impl World {
    /// Says how this rank answers a kind of question. The handler gets the rank that asks, and the question; it runs as that of
    /// a message does ([`World::register_handler`]), and must not wait for other ranks. A question that comes before waits for it.
    ///
    /// ```
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Square(u64);
    ///
    /// impl longarm::Question for Square {
    ///     const NUMBER: u32 = 7;
    ///     type Answer = u64;
    ///     type Error = String;
    /// }
    ///
    /// let world = longarm::init()?;
    /// world.answer::<Square>(|_asker, Square(side)| side.checked_mul(side).ok_or("it is too large".into()))?;
    /// assert_eq!(world.ask(world.rank(), &Square(12)).wait()?, 144);
    /// # world.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`World::register_handler`].
    pub fn answer<Q: Question + 'static>(
        &self,
        handler: impl Fn(u32, Q) -> Result<Q::Answer, Q::Error> + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        self.register_handler(Q::NUMBER, move |message| answer(message, &handler))
    }

    /// Asks a rank, or this one. The answer is waited for or awaited; dropping what this returns means that nobody wants to know.
    ///
    /// # Errors
    /// What it returns yields [`AskError`]: the target does not exist, or has died, or one of the two can reach the other no more; what it answered if it could not; and which rank sent
    /// what cannot be read.
    pub fn ask<Q: Question>(&self, rank: u32, question: &Q) -> Started<Q::Answer, AskError<Q::Error>> {
        let (started, promised) = promise();
        let questions = &self.inner.questions;
        let payload = match postcard::to_stdvec(question) {
            Ok(payload) => payload,
            Err(error) => return Started::with(Err(AskError::Unwritable { reason: error.to_string() })),
        };
        if let Err(error) = self.hear_answers() {
            return Started::with(Err(error.into()));
        }
        let client = &self.inner.client;
        let due = client.layout().contains(Rank(rank)).then(|| client.answer_is_due(Rank(rank))).flatten();
        let ticket = questions.enter(Rank(rank), due, move |heard| promised.keep(read::<Q>(Rank(rank), heard)));
        if let Err(error) = self.send_message(rank, Q::NUMBER, &[ticket], &payload) {
            questions.tell(ticket, |asked| asked(Heard::NotAsked(error)));
            return started;
        }
        client.watch_over_answers();
        // Who died before it stood in the list is not told of any more, nor is a node that was lost when the question had gone out.
        if let Some(lost) = loss_of(client, Rank(rank)) {
            questions.tell(ticket, |asked| asked(Heard::Lost(lost)));
        }
        started
    }

    fn hear_answers(&self) -> Result<(), MessageError> {
        let world = Arc::downgrade(&self.inner);
        self.inner.handlers.register_once(&self.inner.client, ANSWERS, move |message| {
            if let Some(inner) = world.upgrade() {
                inner.questions.hear(Rank(message.source()), message.arguments(), message.payload());
            }
        })
    }
}

/// Why a rank answers nothing more, if that is known: it is dead, its node cannot be reached any more, or it cannot reach this one.
pub(super) fn loss_of(client: &Client, rank: Rank) -> Option<Lost> {
    let (operation, node) = (Operation::Message, client.layout().node_of(rank));
    let is_away = !client.same_node(rank);
    let dead = client.alive(operation, rank).err();
    // Not of any rank there: others may still reach this node.
    let out_of_reach = || client.out_of_reach(operation, rank);
    dead.or_else(|| client.lost_connection(operation, |other| is_away && other == node)).or_else(out_of_reach)
}
