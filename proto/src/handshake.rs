//! How both ends of a new connection prove that they know the job's secret, before any other frame is read.
//!
//! ```text
//!   initiator                                           responder
//!   hello: version, job, rank, node, peer node, nonce ──►
//!                            ◄── challenge: version, node, nonce
//!   proof: MAC("initiator", hello, challenge) ─────────►
//!                            ◄── welcome: MAC("responder", hello, challenge)
//! ```
//!
//! The MAC is keyed BLAKE3 over a domain string with the role, then the two messages before it as they were sent:
//! they hold the version, the job, both nodes, the rank and both nonces, all at fixed places. A fresh nonce on each
//! side makes a recorded proof worthless, the roles keep a proof from being sent back to its maker, and the
//! responder proves itself only to one who did. Everything here is a function of bytes; nonces are the caller's, and
//! must be random and never used again. The connection itself is neither encrypted nor authenticated afterwards.

use crate::ids::{JobId, NodeId, Rank};
use crate::limits::PROTOCOL_VERSION;
use crate::wire::{put_u32, put_u64, u32_at, u64_at};
use std::fmt;
use thiserror::Error;

/// Bytes of the initiator's first message.
pub const HELLO_BYTES: usize = 64;
/// Bytes of the responder's first message.
pub const CHALLENGE_BYTES: usize = 48;
/// Bytes of the initiator's proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of the responder's proof.
pub const WELCOME_BYTES: usize = 32;

/// What a hello starts with, so that a stray connection is told apart from an old version.
const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"LaHi");
/// What a challenge starts with.
const CHALLENGE_MAGIC: u32 = u32::from_le_bytes(*b"LaCh");
/// Both strings are of one length, so that what follows stands at one place.
const INITIATOR_DOMAIN: &[u8; 32] = b"longarm handshake v1 initiator \0";
const RESPONDER_DOMAIN: &[u8; 32] = b"longarm handshake v1 responder \0";

/// What all processes of a job know and nobody else. Its bytes are never printed.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// Who a process is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The job it belongs to.
    pub job: JobId,
    /// Its rank. Whether the job has that rank, the caller checks.
    pub rank: Rank,
    /// Its node.
    pub node: NodeId,
}

/// Why a connection was not accepted. The connection is closed and nothing else was read from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HandshakeError {
    /// The peer does not speak this protocol.
    #[error("the peer does not speak longarm: its first word is {found:#010x}")]
    NotLongarm {
        /// Its first four bytes.
        found: u32,
    },
    /// The peer speaks another version.
    #[error("the peer speaks version {found} of the protocol, we speak {ours}")]
    Version {
        /// Ours.
        ours: u32,
        /// The peer's.
        found: u32,
    },
    /// The peer belongs to another job.
    #[error("the peer belongs to job {found}, this is job {ours}")]
    OtherJob {
        /// Ours.
        ours: JobId,
        /// The peer's.
        found: JobId,
    },
    /// The two do not agree which node the responder is.
    #[error("node {expected} is meant to answer, this is node {found}")]
    OtherNode {
        /// Whom the initiator wants.
        expected: NodeId,
        /// Who answers.
        found: NodeId,
    },
    /// Spare bytes are not 0.
    #[error("the peer's message has {found:#x} in its spare bytes")]
    Spare {
        /// What stands there.
        found: u64,
    },
    /// The peer sent our own nonce back.
    #[error("the peer sent our own nonce back")]
    ReflectedNonce,
    /// The peer does not know the secret, or something in between changed a message.
    #[error("the peer's proof of the job's secret is wrong")]
    WrongProof,
}

/// The initiator's side. Send the hello, take the challenge, send the proof, take the welcome.
pub struct InitiatorHandshake {
    secret: Secret,
    peer: NodeId,
    hello: [u8; HELLO_BYTES],
    /// There once the challenge was taken.
    challenge: Option<[u8; CHALLENGE_BYTES]>,
}

impl InitiatorHandshake {
    /// Starts a handshake with the server of node `peer`; the hello is to be sent.
    pub fn start(secret: &Secret, me: Identity, peer: NodeId, nonce: [u8; 32]) -> (Self, [u8; HELLO_BYTES]) {
        let mut hello = [0; HELLO_BYTES];
        put_u32(&mut hello, 0, HELLO_MAGIC);
        put_u32(&mut hello, 4, PROTOCOL_VERSION);
        put_u64(&mut hello, 8, me.job.0);
        put_u32(&mut hello, 16, me.rank.0);
        put_u32(&mut hello, 20, me.node.0);
        put_u32(&mut hello, 24, peer.0);
        hello[32..].copy_from_slice(&nonce);
        (InitiatorHandshake { secret: secret.clone(), peer, hello, challenge: None }, hello)
    }

