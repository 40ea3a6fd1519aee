//! What the servers of two nodes say to each other over a trunk: one connection that carries the byte streams of many ranks.
//!
//! A trunk is opened by the server whose ranks call, and carries channels that it opens. A channel is an ordered stream of bytes both
//! ways; what is in it is the ranks' own affair. Each side may send what the other has room for: [`CHANNEL_BYTES_MAX`] to
//! begin with, and then as much as the other says that it has passed on.
//!
//! ```text
//!   caller's server                                  called server
//!   Open(1) ─────────────────────────────────────────►  a channel begins
//!           ◄───────────────────────────────────────── Opened(1)
//!   Data(1, n), n bytes ─────────────────────────────►
//!           ◄───────────────────────────────────────── Credit(1, n)
//!   Close(1) ────────────────────────────────────────►  behind all its bytes
//! ```
//!
//! A rank that does not host its node's server reaches it over a **line**, a socket of the node that carries the same records. There a channel leads on: its
//! first data is the address it is to lead to, two bytes with the length and the text, and `Opened` says that it leads there, `Failed` that it does not.

use thiserror::Error;

use crate::ids::ChannelNumber;

/// Bytes of a record without its data.
pub const TRUNK_HEADER_BYTES: usize = 12;
/// Bytes of data that one record carries at most, so that many channels share a trunk evenly.
pub const TRUNK_DATA_BYTES_MAX: usize = 64 << 10;
/// Bytes that one side of a channel may have sent and the other not passed on.
pub const CHANNEL_BYTES_MAX: u64 = 256 << 10;

/// Channels of one trunk at a time. Each rank of the calling node has one, and perhaps one more that it has given up.
pub const TRUNK_CHANNELS_MAX: usize = 8192;
/// Bytes that wait to be sent over a trunk without being data of channels, at most. Who lets more come about sends and does not
/// receive.
pub const TRUNK_CONTROL_BYTES_MAX: usize = 2 << 20;
/// Bytes of a channel after which its sender hears that they were passed on.
pub const CHANNEL_CREDIT_BYTES_MIN: u64 = CHANNEL_BYTES_MAX / 4;

// All that can be said of all channels before anything is received: that each has begun and is over, and what was passed on.
const _: () = assert!(
    TRUNK_CHANNELS_MAX * (2 + (CHANNEL_BYTES_MAX / CHANNEL_CREDIT_BYTES_MIN) as usize) * TRUNK_HEADER_BYTES
        <= TRUNK_CONTROL_BYTES_MAX
);

/// What a record says of its channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrunkRecord {
    /// It begins. Numbers ascend over the life of a trunk.
    Open,
    /// It has begun.
    Opened,
    /// So many bytes of it follow.
    Data(u32),
    /// So many of its bytes were passed on, and as many more may be sent.
    Credit(u32),
    /// It is over. Nothing of it comes behind this.
    Close,
    /// On a line: it could not be opened, and is over.
    Failed(OpenFailure),
}

/// Why a channel of a line does not lead where it was to lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFailure {
    /// Nobody listens there.
    Refused,
    /// It takes too long.
    TimedOut,
    /// That is no address.
    BadAddress,
    /// The connection there broke.
    Lost,
}

impl OpenFailure {
    fn code(self) -> u32 {
        match self {
            OpenFailure::Refused => 1,
            OpenFailure::TimedOut => 2,
            OpenFailure::BadAddress => 3,
            OpenFailure::Lost => 4,
        }
    }

    fn of_code(code: u32) -> Option<OpenFailure> {
        use OpenFailure::{BadAddress, Lost, Refused, TimedOut};
        [Refused, TimedOut, BadAddress, Lost].into_iter().find(|failure| failure.code() == code)
    }
}

/// A record without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrunkHeader {
    /// The channel.
    pub channel: ChannelNumber,
    /// What is said of it.
    pub record: TrunkRecord,
}

