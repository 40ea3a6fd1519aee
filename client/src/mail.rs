//! Messages between ranks: what active messages and collectives are made of.
//!
//! A message is a head of up to [`HEAD_BYTES_MAX`] bytes and a body. On a node it goes in cells to the target's inbox;
//! to other nodes it goes as one frame to the target's server, which puts it into cells there. Cells of one source
//! arrive in order, so a message is put together by source alone.
//!
//! Bodies of collectives wait in a table until the call that expects them takes them. Active messages are run by
//! whichever thread of the rank waits in a call, one at a time and in order of each source.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use longarm_memory::Region;
use longarm_proto::{Cursor, MESSAGE_BYTES_MAX, Rank, Request, Run, Shape};
use longarm_shm::sync::{AtomicUsize, Ordering, fence};
use longarm_shm::{CELL_PAYLOAD_BYTES, CellHead, CounterKind, Popped, Producer};
use parking_lot::Mutex;

use crate::completion::Completion;
use crate::endpoint::{Payload, Sending};
use crate::error::{Lost, Operation, TransferError};
use crate::origin_bytes::{OriginBytes, lend};
use crate::route::Client;
use crate::time::RestOn;
use crate::wait::Drive;
use crate::waits::{Awaited, WaitingCall, Whom};

/// Bytes of the longest head.
pub const HEAD_BYTES_MAX: usize = 160;

/// What tells the messages of one collective call from those of every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The group.
    pub group: u64,
    /// How many collectives this group has done before.
    pub sequence: u64,
    /// Which step of the collective.
    pub step: u32,
}

/// A message of a collective.
#[derive(Debug)]
pub struct Letter {
    /// Bytes of the whole body, of which this letter may be a piece.
    pub total_bytes: u64,
    /// The data, or a piece of it.
    pub body: Vec<u8>,
    /// How many letters had come to this rank before.
    arrival: u64,
}

/// An active message as it arrives.
#[derive(Debug)]
pub struct ActiveMessage {
    /// Who sent it.
    pub source: Rank,
    /// Which handler.
    pub handler: u32,
    /// Whether it is the reply to one of ours.
    pub is_reply: bool,
    /// Up to 16 words.
    pub arguments: Vec<u64>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Runs active messages, one at a time. The reply, if any, is sent through the client. `None` stands for no message:
/// it is what [`Client::call_dispatch`] asks for.
pub type Dispatch = Arc<dyn Fn(Option<ActiveMessage>) + Send + Sync>;

/// The mailbox of a rank.
pub struct Mail {
    inbox: Mutex<Inbox>,
    /// Held while one message is pushed, so that its cells stay together.
    outbox: Mutex<()>,
    /// Active messages that have arrived and not been run.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Option<ActiveMessage>>>,
    dispatching: Mutex<()>,
    dispatch: Mutex<Option<Dispatch>>,
}

#[derive(Default)]
struct Inbox {
    partial: HashMap<u32, Vec<u8>>,
    letters: HashMap<(Slot, Rank), VecDeque<Letter>>,
    /// How many letters have come so far.
    arrived: u64,
}

const COLLECTIVE: u8 = 1;
const ACTIVE: u8 = 2;
const ACTIVE_REPLY: u8 = 3;

impl Mail {
    pub(crate) fn new() -> Mail {
        Mail {
            inbox: Mutex::new(Inbox::default()),
            outbox: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
            dispatching: Mutex::new(()),
            dispatch: Mutex::new(None),
        }
    }
}

/// Little-endian fields of a head, in order.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
}

impl Client {
    /// Sends one message of a collective.
    pub fn send_letter(
        self: &Arc<Self>,
        to: Rank,
        slot: Slot,
        total_bytes: u64,
        body: &[u8],
    ) -> Result<(), TransferError> {
        if to == self.layout.me() {
            self.mail.inbox.lock().keep_letter((slot, to), total_bytes, body);
            // Another thread of this rank may sleep until it comes.
            self.my_bell().ring();
            return Ok(());
        }
        let mut head = Vec::with_capacity(HEAD_BYTES_MAX);
        head.push(COLLECTIVE);
        head.extend_from_slice(&slot.group.to_le_bytes());
        head.extend_from_slice(&slot.sequence.to_le_bytes());
        head.extend_from_slice(&slot.step.to_le_bytes());
        head.extend_from_slice(&total_bytes.to_le_bytes());
        self.send(Operation::Collective, to, &head, body)?;
        self.count(to, CounterKind::Collective, body.len() as u64);
        Ok(())
    }

