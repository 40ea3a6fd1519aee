//! A byte stream over a connected queue pair: bytes are copied into preregistered buffers, sent as messages, and copied
//! out of the buffers that they arrive in. While one message is on its way the next is being copied.
//!
//! Each message takes a buffer of the peer, so who sends has as many credits as the peer has buffers for it. Every message
//! carries the number of buffers that were given back since the last one; where nothing else is to be said, a message
//! without bytes does. Over iWARP, where messages take no number beside them, it stands behind their
//! bytes. The last credit is kept for such a message: two sides that both have much to say cannot lock each other out.

mod ending;
mod iwarp;
mod ringing;
mod unresolved;
mod walk;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{DirectOutcome, LinkError};
use longarm_proto::WindowRef;
use longarm_proto::rdma::{Breach, Buffers, Message, NOTE_BYTES, Note, Purpose, Record, RemotePart};
use rustix::io::Errno;

use crate::answers::AnswersDue;
use crate::batch::Batch;
use crate::fabric::{Fabric, Promise};
use crate::keys::{Answer, Answers, Known};
use crate::manager::Joined;
use crate::packets::Packets;
use crate::peers::Peers;
use crate::requests::{Act, Kept, Request, value_of};
use crate::sys::{CHAIN_MAX, Connection, Data, Failure, Finished, GATHERS_MAX, Post, Posting, Queue, Slab};

use crate::transfers::Direct;
use walk::Walk;

/// A buffer that has arrived, and how much of it was read.
struct Arrived {
    slab: Slab,
    bytes: usize,
    at: usize,
}

/// A queue, and the buffers that its peer may fill.
pub(crate) type Promised = (Queue, Promise);

/// One side's end.
pub(crate) struct Stream {
    /// The connection of the manager, over iWARP. It knows the queue, and ends before it.
    joined: Option<Joined>,
    pub(crate) queue: Queue,
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) shared: Arc<Peers>,
    pub(crate) known: Arc<Known>,
    /// What the caller calls the connection.
    number: u64,
    peer_slab_bytes: usize,
    /// How many messages each side may send.
    buffers: Buffers,
    /// The peer has broken the rules.
    breach: Option<Breach>,
    /// That was said, by who knows its name.
    is_breach_said: bool,
    /// Whether the peer's queue answers already.
    pub(crate) may_send: bool,
    pub(crate) requests: VecDeque<Request>,
    /// The number of the first of `requests`.
    first_request: u64,
    pub(crate) answers_due: AnswersDue,
    /// The peer's device answers reads, and ours asks for them.
    pub(crate) can_read: bool,
    /// Requests since the last one whose end is told.
    pub(crate) untold: usize,
    pub(crate) packets: Packets,
    /// Messages of the peer that we have, over iWARP.
    taken: Packets,
    /// What the device has not been told of yet.
    pub(crate) batch: Batch,
    /// The part of a window that was used last: who uses one uses it again.
    pub(crate) recent: Option<(WindowRef, RemotePart)>,
    /// A read that is polled inline that has ended, by the number of its request.
    pub(crate) polled: Option<(u64, Slab)>,
    /// Direct transfers, and notes to the peer, that wait for room.
    pub(crate) direct: Direct,
    notes: VecDeque<Note>,
    /// Answers to the peer's questions that took longer.
    late: Option<Arc<Answers>>,
    /// The request that the peer's device refused.
    refused: Option<u64>,
    /// Nothing is posted any more.
    pub(crate) ended: bool,
    /// The queue has ended, and what it has done is remembered.
    is_finished: bool,
    /// Since the connection manager was last asked.
    looks: u8,
    /// With the buffer that is always ours, unless it is under way.
    pub(crate) promise: Promise,
    arrived: VecDeque<Arrived>,
    pub(crate) finished: Vec<Finished>,
    failed: Option<LinkError>,
}

/// Buffers that a peer has for us.
fn credits_of(peer: &Record) -> u16 {
    #[cfg(test)]
    if crate::sys::mock::overdraws() {
        return u16::MAX;
    }
    peer.credits
}

/// A message that is to be posted.
struct Outgoing {
    slab: Option<Slab>,
    bytes: usize,
    is_note: bool,
}

