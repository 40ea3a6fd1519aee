//! What an endpoint keeps under its lock, and one turn of it.

use longarm_memory::Region;
use longarm_netmod::LinkError;
use longarm_netmod::flow::{Costs, Incoming, Outgoing, RunSource};
use longarm_proto::{
    Cursor, Initiator, Mutation, Reception, Request, RequestId, RmwWord, Run, Violation, WindowRef, mutation,
};

use super::acknowledgements::{Acknowledgements, is_large_get};
use super::coalesced::{Coalesced, Updates, Writes};
use super::connection::Connection;
use super::keepalive::{Beat, Keepalive};
use super::mail_credit::MailCredit;
use super::peer::Peer;
use super::request::{Driven, Payload, Token};
use super::transfers::Transfers;
use crate::completion::{CompletionPart, Outcome};
use crate::error::LostHow;
use crate::origin_bytes::Held;

/// Every session of this process goes to another server, so one number does for all.
const SESSION: u64 = 1;

/// Who only sends looks for replies after so many requests.
const LOOK_EVERY: u32 = 16;
/// As often as after a request, with so many bytes that are sent.
const LOOK_BYTES: usize = 4 << 10;

pub(super) struct State {
    pub(super) connection: Connection,
    /// There is another link than before, or another call.
    pub(super) renewed: bool,
    pub(super) initiator: Initiator<Token>,
    pub(super) outgoing: Outgoing<Held>,
    pub(super) incoming: Incoming,
    /// Data that is coming in: where it goes.
    pub(super) landing: Option<(Held, Cursor)>,
    /// Where the data behind it goes, of gets that went together.
    pub(super) landings: std::vec::IntoIter<(Held, Run)>,
    pub(super) landing_bytes: u64,
    /// Updates of words whose old values come next.
    pub(super) values: std::vec::IntoIter<CompletionPart>,
    scratch: Vec<u8>,
    /// Small puts, gets or updates that will be one request.
    pub(super) coalesced: Coalesced,
    /// Transfers with no server involved.
    pub(super) transfers: Transfers,
    /// Whether the link reaches the node's memory; `None` while that is not decided.
    pub(super) reaches: Option<bool>,
    pub(super) acknowledgements: Acknowledgements,
    pub(super) mail: MailCredit,
    /// Whose reply came with something that broke the protocol: nobody else knows of it any more.
    pub(super) unanswered: Option<Token>,
    pub(super) keepalive: Keepalive,
    /// The last acknowledgement that was begun.
    pub(super) last_acknowledgement: RequestId,
    /// The last read-modify-write whose old value is a reply, which comes behind all that was asked for before.
    last_rmw: RequestId,
    /// Something was issued that no reply has confirmed.
    pub(super) unconfirmed: bool,
    /// What waits to be sent is corked: it waits to be sent with others.
    pub(super) corked: bool,
    /// The last request was one that nobody waits for yet: there may be several.
    pub(super) several: bool,
    /// The payload of the last request is for the helper to send.
    pub(super) left_to_helper: bool,
    /// Requests that were sent while an acknowledgement was due and much is kept.
    looks: u32,
    /// When the server was last asked on behalf of those who wait for its node.
    asked_ms: u64,
    /// The first refusal of a request without a reply; quiet brings it to light.
    pub(super) refused: Option<Outcome>,
    /// Bytes that had come and gone when it was last asked whether it rests.
    moved_bytes: u64,
}

/// Why a turn ended early.
pub(super) enum Broken {
    Link(LinkError),
    Protocol(Violation),
}

impl From<LinkError> for Broken {
    fn from(error: LinkError) -> Broken {
        Broken::Link(error)
    }
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Broken {
        Broken::Protocol(violation)
    }
}

impl State {
    pub(super) fn new(costs: Costs) -> State {
        State {
            connection: Connection::new(SESSION),
            renewed: false,
            initiator: Initiator::new(),
            outgoing: Outgoing::new(costs),
            incoming: Incoming::new(),
            landing: None,
            landings: Vec::new().into_iter(),
            landing_bytes: 0,
            values: Vec::new().into_iter(),
            scratch: Vec::new(),
            coalesced: Coalesced::default(),
            transfers: Transfers::default(),
            reaches: None,
            acknowledgements: Acknowledgements::default(),
            mail: MailCredit::new(),
            unanswered: None,
            keepalive: Keepalive::default(),
            last_acknowledgement: RequestId(0),
            last_rmw: RequestId(0),
            unconfirmed: false,
            corked: false,
            several: false,
            left_to_helper: false,
            looks: 0,
            asked_ms: 0,
            refused: None,
            moved_bytes: 0,
        }
    }

