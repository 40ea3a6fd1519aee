//! This rank's half of the conversation with one node: requests out, replies in, over one link.
//!
//! Any thread may issue; one thread at a time drives. Who finds the endpoint taken waits on its own completion,
//! which the driver brings about.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use longarm_memory::Region;
use longarm_netmod::flow::{Incoming, Outgoing};
use longarm_netmod::{Link, LinkError};
use longarm_proto::{Cursor, Initiator, NodeId, REPLY_BYTES, Rank, Refusal, Reply, Request, Violation};
use longarm_shm::sync::{AtomicBool, AtomicUsize, Ordering};
use parking_lot::Mutex;

use crate::completion::{Completion, Outcome};
use crate::error::LostHow;
use crate::origin_bytes::Held;

/// What a reply does when it comes.
#[allow(clippy::large_enum_variant, reason = "most tokens are those of gets, which have the large one")]
pub(crate) enum Token {
    /// Its bytes go here.
    Data { target: Held, cursor: Cursor },
    /// A part is done, perhaps with a value.
    Part(Arc<Completion>),
}

impl Token {
    fn completion(&self) -> &Arc<Completion> {
        match self {
            Token::Data { target, .. } => target.completion(),
            Token::Part(completion) => completion,
        }
    }

    fn fail(self, outcome: Outcome) {
        let completion = Arc::clone(self.completion());
        drop(self); // Lets go of the memory before the part is done.
        completion.part_failed(outcome);
    }
}

/// The payload of a request.
pub(crate) enum Payload<'a> {
    None,
    /// Copied at once: the caller may reuse its memory.
    Copied(Region<'a>, Cursor),
    /// Sent from where it is; one part of its completion.
    Streamed(Held, Cursor),
    /// A head that is copied, then bytes that are sent from where they are.
    Headed(&'a [u8], Option<(Held, Cursor)>),
}

struct State {
    link: Box<dyn Link>,
    initiator: Initiator<Token>,
    outgoing: Outgoing<Held>,
    incoming: Incoming,
    landing: Option<(Held, Cursor)>,
    scratch: Vec<u8>,
    /// The first refusal of a request without a reply; quiet brings it to light.
    refused: Option<(Refusal, u64)>,
}

/// See the module.
pub struct Endpoint {
    node: NodeId,
    host: Rank,
    state: Mutex<State>,
    /// The link's descriptor once more, to sleep on without the lock.
    descriptor: Option<OwnedFd>,
    broken: OnceLock<LostHow>,
    /// Something was issued that no reply has confirmed: quiet has to ask.
    unconfirmed: AtomicBool,
    /// Replies are due or bytes wait to be sent.
    busy: AtomicBool,
    /// Bytes wait to be sent.
    wants_write: AtomicBool,
    buffered_bytes: AtomicUsize,
    buffered_bytes_max: usize,
}

/// What driving came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Driven {
    pub(crate) progress: bool,
    /// Some completion may have become complete: sleepers have to look.
    pub(crate) completed: bool,
}

impl Endpoint {
    /// Around an established link. `buffered_bytes_max` bounds what is copied and waits to be sent.
    pub fn new(node: NodeId, host: Rank, link: Box<dyn Link>, buffered_bytes_max: usize) -> Endpoint {
        let descriptor = link.descriptor().and_then(|fd| fd.try_clone_to_owned().ok());
        Endpoint {
            node,
            host,
            state: Mutex::new(State {
                link,
                initiator: Initiator::new(),
                outgoing: Outgoing::new(),
                incoming: Incoming::new(),
                landing: None,
                scratch: Vec::new(),
                refused: None,
            }),
            descriptor,
            broken: OnceLock::new(),
            unconfirmed: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            wants_write: AtomicBool::new(false),
            buffered_bytes: AtomicUsize::new(0),
            buffered_bytes_max,
        }
    }

    /// The node at the other end.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The rank that hosts the server at the other end.
    pub fn host(&self) -> Rank {
        self.host
    }

    /// Why nothing goes through any more, if so.
    pub(crate) fn broken(&self) -> Option<&LostHow> {
        self.broken.get()
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.wants_write.load(Ordering::Acquire)
    }