impl Stream {
    /// Connects a queue to the peer that has sent `theirs` in answer to `ours`.
    ///
    /// # Errors
    /// The system's, when the device finds no way to the peer.
    pub(crate) fn connect(
        (shared, known): (&Arc<Peers>, Arc<Known>),
        fabric: &Arc<Fabric>,
        (queue, promise): Promised,
        (ours, theirs): (&Record, &Record),
    ) -> Result<Stream, Errno> {
        let mtu_code = ours.mtu_code.min(theirs.mtu_code);
        let reads_out = ours.reads_in.min(theirs.reads_in);
        queue.connect(&Connection {
            port: fabric.port.number,
            gid_index: fabric.gid_index,
            is_ethernet: fabric.port.is_ethernet,
            mtu_code: mtu_code.into(),
            peer_queue: theirs.queue,
            peer_lid: theirs.lid,
            peer_gid: theirs.gid,
            first_sent: ours.first_packet,
            first_received: theirs.first_packet,
            reads_out,
            reads_in: ours.reads_in,
            timeout_code: fabric.options.timeout_code,
        })?;
        let packets = Packets::new(ours.first_packet, mtu_code);
        let mut stream = Stream::over((shared, known), fabric, (queue, promise), (ours, theirs));
        stream.packets = packets;
        Ok(stream)
    }

    fn over(
        (shared, known): (&Arc<Peers>, Arc<Known>),
        fabric: &Arc<Fabric>,
        (queue, promise): Promised,
        (ours, theirs): (&Record, &Record),
    ) -> Stream {
        Stream {
            joined: None,
            queue,
            fabric: Arc::clone(fabric),
            shared: Arc::clone(shared),
            known,
            number: ours.connection | theirs.connection,
            peer_slab_bytes: theirs.slab_bytes as usize,
            buffers: Buffers::new(ours.credits, credits_of(theirs)),
            breach: None,
            is_breach_said: false,
            may_send: false,
            requests: VecDeque::new(),
            first_request: 0,
            answers_due: AnswersDue::default(),
            can_read: ours.reads_in.min(theirs.reads_in) > 0,
            untold: 0,
            batch: Batch::default(),
            recent: None,
            polled: None,
            direct: Direct::default(),
            notes: VecDeque::new(),
            late: None,
            refused: None,
            ended: false,
            is_finished: false,
            looks: 0,
            promise,
            packets: Packets::of_messages(ours.first_packet),
            taken: Packets::of_messages(theirs.first_packet),
            arrived: VecDeque::new(),
            finished: Vec::new(),
            failed: None,
        }
    }

    /// What the caller calls the connection.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.completions.descriptor()
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        self.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn fail(&mut self, why: &'static str) -> LinkError {
        *self.failed.get_or_insert(LinkError::Device(why))
    }

    /// Takes up what has ended and arrived. Returns whether something had.
    pub(crate) fn poll(&mut self) -> Result<bool, LinkError> {
        if self.ring().is_err() {
            return Err(self.fail("the device takes no more requests"));
        }
        let mut finished = std::mem::take(&mut self.finished);
        let polled = self.queue.completions.poll(&mut finished);
        let any = !finished.is_empty();
        self.fabric.counters.completions.add(finished.len());
        let received = finished.iter().filter(|entry| entry.is_receive).count();
        for entry in finished.drain(..) {
            self.take_up(&entry);
        }
        self.finished = finished;
        if self.breach.is_some() && received >= self.fabric.receives_each() {
            self.fabric.replace_lost();
        }
        if polled.is_err() {
            return Err(self.fail("the device gives no completions"));
        }
        for (part, answer) in self.late.as_ref().map(|late| late.take()).unwrap_or_default() {
            self.answer(part, answer);
        }
        if self.failed.is_none() && !self.ended {
            self.tell_the_rest()?;
            self.advance_direct()?;
            self.send_notes()?;
        }
        Ok(any)
    }

