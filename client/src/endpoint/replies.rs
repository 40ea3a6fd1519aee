//! What a reply does when it comes, and where the data behind it goes.

use longarm_proto::{Cursor, EAGER_BYTES_MAX, Mutation, OLD_VALUE_BYTES, REPLY_BYTES, Reply, mutation};

use super::request::{Driven, Token};
use super::state::{Broken, State};
use crate::completion::Outcome;

impl State {
    /// Uses what has arrived for one step. False: more has to arrive.
    pub(super) fn step(&mut self, driven: &mut Driven) -> Result<bool, Broken> {
        if let Some((target, cursor)) = &mut self.landing {
            let before = cursor.remaining();
            self.incoming.drain_into(target, cursor);
            if cursor.remaining() > 0 {
                return Ok(cursor.remaining() < before);
            }
            self.has_landed();
            driven.completed = true;
            return Ok(true);
        }
        if !self.values.as_slice().is_empty() {
            return Ok(self.take_value(driven));
        }
        let Some(bytes) = self.incoming.take_array::<REPLY_BYTES>() else { return Ok(false) };
        let reply = self.initiator.handle_reply(bytes)?;
        let acknowledged = self.initiator.acknowledged_bytes();
        match self.outgoing.acknowledge(acknowledged, drop) {
            Ok(completed) => driven.completed |= completed,
            Err(violation) => {
                self.unanswered = token_of(reply);
                return Err(violation.into());
            }
        }
        self.note_received(&reply);
        self.take_reply(reply, driven)?;
        Ok(true)
    }

    /// The server has to keep so much less.
    fn note_received(&mut self, reply: &Reply<Token>) {
        match reply {
            Reply::Data { bytes, .. } => self.acknowledgements.received(*bytes),
            // The data that was asked for will not come.
            Reply::Refused {
                token: Some(token @ (Token::Data { .. } | Token::Coalesced(_) | Token::Values(_))),
                ..
            } => {
                self.acknowledgements.received(token.data_bytes());
                self.acknowledgements.data_came(token.data_bytes());
            }
            // Nobody has asked for these.
            Reply::Refused { token: None, .. } | Reply::MailTaken { .. } => {}
            _ => self.acknowledgements.received(0),
        }
    }

    fn take_reply(&mut self, reply: Reply<Token>, driven: &mut Driven) -> Result<(), Broken> {
        // Somebody may wait for it. Data completes nothing before it is here, nor does what nobody waits for.
        driven.completed |= !matches!(
            &reply,
            Reply::Data { .. } | Reply::Done(Token::Acknowledge) | Reply::Refused { token: None, .. }
        );
        match reply {
            Reply::Data { token: Token::Data { target, cursor }, bytes } => {
                self.landing_bytes = bytes;
                self.landing = Some((target, cursor));
            }
            Reply::Data { token: Token::Coalesced(places), .. } => {
                self.landings = places.into_iter();
                self.land_next();
            }
            Reply::Data { token: Token::Values(mut parts), .. } => {
                if mutation(Mutation::OldValuesMixed) {
                    parts.reverse();
                }
                self.values = parts.into_iter();
            }
            Reply::Data { .. } => unreachable!("data is asked for with a place, or with parts that it ends"),
            Reply::Done(Token::Acknowledge) => driven.completed |= self.is_acknowledged(),
            Reply::Done(token) => drop(token),
            Reply::Granted { token, inherited } => end_with(token, inherited.into()),
            Reply::Value { token, value } => {
                self.old_value_came();
                end_with(token, value);
            }
            Reply::Refused { token: Some(token), refusal, detail, .. } => {
                if matches!(&token, Token::Data { cursor, .. } if cursor.remaining() > EAGER_BYTES_MAX) {
                    self.large_get_is_over();
                }
                self.acknowledgements.due -= usize::from(matches!(token, Token::Acknowledge));
                token.fail(Outcome::Refused { refusal, detail });
            }
            Reply::Refused { token: None, refusal, detail, .. } => {
                self.refused.get_or_insert(Outcome::Refused { refusal, detail });
            }
            Reply::MailTaken { bytes } => self.mail.taken(bytes)?,
        }
        Ok(())
    }

    /// The server has said how far it is. True if that is all: it was answered behind all others, as a quiet is, and somebody may
    /// wait for it in one.
    fn is_acknowledged(&mut self) -> bool {
        self.acknowledgements.due -= 1;
        let is_last = self.acknowledgements.due == 0 && self.is_last(self.last_acknowledgement);
        self.unconfirmed &= !is_last;
        is_last
    }

    /// The next of several old values, if it is here.
    fn take_value(&mut self, driven: &mut Driven) -> bool {
        let Some(bytes) = self.incoming.take_array::<OLD_VALUE_BYTES>() else { return false };
        let value = u64::from_le_bytes(*bytes);
        self.values.next().expect("the caller has looked").done_with(value);
        self.acknowledgements.data_came(OLD_VALUE_BYTES as u64);
        driven.completed = true;
        true
    }

    /// All of the data that was coming in is here.
    fn has_landed(&mut self) {
        let (target, _) = self.landing.take().expect("there was one");
        drop(target);
        self.acknowledgements.data_came(self.landing_bytes);
        if self.landing_bytes > EAGER_BYTES_MAX {
            self.large_get_is_over();
        }
        self.land_next();
    }

    /// The data of the next of several gets is coming in, if there is one.
    fn land_next(&mut self) {
        if let Some((target, run)) = self.landings.next() {
            self.landing_bytes = run.bytes;
            self.landing = Some((target, Cursor::new(run.into())));
        }
    }

    /// Its data will not have to be sent again: what could change it may follow.
    fn large_get_is_over(&mut self) {
        self.acknowledgements.large_gets_over += 1;
        self.outgoing.open_gates(self.acknowledgements.large_gets_over);
    }
}

/// Who waits for a reply, if anybody does.
fn token_of(reply: Reply<Token>) -> Option<Token> {
    match reply {
        Reply::Done(token) | Reply::Data { token, .. } | Reply::Granted { token, .. } | Reply::Value { token, .. } => {
            Some(token)
        }
        Reply::Refused { token, .. } => token,
        Reply::MailTaken { .. } => None,
    }
}

/// Ends the part that a token stands for with a value.
fn end_with(token: Token, value: u64) {
    if let Token::Part(part) = token {
        part.done_with(value);
    }
}
