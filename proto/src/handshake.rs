//! How both ends of a new connection prove that they know the job's secret, before any other frame is read.
//!
//! ```text
//!   initiator                                           responder
//!   hello: version, job, rank, node, peer node, encrypted, nonce, session ──►
//!                            ◄── challenge: version, node, nonce
//!   proof: MAC("initiator", hello, challenge) ─────────►
//!                            ◄── welcome: MAC("responder", hello, challenge, reception), reception
//! ```
//!
//! A **session** is the conversation of one rank with one node's server, over one connection after the other. The hello
//! says which session goes on and how far its replies were received, the welcome how far its requests were; from
//! there both sides send again what is missing. Only a caller that has proven itself learns of it or changes it.
//!
//! The MAC is keyed BLAKE3 over a domain string with the role, then the two messages before it as they were sent:
//! they hold the version, the job, both nodes, the rank, the session and both nonces, all at fixed places. A fresh nonce on each
//! side makes a recorded proof worthless, the roles keep a proof from being sent back to its maker, and the
//! responder proves itself only to a caller that did. Everything here is a function of bytes; nonces are the caller's, and
//! must be random and never used again. What follows is encrypted if the hello says that it is `encrypted`, with keys that
//! come from [`Sealing`]; otherwise it is neither encrypted nor authenticated.

use crate::ids::{AccessKey, JobId, NodeId, Rank};
use crate::limits::PROTOCOL_VERSION;
use crate::mutation::{Mutation, mutation};
use crate::wire::{put_u32, put_u64, u32_at, u64_at};
use std::fmt;
use thiserror::Error;

/// Bytes of the initiator's first message.
pub const HELLO_BYTES: usize = 96;
/// Bytes of the responder's first message.
pub const CHALLENGE_BYTES: usize = 48;
/// Bytes of the initiator's proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of the responder's proof.
pub const WELCOME_BYTES: usize = 48;
/// Bytes of the welcome that its proof covers, behind the proof.
const RECEPTION_BYTES: usize = WELCOME_BYTES - PROOF_BYTES;

/// What a hello starts with, so that a stray connection is told apart from an old version.
const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"LaHi");
/// What a challenge starts with.
const CHALLENGE_MAGIC: u32 = u32::from_le_bytes(*b"LaCh");
/// Where a hello has its nonce.
const NONCE: std::ops::Range<usize> = 32..64;
/// Both strings are of one length, so that what follows stands at one place.
const INITIATOR_DOMAIN: &[u8; 32] = b"longarm handshake v2 initiator \0";
const RESPONDER_DOMAIN: &[u8; 32] = b"longarm handshake v2 responder \0";
const SEALING_DOMAIN: &[u8; 32] = b"longarm handshake v2 sealing   \0";

/// What all processes of a job know and nobody else. Its bytes are never printed.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl Secret {
    /// A key of a window that all processes of the job know without having told each other, and nobody else. Another one for
    /// each purpose.
    pub fn access_key(&self, purpose: &str) -> AccessKey {
        let hash = blake3::keyed_hash(&self.0, purpose.as_bytes());
        AccessKey(u64_at(hash.as_bytes(), 0))
    }
}

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

/// Which conversation a connection carries on, and how far the caller has received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Its number among those of its rank, chosen by the initiator.
    pub number: u64,
    /// Which connection of the session this is, counted from 1. A responder takes none that is not newer than the last.
    pub attempt: u32,
    /// Whether a responder has welcomed it before. One that does not know it then has lost it.
    pub is_known: bool,
    /// Bytes of replies and data received so far.
    pub received_bytes: u64,
}

/// What a responder makes of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reception {
    /// It begins now.
    Fresh,
    /// It goes on.
    Resumed {
        /// Bytes of requests received so far.
        received_bytes: u64,
    },
    /// It is not known: it ended, or its time was over. Nothing can be said of what was under way.
    Gone,
}

/// What the encryption of a connection begins with. Both ends have the same if they have seen the same messages.
pub struct Sealing {
    /// Known to who knows the secret, and for this exchange alone: it tells nothing of the secret or of another key.
    pub key: [u8; 32],
    /// The hello, then the challenge.
    pub exchange: [u8; HELLO_BYTES + CHALLENGE_BYTES],
}

impl Sealing {
    fn new(secret: &Secret, hello: &[u8; HELLO_BYTES], challenge: &[u8; CHALLENGE_BYTES]) -> Sealing {
        let mut exchange = [0; HELLO_BYTES + CHALLENGE_BYTES];
        exchange[..HELLO_BYTES].copy_from_slice(hello);
        exchange[HELLO_BYTES..].copy_from_slice(challenge);
        Sealing { key: *proof(secret, SEALING_DOMAIN, hello, challenge, &[]).as_bytes(), exchange }
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealing(..)")
    }
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
    /// One side wants what is sent to be encrypted, the other does not.
    #[error("one side encrypts what it sends and the other does not; LONGARM_ENCRYPT has to be the same for all")]
    Sealed,
    /// The welcome says something that is no answer.
    #[error("the peer's welcome says {found}, which is no answer")]
    Reception {
        /// What stands there.
        found: u32,
    },
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
    /// Starts a handshake with the server of node `peer`; the hello is to be sent. `encrypted`: what follows the handshake
    /// will be encrypted.
    pub fn start(
        secret: &Secret,
        me: Identity,
        peer: NodeId,
        session: Session,
        encrypted: bool,
        nonce: [u8; 32],
    ) -> (Self, [u8; HELLO_BYTES]) {
        let mut hello = [0; HELLO_BYTES];
        put_u32(&mut hello, 0, HELLO_MAGIC);
        put_u32(&mut hello, 4, PROTOCOL_VERSION);
        put_u64(&mut hello, 8, me.job.0);
        put_u32(&mut hello, 16, me.rank.0);
        put_u32(&mut hello, 20, me.node.0);
        put_u32(&mut hello, 24, peer.0);
        put_u32(&mut hello, 28, u32::from(encrypted));
        hello[NONCE].copy_from_slice(&nonce);
        put_u64(&mut hello, 64, session.number);
        put_u64(&mut hello, 72, session.received_bytes);
        put_u32(&mut hello, 80, session.attempt);
        put_u32(&mut hello, 84, u32::from(session.is_known));
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
        if challenge[16..] == self.hello[NONCE] {
            return Err(HandshakeError::ReflectedNonce);
        }
        self.challenge = Some(*challenge);
        Ok(*proof(&self.secret, INITIATOR_DOMAIN, &self.hello, challenge, &[]).as_bytes())
    }

