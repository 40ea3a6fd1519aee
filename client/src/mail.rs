//! Messages between ranks: what active messages and collectives are made of.
//!
//! A message is a head of up to [`MAIL_HEAD_BYTES_MAX`] bytes and a body. On a node it goes through the target's fastbox for
//! this rank if it is short, else in cells to the target's inbox; to other nodes it goes in frames to the target's
//! server, which puts it into cells there, and says how much of it has gone: no more is sent than it may hold. What comes from one source comes in order, so a message is put together by
//! source alone.
//!
//! Bodies of collectives wait in a table until the call that expects them takes them. Active messages are run one at a time and in
//! order of each source: by the thread that attends to them and by those that wait in a call for what they do. Where no
//! thread attends, whichever thread of the rank waits in a call runs them.

mod arrivals;
mod broken;
pub(crate) mod mailbox;
mod message;
mod pieces;

use std::borrow::Cow;

use longarm_memory::Region;
use longarm_proto::{
    BadMail, MAIL_ACTIVE, MAIL_ACTIVE_REPLY, MAIL_COLLECTIVE, MAIL_HEAD_BYTES_MAX, MAIL_PIECE_BYTES_MAX,
    MESSAGE_BYTES_MAX, Rank, Request,
};
use longarm_shm::sync::{Ordering, fence};
use longarm_shm::{
    CELL_PAYLOAD_BYTES, CellHead, CounterKind, MESSAGE_BEGINS, Popped, Producer, SHORT_BYTES_MAX, ShortMessage,
};

use self::arrivals::{Arrivals, Partial, Wanted};
pub use self::message::{ActiveMessage, Dispatch, Letter, Slot};
use crate::client::Client;
use crate::completion::Completion;
use crate::endpoint::{Endpoint, Payload, Sending};
use crate::error::{Lost, Operation, TransferError};
use crate::origin_bytes::lend;
use crate::progress::pace::{Drive, Moment};
use crate::progress::time::RestOn;
use crate::progress::waits::{Awaited, WaitingCall, Whom};
use crate::wakers;

/// How often a thread looks for a letter of its own node before it waits as for anything else.
const GLANCES: u32 = 256;
/// How many of these follow each other at once.
const GLANCES_AT_ONCE: u32 = 64;
/// As [`GLANCES`] where ranks share processors: between two looks others get theirs.
const GLANCES_SHARED: u32 = 32;

/// Writes a head: its own length in front, so that its end is known at the other side.
struct Head<const ROOM: usize> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> Head<ROOM> {
    #[inline]
    fn new(kind: u8) -> Self {
        let mut head = Head { bytes: [0; ROOM], len: 1 };
        head.push(&[kind]);
        head
    }

    #[inline]
    fn push(&mut self, field: &[u8]) {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }

    #[inline]
    fn finish(&mut self) -> &[u8] {
        self.bytes[0] = (self.len - 1) as u8;
        &self.bytes[..self.len]
    }
}

/// Waits for an operation when it goes, also where a panic passes by.
struct WaitsAtEnd<'a> {
    client: &'a Client,
    endpoint: &'a Endpoint,
    to: Rank,
    operation: Operation,
    completion: &'a Completion,
}

impl Drop for WaitsAtEnd<'_> {
    fn drop(&mut self) {
        self.client.wait_complete(
            Drive::Endpoint(self.endpoint),
            Awaited::rank(self.operation, self.to),
            self.completion,
        );
    }
}

impl Client {
    /// Sends one message of a collective.
    pub fn send_letter(&self, to: Rank, slot: Slot, total_bytes: u64, body: &[u8]) -> Result<(), TransferError> {
        self.send_letter_during((to, slot), total_bytes, body, || ())
    }

