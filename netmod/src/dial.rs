//! The caller's half of "who may join": connect, prove that we belong to the job, and check that the peer does.
//!
//! Runs once for each connection, before any frame. The proof itself is `proto`'s handshake; [`Caller`] only carries its
//! messages, and never blocks. It does not try again: its owner knows whether that makes sense.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use longarm_proto::{
    CHALLENGE_BYTES, HELLO_BYTES, HandshakeError, Identity, InitiatorHandshake, NodeId, PROOF_BYTES, Reception, Secret,
    Session, WELCOME_BYTES,
};

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

impl DialError {
    /// Whether the peer may be there and answer another time. Not when it answered and the answer is wrong.
    pub fn may_pass(&self) -> bool {
        !matches!(self, DialError::Handshake(_) | DialError::Connect(LinkError::BadAddress))
    }
}

impl From<LinkError> for DialError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed => DialError::HungUp,
            other => DialError::Link(other),
        }
    }
}

/// What a caller says of itself and knows of the peer.
pub struct Introduction<'a> {
    /// What both know.
    pub secret: &'a Secret,
    /// Who calls.
    pub me: Identity,
    /// The node whose server is called.
    pub peer: NodeId,
    /// The session that the connection will carry.
    pub session: Session,
    /// What follows the handshake is encrypted.
    pub sealed: bool,
    /// Fresh randomness.
    pub nonce: [u8; 32],
}

/// What became of a call.
pub enum CallerStep {
    /// Not decided yet. Poll again when the descriptor is ready.
    Pending,
    /// There is no connection. The caller is of no more use.
    Failed(DialError),
    /// Proven. The link has carried the handshake's bytes and nothing else. The caller is of no more use.
    Proven {
        /// The connection.
        link: Box<dyn Link>,
        /// What the peer makes of the session.
        reception: Reception,
    },
}

/// One call on its way: from a link that may not even be connected to a proven one.
pub struct Caller {
    /// `None` once it was decided.
    link: Option<Box<dyn Link>>,
    handshake: InitiatorHandshake,
    stage: Stage,
    /// Something has been sent, so there was a connection.
    connected: bool,
}

enum Stage {
    Hello(HandshakeOut<HELLO_BYTES>),
    Challenge(HandshakeIn<CHALLENGE_BYTES>),
    Proof(HandshakeOut<PROOF_BYTES>),
    Welcome(HandshakeIn<WELCOME_BYTES>),
}

impl Caller {
    /// Begins over a link to where the peer's server should listen.
    pub fn new(link: Box<dyn Link>, introduction: &Introduction<'_>) -> Caller {
        let Introduction { secret, me, peer, session, sealed, nonce } = *introduction;
        let (handshake, hello) = InitiatorHandshake::start(secret, me, peer, session, sealed, nonce);
        Caller { link: Some(link), handshake, stage: Stage::Hello(HandshakeOut::new(hello)), connected: false }
    }

    /// Goes as far as the link allows now. Must not be called again after it has failed or is proven.
    pub fn poll(&mut self) -> CallerStep {
        let mut link = self.link.take().expect("a caller that has decided is not asked again");
        match self.advance(&mut *link) {
            Ok(None) => {
                self.link = Some(link);
                CallerStep::Pending
            }
            Ok(Some(reception)) => CallerStep::Proven { link, reception },
            Err(DialError::HungUp) if !self.connected => CallerStep::Failed(DialError::Connect(LinkError::Refused)),
            Err(DialError::Link(error)) if !self.connected => CallerStep::Failed(DialError::Connect(error)),
            Err(error) => CallerStep::Failed(error),
        }
    }

    /// What to sleep on between polls, if the link has it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().and_then(|link| link.descriptor())
    }

    /// What [`Caller::poll`] waits for.
    pub fn interest(&self) -> Interest {
        match self.stage {
            Stage::Hello(_) | Stage::Proof(_) => Interest::WRITABLE,
            Stage::Challenge(_) | Stage::Welcome(_) => Interest::READABLE,
        }
    }

    fn advance(&mut self, link: &mut dyn Link) -> Result<Option<Reception>, DialError> {
        loop {
            let next = match &mut self.stage {
                Stage::Hello(outgoing) => {
                    let whole = outgoing.poll(link)?;
                    self.connected |= outgoing.has_begun();
                    whole.then(|| Stage::Challenge(HandshakeIn::new()))
                }
                Stage::Challenge(incoming) => match incoming.poll(link)? {
                    Some(challenge) => {
                        let proof = self.handshake.handle_challenge(&challenge)?;
                        Some(Stage::Proof(HandshakeOut::new(proof)))
                    }
                    None => None,
                },
                Stage::Proof(outgoing) => outgoing.poll(link)?.then(|| Stage::Welcome(HandshakeIn::new())),
                Stage::Welcome(incoming) => match incoming.poll(link)? {
                    Some(welcome) => return Ok(Some(self.handshake.check_welcome(&welcome)?)),
                    None => None,
                },
            };
            match next {
                Some(stage) => self.stage = stage,
                None => return Ok(None),
            }
        }
    }
}

/// Connects to `address` and runs the handshake, blocking until the connection is proven or `deadline` has passed.
/// Where links have no descriptor it spins and yields. For tests and tools: a rank uses [`Caller`].
///
/// # Errors
/// See [`DialError`].
pub fn connect_authenticated(
    netmod: &dyn Netmod,
    address: &str,
    introduction: &Introduction<'_>,
    deadline: Duration,
) -> Result<(Box<dyn Link>, Reception), DialError> {
    let alarm = Alarm::after(deadline)?;
    let mut caller = Caller::new(netmod.connect(address).map_err(DialError::Connect)?, introduction);
    loop {
        match caller.poll() {
            CallerStep::Proven { link, reception } => return Ok((link, reception)),
            CallerStep::Failed(error) => return Err(error),
            CallerStep::Pending => {
                if alarm.wait(caller.descriptor(), caller.interest())? == Wake::Rang {
                    return Err(DialError::TimedOut);
                }
            }
        }
    }
}
