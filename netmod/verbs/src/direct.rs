//! Direct transfers: requests that write and read the peer's memory, which does not notice.
//!
//! | bytes | a put | a get |
//! | --- | --- | --- |
//! | fit into a request | inline | through a buffer |
//! | fewer than registering is worth | through buffers, several in one chain | through buffers |
//! | more | from where they are, piece by piece: the next is registered while the last is on its way | likewise |
//!
//! Words are updated by the peer's device; the old value comes through a buffer, as the bytes of a get.
//!
//! Requests of one connection are done in order, so a transfer is over when its last request is. Reads and updates are the
//! exception: what comes behind one waits for its answer by a fence, and so does what is sent.
//!
//! Over iWARP the end of a write says only that its bytes are on their way. There a read behind it, which the peer's device answers
//! when it has placed all that came before, proves that it has arrived: that of a get, or one of a single byte.

use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    DEVICE_WORD_BYTES, DeviceRmw, DirectAccess, DirectOutcome, DirectSource, InlinePoll, LinkError, Loan, Reach, Wish,
};
use longarm_proto::rdma::{Purpose, RemotePart};
use longarm_proto::{Run, WindowRef};
use longarm_registration::{Pinned, RegisterError};

use crate::fabric::Device;
use crate::link::VerbsLink;
use crate::pieces::{Piece, around, some_of};
use crate::requests::{Act, Kept, Move, Request};
use crate::stream::Stream;
use crate::sys::{CHAIN_MAX, Data, Post, Posting, Slab, Span};
use crate::transfers::{LocalMemory, Transfer};

/// Requests of at most so many bytes may end untold,
const SHORT_BYTES: usize = 1 << 10;
/// where so many are under way already,
const FEW: usize = 4;
/// and so many in a row at most.
const TELL_EVERY: usize = 8;
/// Transfers that wait. Who has more does it another way.
const BACKLOG_MAX: usize = 64;
/// Pieces of large transfers under way at a time: enough that one is registered while others are on the wire.
const PIECES_UNDER_WAY_MAX: usize = 8;
/// Below this, copying is quicker than asking the cache.
pub(crate) const KNOWN_BYTES_MIN: usize = 4 << 10;

/// Registered memory as one request names it.
struct Registered {
    registration: Pinned<Device>,
    loan: Arc<dyn Loan>,
    spans: Vec<Span>,
    bytes: usize,
}

/// The address at the peer where a run of a part begins, if it lies within.
fn remote_address(part: &RemotePart, run: Run) -> Option<u64> {
    let end = run.offset.checked_add(run.bytes)?;
    (end <= part.bytes).then(|| part.start + run.offset)
}

impl Stream {
    /// Whether there is room for a transfer.
    fn takes(&self, wish: Wish) -> bool {
        let waiting = self.direct.backlog.len();
        // What is copied goes out at once, so nothing may wait before it.
        match wish {
            Wish::PutLent | Wish::Get | Wish::Rmw => waiting < BACKLOG_MAX,
            Wish::PutCopied(bytes) => {
                waiting == 0 && self.has_room_for(bytes.div_ceil(self.fabric.outgoing.slab_bytes()).max(1))
            }
        }
    }

    /// Where a run of a part is, and its key, if the peer has told.
    pub(crate) fn remote_of(&mut self, target: &WindowRef, run: Run) -> Option<(u64, u32)> {
        let part = match &self.recent {
            Some((recent, part)) if recent == target => *part,
            _ => {
                let part = self.known.find(target)?;
                self.recent = Some((*target, part));
                part
            }
        };
        Some((remote_address(&part, run)?, part.key))
    }

    fn part(&mut self, target: &WindowRef, run: Run) -> Result<(u64, u32), LinkError> {
        self.remote_of(target, run)
            .ok_or_else(|| self.fail("a transfer leads outside of what the peer lets others reach"))
    }

