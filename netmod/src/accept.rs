//! The listening half of joining: one half-open connection, driven by the server's loop.
//!
//! ```text
//!  hello ──► challenge ──► proof ──► [key] ──► proven ──► welcome ──► [answer] ──► admitted
//!    └───────────┴───────────┴────────┴──────────┴──────────┴───────────┴───────► refused: bad proof, broken link, too slow
//! ```
//!
//! What is in brackets is there where the connection is to be encrypted. Once the peer is proven, the owner looks up its session and says by [`Acceptor::welcome`] what comes of it.
//!
//! The acceptor never blocks and reads the handshake's bytes only: what the peer sends behind its proof stays in the
//! link for the next reader. It says nothing to those it refuses; the link is closed, and the reason is for our log.

use std::os::fd::BorrowedFd;

use longarm_proto::{
    CHALLENGE_BYTES, HELLO_BYTES, HandshakeError, Identity, JobId, NodeId, PROOF_BYTES, Reception, ResponderHandshake,
    Secret, Session, WELCOME_BYTES,
};

use crate::encrypted::{self, KEY_BYTES, KeyError, Keys, carrying_frames};
use crate::exchange::{HandshakeIn, HandshakeOut};
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::traits::Link;

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
    /// The peer has proven itself, but somebody in between has changed what it said of the encryption.
    #[error("{0}")]
    Keys(#[from] KeyError),
    /// The peer took too long.
    #[error("the peer did not finish the handshake within the deadline")]
    TimedOut,
}

/// What became of a half-open connection.
pub enum AcceptorStep {
    /// Not decided yet. Poll again when the descriptor is ready, or at the deadline.
    Pending,
    /// Not let in. The acceptor is of no more use.
    Refused(AdmissionError),
    /// The peer has proven itself and waits for [`Acceptor::welcome`]. Said once.
    Proven {
        /// Who it is.
        identity: Identity,
        /// Which session it wants to carry on.
        session: Session,
    },
    /// Welcomed. The link stands right behind the handshake, and seals what follows if that was asked for. The acceptor is of no more use.
    Admitted {
        /// The connection.
        link: Box<dyn Link>,
        /// Who is at its other end.
        identity: Identity,
        /// The session that it carries.
        session: Session,
    },
}

/// What an acceptor lets peers in by.
#[derive(Clone, Debug)]
pub struct Admission {
    /// What both know.
    pub secret: Secret,
    /// The job that peers have to belong to.
    pub job: JobId,
    /// The node that they have to call.
    pub me: NodeId,
    /// What follows the handshake is encrypted.
    pub encrypted: bool,
}

/// Guards one half-open connection until it is proven or refused.
pub struct Acceptor {
    /// `None` once the connection was admitted or refused.
    link: Option<Box<dyn Link>>,
    admission: Admission,
    nonce: [u8; 32],
    deadline_ms: u64,
    phase: Phase,
}

enum Phase {
    Hello(HandshakeIn<HELLO_BYTES>),
    Challenge(HandshakeOut<CHALLENGE_BYTES>, ResponderHandshake),
    Proof(HandshakeIn<PROOF_BYTES>, ResponderHandshake),
    Key(HandshakeIn<KEY_BYTES>, ResponderHandshake, Peer),
    Proven(ResponderHandshake, Peer, Option<Answer>),
    Welcome(HandshakeOut<WELCOME_BYTES>, Peer, Option<Answer>),
    Answer(HandshakeOut<KEY_BYTES>, Peer, Keys),
    Over,
}

type Peer = (Identity, Session);

/// What is still to be sent of the agreement on keys, and the keys.
type Answer = (Keys, [u8; KEY_BYTES]);

/// One step of the handshake: either more to do now, or the peer has to move first, or the end.
enum Progress {
    Next(Phase),
    Stuck(Phase),
    Proven(Peer),
    Welcomed(Peer, Option<Keys>),
}

impl Acceptor {
    /// Takes a fresh connection. `nonce` must be fresh randomness. `deadline_ms` stands on the same clock as the
    /// `now_ms` of [`Acceptor::poll`].
    pub fn new(link: Box<dyn Link>, admission: &Admission, nonce: [u8; 32], deadline_ms: u64) -> Self {
        let phase = Phase::Hello(HandshakeIn::new());
        Self { link: Some(link), admission: admission.clone(), nonce, deadline_ms, phase }
    }

    /// Goes as far as the link allows now. Must not be called again after it has refused or admitted.
    pub fn poll(&mut self, now_ms: u64) -> AcceptorStep {
        let mut link = self.link.take().expect("an acceptor that has decided is not asked again");
        let step = match self.advance(&mut *link) {
            Ok(Progress::Welcomed((identity, session), keys)) => {
                return AcceptorStep::Admitted { link: carrying_frames(link, keys), identity, session };
            }
            Err(error) => return AcceptorStep::Refused(error),
            Ok(Progress::Proven((identity, session))) => AcceptorStep::Proven { identity, session },
            Ok(_) if now_ms >= self.deadline_ms => return AcceptorStep::Refused(AdmissionError::TimedOut),
            Ok(_) => AcceptorStep::Pending,
        };
        self.link = Some(link);
        step
    }

