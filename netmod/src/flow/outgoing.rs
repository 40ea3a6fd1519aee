//! What waits to be sent on one link, in order, and what was sent and may have to be sent again.
//!
//! ```text
//!   acknowledged │ sent, kept until acknowledged │ waits
//!   gone         │ items before `next` and in it │ from `next` on
//! ```
//!
//! The bytes of a session are one stream, whatever connections carry it. Frames are kept as they are until the peer
//! says that it has received them; of a payload that is sent from its own place only the place is kept, so its owner
//! has to leave it alone until then. After a broken connection [`Outgoing::rewind`] goes back to what the peer has.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use longarm_memory::Region;
use longarm_proto::{Cursor, Run, Violation};

use super::costs::Costs;
use super::runs::{REGIONS_MAX, RUN_BYTES_MIN, RunSource, pack};
use crate::link_error::LinkError;
use crate::traits::Link;

/// One buffer of frames. Frames behind it go into the next one.
const BUFFER_BYTES: usize = 64 << 10;
/// Room in the first buffer of a session that has sent nothing else: it grows when more waits.
const AT_FIRST_BYTES: usize = 4 << 10;
/// Room in a buffer behind a payload or a gate, for which each of many payloads in a row has one frame. It grows as well.
const BEHIND_BYTES: usize = 256;
/// So much, if it is all that is under way, goes out in two halves: the other side takes in the first while the second is
/// copied into the kernel, which passes on 64 KiB at a time by itself. What is shorter is not worth another call.
const HALVED_BYTES: std::ops::RangeInclusive<usize> = 48 << 10..=128 << 10;
/// Empty buffers that are kept for the next frames.
const SPARE_MAX: usize = 6;

/// Room for items that is kept for the next ones.
const ITEMS_KEPT: usize = 64;

#[allow(clippy::large_enum_variant, reason = "a queue holds few items; a box each would cost more than it saves")]
enum Item<S> {
    Bytes {
        bytes: BytesMut,
        /// How many of them were sent.
        sent: usize,
    },
    Stream(Stream<S>),
    /// What is behind it waits until this number is reached.
    Gate(u64),
}

/// A payload that is sent from where it is.
struct Stream<S> {
    source: S,
    /// At its first byte.
    start: Cursor,
    /// Behind the last byte that was sent or packed.
    cursor: Cursor,
    acknowledged: u64,
    /// Short runs that were packed and are not yet sent.
    packed: BytesMut,
}

impl<S: RunSource> Stream<S> {
    fn unsent(&self) -> u64 {
        self.cursor.remaining() + self.packed.len() as u64
    }

    /// If short runs are next, copies a piece of them into a buffer.
    fn pack(&mut self, runs: &mut Vec<Run>, costs: &Costs) {
        if !self.packed.is_empty() {
            return;
        }
        runs.clear();
        self.cursor.upcoming(REGIONS_MAX, runs);
        let total: u64 = runs.iter().map(|run| run.bytes).sum();
        if total >= RUN_BYTES_MIN * runs.len() as u64 || self.cursor.remaining() == total && runs.len() == 1 {
            return;
        }
        let bytes = self.cursor.remaining().min(costs.piece_bytes(self.start.remaining()));
        self.packed.clear();
        pack(&self.source, &mut self.cursor, bytes, &mut self.packed);
    }

    fn rewind(&mut self) {
        self.packed.clear();
        self.cursor = self.start.clone();
        self.cursor.advance(self.acknowledged);
    }
}

/// Frames and payloads of one session that the peer has not acknowledged, in the order in which they were put in.
pub struct Outgoing<S> {
    items: VecDeque<Item<S>>,
    /// The first item that is not sent whole.
    next: usize,
    /// Bytes that were copied in and not acknowledged, and how many of them were not sent.
    buffered_bytes: usize,
    unsent_bytes: usize,
    streams: usize,
    unsent_stream_bytes: u64,
    /// Bytes of the whole session.
    sent_bytes: u64,
    acknowledged_bytes: u64,
    spare: Vec<BytesMut>,
    /// A buffer takes, or took, more than the first one at first.
    has_grown: bool,
    runs: Vec<Run>,
    costs: Costs,
}

