//! Calls to servers that several ways lead to: a host may be in several networks, and nobody knows which of them join two hosts.
//!
//! ```text
//!   attempt 1   connecting ─────────── silent ───────────────► dropped
//!   attempt 2       └─ 250 ms ─► connecting ── connected ──► handshake ──► proven, and its way the first one the next time
//!   attempt 3                        (refused, no route: the next begins at once)
//! ```
//!
//! There is an attempt by each way. They are begun one after the other, the next as soon as the last has failed or has been silent for a
//! while. All that are begun stay in the race until one connects; only that one then goes through the handshake, as a session is called
//! once at a time. If it fails there, somebody else listens at that address, and the others go on.
//!
//! Nothing here waits or reads a clock.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use longarm_proto::{Identity, NodeId, Secret, Session};
use parking_lot::Mutex;

use crate::dial::{Caller, CallerStep, DialError, Introduction};
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::poller::Poller;
use crate::traits::Netmod;

/// How long an attempt may be silent before the next one is made beside it. Longer than one within a building takes, and than a
/// lost packet of one would be worth.
pub const WAY_PATIENCE_MS: u64 = 250;

/// Calls servers over one network, and remembers by which way each was reached last.
pub struct Calls {
    netmod: Arc<dyn Netmod>,
    /// By address, for those that several ways lead to: the way to begin with.
    first: Mutex<HashMap<String, String>>,
}

impl Calls {
    /// Over this network. Nobody is called yet.
    pub fn new(netmod: Arc<dyn Netmod>) -> Arc<Calls> {
        Arc::new(Calls { netmod, first: Mutex::default() })
    }

    /// The network.
    pub fn netmod(&self) -> &Arc<dyn Netmod> {
        &self.netmod
    }

    /// Begins a call to the server that listens at `address`.
    ///
    /// # Errors
    /// [`LinkError::BadAddress`] if the text is no address. All else is said by [`Call::poll`].
    pub fn start(self: &Arc<Self>, address: &str, guest: Guest, now_ms: u64) -> Result<Call, LinkError> {
        let mut ways = self.netmod.ways(address)?;
        if ways.len() > 1
            && let Some(first) = self.first.lock().get(address)
            && let Some(place) = ways.iter().position(|way| way == first)
        {
            // So that one that was silent stands last, and each has its turn.
            ways.rotate_left(place);
        }
        // Where there is none it is looked at by time alone.
        let poller = if ways.len() > 1 { Poller::new().ok() } else { None };
        let attempts = ways.into_iter().map(|way| Attempt { way, phase: Phase::Waiting, watched: None }).collect();
        Ok(Call {
            calls: Arc::clone(self),
            address: address.to_owned(),
            guest,
            attempts,
            poller,
            begun_ms: now_ms,
            talks: None,
        })
    }

    /// The next call to this address begins with this way.
    fn prefer(&self, address: &str, way: &str) {
        self.first.lock().insert(address.to_owned(), way.to_owned());
    }
}

/// What a caller says of itself and knows of the peer, for any number of connections.
#[derive(Clone)]
pub struct Guest {
    /// What both know.
    pub secret: Secret,
    /// Who calls.
    pub me: Identity,
    /// The node whose server is called.
    pub peer: NodeId,
    /// The session that the connection will carry.
    pub session: Session,
    /// What follows the handshake is encrypted.
    pub encrypted: bool,
}

/// One call on its way. Dropping it gives it up.
pub struct Call {
    calls: Arc<Calls>,
    address: String,
    guest: Guest,
    attempts: Vec<Attempt>,
    /// What to sleep on where there are several attempts.
    poller: Option<Poller>,
    /// When the last attempt was begun.
    begun_ms: u64,
    /// The attempt that is connected, and in its handshake.
    talks: Option<usize>,
}

struct Attempt {
    way: String,
    phase: Phase,
    /// What the poller looks for.
    watched: Option<Interest>,
}

enum Phase {
    Waiting,
    Calling(Box<Caller>),
    Failed(DialError),
}

impl Call {
    /// Goes as far as is possible now. Must not be called again after it has failed or is proven. Where it has failed, the error is
    /// that of the attempt that came first; [`Call::met`] tells of the others.
    pub fn poll(&mut self, now_ms: u64) -> CallerStep {
        loop {
            let before = self.talks;
            for index in 0..self.attempts.len() {
                if self.talks.is_none_or(|talking| talking == index)
                    && let Some(proven) = self.poll_attempt(index)
                {
                    return proven;
                }
            }
            // Whom one that has failed since had kept waiting is looked at now.
            if before.is_some() && self.talks.is_none() {
                continue;
            }
            if !self.begin_next(now_ms) {
                break;
            }
        }
        self.watch();
        let failed = |attempt: &Attempt| if let Phase::Failed(error) = attempt.phase { Some(error) } else { None };
        match self.attempts.iter().all(|attempt| failed(attempt).is_some()) {
            true => CallerStep::Failed(failed(&self.attempts[0]).expect("all have failed, and there is one")),
            false => CallerStep::Pending,
        }
    }