    /// Says what comes of the session of a peer that has just been proven. Poll again afterwards.
    ///
    /// # Panics
    /// When the acceptor has not said that the peer is proven.
    pub fn welcome(&mut self, reception: Reception) {
        let Phase::Proven(handshake, peer, answer) = std::mem::replace(&mut self.phase, Phase::Over) else {
            panic!("only a proven peer is welcomed");
        };
        self.phase = Phase::Welcome(HandshakeOut::new(handshake.welcome(reception)), peer, answer);
    }

    /// What to sleep on between polls, if the link has it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().and_then(|link| link.descriptor())
    }

    /// What to watch between polls; `None` once decided.
    pub(crate) fn link(&self) -> Option<&dyn Link> {
        self.link.as_deref()
    }

    /// What [`Acceptor::poll`] waits for.
    pub fn interest(&self) -> Interest {
        let wanted = match self.phase {
            Phase::Hello(_) | Phase::Proof(..) | Phase::Key(..) => Interest::READABLE,
            Phase::Challenge(..) | Phase::Welcome(..) | Phase::Answer(..) => Interest::WRITABLE,
            Phase::Proven(..) | Phase::Over => Interest::default(),
        };
        self.link.as_ref().map_or(wanted, |link| link.awaits(wanted))
    }

    /// When the peer's time is over, on the caller's clock.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Who knocks, for messages to people; empty once decided.
    pub fn peer_name(&self) -> &str {
        self.link.as_ref().map_or("", |link| link.peer_name())
    }

    /// How far the handshake has come: more after each of its messages.
    pub(crate) fn steps_taken(&self) -> u8 {
        match self.phase {
            Phase::Hello(_) => 0,
            Phase::Challenge(..) => 1,
            Phase::Proof(..) => 2,
            Phase::Key(..) => 3,
            Phase::Proven(..) => 4,
            Phase::Welcome(..) => 5,
            Phase::Answer(..) => 6,
            Phase::Over => 7,
        }
    }

    /// Until the peer has to move, or the owner, or it is over.
    fn advance(&mut self, link: &mut dyn Link) -> Result<Progress, AdmissionError> {
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Over);
            match self.step(phase, link)? {
                Progress::Next(phase @ Phase::Proven(_, peer, _)) => {
                    self.phase = phase;
                    return Ok(Progress::Proven(peer));
                }
                Progress::Next(phase) => self.phase = phase,
                Progress::Stuck(phase) => {
                    self.phase = phase;
                    return Ok(Progress::Stuck(Phase::Over));
                }
                decided => return Ok(decided),
            }
        }
    }

    fn step(&self, phase: Phase, link: &mut dyn Link) -> Result<Progress, AdmissionError> {
        Ok(match phase {
            Phase::Hello(mut incoming) => match incoming.poll(link)? {
                None => Progress::Stuck(Phase::Hello(incoming)),
                Some(hello) => {
                    let Admission { secret, job, me, encrypted } = &self.admission;
                    let (handshake, challenge) =
                        ResponderHandshake::start(secret, *job, *me, *encrypted, self.nonce, &hello)?;
                    Progress::Next(Phase::Challenge(HandshakeOut::new(challenge), handshake))
                }
            },
            Phase::Challenge(mut outgoing, handshake) => match outgoing.poll(link)? {
                false => Progress::Stuck(Phase::Challenge(outgoing, handshake)),
                true => Progress::Next(Phase::Proof(HandshakeIn::new(), handshake)),
            },
            Phase::Proof(mut incoming, handshake) => match incoming.poll(link)? {
                None => Progress::Stuck(Phase::Proof(incoming, handshake)),
                Some(proof) => {
                    let peer = handshake.handle_proof(&proof)?;
                    Progress::Next(match self.admission.encrypted {
                        true => Phase::Key(HandshakeIn::new(), handshake, peer),
                        false => Phase::Proven(handshake, peer, None),
                    })
                }
            },
            Phase::Key(mut incoming, handshake, peer) => match incoming.poll(link)? {
                None => Progress::Stuck(Phase::Key(incoming, handshake, peer)),
                Some(key) => {
                    let answer = encrypted::answer_key(&handshake.sealing(), &key)?;
                    Progress::Next(Phase::Proven(handshake, peer, Some(answer)))
                }
            },
            Phase::Proven(..) => Progress::Stuck(phase),
            Phase::Welcome(mut outgoing, peer, answer) => match (outgoing.poll(link)?, answer) {
                (false, answer) => Progress::Stuck(Phase::Welcome(outgoing, peer, answer)),
                (true, Some((keys, answer))) => Progress::Next(Phase::Answer(HandshakeOut::new(answer), peer, keys)),
                (true, None) => Progress::Welcomed(peer, None),
            },
            Phase::Answer(mut outgoing, peer, keys) => match outgoing.poll(link)? {
                false => Progress::Stuck(Phase::Answer(outgoing, peer, keys)),
                true => Progress::Welcomed(peer, Some(keys)),
            },
            Phase::Over => unreachable!("an acceptor that has decided is not asked again"),
        })
    }
}