    /// As [`Client::send_letter`], and does something else before it waits for the answer that says that a long one has
    /// arrived.
    pub fn send_letter_during<R>(
        &self,
        (to, slot): (Rank, Slot),
        total_bytes: u64,
        body: &[u8],
        meanwhile: impl FnOnce() -> R,
    ) -> Result<R, TransferError> {
        if to == self.local.layout.me() {
            let mut inbox = self.mail.inbox.lock();
            inbox.keep_letter((slot, to), total_bytes, Cow::Borrowed(body));
            self.mail.kept.store(inbox.letter_count, Ordering::Relaxed);
            drop(inbox);
            // Another thread of this rank may sleep until it comes.
            self.local.my_eventcount().notify();
            return Ok(meanwhile());
        }
        let mut head = Head::<30>::new(MAIL_COLLECTIVE);
        head.push(&slot.group.to_le_bytes());
        head.push(&slot.sequence.to_le_bytes());
        head.push(&slot.step.to_le_bytes());
        head.push(&total_bytes.to_le_bytes());
        let done = self.send_during((Operation::Collective, to), head.finish(), body, meanwhile)?;
        self.local.count(to, CounterKind::Collective, body.len() as u64);
        Ok(done)
    }

    /// Waits in a call for a message of a collective. A death among `group` ends the wait.
    pub fn receive_letter(
        &self,
        from: Rank,
        slot: Slot,
        call: WaitingCall,
        group: &dyn Fn() -> Option<Lost>,
    ) -> Result<Letter, Lost> {
        if self.local.same_node(from)
            && let Some(letter) = self.glance_for_letter((slot, from))
        {
            return Ok(letter);
        }
        self.wait_for(Drive::Memory, Awaited { call, whom: Whom::Rank(from) }, || {
            let letter = self.take_letter((slot, from));
            letter.map(Ok).or_else(|| {
                let lost = group().or_else(|| self.broken_mail(|source| source == from))?;
                // What came before the end may have been taken in by another thread meanwhile.
                Some(self.take_letter((slot, from)).ok_or(lost))
            })
        })
    }

    fn take_letter(&self, place: (Slot, Rank)) -> Option<Letter> {
        let mut inbox = self.mail.inbox.lock();
        let letter = inbox.take_letter(place);
        self.mail.kept.store(inbox.letter_count, Ordering::Relaxed);
        letter
    }

    /// Looks for a letter from a rank of this node for a moment: long enough for one that is on its way. What else comes
    /// is taken in.
    fn glance_for_letter(&self, place: (Slot, Rank)) -> Option<Letter> {
        let me = self.local.layout.local_of(self.local.layout.me());
        let mut wanted = Wanted { place, found: None };
        self.glance(|| {
            // It may have come while another one was waited for, or to another thread of this rank.
            if self.mail.kept.load(Ordering::Relaxed) > 0 || !self.local.segment.inbox_is_empty(me) {
                self.drain_cells_wanting(Some(&mut wanted));
            }
            wanted.found.take()
        })
    }

    /// Looks for what another rank of this node is about to do, for a moment.
    #[inline]
    pub(crate) fn glance<R>(&self, mut look: impl FnMut() -> Option<R>) -> Option<R> {
        let shared = self.progress.spin_us == 0;
        let mut moment = Moment::default();
        for glance in 0..if shared { GLANCES_SHARED } else { GLANCES } {
            if let Some(found) = look() {
                return Some(found);
            }
            if !shared {
                // No pause at first: it takes longer than a message that is under way.
                if glance >= GLANCES_AT_ONCE {
                    std::hint::spin_loop();
                }
            } else if self.progress.time.is_simulated() {
                return None;
            } else {
                // Whoever else has this processor may compute, and give it back late.
                if moment.is_over() {
                    return None;
                }
                std::thread::yield_now();
            }
        }
        None
    }

