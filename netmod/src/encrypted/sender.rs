//! Seals what is offered, and gives it to the link below in as many parts as that takes.
//!
//! ```text
//!   offered ──► payload (a copy, as others may write the original meanwhile) ──► batch: records ──► link below
//! ```
//!
//! What was encrypted cannot be taken back, and the link below may have no room for it. So the bytes of a record count as
//! accepted when the last byte of the record was: until then they are offered again, and skipped.

use longarm_memory::Region;
use snow::TransportState;

use super::records::{
    BATCH_RECORDS, LENGTH_BYTES, PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX, RECORDS_PER_KEY, ShortOnes, fit,
};
use crate::link_error::LinkError;
use crate::traits::Link;

/// See the module.
pub(super) struct Sender {
    /// Both as long as the longest that was sealed since they were last given back.
    payload: Vec<u8>,
    batch: Vec<u8>,
    /// Batches in a row that would have fit into what is kept.
    short_ones: ShortOnes,
    /// Of the batch: bytes that were sent, and bytes there are.
    sent: usize,
    end: usize,
    /// Bytes that the batch carries, and how many of them were accepted. All records of a batch but the last are full.
    carried: usize,
    accepted: usize,
}

impl Sender {
    pub(super) fn new() -> Sender {
        Sender {
            payload: Vec::new(),
            batch: Vec::new(),
            short_ones: ShortOnes::default(),
            sent: 0,
            end: 0,
            carried: 0,
            accepted: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.payload.capacity() + self.batch.capacity()
    }

    /// As [`Link::send`].
    pub(super) fn send(
        &mut self,
        link: &mut dyn Link,
        noise: &mut TransportState,
        regions: &[Region<'_>],
    ) -> Result<usize, LinkError> {
        let offered: usize = regions.iter().map(Region::len).sum();
        if self.accepted == self.carried {
            self.seal(noise, regions, offered.min(BATCH_RECORDS * PAYLOAD_BYTES_MAX))?;
        }
        let mut failed = None;
        while self.sent < self.end {
            match link.send(&[Region::from_slice(&self.batch[self.sent..self.end])]) {
                Ok(0) => break,
                Ok(sent) => self.sent += sent,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let whole_records = self.sent / RECORD_BYTES_MAX;
        let gone = if self.sent == self.end { self.carried } else { whole_records * PAYLOAD_BYTES_MAX };
        let accepted = (gone - self.accepted).min(offered);
        self.accepted += accepted;
        match failed {
            // What went out before may arrive, so it counts; the next call fails.
            Some(error) if accepted == 0 => Err(error),
            _ => Ok(accepted),
        }
    }

    /// The first `bytes` of the regions become the next batch.
    fn seal(&mut self, noise: &mut TransportState, regions: &[Region<'_>], bytes: usize) -> Result<(), LinkError> {
        (self.sent, self.end, self.carried, self.accepted) = (0, 0, 0, 0);
        let overhead_bytes = bytes.div_ceil(PAYLOAD_BYTES_MAX) * (RECORD_BYTES_MAX - PAYLOAD_BYTES_MAX);
        let batch_bytes = bytes + overhead_bytes;
        self.short_ones.note(batch_bytes);
        if self.short_ones.give_back(&self.batch) {
            (self.payload, self.batch) = (Vec::new(), Vec::new());
        }
        fit(&mut self.payload, bytes.min(PAYLOAD_BYTES_MAX));
        fit(&mut self.batch, batch_bytes);
        let mut source = Source { regions, offset: 0 };
        while self.carried < bytes {
            let count = (bytes - self.carried).min(PAYLOAD_BYTES_MAX);
            source.copy_to(&mut self.payload[..count]);
            let (length, encrypted) = self.batch[self.end..].split_at_mut(LENGTH_BYTES);
            // Fails only when the numbers of records are used up, and no connection lives for that long.
            let written = noise.write_message(&self.payload[..count], encrypted).map_err(|_| LinkError::Reset)?;
            length.copy_from_slice(&(written as u16).to_le_bytes());
            if noise.sending_nonce().is_multiple_of(RECORDS_PER_KEY) {
                noise.rekey_outgoing();
            }
            self.end += LENGTH_BYTES + written;
            self.carried += count;
        }
        Ok(())
    }
}

/// Regions that are copied out from front to back.
struct Source<'a, 'b> {
    regions: &'a [Region<'b>],
    /// Into the first of them.
    offset: usize,
}

impl Source<'_, '_> {
    /// Fills `target`. There are at least as many bytes left.
    fn copy_to(&mut self, target: &mut [u8]) {
        let mut filled = 0;
        while filled < target.len() {
            let region = self.regions[0];
            let bytes = (target.len() - filled).min(region.len() - self.offset);
            region.slice(self.offset, bytes).copy_to_slice(&mut target[filled..filled + bytes]);
            filled += bytes;
            self.offset += bytes;
            if self.offset == region.len() {
                self.regions = &self.regions[1..];
                self.offset = 0;
            }
        }
    }
}
