//! What waits to be sent on one link, in order.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use longarm_memory::Region;
use longarm_proto::{Cursor, Run};

use super::{REGIONS_MAX, RUN_BYTES_MIN, RunSource};
use crate::{Link, LinkError};

/// One buffer of frames. Frames behind it go into the next one.
const BUFFER_BYTES: usize = 64 << 10;
/// How much of a payload of short runs is packed at once.
const PACK_BYTES: u64 = 32 << 10;

#[allow(clippy::large_enum_variant, reason = "a queue holds few items; a box each would cost more than it saves")]
enum Item<S> {
    Bytes(BytesMut),
    Stream { source: S, cursor: Cursor },
}

/// Frames and payloads that wait for the link, in the order in which they were put in.
pub struct Outgoing<S> {
    items: VecDeque<Item<S>>,
    buffered_bytes: usize,
    spare: Option<BytesMut>,
    runs: Vec<Run>,
}

impl<S: RunSource> Outgoing<S> {
    /// Nothing waits.
    pub fn new() -> Outgoing<S> {
        Outgoing { items: VecDeque::new(), buffered_bytes: 0, spare: None, runs: Vec::new() }
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes that were copied in and not yet sent. Streams do not count: their bytes are where they were.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Whether a payload waits that is still in its own place.
    pub fn has_stream(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Stream { .. }))
    }

    /// Room for bytes behind everything else: `write` appends to the buffer it gets, a frame at a time.
    pub fn write(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let fits = matches!(self.items.back(), Some(Item::Bytes(bytes)) if bytes.len() < BUFFER_BYTES);
        if !fits {
            let fresh = self.spare.take().unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES));
            self.items.push_back(Item::Bytes(fresh));
        }
        let Some(Item::Bytes(bytes)) = self.items.back_mut() else { unreachable!("pushed above") };
        let before = bytes.len();
        write(bytes);
        self.buffered_bytes += bytes.len() - before;
    }

    /// Copies all that is left of a cursor behind everything else.
    pub fn copy(&mut self, source: &impl RunSource, mut cursor: Cursor) {
        let left = cursor.remaining();
        if left > 0 {
            self.write(|bytes| pack(source, &mut cursor, left, bytes));
        }
    }

    /// Puts a payload behind everything else without copying it. Its memory has to stay until it is handed back
    /// by [`Outgoing::flush`].
    pub fn stream(&mut self, source: S, cursor: Cursor) {
        if cursor.remaining() > 0 {
            self.items.push_back(Item::Stream { source, cursor });
        }
    }

    /// Sends what the link takes and hands every payload that was sent whole to `finished`. True if anything moved.
    pub fn flush(&mut self, link: &mut dyn Link, mut finished: impl FnMut(S)) -> Result<bool, LinkError> {
        let mut progress = false;
        while !self.items.is_empty() {
            self.pack_front();
            let sent = self.send_once(link)?;
            if sent == 0 {
                break;
            }
            progress = true;
            self.consume(sent, &mut finished);
        }
        Ok(progress)
    }

    /// Everything that waits is forgotten; the payloads are handed to `dropped`.
    pub fn abandon(&mut self, mut dropped: impl FnMut(S)) {
        self.buffered_bytes = 0;
        for item in self.items.drain(..) {
            if let Item::Stream { source, .. } = item {
                dropped(source);
            }
        }
    }

    /// If a payload of short runs is next, copies a piece of it into a buffer before it.
    fn pack_front(&mut self) {
        let Some(Item::Stream { source, cursor }) = self.items.front_mut() else { return };
        self.runs.clear();
        cursor.upcoming(REGIONS_MAX, &mut self.runs);
        let total: u64 = self.runs.iter().map(|run| run.bytes).sum();
        if total >= RUN_BYTES_MIN * self.runs.len() as u64 || cursor.remaining() == total && self.runs.len() == 1 {
            return;
        }
        let bytes = cursor.remaining().min(PACK_BYTES);
        let mut packed = self.spare.take().unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES));
        pack(source, cursor, bytes, &mut packed);
        self.buffered_bytes += packed.len();
        // The emptied stream stays, so that it is handed back when the bytes before it are sent.
        self.items.push_front(Item::Bytes(packed));
    }

    fn send_once(&mut self, link: &mut dyn Link) -> Result<usize, LinkError> {
        let mut regions = [Region::from_slice(&[]); REGIONS_MAX];
        let mut count = 0;
        for item in &self.items {
            match item {
                Item::Bytes(bytes) => {
                    regions[count] = Region::from_slice(bytes);
                    count += 1;
                }
                Item::Stream { source, cursor } => {
                    self.runs.clear();
                    cursor.upcoming(REGIONS_MAX - count, &mut self.runs);
                    let mut named = 0;
                    for run in &self.runs {
                        regions[count] = source.region(*run);
                        named += run.bytes;
                        count += 1;
                    }
                    if named < cursor.remaining() {
                        break;
                    }
                }
            }
            if count == REGIONS_MAX {
                break;
            }
        }
        link.send(&regions[..count])
    }

    fn consume(&mut self, sent: usize, finished: &mut impl FnMut(S)) {
        let mut left = sent as u64;
        loop {
            match self.items.front_mut() {
                Some(Item::Bytes(bytes)) => {
                    let here = left.min(bytes.len() as u64);
                    bytes.advance(here as usize);
                    self.buffered_bytes -= here as usize;
                    left -= here;
                    if !bytes.is_empty() {
                        return;
                    }
                    if let Some(Item::Bytes(mut bytes)) = self.items.pop_front() {
                        bytes.clear();
                        bytes.reserve(BUFFER_BYTES); // Takes the sent part back.
                        self.spare = Some(bytes);
                    }
                }
                Some(Item::Stream { cursor, .. }) => {
                    let here = left.min(cursor.remaining());
                    cursor.advance(here);
                    left -= here;
                    if cursor.remaining() > 0 {
                        return;
                    }
                    if let Some(Item::Stream { source, .. }) = self.items.pop_front() {
                        finished(source);
                    }
                }
                None => {
                    assert_eq!(left, 0, "no more was sent than waited");
                    return;
                }
            }
        }
    }
}

impl<S: RunSource> Default for Outgoing<S> {
    fn default() -> Self {
        Outgoing::new()
    }
}

fn pack(source: &impl RunSource, cursor: &mut Cursor, bytes: u64, out: &mut BytesMut) {
    let mut left = bytes;
    while left > 0 {
        let run = cursor.peek().expect("the cursor has at least the bytes asked for");
        let part = Run { offset: run.offset, bytes: run.bytes.min(left) };
        let from = out.len();
        out.resize(from + part.bytes as usize, 0);
        source.region(part).copy_to_slice(&mut out[from..]);
        cursor.advance(part.bytes);
        left -= part.bytes;
    }
}