    /// Waits for a message with this slot from anybody, takes the one that has been here longest, and says from whom it
    /// came. A death in `group` ends the wait.
    pub fn receive_letter_from_any(
        &self,
        slot: Slot,
        group: &dyn Fn() -> Option<Lost>,
    ) -> Result<(Rank, Letter), Lost> {
        self.wait_for(Drive::Memory, Awaited::anyone(Operation::Message), || {
            // Found and taken under one lock: another thread may look for the same.
            let mut inbox = self.mail.inbox.lock();
            let queues = inbox.letters.iter().filter(|((other, _), _)| *other == slot);
            let oldest = queues.min_by_key(|(_, letters)| letters.front().map(|letter| letter.arrival));
            let taken = oldest.map(|((_, source), _)| *source).and_then(|source| {
                let letter = inbox.take_letter((slot, source))?;
                Some((source, letter))
            });
            self.mail.kept.store(inbox.letter_count, Ordering::Relaxed);
            drop(inbox);
            taken.map(Ok).or_else(|| group().or_else(|| self.broken_mail(|_| true)).map(Err))
        })
    }

    /// Sends an active message. Up to 16 words. On return the payload may be reused.
    pub fn send_active(
        &self,
        to: Rank,
        handler: u32,
        is_reply: bool,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), TransferError> {
        assert!(arguments.len() <= longarm_proto::AM_ARGUMENTS_MAX, "checked by the typed interface");
        if to == self.local.layout.me() {
            let (arguments, payload) = (arguments.to_vec(), payload.to_vec());
            self.enqueue_active(Some(ActiveMessage { source: to, handler, is_reply, arguments, payload }));
            self.local.my_eventcount().notify();
            self.local.count(to, CounterKind::Message, 0);
            return Ok(());
        }
        let mut head = Head::<MAIL_HEAD_BYTES_MAX>::new(if is_reply { MAIL_ACTIVE_REPLY } else { MAIL_ACTIVE });
        head.push(&handler.to_le_bytes());
        head.push(&[arguments.len() as u8]);
        for argument in arguments {
            head.push(&argument.to_le_bytes());
        }
        self.send_during((Operation::Message, to), head.finish(), payload, || ())?;
        self.local.count(to, CounterKind::Message, payload.len() as u64);
        Ok(())
    }

    /// Sets what runs active messages.
    pub fn set_dispatch(&self, dispatch: Dispatch) {
        *self.mail.dispatch.lock() = Some(dispatch);
    }

    /// Says whether a thread is there that calls [`Client::attend_mail`] all the time: then no other thread runs active messages
    /// unless it was asked to.
    pub fn set_attended(&self, attended: bool) {
        self.mail.attended.store(attended, Ordering::Relaxed);
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.mail.attended.load(Ordering::Relaxed)
    }

    /// Has the dispatch called without a message, in its turn behind those that have arrived.
    pub fn call_dispatch(&self) {
        self.enqueue_active(None);
        self.local.my_eventcount().notify();
    }

    fn send_during<R>(
        &self,
        (operation, to): (Operation, Rank),
        prefix: &[u8],
        body: &[u8],
        meanwhile: impl FnOnce() -> R,
    ) -> Result<R, TransferError> {
        if !self.local.layout.contains(to) {
            return Err(TransferError::NoSuchRank { operation, rank: to, ranks: self.local.layout.rank_count() });
        }
        self.local.alive(operation, to)?;
        let bytes = (prefix.len() + body.len()) as u64;
        if bytes > MESSAGE_BYTES_MAX {
            let (local_bytes, remote_bytes) = (bytes, MESSAGE_BYTES_MAX);
            return Err(TransferError::LengthMismatch { operation, rank: to, local_bytes, remote_bytes });
        }
        if self.local.same_node(to) {
            self.push_cells(operation, to, prefix, body)?;
            return Ok(meanwhile());
        }
        let endpoint = self.endpoint(operation, self.local.layout.node_of(to))?;
        if body.len() as u64 <= self.small_bytes_max() && bytes <= MAIL_PIECE_BYTES_MAX {
            let request = Request::Message { target: to, bytes, rest: 0 };
            let whole = [prefix, body].concat();
            let kept = wakers::keep();
            let outbox = self.progress.time.lock(&endpoint.outbox);
            self.issue(operation, endpoint, &request, None, Payload::Headed(&whole, None), Sending::Now)?;
            drop((outbox, kept));
            self.progress.leave_to_helper(endpoint);
            return Ok(meanwhile());
        }
        let (done, completion) = lend(|lent| {
            let issued = self.issue_pieces((operation, to), endpoint, prefix, body, &lent);
            let completion = lent.issued();
            // However `meanwhile` ends, the body stays here until it is away.
            let away = WaitsAtEnd { client: self, endpoint, to, operation, completion: &completion };
            let done = issued.map(|()| meanwhile());
            drop(away);
            (done, completion)
        });
        let done = done?;
        self.local.failure(&completion, operation, to)?;
        Ok(done)
    }

