//! Messages with tags between two ranks, as `armci_msg_snd` and `armci_msg_rcv` have them.

use longarm_client::mail::Slot;
use longarm_client::{Lost, LostHow, Operation, WaitingCall};
use longarm_proto::{BadMail, Rank};

use crate::bootstrap::is_routed;
use crate::collective::LETTER_BYTES_MAX;
use crate::error::TransferError;
use crate::world::World;

/// The group under which messages with tags travel. No group has this number.
const TAGGED: u64 = (1 << 63) - 1;

/// What is waited in for them.
const CALL: WaitingCall = WaitingCall::Operation(Operation::Message);

fn slot(tag: u64) -> Slot {
    Slot { group: TAGGED, sequence: tag, step: 0 }
}

impl World {
    /// Sends a message. On return the body may be reused; the message waits at its target until it is received.
    /// Messages of one sender and tag arrive in order; of those above 256 MiB, which travel in pieces, one thread at a
    /// time may send with a tag and one may receive. `armci_msg_snd`.
    ///
    /// # Errors
    /// [`TransferError`]: the target does not exist or is lost.
    pub fn send_tagged(&self, rank: u32, tag: u64, body: &[u8]) -> Result<(), TransferError> {
        let pieces = body.chunks(LETTER_BYTES_MAX).chain(body.is_empty().then_some(body));
        for piece in pieces {
            self.inner.client.send_letter(Rank(rank), slot(tag), body.len() as u64, piece)?;
        }
        Ok(())
    }

    /// Waits for a message with this tag from a rank, or from any, and says from whom it came. `armci_msg_rcv`,
    /// `armci_msg_rcvany`.
    ///
    /// # Errors
    /// The sender is dead, or the rank that hosts this node's server, or in routed jobs that of its node; with `None`, any
    /// rank is whose death was not acknowledged.
    pub fn receive_tagged(&self, from: Option<u32>, tag: u64) -> Result<(u32, Vec<u8>), Lost> {
        let client = &self.inner.client;
        let dead = || {
            // Mail of other nodes comes through this node's server, and in routed jobs through that of the sender's.
            let layout = client.layout();
            let host = layout.server_host(layout.my_node());
            let routed = is_routed(&self.inner.config, layout);
            let sending_host =
                |rank: Rank| (routed && rank.0 < layout.rank_count()).then(|| layout.server_host(layout.node_of(rank)));
            let death = match from {
                Some(rank) => [Some(Rank(rank)), Some(host), sending_host(Rank(rank))]
                    .into_iter()
                    .flatten()
                    .find_map(|rank| client.failures().of(rank)),
                None => client.failures().first_unacknowledged(),
            }?;
            let (node, how) = (client.layout().node_of(death.rank), LostHow::Died(death.how));
            Some(Lost { rank: death.rank, node, operation: Operation::Message, how })
        };
        let (source, letter) = match from {
            Some(rank) => (Rank(rank), client.receive_letter(Rank(rank), slot(tag), CALL, &dead)?),
            None => client.receive_letter_from_any(slot(tag), &dead)?,
        };
        let mut body = letter.body;
        while (body.len() as u64) < letter.total_bytes {
            let next = client.receive_letter(source, slot(tag), CALL, &dead)?;
            let (found, missing) = (next.body.len() as u64, letter.total_bytes - body.len() as u64);
            if next.total_bytes != letter.total_bytes || !(1..=missing).contains(&found) {
                let (node, how) =
                    (client.layout().node_of(source), LostHow::BrokenMail(BadMail::WrongPiece { found, missing }));
                return Err(Lost { rank: source, node, operation: Operation::Message, how });
            }
            body.extend_from_slice(&next.body);
        }
        Ok((source.0, body))
    }
}
