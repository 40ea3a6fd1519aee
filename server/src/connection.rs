//! One remote rank's session: frames in, memory touched, replies out, in order, over one link after the other.
//!
//! ```text
//!   Header ──► Descriptor ──► serve::begin ──► Payload(sink) ──► serve::finish ──► Header
//! ```
//!
//! Payload goes from the socket straight into the window where the runs are long; short runs and accumulates go
//! through the receive buffer. A request that is refused has its payload skipped, and the connection lives on;
//! a frame that breaks the protocol ends the session. A link that breaks is replaced: what was received stays as it is,
//! even half a frame, and what was sent is kept until the peer says that it has it.

use longarm_memory::Region;
use longarm_netmod::flow::{Costs, Incoming, unpacking};
use longarm_netmod::{Link, LinkError};
use longarm_proto::{
    Cursor, HEADER_BYTES, Identity, Kernel, LOCK_WAITERS_MAX, Mutation, Rank, Refusal, ReplyBody, Request,
    RequestHeader, RequestKind, Responder, Scale, Violation, mutation,
};
use longarm_shm::NodeSegment;

use crate::mail::Mail;
use crate::replies::Replies;
use crate::serve;
use crate::serve::asker::{Asker, Refused};
use crate::serve::sink::Sink;
use crate::serve::state::ServeState;
use crate::table::TargetPart;

/// Receives that one turn of one connection may take, so that no peer starves the others.
const RECEIVES_PER_TURN: usize = 16;

#[allow(clippy::large_enum_variant, reason = "a connection has one; a box would be made for every put")]
enum State {
    Header,
    Descriptor(RequestHeader),
    Payload { sink: Sink, target: Rank },
}

/// Why a link or a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("it broke the protocol: {0}")]
    Violation(#[from] Violation),
    #[error("it has left")]
    Left,
    #[error("its rank is dead and its connection did not end")]
    Dead,
}

/// What a turn came to.
#[derive(Default)]
pub(crate) struct Turn {
    /// Something moved.
    pub progress: bool,
    /// A large reply was sent, or went on being sent: whoever receives it has work to do.
    pub sends_large: bool,
}

pub(crate) struct Connection {
    /// `None` while the peer has to call again.
    link: Option<Box<dyn Link>>,
    pub(crate) peer: Identity,
    responder: Responder,
    input: Incoming,
    state: State,
    pub(crate) replies: Replies,
    pub(crate) mail: Mail,
    /// Bytes that had come and gone when it was last asked whether it rests.
    moved_bytes: u64,
}

impl Connection {
    /// A session that begins, without a link.
    pub(crate) fn new(peer: Identity, costs: Costs) -> Connection {
        Connection {
            link: None,
            mail: Mail::new(peer.rank),
            peer,
            responder: Responder::new(),
            input: Incoming::new(),
            state: State::Header,
            replies: Replies::new(costs),
            moved_bytes: 0,
        }
    }

    /// Whether its buffers take more memory than at first.
    pub(crate) fn has_grown(&self) -> bool {
        self.input.has_grown() || self.replies.outgoing.has_grown()
    }

    /// Asked now and then. If nothing has come or gone since the last time, its buffers take as little memory as at first. True: it is
    /// to be asked again, because it does not rest.
    pub(crate) fn shrink_at_rest(&mut self) -> bool {
        let moved_bytes = self.input.received_bytes() + self.replies.outgoing.sent_bytes();
        if std::mem::replace(&mut self.moved_bytes, moved_bytes) != moved_bytes {
            return self.has_grown();
        }
        self.input.shrink();
        self.replies.outgoing.shrink();
        false
    }

    pub(crate) fn link(&self) -> Option<&dyn Link> {
        self.link.as_deref()
    }

    /// The link is gone, or is given up for a newer one.
    pub(crate) fn detach(&mut self) -> Option<Box<dyn Link>> {
        self.link.take()
    }

