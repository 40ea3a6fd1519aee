//! How this rank calls the servers of other nodes: it asks where they are, connects, and proves itself. Nothing here waits: the
//! thread that drives a call may hold what the threads need that would bring the answer.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_client::{Dial, DialStep, Dialing, LostHow, Time};
use longarm_control::messages::NodeCard;
use longarm_netmod::{Call, CallerStep, Calls, DialError, Guest, Intake, Interest, LinkError};
use longarm_proto::{Identity, NodeId, Secret, Session};

use super::addresses;
use super::node::Clock;
use super::rendezvous::Rendezvous;
use crate::topology;

/// Calls the servers of nodes.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) calls: Arc<Calls>,
    pub(crate) rendezvous: Option<Arc<dyn Rendezvous>>,
    pub(crate) secret: Secret,
    pub(crate) identity: Identity,
    /// What is sent over connections is encrypted.
    pub(crate) encrypted: bool,
    /// Between machines a server that cannot be reached is most likely there, and the way is not.
    pub(crate) several_machines: bool,
    pub(crate) clock: Arc<Clock>,
}

impl Dialer {
    /// How a node is reached, if that is known.
    fn card(&self, node: NodeId) -> Result<Option<NodeCard>, String> {
        let rendezvous = self.rendezvous.as_ref().ok_or("a world of one has one node")?;
        rendezvous.ask_card(node.0).map_err(|error| error.to_string())
    }

    fn connect(&self, card: NodeCard, node: NodeId, session: Session) -> Phase {
        let (secret, me, encrypted) = (self.secret.clone(), self.identity, self.encrypted);
        let guest = Guest { secret, me, peer: node, session, encrypted };
        match self.calls.start(&card.address, guest, self.clock.now_ms()) {
            Ok(call) => Phase::Calling(Box::new(call), card),
            Err(error) => Phase::Unconnected(error, card),
        }
    }

    /// What each way to a server has said; for people.
    fn said<'a>(&self, met: impl Iterator<Item = (&'a str, Option<DialError>)>) -> String {
        let name = self.calls.netmod().name();
        let said = |(way, error): (&str, Option<DialError>)| match error {
            Some(error) => format!("{name} at {way}: {error}"),
            None => format!("{name} at {way}: nothing answers"),
        };
        met.map(said).collect::<Vec<_>>().join("; ")
    }

    /// Where both are, and what helps, if no way leads from one machine to another.
    fn advice(&self, card: &NodeCard) -> String {
        if !self.several_machines {
            return String::new();
        }
        let Identity { rank, node, .. } = self.identity;
        format!(
            "; this is rank {rank} (node {node}) on host {}, which has {}, and node {} is on host {}: set LONGARM_INTERFACE on both to \
             a network that they share, and let its firewalls pass TCP",
            topology::host_name(),
            addresses::described(),
            card.node,
            if card.host.is_empty() { "(unknown)" } else { &card.host },
        )
    }
}

impl Dial for Dialer {
    fn start(&self, node: NodeId, session: Session) -> Result<Box<dyn Dialing>, LostHow> {
        let card = self.card(node).map_err(LostHow::Unreachable)?;
        let phase = card.map_or(Phase::Asking, |card| self.connect(card, node, session));
        Ok(Box::new(Calling { dialer: self.clone(), node, session, phase }))
    }

    fn may_reach_memory(&self) -> bool {
        self.calls.netmod().capabilities().remote_memory
    }

    fn intake(&self) -> Option<Arc<dyn Intake>> {
        self.calls.netmod().intake()
    }
}

/// A call on its way.
struct Calling {
    dialer: Dialer,
    node: NodeId,
    session: Session,
    phase: Phase,
}

enum Phase {
    /// Nobody has said yet how the node is reached.
    Asking,
    Calling(Box<Call>, NodeCard),
    /// No connection could even be begun.
    Unconnected(LinkError, NodeCard),
    /// It was told what became of it.
    Decided,
}

impl Calling {
    fn failed(&self, error: DialError, call: &Call, card: &NodeCard) -> DialStep {
        let is_known = self.session.is_known;
        let refused = matches!(error, DialError::Connect(LinkError::Refused));
        // Who has been there and is not any more comes back only if it is the way that was interrupted, and somebody
        // else says so if it is not. It is called by the way first by which it was there.
        let tells_deaths = self.dialer.rendezvous.as_ref().is_some_and(|rendezvous| rendezvous.tells_deaths());
        let refusals_pass = !is_known || tells_deaths;
        let may_pass = call.may_pass(is_known) && (refusals_pass || !refused);
        DialStep::Failed { reason: self.tell(call, card), may_pass }
    }

    fn tell(&self, call: &Call, card: &NodeCard) -> String {
        let is_connection = |error| matches!(error, None | Some(DialError::Connect(_) | DialError::TimedOut));
        let none_leads_there = call.met().all(|(_, error)| is_connection(error));
        let advice = if none_leads_there { self.dialer.advice(card) } else { String::new() };
        self.dialer.said(call.met()) + &advice
    }

    /// Asks again how the node is reached.
    fn ask(&mut self) -> Option<DialStep> {
        match self.dialer.card(self.node) {
            Ok(None) => Some(DialStep::Pending),
            Ok(Some(card)) => {
                self.phase = self.dialer.connect(card, self.node, self.session);
                None
            }
            Err(reason) => Some(DialStep::Failed { reason, may_pass: false }),
        }
    }
}

impl Dialing for Calling {
    fn poll(&mut self) -> DialStep {
        if matches!(self.phase, Phase::Asking)
            && let Some(step) = self.ask()
        {
            return step;
        }
        match std::mem::replace(&mut self.phase, Phase::Decided) {
            Phase::Calling(mut call, card) => match call.poll(self.dialer.clock.now_ms()) {
                CallerStep::Pending => {
                    self.phase = Phase::Calling(call, card);
                    DialStep::Pending
                }
                CallerStep::Failed(error) => self.failed(error, &call, &card),
                CallerStep::Proven { link, reception } => DialStep::Up { link, reception },
            },
            Phase::Unconnected(error, card) => {
                let met = [(card.address.as_str(), Some(DialError::Connect(error)))];
                DialStep::Failed { reason: self.dialer.said(met.into_iter()), may_pass: error != LinkError::BadAddress }
            }
            Phase::Asking | Phase::Decided => unreachable!("a call that was decided is not asked again"),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.phase {
            Phase::Calling(call, _) => call.descriptor(),
            _ => None,
        }
    }

    fn prepare_sleep(&mut self) -> (Interest, bool) {
        match &mut self.phase {
            Phase::Calling(call, _) => {
                let ready = call.arm();
                (call.interest(), ready)
            }
            _ => (Interest::default(), false),
        }
    }

    fn so_far(&self) -> Option<String> {
        match &self.phase {
            Phase::Calling(call, card) => Some(self.tell(call, card)),
            _ => None,
        }
    }
}
