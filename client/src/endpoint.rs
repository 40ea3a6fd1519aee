//! This rank's half of the conversation with one node: requests out, replies in, over one link after the other.
//!
//! Any thread may issue; one thread at a time drives. A thread that finds the endpoint taken waits on its own completion,
//! which the driver brings about.
//!
//! A connection that breaks is made anew (`connection`), and both sides go on where they were: everything that was sent is
//! kept until the server has said that it has it. `acknowledgements` says when to ask for that, `keepalive` whether it lives.

mod acknowledgements;
mod begun_rmw;
mod coalesced;
mod connection;
mod device_rmw;
pub(crate) mod direct;
pub(crate) mod inline_poll;
mod keepalive;
mod locked;
mod mail_credit;
mod peer;
mod published;
mod rejected;
mod replies;
mod request;
mod sending;
mod state;
#[cfg(test)]
mod tests;
mod transfers;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longarm_memory::Region;
use longarm_netmod::Interest;
use longarm_proto::{Mutation, NodeId, Rank, Request, RmwWord, Run, WindowRef, mutation};
use parking_lot::Mutex;

use crate::completion::{CompletionPart, Outcome};
use crate::error::LostHow;
use crate::origin_bytes::Held;
use crate::progress::dialing::Dial;
use crate::progress::occupied::OccupiedNodes;
use crate::progress::time::Time;
use coalesced::COALESCED_BYTES_MAX;
pub(crate) use coalesced::{COALESCED_RUN_BYTES_MAX, Updates, Writes};
use locked::Locked;
pub use peer::EndpointOptions;
use peer::Peer;
use published::{Fact, Published};
use rejected::Rejected;
pub(crate) use request::{Driven, Payload, Token};
pub(crate) use sending::Sending;
use state::State;

/// An endpoint that may be slept on.
pub(crate) struct Prepared {
    /// `None` if the link has none, or the call that is to become one, or if there is neither.
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
    /// What to watch it for.
    pub(crate) wanted: Interest,
    /// Something is there already.
    pub(crate) ready: bool,
}

/// See the module.
pub struct Endpoint {
    peer: Peer,
    state: Mutex<State>,
    published: Published,
    /// Held while the pieces of one message are issued, so that they follow each other.
    pub(crate) outbox: Mutex<()>,
}

impl Endpoint {
    /// To the server of a node, which is called when it is first driven. `occupied` has the node whenever there is something to do.
    pub(crate) fn new(
        node: NodeId,
        host: Rank,
        dial: Arc<dyn Dial>,
        time: Arc<dyn Time>,
        options: EndpointOptions,
        occupied: Arc<OccupiedNodes>,
    ) -> Endpoint {
        Endpoint {
            state: Mutex::new(State::new(options.costs)),
            published: Published::new(node, occupied, options.buffered_bytes_max),
            peer: Peer { node, host, dial, time, options },
            outbox: Mutex::new(()),
        }
    }

