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
//! who learns the secret later. A responder answers only who has proven itself, so strangers cost no arithmetic on
//! curves.
//!
//! A record is two bytes with its length, then the encrypted bytes with their tag. Its number is part of what is encrypted:
//! a record that is changed, missing, doubled or out of order ends the link, and none of its bytes are handed on. Of
//! a connection that is cut between two records the end is not authentic; sessions end by a request of their own.
//!
//! The library holds the cryptography. This module only carries its messages, and never blocks.

mod link;
mod receiver;
mod sender;

use longarm_proto::Sealing;
use snow::{HandshakeState, TransportState};

use crate::endpoint::Link;
use link::SealedLink;

/// The protocol, as Noise names it.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes of the tag behind what is encrypted.
const TAG_BYTES: usize = 16;
/// Bytes of each of the two messages that agree on keys: a public key and a tag.
pub(crate) const KEY_BYTES: usize = 32 + TAG_BYTES;
/// Bytes of the length in front of a record.
const LENGTH_BYTES: usize = 2;
/// Bytes that one record carries at most: small enough to stay in the nearest cache between the steps.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of the longest record.
const RECORD_BYTES_MAX: usize = LENGTH_BYTES + PAYLOAD_BYTES_MAX + TAG_BYTES;
/// Records that are encrypted and sent, or received, by one call of the link below.
const BATCH_RECORDS: usize = 4;
/// Bytes of these.
const BATCH_BYTES: usize = BATCH_RECORDS * RECORD_BYTES_MAX;
/// After so many records of one direction its key is replaced by the next one, and the old one is forgotten. The
/// protocol would allow far more.
const RECORDS_PER_KEY: u64 = 1 << 14;

const _: () = assert!(PAYLOAD_BYTES_MAX + TAG_BYTES <= u16::MAX as usize); // The length has to fit.

/// The keys could not be agreed on: the peer has others, or somebody in between changed a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no keys could be agreed on for the encrypted connection")]
pub struct KeyError;

impl From<snow::Error> for KeyError {
    fn from(_: snow::Error) -> KeyError {
        KeyError
    }
}

/// A link right behind the handshake, as it carries frames: encrypted if there are keys.
pub(crate) fn carrying_frames(mut link: Box<dyn Link>, keys: Option<Keys>) -> Box<dyn Link> {
    link.on_proven();
    match keys {
        Some(keys) => keys.seal(link),
        None => link,
    }
}

/// What records are encrypted and opened with.
pub(crate) struct Keys(Box<TransportState>);

impl Keys {
    /// Puts the encryption around a link that stands right behind the handshake.
    pub(crate) fn seal(self, link: Box<dyn Link>) -> Box<dyn Link> {
        Box::new(SealedLink::new(link, self))
    }
}

/// The initiator's half: send the key, take the answer.
pub(crate) struct KeyOffer(Box<HandshakeState>);

impl KeyOffer {
    /// The key is to be sent behind the proof.
    pub(crate) fn start(sealing: &Sealing) -> Result<(KeyOffer, [u8; KEY_BYTES]), KeyError> {
        let builder = builder(sealing)?;
        let mut noise = builder.build_initiator()?;
        let key = write(&mut noise)?;
        Ok((KeyOffer(Box::new(noise)), key))
    }

    /// Takes the answer.
    pub(crate) fn handle_answer(mut self, answer: &[u8; KEY_BYTES]) -> Result<Keys, KeyError> {
        self.0.read_message(answer, &mut [])?;
        Ok(Keys(Box::new(self.0.into_transport_mode()?)))
    }
}

/// The responder's half: takes the key; the answer is to be sent behind the welcome.
pub(crate) fn answer_key(sealing: &Sealing, key: &[u8; KEY_BYTES]) -> Result<(Keys, [u8; KEY_BYTES]), KeyError> {
    let mut noise = builder(sealing)?.build_responder()?;
    noise.read_message(key, &mut [])?;
    let answer = write(&mut noise)?;
    Ok((Keys(Box::new(noise.into_transport_mode()?)), answer))
}

fn builder(sealing: &Sealing) -> Result<snow::Builder<'_>, KeyError> {
    let pattern = PATTERN.parse().expect("the pattern is one that the library knows");
    Ok(snow::Builder::new(pattern).prologue(&sealing.exchange)?.psk(0, &sealing.key)?)
}

fn write(noise: &mut HandshakeState) -> Result<[u8; KEY_BYTES], KeyError> {
    let mut message = [0; KEY_BYTES];
    let bytes = noise.write_message(&[], &mut message)?;
    assert_eq!(bytes, KEY_BYTES, "a message of this pattern is a key and a tag");
    Ok(message)
}

#[cfg(test)]
mod tests;