/// What came over a trunk breaks its rules, and ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TrunkViolation {
    /// The bytes are no record.
    #[error("kind {kind} with value {value} is no record of a trunk; all nodes have to run the same longarm")]
    Record {
        /// What stands for the kind.
        kind: u32,
        /// What stands for the number of bytes.
        value: u32,
    },
    /// A record that this side never gets, or about a channel that was never opened.
    #[error("{record:?} of channel {channel}, which makes no sense now")]
    Unexpected {
        /// The channel.
        channel: ChannelNumber,
        /// What was said of it.
        record: TrunkRecord,
    },
    /// More bytes than there is room for, or more room than was ever asked for.
    #[error("channel {channel} goes beyond its credit")]
    Overdrawn {
        /// The channel.
        channel: ChannelNumber,
    },
    /// More channels at a time than a node has ranks for.
    #[error("channel {channel} would be one more than the {TRUNK_CHANNELS_MAX} that are possible at a time")]
    TooManyChannels {
        /// The channel.
        channel: ChannelNumber,
    },
    /// It causes records and does not receive them.
    #[error(
        "{bytes} bytes of records wait for it to receive them, at most {TRUNK_CONTROL_BYTES_MAX} are possible besides data"
    )]
    Unreceived {
        /// How much waits, data included.
        bytes: usize,
    },
}

impl TrunkHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; TRUNK_HEADER_BYTES] {
        let (kind, value): (u32, u32) = match self.record {
            TrunkRecord::Open => (1, 0),
            TrunkRecord::Opened => (2, 0),
            TrunkRecord::Data(bytes) => (3, bytes),
            TrunkRecord::Credit(bytes) => (4, bytes),
            TrunkRecord::Close => (5, 0),
            TrunkRecord::Failed(failure) => (6, failure.code()),
        };
        let mut bytes = [0; TRUNK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.channel.0.to_le_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`TrunkViolation::Record`], for data that is empty or too long too.
    pub fn decode(bytes: &[u8; TRUNK_HEADER_BYTES]) -> Result<TrunkHeader, TrunkViolation> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (kind, channel, value) = (word(0), word(4), word(8));
        let record = match (kind, value) {
            (1, 0) => TrunkRecord::Open,
            (2, 0) => TrunkRecord::Opened,
            (3, bytes) if (1..=TRUNK_DATA_BYTES_MAX as u32).contains(&bytes) => TrunkRecord::Data(bytes),
            (4, bytes) if (1..=CHANNEL_BYTES_MAX as u32).contains(&bytes) => TrunkRecord::Credit(bytes),
            (5, 0) => TrunkRecord::Close,
            (6, code) => match OpenFailure::of_code(code) {
                Some(failure) => TrunkRecord::Failed(failure),
                None => return Err(TrunkViolation::Record { kind, value }),
            },
            _ => return Err(TrunkViolation::Record { kind, value }),
        };
        Ok(TrunkHeader { channel: ChannelNumber(channel), record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let most = (TRUNK_DATA_BYTES_MAX as u32, CHANNEL_BYTES_MAX as u32);
        for record in [
            TrunkRecord::Open,
            TrunkRecord::Opened,
            TrunkRecord::Data(1),
            TrunkRecord::Data(most.0),
            TrunkRecord::Credit(1),
            TrunkRecord::Credit(most.1),
            TrunkRecord::Close,
            TrunkRecord::Failed(OpenFailure::Refused),
            TrunkRecord::Failed(OpenFailure::TimedOut),
            TrunkRecord::Failed(OpenFailure::BadAddress),
            TrunkRecord::Failed(OpenFailure::Lost),
        ] {
            let header = TrunkHeader { channel: ChannelNumber(0x0102_0304), record };
            assert_eq!(TrunkHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let words = |kind: u32, value: u32| {
            let mut bytes = [0; TRUNK_HEADER_BYTES];
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            bytes[8..].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        let too_much = (TRUNK_DATA_BYTES_MAX as u32 + 1, CHANNEL_BYTES_MAX as u32 + 1);
        for (kind, value) in
            [(0, 0), (1, 1), (3, 0), (3, too_much.0), (4, 0), (4, too_much.1), (5, 7), (6, 0), (6, 5), (7, 0)]
        {
            let refused = TrunkHeader::decode(&words(kind, value));
            assert_eq!(refused, Err(TrunkViolation::Record { kind, value }));
        }
    }
}