    /// Waits in a call for a message of a collective. A death among `group` ends the wait.
    pub fn receive_letter(
        self: &Arc<Self>,
        from: Rank,
        slot: Slot,
        call: WaitingCall,
        group: &dyn Fn() -> Option<Lost>,
    ) -> Result<Letter, Lost> {
        self.wait_for(Drive::Memory, Awaited { call, whom: Whom::Rank(from) }, || {
            let mut inbox = self.mail.inbox.lock();
            if let Some(letters) = inbox.letters.get_mut(&(slot, from))
                && let Some(letter) = letters.pop_front()
            {
                if letters.is_empty() {
                    inbox.letters.remove(&(slot, from));
                }
                return Some(Ok(letter));
            }
            drop(inbox);
            group().map(Err)
        })
    }

    /// Waits for a message with this slot from anybody, takes the one that has been here longest, and says from whom it
    /// came. A death in `group` ends the wait.
    pub fn receive_letter_from_any(
        self: &Arc<Self>,
        slot: Slot,
        group: &dyn Fn() -> Option<Lost>,
    ) -> Result<(Rank, Letter), Lost> {
        self.wait_for(Drive::Memory, Awaited::anyone(Operation::Message), || {
            // Found and taken under one lock: another thread may look for the same.
            let mut inbox = self.mail.inbox.lock();
            let queues = inbox.letters.iter().filter(|((other, _), _)| *other == slot);
            let oldest = queues.min_by_key(|(_, letters)| letters.front().map(|letter| letter.arrival));
            let taken = oldest.map(|((_, source), _)| *source).and_then(|source| {
                let letters = inbox.letters.get_mut(&(slot, source))?;
                let letter = letters.pop_front()?;
                if letters.is_empty() {
                    inbox.letters.remove(&(slot, source));
                }
                Some((source, letter))
            });
            drop(inbox);
            taken.map(Ok).or_else(|| group().map(Err))
        })
    }

    /// Sends an active message. Up to 16 words. On return the payload may be reused.
    pub fn send_active(
        self: &Arc<Self>,
        to: Rank,
        handler: u32,
        is_reply: bool,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), TransferError> {
        assert!(arguments.len() <= longarm_proto::AM_ARGUMENTS_MAX, "checked by the typed face");
        if to == self.layout.me() {
            let (arguments, payload) = (arguments.to_vec(), payload.to_vec());
            self.enqueue_active(Some(ActiveMessage { source: to, handler, is_reply, arguments, payload }));
            self.my_bell().ring();
            self.count(to, CounterKind::Message, 0);
            return Ok(());
        }
        let mut head = Vec::with_capacity(HEAD_BYTES_MAX);
        head.push(if is_reply { ACTIVE_REPLY } else { ACTIVE });
        head.extend_from_slice(&handler.to_le_bytes());
        head.push(arguments.len() as u8);
        for argument in arguments {
            head.extend_from_slice(&argument.to_le_bytes());
        }
        self.send(Operation::Message, to, &head, payload)?;
        self.count(to, CounterKind::Message, payload.len() as u64);
        Ok(())
    }

    /// Sets what runs active messages.
    pub fn set_dispatch(&self, dispatch: Dispatch) {
        *self.mail.dispatch.lock() = Some(dispatch);
    }

    /// Has the dispatch called without a message, in its turn behind those that have arrived.
    pub fn call_dispatch(&self) {
        self.enqueue_active(None);
        self.my_bell().ring();
    }

