//! One connection to the coordinator: how far it is, and what has come over it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::frames::Decoder;
use crate::proof::{CoordinatorProof, NONCE_BYTES};
use crate::rendezvous::Violation;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) phase: ConnectionPhase,
    /// The relay that it comes through, if it does.
    pub(super) through: Option<Through>,
    /// The random number of our side, for this connection alone.
    pub(super) nonce: [u8; NONCE_BYTES],
    /// What has come and was not taken yet.
    pub(super) received: Vec<u8>,
    /// Bytes of it in which there is no end of a line.
    searched: usize,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum ConnectionPhase {
    /// Nothing whole has come.
    Hello { until: Instant },
    /// It was challenged.
    Proof { proof: CoordinatorProof, until: Instant },
    /// It has proven itself, and is to say where it runs.
    Arriving { rank: u32 },
    /// It is a rank.
    Rank(u32),
    /// It is a relay, through which ranks come.
    Relay(Box<RelayConnection>),
}

/// The connection of a relay.
#[derive(Debug)]
pub(super) struct RelayConnection {
    /// The rank in whose process the relay is.
    pub(super) rank: u32,
    pub(super) frames: Decoder,
    /// The connection that each of its members is.
    pub(super) members: BTreeMap<u32, u64>,
}

impl RelayConnection {
    pub(super) fn new(rank: u32) -> RelayConnection {
        RelayConnection { rank, frames: Decoder::default(), members: BTreeMap::new() }
    }
}

/// How a connection comes through a relay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Through {
    /// The relay's own connection.
    pub(super) relay: u64,
    /// Which of the relay's members it is.
    pub(super) member: u32,
}

impl Connection {
    pub(super) fn new(nonce: [u8; NONCE_BYTES], until: Instant) -> Connection {
        Connection { phase: ConnectionPhase::Hello { until }, through: None, nonce, received: Vec::new(), searched: 0 }
    }

    /// When it is cut off, if it does not prove itself before.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.phase {
            ConnectionPhase::Hello { until } | ConnectionPhase::Proof { until, .. } => Some(until),
            ConnectionPhase::Arriving { .. } | ConnectionPhase::Rank(_) | ConnectionPhase::Relay(_) => None,
        }
    }

    /// The first bytes, if they have come.
    pub(super) fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let taken = *self.received.first_chunk()?;
        self.received.drain(..BYTES);
        Some(taken)
    }

    /// The first line without its end, if it has come.
    pub(super) fn take_line(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Violation> {
        let unknown = &self.received[self.searched..];
        let Some(end) = unknown.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.received.len();
            return if self.received.len() > bytes_max { Err(Violation::Endless) } else { Ok(None) };
        };
        let rest = self.received.split_off(self.searched + end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }
}