    pub(crate) fn take_up(&mut self, entry: &Finished) {
        match entry.result {
            Ok(()) if entry.is_receive => {
                let slab = self.fabric.filled(entry.id);
                self.take_message(slab, entry);
            }
            Ok(()) => self.forget_requests(entry.id),
            Err(failure) => {
                if entry.is_receive {
                    let slab = self.fabric.filled(entry.id);
                    self.fabric.give_back(slab);
                    self.fail(failure.words());
                } else {
                    self.note_failure(entry.id, failure);
                }
            }
        }
    }

    fn note_failure(&mut self, id: u64, failure: Failure) {
        if failure.is_flushed() && self.failed.is_some() {
            return;
        }
        if failure.is_refused() {
            self.refused.get_or_insert(id);
        }
        let ahead = id.checked_sub(self.first_request).and_then(|ahead| usize::try_from(ahead).ok());
        let request = ahead.and_then(|ahead| self.requests.get(ahead));
        if request.is_some_and(|request| matches!(request.kept, Kept::Memory { .. }))
            && let Some(sentence) = self.fabric.named.note_failure(failure)
        {
            self.shared.say_once(sentence);
        }
        self.fail(failure.words());
    }

    /// A request has ended, and with it all before it.
    fn forget_requests(&mut self, last: u64) {
        while self.first_request <= last {
            let Some(request) = self.requests.pop_front() else { return };
            self.first_request += 1;
            let returns_bytes = request.act.is_some_and(Act::returns_bytes);
            request.act.into_iter().for_each(|act| self.answers_due.remove(act));
            let outcome = value_of(&request.kept).map_or(DirectOutcome::Done, DirectOutcome::Value);
            if let Kept::Landing { slab, loan, at, bytes } = &request.kept {
                let came = slab.region(*bytes);
                loan.each(*at, *bytes, |piece, done| piece.copy_from(came.slice(done, piece.len())));
                self.fabric.counters.copied_bytes.add(*bytes);
            }
            // The memory first, then the word that it is free.
            let free = match request.kept {
                Kept::InlinePoll { slab, .. } => {
                    self.polled.replace((self.first_request - 1, slab)).map(|(_, slab)| slab)
                }
                kept => kept.into_slab(),
            };
            if let Some(slab) = free {
                self.keep_slab(slab);
            }
            if returns_bytes {
                self.direct.prove();
            }
            match request.ends {
                Some(ticket) if self.is_iwarp() && !returns_bytes => {
                    self.direct.unproven.push_back((ticket, request.behind));
                }
                Some(ticket) => self.direct.outcomes.push_back((ticket, outcome)),
                None => {}
            }
        }
    }

    /// A message of the peer has come.
    fn take_message(&mut self, slab: Slab, entry: &Finished) {
        if self.breach.is_some() {
            return self.fabric.give_back(slab);
        }
        let read = self.read_immediate(&slab, entry).ok_or(Breach::Garbled).and_then(|(bytes, beside)| {
            let note = |said: &mut [u8; NOTE_BYTES]| slab.region(bytes).copy_to_slice(said);
            Ok((bytes, self.buffers.receive(beside, bytes, note)?))
        });
        match read {
            Ok((bytes, Message::Bytes)) => self.arrived.push_back(Arrived { slab, bytes, at: 0 }),
            Ok((_, Message::Empty)) => self.give_back(slab),
            Ok((_, Message::Note(note))) => {
                self.take_note(note);
                self.give_back(slab);
            }
            Err(breach) => {
                self.fabric.give_back(slab);
                self.end_for(breach);
            }
        }
    }

    /// From now on the device takes nothing more of this peer, whose buffers are others' too.
    fn end_for(&mut self, breach: Breach) {
        self.breach = Some(breach);
        self.fail(breach.words());
        let _ = self.queue.stop();
    }

    /// What the peer did that nobody may, if it was not said yet.
    pub(crate) fn take_breach(&mut self) -> Option<Breach> {
        self.breach.filter(|_| !std::mem::replace(&mut self.is_breach_said, true))
    }

    /// What a peer says beside the stream.
    fn take_note(&mut self, note: Note) {
        match note {
            Note::Ask(part, purpose) => {
                if let Some(answer) = self.shared.published.ask(&self.fabric, (&part, purpose), &mut self.late) {
                    self.answer(part, answer);
                }
            }
            Note::Answer(part, answer) => self.known.answered(part, answer),
        }
    }

