//! What the two ends tell each other over the proven TCP connection before they leave it for the queue pair.
//!
//! ```text
//!   caller                                    called
//!     │── record: queue, GID, first packet ─────►│
//!     │◄─ record: the same ──────────────────────│  its queue answers from here on
//!     │── READY, or KEEP_TCP ───────────────────►│  and sends from here on
//! ```

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 64;

/// The caller's queue is connected: what follows goes over it.
pub(crate) const READY: u8 = b'R';
/// It could not be connected: what follows goes over TCP.
pub(crate) const KEEP_TCP: u8 = b'K';

const MAGIC: [u8; 4] = *b"LGV1";

/// One side of a connection, as the other needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Record {
    /// This side has a device and wants to use it.
    pub(crate) usable: bool,
    pub(crate) is_ethernet: bool,
    pub(crate) mtu_code: u8,
    /// Reads that it answers at a time.
    pub(crate) reads_in: u8,
    pub(crate) queue: u32,
    pub(crate) first_packet: u32,
    pub(crate) lid: u16,
    /// Messages that it has buffers for.
    pub(crate) credits: u16,
    /// How long a message may be.
    pub(crate) slab_bytes: u32,
    /// The called side's queue of the connection that the caller had before, or 0.
    pub(crate) previous_queue: u32,
    /// Which packet that queue would have taken next, if it still knows.
    pub(crate) executed: Option<u32>,
    pub(crate) gid: [u8; 16],
}

/// The bytes are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRecord;

impl Record {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = u8::from(self.usable) | u8::from(self.is_ethernet) << 1 | u8::from(self.executed.is_some()) << 2;
        bytes[5] = self.mtu_code;
        bytes[6] = self.reads_in;
        bytes[8..12].copy_from_slice(&self.queue.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.first_packet.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.lid.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.credits.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.slab_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.previous_queue.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.executed.unwrap_or(0).to_le_bytes());
        bytes[32..48].copy_from_slice(&self.gid);
        bytes
    }

    /// Reads a record, and checks what can be checked here.
    ///
    /// # Errors
    /// [`NoRecord`] if the bytes are something else, or the numbers make no sense.
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, NoRecord> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        let flags = bytes[4];
        let record = Record {
            usable: flags & 1 != 0,
            is_ethernet: flags & 2 != 0,
            mtu_code: bytes[5],
            reads_in: bytes[6],
            queue: word(8),
            first_packet: word(12),
            lid: half(16),
            credits: half(18),
            slab_bytes: word(20),
            previous_queue: word(24),
            executed: (flags & 4 != 0).then(|| word(28)),
            gid: bytes[32..48].try_into().expect("sixteen bytes"),
        };
        let small = |number: u32| number < 1 << 24;
        let makes_sense = (1..=5).contains(&record.mtu_code)
            && record.credits >= CREDITS_MIN
            && record.slab_bytes >= 256
            && small(record.queue)
            && small(record.first_packet)
            && record.executed.is_none_or(small);
        let is_record = bytes[..4] == MAGIC && (!record.usable || makes_sense);
        if is_record { Ok(record) } else { Err(NoRecord) }
    }
}

/// With fewer buffers than these a side could not both send and give buffers back.
pub(crate) const CREDITS_MIN: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            usable: true,
            is_ethernet: true,
            mtu_code: 5,
            reads_in: 16,
            queue: 0x00ab_cdef,
            first_packet: 0x0012_3456,
            lid: 7,
            credits: 8,
            slab_bytes: 8192,
            previous_queue: 17,
            executed: Some(99),
            gid: [9; 16],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in [record(), Record { executed: None, ..record() }, Record::default()] {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_record() {
        let wrong = [
            Record { mtu_code: 0, ..record() },
            Record { mtu_code: 6, ..record() },
            Record { credits: CREDITS_MIN - 1, ..record() },
            Record { slab_bytes: 255, ..record() },
            Record { queue: 1 << 24, ..record() },
            Record { first_packet: 1 << 24, ..record() },
            Record { executed: Some(1 << 24), ..record() },
        ];
        for record in wrong {
            assert_eq!(Record::decode(&record.encode()), Err(NoRecord), "{record:?}");
        }
        let mut bytes = record().encode();
        bytes[0] = b'X';
        assert_eq!(Record::decode(&bytes), Err(NoRecord));
    }
}