    #[inline]
    fn lock(&self) -> Locked<'_> {
        Locked::lock(&self.state, &self.published)
    }

    #[inline]
    fn try_lock(&self) -> Option<Locked<'_>> {
        Locked::try_lock(&self.state, &self.published)
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
        self.published.broken.get()
    }

    /// Whether there is a connection now. Without one its server is called, by threads that drive the endpoint.
    pub(crate) fn is_up(&self) -> bool {
        self.published.has(Fact::UP)
    }

    /// Whether there has ever been a connection. One that broke at once is made anew when there is something to send.
    pub(crate) fn is_known(&self) -> bool {
        self.published.has(Fact::KNOWN)
    }

    /// Whether something was sent of which it is not known that it arrived.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.published.has(Fact::UNACKNOWLEDGED)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.published.has(Fact::BUSY)
    }

    /// Whether it is busy with more than acknowledgements that end nothing: what comes may be waited for.
    pub(crate) fn is_pressing(&self) -> bool {
        self.published.has(Fact::PRESSING)
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.published.has(Fact::WANTS_WRITE)
    }

    /// Whether what is next to be sent has to wait for the data of a get.
    pub(crate) fn is_held_back(&self) -> bool {
        self.published.has(Fact::HELD_BACK)
    }

    /// Whether what waits to be sent is for the helper to send.
    pub(crate) fn has_much_to_send(&self) -> bool {
        self.published.has(Fact::MUCH_TO_SEND)
    }

    /// Whether more data is on its way than the kernel keeps until somebody takes it.
    pub(crate) fn expects_much(&self) -> bool {
        self.published.has(Fact::EXPECTS_MUCH)
    }

    /// Whether what waits to be sent is corked. The helper knows of it.
    pub(crate) fn is_corked(&self) -> bool {
        self.published.has(Fact::CORKED)
    }

    /// The number of the request whose reply will confirm everything, if it is the last one.
    pub(crate) fn confirming(&self) -> Option<u64> {
        self.published.confirming()
    }

    /// Whether another request would be taken, or refused for good.
    pub(crate) fn has_room(&self, request: &Request) -> bool {
        let is_mail = matches!(request, Request::Message { .. });
        let full = (is_mail && self.published.has(Fact::MAIL_WAITS))
            || self.published.has_any(&[Fact::BYTES_FULL, Fact::REPLIES_FULL]);
        !full || self.published.is_broken()
    }

    /// Whether nothing is under way, and all that was issued is confirmed.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.published.has_any(&[Fact::BUSY, Fact::UNCONFIRMED])
    }

    /// Whether quiet has to ask.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.published.has(Fact::UNCONFIRMED)
    }

    /// Whether something was issued that no reply will ever confirm. True once: somebody has to be told.
    pub(crate) fn take_unconfirmed(&self) -> bool {
        self.is_unconfirmed() && self.lock().take_unconfirmed()
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
        if let Some(how) = self.published.broken.get() {
            return Err(Box::new(Rejected { how: Some(how.clone()), token, payload }));
        }
        if !state.mail.has_room(request) {
            return Err(Box::new(Rejected { how: None, token, payload }));
        }
        if !state.has_room(request, self.peer.options.buffered_bytes_max) {
            state.acknowledge_if_none_is_due();
            return Err(Box::new(Rejected { how: None, token, payload }));
        }
        // A message changes no window: quiet says nothing of it.
        if !request.has_reply() && !matches!(request, Request::Message { .. }) {
            state.unconfirmed = true;
        }
        let was_corked = state.corked;
        // Before an acknowledgement is put in front of it: that one is sent along.
        let goes_alone = state.goes_alone();
        state.acknowledge_if_due(request, self.peer.options.buffered_bytes_max);
        state.mail.sent(request);
        state.begin(request, token, payload);
        let flush = state.goes_out(sending, goes_alone, request.has_reply());
        state.corked = !flush && sending.may_be_corked();
        // A call that is on its way is driven by a thread that waits, or by the helper: each look from here would be in vain.
        let mut driven = if flush && !state.connection.is_called() {
            let receive = state.should_receive(self.peer.options.buffered_bytes_max);
            self.drive_locked(&mut state, receive)
        } else {
            Driven::default()
        };
        driven.became_corked = state.corked && !was_corked;
        if matches!(request, Request::Quiet) {
            state.unconfirmed = false;
        }
        Ok(driven)
    }

    /// Takes a small put or accumulate in that nobody waits for: it goes out together with those around it. `None`: it has
    /// to be issued like any other, because it is too large for that or nothing else is under way.
    #[inline(always)]
    pub(crate) fn coalesce_write(
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
        let goes_on = self.joins_coalesced(&mut state);
        let is_new = state.coalesce_write(target, writes, run, bytes);
        state.unconfirmed = true;
        Some(self.after_coalescing(state, goes_on && !is_new))
    }

    /// The same for a small get. `hold` is called if it is taken: what comes goes to a run of what that gives.
    #[inline]
    pub(crate) fn coalesce_get(
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
        let goes_on = self.joins_coalesced(&mut state);
        let is_new = state.coalesce_get(target, run, (hold(), here));
        Some(self.after_coalescing(state, goes_on && !is_new))
    }

    /// The same for an update of a word. The part is ended with the old value; it comes back if the update is not taken.
    pub(crate) fn coalesce_rmw(
        &self,
        target: &WindowRef,
        updates: Updates,
        word: RmwWord,
        part: CompletionPart,
    ) -> Result<Driven, CompletionPart> {
        let mut state = self.lock();
        if !self.coalesces_more(&state) || state.holds_back_writes() || state.acknowledgements.is_full() {
            return Err(part);
        }
        let goes_on = self.joins_coalesced(&mut state);
        let is_new = state.coalesce_rmw(target, updates, word, part);
        Ok(self.after_coalescing(state, goes_on && !is_new))
    }

    /// Whether a small write that nobody waits for would wait for others to go with.
    pub(crate) fn coalesces_writes(&self) -> bool {
        self.published.has(Fact::COALESCES_WRITES)
    }

    /// The same for a small get.
    pub(crate) fn coalesces_gets(&self) -> bool {
        self.published.has(Fact::COALESCES_GETS)
    }

    /// Whether small requests may wait for others: something of their kind is under way, and there is room.
    #[inline]
    fn coalesces_more(&self, state: &State) -> bool {
        state.coalesces_more(self.peer.options.buffered_bytes_max) && !self.published.is_broken()
    }

    /// To be called before an operation is coalesced. Whether it joins the request that is being put together. If it begins one and the server
    /// keeps much, this acknowledges first: the helper, which may send it, does not.
    #[inline]
    fn joins_coalesced(&self, state: &mut State) -> bool {
        let goes_on = state.has_coalesced();
        if !goes_on {
            state.acknowledge_if_much_is_kept(self.peer.options.buffered_bytes_max);
        }
        goes_on
    }

    /// After something was taken in: sends it if it is much, else sees to it that somebody does. `goes_on`: it is in the same
    /// request as what was taken in before.
    #[inline]
    fn after_coalescing(&self, state: Locked<'_>, goes_on: bool) -> Driven {
        if goes_on && state.corked && state.unsent_bytes() < COALESCED_BYTES_MAX {
            state.release_as_published();
            return Driven::default();
        }
        self.cork_or_send_coalesced(state)
    }

    /// The rare half, kept out of line: the first of a request is corked, and much is sent.
    #[inline(never)]
    fn cork_or_send_coalesced(&self, mut state: Locked<'_>) -> Driven {
        if state.unsent_bytes() < COALESCED_BYTES_MAX {
            let became_corked = !std::mem::replace(&mut state.corked, true);
            return Driven { became_corked, ..Driven::default() };
        }
        state.acknowledge_if_much_is_kept(self.peer.options.buffered_bytes_max);
        let receive = state.should_receive(self.peer.options.buffered_bytes_max);
        self.drive_locked(&mut state, receive)
    }

    /// Sends and receives what the link gives and takes now. `None`: another thread does.
    pub(crate) fn drive(&self) -> Option<Driven> {
        let mut state = self.try_lock()?;
        Some(self.drive_locked(&mut state, true))
    }

    /// Whether its buffers take more memory than at first.
    #[cfg(test)]
    pub(crate) fn has_grown(&self) -> bool {
        self.state.lock().has_grown()
    }

    /// Asked now and then: gives memory back if nothing has come or gone since the last time.
    pub(crate) fn shrink_at_rest(&self) {
        if let Some(mut state) = self.try_lock() {
            state.shrink_at_rest();
            state.release_as_published();
        }
    }

    /// For a thread that is about to sleep: sees to it that the descriptor, if there is one, announces what comes. `None`: another thread drives,
    /// and would find what the descriptor announces.
    pub(crate) fn prepare_sleep(&self) -> Option<Prepared> {
        let mut state = self.try_lock()?;
        let (wanted, ready) = state.connection.prepare_sleep(Interest { readable: true, writable: self.wants_write() });
        // Under the lock, so that it belongs to what is wanted of it.
        let descriptor = self.published.descriptor();
        state.release_as_published();
        Some(Prepared { descriptor, wanted, ready })
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
        if !self.published.is_broken() {
            state.ask_how_far();
        }
        Some(self.drive_locked(&mut state, true))
    }

    /// Somebody waits for this node, and for no answer of it: notices that it is gone all the same.
    pub(crate) fn ask(&self) -> Option<Driven> {
        let mut state = self.try_lock()?;
        if !self.published.is_broken() {
            state.ask_whether_alive(self.peer.time.now_ms(), self.peer.options.silence_ms);
        }
        Some(self.drive_locked(&mut state, true))
    }

    fn drive_locked(&self, state: &mut State, receive: bool) -> Driven {
        if self.published.is_broken() {
            return Driven::default();
        }
        match state.turn(&self.peer, receive) {
            Ok(driven) => driven,
            Err(how) => {
                self.fail(state, how);
                Driven { progress: true, completed: true, ..Driven::default() }
            }
        }
    }

    /// Nothing goes through any more: everybody who waits is told.
    pub(crate) fn give_up(&self, how: LostHow) {
        let mut state = self.lock();
        if !self.published.is_broken() {
            self.fail(&mut state, how);
        }
    }

    /// Ends the session in order, as far as that is possible without waiting.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        if !self.published.is_broken() && state.connection.is_up() && !mutation(Mutation::SessionKept) {
            state.begin(&Request::Leave, None, Payload::None);
            self.drive_locked(&mut state, false);
        }
        drop(state);
        self.give_up(LostHow::Finalized);
    }

    fn fail(&self, state: &mut State, how: LostHow) {
        // The reason first: who sees a failed completion finds it.
        let how = self.published.broken.get_or_init(|| how).clone();
        if how.lacks_a_death() {
            self.published.occupied().note_loss();
        }
        let outcome = Outcome::Lost(how);
        if let Some(token) = state.abandon_coalesced() {
            token.fail(outcome.clone());
        }
        state.outgoing.abandon(|held| held.fail(outcome.clone()));
        if let Some((held, _)) = state.landing.take() {
            held.fail(outcome.clone());
        }
        for (target, _) in std::mem::take(&mut state.landings) {
            target.fail(outcome.clone());
        }
        for part in std::mem::take(&mut state.values) {
            part.failed(outcome.clone());
        }
        for token in state.unanswered.take().into_iter().chain(state.initiator.drain()) {
            token.fail(outcome.clone());
        }
        if state.transfers.abandon(&outcome) {
            state.unconfirmed = true;
        }
        state.connection.close();
        // The copy of its descriptor goes as well, or the connection would stay open.
        state.renewed = true;
    }
}
