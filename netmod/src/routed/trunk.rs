//! One trunk, the link to another node's router, or one line, that of a rank of this node to the router here: what waits to be sent over it, and what has
//! come and is not cut into records yet.

use std::collections::HashMap;
use std::ops::Range;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{
    ChannelNumber, NodeId, TRUNK_CONTROL_BYTES_MAX, TRUNK_DATA_BYTES_MAX, TRUNK_HEADER_BYTES, TrunkHeader, TrunkRecord,
    TrunkViolation,
};

use super::channel::Buffer;
use super::line::{LINE, SocketLink};
use super::table::ChannelKey;
use crate::calls::Call;
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::traits::Link;

/// Bytes that wait to be sent before no more are taken from channels.
const OUTGOING_BYTES_MAX: usize = 256 << 10;
/// Data of a channel that is copied in order to be sent together with that of others, at most.
pub(super) const COPIED_BYTES_MAX: usize = 4 << 10;
/// Bytes that wait for others to be sent with them, at most.
pub(super) const CORKED_BYTES_MAX: usize = 32 << 10;
/// Bytes that one call brings in.
const INCOMING_BYTES: usize = 64 << 10;

/// How far the connection is.
pub(super) enum Going {
    /// It is being made, and both sides prove themselves. Nobody makes it but who opens channels.
    Calling { call: Box<Call>, since_ms: u64 },
    /// It carries records.
    Up(Box<dyn Link>),
}

/// See the module.
pub(super) struct Trunk {
    pub(super) going: Going,
    /// A line: its other end is a rank of this node, or the router of this node at that rank.
    pub(super) is_line: bool,
    /// What was called; `None` at the node that was.
    pub(super) address: Option<String>,
    /// The other node.
    pub(super) node: NodeId,
    /// Channels by their number.
    pub(super) channels: HashMap<ChannelNumber, ChannelKey>,
    /// The last number that was given to a channel.
    pub(super) last_channel: ChannelNumber,
    /// Of the side that opens channels: the last one of which the other side has said anything. It answers each at once, one after the other.
    pub(super) last_answered: ChannelNumber,
    pub(super) unanswered: Unanswered,
    /// Channels that wait for room.
    pub(super) starved: Vec<ChannelKey>,
    /// What the poller looks for.
    pub(super) interest: Interest,
    /// What waits to be sent goes out at the end of the turn.
    pub(super) is_corked: bool,
    /// Of a rank's own line: it took less than it was offered, and nothing has said since that it takes more.
    pub(super) is_full: bool,
    /// Of a rank's own line: data that was begun and did not go out whole.
    begun: Option<Begun>,
    /// The last look that has found nothing.
    looked_in_vain: Option<VainLook>,
    outgoing: Buffer,
    /// What has come and is not cut into records lies between `start` and `end`. Empty: the trunk has no buffer, and borrows one before it receives.
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
    /// The channel whose data comes next, and how much of it.
    data: Option<(ChannelNumber, usize)>,
}

/// A look at a line that has found nothing.
struct VainLook {
    /// Whose owner has looked.
    key: ChannelKey,
    at_ms: u64,
    /// Others that have not looked since.
    skipped: usize,
}

/// After so long everybody looks again.
const LOOK_AGAIN_MS: u64 = 10;

/// A record of data, of which nothing but the rest may go out next.
struct Begun {
    key: ChannelKey,
    /// What is left of its head.
    head: Vec<u8>,
    /// What is left of its data.
    data_bytes: usize,
}

/// How long the opening of a channel has waited for its answer over a trunk, and how long that may last. A node that shares its
/// processors with many takes seconds to answer, and to make its trunk anew would take it more: who has been slow may be slow again.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// Since when no opening is answered although one waits.
    since_ms: Option<u64>,
    /// When something else came, which does not say that anything arrives over there.
    heard_ms: u64,
    /// The longest that an answer took, the making of the trunk included.
    slowest_ms: u64,
}

/// The number of the session that a trunk says to carry. No rank has one of this number.
pub const TRUNK_SESSION: u64 = u64::MAX;