    /// Bytes of requests received so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.input.received_bytes()
    }

    /// Between two links: the peer has received so many bytes of replies, the others will be sent again.
    pub(crate) fn rewind(&mut self, received_bytes: u64) -> Result<(), Violation> {
        assert!(self.link.is_none(), "nothing is sent while it is decided what to send");
        self.replies.outgoing.rewind(received_bytes, drop)
    }

    /// Goes on over this link.
    pub(crate) fn attach(&mut self, link: Box<dyn Link>) {
        self.link = Some(link);
        self.input.forget_drained();
    }

    /// Moves some of the mail that is held to the inboxes, and tells the peer that there is room for more. `None`: no cell is
    /// free. Else whether anything moved.
    pub(crate) fn deliver_mail(&mut self, node: &NodeSegment) -> Result<Option<bool>, Ended> {
        let delivered = self.mail.deliver(node);
        if self.tell_of_mail() {
            self.flush()?;
        }
        Ok(delivered)
    }

    /// Tells the peer how much of its mail has gone to the inboxes, once it is much. True if it was told.
    fn tell_of_mail(&mut self) -> bool {
        let Some(bytes) = self.mail.untold() else { return false };
        self.replies.send(self.responder.last(), ReplyBody::MailTaken { bytes });
        true
    }

    /// Whether to receive more. Of what has arrived already more may be taken up: [`Connection::takes_up_more`].
    pub(crate) fn wants_input(&self) -> bool {
        self.replies.has_room()
    }

    /// Whether what has arrived may be taken up. Behind a payload that waits in its window only another get is: it changes nothing, and both
    /// are answered by one send.
    fn takes_up_more(&self) -> bool {
        self.replies.has_room() || (self.replies.has_room_for_payload() && self.is_get_next())
    }

    fn is_get_next(&self) -> bool {
        match &self.state {
            State::Header => self.input.ready().first_chunk().is_some_and(RequestHeader::is_get),
            State::Descriptor(header) => header.kind() == RequestKind::Get,
            State::Payload { .. } => false,
        }
    }

    /// Sends what the link takes. True if anything moved.
    pub(crate) fn flush(&mut self) -> Result<bool, Ended> {
        match &mut self.link {
            Some(link) => Ok(self.replies.outgoing.flush(&mut **link)?),
            None => Ok(false),
        }
    }

    /// Receives, serves and replies, a bounded amount.
    pub(crate) fn turn(&mut self, shared: &ServeState, number: usize) -> Result<Turn, Ended> {
        let mut progress = false;
        if self.link.is_none() {
            // What has arrived was acknowledged, perhaps: it is done whether the peer calls again or not.
            while self.takes_up_more() && self.step(shared, number)? {
                progress = true;
            }
            return Ok(Turn { progress, sends_large: false });
        }
        // What the socket does not take at once is large too.
        let was_sending = self.replies.outgoing.has_unsent_stream();
        for _ in 0..RECEIVES_PER_TURN {
            while self.takes_up_more() && self.step(shared, number)? {
                progress = true;
            }
            // Answers go out when the input has run dry: many small requests are answered by one send.
            if !self.replies.is_sent() && (self.input.is_empty() || !self.takes_up_more()) {
                progress |= self.flush()?;
            }
            if !self.wants_input() || (progress && self.input.is_drained()) || !self.receive()? {
                break;
            }
            progress = true;
        }
        self.input.forget_drained();
        loop {
            progress |= self.flush()?;
            // The flush may have made room. No descriptor announces requests that have arrived already, here or inside
            // the link, and whoever drives may stop after any turn, so a turn leaves none behind that could be served.
            let mut served = false;
            while self.takes_up_more() && (self.step(shared, number)? || self.receive_held()?) {
                served = true;
            }
            if !served {
                break;
            }
            progress = true;
        }
        let sends_large = std::mem::take(&mut self.replies.began_large) || was_sending;
        Ok(Turn { progress, sends_large })
    }

    /// Uses what has arrived for one step. False: more has to arrive.
    fn step(&mut self, shared: &ServeState, number: usize) -> Result<bool, Ended> {
        match &mut self.state {
            State::Header => {
                let Some(bytes) = self.input.take_array::<HEADER_BYTES>() else { return Ok(false) };
                let header = self.responder.handle_header(bytes)?;
                if header.descriptor_bytes() == 0 {
                    return self.begin(shared, number, header, &[]);
                }
                self.state = State::Descriptor(header);
                Ok(true)
            }
            State::Descriptor(header) => {
                let header = *header;
                let Some(bytes) = self.input.take(header.descriptor_bytes()) else { return Ok(false) };
                let bytes = bytes.to_vec();
                self.begin(shared, number, header, &bytes)
            }
            State::Payload { .. } => self.drain_payload(shared),
        }
    }

    fn begin(
        &mut self,
        shared: &ServeState,
        number: usize,
        header: RequestHeader,
        descriptor: &[u8],
    ) -> Result<bool, Ended> {
        let request = self.responder.finish(&header, descriptor)?;
        match request {
            Request::Acknowledge { received_bytes } => {
                self.replies.outgoing.acknowledge(received_bytes, drop)?;
                self.replies.send(header.id(), ReplyBody::Done);
                self.state = State::Header;
                return Ok(true);
            }
            Request::Leave => return Err(Ended::Left),
            Request::Lock { .. } => {
                let found = shared.mutexes.lock().waiting_of(number) + 1;
                if found > LOCK_WAITERS_MAX {
                    return Err(Violation::LockWaiters { found }.into());
                }
                self.replies.check_unacknowledged()?;
            }
            _ => self.replies.check_unacknowledged()?,
        }
        let asker = Asker { connection: number, rank: self.peer.rank, id: header.id() };
        let target = request.target_rank().unwrap_or(Rank(u32::MAX));
        let begun = match request {
            Request::Message { target, bytes, rest } => self.begin_mail(shared, target, bytes, rest)?,
            request => serve::begin(shared, asker, request, &mut self.replies),
        };
        let sink = match begun {
            Ok(sink) => sink,
            Err((refusal, detail)) => {
                self.replies.send(header.id(), ReplyBody::Refused { refusal, detail });
                Some(Sink::Skip { remaining: header.payload_bytes() })
            }
        };
        self.state = match sink {
            Some(sink) => State::Payload { sink, target },
            None => State::Header,
        };
        Ok(true)
    }

    /// A piece of a message: where its bytes go, if its target is here.
    fn begin_mail(
        &mut self,
        shared: &ServeState,
        target: Rank,
        bytes: u64,
        rest: u64,
    ) -> Result<Result<Option<Sink>, Refused>, Violation> {
        self.mail.charge(bytes)?;
        let Some(local) = shared.local_of_rank.get(&target) else {
            self.mail.refused(bytes);
            return Ok(Err((Refusal::NotThisNode, u64::from(target.0))));
        };
        Ok(Ok(Some(Sink::Message(self.mail.begin(*local, bytes, rest)?))))
    }

    /// Moves payload that has arrived to where it belongs.
    fn drain_payload(&mut self, shared: &ServeState) -> Result<bool, Ended> {
        let State::Payload { sink, target } = &mut self.state else { unreachable!("called in this state") };
        let target = *target;
        let before = sink.remaining();
        match sink {
            Sink::Put { place, cursor, .. } => self.input.drain_into(place, cursor),
            Sink::Accumulate { place, cursor, kernel, scale } => {
                drain_accumulate(&mut self.input, shared, place, cursor, (*kernel, *scale));
            }
            Sink::Message(piece) => {
                // Cells are filled: a piece that arrives byte by byte takes no more of them than another one.
                while piece.remaining() > 0
                    && let Some(bytes) = self.input.take(piece.next_bytes())
                {
                    let _one_at_a_time = shared.cells.lock();
                    self.mail.take(piece, bytes, &shared.node, shared.mail_waits);
                }
            }
            Sink::Skip { remaining } => *remaining -= self.input.skip(*remaining),
        }
        if sink.remaining() > 0 {
            return Ok(sink.remaining() < before);
        }
        if let State::Payload { sink: Sink::Put { then, .. }, .. } = std::mem::replace(&mut self.state, State::Header) {
            then.run();
        }
        shared.notify(target);
        self.tell_of_mail();
        Ok(true)
    }

    /// Brings bytes in that wait inside the link, which are few. False: there are none, or they have to wait.
    fn receive_held(&mut self) -> Result<bool, Ended> {
        let holds = self.link.as_ref().is_some_and(|link| link.holds_bytes());
        Ok(holds && self.wants_input() && self.receive()?)
    }

    /// Brings bytes in. False: nothing there now.
    fn receive(&mut self) -> Result<bool, Ended> {
        let Some(link) = &mut self.link else { return Ok(false) };
        let received = match &mut self.state {
            State::Payload { sink: Sink::Put { place, cursor, .. }, .. } => {
                self.input.receive_into(&mut **link, place, cursor)?
            }
            _ => self.input.receive(&mut **link)?,
        };
        self.replies.received_bytes = self.input.received_bytes();
        Ok(received)
    }
}