impl<S: RunSource> Outgoing<S> {
    /// Nothing waits, nothing was sent. The costs say how much of a payload of short runs is packed at a time.
    pub fn new(costs: Costs) -> Outgoing<S> {
        Outgoing {
            costs,
            items: VecDeque::new(),
            next: 0,
            buffered_bytes: 0,
            unsent_bytes: 0,
            streams: 0,
            unsent_stream_bytes: 0,
            sent_bytes: 0,
            acknowledged_bytes: 0,
            spare: Vec::new(),
            has_grown: false,
            runs: Vec::new(),
        }
    }

    /// Whether everything was sent, acknowledged or not.
    pub fn is_sent(&self) -> bool {
        self.next == self.items.len()
    }

    /// Whether the link could take more: something waits, and not behind a gate.
    pub fn can_send(&self) -> bool {
        self.items.get(self.next).is_some_and(|item| !matches!(item, Item::Gate(_)))
    }

    /// Whether everything was sent and acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        self.items.iter().all(|item| matches!(item, Item::Bytes { bytes, .. } if bytes.is_empty()))
    }

    /// Bytes that were copied in and not yet acknowledged. Streams do not count: their bytes are where they were.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Those of [`Outgoing::buffered_bytes`] that were not sent.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Bytes of payloads that wait in their own places, or packed, to be sent.
    pub fn unsent_stream_bytes(&self) -> u64 {
        self.unsent_stream_bytes
    }

    /// Payloads in their own places that were not acknowledged.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Whether a payload waits that is still in its own place.
    pub fn has_unsent_stream(&self) -> bool {
        self.unsent_stream_bytes > 0
    }

    /// Room for bytes behind everything else: `write` appends to the buffer it gets, a frame at a time.
    pub fn write(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.write_at_least(1, write);
    }

    /// The same for so many bytes, at least: a buffer that has no room for them would grow, and copy what it has.
    fn write_at_least(&mut self, least: usize, write: impl FnOnce(&mut BytesMut)) {
        let fits = matches!(self.items.back(), Some(Item::Bytes { bytes, .. }) if bytes.len() + least <= BUFFER_BYTES);
        if !fits {
            let room = match self.items.back() {
                None => AT_FIRST_BYTES,
                Some(Item::Bytes { .. }) => BUFFER_BYTES,
                Some(Item::Stream(_) | Item::Gate(_)) => BEHIND_BYTES,
            };
            let fresh = self.spare.pop().unwrap_or_else(|| BytesMut::with_capacity(room));
            self.items.push_back(Item::Bytes { bytes: fresh, sent: 0 });
        }
        // A buffer whose bytes were all sent has something to send again.
        self.next = self.next.min(self.items.len() - 1);
        let Some(Item::Bytes { bytes, .. }) = self.items.back_mut() else { unreachable!("pushed above") };
        let before = bytes.len();
        write(bytes);
        let written = bytes.len() - before;
        self.has_grown |= bytes.capacity() > AT_FIRST_BYTES;
        self.buffered_bytes += written;
        self.unsent_bytes += written;
    }

    /// Bytes that were sent since the session began, those that are to be sent again apart.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Whether its buffers take more memory than at first.
    pub fn has_grown(&self) -> bool {
        self.has_grown || self.items.capacity() > ITEMS_KEPT
    }

    /// Takes as little memory as at first, but for what was not acknowledged. For when nothing was sent for a while.
    #[cold]
    pub fn shrink(&mut self) {
        self.spare = Vec::new();
        if self.is_acknowledged() {
            self.items = VecDeque::new();
            self.next = 0;
        }
        self.items.shrink_to(ITEMS_KEPT);
        self.has_grown = false;
        for item in &mut self.items {
            let Item::Bytes { bytes, .. } = item else { continue };
            if bytes.capacity() <= AT_FIRST_BYTES {
                continue;
            }
            let mut kept = BytesMut::with_capacity(bytes.len().max(AT_FIRST_BYTES));
            kept.extend_from_slice(bytes);
            *bytes = kept;
            self.has_grown |= bytes.len() > AT_FIRST_BYTES;
        }
    }

    /// Copies all that is left of a cursor behind everything else.
    pub fn copy(&mut self, source: &impl RunSource, mut cursor: Cursor) {
        let left = cursor.remaining();
        if left > 0 {
            self.write_at_least(left as usize, |bytes| pack(source, &mut cursor, left, bytes));
        }
    }

    /// Puts a payload behind everything else without copying it. Its memory has to stay until it is handed back
    /// by [`Outgoing::acknowledge`].
    pub fn stream(&mut self, source: S, cursor: Cursor) {
        if cursor.remaining() > 0 {
            self.unsent_stream_bytes += cursor.remaining();
            let start = cursor.clone();
            self.items.push_back(Item::Stream(Stream {
                source,
                start,
                cursor,
                acknowledged: 0,
                packed: BytesMut::new(),
            }));
            self.streams += 1;
        }
    }

    /// What is put in from here on waits until [`Outgoing::open_gates`] with this number, or a larger one.
    pub fn gate(&mut self, until: u64) {
        self.items.push_back(Item::Gate(until));
    }

    /// Takes the gates up to this number away.
    pub fn open_gates(&mut self, reached: u64) {
        // No gate was ever passed, so none is before `next`.
        self.items.retain(|item| !matches!(item, Item::Gate(until) if *until <= reached));
    }

    /// Sends what the link takes. True if anything moved.
    ///
    /// # Errors
    /// As [`Link::send`]. What was sent may have to be sent again over another link: [`Outgoing::rewind`].
    pub fn flush(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        let mut progress = false;
        while self.can_send() {
            if let Some(Item::Stream(stream)) = self.items.get_mut(self.next) {
                stream.pack(&mut self.runs, &self.costs);
            }
            let sent = self.send_once(link, !progress)?;
            if sent == 0 {
                break;
            }
            progress = true;
            self.mark_sent(sent);
        }
        Ok(progress)
    }

    /// The peer has received this many bytes since the session began. Every payload that it has whole is handed to
    /// `finished`.
    ///
    /// # Errors
    /// When that is more than was sent. Less than it said before is no news.
    pub fn acknowledge(&mut self, received_bytes: u64, mut finished: impl FnMut(S)) -> Result<bool, Violation> {
        if received_bytes > self.sent_bytes {
            let (least, most) = (self.acknowledged_bytes, self.sent_bytes);
            return Err(Violation::Received { found: received_bytes, least, most });
        }
        let Some(mut left) = received_bytes.checked_sub(self.acknowledged_bytes).filter(|new| *new > 0) else {
            return Ok(false);
        };
        self.acknowledged_bytes = received_bytes;
        while let Some(front) = self.items.front_mut() {
            match front {
                Item::Bytes { bytes, sent } => {
                    let here = left.min(*sent as u64) as usize;
                    bytes.advance(here);
                    *sent -= here;
                    self.buffered_bytes -= here;
                    left -= here as u64;
                    if !bytes.is_empty() {
                        break;
                    }
                }
                Item::Stream(stream) => {
                    let whole = stream.start.remaining();
                    let here = left.min(whole - stream.acknowledged);
                    stream.acknowledged += here;
                    left -= here;
                    if stream.acknowledged < whole {
                        break;
                    }
                }
                Item::Gate(_) => break,
            }
            self.next = self.next.saturating_sub(1);
            match self.items.pop_front() {
                Some(Item::Stream(stream)) => {
                    self.streams -= 1;
                    finished(stream.source);
                }
                Some(Item::Bytes { mut bytes, .. }) if self.spare.len() < SPARE_MAX => {
                    bytes.clear();
                    // Takes the part in front back. One that never was full stays as small as it is.
                    if bytes.try_reclaim(BUFFER_BYTES) || bytes.try_reclaim(AT_FIRST_BYTES) {
                        self.spare.push(bytes);
                    }
                }
                _ => {}
            }
        }
        assert_eq!(left, 0, "no more is acknowledged than was sent");
        Ok(true)
    }

    /// The connection broke, and another one goes on: everything behind what the peer has received is sent again.
    ///
    /// # Errors
    /// When the peer says that it has less than it had, or more than it can have.
    pub fn rewind(&mut self, received_bytes: u64, finished: impl FnMut(S)) -> Result<(), Violation> {
        if received_bytes < self.acknowledged_bytes {
            let (least, most) = (self.acknowledged_bytes, self.sent_bytes);
            return Err(Violation::Received { found: received_bytes, least, most });
        }
        self.acknowledge(received_bytes, finished)?;
        self.sent_bytes = self.acknowledged_bytes;
        self.next = 0;
        (self.unsent_bytes, self.unsent_stream_bytes) = (self.buffered_bytes, 0);
        for item in &mut self.items {
            match item {
                Item::Bytes { sent, .. } => *sent = 0,
                Item::Stream(stream) => {
                    stream.rewind();
                    self.unsent_stream_bytes += stream.unsent();
                }
                Item::Gate(_) => {}
            }
        }
        Ok(())
    }

    /// Everything is forgotten; the payloads are handed to `dropped`.
    pub fn abandon(&mut self, mut dropped: impl FnMut(S)) {
        (self.buffered_bytes, self.unsent_bytes, self.streams, self.next) = (0, 0, 0, 0);
        self.unsent_stream_bytes = 0;
        self.acknowledged_bytes = self.sent_bytes;
        for item in self.items.drain(..) {
            if let Item::Stream(stream) = item {
                dropped(stream.source);
            }
        }
    }

    fn send_once(&mut self, link: &mut dyn Link, is_first: bool) -> Result<usize, LinkError> {
        let mut regions = [Region::from_slice(&[]); REGIONS_MAX];
        let mut count = 0;
        for item in self.items.range(self.next..) {
            if count == REGIONS_MAX {
                break;
            }
            match item {
                Item::Bytes { bytes, sent } => {
                    regions[count] = Region::from_slice(&bytes[*sent..]);
                    count += 1;
                }
                Item::Stream(stream) if !stream.packed.is_empty() => {
                    regions[count] = Region::from_slice(&stream.packed);
                    count += 1;
                    if stream.cursor.remaining() > 0 {
                        break;
                    }
                }
                Item::Stream(stream) => {
                    self.runs.clear();
                    stream.cursor.upcoming(REGIONS_MAX - count, &mut self.runs);
                    let mut named = 0;
                    for run in &self.runs {
                        regions[count] = stream.source.region(*run);
                        named += run.bytes;
                        count += 1;
                    }
                    if named < stream.cursor.remaining() {
                        break;
                    }
                }
                Item::Gate(_) => break,
            }
        }
        let bytes = regions[..count].iter().map(Region::len).sum();
        if is_first && HALVED_BYTES.contains(&bytes) && self.is_alone(bytes as u64) {
            count = cut(&mut regions[..count], bytes / 2);
        }
        link.send(&regions[..count])
    }

    /// Whether these bytes are all that waits, and no other payload is on its way: else both sides have work meanwhile.
    fn is_alone(&self, bytes: u64) -> bool {
        self.streams == 1 && self.unsent_stream_bytes + self.unsent_bytes as u64 == bytes
    }

    fn mark_sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
        let mut left = bytes as u64;
        while let Some(item) = self.items.get_mut(self.next) {
            match item {
                Item::Bytes { bytes, sent } => {
                    let here = left.min((bytes.len() - *sent) as u64);
                    *sent += here as usize;
                    self.unsent_bytes -= here as usize;
                    left -= here;
                    if *sent < bytes.len() {
                        return;
                    }
                }
                Item::Stream(stream) => {
                    let packed = left.min(stream.packed.len() as u64);
                    stream.packed.advance(packed as usize);
                    let here = (left - packed).min(stream.cursor.remaining());
                    stream.cursor.advance(here);
                    left -= packed + here;
                    self.unsent_stream_bytes -= packed + here;
                    if stream.unsent() > 0 {
                        return;
                    }
                    stream.packed = BytesMut::new();
                }
                Item::Gate(_) => break,
            }
            self.next += 1;
        }
        assert_eq!(left, 0, "no more was sent than waited");
    }
}

/// Leaves the first bytes of the regions, and says how many of these that takes.
fn cut(regions: &mut [Region<'_>], bytes: usize) -> usize {
    let mut left = bytes;
    for (index, region) in regions.iter_mut().enumerate() {
        if region.len() >= left {
            *region = region.slice(0, left);
            return index + 1;
        }
        left -= region.len();
    }
    regions.len()
}
