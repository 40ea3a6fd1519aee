//! The caller's half of joining: connect, prove that we belong to the job, and check that the peer does.
//!
//! Runs once for each connection, before any frame. The proof itself is `proto`'s handshake, and the keys of an encrypted
//! connection are `encrypted`'s; [`Caller`] only carries their messages, and never blocks. It does not try again: its owner knows whether that makes sense.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use longarm_proto::{
    CHALLENGE_BYTES, HELLO_BYTES, HandshakeError, Identity, InitiatorHandshake, NodeId, PROOF_BYTES, Reception, Secret,
    Session, WELCOME_BYTES,
};

use crate::alarm::{Alarm, Wake};
use crate::encrypted::{KEY_BYTES, KeyError, KeyOffer, Keys, carrying_frames};
use crate::exchange::{HandshakeIn, HandshakeOut};
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::traits::{Link, Netmod};

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
    /// The peer is the right one, but somebody in between has changed what it said of the encryption.
    #[error("{0}")]
    Keys(#[from] KeyError),
    /// The deadline passed.
    #[error("the connection was not ready within the deadline")]
    TimedOut,
    /// The system gives no random numbers, and without them nothing can be proven.
    #[error("the system gives no random numbers")]
    NoRandomNumbers,
}

impl DialError {
    /// Whether the peer may be there and answer another time. Not when it answered and the answer is wrong, unless it
    /// `is_known`: of one who has proven itself before, the way has changed what it said.
    pub fn may_pass(&self, is_known: bool) -> bool {
        match self {
            DialError::Handshake(_) => is_known,
            DialError::Connect(LinkError::BadAddress) | DialError::NoRandomNumbers => false,
            _ => true,
        }
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
    pub encrypted: bool,
    /// Fresh randomness.
    pub nonce: [u8; 32],
}

/// What became of a call.
pub enum CallerStep {
    /// Not decided yet. Poll again when the descriptor is ready.
    Pending,
    /// There is no connection. The caller is of no more use.
    Failed(DialError),
    /// Proven. The link has carried the handshake's bytes and nothing else, and seals what follows if that was asked
    /// for. The caller is of no more use.
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
    encrypted: bool,
    phase: Phase,
    /// Something has been sent, so there was a connection.
    connected: bool,
}

enum Phase {
    Hello(HandshakeOut<HELLO_BYTES>),
    Challenge(HandshakeIn<CHALLENGE_BYTES>),
    Proof(HandshakeOut<PROOF_BYTES>),
    /// Only where the connection is to be encrypted, as all that has to do with keys.
    Key(HandshakeOut<KEY_BYTES>, KeyOffer),
    Welcome(HandshakeIn<WELCOME_BYTES>, Option<KeyOffer>),
    Answer(HandshakeIn<KEY_BYTES>, KeyOffer, Reception),
    Over,
}

/// One step of the call: either more to do now, or the peer has to move first, or the end.
enum Progress {
    Next(Phase),
    Stuck(Phase),
    Proven(Reception, Option<Keys>),
}

impl Caller {
    /// Begins over a link to where the peer's server should listen.
    pub fn new(link: Box<dyn Link>, introduction: &Introduction<'_>) -> Caller {
        let Introduction { secret, me, peer, session, encrypted, nonce } = *introduction;
        let (handshake, hello) = InitiatorHandshake::start(secret, me, peer, session, encrypted, nonce);
        Caller {
            link: Some(link),
            handshake,
            encrypted,
            phase: Phase::Hello(HandshakeOut::new(hello)),
            connected: false,
        }
    }