    fn answer(&mut self, part: WindowRef, answer: Answer) {
        let answer = answer.unwrap_or_else(|errno| {
            self.shared.say_once(&format!(
                "a window cannot be registered with the device ({errno}), so its traffic is copied through buffers, \
                 and words that devices update cannot be updated; \
                 look at `ulimit -l` and LONGARM_VERBS_PINNED_BYTES_MAX, and whether windows have half of this \
                 machine's memory already"
            ));
            None
        });
        self.notes.push_back(Note::Answer(part, answer));
    }

    /// What becomes readable when there are answers that could not be given at once; `None` if there were no such questions.
    pub(crate) fn late_answers(&self) -> Option<BorrowedFd<'_>> {
        self.late.as_ref().map(|late| late.descriptor())
    }

    /// Asks about a part of a window, for this.
    pub(crate) fn ask(&mut self, part: WindowRef, purpose: Purpose) -> Result<(), LinkError> {
        self.notes.push_back(Note::Ask(part, purpose));
        self.send_notes()
    }

    fn send_notes(&mut self) -> Result<(), LinkError> {
        while self.may_send && self.buffers.free() >= 2 && self.has_room() {
            let Some(note) = self.notes.front() else { break };
            let bytes = note.encode();
            if self.queue.inline_bytes() >= NOTE_BYTES + self.immediate_bytes() {
                self.notes.pop_front();
                self.post(Outgoing { slab: None, bytes: NOTE_BYTES, is_note: true }, &[Region::from_slice(&bytes)])?;
                continue;
            }
            let Some(mut slab) = self.take_slab() else { break };
            self.notes.pop_front();
            slab.region_mut().slice(0, NOTE_BYTES).copy_from_slice(&bytes);
            self.post(Outgoing { slab: Some(slab), bytes: NOTE_BYTES, is_note: true }, &[])?;
        }
        Ok(())
    }

    fn give_back(&mut self, slab: Slab) {
        self.fabric.give_back(slab);
        self.buffers.give_back();
    }

    pub(crate) fn next_request(&self) -> u64 {
        self.first_request + self.requests.len() as u64
    }

    pub(crate) fn has_room(&self) -> bool {
        self.has_room_for(CHAIN_MAX)
    }

    pub(crate) fn has_room_for(&self, requests: usize) -> bool {
        self.requests.len() + requests <= self.queue.depth()
    }

    /// Whether a message would be taken now, if a buffer is free.
    pub(crate) fn can_send(&self) -> bool {
        // What was begun before goes first.
        let waits = !self.direct.backlog.is_empty() || !self.notes.is_empty();
        self.failed.is_none() && self.may_send && self.buffers.free() >= 2 && self.has_room() && !waits
    }

    /// Sends what there is room for.
    pub(crate) fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.check()?;
        self.poll()?;
        self.check()?;
        let total: usize = regions.iter().map(|region| region.len()).sum();
        if total == 0 || !self.can_send() {
            return Ok(0);
        }
        let beside = self.immediate_bytes();
        let gathers = self.queue.gathers() - usize::from(beside > 0);
        if total + beside <= self.queue.inline_bytes().min(self.peer_slab_bytes) && regions.len() <= gathers {
            let message = Outgoing { slab: None, bytes: total, is_note: false };
            self.post(message, regions)?;
            return Ok(total);
        }
        let buffer_bytes = self.fabric.outgoing.slab_bytes().min(self.peer_slab_bytes) - beside;
        let piece_bytes = self.fabric.costs.copied_piece_bytes(total, buffer_bytes);
        let mut sent = 0;
        let mut source = Walk::new(regions);
        while sent < total && self.buffers.free() >= 2 && self.has_room() {
            // Each goes out while the next is copied.
            let Some(mut slab) = self.take_slab() else { break };
            let bytes = piece_bytes.min(total - sent).min(buffer_bytes);
            source.copy_to(slab.region_mut().slice(0, bytes));
            self.fabric.counters.copied_bytes.add(bytes);
            let message = Outgoing { slab: Some(slab), bytes, is_note: false };
            match self.post(message, &[]) {
                Ok(()) => sent += bytes,
                Err(error) if sent == 0 => return Err(error),
                // The peer takes up what went before, and counts it. The next call says what happened.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// A buffer to send from. `None`: ours is under way, and comes back with a completion of this queue.
    pub(crate) fn take_slab(&mut self) -> Option<Slab> {
        self.promise.own.take().or_else(|| self.fabric.outgoing.take().ok().flatten())
    }

    /// Posts a message, whose end is told.
    fn post(&mut self, mut message: Outgoing, inline: &[Region<'_>]) -> Result<(), LinkError> {
        self.ring().map_err(|_| self.fail("the device takes no more requests"))?;
        let told = self.buffers.send(message.is_note);
        let immediate = told.to_le_bytes();
        let beside = self.immediate_bytes();
        if let Some(slab) = &mut message.slab {
            slab.region_mut().slice(message.bytes, beside).copy_from_slice(&immediate[..beside]);
        }
        let span = message.slab.as_ref().map(|slab| [slab.span(message.bytes + beside)]);
        let mut pieces = [Region::from_slice(&immediate[..beside]); GATHERS_MAX];
        // What is left of them stays, and is the last.
        let pieces = &mut pieces[..inline.len() + usize::from(beside > 0)];
        pieces[..inline.len()].copy_from_slice(inline);
        let post = Post {
            id: self.next_request(),
            posting: Posting::Send { immediate: (beside == 0).then_some(told) },
            data: span.as_ref().map_or(Data::Inline(pieces), |span| Data::Spans(span)),
            signaled: true,
            fenced: self.answers_due.any(),
        };
        // SAFETY: the slab stays in `requests` until its completion, or a later one's, was taken up; and when the queue is
        // gone, nobody reads it.
        #[allow(unsafe_code)]
        let posted = unsafe { self.queue.post(&[post]) };
        self.untold = 0;
        let counters = &self.fabric.counters;
        counters.messages.add(1);
        counters.doorbells.add(1);
        counters.inline.add(usize::from(message.slab.is_none()));
        let behind = self.packets.pass_message(message.bytes as u64);
        let kept = message.slab.map_or(Kept::Nothing, |slab| Kept::Slab { slab });
        self.requests.push_back(Request { kept, behind, act: None, ends: None });
        posted.map_err(|_| self.fail("the device takes no more requests"))
    }

    /// Hands out what has arrived.
    pub(crate) fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if self.arrived.is_empty() {
            self.poll()?;
            if self.arrived.is_empty() {
                self.check()?;
            }
        }
        let mut received = 0;
        for region in regions {
            let mut at = 0;
            while at < region.len() {
                let Some(front) = self.arrived.front_mut() else { break };
                let bytes = (region.len() - at).min(front.bytes - front.at);
                region.slice(at, bytes).copy_from(front.slab.region(front.bytes).slice(front.at, bytes));
                front.at += bytes;
                at += bytes;
                if front.at == front.bytes {
                    let whole = self.arrived.pop_front().expect("it was there");
                    self.give_back(whole.slab);
                }
            }
            received += at;
        }
        self.fabric.counters.copied_bytes.add(received);
        let told = self.tell_owed();
        // What was handed out is not taken back.
        if received == 0 { told.map(|()| 0) } else { Ok(received) }
    }

    /// Tells the peer of buffers that it may fill again, when they are many and nothing else does.
    fn tell_owed(&mut self) -> Result<(), LinkError> {
        let many = u32::from(self.fabric.options.credits_each()) / 2;
        if self.buffers.untold() >= many
            && self.may_send
            && self.buffers.free() >= 1
            && self.has_room()
            && self.failed.is_none()
        {
            let message = Outgoing { slab: None, bytes: 0, is_note: false };
            self.post(message, &[])?;
        }
        Ok(())
    }

    /// Whether bytes wait to be received.
    pub(crate) fn holds_bytes(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Sees to it that the descriptor announces what comes. Returns whether something is there already.
    pub(crate) fn arm(&mut self) -> Result<bool, LinkError> {
        if self.queue.completions.arm().is_err() {
            return Err(self.fail("the device announces nothing"));
        }
        Ok(self.poll()? || self.holds_bytes() || self.failed.is_some() || !self.direct.outcomes.is_empty())
    }
}
