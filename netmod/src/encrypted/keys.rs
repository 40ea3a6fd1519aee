//! How both sides agree on keys.

use longarm_proto::Sealing;
use snow::{HandshakeState, TransportState};

use super::records::TAG_BYTES;

/// The protocol, as Noise names it.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes of each of the two messages that agree on keys: a public key and a tag.
pub(crate) const KEY_BYTES: usize = 32 + TAG_BYTES;

/// The keys could not be agreed on: the peer has others, or somebody in between changed a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no keys could be agreed on for the encrypted connection")]
pub struct KeyError;

impl From<snow::Error> for KeyError {
    fn from(_: snow::Error) -> KeyError {
        KeyError
    }
}

/// What records are encrypted and opened with.
pub(crate) struct Keys(pub(super) Box<TransportState>);

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