/// An opening is unanswered for too long after this, ...
const PATIENCE_MS: u64 = 3000;
/// ... or after so many times the slowest answer, if that is longer; for ranks that give up sooner see `RoutedOptions::unanswered_ms_max`.
const PATIENCE_FACTOR: u64 = 4;

impl Unanswered {
    /// Towards a node that has taken so long to answer before.
    pub(super) fn of_slow_node(slowest_ms: u64) -> Unanswered {
        Unanswered { slowest_ms, ..Unanswered::default() }
    }

    /// Whether an opening waits.
    pub(super) fn lasts(&self) -> bool {
        self.since_ms.is_some()
    }

    /// An opening waits.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.since_ms.get_or_insert(now_ms);
    }

    /// Something has come.
    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// An opening is answered. Others, if some wait, do so since now.
    pub(super) fn end(&mut self, now_ms: u64, others_wait: bool) {
        self.slowest_ms = self.slowest_at(now_ms);
        self.since_ms = others_wait.then_some(now_ms);
    }

    /// The trunk that was called then is there. Its channels, if it has some, wait since now.
    pub(super) fn end_of_call(&mut self, called_ms: u64, now_ms: u64, has_channels: bool) {
        self.since_ms = Some(called_ms);
        self.end(now_ms, has_channels);
    }

    /// The longest that an answer took, if one came now.
    pub(super) fn slowest_at(&self, now_ms: u64) -> u64 {
        self.since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms)).max(self.slowest_ms)
    }

    /// Whether it has lasted for too long, of so long at most, whatever else comes.
    pub(super) fn is_over(&self, now_ms: u64, max_ms: u64) -> bool {
        let patience_ms = (PATIENCE_FACTOR * self.slowest_ms).max(PATIENCE_MS).min(max_ms);
        let is_over =
            |since_ms: u64| now_ms >= since_ms.max(self.heard_ms) + patience_ms || now_ms >= since_ms + max_ms;
        self.since_ms.is_some_and(is_over)
    }
}

/// What one call has brought in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Nothing,
    /// There may be more.
    Some,
    /// All that was there.
    All,
}

/// What came over a trunk.
pub(super) enum Arrival {
    Record(TrunkHeader),
    /// Data of a channel, as much as is there: which of the bytes that have come.
    Data(ChannelNumber, Range<usize>),
}

impl Trunk {
    pub(super) fn new(going: Going, address: Option<String>, node: NodeId) -> Trunk {
        Trunk {
            going,
            is_line: false,
            address,
            node,
            channels: HashMap::new(),
            last_channel: ChannelNumber(0),
            last_answered: ChannelNumber(0),
            unanswered: Unanswered::default(),
            starved: Vec::new(),
            interest: Interest::READABLE,
            is_corked: false,
            is_full: false,
            begun: None,
            looked_in_vain: None,
            outgoing: Buffer::default(),
            incoming: Box::default(),
            start: 0,
            end: 0,
            data: None,
        }
    }

    /// The line of a rank of this node, which is there already. `is_ours`: the rank is this one.
    pub(super) fn line(link: SocketLink, is_ours: bool, node: NodeId) -> Trunk {
        let address = is_ours.then(|| LINE.to_owned());
        Trunk { is_line: true, ..Trunk::new(Going::Up(Box::new(link)), address, node) }
    }

    pub(super) fn link(&mut self) -> Option<&mut dyn Link> {
        match &mut self.going {
            Going::Up(link) => Some(&mut **link),
            Going::Calling { .. } => None,
        }
    }

    /// Whether we have called, and open its channels.
    pub(super) fn is_ours(&self) -> bool {
        self.address.is_some()
    }

    /// The other side says something of a channel. If it is the first, that answers its opening, and so all earlier ones; later ones wait from now on.
    /// Not over a line, where the other end answers when it knows where a channel leads.
    /// Called with every record, so the clock is read only for an answer.
    pub(super) fn note_answer(&mut self, channel: ChannelNumber, now_ms: impl FnOnce() -> u64) {
        if channel <= self.last_answered || self.is_line || !self.is_ours() {
            return;
        }
        self.last_answered = channel;
        self.unanswered.end(now_ms(), self.has_unanswered());
    }

    /// Whether a channel waits for the answer to its opening.
    pub(super) fn has_unanswered(&self) -> bool {
        self.last_answered < self.last_channel
    }