    /// Posts one request for a whole transfer, or the last piece of one if `ends` says so.
    pub(crate) fn post_direct(
        &mut self,
        what: Move,
        data: Data<'_>,
        kept: Kept,
        bytes: usize,
        ends: Option<u64>,
    ) -> Result<(), LinkError> {
        let id = self.next_request();
        let returns_bytes = what.act.returns_bytes();
        // A read may be done late, and what changes memory must not come before it. Reads, and updates, among themselves may.
        let fenced = match what.act {
            Act::Write => self.answers_due.any(),
            Act::Atomic(_) => self.answers_due.reads > 0,
            Act::Read => false,
        };
        self.note_way(what);
        self.count_direct(what.act, data);
        let posting = what.posting();
        let posted = match data {
            Data::Spans(spans) if self.batch.is_open => self.add_to_batch(id, posting, spans, fenced),
            // First what is in the batch, whose end is told: who comes behind it is counted from there.
            _ => self.ring().and_then(|()| {
                let signaled = self.is_told(returns_bytes, bytes);
                self.fabric.counters.doorbells.add(1);
                let post = Post { id, posting, data, signaled, fenced };
                // SAFETY: what the spans name is in `kept`, which stays until the completion was taken up, or the queue is gone.
                // The memory of loans is theirs to be written.
                #[allow(unsafe_code)]
                unsafe {
                    self.queue.post(&[post])
                }
            }),
        };
        self.note_request((kept, what.act), bytes, ends);
        posted.map_err(|_| self.fail("the device takes no more requests"))
    }

    /// Whether the end of the next request is told, which is posted now. Of many short ones in a row the ends of most are told by a
    /// later one's.
    fn is_told(&mut self, returns_bytes: bool, bytes: usize) -> bool {
        let is_told =
            returns_bytes || bytes > SHORT_BYTES || self.requests.len() < FEW || self.untold + 1 >= TELL_EVERY;
        self.untold = if is_told { 0 } else { self.untold + 1 };
        is_told
    }

    fn count_direct(&self, act: Act, data: Data<'_>) {
        let counters = &self.fabric.counters;
        match act {
            Act::Write => counters.writes.add(1),
            Act::Read => counters.reads.add(1),
            Act::Atomic(_) => counters.atomics.add(1),
        }
        if matches!(data, Data::Inline(_)) {
            counters.inline.add(1);
        }
    }

    /// Where only requests are left whose end nobody tells, one without bytes behind them does.
    pub(crate) fn tell_the_rest(&mut self) -> Result<(), LinkError> {
        if self.is_iwarp() {
            return self.read_behind();
        }
        if self.untold == 0 || self.untold < self.requests.len() {
            return Ok(());
        }
        // So that the end of this one is told.
        self.untold = TELL_EVERY;
        let nothing = Move { remote: 0, remote_key: 0, act: Act::Write };
        self.post_direct(nothing, Data::Spans(&[]), Kept::Nothing, 0, None)
    }

    fn note_request(&mut self, (kept, act): (Kept, Act), bytes: usize, ends: Option<u64>) {
        let behind = self.packets.pass(bytes as u64);
        self.answers_due.add(act);
        self.requests.push_back(Request { kept, behind, act: Some(act), ends });
    }

    /// A put whose bytes are the caller's only until the call returns.
    fn put_copied(
        &mut self,
        ticket: u64,
        (remote, remote_key): (u64, u32),
        source: Region<'_>,
    ) -> Result<(), LinkError> {
        if source.len() <= self.queue.inline_bytes() {
            let what = Move { remote, remote_key, act: Act::Write };
            return self.post_direct(what, Data::Inline(&[source]), Kept::Nothing, source.len(), Some(ticket));
        }
        let mut at = 0;
        while at < source.len() {
            let mut spans = Vec::with_capacity(CHAIN_MAX);
            let mut slabs = Vec::with_capacity(CHAIN_MAX);
            let first_at = at;
            while at < source.len() && slabs.len() < CHAIN_MAX {
                let Some(mut slab) = self.take_slab() else { break };
                let bytes = slab.slab_bytes().min(source.len() - at);
                slab.region_mut().slice(0, bytes).copy_from(source.slice(at, bytes));
                self.fabric.counters.copied_bytes.add(bytes);
                spans.push([slab.span(bytes)]);
                slabs.push((slab, bytes));
                at += bytes;
            }
            if slabs.is_empty() {
                // Others have them all. The rest goes when our own comes back, before anything else that is direct.
                let mut kept = vec![0; source.len() - at];
                source.slice(at, kept.len()).copy_to_slice(&mut kept);
                let (bytes, local) = (kept.len(), LocalMemory::Kept(kept.into()));
                let remote = remote + at as u64;
                let rest = Transfer { ticket, local, remote, remote_key, bytes, posted: 0, act: Act::Write };
                self.direct.backlog.push_back(rest);
                return Ok(());
            }
            let posted = self.post_chain((remote + first_at as u64, remote_key), &spans);
            let count = slabs.len();
            for (index, (slab, bytes)) in slabs.into_iter().enumerate() {
                let ends = (at == source.len() && index + 1 == count).then_some(ticket);
                self.note_request((Kept::Slab { slab }, Act::Write), bytes, ends);
            }
            // After that: of those that were to be posted some may be on their way, with what is in their buffers.
            posted?;
        }
        Ok(())
    }

