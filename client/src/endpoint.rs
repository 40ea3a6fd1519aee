//! This rank's half of the conversation with one node: requests out, replies in, over one link after the other.
//!
//! Any thread may issue; one thread at a time drives. Who finds the endpoint taken waits on its own completion,
//! which the driver brings about.
//!
//! A connection that breaks is made anew (`way`), and both sides go on where they were: everything that was sent is
//! kept until the server has said that it has it. `acknowledgements` says when to ask for that, `keepalive` whether it lives.

mod acknowledgements;
mod begun_rmw;
mod coalesced;
mod connection;
mod device_rmw;
mod direct;
pub(crate) mod inline_poll;
mod keepalive;
mod locked;
mod mail_credit;
mod peer;
mod rejected;
mod request;
mod sending;
mod state;
#[cfg(test)]
mod tests;
mod transfers;

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use longarm_memory::Region;
use longarm_netmod::Interest;
use longarm_proto::{Mutation, NodeId, Rank, Request, Run, WindowRef, mutation};
use longarm_shm::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use parking_lot::Mutex;

use crate::completion::Outcome;
use crate::error::LostHow;
use crate::origin_bytes::Held;
use crate::progress::dialing::Dial;
use crate::progress::time::Time;
pub(crate) use coalesced::Writes;
use coalesced::{COALESCED_BYTES_MAX, COALESCED_RUN_BYTES_MAX};
use locked::Locked;
pub use peer::EndpointOptions;
use peer::Peer;
use rejected::Rejected;
pub(crate) use request::{Driven, Payload, Sending, Token};
use state::State;
pub(crate) use transfers::PutSource;

/// Bytes that the helper sends, not who goes on computing.
const MUCH_TO_SEND_BYTES: u64 = 128 << 10;

/// See the module.
pub struct Endpoint {
    peer: Peer,
    state: Mutex<State>,
    /// The link's descriptor once more, to sleep on without the lock.
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// There is a link.
    up: AtomicBool,
    /// There was one at some time.
    known: AtomicBool,
    /// Something was sent that the server has not acknowledged.
    unacknowledged: AtomicBool,
    broken: OnceLock<LostHow>,
    /// Something was issued that no reply has confirmed: quiet has to ask.
    unconfirmed: AtomicBool,
    /// Replies are due or bytes wait to be sent.
    busy: AtomicBool,
    /// The same, but for transfers that end by themselves.
    needs_helper: AtomicBool,
    /// Bytes wait to be sent.
    wants_write: AtomicBool,
    buffered_bytes: AtomicUsize,
    /// As many replies are due as may be.
    replies_full: AtomicBool,
    /// Mail waits until the server has passed on more of it.
    mail_waits: AtomicBool,
    /// Held while the pieces of one message are issued, so that they follow each other.
    pub(crate) outbox: Mutex<()>,
    expects_much: AtomicBool,
    has_much_to_send: AtomicBool,
    held_back: AtomicBool,
    /// What waits to be sent waits for company: requests of any kind, those that are not made yet included.
    gathering: AtomicBool,
    /// The link reaches the node's memory.
    reaches: AtomicBool,
    /// Transfers with no server involved are under way.
    transfers: AtomicBool,
    /// The number of the last request, if it asks how far the server is, which is as good as a quiet; else 0.
    confirming: AtomicU64,
}

impl Endpoint {
    /// To the server of a node, which is called when it is first driven.
    pub fn new(
        node: NodeId,
        host: Rank,
        dial: Arc<dyn Dial>,
        time: Arc<dyn Time>,
        options: EndpointOptions,
    ) -> Endpoint {
        Endpoint {
            state: Mutex::new(State::new(options.costs)),
            peer: Peer { node, host, dial, time, options },
            descriptor: Mutex::new(None),
            up: AtomicBool::new(false),
            known: AtomicBool::new(false),
            unacknowledged: AtomicBool::new(false),
            broken: OnceLock::new(),
            unconfirmed: AtomicBool::new(false),
            busy: AtomicBool::new(true),
            needs_helper: AtomicBool::new(true),
            wants_write: AtomicBool::new(false),
            buffered_bytes: AtomicUsize::new(0),
            replies_full: AtomicBool::new(false),
            mail_waits: AtomicBool::new(false),
            outbox: Mutex::new(()),
            expects_much: AtomicBool::new(false),
            has_much_to_send: AtomicBool::new(false),
            held_back: AtomicBool::new(false),
            gathering: AtomicBool::new(false),
            reaches: AtomicBool::new(false),
            transfers: AtomicBool::new(false),
            confirming: AtomicU64::new(0),
        }
    }