    /// Whether another request would be taken, or refused for good.
    pub(crate) fn has_room(&self) -> bool {
        self.buffered_bytes.load(Ordering::Acquire) < self.buffered_bytes_max || self.broken.get().is_some()
    }

    /// Whether quiet has to ask.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire)
    }

    /// Whether something was issued that no reply will ever confirm. True once: somebody has to be told.
    pub(crate) fn take_unconfirmed(&self) -> bool {
        self.unconfirmed.swap(false, Ordering::AcqRel)
    }

    /// The first refusal since the last time.
    pub(crate) fn take_refused(&self) -> Option<(Refusal, u64)> {
        self.state.lock().refused.take()
    }

    /// Puts a request behind all others. `Err(None)`: no room now, drive and try again; the payload and the token
    /// come back. With `flush` the link is tried at once.
    pub(crate) fn issue<'a>(
        &self,
        request: &Request,
        token: Option<Token>,
        payload: Payload<'a>,
        flush: bool,
    ) -> Result<Driven, Box<Rejected<'a>>> {
        let mut state = self.state.lock();
        if let Some(how) = self.broken.get() {
            return Err(Box::new(Rejected { how: Some(how.clone()), token, payload }));
        }
        if state.outgoing.buffered_bytes() >= self.buffered_bytes_max {
            return Err(Box::new(Rejected { how: None, token, payload }));
        }
        let State { initiator, outgoing, scratch, .. } = &mut *state;
        // A message changes no window: quiet says nothing of it.
        if !request.has_reply() && !matches!(request, Request::Message { .. }) {
            self.unconfirmed.store(true, Ordering::Release);
        }
        scratch.clear();
        initiator.begin(request, token, scratch);
        if let Payload::Headed(head, _) = &payload {
            scratch.extend_from_slice(head);
        }
        outgoing.write(|bytes| bytes.extend_from_slice(scratch));
        match payload {
            Payload::None | Payload::Headed(_, None) => {}
            Payload::Copied(bytes, cursor) => outgoing.copy(&Lasting(bytes), cursor),
            Payload::Streamed(held, cursor) | Payload::Headed(_, Some((held, cursor))) => {
                if cursor.remaining() == 0 {
                    finish(held);
                } else {
                    outgoing.stream(held, cursor);
                }
            }
        }
        let driven = if flush { self.drive_locked(&mut state, false) } else { Driven::default() };
        self.note(&state);
        if matches!(request, Request::Quiet) {
            // After `busy` was set: a second thread's quiet looks at this mark first, then at `busy`.
            self.unconfirmed.store(false, Ordering::Release);
        }
        Ok(driven)
    }

    /// Sends and receives what the link gives and takes now. `None`: another thread does.
    pub(crate) fn drive(&self) -> Option<Driven> {
        let mut state = self.state.try_lock()?;
        Some(self.drive_locked(&mut state, true))
    }

    fn drive_locked(&self, state: &mut State, receive: bool) -> Driven {
        if self.broken.get().is_some() {
            return Driven::default();
        }
        let driven = match state.turn(receive) {
            Ok(driven) => driven,
            Err(how) => {
                self.fail(state, how);
                Driven { progress: true, completed: true }
            }
        };
        self.note(state);
        driven
    }

    fn note(&self, state: &State) {
        let wants_write = !state.outgoing.is_empty();
        self.wants_write.store(wants_write, Ordering::Release);
        self.buffered_bytes.store(state.outgoing.buffered_bytes(), Ordering::Release);
        let busy = wants_write || state.initiator.outstanding() > 0 || state.landing.is_some();
        self.busy.store(busy && self.broken.get().is_none(), Ordering::Release);
    }

    /// Nothing goes through any more: everybody who waits is told.
    pub(crate) fn give_up(&self, how: LostHow) {
        let mut state = self.state.lock();
        if self.broken.get().is_none() {
            self.fail(&mut state, how);
            self.note(&state);
        }
    }

    fn fail(&self, state: &mut State, how: LostHow) {
        // The reason first: who sees a failed completion finds it.
        let how = self.broken.get_or_init(|| how).clone();
        let outcome = Outcome::Lost(how);
        state.outgoing.abandon(|held| {
            let completion = Arc::clone(held.completion());
            drop(held);
            completion.part_failed(outcome.clone());
        });
        if let Some((held, cursor)) = state.landing.take() {
            Token::Data { target: held, cursor }.fail(outcome.clone());
        }
        for token in state.initiator.drain() {
            token.fail(outcome.clone());
        }
    }
}