    /// Takes the challenge; the proof is to be sent.
    ///
    /// # Errors
    /// When the peer is not the node that was meant, or does not speak our protocol.
    pub fn handle_challenge(&mut self, challenge: &[u8; CHALLENGE_BYTES]) -> Result<[u8; PROOF_BYTES], HandshakeError> {
        check_start(challenge, CHALLENGE_MAGIC)?;
        let found = NodeId(u32_at(challenge, 8));
        if found != self.peer {
            return Err(HandshakeError::OtherNode { expected: self.peer, found });
        }
        check_spare(u32_at(challenge, 12).into())?;
        if challenge[16..] == self.hello[32..] {
            return Err(HandshakeError::ReflectedNonce);
        }
        self.challenge = Some(*challenge);
        Ok(*proof(&self.secret, INITIATOR_DOMAIN, &self.hello, challenge).as_bytes())
    }

    /// Takes the welcome. From here on both ends know each other.
    ///
    /// # Errors
    /// When the responder does not know the secret.
    ///
    /// # Panics
    /// When no challenge was taken before.
    pub fn check_welcome(&self, welcome: &[u8; WELCOME_BYTES]) -> Result<(), HandshakeError> {
        let challenge = self.challenge.as_ref().expect("a welcome is checked after the challenge was taken");
        check_proof(&proof(&self.secret, RESPONDER_DOMAIN, &self.hello, challenge), welcome)
    }
}

impl fmt::Debug for InitiatorHandshake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("InitiatorHandshake").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The responder's side. Take the hello, send the challenge, take the proof, send the welcome.
pub struct ResponderHandshake {
    secret: Secret,
    peer: Identity,
    hello: [u8; HELLO_BYTES],
    challenge: [u8; CHALLENGE_BYTES],
}

impl ResponderHandshake {
    /// Takes the hello of an initiator who wants node `me` of `job`; the challenge is to be sent.
    ///
    /// # Errors
    /// When the initiator wants another node or job, or does not speak our protocol.
    pub fn start(
        secret: &Secret,
        job: JobId,
        me: NodeId,
        nonce: [u8; 32],
        hello: &[u8; HELLO_BYTES],
    ) -> Result<(Self, [u8; CHALLENGE_BYTES]), HandshakeError> {
        check_start(hello, HELLO_MAGIC)?;
        let peer =
            Identity { job: JobId(u64_at(hello, 8)), rank: Rank(u32_at(hello, 16)), node: NodeId(u32_at(hello, 20)) };
        if peer.job != job {
            return Err(HandshakeError::OtherJob { ours: job, found: peer.job });
        }
        let expected = NodeId(u32_at(hello, 24));
        if expected != me {
            return Err(HandshakeError::OtherNode { expected, found: me });
        }
        check_spare(u32_at(hello, 28).into())?;
        if hello[32..] == nonce {
            return Err(HandshakeError::ReflectedNonce);
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        put_u32(&mut challenge, 0, CHALLENGE_MAGIC);
        put_u32(&mut challenge, 4, PROTOCOL_VERSION);
        put_u32(&mut challenge, 8, me.0);
        challenge[16..].copy_from_slice(&nonce);
        Ok((ResponderHandshake { secret: secret.clone(), peer, hello: *hello, challenge }, challenge))
    }

    /// Takes the proof. Only now the identity is known to be true; the welcome is to be sent.
    ///
    /// # Errors
    /// When the initiator does not know the secret.
    pub fn handle_proof(self, found: &[u8; PROOF_BYTES]) -> Result<(Identity, [u8; WELCOME_BYTES]), HandshakeError> {
        check_proof(&proof(&self.secret, INITIATOR_DOMAIN, &self.hello, &self.challenge), found)?;
        let welcome = proof(&self.secret, RESPONDER_DOMAIN, &self.hello, &self.challenge);
        Ok((self.peer, *welcome.as_bytes()))
    }
}

impl fmt::Debug for ResponderHandshake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ResponderHandshake").field("unproven_peer", &self.peer).finish_non_exhaustive()
    }
}

/// What only who knows the secret can compute, about exactly this exchange and this role.
fn proof(
    secret: &Secret,
    domain: &[u8; 32],
    hello: &[u8; HELLO_BYTES],
    challenge: &[u8; CHALLENGE_BYTES],
) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(domain).update(hello).update(challenge);
    hasher.finalize()
}

/// Compares in a time that does not depend on where the two differ, which is what `Hash` promises.
fn check_proof(expected: &blake3::Hash, found: &[u8; 32]) -> Result<(), HandshakeError> {
    if *expected == blake3::Hash::from_bytes(*found) { Ok(()) } else { Err(HandshakeError::WrongProof) }
}

fn check_start(message: &[u8], magic: u32) -> Result<(), HandshakeError> {
    let found = u32_at(message, 0);
    if found != magic {
        return Err(HandshakeError::NotLongarm { found });
    }
    let found = u32_at(message, 4);
    if found != PROTOCOL_VERSION {
        return Err(HandshakeError::Version { ours: PROTOCOL_VERSION, found });
    }
    Ok(())
}

fn check_spare(found: u64) -> Result<(), HandshakeError> {
    if found == 0 { Ok(()) } else { Err(HandshakeError::Spare { found }) }
}
