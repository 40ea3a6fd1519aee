//! What the two ends tell each other over the proven TCP connection before they leave it for the queue pair.
//!
//! ```text
//!   caller                                    called
//!     │── record: queue, GID, first packet ─────►│
//!     │◄─ record: the same ──────────────────────│  its queue answers from here on
//!     │── READY, or KEEP_TCP ───────────────────►│  and sends from here on
//! ```
//!
//! Between devices of iWARP the connection manager of the RDMA devices connects the queues: the called side's record says where
//! it listens, and the caller calls there with the number of the connection. In place of READY it sends a first message over the
//! queue, before which the called side may send nothing.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// The caller's queue is connected: what follows goes over it.
pub const READY: u8 = b'R';
/// It could not be connected: what follows goes over TCP.
pub const KEEP_TCP: u8 = b'K';

const MAGIC: [u8; 4] = *b"LGV3";

/// One side of a connection, as the other needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// This side has a device and wants to use it.
    pub usable: bool,
    /// Its packets travel over Ethernet.
    pub is_ethernet: bool,
    /// Its device speaks iWARP: queues are connected by the connection manager, at `gid` and `port`, and `queue`, `lid` and
    /// `mtu_code` say nothing. The other side's has to be of the same kind.
    pub is_iwarp: bool,
    /// The code of the largest payload of a packet: 1 stands for 256 bytes, 5 for 4096.
    pub mtu_code: u8,
    /// Reads that it answers at a time.
    pub reads_in: u8,
    /// The number of its queue pair.
    pub queue: u32,
    /// The number of the first packet that it sends; of the first message over iWARP, where packets have none.
    pub first_packet: u32,
    /// Its address in an InfiniBand network.
    pub lid: u16,
    /// Where the called side's connection manager listens, over iWARP.
    pub port: u16,
    /// Messages that it has buffers for.
    pub credits: u16,
    /// How long a message may be.
    pub slab_bytes: u32,
    /// Which packet, or message, the called side would have taken next over the connection `previous`, if it still knows.
    pub executed: Option<u32>,
    /// Its address: a GID, or over iWARP one of IP, in the form of version 6.
    pub gid: [u8; 16],
    /// What the caller calls this connection: a random number, as those of queues are given out again. 0 names none.
    pub connection: u64,
    /// What it called the one before.
    pub previous: u64,
}

/// The bytes are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRecord;

impl Record {
    /// Its bytes.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        let flags = [self.usable, self.is_ethernet, self.executed.is_some(), self.is_iwarp];
        bytes[4] = (0..).zip(flags).fold(0, |sum, (bit, flag)| sum | u8::from(flag) << bit);
        bytes[5] = self.mtu_code;
        bytes[6] = self.reads_in;
        bytes[8..12].copy_from_slice(&self.queue.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.first_packet.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.lid.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.credits.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.slab_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.executed.unwrap_or(0).to_le_bytes());
        bytes[28..30].copy_from_slice(&self.port.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.gid);
        bytes[48..56].copy_from_slice(&self.connection.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.previous.to_le_bytes());
        bytes
    }

    /// Reads a record, and checks what can be checked here.
    ///
    /// # Errors
    /// [`NoRecord`] if the bytes are something else, or the numbers make no sense.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, NoRecord> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        let flags = bytes[4];
        let record = Record {
            usable: flags & 1 != 0,
            is_ethernet: flags & 2 != 0,
            is_iwarp: flags & 8 != 0,
            mtu_code: bytes[5],
            reads_in: bytes[6],
            queue: word(8),
            first_packet: word(12),
            lid: half(16),
            port: half(28),
            credits: half(18),
            slab_bytes: word(20),
            executed: (flags & 4 != 0).then(|| word(24)),
            gid: bytes[32..48].try_into().expect("sixteen bytes"),
            connection: long(48),
            previous: long(56),
        };
        let small = |number: u32| number < 1 << 24;
        let makes_sense = (1..=5).contains(&record.mtu_code)
            && record.credits >= CREDITS_MIN
            && record.slab_bytes >= 256
            && small(record.queue)
            && small(record.first_packet);
        // What it leaves open is zero.
        let is_whole = record.executed.is_none_or(small) && record.encode() == *bytes;
        let is_record = is_whole && (!record.usable || makes_sense);
        if is_record { Ok(record) } else { Err(NoRecord) }
    }
}

/// With fewer buffers than these a side could not both send and give buffers back.
pub const CREDITS_MIN: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            usable: true,
            is_ethernet: true,
            is_iwarp: false,
            mtu_code: 5,
            reads_in: 16,
            queue: 0x00ab_cdef,
            first_packet: 0x0012_3456,
            lid: 7,
            port: 0,
            credits: 8,
            slab_bytes: 8192,
            executed: Some(99),
            gid: [9; 16],
            connection: 17,
            previous: u64::MAX,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let iwarp = Record { is_iwarp: true, port: 0xfedc, ..record() };
        for record in [record(), Record { executed: None, ..record() }, iwarp, Record::default()] {
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
            Record { executed: Some(1 << 24), ..Record::default() },
        ];
        for record in wrong {
            assert_eq!(Record::decode(&record.encode()), Err(NoRecord), "{record:?}");
        }
        let mut bytes = record().encode();
        bytes[0] = b'X';
        assert_eq!(Record::decode(&bytes), Err(NoRecord));
        let mut bytes = Record::default().encode();
        bytes[31] = 1;
        assert_eq!(Record::decode(&bytes), Err(NoRecord), "nothing may stand there");
    }
}
