//! What a request is made of, when it goes out, and what driving came to.

use longarm_memory::Region;
use longarm_proto::{Cursor, OLD_VALUE_BYTES, Run};

use crate::completion::{CompletionPart, Outcome};
use crate::origin_bytes::Held;

/// What a reply does when it comes.
#[allow(clippy::large_enum_variant, reason = "most tokens are those of gets, which have the large one")]
pub(crate) enum Token {
    /// Its bytes go here.
    Data { target: Held, cursor: Cursor },
    /// Its bytes go here, one run after the other.
    Coalesced(Vec<(Held, Run)>),
    /// Each of its values ends a part, one after the other.
    Values(Vec<CompletionPart>),
    /// A part is done, perhaps with a value.
    Part(CompletionPart),
    /// Nobody waits: the reply says how far the server is.
    Acknowledge,
}

impl Token {
    /// Bytes of data that come with the reply.
    pub(super) fn data_bytes(&self) -> u64 {
        match self {
            Token::Data { cursor, .. } => cursor.remaining(),
            Token::Coalesced(places) => places.iter().map(|(_, run)| run.bytes).sum(),
            Token::Values(parts) => (parts.len() * OLD_VALUE_BYTES) as u64,
            Token::Part(_) | Token::Acknowledge => 0,
        }
    }

    pub(super) fn fail(self, outcome: Outcome) {
        match self {
            Token::Data { target, .. } => target.fail(outcome),
            Token::Coalesced(places) => places.into_iter().for_each(|(target, _)| target.fail(outcome.clone())),
            Token::Values(parts) => parts.into_iter().for_each(|part| part.failed(outcome.clone())),
            Token::Part(part) => part.failed(outcome),
            Token::Acknowledge => {}
        }
    }
}

/// The payload of a request.
pub(crate) enum Payload<'a> {
    None,
    /// Copied at once: the caller may reuse its memory.
    Copied(Region<'a>, Cursor),
    /// Sent from where it is; one part of its completion.
    Streamed(Held, Cursor),
    /// A head that is copied, then bytes that are sent from where they are.
    Headed(&'a [u8], Option<(Held, Cursor)>),
}

/// What driving came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Driven {
    pub(crate) progress: bool,
    /// Some completion may have become complete: sleepers have to look.
    pub(crate) completed: bool,
    /// Requests have just been corked: the helper sends them if nobody else does.
    pub(crate) became_corked: bool,
}
