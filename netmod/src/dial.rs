//! The caller's half of "who may join": connect, prove that we belong to the job, and check that the peer does.
//!
//! Runs once for each connection, before any frame, and may block. The proof itself is `proto`'s handshake; this
//! module only carries its messages and keeps the deadline. It does not try again: the caller knows whether that
//! makes sense.

use std::time::Duration;

use longarm_proto::{HandshakeError, Identity, InitiatorHandshake, NodeId, Secret};

use crate::alarm::{Alarm, Wake};
use crate::endpoint::{Link, LinkError, Netmod};
use crate::exchange::{HandshakeIn, HandshakeOut};
use crate::poller::Interest;

/// Why no proven connection came about. No frame was sent in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// No connection at all.
    #[error("cannot connect: {0}")]
    Connect(#[source] LinkError),
    /// The peer closed the connection during the handshake. It does so with callers that it does not believe, for
    /// example because they belong to another job, and its own message says why.
    #[error("the peer hung up during the handshake")]
    HungUp,
    /// The connection broke during the handshake.
    #[error("the connection broke during the handshake: {0}")]
    Link(#[source] LinkError),
    /// The peer's answer is wrong: it is not the node that was called, or not of this job.
    #[error("the peer could not prove that it belongs to this job: {0}")]
    Handshake(#[from] HandshakeError),
    /// The deadline passed.
    #[error("the connection was not ready within the deadline")]
    TimedOut,
}

impl From<LinkError> for DialError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed => DialError::HungUp,
            other => DialError::Link(other),
        }
    }
}

/// Connects to `address`, where the server of node `peer` should listen, and runs the handshake as `me`. `nonce` must
/// be fresh randomness. The link that is returned has carried the handshake's bytes and nothing else.
///
/// Blocks until the connection is proven or `deadline` has passed. Where links have no descriptor it spins and yields.
/// [`Netmod::connect`] keeps the netmod's own time limit, and the longer of the two bounds the call.
///
/// # Errors
/// See [`DialError`].
pub fn connect_authenticated(
    netmod: &dyn Netmod,
    address: &str,
    secret: &Secret,
    me: Identity,
    peer: NodeId,
    nonce: [u8; 32],
    deadline: Duration,
) -> Result<Box<dyn Link>, DialError> {
    let alarm = Alarm::after(deadline)?;
    let mut link = netmod.connect(address).map_err(DialError::Connect)?;
    let (mut handshake, hello) = InitiatorHandshake::start(secret, me, peer, nonce);
    send(&mut *link, hello, &alarm)?;
    let challenge = receive(&mut *link, &alarm)?;
    let proof = handshake.handle_challenge(&challenge)?;
    send(&mut *link, proof, &alarm)?;
    let welcome = receive(&mut *link, &alarm)?;
    handshake.check_welcome(&welcome)?;
    Ok(link)
}

fn send<const N: usize>(link: &mut dyn Link, message: [u8; N], alarm: &Alarm) -> Result<(), DialError> {
    let mut outgoing = HandshakeOut::new(message);
    while !outgoing.poll(link)? {
        wait(link, Interest::WRITABLE, alarm)?;
    }
    Ok(())
}

fn receive<const N: usize>(link: &mut dyn Link, alarm: &Alarm) -> Result<[u8; N], DialError> {
    let mut incoming = HandshakeIn::new();
    loop {
        if let Some(message) = incoming.poll(link)? {
            return Ok(message);
        }
        wait(link, Interest::READABLE, alarm)?;
    }
}

fn wait(link: &dyn Link, interest: Interest, alarm: &Alarm) -> Result<(), DialError> {
    match alarm.wait(link.descriptor(), interest)? {
        Wake::Try => Ok(()),
        Wake::Rang => Err(DialError::TimedOut),
    }
}