    #[inline]
    fn lock(&self) -> Locked<'_> {
        Locked::lock(&self.state)
    }

    #[inline]
    fn try_lock(&self) -> Option<Locked<'_>> {
        Locked::try_lock(&self.state)
    }

    /// The node at the other end.
    pub fn node(&self) -> NodeId {
        self.peer.node
    }

    /// The rank that hosts the server at the other end.
    pub fn host(&self) -> Rank {
        self.peer.host
    }

    /// Why nothing goes through any more, if so.
    pub(crate) fn broken(&self) -> Option<&LostHow> {
        self.broken.get()
    }

    /// What to sleep on; `None` if the link has none, or if there is no link.
    pub(crate) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.lock().clone()
    }

    /// Whether there is a connection now. Without one, whoever waits drives the endpoint often: calls are made so.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whether there has ever been a connection. One that broke at once is made anew when there is something to send.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Whether something was sent of which it is not known that it arrived.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.unacknowledged.load(Ordering::Acquire)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.wants_write.load(Ordering::Acquire)
    }

    /// Whether what is next to be sent has to wait for the data of a get.
    pub(crate) fn is_held_back(&self) -> bool {
        self.held_back.load(Ordering::Acquire)
    }

    /// Whether what waits to be sent takes longer than to wake the helper.
    pub(crate) fn has_much_to_send(&self) -> bool {
        self.has_much_to_send.load(Ordering::Acquire)
    }

    /// Whether more data is on its way than the kernel keeps until somebody takes it.
    pub(crate) fn expects_much(&self) -> bool {
        self.expects_much.load(Ordering::Acquire)
    }

    /// Whether what waits to be sent waits for company. The helper knows of it.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gathering.load(Ordering::Acquire)
    }

    /// The number of the request whose reply will confirm everything, if it is the last one.
    pub(crate) fn confirming(&self) -> Option<u64> {
        Some(self.confirming.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    /// Whether another request would be taken, or refused for good.
    pub(crate) fn has_room(&self, request: &Request) -> bool {
        let is_mail = matches!(request, Request::Message { .. });
        let full = (is_mail && self.mail_waits.load(Ordering::Acquire))
            || self.buffered_bytes.load(Ordering::Acquire) >= self.peer.options.buffered_bytes_max
            || self.replies_full.load(Ordering::Acquire);
        !full || self.broken.get().is_some()
    }

    /// Whether quiet has to ask.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire)
    }

    /// Whether something was issued that no reply will ever confirm. True once: somebody has to be told.
    pub(crate) fn take_unconfirmed(&self) -> bool {
        self.unconfirmed.swap(false, Ordering::AcqRel)
    }

    /// Why the first operation since the last time failed that nobody waits for.
    pub(crate) fn take_refused(&self) -> Option<Outcome> {
        self.lock().refused.take()
    }

    /// Puts a request behind all others. An error without a reason: no room now, drive and try again; the payload and the
    /// token come back.
    pub(crate) fn issue<'a>(
        &self,
        request: &Request,
        token: Option<Token>,
        payload: Payload<'a>,
        sending: Sending,
    ) -> Result<Driven, Box<Rejected<'a>>> {
        let mut state = self.lock();
        if let Some(how) = self.broken.get() {
            return Err(Box::new(Rejected { how: Some(how.clone()), token, payload }));
        }
        if !state.mail.has_room(request) {
            self.note(&mut state);
            return Err(Box::new(Rejected { how: None, token, payload }));
        }
        if !state.has_room(request, self.peer.options.buffered_bytes_max) {
            state.acknowledge_if_none_is_due();
            self.note(&mut state);
            return Err(Box::new(Rejected { how: None, token, payload }));
        }
        // A message changes no window: quiet says nothing of it.
        if !request.has_reply() && !matches!(request, Request::Message { .. }) {
            self.unconfirmed.store(true, Ordering::Release);
        }
        let was_gathering = state.gathering;
        // Before an acknowledgement is put in front of it: that one is sent along.
        let goes_alone = state.goes_alone();
        state.acknowledge_if_due(request, self.peer.options.buffered_bytes_max);
        state.mail.sent(request);
        state.begin(request, token, payload);
        let flush = state.goes_out(sending, goes_alone, request.has_reply());
        state.gathering = !flush && sending == Sending::Soon;
        let mut driven = if flush {
            let receive = state.should_receive(self.peer.options.buffered_bytes_max);
            self.drive_locked(&mut state, receive)
        } else {
            Driven::default()
        };
        driven.gathers = state.gathering && !was_gathering;
        self.note(&mut state);
        if matches!(request, Request::Quiet) {
            // After `busy` was set: a second thread's quiet looks at this mark first, then at `busy`.
            self.unconfirmed.store(false, Ordering::Release);
        }
        Ok(driven)
    }

    /// Takes a small put or accumulate in that nobody waits for: it goes out together with those around it. `None`: it has
    /// to be issued like any other, because it is too large for that or nothing else is under way.
    #[inline]
    pub(crate) fn gather_write(
        &self,
        target: &WindowRef,
        writes: &Writes,
        run: Run,
        bytes: Region<'_>,
    ) -> Option<Driven> {
        if run.bytes > COALESCED_RUN_BYTES_MAX {
            return None;
        }
        let mut state = self.lock();
        if !self.coalesces_more(&state) || state.holds_back_writes() {
            return None;
        }
        let goes_on = self.goes_on_gathering(&mut state);
        state.gather_write(target, writes, run, bytes);
        self.unconfirmed.store(true, Ordering::Release);
        Some(self.after_gathering(&mut state, goes_on))
    }

    /// The same for a small get. `hold` is called if it is taken: what comes goes to a run of what that gives.
    #[inline]
    pub(crate) fn gather_get(
        &self,
        target: &WindowRef,
        run: Run,
        (hold, here): (impl FnOnce() -> Held, Run),
    ) -> Option<Driven> {
        if run.bytes > COALESCED_RUN_BYTES_MAX {
            return None;
        }
        let mut state = self.lock();
        if !self.coalesces_more(&state) || state.acknowledgements.is_full() {
            return None;
        }
        let goes_on = self.goes_on_gathering(&mut state);
        state.gather_get(target, run, (hold(), here));
        Some(self.after_gathering(&mut state, goes_on))
    }

    /// Whether small requests may wait for others: something of their kind is under way, and there is room.
    #[inline]
    fn coalesces_more(&self, state: &State) -> bool {
        state.has_room_for_bytes(self.peer.options.buffered_bytes_max)
            && (state.has_coalesced() || (!state.goes_alone() && self.broken.get().is_none()))
    }

    /// Before something is taken in: whether it goes on with what was. Where a list begins, who sends it may be the helper,
    /// which asks for nothing: if much is kept, the question goes in front of it.
    #[inline]
    fn goes_on_gathering(&self, state: &mut State) -> bool {
        let goes_on = state.has_coalesced();
        if !goes_on {
            state.acknowledge_if_much_is_kept(self.peer.options.buffered_bytes_max);
        }
        goes_on
    }

    /// After something was taken in: sends it if it is much, else sees to it that somebody does.
    #[inline]
    fn after_gathering(&self, state: &mut State, goes_on: bool) -> Driven {
        let mut driven = Driven::default();
        if state.unsent_bytes() >= COALESCED_BYTES_MAX {
            state.acknowledge_if_much_is_kept(self.peer.options.buffered_bytes_max);
            let receive = state.should_receive(self.peer.options.buffered_bytes_max);
            driven = self.drive_locked(state, receive);
        } else if !goes_on || !state.gathering {
            driven.gathers = !std::mem::replace(&mut state.gathering, true);
            self.note(state);
        }
        driven
    }

    /// Sends and receives what the link gives and takes now. `None`: another thread does.
    pub(crate) fn drive(&self) -> Option<Driven> {
        let mut state = self.try_lock()?;
        Some(self.drive_locked(&mut state, true))
    }

    /// Sees to it that the descriptor announces what comes. Gives what to watch it for, and whether something is there
    /// already. Where another thread drives, that one sees to it before it sleeps.
    pub(crate) fn prepare_sleep(&self) -> (Interest, bool) {
        let wanted = Interest { readable: true, writable: self.wants_write() };
        let Some(mut state) = self.try_lock() else { return (wanted, false) };
        let Some(link) = state.connection.link() else { return (wanted, false) };
        let ready = link.arm();
        (link.awaits(wanted), ready)
    }

    /// Sends what the link takes now. `None`: another thread drives.
    pub(crate) fn push(&self) -> Option<Driven> {
        let mut state = self.try_lock()?;
        Some(self.drive_locked(&mut state, false))
    }

    /// Looks after what was sent and not acknowledged although nobody waits: asks how far the server is, and notices
    /// that the connection broke.
    pub(crate) fn tend(&self) -> Option<Driven> {
        let mut state = self.try_lock()?;
        if self.broken.get().is_none() {
            state.ask_how_far();
        }
        Some(self.drive_locked(&mut state, true))
    }

    /// Somebody waits for this node, and for no answer of it: notices that it is gone all the same.
    pub(crate) fn ask(&self) -> Option<Driven> {
        let mut state = self.try_lock()?;
        if self.broken.get().is_none() {
            state.ask_whether_alive(self.peer.time.now_ms(), self.peer.options.silence_ms);
        }
        Some(self.drive_locked(&mut state, true))
    }

    fn drive_locked(&self, state: &mut State, receive: bool) -> Driven {
        if self.broken.get().is_some() {
            return Driven::default();
        }
        let was_up = self.is_up();
        let turned = state.turn(&self.peer, receive);
        let is_up = state.connection.is_up();
        if is_up != was_up || state.renewed {
            state.renewed = false;
            let descriptor = state.connection.link().and_then(|link| link.descriptor()?.try_clone_to_owned().ok());
            *self.descriptor.lock() = descriptor.map(Arc::new);
            self.up.store(is_up, Ordering::Release);
        }
        let driven = match turned {
            Ok(driven) => driven,
            Err(how) => {
                self.fail(state, how);
                Driven { progress: true, completed: true, ..Driven::default() }
            }
        };
        self.note(state);
        driven
    }

    fn note(&self, state: &mut State) {
        if std::mem::take(&mut state.confirmed) {
            self.unconfirmed.store(false, Ordering::Release);
        }
        if state.refused.is_some() {
            // Whoever took it up: the next quiet says so.
            self.unconfirmed.store(true, Ordering::Release);
        }
        self.wants_write.store(state.outgoing.can_send() || state.has_coalesced(), Ordering::Release);
        self.buffered_bytes.store(state.outgoing.buffered_bytes(), Ordering::Release);
        self.replies_full.store(state.acknowledgements.is_full(), Ordering::Release);
        self.has_much_to_send.store(state.outgoing.streams_more_than(MUCH_TO_SEND_BYTES), Ordering::Release);
        let held_back = !state.outgoing.is_sent() && !state.outgoing.can_send() && !state.has_coalesced();
        self.held_back.store(held_back, Ordering::Release);
        self.expects_much.store(state.acknowledgements.expects_much(), Ordering::Release);
        let transfers = !state.transfers.is_empty();
        let unacknowledged = !state.outgoing.is_acknowledged() || state.has_coalesced() || transfers;
        let alive = self.broken.get().is_none();
        self.unacknowledged.store(unacknowledged && alive, Ordering::Release);
        self.known.store(state.connection.is_known(), Ordering::Release);
        self.gathering.store(state.gathering && alive, Ordering::Release);
        let calling = !state.connection.is_up() && (unacknowledged || !state.connection.is_known());
        let unsent = !state.outgoing.is_sent() || state.has_coalesced();
        let mail_waits = state.mail.is_waited_for();
        self.mail_waits.store(mail_waits && alive, Ordering::Release);
        let busy = mail_waits || unsent || state.initiator.outstanding() > 0 || state.landing.is_some() || calling;
        // Who waits for the owner of a payload that is sent has to find that nobody has asked for it yet.
        let served = busy || state.acknowledgements.owes_for_streams();
        let needs_helper = served || (transfers && state.transfers.need_driving(state.connection.link()));
        self.reaches.store(state.reaches == Some(true), Ordering::Relaxed);
        self.transfers.store(transfers && alive, Ordering::Release);
        self.busy.store((served || transfers) && alive, Ordering::Release);
        self.needs_helper.store(needs_helper && alive, Ordering::Release);
        // After `busy`: who no longer waits for the reply finds nothing to ask for.
        let confirming = state.confirming().filter(|_| alive).map_or(0, |number| number.0);
        self.confirming.store(confirming, Ordering::Release);
    }

    /// Nothing goes through any more: everybody who waits is told.
    pub(crate) fn give_up(&self, how: LostHow) {
        let mut state = self.lock();
        if self.broken.get().is_none() {
            self.fail(&mut state, how);
            self.note(&mut state);
        }
    }

    /// Ends the session in order, as far as that is possible without waiting.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        if self.broken.get().is_none() && state.connection.is_up() && !mutation(Mutation::SessionKept) {
            state.begin(&Request::Leave, None, Payload::None);
            self.drive_locked(&mut state, false);
        }
        drop(state);
        self.give_up(LostHow::Finalized);
    }

    fn fail(&self, state: &mut State, how: LostHow) {
        // The reason first: who sees a failed completion finds it.
        let how = self.broken.get_or_init(|| how).clone();
        let outcome = Outcome::Lost(how);
        for (target, _) in state.abandon_coalesced() {
            target.fail(outcome.clone());
        }
        state.outgoing.abandon(|held| held.fail(outcome.clone()));
        if let Some((held, _)) = state.landing.take() {
            held.fail(outcome.clone());
        }
        for (target, _) in std::mem::take(&mut state.landings) {
            target.fail(outcome.clone());
        }
        for token in state.unanswered.take().into_iter().chain(state.initiator.drain()) {
            token.fail(outcome.clone());
        }
        if state.transfers.abandon(&outcome) {
            self.unconfirmed.store(true, Ordering::Release);
        }
        state.connection.close();
        // The copy as well, or the connection would stay open.
        *self.descriptor.lock() = None;
        self.up.store(false, Ordering::Release);
    }
}