    /// Writes of consecutive memory, with one ring of the doorbell.
    fn post_chain(&mut self, (mut remote, remote_key): (u64, u32), spans: &[[Span; 1]]) -> Result<(), LinkError> {
        let (first, first_remote) = (self.next_request(), remote);
        let fenced = self.answers_due.any();
        self.note_way(Move { remote: first_remote, remote_key, act: Act::Write });
        if self.batch.is_open {
            self.fabric.counters.writes.add(spans.len());
            for (id, span) in (first..).zip(spans) {
                let posting = Posting::Write { remote, remote_key };
                remote += u64::from(span[0].bytes);
                let kept = self.add_to_batch(id, posting, span, fenced);
                kept.map_err(|_| self.fail("the device takes no more requests"))?;
            }
            return Ok(());
        }
        let posts: Vec<Post<'_>> = (first..)
            .zip(spans)
            .map(|(id, span)| {
                let posting = Posting::Write { remote, remote_key };
                remote += u64::from(span[0].bytes);
                Post { id, posting, data: Data::Spans(span), signaled: id + 1 == first + spans.len() as u64, fenced }
            })
            .collect();
        let counters = &self.fabric.counters;
        counters.writes.add(posts.len());
        counters.doorbells.add(1);
        self.untold = 0;
        // SAFETY: the caller keeps the slabs in `requests`, also where this fails, until their completion, or a later one's, was
        // taken up, or the queue is gone.
        #[allow(unsafe_code)]
        let posted = unsafe { self.queue.post(&posts) };
        posted.map_err(|_| self.fail("the device takes no more requests"))
    }

    /// Posts what waits, as far as there is room.
    pub(crate) fn advance_direct(&mut self) -> Result<(), LinkError> {
        while self.may_send && self.has_room() {
            let Some(transfer) = self.direct.backlog.front() else { break };
            let pieces = self.requests.iter().filter(|request| matches!(request.kept, Kept::Memory { .. })).count();
            if pieces >= PIECES_UNDER_WAY_MAX {
                break;
            }
            let local = transfer.local.clone();
            let (at, rest) = (transfer.posted, transfer.bytes - transfer.posted);
            let ticket = transfer.ticket;
            let what = Move { remote: transfer.remote + at as u64, remote_key: transfer.remote_key, act: transfer.act };
            let total = transfer.bytes;
            let posted = match self.registered(&local, at, total, what.act.returns_bytes()) {
                Some(Registered { registration, loan, spans, bytes }) => {
                    let ends = (bytes == rest).then_some(ticket);
                    let kept = Kept::Memory { _registration: registration, _loan: loan };
                    self.fabric.counters.zero_copy_bytes.add(bytes);
                    self.post_direct(what, Data::Spans(&spans), kept, bytes, ends)?;
                    bytes
                }
                None => match self.post_through_slab(what, &local, at, rest, ticket)? {
                    0 => break,
                    bytes => bytes,
                },
            };
            let transfer = self.direct.backlog.front_mut().expect("it was there");
            transfer.posted += posted;
            if transfer.posted == transfer.bytes {
                self.direct.backlog.pop_front();
            }
        }
        Ok(())
    }

    /// What the next request of a transfer names of lent memory, where registering that is worth it and the system lets us.
    fn registered(&mut self, local: &LocalMemory, at: usize, total: usize, is_read: bool) -> Option<Registered> {
        let LocalMemory::Lent(loan) = local else { return None };
        if !self.fabric.named.is_possible() {
            return None;
        }
        let piece_bytes = self.fabric.costs.piece_bytes(total);
        let gathers = self.queue.gathers();
        // A device of iWARP reads into one place only.
        let pieces_max = if is_read { gathers.min(self.fabric.limits.read_gathers as usize).max(1) } else { gathers };
        // A request ends where its stretch of the transfer does, of which all is registered at once.
        let first = at - at % piece_bytes;
        let end = total.min(first + piece_bytes);
        let mut pieces = some_of(&**loan, at, end - at, pieces_max);
        let mut together = None;
        if pieces.len() > 1
            && let Some(needed) = around(&pieces)
        {
            let stretch = some_of(&**loan, first, end - first, usize::MAX);
            together = around(&stretch).and_then(|whole| self.registration(needed, whole, total));
        }
        let registration = match together {
            Some(registration) => registration,
            None => {
                pieces.truncate(1);
                let piece = pieces[0];
                self.registration(piece, piece, piece.1)?
            }
        };
        let local_key = registration.handle().local_key();
        let span = |&(start, bytes): &Piece| Span { start: start as u64, bytes: bytes as u32, local_key };
        let spans = pieces.iter().map(span).collect();
        let bytes = pieces.iter().map(|(_, bytes)| bytes).sum();
        Some(Registered { registration, loan: Arc::clone(loan), spans, bytes })
    }

