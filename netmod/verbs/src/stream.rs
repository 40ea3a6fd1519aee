//! A byte stream over a connected queue pair: bytes are copied into preregistered buffers, sent as messages, and copied
//! out of the buffers that they arrive in. While one message is on its way the next is being copied.
//!
//! Each message takes a buffer of the peer, so who sends has as many credits as the peer has buffers for it. Every message
//! carries the number of buffers that were given back since the last one; where nothing else is to be said, a message
//! without bytes does. The last credit is kept for such a message: two sides that both have much to say cannot lock each other out.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::LinkError;
use rustix::io::Errno;

use crate::fabric::{DEPTH, Fabric};
use crate::packets::Packets;
use crate::record::Record;
use crate::sys::{CHAIN_MAX, Connection, Data, Failure, Finished, GATHERS_MAX, Post, Posting, Queue, Slab, Work};

/// A buffer that has arrived, and how much of it was read.
struct Arrived {
    slab: Slab,
    bytes: usize,
    at: usize,
}

/// A request under way.
struct Request {
    /// What is kept until it has ended.
    _slab: Option<Slab>,
}

/// One side's end.
pub(crate) struct Stream {
    queue: Queue,
    fabric: Arc<Fabric>,
    peer_queue: u32,
    peer_slab_bytes: usize,
    /// Messages that we may send before the peer gives a buffer back.
    credits: u32,
    /// Buffers given back and not told.
    owed: u32,
    /// Whether the peer's queue answers already.
    pub(crate) may_send: bool,
    requests: VecDeque<Request>,
    /// The number of the first of `requests`.
    first_request: u64,
    packets: Packets,
    arrived: VecDeque<Arrived>,
    finished: Vec<Finished>,
    failed: Option<LinkError>,
}

/// A message of one call.
struct Message {
    slab: Option<Slab>,
    bytes: usize,
    immediate: u32,
}

/// Of a stream of this length no piece is smaller, and none larger than a buffer.
const PIECE_BYTES_MIN: usize = 2 << 10;
/// So many pieces at least, where they are not too small: the first is on its way while the others are copied.
const PIECES_MIN: usize = 4;