fn drain_accumulate(
    input: &mut Incoming,
    shared: &ServeState,
    place: &TargetPart,
    cursor: &mut Cursor,
    (kernel, scale): (Kernel, Scale),
) {
    let window = place.window();
    let element_bytes = kernel.element().bytes() as u64;
    // A fault that the tests know: a run lacks its last element.
    let leaves_out = mutation(Mutation::AccumulateSkipsLast);
    let mut accumulator = window.accumulator((kernel, scale), shared.node.stripes(), shared.host);
    while let Some(run) = cursor.peek() {
        // An element that has arrived in part waits in the buffer for its rest.
        let ready = input.ready().len() as u64 / element_bytes * element_bytes;
        let row = cursor.row(if leaves_out { ready.min(run.bytes) } else { ready }).expect("a run is there");
        if row.bytes() == 0 {
            return;
        }
        let mut source = Region::from_slice(input.take(row.bytes() as usize).expect("as much as is ready"));
        for _ in 0..1 + u32::from(mutation(Mutation::AccumulateTwice)) {
            let done = if row.count == 1 {
                if leaves_out {
                    source = source.slice(0, source.len() - element_bytes as usize);
                }
                accumulator.run(row.run.offset, source)
            } else {
                accumulator.grid(&unpacking(&row, row.run.offset), source)
            };
            done.expect("checked when the accumulate was taken up");
        }
        cursor.pass(&row);
    }
}
