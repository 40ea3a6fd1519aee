//! A message of the handshake that goes out or comes in over a [`Link`], in as many parts as the link makes of it.
//! It never touches a byte behind the message.

use longarm_memory::{Region, RegionMut};

use crate::link_error::LinkError;
use crate::traits::Link;

/// A handshake message on its way out.
pub(crate) struct HandshakeOut<const N: usize> {
    bytes: [u8; N],
    sent_bytes: usize,
}

impl<const N: usize> HandshakeOut<N> {
    pub(crate) fn new(bytes: [u8; N]) -> Self {
        Self { bytes, sent_bytes: 0 }
    }

    /// Whether anything was sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.sent_bytes > 0
    }

    /// Sends what the link takes now. True once all of it is gone.
    pub(crate) fn poll(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        while self.sent_bytes < N {
            match link.send(&[Region::from_slice(&self.bytes[self.sent_bytes..])])? {
                0 => return Ok(false),
                bytes => self.sent_bytes += bytes,
            }
        }
        Ok(true)
    }
}

/// A handshake message on its way in.
pub(crate) struct HandshakeIn<const N: usize> {
    bytes: [u8; N],
    received_bytes: usize,
}

impl<const N: usize> HandshakeIn<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], received_bytes: 0 }
    }

    /// Takes what is there now. The message once it is whole.
    pub(crate) fn poll(&mut self, link: &mut dyn Link) -> Result<Option<[u8; N]>, LinkError> {
        while self.received_bytes < N {
            match link.receive(&[RegionMut::from_slice(&mut self.bytes[self.received_bytes..])])? {
                0 => return Ok(None),
                bytes => self.received_bytes += bytes,
            }
        }
        Ok(Some(self.bytes))
    }
}