impl Stream {
    /// Connects a queue to the peer that has sent `theirs` in answer to `ours`.
    ///
    /// # Errors
    /// The system's, when the device finds no way to the peer.
    pub(crate) fn connect(fabric: &Arc<Fabric>, queue: Queue, ours: &Record, theirs: &Record) -> Result<Stream, Errno> {
        let mtu_code = ours.mtu_code.min(theirs.mtu_code);
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
            reads_out: ours.reads_in.min(theirs.reads_in),
            reads_in: ours.reads_in,
            timeout_code: fabric.options.timeout_code,
        })?;
        Ok(Stream {
            queue,
            fabric: Arc::clone(fabric),
            peer_queue: theirs.queue,
            peer_slab_bytes: theirs.slab_bytes as usize,
            credits: theirs.credits.into(),
            owed: 0,
            may_send: false,
            requests: VecDeque::new(),
            first_request: 0,
            packets: Packets::new(ours.first_packet, mtu_code),
            arrived: VecDeque::new(),
            finished: Vec::new(),
            failed: None,
        })
    }

    /// The number of the peer's end.
    pub(crate) fn peer_queue(&self) -> u32 {
        self.peer_queue
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.completions.descriptor()
    }

    fn check(&self) -> Result<(), LinkError> {
        self.failed.map_or(Ok(()), Err)
    }

    fn fail(&mut self, why: &'static str) -> LinkError {
        *self.failed.get_or_insert(LinkError::Device(why))
    }

    /// Takes up what has ended and arrived. Returns whether something had.
    pub(crate) fn poll(&mut self) -> Result<bool, LinkError> {
        let mut finished = std::mem::take(&mut self.finished);
        let polled = self.queue.completions.poll(&mut finished);
        let any = !finished.is_empty();
        for entry in finished.drain(..) {
            self.take_up(&entry);
        }
        self.finished = finished;
        match polled {
            Ok(()) => Ok(any),
            Err(_) => Err(self.fail("the device gives no completions")),
        }
    }

    fn take_up(&mut self, entry: &Finished) {
        match entry.result {
            Ok(()) if entry.work == Work::Received => {
                let slab = self.fabric.filled(entry.id);
                self.credits += entry.immediate;
                if entry.bytes == 0 {
                    self.give_back(slab);
                } else {
                    self.arrived.push_back(Arrived { slab, bytes: entry.bytes as usize, at: 0 });
                }
            }
            Ok(()) => self.forget_requests(entry.id),
            Err(failure) => self.note_failure(failure),
        }
    }

    fn note_failure(&mut self, failure: Failure) {
        if failure.is_flushed() && self.failed.is_some() {
            return;
        }
        self.fail(failure.words());
    }

    /// A request has ended, and with it all before it.
    fn forget_requests(&mut self, last: u64) {
        while self.first_request <= last && self.requests.pop_front().is_some() {
            self.first_request += 1;
        }
    }

    fn give_back(&mut self, slab: Slab) {
        self.fabric.give_back(slab);
        self.owed += 1;
    }

    fn has_room(&self) -> bool {
        self.requests.len() + CHAIN_MAX <= DEPTH as usize
    }

    /// Sends what there is room for.
    pub(crate) fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.check()?;
        self.poll()?;
        self.check()?;
        let total: usize = regions.iter().map(|region| region.len()).sum();
        if !self.may_send || total == 0 || self.credits < 2 || !self.has_room() {
            return Ok(0);
        }
        if total <= self.queue.inline_bytes().min(self.peer_slab_bytes) && regions.len() <= GATHERS_MAX {
            let message = Message { slab: None, bytes: total, immediate: self.take_owed() };
            self.post(vec![message], regions)?;
            return Ok(total);
        }
        let piece_bytes = (total / PIECES_MIN).max(PIECE_BYTES_MIN);
        let mut sent = 0;
        let mut source = Walk::new(regions);
        while sent < total && self.credits >= 2 && self.has_room() {
            let mut messages = Vec::with_capacity(1);
            // The first goes out while the next is copied; where credits are few there is nothing to be gained by waiting.
            let Some(mut slab) = self.take_slab()? else { break };
            let bytes = piece_bytes.min(total - sent).min(slab.slab_bytes()).min(self.peer_slab_bytes);
            source.copy_to(slab.region_mut().slice(0, bytes));
            messages.push(Message { slab: Some(slab), bytes, immediate: self.take_owed() });
            self.post(messages, &[])?;
            sent += bytes;
        }
        Ok(sent)
    }

    fn take_slab(&mut self) -> Result<Option<Slab>, LinkError> {
        match self.fabric.outgoing.take() {
            Ok(slab) => Ok(slab),
            Err(_) => Err(self.fail("no memory can be registered for what is sent (see `ulimit -l`)")),
        }
    }

    fn take_owed(&mut self) -> u32 {
        std::mem::take(&mut self.owed)
    }

    /// Posts messages with one ring of the doorbell; the last one's end is told.
    fn post(&mut self, messages: Vec<Message>, inline: &[Region<'_>]) -> Result<(), LinkError> {
        let count = messages.len();
        debug_assert!(count <= CHAIN_MAX && self.credits as usize >= count);
        let first = self.first_request + self.requests.len() as u64;
        let spans: Vec<_> = messages
            .iter()
            .map(|message| message.slab.as_ref().map(|slab| [slab.span(message.bytes)]))
            .collect();
        let posts: Vec<Post<'_>> = (first..)
            .zip(messages.iter().zip(&spans))
            .map(|(id, (message, span))| Post {
                id,
                posting: Posting::Send { immediate: message.immediate },
                data: span.as_ref().map_or(Data::Inline(inline), |span| Data::Spans(span)),
                signaled: id + 1 == first + count as u64,
                fenced: false,
            })
            .collect();
        // SAFETY: slabs stay in `requests` until their completion, or a later one's, was taken up; and when the queue is
        // gone, nobody reads them.
        #[allow(unsafe_code)]
        let posted = unsafe { self.queue.post(&posts) };
        self.credits -= count as u32;
        for message in messages {
            self.packets.pass(message.bytes as u64);
            self.requests.push_back(Request { _slab: message.slab });
        }
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
        self.tell_owed()?;
        Ok(received)
    }

    /// Tells the peer of buffers that it may fill again, when they are many and nothing else does.
    fn tell_owed(&mut self) -> Result<(), LinkError> {
        let many = u32::from(self.fabric.options.credits_each()) / 2;
        if self.owed >= many && self.may_send && self.credits >= 1 && self.has_room() && self.failed.is_none() {
            let message = Message { slab: None, bytes: 0, immediate: self.take_owed() };
            self.post(vec![message], &[])?;
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
        Ok(self.poll()? || self.holds_bytes() || self.failed.is_some())
    }

    /// Whether all that was sent has reached the peer's buffers.
    pub(crate) fn is_delivered(&mut self) -> bool {
        let polled = self.poll();
        polled.is_err() || self.failed.is_some() || self.requests.is_empty()
    }

    /// A last try to have it all delivered: until it is, or nothing has been for `moments` of ten milliseconds.
    pub(crate) fn linger(&mut self, moments: usize, peer_lives: impl Fn() -> bool) {
        for _ in 0..moments {
            if self.is_delivered() || self.queue.completions.arm().is_err() || self.is_delivered() || !peer_lives() {
                return;
            }
            let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let mut events = [rustix::event::PollFd::from_borrowed_fd(self.descriptor(), rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut events, Some(&limit));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(executed) = self.queue.end() {
            self.fabric.remember(self.queue.number(), executed);
        }
        // Buffers that are filled and not taken up go back too.
        let _ = self.poll();
        for arrived in self.arrived.drain(..) {
            self.fabric.give_back(arrived.slab);
        }
        self.fabric.take_back_promise();
    }
}

/// A place in a list of regions.
struct Walk<'a> {
    regions: &'a [Region<'a>],
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(regions: &'a [Region<'a>]) -> Walk<'a> {
        Walk { regions, at: 0 }
    }

    fn copy_to(&mut self, target: RegionMut<'_>) {
        let mut done = 0;
        while done < target.len() {
            let region = self.regions[0];
            let bytes = (region.len() - self.at).min(target.len() - done);
            target.slice(done, bytes).copy_from(region.slice(self.at, bytes));
            done += bytes;
            self.at += bytes;
            if self.at == region.len() {
                (self.regions, self.at) = (&self.regions[1..], 0);
            }
        }
    }
}
