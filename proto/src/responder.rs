//! The target's half of a conversation with one initiator: the order of the requests.
//!
//! Holds no socket, thread or clock. The reader of the connection calls, for each request, in this order:
//! [`Responder::handle_header`] with 64 bytes, [`Responder::finish`] with the descriptor, then takes the payload.
//! After a [`Violation`] the connection is over.

use crate::ids::RequestId;
use crate::limits::HEADER_BYTES;
use crate::wire::{Request, RequestHeader, Violation};

/// Expects the requests of one connection, the first one with number 1.
#[derive(Debug)]
pub struct Responder {
    expected: RequestId,
}

impl Responder {
    /// At the start of a connection, behind the handshake.
    pub fn new() -> Self {
        Responder { expected: RequestId(1) }
    }

    /// Takes the next header.
    ///
    /// # Errors
    /// When the header is unsound, or is not the next one.
    pub fn handle_header(&mut self, bytes: &[u8; HEADER_BYTES]) -> Result<RequestHeader, Violation> {
        let header = RequestHeader::decode(bytes)?;
        if header.id() != self.expected {
            return Err(Violation::Sequence { expected: self.expected, found: header.id() });
        }
        self.expected = RequestId(self.expected.0.wrapping_add(1));
        Ok(header)
    }

    /// Takes the descriptor that belongs to the header.
    ///
    /// # Errors
    /// When the descriptor is unsound.
    ///
    /// # Panics
    /// When `header` is not the one taken last, or when `descriptor` has not the length that it says.
    pub fn finish(&mut self, header: &RequestHeader, descriptor: &[u8]) -> Result<Request, Violation> {
        assert_eq!(header.id().0.wrapping_add(1), self.expected.0, "the header that was taken last is finished");
        header.finish(descriptor)
    }

    /// The last request taken; 0 before the first.
    pub fn last(&self) -> RequestId {
        RequestId(self.expected.0.wrapping_sub(1))
    }
}

impl Default for Responder {
    fn default() -> Self {
        Responder::new()
    }
}
