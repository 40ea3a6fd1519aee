//! How this rank calls the servers of other nodes: it asks where they are, connects, and proves itself. Nothing here waits: who
//! drives a call may hold what the threads need that would bring the answer.

use std::sync::Arc;

use longarm_client::{Dial, DialStep, Dialing, LostHow};
use longarm_netmod::{Caller, CallerStep, DialError, Introduction, LinkError, Netmod};
use longarm_proto::{Identity, NodeId, Secret, Session};

use super::Rendezvous;
use super::control::NodeCard;

/// Calls the servers of nodes.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) netmod: Arc<dyn Netmod>,
    pub(crate) rendezvous: Option<Arc<dyn Rendezvous>>,
    pub(crate) secret: Secret,
    pub(crate) identity: Identity,
    /// What is sent over connections is encrypted.
    pub(crate) encrypted: bool,
}

impl Dialer {
    /// How a node is reached, if that is known.
    fn card(&self, node: NodeId) -> Result<Option<NodeCard>, String> {
        let rendezvous = self.rendezvous.as_ref().ok_or("a world of one has one node")?;
        rendezvous.ask_card(node.0).map_err(|error| error.to_string())
    }

    fn connect(&self, card: &NodeCard, node: NodeId, session: Session) -> Stage {
        let mut nonce = [0; 32];
        if getrandom::fill(&mut nonce).is_err() {
            return Stage::NoRandomNumbers;
        }
        let (secret, me, encrypted) = (&self.secret, self.identity, self.encrypted);
        let introduction = Introduction { secret, me, peer: node, session, encrypted, nonce };
        let name = format!("{} at {}", self.netmod.name(), card.address);
        match self.netmod.connect(&card.address) {
            Ok(link) => Stage::Calling(Box::new(Caller::new(link, &introduction)), name),
            Err(error) => Stage::Unconnected(error, name),
        }
    }
}

impl Dial for Dialer {
    fn start(&self, node: NodeId, session: Session) -> Result<Box<dyn Dialing>, LostHow> {
        let card = self.card(node).map_err(LostHow::Unreachable)?;
        let stage = card.map_or(Stage::Asking, |card| self.connect(&card, node, session));
        Ok(Box::new(Call { dialer: self.clone(), node, session, stage }))
    }
}

/// A call on its way.
struct Call {
    dialer: Dialer,
    node: NodeId,
    session: Session,
    stage: Stage,
}

enum Stage {
    /// Nobody has said yet how the node is reached.
    Asking,
    Calling(Box<Caller>, String),
    /// No connection could even be begun.
    Unconnected(LinkError, String),
    NoRandomNumbers,
    /// It was told what became of it.
    Decided,
}

impl Call {
    fn failed(&self, error: &DialError, name: &str) -> DialStep {
        let refused = matches!(error, DialError::Connect(LinkError::Refused));
        // Who has been there and is not any more comes back only if it is the way that was interrupted, and somebody
        // else says so if it is not.
        let tells_deaths = self.dialer.rendezvous.as_ref().is_some_and(|rendezvous| rendezvous.tells_deaths());
        let refusals_pass = !self.session.is_known || tells_deaths;
        let may_pass = error.may_pass(self.session.is_known) && (refusals_pass || !refused);
        DialStep::Failed { reason: format!("{name}: {error}"), may_pass }
    }

    /// Asks again how the node is reached.
    fn ask(&mut self) -> Option<DialStep> {
        match self.dialer.card(self.node) {
            Ok(None) => Some(DialStep::Pending),
            Ok(Some(card)) => {
                self.stage = self.dialer.connect(&card, self.node, self.session);
                None
            }
            Err(reason) => Some(DialStep::Failed { reason, may_pass: false }),
        }
    }
}

impl Dialing for Call {
    fn poll(&mut self) -> DialStep {
        if matches!(self.stage, Stage::Asking)
            && let Some(step) = self.ask()
        {
            return step;
        }
        match std::mem::replace(&mut self.stage, Stage::Decided) {
            Stage::Calling(mut caller, name) => match caller.poll() {
                CallerStep::Pending => {
                    self.stage = Stage::Calling(caller, name);
                    DialStep::Pending
                }
                CallerStep::Failed(error) => self.failed(&error, &name),
                CallerStep::Proven { link, reception } => DialStep::Up { link, reception },
            },
            Stage::Unconnected(error, name) => self.failed(&DialError::Connect(error), &name),
            Stage::NoRandomNumbers => {
                DialStep::Failed { reason: "the system gives no random numbers".into(), may_pass: false }
            }
            Stage::Asking | Stage::Decided => unreachable!("a call that was decided is not asked again"),
        }
    }
}