/// A request that was not taken, with all that came with it.
pub(crate) struct Rejected<'a> {
    /// `None`: there was no room.
    pub(crate) how: Option<LostHow>,
    pub(crate) token: Option<Token>,
    pub(crate) payload: Payload<'a>,
}

impl Rejected<'_> {
    /// Ends the parts that the request stood for.
    pub(crate) fn fail(self, how: &LostHow) {
        let outcome = Outcome::Lost(how.clone());
        if let Some(token) = self.token {
            token.fail(outcome.clone());
        }
        if let Payload::Streamed(held, cursor) | Payload::Headed(_, Some((held, cursor))) = self.payload {
            Token::Data { target: held, cursor }.fail(outcome);
        }
    }
}

/// Lets go of memory, then ends its part.
fn finish(held: Held) {
    let completion = Arc::clone(held.completion());
    drop(held);
    completion.part_done();
}

/// Borrowed bytes as a source of runs.
struct Lasting<'a>(Region<'a>);

impl longarm_netmod::flow::RunSource for Lasting<'_> {
    fn region(&self, run: longarm_proto::Run) -> Region<'_> {
        self.0.slice(run.offset as usize, run.bytes as usize)
    }
}

impl State {
    fn turn(&mut self, receive: bool) -> Result<Driven, LostHow> {
        let mut driven = Driven::default();
        if !self.outgoing.is_empty() {
            let mut completed = false;
            let before = self.outgoing.buffered_bytes();
            driven.progress |= self
                .outgoing
                .flush(&mut *self.link, |held| {
                    completed = true;
                    finish(held);
                })
                .map_err(lost)?;
            // Room in the ring is waited for as a completion is.
            driven.completed |= completed || self.outgoing.buffered_bytes() < before;
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
            let got = match &mut self.landing {
                Some((target, cursor)) => self.incoming.receive_into(&mut *self.link, target, cursor),
                None => self.incoming.receive(&mut *self.link),
            };
            if !got.map_err(lost)? {
                break;
            }
            driven.progress = true;
        }
        self.incoming.forget_drained();
        Ok(driven)
    }

    /// Uses what has arrived for one step. False: more has to arrive.
    fn step(&mut self, driven: &mut Driven) -> Result<bool, LostHow> {
        if let Some((target, cursor)) = &mut self.landing {
            let before = cursor.remaining();
            self.incoming.drain_into(target, cursor);
            if cursor.remaining() > 0 {
                return Ok(cursor.remaining() < before);
            }
            let (target, _) = self.landing.take().expect("there was one");
            finish(target);
            driven.completed = true;
            return Ok(true);
        }
        let Some(bytes) = self.incoming.take_array::<REPLY_BYTES>() else { return Ok(false) };
        let reply = self.initiator.handle_reply(bytes).map_err(|violation| broke_protocol(&violation))?;
        match reply {
            Reply::Data { token: Token::Data { target, cursor }, .. } => self.landing = Some((target, cursor)),
            Reply::Data { token: Token::Part(_), .. } => unreachable!("gets are issued with a place for their data"),
            Reply::Done(token) | Reply::Granted(token) => {
                token.completion().part_done();
                driven.completed = true;
            }
            Reply::Value { token, value } => {
                token.completion().part_done_with(value);
                driven.completed = true;
            }
            Reply::Refused { token: Some(token), refusal, detail, .. } => {
                token.fail(Outcome::Refused { refusal, detail });
                driven.completed = true;
            }
            Reply::Refused { token: None, refusal, detail, .. } => {
                self.refused.get_or_insert((refusal, detail));
            }
        }
        Ok(true)
    }
}

fn lost(error: LinkError) -> LostHow {
    match error {
        LinkError::Closed => LostHow::Closed,
        other => LostHow::Failed(other.to_string()),
    }
}

fn broke_protocol(violation: &Violation) -> LostHow {
    LostHow::Failed(format!("it broke the protocol: {violation}"))
}
