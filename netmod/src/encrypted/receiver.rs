//! Takes records from the link below, opens them, and hands on what authenticates.
//!
//! ```text
//!   link below ──► batch: records ──► payload: of one record ──► regions
//! ```
//!
//! Nothing is taken from the link below while a whole record is there, so what is held is bounded, and a reader that
//! stops makes the sender stop.

use longarm_memory::RegionMut;
use snow::TransportState;

use super::records::{
    BATCH_BYTES, KEPT_BYTES_MAX, LENGTH_BYTES, PAYLOAD_BYTES_MAX, RECORDS_PER_KEY, ShortOnes, TAG_BYTES, fit,
};
use crate::link_error::LinkError;
use crate::traits::Link;

/// See the module.
pub(super) struct Receiver {
    /// Grows to [`BATCH_BYTES`] once it was filled to its end.
    batch: Vec<u8>,
    /// It has been filled to its end.
    was_filled: bool,
    /// Bytes that came since there was nothing the last time, and how often in a row they were few.
    came: usize,
    short_ones: ShortOnes,
    /// What has arrived and was not opened.
    start: usize,
    end: usize,
    payload: Vec<u8>,
    /// What was opened and not handed on.
    payload_start: usize,
    payload_end: usize,
}

impl Receiver {
    pub(super) fn new() -> Receiver {
        Receiver {
            batch: Vec::new(),
            was_filled: false,
            came: 0,
            short_ones: ShortOnes::default(),
            start: 0,
            end: 0,
            payload: Vec::new(),
            payload_start: 0,
            payload_end: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.payload.capacity() + self.batch.capacity()
    }

    /// As [`Link::holds_bytes`].
    pub(super) fn holds_bytes(&self) -> bool {
        self.payload_start < self.payload_end || !matches!(self.record_bytes(), Ok(None))
    }

    /// As [`Link::receive`].
    pub(super) fn receive(
        &mut self,
        link: &mut dyn Link,
        noise: &mut TransportState,
        regions: &[RegionMut<'_>],
    ) -> Result<usize, LinkError> {
        let mut target = Target { regions, offset: 0, filled: 0 };
        loop {
            let bytes = target.copy_from(&self.payload[self.payload_start..self.payload_end]);
            self.payload_start += bytes;
            if target.is_full() {
                return Ok(target.filled);
            }
            match self.record_bytes() {
                Ok(Some(bytes)) => self.open(noise, bytes)?,
                // What is wrong is said when what was right before it has been handed on.
                _ if target.filled > 0 => return Ok(target.filled),
                Ok(None) if !self.fill(link)? => return Ok(0),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes of the record in front, without its length, if it is there whole.
    fn record_bytes(&self) -> Result<Option<usize>, LinkError> {
        let Some((length, rest)) = self.batch[self.start..self.end].split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let bytes = usize::from(u16::from_le_bytes(*length));
        // Nobody seals nothing, so a peer can not keep us busy with records that move no byte.
        if bytes <= TAG_BYTES || bytes > PAYLOAD_BYTES_MAX + TAG_BYTES {
            return Err(LinkError::Forged);
        }
        Ok((rest.len() >= bytes).then_some(bytes))
    }

    fn open(&mut self, noise: &mut TransportState, bytes: usize) -> Result<(), LinkError> {
        let record = &self.batch[self.start + LENGTH_BYTES..][..bytes];
        fit(&mut self.payload, bytes);
        self.payload_end = noise.read_message(record, &mut self.payload).map_err(|_| LinkError::Forged)?;
        self.payload_start = 0;
        self.start += LENGTH_BYTES + bytes;
        if noise.receiving_nonce().is_multiple_of(RECORDS_PER_KEY) {
            noise.rekey_incoming();
        }
        Ok(())
    }

    /// There is nothing more. Counted once each time that bytes have come, not at each look that finds none: who waits looks again and again.
    fn note_rest(&mut self) {
        let came = std::mem::take(&mut self.came);
        if came > 0 {
            self.short_ones.note(came);
        }
        let is_empty = self.start == self.end && self.payload_start == self.payload_end;
        if is_empty && self.short_ones.give_back(&self.batch) {
            *self = Receiver::new();
        }
    }

    /// Brings bytes in behind what is there, which is less than a record. False: nothing there now.
    fn fill(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        self.batch.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        fit(&mut self.batch, if self.was_filled { BATCH_BYTES } else { KEPT_BYTES_MAX });
        match link.receive(&[RegionMut::from_slice(&mut self.batch[self.end..])]) {
            Ok(0) => {
                self.note_rest();
                Ok(false)
            }
            Ok(bytes) => {
                self.came += bytes;
                self.end += bytes;
                self.was_filled |= self.end == self.batch.len();
                Ok(true)
            }
            // The peer sends whole records before it closes.
            Err(LinkError::Closed) if self.end > 0 => Err(LinkError::Forged),
            Err(error) => Err(error),
        }
    }
}

/// Regions that are filled from front to back.
struct Target<'a, 'b> {
    regions: &'a [RegionMut<'b>],
    /// Into the first of them.
    offset: usize,
    /// Bytes in all of them so far.
    filled: usize,
}

impl Target<'_, '_> {
    fn is_full(&self) -> bool {
        self.regions.iter().all(RegionMut::is_empty)
    }

    /// Copies as much as there is room for, and says how much that was.
    fn copy_from(&mut self, source: &[u8]) -> usize {
        let mut copied = 0;
        while let Some(region) = self.regions.first() {
            let bytes = (source.len() - copied).min(region.len() - self.offset);
            region.slice(self.offset, bytes).copy_from_slice(&source[copied..copied + bytes]);
            copied += bytes;
            self.offset += bytes;
            if self.offset < region.len() {
                break;
            }
            self.regions = &self.regions[1..];
            self.offset = 0;
        }
        self.filled += copied;
        copied
    }
}
