//! The listening half of "who may join": one half-open connection, driven by the server's loop.
//!
//! ```text
//!  hello ──► challenge ──► proof ──► welcome ──► admitted
//!    └───────────┴───────────┴──────────┴──────► refused: bad proof, broken link, or too slow
//! ```
//!
//! The doorman never blocks and reads the handshake's bytes only: what the peer sends behind its proof stays in the
//! link for the next reader. It says nothing to those it refuses; the link is closed, and the reason is for our log.

use std::os::fd::BorrowedFd;

use longarm_proto::{
    CHALLENGE_BYTES, HELLO_BYTES, HandshakeError, Identity, JobId, NodeId, PROOF_BYTES, ResponderHandshake, Secret,
    WELCOME_BYTES,
};

use crate::endpoint::{Link, LinkError};
use crate::exchange::{HandshakeIn, HandshakeOut};
use crate::poller::Interest;

/// Why a peer was not let in. Its link is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// The connection ended or broke before the handshake did.
    #[error("the connection ended during the handshake: {0}")]
    Link(#[from] LinkError),
    /// The peer does not belong to this job, or calls another node.
    #[error("the peer could not prove that it belongs to this job: {0}")]
    Handshake(#[from] HandshakeError),
    /// The peer took too long.
    #[error("the peer did not finish the handshake within the deadline")]
    TimedOut,
}

/// What became of a half-open connection.
pub enum DoormanStep {
    /// Not decided yet. Poll again when the descriptor is ready, or at the deadline.
    Pending,
    /// Not let in. The doorman is of no more use.
    Refused(AdmissionError),
    /// Proven. The link stands right behind the handshake. The doorman is of no more use.
    Admitted {
        /// The connection.
        link: Box<dyn Link>,
        /// Who is at its other end.
        identity: Identity,
    },
}

/// Guards one half-open connection until it is proven or refused.
pub struct Doorman {
    /// `None` once the connection was admitted or refused.
    link: Option<Box<dyn Link>>,
    secret: Secret,
    job: JobId,
    me: NodeId,
    nonce: [u8; 32],
    deadline_ms: u64,
    stage: Stage,
}

enum Stage {
    Hello(HandshakeIn<HELLO_BYTES>),
    Challenge(HandshakeOut<CHALLENGE_BYTES>, ResponderHandshake),
    Proof(HandshakeIn<PROOF_BYTES>, ResponderHandshake),
    Welcome(HandshakeOut<WELCOME_BYTES>, Identity),
    Over,
}

/// One step of the handshake: either more to do now, or the peer has to move first, or the end.
enum Progress {
    Next(Stage),
    Stuck(Stage),
    Proven(Identity),
}

impl Doorman {
    /// Takes a fresh connection. `nonce` must be fresh randomness. `deadline_ms` stands on the same clock as the
    /// `now_ms` of [`Doorman::poll`].
    pub fn new(
        link: Box<dyn Link>,
        secret: &Secret,
        job: JobId,
        me: NodeId,
        nonce: [u8; 32],
        deadline_ms: u64,
    ) -> Self {
        let stage = Stage::Hello(HandshakeIn::new());
        Self { link: Some(link), secret: Secret(secret.0), job, me, nonce, deadline_ms, stage }
    }

    /// Goes as far as the link allows now. Must not be called again after it has refused or admitted.
    pub fn poll(&mut self, now_ms: u64) -> DoormanStep {
        let mut link = self.link.take().expect("a doorman that has decided is not asked again");
        match self.advance(&mut *link) {
            Ok(Some(identity)) => DoormanStep::Admitted { link, identity },
            Ok(None) if now_ms >= self.deadline_ms => DoormanStep::Refused(AdmissionError::TimedOut),
            Ok(None) => {
                self.link = Some(link);
                DoormanStep::Pending
            }
            Err(error) => DoormanStep::Refused(error),
        }
    }

    /// What to sleep on between polls, if the link has it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().and_then(|link| link.descriptor())
    }

    /// What [`Doorman::poll`] waits for.
    pub fn interest(&self) -> Interest {
        match self.stage {
            Stage::Hello(_) | Stage::Proof(..) => Interest::READABLE,
            Stage::Challenge(..) | Stage::Welcome(..) => Interest::WRITABLE,
            Stage::Over => Interest::default(),
        }
    }

    /// When the peer's time is over, on the caller's clock.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Who knocks, for messages to people; empty once decided.
    pub fn peer_name(&self) -> &str {
        self.link.as_ref().map_or("", |link| link.peer_name())
    }

    fn advance(&mut self, link: &mut dyn Link) -> Result<Option<Identity>, AdmissionError> {
        loop {
            let stage = std::mem::replace(&mut self.stage, Stage::Over);
            match self.step(stage, link)? {
                Progress::Next(stage) => self.stage = stage,
                Progress::Stuck(stage) => {
                    self.stage = stage;
                    return Ok(None);
                }
                Progress::Proven(identity) => return Ok(Some(identity)),
            }
        }
    }

    fn step(&self, stage: Stage, link: &mut dyn Link) -> Result<Progress, AdmissionError> {
        Ok(match stage {
            Stage::Hello(mut incoming) => match incoming.poll(link)? {
                None => Progress::Stuck(Stage::Hello(incoming)),
                Some(hello) => {
                    let (handshake, challenge) =
                        ResponderHandshake::start(&self.secret, self.job, self.me, self.nonce, &hello)?;
                    Progress::Next(Stage::Challenge(HandshakeOut::new(challenge), handshake))
                }
            },
            Stage::Challenge(mut outgoing, handshake) => match outgoing.poll(link)? {
                false => Progress::Stuck(Stage::Challenge(outgoing, handshake)),
                true => Progress::Next(Stage::Proof(HandshakeIn::new(), handshake)),
            },
            Stage::Proof(mut incoming, handshake) => match incoming.poll(link)? {
                None => Progress::Stuck(Stage::Proof(incoming, handshake)),
                Some(proof) => {
                    let (identity, welcome) = handshake.handle_proof(&proof)?;
                    Progress::Next(Stage::Welcome(HandshakeOut::new(welcome), identity))
                }
            },
            Stage::Welcome(mut outgoing, identity) => match outgoing.poll(link)? {
                false => Progress::Stuck(Stage::Welcome(outgoing, identity)),
                true => Progress::Proven(identity),
            },
            Stage::Over => unreachable!("a doorman that has decided is not asked again"),
        })
    }
}
