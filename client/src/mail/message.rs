//! What is sent from rank to rank.

use std::sync::Arc;

use longarm_proto::Rank;

/// What tells the messages of one collective call from those of every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The group.
    pub group: u64,
    /// How many collectives this group has done before.
    pub sequence: u64,
    /// Which step of the collective.
    pub step: u32,
}

/// A message of a collective.
#[derive(Debug)]
pub struct Letter {
    /// Bytes of the whole body, of which this letter may be a piece.
    pub total_bytes: u64,
    /// The data, or a piece of it.
    pub body: Vec<u8>,
    /// How many letters had come to this rank before.
    pub(crate) arrival: u64,
}

/// An active message as it arrives.
#[derive(Debug)]
pub struct ActiveMessage {
    /// Who sent it.
    pub source: Rank,
    /// Which handler.
    pub handler: u32,
    /// Whether it is the reply to one of ours.
    pub is_reply: bool,
    /// Up to 16 words.
    pub arguments: Vec<u64>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Runs active messages, one at a time. The reply, if any, is sent through the client. `None` stands for no message:
/// it is what [`crate::Client::call_dispatch`] asks for.
pub type Dispatch = Arc<dyn Fn(Option<ActiveMessage>) + Send + Sync>;
