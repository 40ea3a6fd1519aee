//! The receive buffer of one link: bytes between `start` and `end` have arrived and are not yet used.

use longarm_memory::{Region, RegionMut};
use longarm_proto::{Cursor, DESCRIPTOR_BYTES_MAX, Mutation, Run, mutation};

use super::runs::{REGIONS_MAX, RUN_BYTES_MIN, RunTarget, unpacking};
use crate::link_error::LinkError;
use crate::traits::Link;

/// Bytes of a receive buffer that was once full. One system call brings many small frames.
pub const INCOMING_BYTES: usize = 64 << 10;
/// Bytes of it before: many connections never need more. What comes behind a long payload may be the same again, so no more
/// than this of it is received into the buffer, from where it would have to be copied.
const AT_FIRST_BYTES: usize = 8 << 10;
const _: () = assert!(AT_FIRST_BYTES >= 2 * DESCRIPTOR_BYTES_MAX && INCOMING_BYTES >= AT_FIRST_BYTES);
/// A payload of which at least this much is missing is received straight to where it belongs.
const DIRECT_BYTES_MIN: u64 = 4 << 10;
/// A payload of which the buffer holds at least this much in a row is a long one.
const LONG_BYTES: u64 = 16 << 10;
/// Runs up to this size are moved whole: a put of one aligned word is one store.
const WORD_BYTES: u64 = 8;

/// See the module.
pub struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    runs: Vec<Run>,
    drained: bool,
    /// A long payload has come since the last receive into the buffer.
    after_long: bool,
    /// Since the session began.
    received_bytes: u64,
}

impl Incoming {
    /// An empty buffer.
    pub fn new() -> Incoming {
        let buffer = vec![0; AT_FIRST_BYTES].into_boxed_slice();
        Incoming { buffer, start: 0, end: 0, runs: Vec::new(), drained: false, after_long: false, received_bytes: 0 }
    }

    /// Bytes that have arrived since the session began, over whatever connections. They are never asked for again.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// What has arrived and is not yet used.
    pub fn ready(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Whether everything that has arrived was used.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether the last receive took all that was there, so that another one now would be in vain.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Another receive makes sense again.
    pub fn forget_drained(&mut self) {
        self.drained = false;
    }

    /// `bytes` from the front, if that many have arrived.
    pub fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        if self.end - self.start < bytes {
            return None;
        }
        let taken = &self.buffer[self.start..self.start + bytes];
        self.start += bytes;
        Some(taken)
    }

    /// A header of fixed size from the front, if it has arrived whole.
    pub fn take_array<const BYTES: usize>(&mut self) -> Option<&[u8; BYTES]> {
        self.take(BYTES).map(|bytes| bytes.try_into().expect("taken with this length"))
    }

    /// Drops up to `bytes` from the front and says how many there were.
    pub fn skip(&mut self, bytes: u64) -> u64 {
        let skipped = bytes.min(self.ready().len() as u64);
        self.start += skipped as usize;
        skipped
    }

    /// Receives behind what is there. False: nothing there now.
    pub fn receive(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        self.make_room();
        let all = self.buffer.len() - self.end;
        let room = if self.after_long { all.min(AT_FIRST_BYTES) } else { all };
        let got = link.receive(&[RegionMut::from_slice(&mut self.buffer[self.end..self.end + room])])?;
        self.after_long &= got == 0;
        self.end += got;
        self.received_bytes += got as u64;
        self.drained = got < room && !link.holds_bytes();
        Ok(got > 0)
    }

    /// Copies what has arrived of a payload to where the cursor stands.
    pub fn drain_into(&mut self, target: &impl RunTarget, cursor: &mut Cursor) {
        // A fault that the tests know: a run lacks its last byte.
        let cuts = mutation(Mutation::RunCutShort);
        while let Some(run) = cursor.peek() {
            let ready = self.ready().len() as u64;
            let row = cursor.row(if cuts { ready.min(run.bytes) } else { ready }).expect("a run is there");
            let bytes = row.bytes();
            // A word that has arrived in part waits in the buffer for its rest, so that nobody sees half of it.
            if bytes == 0 || (row.run.bytes < run.bytes && run.bytes <= WORD_BYTES) {
                return;
            }
            self.after_long |= row.count == 1 && bytes >= LONG_BYTES;
            let source = Region::from_slice(self.take(bytes as usize).expect("as much as is ready"));
            if row.count == 1 {
                let kept = if cuts && bytes > 16 { bytes - 1 } else { bytes };
                let target = target.region_mut(Run { bytes: kept, ..row.run });
                target.copy_from(source.slice(0, kept as usize));
            } else {
                let (span, first) = row.span();
                unpacking(&row, first).copy(target.region_mut(span), source);
            }
            cursor.pass(&row);
        }
    }

    /// Receives more of a payload: straight to where the cursor stands if enough is missing and its runs are long,
    /// else into the buffer. False: nothing there now.
    pub fn receive_into(
        &mut self,
        link: &mut dyn Link,
        target: &impl RunTarget,
        cursor: &mut Cursor,
    ) -> Result<bool, LinkError> {
        if !self.is_empty() || cursor.remaining() < DIRECT_BYTES_MIN {
            return self.receive(link);
        }
        self.runs.clear();
        cursor.upcoming(REGIONS_MAX - 1, &mut self.runs);
        let total: u64 = self.runs.iter().map(|run| run.bytes).sum();
        if total < RUN_BYTES_MIN * self.runs.len() as u64 {
            return self.receive(link);
        }
        self.start = 0;
        self.end = 0;
        let mut regions = [RegionMut::from_slice(&mut []); REGIONS_MAX];
        for (slot, run) in regions.iter_mut().zip(&self.runs) {
            *slot = target.region_mut(*run);
        }
        let mut count = self.runs.len();
        if total == cursor.remaining() {
            // What comes behind the payload goes into the buffer in the same call.
            regions[count] = RegionMut::from_slice(&mut self.buffer[..AT_FIRST_BYTES]);
            count += 1;
        }
        let got = link.receive(&regions[..count])? as u64;
        self.received_bytes += got;
        cursor.advance(got.min(total));
        self.end = got.saturating_sub(total) as usize;
        self.drained = false;
        self.after_long = true;
        Ok(got > 0)
    }

    fn make_room(&mut self) {
        if self.end == self.buffer.len() && self.buffer.len() < INCOMING_BYTES {
            self.grow();
        } else if self.is_empty() {
            self.start = 0;
            self.end = 0;
        } else if self.buffer.len() - self.end < DESCRIPTOR_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// The last receive filled the buffer: there is more than it holds.
    #[cold]
    fn grow(&mut self) {
        self.move_to(INCOMING_BYTES);
    }

    /// Whether it takes more memory than at first.
    pub fn has_grown(&self) -> bool {
        self.buffer.len() > AT_FIRST_BYTES
    }

    /// Takes as little memory as at first, unless much waits in it. For when nothing has come for a while.
    #[cold]
    pub fn shrink(&mut self) {
        if self.has_grown() && self.ready().len() <= AT_FIRST_BYTES / 2 {
            self.move_to(AT_FIRST_BYTES);
        }
    }

    fn move_to(&mut self, bytes: usize) {
        let mut buffer = vec![0; bytes].into_boxed_slice();
        let ready = self.ready();
        buffer[..ready.len()].copy_from_slice(ready);
        (self.start, self.end) = (0, ready.len());
        self.buffer = buffer;
    }
}

impl Default for Incoming {
    fn default() -> Self {
        Incoming::new()
    }
}
