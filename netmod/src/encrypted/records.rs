//! How long records are, and how many come together.

/// Bytes of the tag behind what is encrypted.
pub(super) const TAG_BYTES: usize = 16;
/// Bytes of the length in front of a record.
pub(super) const LENGTH_BYTES: usize = 2;
/// Bytes that one record carries at most: small enough to stay in the nearest cache between the steps.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of the longest record.
pub(super) const RECORD_BYTES_MAX: usize = LENGTH_BYTES + PAYLOAD_BYTES_MAX + TAG_BYTES;
/// Records that are encrypted and sent, or received, by one call of the link below.
pub(super) const BATCH_RECORDS: usize = 4;
/// Bytes of these.
pub(super) const BATCH_BYTES: usize = BATCH_RECORDS * RECORD_BYTES_MAX;
/// The most bytes of a buffer that a connection keeps while it rests: enough for most small requests and their answers.
pub(super) const KEPT_BYTES_MAX: usize = 4 << 10;
/// A connection rests, as far as its buffers are concerned, when so many times in a row no more than that came or went.
pub(super) const SHORT_ONES_BEFORE_REST: u32 = 8;
/// After so many records of one direction its key is replaced by the next one, and the old one is forgotten. The
/// protocol would allow far more.
pub(super) const RECORDS_PER_KEY: u64 = 1 << 14;

/// Makes a buffer as long as that, if it is shorter.
pub(super) fn fit(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.reserve_exact(bytes - buffer.len());
        buffer.resize(bytes, 0);
    }
}

/// How often in a row there was so little that a connection may be at rest.
#[derive(Default)]
pub(super) struct ShortOnes(u32);

impl ShortOnes {
    /// So many bytes were there this time.
    pub(super) fn note(&mut self, bytes: usize) {
        self.0 = if bytes <= KEPT_BYTES_MAX { self.0.saturating_add(1) } else { 0 };
    }

    /// Whether a buffer is to go: it is longer than what a connection at rest keeps.
    pub(super) fn give_back(&self, buffer: &Vec<u8>) -> bool {
        self.0 >= SHORT_ONES_BEFORE_REST && buffer.capacity() > KEPT_BYTES_MAX
    }
}

const _: () = assert!(PAYLOAD_BYTES_MAX + TAG_BYTES <= u16::MAX as usize); // The length has to fit.
