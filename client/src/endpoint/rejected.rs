//! Requests that were not taken.

use super::request::{Payload, Token};
use crate::completion::Outcome;
use crate::error::LostHow;

/// A request that was not taken, with all that came with it.
pub(crate) struct Rejected<'a> {
    /// `None`: there was no room.
    pub(crate) how: Option<LostHow>,
    pub(crate) token: Option<Token>,
    pub(crate) payload: Payload<'a>,
}

impl Rejected<'_> {
    /// Ends the parts that the request stood for.
    pub(crate) fn fail(self, how: &LostHow) {
        let outcome = Outcome::Lost(how.clone());
        if let Some(token) = self.token {
            token.fail(outcome.clone());
        }
        if let Payload::Streamed(held, _) | Payload::Headed(_, Some((held, _))) = self.payload {
            held.fail(outcome);
        }
    }
}