    /// A registration that covers `needed`, made of `whole` if there is none. `bytes`: how much is moved by it.
    fn registration(&mut self, needed: Piece, whole: Piece, bytes: usize) -> Option<Pinned<Device>> {
        let cache = &self.fabric.cache;
        let is_one = needed == whole;
        if bytes < self.fabric.register_bytes_min || !is_one {
            // What is registered already costs nothing.
            let known = if bytes >= KNOWN_BYTES_MIN { cache.lookup(needed.0, needed.1) } else { None };
            if known.is_some() || bytes < self.fabric.register_bytes_min {
                return known;
            }
        }
        match cache.acquire(whole.0, whole.1) {
            Ok(pinned) => Some(pinned),
            // Others are under way, and give theirs back.
            Err(RegisterError::Full { .. }) => None,
            // What lies between pieces need not exist.
            Err(RegisterError::BadRange { .. }) if !is_one => None,
            Err(error) => {
                self.shared.say_once(&format!("memory is copied through buffers: {error}"));
                None
            }
        }
    }

    /// Copies one buffer's worth. 0: no buffer is free now.
    fn post_through_slab(
        &mut self,
        what: Move,
        local: &LocalMemory,
        at: usize,
        rest: usize,
        ticket: u64,
    ) -> Result<usize, LinkError> {
        let Some(slab) = self.take_slab() else { return Ok(0) };
        let bytes = slab.slab_bytes().min(rest);
        let ends = (bytes == rest).then_some(ticket);
        let span = [slab.span(bytes)];
        let kept = match local {
            LocalMemory::Word => Kept::Word { slab },
            LocalMemory::Lent(loan) if what.act.returns_bytes() => {
                Kept::Landing { slab, loan: Arc::clone(loan), at, bytes }
            }
            LocalMemory::Lent(loan) => {
                let mut slab = slab;
                let room = slab.region_mut();
                loan.each(at, bytes, |piece, done| room.slice(done, piece.len()).copy_from(piece.as_region()));
                self.copied(slab, bytes)
            }
            LocalMemory::Kept(kept) => {
                let mut slab = slab;
                slab.region_mut().slice(0, bytes).copy_from(Region::from_slice(&kept[at..at + bytes]));
                self.copied(slab, bytes)
            }
        };
        self.post_direct(what, Data::Spans(&span), kept, bytes, ends)?;
        Ok(bytes)
    }

    fn copied(&self, slab: Slab, bytes: usize) -> Kept {
        self.fabric.counters.copied_bytes.add(bytes);
        Kept::Slab { slab }
    }

    fn begin_lent(
        &mut self,
        ticket: u64,
        (target, run): (&WindowRef, Run),
        loan: Box<dyn Loan>,
        act: Act,
    ) -> Result<(), LinkError> {
        let (remote, remote_key) = self.part(target, run)?;
        let (local, bytes) = (LocalMemory::Lent(Arc::from(loan)), run.bytes as usize);
        self.direct.backlog.push_back(Transfer { ticket, local, remote, remote_key, bytes, posted: 0, act });
        self.advance_direct()
    }

    fn reach(&mut self, target: &WindowRef, wish: Wish) -> Reach {
        let answers = matches!(wish, Wish::Get | Wish::Rmw) || self.is_iwarp();
        if (answers && !self.can_read) || (wish == Wish::Rmw && !self.fabric.limits.atomics) {
            return Reach::No;
        }
        // Who puts and never waits takes up no ends: they are taken up when there is no room left.
        let fits = self.takes(wish) || (self.poll().is_ok() && self.takes(wish));
        if !self.may_send || !fits {
            return Reach::Full;
        }
        if matches!(&self.recent, Some((recent, _)) if recent == target) {
            return Reach::Yes;
        }
        let (reach, is_new) = self.known.reach(target);
        if is_new && self.ask(*target, if wish == Wish::Rmw { Purpose::Rmw } else { Purpose::Transfer }).is_err() {
            // Who next uses the link finds its error.
            return Reach::Full;
        }
        reach
    }

