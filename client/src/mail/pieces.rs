//! Long messages to other nodes.

use longarm_proto::{Cursor, MAIL_PIECE_BYTES_MAX, Rank, Request, Run, Shape};

use crate::client::Client;
use crate::endpoint::{Endpoint, Payload, Sending};
use crate::error::{Lost, Operation};
use crate::origin_bytes::{Lent, OriginBytes};
use crate::wakers;

impl Client {
    /// Sends a long message in pieces, as the server passes on those before. Our own inbox is emptied meanwhile, so that two ranks
    /// that send to each other go on.
    pub(super) fn issue_pieces<'a>(
        &self,
        (operation, to): (Operation, Rank),
        endpoint: &Endpoint,
        prefix: &[u8],
        body: &'a [u8],
        lent: &Lent<'a>,
    ) -> Result<(), Lost> {
        // A task that is woken in between may send a message too, on this thread.
        let _kept = wakers::keep();
        let _one_message_at_a_time = self.progress.time.lock(&endpoint.outbox);
        let source = lent.source(OriginBytes::from(body));
        let (mut prefix, mut offset, body_bytes) = (prefix, 0, body.len() as u64);
        loop {
            let room = MAIL_PIECE_BYTES_MAX - prefix.len() as u64;
            let run = Run { offset, bytes: (body_bytes - offset).min(room) };
            offset += run.bytes;
            let bytes = prefix.len() as u64 + run.bytes;
            let request = Request::Message { target: to, bytes, rest: body_bytes - offset };
            let payload = Payload::Headed(prefix, Some((source.hold(), Cursor::new(Shape::Contiguous(run)))));
            self.issue(operation, endpoint, &request, None, payload, Sending::Later)?;
            if offset == body_bytes {
                return Ok(());
            }
            prefix = &[];
        }
    }
}