    /// Goes as far as the link allows now. Must not be called again after it has failed or is proven.
    pub fn poll(&mut self) -> CallerStep {
        let mut link = self.link.take().expect("a caller that has decided is not asked again");
        match self.advance(&mut *link) {
            Ok(None) => {
                self.link = Some(link);
                CallerStep::Pending
            }
            Ok(Some((reception, keys))) => CallerStep::Proven { link: carrying_frames(link, keys), reception },
            Err(DialError::HungUp) if !self.connected => CallerStep::Failed(DialError::Connect(LinkError::Refused)),
            Err(DialError::Link(error)) if !self.connected => CallerStep::Failed(DialError::Connect(error)),
            Err(error) => CallerStep::Failed(error),
        }
    }

    /// Whether there has been a connection: the peer has a word in what comes next.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// What to sleep on between polls, if the link has it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().and_then(|link| link.descriptor())
    }

    /// As [`Link::arm`].
    pub(crate) fn arm(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| link.arm())
    }

    /// What [`Caller::poll`] waits for.
    pub fn interest(&self) -> Interest {
        let wanted = match self.phase {
            Phase::Hello(_) | Phase::Proof(_) | Phase::Key(..) => Interest::WRITABLE,
            Phase::Challenge(_) | Phase::Welcome(..) | Phase::Answer(..) => Interest::READABLE,
            Phase::Over => Interest::default(),
        };
        self.link.as_ref().map_or(wanted, |link| link.awaits(wanted))
    }

    fn advance(&mut self, link: &mut dyn Link) -> Result<Option<(Reception, Option<Keys>)>, DialError> {
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Over);
            match self.step(phase, link)? {
                Progress::Next(phase) => self.phase = phase,
                Progress::Stuck(phase) => {
                    self.phase = phase;
                    return Ok(None);
                }
                Progress::Proven(reception, keys) => return Ok(Some((reception, keys))),
            }
        }
    }

    fn step(&mut self, phase: Phase, link: &mut dyn Link) -> Result<Progress, DialError> {
        Ok(match phase {
            Phase::Hello(mut outgoing) => {
                let whole = outgoing.poll(link)?;
                self.connected |= outgoing.has_begun();
                match whole {
                    false => Progress::Stuck(Phase::Hello(outgoing)),
                    true => Progress::Next(Phase::Challenge(HandshakeIn::new())),
                }
            }
            Phase::Challenge(mut incoming) => match incoming.poll(link)? {
                None => Progress::Stuck(Phase::Challenge(incoming)),
                Some(challenge) => {
                    let proof = self.handshake.handle_challenge(&challenge)?;
                    Progress::Next(Phase::Proof(HandshakeOut::new(proof)))
                }
            },
            Phase::Proof(mut outgoing) => match outgoing.poll(link)? {
                false => Progress::Stuck(Phase::Proof(outgoing)),
                true if self.encrypted => {
                    let (offer, key) = KeyOffer::start(&self.handshake.sealing())?;
                    Progress::Next(Phase::Key(HandshakeOut::new(key), offer))
                }
                true => Progress::Next(Phase::Welcome(HandshakeIn::new(), None)),
            },
            Phase::Key(mut outgoing, offer) => match outgoing.poll(link)? {
                false => Progress::Stuck(Phase::Key(outgoing, offer)),
                true => Progress::Next(Phase::Welcome(HandshakeIn::new(), Some(offer))),
            },
            Phase::Welcome(mut incoming, offer) => match (incoming.poll(link)?, offer) {
                (None, offer) => Progress::Stuck(Phase::Welcome(incoming, offer)),
                (Some(welcome), Some(offer)) => {
                    let reception = self.handshake.check_welcome(&welcome)?;
                    Progress::Next(Phase::Answer(HandshakeIn::new(), offer, reception))
                }
                (Some(welcome), None) => Progress::Proven(self.handshake.check_welcome(&welcome)?, None),
            },
            Phase::Answer(mut incoming, offer, reception) => match incoming.poll(link)? {
                None => Progress::Stuck(Phase::Answer(incoming, offer, reception)),
                Some(answer) => Progress::Proven(reception, Some(offer.handle_answer(&answer)?)),
            },
            Phase::Over => unreachable!("a caller that has decided is not asked again"),
        })
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