    /// For messages to people.
    pub(super) fn name(&self) -> String {
        match &self.going {
            Going::Up(link) if self.is_line => link.peer_name().to_owned(),
            Going::Up(link) => format!("node {} by {}", self.node, link.peer_name()),
            Going::Calling { .. } => format!("node {}", self.node),
        }
    }

    /// Whether it is the line of this rank.
    pub(super) fn is_own_line(&self) -> bool {
        self.is_line && self.is_ours()
    }

    /// Whether something waits that could be sent if the link took more. Behind data that was begun, the rest of which its channel's owner has, nothing could.
    pub(super) fn wants_write(&self) -> bool {
        self.is_full || (self.begun.is_none() && !self.outgoing.is_empty())
    }

    /// How much data of this channel is left of a record that did not go out whole, if there is one.
    pub(super) fn begun_by(&self, key: ChannelKey) -> Option<usize> {
        self.begun.as_ref().filter(|begun| begun.key == key).map(|begun| begun.data_bytes)
    }

    /// Whether the owner of a channel, who has found nothing there, looks for more. Who looks at many channels one after the other finds as little behind the
    /// second as behind the first one.
    pub(super) fn is_worth_a_look_of(&mut self, key: ChannelKey, now_ms: u64) -> bool {
        if let Some(look) = &mut self.looked_in_vain
            && look.key != key
            && look.skipped < self.channels.len()
            && now_ms < look.at_ms + LOOK_AGAIN_MS
        {
            look.skipped += 1;
            return false;
        }
        self.looked_in_vain = Some(VainLook { key, at_ms: now_ms, skipped: 0 });
        true
    }