    fn push_cells(&self, operation: Operation, to: Rank, prefix: &[u8], body: &[u8]) -> Result<(), Lost> {
        // A task that is woken in between may send a message too, on this thread.
        let _kept = wakers::keep();
        let _one_message_at_a_time = self.progress.time.lock(&self.mail.outbox);
        let local = self.local.layout.local_of(to);
        let me = self.local.layout.local_of(self.local.layout.me());
        let short = ShortMessage::of([prefix, body]);
        if short.is_some_and(|short| self.local.segment.try_send_short(me, local, self.local.layout.me(), &short)) {
            return Ok(());
        }
        let message_bytes = (prefix.len() + body.len()) as u64;
        let mut prefix = prefix;
        let mut body = body;
        let mut kind = MESSAGE_BEGINS;
        while !prefix.is_empty() || !body.is_empty() {
            let (first, rest) = body.split_at(body.len().min(CELL_PAYLOAD_BYTES - prefix.len()));
            let bytes = (prefix.len() + first.len()) as u32;
            let head = CellHead { source: self.local.layout.me().0, bytes, message_bytes, kind, ..CellHead::default() };
            let payload = [Region::from_slice(prefix), Region::from_slice(first)];
            // While no cell is free our own inbox is drained, so that two ranks that send to each other go on.
            self.wait_for(Drive::Cells, Awaited::rank(operation, to), || {
                match self.local.segment.try_push(Producer::Local(me), local, head, &payload) {
                    Ok(()) => Some(Ok(())),
                    // The inbox of a dead rank keeps our cells until the server has emptied it, so that one has to live.
                    Err(_) => self.local.alive(operation, to).err().or_else(|| self.death_of_host(operation)).map(Err),
                }
            })?;
            (prefix, body, kind) = (&[], rest, 0);
        }
        Ok(())
    }

    /// The death of the rank that hosts this node's server, as an error.
    fn death_of_host(&self, operation: Operation) -> Option<Lost> {
        self.local.alive(operation, self.local.layout.server_host(self.local.layout.my_node())).err()
    }

    /// Takes everything out of the inbox but runs nothing, for a thread that is in the middle of sending. The thread
    /// that runs active messages is told.
    pub(crate) fn drain_cells_only(&self) -> bool {
        self.drain_cells()
    }

    pub(crate) fn drain_cells(&self) -> bool {
        self.drain_cells_wanting(None)
    }