    fn send(self: &Arc<Self>, operation: Operation, to: Rank, head: &[u8], body: &[u8]) -> Result<(), TransferError> {
        if !self.layout.contains(to) {
            return Err(TransferError::NoSuchRank { operation, rank: to, ranks: self.layout.rank_count() });
        }
        self.alive(operation, to)?;
        // The head carries its own length, so that its end is known at the other side.
        let mut prefix = Vec::with_capacity(1 + head.len());
        prefix.push(head.len() as u8);
        prefix.extend_from_slice(head);
        let bytes = (prefix.len() + body.len()) as u64;
        if bytes > MESSAGE_BYTES_MAX {
            let (local_bytes, remote_bytes) = (bytes, MESSAGE_BYTES_MAX);
            return Err(TransferError::LengthMismatch { operation, rank: to, local_bytes, remote_bytes });
        }
        if self.same_node(to) {
            return Ok(self.push_cells(operation, to, &prefix, body)?);
        }
        let endpoint = self.endpoint(operation, self.layout.node_of(to))?;
        let request = Request::Message { target: to, bytes };
        if body.len() <= self.eager_bytes {
            prefix.extend_from_slice(body);
            self.issue(operation, endpoint, &request, None, Payload::Headed(&prefix, None), Sending::Now)?;
            self.leave_to_helper(to);
            return Ok(());
        }
        let completion = Arc::new(Completion::new());
        let cursor = Cursor::new(Shape::Contiguous(Run { offset: 0, bytes: body.len() as u64 }));
        let issued = lend(Arc::clone(&completion), |lent| {
            let payload = Payload::Headed(&prefix, Some((lent.source(OriginBytes::from(body)).hold(), cursor)));
            let issued = self.issue(operation, endpoint, &request, None, payload, Sending::Later);
            completion.part_done();
            self.wait_complete(endpoint, Awaited::rank(operation, to), &completion);
            issued
        });
        issued?;
        self.failure(&completion, operation, to)
    }

    fn push_cells(&self, operation: Operation, to: Rank, prefix: &[u8], body: &[u8]) -> Result<(), Lost> {
        let _one_message_at_a_time = self.mail.outbox.lock();
        let local = self.layout.local_of(to);
        let me = self.layout.local_of(self.layout.me());
        let message_bytes = (prefix.len() + body.len()) as u64;
        let mut prefix = prefix;
        let mut body = body;
        while !prefix.is_empty() || !body.is_empty() {
            let (first, rest) = body.split_at(body.len().min(CELL_PAYLOAD_BYTES - prefix.len()));
            let bytes = (prefix.len() + first.len()) as u32;
            let head = CellHead { source: self.layout.me().0, bytes, message_bytes, ..CellHead::default() };
            let payload = [Region::from_slice(prefix), Region::from_slice(first)];
            // While no cell is free our own inbox is drained, so that two ranks that send to each other go on.
            self.wait_for(Drive::Cells, Awaited::rank(operation, to), || {
                match self.segment.try_push(Producer::Local(me), local, head, &payload) {
                    Ok(()) => Some(Ok(())),
                    // The inbox of a dead rank keeps our cells until the server has emptied it, so that one has to live.
                    Err(_) => self.alive(operation, to).err().or_else(|| self.death_of_host(operation)).map(Err),
                }
            })?;
            (prefix, body) = (&[], rest);
        }
        Ok(())
    }

    /// The death of the rank that hosts this node's server, as an error.
    fn death_of_host(&self, operation: Operation) -> Option<Lost> {
        self.alive(operation, self.layout.server_host(self.layout.my_node())).err()
    }

    /// Takes everything out of the inbox but runs nothing, for a thread that is in the middle of sending. The thread
    /// that runs active messages is told.
    pub(crate) fn drain_cells_only(&self) -> bool {
        let arrived = self.drain_cells();
        if arrived && self.mail.waiting.load(Ordering::Acquire) > 0 {
            self.my_bell().ring();
        }
        arrived
    }

    /// Takes everything out of the inbox and runs what can be run. True if anything came.
    pub(crate) fn drain_mail(&self) -> bool {
        let arrived = self.drain_cells();
        let ran = self.run_active();
        arrived || ran
    }

    pub(crate) fn drain_cells(&self) -> bool {
        let local = self.layout.local_of(self.layout.me());
        if self.segment.inbox_is_empty(local) {
            return false;
        }
        // Not a try: who goes to sleep after this has to know that nothing was left in the inbox.
        let mut inbox = self.mail.inbox.lock();
        let mut progress = false;
        let mut active = Vec::new();
        loop {
            let popped = self.segment.try_pop(local, &mut |head, payload| {
                let partial = inbox.partial.entry(head.source).or_default();
                let from = partial.len();
                partial.resize(from + payload.len(), 0);
                payload.copy_to_slice(&mut partial[from..]);
                if partial.len() as u64 >= head.message_bytes {
                    let whole = inbox.partial.remove(&head.source).unwrap_or_default();
                    if let Some(message) = inbox.sort(Rank(head.source), &whole) {
                        active.push(message);
                    }
                }
            });
            match popped {
                Popped::Taken => progress = true,
                // A sender is between two steps. It goes on, unless it is dead: then its gap is closed.
                Popped::Broken if self.mend_inbox(local) => progress = true,
                Popped::Empty | Popped::Broken => break,
            }
        }
        for message in active {
            self.enqueue_active(Some(message));
        }
        progress
    }