    /// Whether its buffers take more memory than at first.
    pub(super) fn has_grown(&self) -> bool {
        self.incoming.has_grown() || self.outgoing.has_grown()
    }

    /// Asked now and then. If nothing has come or gone since the last time, its buffers take as little memory as at first.
    pub(super) fn shrink_at_rest(&mut self) {
        if !self.has_grown() {
            return;
        }
        let moved_bytes = self.incoming.received_bytes() + self.outgoing.sent_bytes();
        if std::mem::replace(&mut self.moved_bytes, moved_bytes) == moved_bytes {
            self.incoming.shrink();
            self.outgoing.shrink();
        }
    }

    /// Whether another request fits.
    pub(super) fn has_room(&self, request: &Request, buffered_bytes_max: usize) -> bool {
        self.outgoing.buffered_bytes() < buffered_bytes_max && !(request.has_reply() && self.acknowledgements.is_full())
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.initiator.outstanding() == 0 && self.outgoing.is_acknowledged() && !self.coalesced.is_some()
    }

    /// Whether small puts, gets or updates wait that are no request yet.
    pub(super) fn has_coalesced(&self) -> bool {
        self.coalesced.is_some()
    }

    /// The connection is over: what was taken in goes nowhere. Who waits for it, if anybody does.
    pub(super) fn abandon_coalesced(&mut self) -> Option<Token> {
        self.corked = false;
        self.coalesced.abandon()
    }