    /// The same. A letter that is wanted and already in the table is taken first; else the first that comes is handed over and
    /// not kept.
    fn drain_cells_wanting(&self, mut wanted: Option<&mut Wanted>) -> bool {
        let local = self.local.layout.local_of(self.local.layout.me());
        if wanted.is_none() && self.local.segment.inbox_is_empty(local) {
            return false;
        }
        // Not a try: who goes to sleep after this has to know that nothing was left in the inbox.
        let mut inbox = self.mail.inbox.lock();
        if let Some(wanted) = &mut wanted {
            wanted.found = inbox.take_letter(wanted.place);
            if wanted.found.is_some() {
                self.mail.kept.store(inbox.letter_count, Ordering::Relaxed);
                return true;
            }
        }
        let mut progress = false;
        let mut active = Vec::new();
        loop {
            let popped = self.local.segment.try_pop(local, &mut |head, payload| {
                // All that do not exist are one.
                let exists = self.local.layout.contains(Rank(head.source));
                let source = if exists { Rank(head.source) } else { Rank(u32::MAX) };
                if self.mail.any_broken.load(Ordering::Relaxed) && inbox.broken.contains_key(&source) {
                    return;
                }
                match self.take_in(&mut inbox, head, payload, wanted.as_deref_mut()) {
                    Ok(message) => active.extend(message),
                    Err(why) => self.note_broken(&mut inbox, source, why),
                }
            });
            match popped {
                Popped::Taken => {
                    progress = true;
                    // The next one may be wanted next.
                    if wanted.as_ref().is_some_and(|wanted| wanted.found.is_some()) {
                        break;
                    }
                }
                // A sender is between two steps. It goes on, unless it is dead: then its gap is closed.
                Popped::Broken if self.mend_inbox(local) => progress = true,
                Popped::Empty | Popped::Broken => break,
            }
        }
        self.mail.kept.store(inbox.letter_count, Ordering::Relaxed);
        // Still under the lock, which keeps active messages in order.
        let came = !active.is_empty();
        for message in active {
            self.enqueue_active(Some(message));
        }
        drop(inbox);
        if came {
            // Who looked before they were queued, and found the inbox empty, may be asleep; and we may not run them.
            self.local.my_eventcount().notify();
        }
        progress
    }

    /// Takes in what a cell or a fastbox has brought. An active message, if it is one and whole now.
    fn take_in(
        &self,
        inbox: &mut Arrivals,
        head: CellHead,
        payload: Region<'_>,
        wanted: Option<&mut Wanted>,
    ) -> Result<Option<ActiveMessage>, BadMail> {
        let source = Rank(head.source);
        if !self.local.layout.contains(source) {
            return Err(BadMail::NoSuchRank { found: source.0 });
        }
        if payload.len() <= SHORT_BYTES_MAX && payload.len() as u64 == head.message_bytes {
            let mut message = [0; SHORT_BYTES_MAX];
            let message = &mut message[..payload.len()];
            payload.copy_to_slice(message);
            let (head_bytes, rest) = message.split_first().unwrap_or((&0, &[]));
            let (start, body) = rest.split_at(rest.len().min(usize::from(*head_bytes)));
            return inbox.sort(source, start, Cow::Borrowed(body), wanted);
        }
        match inbox.add(head.source, head.kind == MESSAGE_BEGINS, payload, head.message_bytes)? {
            Some(Partial { head, body, .. }) => inbox.sort(source, &head, Cow::Owned(body), wanted),
            None => Ok(None),
        }
    }

    /// Closes the gaps that dead ranks of this node left in our inbox. True if there were some.
    fn mend_inbox(&self, local: u32) -> bool {
        let here = self.local.layout.ranks_of(self.local.layout.my_node());
        let dead = |producer| match producer {
            Producer::Local(local) => self.local.failures.of(here[local as usize]).is_some(),
            Producer::Server => false,
        };
        self.local.failures.any() && self.local.segment.mend(local, dead)
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
    /// the eventcount is notified, then runs it.
    /// `stopping` is looked at after the eventcount, which whoever stops us notifies afterwards.
    pub fn attend_mail(&self, stopping: impl Fn() -> bool) {
        let eventcount = self.local.my_eventcount();
        let seen = eventcount.sequence();
        if stopping() {
            return;
        }
        let arrived = self.drain_cells();
        let ran = self.run_active();
        if ran && self.is_attended() {
            // Another thread may wait for what was run.
            eventcount.notify();
        }
        if !arrived && !ran {
            eventcount.sleep_unless(seen, None, || self.progress.time.rest(RestOn::Mail, None));
        }
    }
}