    /// What to sleep on between polls, if the network has it; a call that has several attempts left is also to be polled now
    /// and then.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match (&self.poller, self.calling().next()) {
            (Some(poller), _) => Some(poller.as_fd()),
            // Each of several attempts would have another one.
            (None, Some(caller)) if self.attempts.len() == 1 => caller.descriptor(),
            (None, _) => None,
        }
    }

    /// As [`Link::arm`](crate::Link::arm), for all attempts.
    pub fn arm(&mut self) -> bool {
        self.attempts.iter_mut().fold(false, |ready, attempt| match &mut attempt.phase {
            Phase::Calling(caller) => caller.arm() || ready,
            Phase::Waiting | Phase::Failed(_) => ready,
        })
    }

    /// What [`Call::poll`] waits for.
    pub fn interest(&self) -> Interest {
        match (&self.poller, self.calling().next()) {
            (Some(_), _) => Interest::READABLE,
            (None, Some(caller)) => caller.interest(),
            (None, None) => Interest::default(),
        }
    }

    /// Each way that was tried, and what has become of it: `None` where nothing has come back yet.
    pub fn met(&self) -> impl Iterator<Item = (&str, Option<DialError>)> {
        self.attempts.iter().filter_map(|attempt| match &attempt.phase {
            Phase::Waiting => None,
            Phase::Calling(_) => Some((attempt.way.as_str(), None)),
            Phase::Failed(error) => Some((attempt.way.as_str(), Some(*error))),
        })
    }

    /// Whether a call that has failed may lead to the peer another time, by any of its ways: see [`DialError::may_pass`].
    pub fn may_pass(&self, is_known: bool) -> bool {
        self.met().any(|(_, error)| error.is_none_or(|error| error.may_pass(is_known)))
    }

    /// Whether an attempt is connected, so that the peer has a word in what comes next.
    pub fn is_connected(&self) -> bool {
        self.talks.is_some()
    }

    fn calling(&self) -> impl Iterator<Item = &Caller> {
        self.attempts
            .iter()
            .filter_map(|attempt| if let Phase::Calling(caller) = &attempt.phase { Some(&**caller) } else { None })
    }

    /// Goes on with one attempt, if it was begun.
    fn poll_attempt(&mut self, index: usize) -> Option<CallerStep> {
        let attempt = &mut self.attempts[index];
        let Phase::Calling(caller) = &mut attempt.phase else { return None };
        match caller.poll() {
            CallerStep::Pending => {
                if caller.is_connected() {
                    self.talks = Some(index);
                }
                None
            }
            CallerStep::Failed(error) => {
                attempt.phase = Phase::Failed(error);
                attempt.watched = None;
                self.talks = None;
                None
            }
            proven @ CallerStep::Proven { .. } => {
                if self.attempts.len() > 1 {
                    self.calls.prefer(&self.address, &self.attempts[index].way);
                }
                self.talks = None;
                Some(proven)
            }
        }
    }

    /// Begins the next attempt if its time has come. False: not yet, or there is none.
    fn begin_next(&mut self, now_ms: u64) -> bool {
        let is_next = |attempt: &Attempt| matches!(attempt.phase, Phase::Waiting);
        let Some(next) = self.attempts.iter().position(is_next) else { return false };
        let is_patient = self.calling().next().is_some() && now_ms < self.begun_ms + WAY_PATIENCE_MS;
        if self.talks.is_some() || is_patient {
            return false;
        }
        self.begun_ms = now_ms;
        let begun = self.begin(next);
        self.attempts[next].phase = begun.map_or_else(Phase::Failed, |caller| Phase::Calling(Box::new(caller)));
        true
    }

    fn begin(&self, index: usize) -> Result<Caller, DialError> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|_| DialError::NoRandomNumbers)?;
        let Guest { secret, me, peer, session, encrypted } = &self.guest;
        let introduction =
            Introduction { secret, me: *me, peer: *peer, session: *session, encrypted: *encrypted, nonce };
        let link =
            self.calls.netmod.connect_by(&self.address, &self.attempts[index].way).map_err(DialError::Connect)?;
        Ok(Caller::new(link, &introduction))
    }

    /// Watches those attempts that may be polled now, for what they wait for.
    fn watch(&mut self) {
        let Some(poller) = &self.poller else { return };
        for (index, attempt) in self.attempts.iter_mut().enumerate() {
            let Phase::Calling(caller) = &attempt.phase else { continue };
            let Some(descriptor) = caller.descriptor() else { continue };
            let wanted = self.talks.is_none_or(|talking| talking == index).then(|| caller.interest());
            if wanted == attempt.watched {
                continue;
            }
            let done = match (attempt.watched, wanted) {
                (None, Some(wanted)) => poller.add(descriptor, index as u64, wanted),
                (Some(_), Some(wanted)) => poller.modify(descriptor, index as u64, wanted),
                (_, None) => poller.remove(descriptor),
            };
            if let Err(error) = done {
                tracing::error!(%error, "cannot watch a connection that is being made");
            }
            attempt.watched = wanted;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Whoever answers there says nothing: the next call begins with another way.
        if let Some(silent) = self.talks
            && self.attempts.len() > 1
        {
            let next = &self.attempts[(silent + 1) % self.attempts.len()].way;
            self.calls.prefer(&self.address, next);
        }
    }
}

#[cfg(test)]
mod tests;