    /// Bytes that wait to be sent, those of streams apart.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outgoing.unsent_bytes() + self.coalesced.wire_bytes()
    }

    /// Whether more may be copied, as far as room is concerned.
    pub(super) fn has_room_for_bytes(&self, buffered_bytes_max: usize) -> bool {
        self.outgoing.buffered_bytes() < buffered_bytes_max
    }

    /// Whether quiet has something to ask, or to say.
    pub(super) fn is_unconfirmed(&self) -> bool {
        // Whoever took a refusal up: the next quiet says so.
        self.unconfirmed || self.refused.is_some()
    }

    /// Nobody will ask any more: what was not confirmed is lost. Whether there was anything.
    pub(super) fn take_unconfirmed(&mut self) -> bool {
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        self.refused.take().is_some() || unconfirmed
    }

    /// Whether small requests that nobody waits for may wait for others: something of their kind is under way, and there is room.
    #[inline]
    pub(super) fn coalesces_more(&self, buffered_bytes_max: usize) -> bool {
        self.has_room_for_bytes(buffered_bytes_max) && (self.has_coalesced() || !self.goes_alone())
    }

    /// Whether a write would have to wait for the data of a get.
    pub(super) fn holds_back_writes(&self) -> bool {
        self.acknowledgements.holds_back_writes()
    }

    /// Takes a small put or accumulate in, which becomes a request together with those that follow. Whether it is the first.
    pub(super) fn coalesce_write(&mut self, target: &WindowRef, writes: &Writes, run: Run, bytes: Region<'_>) -> bool {
        let is_new = !self.coalesced.fits_write(target, writes, run);
        if is_new {
            self.begin_coalesced();
        }
        self.coalesced.add_write(target, writes, run, bytes);
        is_new
    }

    /// The same for a get.
    pub(super) fn coalesce_get(&mut self, target: &WindowRef, run: Run, place: (Held, Run)) -> bool {
        let is_new = !self.coalesced.fits_get(target, run);
        if is_new {
            self.begin_coalesced();
        }
        self.coalesced.add_get(target, run, place);
        is_new
    }

    /// The same for an update of a word, whose old value ends the part.
    pub(super) fn coalesce_rmw(
        &mut self,
        target: &WindowRef,
        updates: Updates,
        word: RmwWord,
        part: CompletionPart,
    ) -> bool {
        let is_new = !self.coalesced.fits_rmw(target, updates);
        if is_new {
            self.begin_coalesced();
        }
        self.coalesced.add_rmw(target, updates, word, part);
        is_new
    }

    /// Whether data behind a reply is still to come.
    pub(super) fn awaits_data(&self) -> bool {
        self.landing.is_some() || !self.values.as_slice().is_empty()
    }

    /// Makes a request of what was taken in. Before anything else is begun, so that the order stays.
    fn begin_coalesced(&mut self) {
        if !self.coalesced.is_some() {
            return;
        }
        let (request, token, payload) = self.coalesced.take();
        if request.has_reply() && self.acknowledgements.is_due(self.incoming.received_bytes()) {
            self.acknowledge_next();
        }
        self.begin_next(&request, token, Payload::Headed(&payload, None));
        self.coalesced.take_back(request, payload);
    }

    /// Whether nothing was issued behind this request.
    pub(super) fn is_last(&self, number: RequestId) -> bool {
        number == self.initiator.last() && !self.coalesced.is_some()
    }

    /// The number of the last request, if it asks how far the server is.
    pub(super) fn confirming(&self) -> Option<RequestId> {
        let asks = self.acknowledgements.due > 0 && self.is_last(self.last_acknowledgement);
        asks.then_some(self.last_acknowledgement)
    }

    /// A value has come, of a word or of a mutex that was tried. If the last request of all was for a word, and nothing is due any more, that was
    /// its old value, and all before it is done, as behind a quiet.
    pub(super) fn old_value_came(&mut self) {
        self.unconfirmed &= !(self.is_last(self.last_rmw) && self.initiator.outstanding() == 0);
    }

    /// Puts a request behind all others.
    pub(super) fn begin(&mut self, request: &Request, token: Option<Token>, payload: Payload<'_>) {
        if !mutation(Mutation::CoalescedLate) {
            self.begin_coalesced();
        }
        self.begin_next(request, token, payload);
    }

    fn begin_next(&mut self, request: &Request, token: Option<Token>, payload: Payload<'_>) {
        if let Some(until) = self.acknowledgements.gate(request) {
            self.outgoing.gate(until);
        }
        self.acknowledgements.asked(request);
        self.scratch.clear();
        let number = self.initiator.begin(request, token, &mut self.scratch);
        if matches!(request, Request::Rmw { .. }) {
            self.last_rmw = number;
        }
        if let Payload::Headed(head, _) = &payload {
            self.scratch.extend_from_slice(head);
        }
        let scratch = &self.scratch;
        self.outgoing.write(|bytes| bytes.extend_from_slice(scratch));
        match payload {
            Payload::None | Payload::Headed(_, None) => {}
            Payload::Copied(bytes, cursor) => self.outgoing.copy(&Lasting(bytes), cursor),
            Payload::Streamed(held, cursor) | Payload::Headed(_, Some((held, cursor))) => {
                if cursor.remaining() == 0 {
                    drop(held);
                } else {
                    // Its memory is not given back before the server has it all: who waits for that asks.
                    self.acknowledgements.streamed(cursor.remaining());
                    self.outgoing.stream(held, cursor);
                }
            }
        }
    }

    /// Whether who only sends should look for what the server says of it now and then, so that what is kept stays small.
    pub(super) fn should_receive(&mut self, buffered_bytes_max: usize) -> bool {
        if self.acknowledgements.due == 0 || self.outgoing.buffered_bytes() < buffered_bytes_max / 4 {
            return false;
        }
        self.looks += 1 + (self.outgoing.unsent_bytes() / LOOK_BYTES) as u32;
        let looks = self.looks >= LOOK_EVERY;
        if looks {
            self.looks = 0;
        }
        looks
    }

    /// Tells how far we are, and asks the same.
    fn acknowledge(&mut self) {
        self.begin_coalesced();
        self.acknowledge_next();
    }

    fn acknowledge_next(&mut self) {
        let received_bytes = self.incoming.received_bytes();
        self.acknowledgements.note_acknowledgement(received_bytes);
        let request = Request::Acknowledge { received_bytes };
        self.acknowledgements.asked(&request);
        self.scratch.clear();
        self.last_acknowledgement = self.initiator.begin(&request, Some(Token::Acknowledge), &mut self.scratch);
        self.outgoing.write(|bytes| bytes.extend_from_slice(&self.scratch));
    }

    /// What is waited for, room or a confirmation, has to be asked for.
    pub(super) fn acknowledge_if_none_is_due(&mut self) {
        if self.acknowledgements.due == 0 {
            self.acknowledge();
        }
    }

    /// Before a request: either side may keep too much.
    pub(super) fn acknowledge_if_due(&mut self, request: &Request, buffered_bytes_max: usize) {
        let replies = request.has_reply() || is_large_get(request);
        let is_due = replies && self.acknowledgements.is_due(self.incoming.received_bytes());
        if is_due || self.keeps_much(buffered_bytes_max) {
            self.acknowledge();
        }
    }

    /// The same before what was coalesced becomes a request.
    pub(super) fn acknowledge_if_much_is_kept(&mut self, buffered_bytes_max: usize) {
        if self.keeps_much(buffered_bytes_max) {
            self.acknowledge();
        }
    }

    fn keeps_much(&self, buffered_bytes_max: usize) -> bool {
        let much = self.outgoing.buffered_bytes() >= buffered_bytes_max / 4 || self.acknowledgements.streams_much();
        much && self.acknowledgements.due == 0
    }

    /// While nobody waits: what was sent some time ago should have arrived.
    pub(super) fn ask_how_far(&mut self) {
        if self.initiator.outstanding() == 0 && !self.outgoing.is_acknowledged() {
            self.acknowledge();
        }
    }

    /// While somebody waits for this node without having asked it for anything: now and then it is asked whether it lives.
    pub(super) fn ask_whether_alive(&mut self, now_ms: u64, silence_ms: u64) {
        if self.initiator.outstanding() == 0 && self.connection.is_known() && now_ms >= self.asked_ms + silence_ms / 4 {
            self.asked_ms = now_ms;
            self.acknowledge();
        }
    }

    /// Calls if there is no connection, else moves what can be moved.
    pub(super) fn turn(&mut self, peer: &Peer, receive: bool) -> Result<Driven, LostHow> {
        self.corked = false;
        self.begin_coalesced();
        let was_up = self.connection.is_up();
        if !was_up && !self.call(peer)? {
            return Ok(Driven::default());
        }
        match self.exchange(receive) {
            // Somebody may wait for nothing but the connection, and another thread has made it.
            Ok(driven) if !was_up => Ok(Driven { progress: true, completed: true, ..driven }),
            Ok(driven) if driven.progress => {
                if self.keepalive.has_asked() {
                    self.keepalive.glance(peer.time.now_ms(), peer.options.silence_ms);
                }
                Ok(driven)
            }
            Ok(driven) if !receive => Ok(driven),
            Ok(driven) => {
                let now_ms = peer.time.now_ms();
                let asks = self.transfers.asks() || self.mail.is_waited_for();
                // A reply counts as an answer before its data has come.
                let waiting =
                    self.initiator.outstanding() > 0 || self.awaits_data() || self.outgoing.can_send() || asks;
                match self.keepalive.look(now_ms, waiting, peer.options.silence_ms) {
                    Beat::Well => {}
                    Beat::Ask => self.acknowledge(),
                    Beat::Silent => {
                        let silence_ms = peer.options.silence_ms;
                        let (node, host) = (peer.node.0, peer.host.0);
                        tracing::warn!(node, host, "a server is silent for {silence_ms} ms; it is called again");
                        self.lose_link(peer, format!("nothing was heard of the server for {silence_ms} ms"))?;
                    }
                }
                Ok(driven)
            }
            Err(Broken::Protocol(violation)) => Err(LostHow::Failed(format!("it broke the protocol: {violation}"))),
            Err(Broken::Link(error)) => {
                self.lose_link(peer, error.to_string())?;
                Ok(Driven { progress: true, ..Driven::default() })
            }
        }
    }

    /// Whether nothing is under way in the server that a direct transfer could overtake. That a get was answered is not enough:
    /// the server reads its bytes while they are sent.
    #[inline]
    pub(super) fn may_go_direct(&self) -> bool {
        let is_served = !self.is_idle() || self.awaits_data();
        let is_served = is_served && !mutation(Mutation::DirectOvertakes);
        self.reaches == Some(true) && !is_served && self.transfers.are_posted()
    }

    /// A put has failed that nobody waits for: quiet says so.
    fn note_refused(&mut self) {
        if let Some(failure) = self.transfers.take_refused() {
            self.refused.get_or_insert(failure);
        }
    }

    /// Takes up direct transfers that are over.
    pub(super) fn take_outcomes(&mut self, driven: &mut Driven) {
        if self.transfers.is_empty() {
            return;
        }
        let Some(link) = self.connection.link() else { return };
        // What went out before may be the question alone.
        let progress_before = std::mem::take(&mut driven.progress);
        self.transfers.take_outcomes(link, driven);
        self.note_refused();
        if driven.progress {
            self.keepalive.moved();
        }
        driven.progress |= progress_before;
    }

    /// The connection broke: from now on the server is called again.
    fn lose_link(&mut self, peer: &Peer, reason: String) -> Result<(), LostHow> {
        self.renewed = true;
        self.reaches = None;
        let reconnect_ms = peer.options.reconnect_ms;
        let again_ms = self.transfers.orphan(peer.time.now_ms(), reconnect_ms);
        if let Some(link) = self.connection.link() {
            // What it has not delivered is said again over the next one.
            link.abandon();
        }
        let Some(again_ms) = again_ms.filter(|_| reconnect_ms > 0) else {
            self.connection.close();
            return Err(LostHow::Failed(reason));
        };
        let (node, host) = (peer.node.0, peer.host.0);
        tracing::info!(node, host, "connection broke: {reason}; calling again");
        self.connection.lose(reason, again_ms);
        Ok(())
    }

    /// Goes on with the calls. True once there is a connection, over which everything goes on where it was.
    fn call(&mut self, peer: &Peer) -> Result<bool, LostHow> {
        let received_bytes = self.incoming.received_bytes();
        let whom = (&*peer.dial, peer.node);
        let now_ms = peer.time.now_ms();
        let descriptor_key = self.connection.descriptor_key();
        let Some(reception) = self.connection.call(whom, &peer.options, received_bytes, now_ms)? else {
            self.renewed |= self.connection.descriptor_key() != descriptor_key;
            return Ok(false);
        };
        let has_received = match reception {
            Reception::Resumed { received_bytes } => received_bytes,
            Reception::Fresh | Reception::Gone => 0,
        };
        // What is acknowledged is no more there to be sent.
        let kept_from = self.initiator.acknowledged_bytes();
        let has_received = if mutation(Mutation::ResumeFromStart) { kept_from } else { has_received };
        self.renewed = true;
        self.keepalive = Keepalive::default();
        self.incoming.forget_drained();
        let rewound = self.outgoing.rewind(has_received, drop);
        rewound.map_err(|violation| LostHow::Failed(format!("it broke the protocol: {violation}")))?;
        Ok(true)
    }

    fn exchange(&mut self, receive: bool) -> Result<Driven, Broken> {
        let mut driven = Driven::default();
        let link = self.connection.link().expect("a turn begins with a link");
        let settled = self.transfers.settle(link, &mut driven);
        self.note_refused();
        // Until then nothing is sent. But what comes is taken in: behind it the server may say how memory is reached.
        if settled? {
            self.send(receive, &mut driven)?;
        }
        if !receive {
            return Ok(driven);
        }
        loop {
            while self.step(&mut driven)? {
                driven.progress = true;
            }
            if driven.progress && self.incoming.is_drained() {
                break;
            }
            let link = self.connection.link().expect("a turn begins with a link");
            let got = match &mut self.landing {
                Some((target, cursor)) => self.incoming.receive_into(link, target, cursor),
                None => self.incoming.receive(link),
            };
            if !got? {
                break;
            }
            self.keepalive.moved();
            driven.progress = true;
        }
        self.incoming.forget_drained();
        self.take_outcomes(&mut driven);
        Ok(driven)
    }

    fn send(&mut self, receive: bool, driven: &mut Driven) -> Result<(), Broken> {
        let link = self.connection.link().expect("a turn begins with a link");
        if self.reaches.is_none() && link.is_settled() {
            self.reaches = Some(link.direct().is_some());
        }
        // Who waits asks. Who goes on asks along with what goes out, unless a question is on its way already.
        if self.acknowledgements.owes_for_streams() && (receive || self.acknowledgements.due == 0) {
            self.acknowledge();
        }
        if self.outgoing.can_send() {
            let link = self.connection.link().expect("a turn begins with a link");
            if self.outgoing.flush(link)? {
                driven.progress = true;
                if !self.keepalive.has_asked() {
                    self.keepalive.moved();
                }
            }
        }
        Ok(())
    }
}

/// Borrowed bytes as a source of runs.
struct Lasting<'a>(Region<'a>);

impl RunSource for Lasting<'_> {
    fn region(&self, run: Run) -> Region<'_> {
        self.0.slice(run.offset as usize, run.bytes as usize)
    }
}