    fn put(&mut self, ticket: u64, target: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError> {
        self.check()?;
        match source {
            DirectSource::Copied(region) => {
                let remote = self.part(target, run)?;
                self.put_copied(ticket, remote, region)
            }
            DirectSource::Lent(loan) => self.begin_lent(ticket, (target, run), loan, Act::Write),
        }
    }

    fn rmw(&mut self, ticket: u64, target: &WindowRef, offset: u64, rmw: DeviceRmw) -> Result<(), LinkError> {
        self.check()?;
        let (remote, remote_key) = self.part(target, Run { offset, bytes: DEVICE_WORD_BYTES })?;
        let (local, bytes) = (LocalMemory::Word, DEVICE_WORD_BYTES as usize);
        let act = Act::Atomic(rmw);
        self.direct.backlog.push_back(Transfer { ticket, local, remote, remote_key, bytes, posted: 0, act });
        self.advance_direct()
    }
}

impl VerbsLink {
    /// Has the stream begin something that it was asked about before.
    #[inline]
    fn begin_with(&mut self, begin: impl FnOnce(&mut Stream) -> Result<(), LinkError>) -> Result<(), LinkError> {
        let begun = match self.ended {
            Some(error) => Err(error),
            None => begin(self.stream_mut().expect("nothing can be reached without a queue")),
        };
        self.end_with(begun)
    }
}

impl DirectAccess for VerbsLink {
    fn reach(&mut self, target: &WindowRef, wish: Wish) -> Reach {
        if self.ended.is_some() {
            return Reach::No;
        }
        let without = if self.is_agreeing() { Reach::Full } else { Reach::No };
        self.stream_mut().map_or(without, |stream| stream.reach(target, wish))
    }

    fn put(&mut self, ticket: u64, target: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError> {
        self.begin_with(|stream| stream.put(ticket, target, run, source))
    }

    fn get(&mut self, ticket: u64, target: &WindowRef, run: Run, into: Box<dyn Loan>) -> Result<(), LinkError> {
        self.begin_with(|stream| {
            stream.check().and_then(|()| stream.begin_lent(ticket, (target, run), into, Act::Read))
        })
    }

    fn rmw(&mut self, ticket: u64, target: &WindowRef, offset: u64, rmw: DeviceRmw) -> Result<(), LinkError> {
        self.begin_with(|stream| stream.rmw(ticket, target, offset, rmw))
    }

    fn get_polling(&mut self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> InlinePoll {
        if self.ended.is_some() {
            return InlinePoll::NotBegun;
        }
        let Some(stream) = self.stream_mut() else { return InlinePoll::NotBegun };
        let came = stream.get_polling(target, run, into, looks);
        if came == InlinePoll::Done {
            self.note_heard();
        }
        came
    }

    fn lend_polled(&mut self, ticket: u64, into: Box<dyn Loan>) {
        if let Some(stream) = self.stream_mut() {
            stream.lend_polled(ticket, into);
        }
    }

    fn look_for_ends(&mut self, looks: u32) -> bool {
        self.ended.is_none() && self.stream_mut().is_some_and(|stream| stream.look_for_ends(looks))
    }

    fn begin_batch(&mut self) {
        if let Some(stream) = self.stream_mut() {
            stream.batch.is_open = true;
        }
    }

    fn post_batch(&mut self) -> Result<(), LinkError> {
        let Some(stream) = self.stream_mut() else { return Ok(()) };
        stream.batch.is_open = false;
        let posted = stream.ring().map_err(|_| stream.fail("the device takes no more requests"));
        self.end_with(posted)
    }

    fn is_all_posted(&self) -> bool {
        self.stream().is_some_and(|stream| stream.direct.backlog.is_empty())
    }

    fn take_outcome(&mut self) -> Option<(u64, DirectOutcome)> {
        self.outcomes.pop_front().or_else(|| {
            let outcome = self.stream_mut()?.direct.outcomes.pop_front()?;
            self.note_heard();
            Some(outcome)
        })
    }
}
