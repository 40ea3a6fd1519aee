//! One rank's stream through a trunk or over a line, as a router has it.

use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{CHANNEL_BYTES_MAX, CHANNEL_CREDIT_BYTES_MIN, ChannelNumber, Credit, Mutation, mutation};

use super::table::{ChannelKey, TrunkKey};
use crate::beacon::Beacon;
use crate::interest::Interest;
use crate::link_error::LinkError;

/// What a router knows of a channel.
pub(super) struct Channel {
    /// `None` once nothing goes over it any more.
    pub(super) trunk: Option<TrunkKey>,
    pub(super) number: ChannelNumber,
    /// Data may go over it: the other end has it.
    pub(super) is_open: bool,
    /// How much the other side has room for.
    pub(super) may_send: Credit,
    /// How much we have room for.
    pub(super) may_come: Credit,
    /// What was passed on and the other side has not heard of.
    passed_bytes: u64,
    pub(super) end: End,
}

/// Who has this end of a channel.
pub(super) enum End {
    /// A link of this process.
    Here(Here),
    /// Nobody yet: a rank of this node is saying over its line where the channel is to lead. What it has said so far.
    Undecided(Vec<u8>),
    /// A rank of this node, or a node that it reaches: another channel, which leads there.
    Relay(Relay),
}

/// An end in this process.
pub(super) struct Here {
    pub(super) input: Buffer,
    /// Why nothing more comes behind that.
    pub(super) over: Option<LinkError>,
    /// Raised while there is something to do of what is wanted.
    beacon: Arc<Beacon>,
    wanted: Interest,
}

/// An end that another channel carries on.
pub(super) struct Relay {
    /// That one, which has this one as its own. `None`: it is over, and so is this one behind what waits.
    pub(super) other: Option<ChannelKey>,
    /// What came over the other one, and did not go out over this one yet.
    pub(super) output: Buffer,
}

impl Channel {
    pub(super) fn new(trunk: TrunkKey, number: ChannelNumber, is_open: bool, end: End) -> Channel {
        let (may_send, may_come) = (Credit::new(CHANNEL_BYTES_MAX), Credit::new(CHANNEL_BYTES_MAX));
        Channel { trunk: Some(trunk), number, is_open, may_send, may_come, passed_bytes: 0, end }
    }

    /// So many bytes were passed on. Gives how many the other side has to hear of now, if so.
    pub(super) fn pass(&mut self, bytes: usize) -> Option<u32> {
        self.may_come.give(bytes as u64);
        self.passed_bytes += bytes as u64;
        if self.passed_bytes < CHANNEL_CREDIT_BYTES_MIN || mutation(Mutation::ChannelCreditKept) {
            return None;
        }
        Some(std::mem::take(&mut self.passed_bytes) as u32)
    }

    /// What waits at this end.
    pub(super) fn waiting(&mut self) -> Option<&mut Buffer> {
        match &mut self.end {
            End::Here(here) => Some(&mut here.input),
            End::Relay(relay) => Some(&mut relay.output),
            End::Undecided(_) => None,
        }
    }

    /// How much it may send, as far as the other side is concerned.
    pub(super) fn sendable(&self) -> usize {
        if self.is_open { self.may_send.available() as usize } else { 0 }
    }

    /// Sees to it that an end in this process is told what it wants to know. `room`: how much its trunk takes.
    pub(super) fn signal(&mut self, room: usize) {
        let can_send = self.sendable().min(room) > 0;
        let End::Here(here) = &mut self.end else { return };
        let readable = here.wanted.readable && !here.input.is_empty();
        let writable = here.wanted.writable && can_send;
        let over = here.over.is_some() && here.wanted != Interest::default();
        if readable || writable || over {
            here.beacon.raise();
        } else {
            here.beacon.lower();
        }
    }
}

impl Relay {
    pub(super) fn of(other: ChannelKey) -> Relay {
        Relay { other: Some(other), output: Buffer::default() }
    }
}

impl Here {
    pub(super) fn new() -> (Here, Arc<Beacon>) {
        let beacon = Arc::new(Beacon::default());
        let here =
            Here { input: Buffer::default(), over: None, beacon: Arc::clone(&beacon), wanted: Interest::READABLE };
        (here, beacon)
    }

    pub(super) fn want(&mut self, wanted: Interest) {
        self.wanted = wanted;
    }
}

/// Bytes that wait in order.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

/// What a buffer keeps at rest, at most.
pub(super) const KEPT_BYTES_MAX: usize = 4 << 10;

impl Buffer {
    /// The memory that it takes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it takes more memory than at rest.
    pub(super) fn has_grown(&self) -> bool {
        self.kept_bytes() > KEPT_BYTES_MAX
    }

    /// Takes as little memory as at rest, if nothing waits.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn ready(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.push_region(Region::from_slice(bytes));
    }

    pub(super) fn push_region(&mut self, region: Region<'_>) {
        // Where more comes before all was passed it is never empty, and what was passed has to go all the same.
        if self.start >= self.bytes.len() - self.start {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        region.append_to(&mut self.bytes);
    }

    pub(super) fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Moves bytes to the regions, as many as fit.
    pub(super) fn take(&mut self, regions: &[RegionMut<'_>]) -> usize {
        let mut taken = 0;
        for region in regions {
            let bytes = region.len().min(self.bytes.len() - self.start - taken);
            let from = self.start + taken;
            region.slice(0, bytes).copy_from_slice(&self.bytes[from..from + bytes]);
            taken += bytes;
        }
        self.pass(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_never_empty_does_not_grow() {
        let mut buffer = Buffer::default();
        buffer.push(&[0; 1000]);
        for round in 1..=1000_u32 {
            buffer.push(&[round as u8; 1000]);
            assert_eq!(buffer.ready().len(), 2000);
            assert_eq!((buffer.ready()[0], buffer.ready()[1000]), ((round - 1) as u8, round as u8));
            buffer.pass(1000);
        }
        assert!(buffer.bytes.capacity() <= 10_000, "{}", buffer.bytes.capacity());
    }
}
