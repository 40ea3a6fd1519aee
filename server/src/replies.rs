//! What a connection has to answer, until its peer has said that it has it.

use longarm_netmod::flow::{Costs, Outgoing};
use longarm_proto::{
    Cursor, DESCRIPTOR_BYTES_MAX, EAGER_BYTES_MAX, LARGE_REPLY_BYTES, Mutation, REPLY_BYTES, ReplyBody, ReplyHeader,
    RequestId, UNACKNOWLEDGED_REPLY_BYTES_MAX, Violation, mutation,
};

use crate::table::TargetPart;

/// Replies that may wait before the connection takes up no further request.
const REPLIES_BYTES_MAX: usize = 256 << 10;
/// Payloads that may wait in their windows before no further get is taken up.
const WAITING_PAYLOAD_BYTES_MAX: u64 = 256 << 10;
/// Gets up to this size are copied behind their reply header: one send for many.
const COPIED_BYTES_MAX: u64 = EAGER_BYTES_MAX;
/// A reply from this size on is large, and so are several that wait together: to receive it takes longer than to change to the thread that does.
const LARGE_REPLY_BYTES_MIN: u64 = 80 << 10;
/// Replies that were sent and not acknowledged. An initiator asks for no more than half of it at once.
const UNACKNOWLEDGED_BYTES_MAX: usize = 2 * UNACKNOWLEDGED_REPLY_BYTES_MAX;
// A payload that is sent from its window, with the two cursors of the largest shape, is no more than four times what counts for it.
const _: () = assert!(2 * DESCRIPTOR_BYTES_MAX <= 4 * LARGE_REPLY_BYTES);

/// Replies that wait to be sent, or to be acknowledged.
///
/// While a payload waits in its window no further request of this connection is taken up, but for gets until much waits. That keeps a
/// later put from changing bytes that an earlier get has yet to read, and bounds the memory.
pub(crate) struct Replies {
    pub(crate) outgoing: Outgoing<TargetPart>,
    /// How far the requests have been received, which every reply says.
    pub(crate) received_bytes: u64,
    /// A large one was begun since that was last asked.
    pub(crate) began_large: bool,
}

impl Replies {
    pub(crate) fn new(costs: Costs) -> Replies {
        Replies { outgoing: Outgoing::new(costs), received_bytes: 0, began_large: false }
    }

    pub(crate) fn send(&mut self, id: RequestId, body: ReplyBody) {
        if mutation(Mutation::ReplyDropped) && id.0.is_multiple_of(16) {
            return;
        }
        let mut header = [0; REPLY_BYTES];
        let received_bytes = self.received_bytes + 100 * u64::from(mutation(Mutation::AcknowledgedTooMuch));
        ReplyHeader { id, body, received_bytes }.encode(&mut header);
        self.outgoing.write(|bytes| bytes.extend_from_slice(&header));
    }

    /// Sends the cursor's bytes of the place behind everything that waits already.
    pub(crate) fn send_from(&mut self, place: TargetPart, cursor: Cursor) {
        self.began_large |= cursor.remaining() + self.outgoing.unsent_stream_bytes() >= LARGE_REPLY_BYTES_MIN;
        if cursor.remaining() <= COPIED_BYTES_MAX {
            self.outgoing.copy(&place, cursor);
        } else {
            self.outgoing.stream(place, cursor);
        }
    }

    /// The data of a reply that was just begun: old values of words, which no later request can change.
    pub(crate) fn send_values(&mut self, values: &[u64]) {
        self.outgoing.write(|bytes| values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes())));
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.outgoing.is_sent()
    }

    /// Bytes that wait to be sent, those not counted that wait in a window.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.outgoing.buffered_bytes()
    }

    /// Bytes that were copied and wait to be sent.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.outgoing.unsent_bytes()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.has_room_for_payload() && !self.outgoing.has_unsent_stream()
    }

    /// Whether another payload may wait in its window. A few short ones go out together.
    pub(crate) fn has_room_for_payload(&self) -> bool {
        self.outgoing.unsent_bytes() < REPLIES_BYTES_MAX
            && self.outgoing.unsent_stream_bytes() < WAITING_PAYLOAD_BYTES_MAX
    }

    /// The peer acknowledges often enough, so that what is kept for it is bounded.
    pub(crate) fn check_unacknowledged(&self) -> Result<(), Violation> {
        let (bytes, streams) = (self.outgoing.buffered_bytes(), self.outgoing.streams());
        if bytes + streams * LARGE_REPLY_BYTES > UNACKNOWLEDGED_BYTES_MAX + REPLIES_BYTES_MAX {
            return Err(Violation::Unacknowledged { bytes: bytes as u64, streams: streams as u64 });
        }
        Ok(())
    }
}
