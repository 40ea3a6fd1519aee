//! When to tell the server what was received of its replies, and to ask it what it has received of our requests.
//!
//! Both sides keep what they have sent until the other one acknowledges it as received. An acknowledgement is a request whose reply is
//! an acknowledgement too, so it is sent when either side keeps much. An initiator never asks for more replies than the
//! responder may have to keep: it waits for those on their way and acknowledges first.

use longarm_proto::{EAGER_BYTES_MAX, LARGE_REPLY_BYTES, REPLY_BYTES, Request, UNACKNOWLEDGED_REPLY_BYTES_MAX};

/// Bytes received since the last acknowledgement that make another one due.
const RECEIVED_BYTES: u64 = 64 << 10;
/// Bytes that are sent from their own places after which the server is asked for them although nobody waits yet.
const STREAMED_BYTES: u64 = 1 << 20;

/// About what a socket takes in although nobody reads: half of the size with which the kernel makes it.
const KERNEL_KEEPS_BYTES: u64 = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    /// Acknowledgements whose replies are due.
    pub(super) due: usize,
    /// Of all bytes received, how many were acknowledged.
    acknowledged_bytes: u64,
    /// What counts as kept by the server, since the session began: asked for, received, acknowledged.
    asked: u64,
    received: u64,
    acknowledged: u64,
    /// Gets whose data the server sends from its window: how many were asked for, and how many are over. Nothing that
    /// could change the data may be applied before it is here.
    large_gets: u64,
    pub(super) large_gets_over: u64,
    /// Bytes of data that were asked for and are not all here.
    data: u64,
    /// Bytes of payloads that are sent from their own places and that no acknowledgement asks for yet.
    streamed_bytes: u64,
}

impl Acknowledgements {
    /// Bytes that the server keeps for the reply to a request.
    fn reply_bytes(request: &Request) -> u64 {
        if request.has_reply() { REPLY_BYTES as u64 + kept_bytes(request.reply_data_bytes()) } else { 0 }
    }

    /// A request is sent.
    pub(super) fn asked(&mut self, request: &Request) {
        self.asked += Acknowledgements::reply_bytes(request);
        self.large_gets += u64::from(is_large_get(request));
        self.data += request.reply_data_bytes();
    }

    /// Data that was asked for is here, or will not come.
    pub(super) fn data_came(&mut self, bytes: u64) {
        self.data = self.data.saturating_sub(bytes);
    }

    /// Whether more data is on its way than the kernel keeps until somebody takes it.
    pub(super) fn expects_much(&self) -> bool {
        self.data > KERNEL_KEEPS_BYTES
    }

    /// How many large gets have to be over before this request may be sent, if it has to wait.
    pub(super) fn gate(&self, request: &Request) -> Option<u64> {
        (self.holds_back_writes() && !may_pass_gets(request)).then_some(self.large_gets)
    }

    /// Whether a write has to wait for the data of a get.
    pub(super) fn holds_back_writes(&self) -> bool {
        self.large_gets > self.large_gets_over
    }

    /// A reply came, with so many bytes of data behind it.
    pub(super) fn received(&mut self, data_bytes: u64) {
        self.received += REPLY_BYTES as u64 + kept_bytes(data_bytes);
    }

    /// A payload is sent from its own place.
    pub(super) fn streamed(&mut self, bytes: u64) {
        self.streamed_bytes += bytes;
    }

    /// Whether the owner of a payload would wait for an acknowledgement that nobody has asked for.
    pub(super) fn owes_for_streams(&self) -> bool {
        self.streamed_bytes > 0
    }

    /// The same, for so many bytes that it should be asked for although nobody waits yet.
    pub(super) fn streams_much(&self) -> bool {
        self.streamed_bytes >= STREAMED_BYTES
    }

    /// An acknowledgement of all that was received is sent.
    pub(super) fn note_acknowledgement(&mut self, received_bytes: u64) {
        self.due += 1;
        self.streamed_bytes = 0;
        self.acknowledged_bytes = received_bytes;
        self.acknowledged = self.received;
    }

    /// Whether as many replies are on their way as may be: more can be asked for when some of them are here.
    pub(super) fn is_full(&self) -> bool {
        self.asked.saturating_sub(self.received) >= UNACKNOWLEDGED_REPLY_BYTES_MAX as u64 / 2
    }

    /// Whether the server keeps so much that the next request has to be preceded by an acknowledgement.
    pub(super) fn is_due(&self, received_bytes: u64) -> bool {
        received_bytes - self.acknowledged_bytes >= RECEIVED_BYTES
            || self.asked.saturating_sub(self.acknowledged) >= UNACKNOWLEDGED_REPLY_BYTES_MAX as u64 / 2
    }
}

/// What counts for data of so many bytes that the server keeps.
fn kept_bytes(data_bytes: u64) -> u64 {
    if data_bytes <= EAGER_BYTES_MAX { data_bytes } else { LARGE_REPLY_BYTES as u64 }
}

/// Whether the data of this get comes straight from the window.
pub(super) fn is_large_get(request: &Request) -> bool {
    matches!(request, Request::Get { shape, .. } if shape.bytes() > EAGER_BYTES_MAX)
}

/// Whether the request may be applied while an earlier get may have to be sent again.
fn may_pass_gets(request: &Request) -> bool {
    matches!(request, Request::Get { .. } | Request::Quiet | Request::Acknowledge { .. } | Request::Leave)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longarm_proto::{AccessKey, Generation, Rank, Shape, WindowId, WindowRef};

    fn get(bytes: u64) -> Request {
        let target = WindowRef { rank: Rank(0), window: WindowId(1), generation: Generation(0), key: AccessKey(2) };
        Request::Get { target, shape: Shape::contiguous(0, bytes) }
    }

    #[test]
    fn what_the_server_has_to_keep_is_bounded_however_many_gets_are_started() {
        let mut acknowledgements = Acknowledgements::default();
        let (mut received_bytes, mut kept) = (0, 0_u64);
        for round in 0..10_000_u64 {
            if acknowledgements.is_full() {
                // The driver takes in what is on its way.
                while acknowledgements.received < acknowledgements.asked {
                    acknowledgements.received(1000);
                    received_bytes += 1032;
                }
            }
            if acknowledgements.is_due(received_bytes) {
                acknowledgements.note_acknowledgement(received_bytes);
                kept = acknowledgements.asked - acknowledgements.received;
            }
            acknowledgements.asked(&get(1000));
            kept += 1032;
            assert!(kept <= UNACKNOWLEDGED_REPLY_BYTES_MAX as u64, "round {round} keeps {kept} bytes");
        }
    }

    #[test]
    fn only_gets_whose_data_is_not_copied_hold_back_what_is_behind_them() {
        assert!(!is_large_get(&get(EAGER_BYTES_MAX)) && is_large_get(&get(EAGER_BYTES_MAX + 1)));
        assert!(may_pass_gets(&get(1)) && may_pass_gets(&Request::Quiet));
        let target = Rank(0);
        assert!(!may_pass_gets(&Request::Message { target, bytes: 1, rest: 0 }));
    }
}
