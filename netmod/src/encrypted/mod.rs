//! `encrypted`: encryption of one connection, around whatever link is below, by the Noise protocol.
//!
//! ```text
//!   initiator                              responder
//!   proof, then key: e ─────────────────►             Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s
//!                      ◄───────────────── welcome, then answer: e, ee
//!   records ◄────────────────────────────► records
//! ```
//!
//! The handshake's hello and challenge are the prologue, and the shared key comes from the job's secret and from both:
//! keys hold for this connection alone. Fresh keys of both sides take part, so that what was recorded stays closed to
//! who learns the secret later. A responder answers only a caller that has proven itself, so strangers cost no arithmetic on
//! curves.
//!
//! A record is two bytes with its length, then the encrypted bytes with their tag. Its number is part of what is encrypted:
//! a record that is changed, missing, doubled or out of order ends the link, and none of its bytes are handed on. Of
//! a connection that is cut between two records the end is not authentic; sessions end by a request of their own.
//!
//! The library holds the cryptography. This module only carries its messages, and never blocks.

mod keys;
mod link;
mod receiver;
mod records;
mod sender;

use crate::traits::Link;
pub use keys::KeyError;
pub(crate) use keys::{KEY_BYTES, KeyOffer, Keys, answer_key};
use link::SealedLink;

/// A link right behind the handshake, as it carries frames: encrypted if there are keys.
pub(crate) fn carrying_frames(mut link: Box<dyn Link>, keys: Option<Keys>) -> Box<dyn Link> {
    link.on_proven();
    match keys {
        Some(keys) => keys.seal(link),
        None => link,
    }
}

impl Keys {
    /// Puts the encryption around a link that stands right behind the handshake.
    pub(crate) fn seal(self, link: Box<dyn Link>) -> Box<dyn Link> {
        Box::new(SealedLink::new(link, self))
    }
}

#[cfg(test)]
mod tests;