    /// Closes the gaps that dead ranks of this node left in our inbox. True if there were some.
    fn mend_inbox(&self, local: u32) -> bool {
        let here = self.layout.ranks_of(self.layout.my_node());
        let dead = |producer| match producer {
            Producer::Local(local) => self.failures.of(here[local as usize]).is_some(),
            Producer::Server => false,
        };
        self.failures.any() && self.segment.mend(local, dead)
    }

    fn enqueue_active(&self, message: Option<ActiveMessage>) {
        self.mail.queue.lock().push_back(message);
        // PAIR active-queued: who sees the count finds the message.
        self.mail.waiting.fetch_add(1, Ordering::Release);
    }

    /// Runs the active messages that have arrived, unless another thread does.
    pub(crate) fn run_active(&self) -> bool {
        // PAIR active-queued.
        if self.mail.waiting.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(dispatch) = self.mail.dispatch.lock().clone() else { return false };
        let mut progress = false;
        // SeqCst fences: a message is queued, then the lock is tried here; the lock is given back, then the count is
        // read. Less lets both miss each other, and the message would wait for the next one.
        fence(Ordering::SeqCst);
        while self.mail.waiting.load(Ordering::Acquire) > 0 {
            let Some(one_at_a_time) = self.mail.dispatching.try_lock() else { return progress };
            progress |= self.run_queued(&dispatch);
            drop(one_at_a_time);
            fence(Ordering::SeqCst);
        }
        progress
    }

    fn run_queued(&self, dispatch: &Dispatch) -> bool {
        let mut progress = false;
        loop {
            let next = self.mail.queue.lock().pop_front();
            let Some(message) = next else { return progress };
            self.mail.waiting.fetch_sub(1, Ordering::AcqRel);
            progress = true;
            dispatch(message);
        }
    }

    /// Whether active messages have arrived and not been run.
    pub(crate) fn has_active(&self) -> bool {
        // PAIR active-queued.
        self.mail.waiting.load(Ordering::Acquire) > 0
    }

    /// For the thread that runs active messages while the application computes: sleeps until something arrives or
    /// the bell rings, then runs it.
    /// `stopping` is looked at after the bell, which whoever stops us rings afterwards.
    pub fn attend_mail(&self, stopping: impl Fn() -> bool) {
        let bell = self.my_bell();
        let seen = bell.sequence();
        if stopping() {
            return;
        }
        if !self.drain_mail() {
            bell.sleep_unless(seen, None, || self.time.rest(RestOn::Mail, None));
        }
    }
}

impl Inbox {
    fn keep_letter(&mut self, place: (Slot, Rank), total_bytes: u64, body: &[u8]) {
        let letter = Letter { total_bytes, body: body.to_vec(), arrival: self.arrived };
        self.arrived += 1;
        self.letters.entry(place).or_default().push_back(letter);
    }

    /// Puts a whole message where it belongs; active messages are given back.
    fn sort(&mut self, source: Rank, message: &[u8]) -> Option<ActiveMessage> {
        let sorted = self.try_sort(source, message);
        // Ranks of one job run the same code: only our own bug can send a message that is not one.
        assert!(sorted.is_some(), "a message of rank {source} of {} bytes is none", message.len());
        sorted.flatten()
    }

    fn try_sort(&mut self, source: Rank, message: &[u8]) -> Option<Option<ActiveMessage>> {
        let (head_bytes, rest) = message.split_first()?;
        let (head, body) = rest.split_at_checked(usize::from(*head_bytes))?;
        let mut head = Reader(head);
        match head.u8()? {
            COLLECTIVE => {
                let slot = Slot { group: head.u64()?, sequence: head.u64()?, step: head.u32()? };
                self.keep_letter((slot, source), head.u64()?, body);
                Some(None)
            }
            kind @ (ACTIVE | ACTIVE_REPLY) => {
                let handler = head.u32()?;
                let count = head.u8()?;
                let arguments = (0..count).map(|_| head.u64()).collect::<Option<Vec<u64>>>()?;
                let payload = body.to_vec();
                let is_reply = kind == ACTIVE_REPLY;
                Some(Some(ActiveMessage { source, handler, is_reply, arguments, payload }))
            }
            _ => None,
        }
    }
}