    /// What the encryption of this connection begins with.
    ///
    /// # Panics
    /// When no challenge was taken before.
    pub fn sealing(&self) -> Sealing {
        let challenge = self.challenge.as_ref().expect("a connection is encrypted after the challenge was taken");
        Sealing::new(&self.secret, &self.hello, challenge)
    }

    /// Takes the welcome. From here on both ends know each other, and where the session goes on.
    ///
    /// # Errors
    /// When the responder does not know the secret.
    ///
    /// # Panics
    /// When no challenge was taken before.
    pub fn check_welcome(&self, welcome: &[u8; WELCOME_BYTES]) -> Result<Reception, HandshakeError> {
        let challenge = self.challenge.as_ref().expect("a welcome is checked after the challenge was taken");
        let (found, reception) = welcome.split_first_chunk::<PROOF_BYTES>().expect("it is longer");
        check_proof(&proof(&self.secret, RESPONDER_DOMAIN, &self.hello, challenge, reception), found)?;
        check_spare(u32_at(reception, 12).into())?;
        let received_bytes = u64_at(reception, 0);
        match u32_at(reception, 8) {
            0 => Ok(Reception::Fresh),
            1 => Ok(Reception::Resumed { received_bytes }),
            2 => Ok(Reception::Gone),
            found => Err(HandshakeError::Reception { found }),
        }
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
    session: Session,
    hello: [u8; HELLO_BYTES],
    challenge: [u8; CHALLENGE_BYTES],
}

impl ResponderHandshake {
    /// Takes the hello of an initiator who wants node `me` of `job`; the challenge is to be sent. `encrypted`: we encrypt.
    ///
    /// # Errors
    /// When the initiator wants another node or job, or does not speak our protocol.
    pub fn start(
        secret: &Secret,
        job: JobId,
        me: NodeId,
        encrypted: bool,
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
        let flags = u32_at(hello, 28);
        check_spare((flags & !1).into())?;
        if (flags == 1) != encrypted {
            return Err(HandshakeError::Sealed);
        }
        let known = u32_at(hello, 84);
        check_spare(u64::from(known & !1) | u64_at(hello, 88))?;
        let session = Session {
            number: u64_at(hello, 64),
            attempt: u32_at(hello, 80),
            is_known: known == 1,
            received_bytes: u64_at(hello, 72),
        };
        if hello[NONCE] == nonce {
            return Err(HandshakeError::ReflectedNonce);
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        put_u32(&mut challenge, 0, CHALLENGE_MAGIC);
        put_u32(&mut challenge, 4, PROTOCOL_VERSION);
        put_u32(&mut challenge, 8, me.0);
        challenge[16..].copy_from_slice(&nonce);
        Ok((ResponderHandshake { secret: secret.clone(), peer, session, hello: *hello, challenge }, challenge))
    }

    /// Takes the proof. Only now the identity is known to be true, and what is said of the session. The caller looks the
    /// session up and says what comes of it by [`ResponderHandshake::welcome`].
    ///
    /// # Errors
    /// When the initiator does not know the secret.
    pub fn handle_proof(&self, found: &[u8; PROOF_BYTES]) -> Result<(Identity, Session), HandshakeError> {
        check_proof(&proof(&self.secret, INITIATOR_DOMAIN, &self.hello, &self.challenge, &[]), found)?;
        Ok((self.peer, self.session))
    }

    /// What the encryption of this connection begins with.
    pub fn sealing(&self) -> Sealing {
        Sealing::new(&self.secret, &self.hello, &self.challenge)
    }

    /// The welcome that is to be sent to one who has proven itself.
    pub fn welcome(&self, reception: Reception) -> [u8; WELCOME_BYTES] {
        let (received_bytes, kind) = match reception {
            Reception::Fresh => (0, 0),
            Reception::Resumed { received_bytes } => (received_bytes, 1),
            Reception::Gone => (0, 2),
        };
        let mut said = [0; RECEPTION_BYTES];
        put_u64(&mut said, 0, received_bytes);
        put_u32(&mut said, 8, kind);
        let mut welcome = [0; WELCOME_BYTES];
        let proof = proof(&self.secret, RESPONDER_DOMAIN, &self.hello, &self.challenge, &said);
        welcome[..PROOF_BYTES].copy_from_slice(proof.as_bytes());
        welcome[PROOF_BYTES..].copy_from_slice(&said);
        welcome
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
    reception: &[u8],
) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(domain).update(hello).update(challenge).update(reception);
    hasher.finalize()
}

/// Compares in a time that does not depend on where the two differ, which is what `Hash` promises.
fn check_proof(expected: &blake3::Hash, found: &[u8; 32]) -> Result<(), HandshakeError> {
    let is_believed = mutation(Mutation::ProofNotChecked);
    if is_believed || *expected == blake3::Hash::from_bytes(*found) { Ok(()) } else { Err(HandshakeError::WrongProof) }
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