    /// Whether another channel is in the middle of a record.
    pub(super) fn is_begun_by_another(&self, key: ChannelKey) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.key != key)
    }

    /// Whether what is said over it is received.
    pub(super) fn check_unreceived(&self) -> Result<(), TrunkViolation> {
        let bytes = self.unsent_bytes();
        // Its data is no more than was room for, and a record that was begun then.
        if bytes > OUTGOING_BYTES_MAX + TRUNK_DATA_BYTES_MAX + TRUNK_CONTROL_BYTES_MAX {
            return Err(TrunkViolation::Unreceived { bytes });
        }
        Ok(())
    }

    /// How much data channels may hand over now.
    pub(super) fn room(&self) -> usize {
        match self.going {
            Going::Up(_) if self.is_full => 0,
            Going::Up(_) => OUTGOING_BYTES_MAX.saturating_sub(self.unsent_bytes()),
            Going::Calling { .. } => 0,
        }
    }

    /// Says something of a channel, behind all that was said before.
    pub(super) fn say(&mut self, channel: ChannelNumber, record: TrunkRecord) {
        self.outgoing.push(&TrunkHeader { channel, record }.encode());
    }

    /// How much has been said and not been sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outgoing.ready().len()
    }

    /// What waits to be sent.
    pub(super) fn waiting(&mut self) -> &mut Buffer {
        &mut self.outgoing
    }

    /// Takes all bytes of the regions as the next data of a channel, a copy of them, to be sent later.
    pub(super) fn keep_data(&mut self, channel: ChannelNumber, regions: &[Region<'_>]) {
        self.say(channel, data_record(regions));
        regions.iter().for_each(|region| self.outgoing.push_region(*region));
    }

    /// Takes all bytes of the regions as the next data of a channel. They are sent from where they are as far as that goes,
    /// the rest is copied.
    pub(super) fn say_data(&mut self, channel: ChannelNumber, regions: &[Region<'_>]) -> Result<(), LinkError> {
        let header = TrunkHeader { channel, record: data_record(regions) }.encode();
        let mut whole = Vec::with_capacity(1 + regions.len());
        whole.push(Region::from_slice(&header));
        whole.extend_from_slice(regions);
        self.flush()?;
        let mut gone = match &mut self.going {
            Going::Up(link) if self.outgoing.is_empty() => link.send(&whole)?,
            _ => 0,
        };
        for region in whole {
            let skipped = gone.min(region.len());
            gone -= skipped;
            self.outgoing.push_region(region.slice(skipped, region.len() - skipped));
        }
        Ok(())
    }

    /// Sends data of a channel over the line of this rank, as far as that takes it now, and gives how much that was. Nobody drives a line while the
    /// program computes, so what it does not take stays the caller's: nothing else goes out before the rest of the same data.
    pub(super) fn offer_data(
        &mut self,
        (key, channel): (ChannelKey, ChannelNumber),
        regions: &[Region<'_>],
    ) -> Result<usize, LinkError> {
        self.flush()?;
        self.is_full = self.begun.is_none() && !self.outgoing.is_empty();
        if self.is_full || self.is_begun_by_another(key) {
            return Ok(0);
        }
        let offered: usize = regions.iter().map(|region| region.len()).sum();
        let mut begun = self.begun.take().unwrap_or_else(|| {
            let head = TrunkHeader { channel, record: data_record(regions) }.encode().to_vec();
            Begun { key, head, data_bytes: offered }
        });
        assert!(offered <= begun.data_bytes, "no more than what was begun is offered");
        let Going::Up(link) = &mut self.going else { unreachable!("a line is there from the beginning") };
        let mut whole = Vec::with_capacity(1 + regions.len());
        whole.push(Region::from_slice(&begun.head));
        whole.extend_from_slice(regions);
        let sent = link.send(&whole)?;
        self.is_full = sent < begun.head.len() + offered;
        if sent == 0 && begun.head.len() == TRUNK_HEADER_BYTES {
            return Ok(0); // Nothing has begun.
        }
        let data_sent = sent.saturating_sub(begun.head.len());
        begun.head.drain(..sent.min(begun.head.len()));
        begun.data_bytes -= data_sent;
        if begun.data_bytes > 0 {
            self.begun = Some(begun);
        } else {
            self.flush()?;
        }
        Ok(data_sent)
    }

    /// Sends what the link takes.
    pub(super) fn flush(&mut self) -> Result<(), LinkError> {
        if self.begun.is_some() {
            return Ok(());
        }
        let Going::Up(link) = &mut self.going else { return Ok(()) };
        while !self.outgoing.is_empty() {
            match link.send(&[Region::from_slice(self.outgoing.ready())])? {
                0 => break,
                bytes => self.outgoing.pass(bytes),
            }
        }
        Ok(())
    }

    /// Takes a buffer to receive into, if the trunk has none: the one that all share, unless another trunk has it.
    pub(super) fn borrow_buffer(&mut self, shared: &mut Option<Box<[u8]>>) {
        if self.incoming.is_empty() {
            self.incoming = shared.take().unwrap_or_else(|| vec![0; INCOMING_BYTES].into_boxed_slice());
        }
    }

    /// Gives it back, if nothing is left in it.
    pub(super) fn return_buffer(&mut self, shared: &mut Option<Box<[u8]>>) {
        if self.start == self.end && !self.incoming.is_empty() {
            (self.start, self.end) = (0, 0);
            *shared = Some(std::mem::take(&mut self.incoming));
        }
    }

    /// Brings bytes in.
    pub(super) fn receive(&mut self) -> Result<Received, LinkError> {
        let Going::Up(link) = &mut self.going else { return Ok(Received::Nothing) };
        if self.start > 0 {
            self.incoming.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let got = link.receive(&[RegionMut::from_slice(&mut self.incoming[self.end..])])?;
        self.end += got;
        if got > 0 {
            self.looked_in_vain = None;
        }
        Ok(match got {
            0 => Received::Nothing,
            _ if self.end < self.incoming.len() && !link.holds_bytes() => Received::All,
            _ => Received::Some,
        })
    }

    /// If the next bytes of the trunk are data of this channel, brings them in where they belong. `None`: they are not.
    pub(super) fn receive_data(
        &mut self,
        channel: ChannelNumber,
        regions: &[RegionMut<'_>],
    ) -> Result<Option<usize>, LinkError> {
        let (Going::Up(link), Some((expected, remaining))) = (&mut self.going, self.data) else { return Ok(None) };
        if expected != channel || self.start < self.end {
            return Ok(None);
        }
        let regions = limited(regions, remaining);
        let mut got = link.receive(&regions)?;
        // A link that announces nothing by itself is asked to.
        while got == 0 && link.arm() {
            got = link.receive(&regions)?;
        }
        self.data = (got < remaining).then_some((channel, remaining - got));
        Ok(Some(got))
    }

    /// Some of the bytes that have come.
    pub(super) fn incoming(&self, bytes: Range<usize>) -> &[u8] {
        &self.incoming[bytes]
    }

    /// Takes the buffer of what has come, for who hands some of it on. Nothing may come before it is back.
    pub(super) fn take_incoming(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.incoming)
    }

    /// Puts it back.
    pub(super) fn put_incoming(&mut self, incoming: Box<[u8]>) {
        self.incoming = incoming;
    }

    /// The next of what has come, if there is a whole record, or some data.
    pub(super) fn next(&mut self) -> Result<Option<Arrival>, TrunkViolation> {
        let ready = self.end - self.start;
        if let Some((channel, remaining)) = self.data {
            let bytes = remaining.min(ready);
            if bytes == 0 {
                return Ok(None);
            }
            self.data = (bytes < remaining).then_some((channel, remaining - bytes));
            self.start += bytes;
            return Ok(Some(Arrival::Data(channel, self.start - bytes..self.start)));
        }
        if ready < TRUNK_HEADER_BYTES {
            return Ok(None);
        }
        let bytes = &self.incoming[self.start..self.start + TRUNK_HEADER_BYTES];
        let header = TrunkHeader::decode(bytes.try_into().expect("taken with this length"))?;
        self.start += TRUNK_HEADER_BYTES;
        if let TrunkRecord::Data(bytes) = header.record {
            self.data = Some((header.channel, bytes as usize));
        }
        Ok(Some(Arrival::Record(header)))
    }
}

/// The record of all bytes of the regions.
///
/// # Panics
/// When they do not fit into one, or there are none.
fn data_record(regions: &[Region<'_>]) -> TrunkRecord {
    let bytes: usize = regions.iter().map(|region| region.len()).sum();
    assert!((1..=TRUNK_DATA_BYTES_MAX).contains(&bytes), "{bytes} bytes do not fit into a record");
    TrunkRecord::Data(bytes as u32)
}

/// The regions up to so many bytes.
pub(super) fn limited<'a>(regions: &[RegionMut<'a>], mut bytes: usize) -> Vec<RegionMut<'a>> {
    let mut limited = Vec::with_capacity(regions.len());
    for region in regions {
        let taken = bytes.min(region.len());
        bytes -= taken;
        if taken > 0 {
            limited.push(region.slice(0, taken));
        }
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_slow_is_waited_for_longer_but_not_for_ever() {
        let max_ms = 8000;
        let mut unanswered = Unanswered::default();
        assert!(!unanswered.is_over(u64::MAX, max_ms), "nobody waits");
        unanswered.begin(100);
        unanswered.begin(700); // One more waits, and the first waits on.
        assert!(!unanswered.is_over(100 + PATIENCE_MS - 1, max_ms) && unanswered.is_over(100 + PATIENCE_MS, max_ms));
        assert!(unanswered.is_over(100 + 1000, 1000), "ranks wait no longer");
        unanswered.end(1100, false);
        assert!(!unanswered.is_over(u64::MAX, max_ms), "it was answered");
        unanswered.begin(2000);
        assert!(!unanswered.is_over(2000 + 4 * 1000 - 1, max_ms) && unanswered.is_over(2000 + 4 * 1000, max_ms));
        unanswered.end(2001, false);
        unanswered.begin(3000);
        assert!(!unanswered.is_over(3000 + 4 * 1000 - 1, max_ms), "the slowest counts, not the last");
        assert_eq!(unanswered.slowest_at(9000), 6000, "what is not answered counts too");
        unanswered.end(60_000, false);
        unanswered.begin(100_000);
        assert!(!unanswered.is_over(100_000 + max_ms - 1, max_ms) && unanswered.is_over(100_000 + max_ms, max_ms));
    }

    #[test]
    fn other_bytes_prolong_the_wait_for_an_answer_but_not_for_ever() {
        let mut unanswered = Unanswered::default();
        unanswered.begin(1000);
        unanswered.heard(3000);
        assert!(!unanswered.is_over(3000 + PATIENCE_MS - 1, 8000) && unanswered.is_over(3000 + PATIENCE_MS, 8000));
        unanswered.heard(8999);
        assert!(!unanswered.is_over(8999, 8000) && unanswered.is_over(9000, 8000), "whatever else comes");
        unanswered.end(8999, false);
        unanswered.begin(20_000);
        assert!(!unanswered.is_over(20_000 + 8000 - 1, 8000), "that was a slow answer");
    }

    #[test]
    fn an_answer_ends_the_wait_of_earlier_channels_and_not_of_later_ones() {
        let (link, _other) = crate::routed::line::pair("a trunk").unwrap();
        let mut trunk = Trunk::new(Going::Up(Box::new(link)), Some("there".to_owned()), NodeId(1));
        trunk.last_channel = ChannelNumber(3);
        trunk.unanswered.begin(100);
        trunk.note_answer(ChannelNumber(2), || 600);
        assert!(trunk.unanswered.lasts() && trunk.unanswered.is_over(600 + PATIENCE_MS, 8000), "the third waits on");
        assert!(!trunk.unanswered.is_over(600 + PATIENCE_MS - 1, 8000), "from now on");
        trunk.note_answer(ChannelNumber(3), || 700);
        assert!(!trunk.unanswered.lasts());
    }

    #[test]
    fn of_channels_whose_owner_looks_at_all_in_turn_one_looks_at_the_line() {
        let (link, _other) = crate::routed::line::pair("a line").unwrap();
        let mut line = Trunk::line(link, true, NodeId(0));
        line.channels.extend((0..3).map(|number| (ChannelNumber(number), ChannelKey::of_token(number.into()))));
        let mut look = |key| line.is_worth_a_look_of(ChannelKey::of_token(key), 5);
        for _ in 0..2 {
            assert_eq!([0, 1, 2].map(&mut look), [true, false, false]);
        }
        assert_eq!([1; 4].map(&mut look), [false, true, true, true], "who looks at one alone looks each time, soon");
        assert!(line.is_worth_a_look_of(ChannelKey::of_token(2), 5 + LOOK_AGAIN_MS), "that was long ago");
        line.looked_in_vain = None;
        assert!(line.is_worth_a_look_of(ChannelKey::of_token(1), 5 + LOOK_AGAIN_MS), "something has come");
    }

    #[test]
    fn trunks_have_one_buffer_for_what_comes_but_for_one_that_waits_for_the_rest_of_a_record() {
        let (mut first, mut second) =
            (crate::routed::line::pair("a").unwrap(), crate::routed::line::pair("b").unwrap());
        let mut shared = None;
        let record = TrunkHeader { channel: ChannelNumber(1), record: TrunkRecord::Credit(7) }.encode();
        let (begin, rest) = record.split_at(5);
        let mut waits = Trunk::line(first.1, false, NodeId(0));
        let mut receive = |trunk: &mut Trunk, from: &mut SocketLink, bytes: &[u8]| {
            assert_eq!(from.send(&[Region::from_slice(bytes)]).unwrap(), bytes.len());
            trunk.borrow_buffer(&mut shared);
            assert!(trunk.receive().unwrap() == Received::All);
            let is_whole = matches!(trunk.next().unwrap(), Some(Arrival::Record(_)));
            trunk.return_buffer(&mut shared);
            (is_whole, trunk.incoming.len(), shared.is_some())
        };
        assert_eq!(receive(&mut waits, &mut first.0, begin), (false, INCOMING_BYTES, false));
        let mut other = Trunk::line(second.1, false, NodeId(0));
        assert_eq!(receive(&mut other, &mut second.0, &record), (true, 0, true));
        assert_eq!(receive(&mut waits, &mut first.0, rest), (true, 0, true));
    }

    #[test]
    fn the_making_of_a_trunk_is_an_answer_too() {
        let mut unanswered = Unanswered::default();
        unanswered.end_of_call(500, 1500, true);
        assert!(!unanswered.is_over(1500 + 4 * 1000 - 1, 8000) && unanswered.is_over(1500 + 4 * 1000, 8000));
        unanswered.end_of_call(1500, 1500, false);
        assert!(!unanswered.lasts(), "nothing waits for an answer");
    }
}
