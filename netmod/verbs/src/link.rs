//! One connection: a TCP connection first, which proves who is there, and a queue pair beside it from then on.
//!
//! ```text
//!   proving (over TCP) ──► agreeing (records, over TCP) ──► verbs: bytes over the queue pair, TCP tells when the peer is gone
//!                                   ├──► joining (manager) ───▲     over iWARP
//!                                   └─────────────────────► plain: bytes over TCP, where a side cannot or will not
//! ```

mod joining;
mod phase;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{DirectAccess, DirectOutcome, Interest, Link, LinkError, Poller};
use longarm_proto::rdma::{KEEP_TCP, READY, RECORD_BYTES, Record};

use crate::peers::Peers;
use crate::stream::{Promised, Stream};
use crate::unresolved::Unresolved;
use phase::{Agreeing, Phase, Then};

const TCP: u64 = 0;
const QUEUE: u64 = 1;
const ANSWERS: u64 = 2;
const MANAGER: u64 = 3;
/// Of ten milliseconds each, for what was sent last to be delivered.
const LINGER_MOMENTS: usize = 20;

/// Who of the two has called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// With the address that was called.
    Caller,
    Called,
}

pub(crate) struct VerbsLink {
    /// With the queue, which ends before TCP does: who sees the end there knows that no request is done any more.
    phase: Phase,
    tcp: Box<dyn Link>,
    shared: Arc<Peers>,
    side: Side,
    /// What the owner sleeps on: TCP, and the queue's completions.
    poller: Poller,
    /// TCP is watched for room too.
    awaits_room: bool,
    peer_name: String,
    /// Whom we call; failures are counted by it.
    address: String,
    pub(crate) ended: Option<LinkError>,
    /// Something has come over the queue.
    heard: bool,
    /// Nobody listens at the other end any more.
    abandoned: bool,
    /// Late answers of the stream are watched for.
    awaits_answers: bool,
    /// A send was refused although only the agreement stood in its way.
    turned_away: bool,
    /// Of direct transfers that the connection before this one had begun.
    pub(crate) outcomes: VecDeque<(u64, DirectOutcome)>,
}

impl VerbsLink {
    /// Around a TCP connection that may still be on its way.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub(crate) fn new(
        tcp: Box<dyn Link>,
        shared: Arc<Peers>,
        side: Side,
        address: String,
    ) -> Result<VerbsLink, LinkError> {
        let poller = Poller::new()?;
        // A caller's connection tells by its room that it is there.
        let awaits_room = side == Side::Caller;
        if let Some(descriptor) = tcp.descriptor() {
            let interest = if awaits_room { Interest::BOTH } else { Interest::READABLE };
            poller.add(descriptor, TCP, interest)?;
        }
        let peer_name = tcp.peer_name().to_owned();
        let phase = Phase::Proving;
        Ok(VerbsLink {
            tcp,
            shared,
            side,
            phase,
            poller,
            awaits_room,
            peer_name,
            address,
            ended: None,
            heard: false,
            abandoned: false,
            awaits_answers: false,
            turned_away: false,
            outcomes: VecDeque::new(),
        })
    }

    /// The queue's stream, if there is one. What it does may fail because the link has ended.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        if let Phase::Verbs(stream) = &self.phase { Some(stream) } else { None }
    }

    /// The same, to be used.
    pub(crate) fn stream_mut(&mut self) -> Option<&mut Stream> {
        if let Phase::Verbs(stream) = &mut self.phase { Some(stream) } else { None }
    }

    /// Whether it may still come to a stream.
    pub(crate) fn is_agreeing(&self) -> bool {
        matches!(self.phase, Phase::Agreeing(_) | Phase::Joining(_))
    }

    fn watch_room(&mut self, wanted: bool) {
        if self.awaits_room == wanted {
            return;
        }
        let interest = if wanted { Interest::BOTH } else { Interest::READABLE };
        if let Some(descriptor) = self.tcp.descriptor() {
            self.awaits_room = self.poller.modify(descriptor, TCP, interest).is_ok() && wanted;
        }
    }

    /// Our record, with a queue where there can be one.
    fn make_record(&self) -> (Record, Option<Promised>) {
        let previous = if self.side == Side::Caller { self.shared.previous(&self.address) } else { 0 };
        let unusable = (Record { previous, ..Record::default() }, None);
        let Some(fabric) = self.shared.fabric_for(&self.address) else { return unusable };
        match fabric.queue() {
            Ok((queue, promise)) => {
                let (connection, first_packet) = self.shared.numbers(queue.number());
                let connection = if self.side == Side::Caller { connection } else { 0 };
                // The manager finds queues by itself, and their numbers may be longer there.
                let queue_number = if fabric.manager.is_some() { 0 } else { queue.number() };
                let record = Record { queue: queue_number, first_packet, connection, previous, ..fabric.record() };
                (record, Some((queue, promise)))
            }
            Err(errno) => {
                self.shared.say_once(&format!(
                    "no queue for a connection to {} ({errno}); it goes over TCP. Look at `ulimit -l` and the device's limits",
                    self.peer_name
                ));
                unusable
            }
        }
    }

    /// Carries the agreement as far as it goes now.
    fn agree(&mut self) -> Result<(), LinkError> {
        while let Phase::Agreeing(agreeing) = &mut self.phase {
            if agreeing.sent < agreeing.outgoing.len() {
                let rest = &agreeing.outgoing[agreeing.sent..];
                let sent = self.tcp.send(&[Region::from_slice(rest)])?;
                agreeing.sent += sent;
                let whole = agreeing.sent == agreeing.outgoing.len();
                self.watch_room(!whole);
                if !whole {
                    return Ok(());
                }
                continue;
            }
            if let Some(then) = agreeing.then.take() {
                self.begin(then)?;
                return Ok(());
            }
            let have = agreeing.incoming.len();
            let mut bytes = [0; RECORD_BYTES];
            let room = &mut bytes[..RECORD_BYTES - have];
            let got = self.tcp.receive(&[RegionMut::from_slice(room)])?;
            agreeing.incoming.extend_from_slice(&bytes[..got]);
            if agreeing.incoming.len() < RECORD_BYTES {
                return Ok(());
            }
            let theirs: [u8; RECORD_BYTES] = agreeing.incoming[..].try_into().expect("it is whole");
            let Ok(theirs) = Record::decode(&theirs) else {
                // It may be a build without verbs, whose bytes these are: nothing can be made of them.
                self.shared.say_once(&format!(
                    "{} does not speak of verbs: start all ranks with the same build, or with LONGARM_NETMOD=tcp",
                    self.peer_name
                ));
                return Err(LinkError::Reset);
            };
            self.handle_record(&theirs);
        }
        Ok(())
    }

    fn handle_record(&mut self, theirs: &Record) {
        let Phase::Agreeing(agreeing) = &mut self.phase else { unreachable!("called in this phase") };
        let (ours, queue) = match agreeing.ours.take() {
            Some(ours) => ours,
            None => {
                let (mut record, queue) = if theirs.usable { self.make_record() } else { (Record::default(), None) };
                record.executed = self.shared.fabric().and_then(|fabric| fabric.executed.lock().of(theirs.previous));
                (record, queue)
            }
        };
        let fabric = self.shared.fabric();
        let then = match (fabric, queue) {
            (Some(fabric), Some(queue)) if theirs.usable && theirs.is_iwarp == ours.is_iwarp => {
                self.connected(&fabric, queue, &ours, theirs)
            }
            _ => Then::Plain,
        };
        if self.side == Side::Caller {
            self.outcomes.extend(self.shared.resolve(&self.address, theirs.executed));
        }
        let Phase::Agreeing(agreeing) = &mut self.phase else { unreachable!("as above") };
        agreeing.outgoing = match (self.side, &then) {
            (Side::Called, Then::Plain) => {
                Record { usable: false, executed: ours.executed, ..Record::default() }.encode().to_vec()
            }
            (Side::Called, _) => ours.encode().to_vec(),
            (Side::Caller, _) if !theirs.usable => Vec::new(),
            (Side::Caller, Then::Verbs(_)) => vec![READY],
            // The first message over the queue says it.
            (Side::Caller, Then::Joining(_)) => Vec::new(),
            (Side::Caller, Then::Plain) => vec![KEEP_TCP],
        };
        agreeing.sent = 0;
        agreeing.then = Some(then);
    }

    fn begin(&mut self, then: Then) -> Result<(), LinkError> {
        self.phase = match then {
            Then::Plain => Phase::Plain,
            Then::Joining(being_joined) => {
                if let Some(joining) = &being_joined.joining {
                    joining.watch(&self.poller, MANAGER)?;
                }
                Phase::Joining(being_joined)
            }
            Then::Verbs(mut stream) => {
                stream.may_send = self.side == Side::Caller;
                if self.side == Side::Caller {
                    self.shared.note_connection(&self.address, stream.number());
                }
                self.poller.add(stream.descriptor(), QUEUE, Interest::READABLE)?;
                // From the first moment on, as the peer may send at once. What this finds already waits in the stream.
                stream.arm()?;
                Phase::Verbs(stream)
            }
        };
        Ok(())
    }

    /// Reads the one byte that TCP still brings, and notices the end.
    fn hear(&mut self) -> Result<(), LinkError> {
        let mut byte = [0];
        if self.tcp.receive(&[RegionMut::from_slice(&mut byte)])? == 0 {
            return Ok(());
        }
        match (byte[0], &mut self.phase) {
            (READY, Phase::Verbs(stream)) if !stream.may_send && !stream.is_iwarp() => {
                stream.may_send = true;
                Ok(())
            }
            (KEEP_TCP, Phase::Verbs(stream)) if !stream.may_send => {
                self.phase = Phase::Plain;
                Ok(())
            }
            (KEEP_TCP, Phase::Joining(being_joined)) if self.side == Side::Called => {
                if let Some(joining) = being_joined.joining.take() {
                    joining.give_up(&self.poller);
                }
                self.phase = Phase::Plain;
                Ok(())
            }
            _ => Err(LinkError::Reset),
        }
    }

    /// As far as the agreement goes now, and what TCP has to say. An error of TCP counts when the queue has nothing more.
    fn settle(&mut self) -> Result<(), LinkError> {
        if matches!(self.phase, Phase::Agreeing(_)) {
            self.agree()?;
        }
        if matches!(self.phase, Phase::Joining(_)) {
            self.join()?;
        }
        let Phase::Verbs(stream) = &mut self.phase else { return Ok(()) };
        if !stream.may_send && stream.is_iwarp() {
            // The first message may have come, which lets us send.
            stream.poll()?;
        }
        if stream.may_send {
            return Ok(());
        }
        self.hear_the_end()
    }

    pub(crate) fn end_with<T>(&mut self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        let Err(mut error) = result else { return result };
        self.say_breach();
        if self.ended.is_none() {
            if matches!(error, LinkError::Device(_)) {
                // The device fails too when the peer is simply gone, which TCP knows better.
                match self.hear() {
                    Err(gone) => error = gone,
                    Ok(()) if self.side == Side::Caller && !self.heard => {
                        self.shared.note_failure(&self.address, &self.peer_name);
                    }
                    Ok(()) => {}
                }
            }
            self.ended = Some(error);
        }
        Err(error)
    }

    /// A peer that breaks the rules costs its own connection, and is named.
    fn say_breach(&mut self) {
        if let Phase::Verbs(stream) = &mut self.phase
            && let Some(breach) = stream.take_breach()
        {
            tracing::warn!(peer = self.peer_name, "a peer broke the rules, and its connection is ended: {breach}");
        }
    }

    fn try_send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.settle()?;
        match &mut self.phase {
            Phase::Agreeing(_) | Phase::Joining(_) => {
                self.turned_away = true;
                Ok(0)
            }
            Phase::Verbs(stream) if !stream.may_send => {
                self.turned_away = true;
                Ok(0)
            }
            Phase::Verbs(_) => self.send_verbs(regions),
            Phase::Proving | Phase::Plain => {
                let total: usize = regions.iter().map(|region| region.len()).sum();
                let sent = self.tcp.send(regions)?;
                self.watch_room(sent < total);
                Ok(sent)
            }
        }
    }

    fn send_verbs(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let total: usize = regions.iter().map(|region| region.len()).sum();
        let mut sent = 0;
        loop {
            let Phase::Verbs(stream) = &mut self.phase else { return Ok(sent) };
            let more = match sent {
                0 => stream.send(regions)?,
                _ => stream.send(&behind(regions, sent)).unwrap_or(0),
            };
            sent += more;
            if sent == total {
                return Ok(sent);
            }
            let goes_on = match self.makes_room(more, sent == 0) {
                // The peer counts what it has got, so we do. The next call says what happened.
                Err(_) if sent > 0 => false,
                result => result?,
            };
            if !goes_on {
                return Ok(sent);
            }
        }
    }

    /// Whether more may be taken now than a moment ago, when that was so much.
    fn makes_room(&mut self, more: usize, is_nothing: bool) -> Result<bool, LinkError> {
        // Who serves sleeps until there is room, so it is seen to at once; and a peer that is gone makes none.
        let something_came = if self.side == Side::Called { self.try_arm()? } else { false };
        if is_nothing {
            self.hear()?;
        }
        let Phase::Verbs(stream) = &self.phase else { return Ok(false) };
        Ok(something_came && (more > 0 || stream.can_send()))
    }

    fn try_receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.settle()?;
        let received = match &mut self.phase {
            Phase::Proving | Phase::Plain => return self.tcp.receive(regions),
            Phase::Agreeing(_) | Phase::Joining(_) => return Ok(0),
            Phase::Verbs(stream) => stream.receive(regions)?,
        };
        if received > 0 {
            self.note_heard();
            return Ok(received);
        }
        if let Phase::Verbs(stream) = &mut self.phase
            && stream.has_ended_lately()
        {
            self.hear_the_end()?;
        }
        if self.side == Side::Called && regions.iter().any(|region| !region.is_empty()) {
            // Who serves sleeps when nothing comes, so it is seen to at once. A caller says when it wants to sleep.
            if self.try_arm()? {
                return self.try_receive_arrived(regions);
            }
        }
        Ok(0)
    }

    /// The device has brought something: failures before it count no more.
    pub(crate) fn note_heard(&mut self) {
        if !std::mem::replace(&mut self.heard, true) {
            self.shared.note_success(&self.address);
        }
    }

    fn try_receive_arrived(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        match &mut self.phase {
            Phase::Verbs(stream) => stream.receive(regions),
            _ => self.tcp.receive(regions),
        }
    }

    /// Whether a send that was turned away would be taken now.
    fn lets_in(&mut self) -> bool {
        let open = match &self.phase {
            Phase::Agreeing(_) | Phase::Joining(_) => false,
            Phase::Verbs(stream) => stream.may_send,
            Phase::Proving | Phase::Plain => true,
        };
        open && std::mem::take(&mut self.turned_away)
    }

    fn try_arm(&mut self) -> Result<bool, LinkError> {
        self.settle()?;
        if self.lets_in() {
            return Ok(true);
        }
        let Phase::Verbs(stream) = &mut self.phase else { return Ok(false) };
        if !self.awaits_answers
            && let Some(answers) = stream.late_answers()
        {
            self.poller.add(answers, ANSWERS, Interest::READABLE)?;
            self.awaits_answers = true;
        }
        if stream.arm()? {
            return Ok(true);
        }
        let heard = self.hear_the_end();
        let Phase::Verbs(stream) = &mut self.phase else { return Ok(true) };
        match heard {
            Ok(()) => Ok(stream.holds_bytes() || self.lets_in()),
            // What the peer sent before it went has arrived by now.
            Err(_) if stream.poll()? || stream.holds_bytes() => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// What of the regions lies behind the first `bytes`.
fn behind<'a>(regions: &[Region<'a>], mut bytes: usize) -> Vec<Region<'a>> {
    let mut rest = Vec::with_capacity(regions.len());
    for region in regions {
        let skipped = bytes.min(region.len());
        bytes -= skipped;
        if skipped < region.len() {
            rest.push(region.slice(skipped, region.len() - skipped));
        }
    }
    rest
}

impl Link for VerbsLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        match self.ended.map_or_else(|| self.try_send(regions), Err) {
            // What it has sent before it went can still be received.
            Err(LinkError::Closed) => Err(LinkError::Closed),
            result => self.end_with(result),
        }
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if regions.iter().all(|region| region.is_empty()) && self.ended.is_some() {
            return Ok(0);
        }
        // What has arrived before an error is still handed out.
        let result = match &mut self.phase {
            Phase::Verbs(stream) if stream.holds_bytes() => stream.receive(regions),
            _ => self.ended.map_or_else(|| self.try_receive(regions), Err),
        };
        self.end_with(result)
    }

    fn on_proven(&mut self) {
        self.tcp.on_proven();
        let mut agreeing = Agreeing::default();
        if self.side == Side::Caller {
            let (record, queue) = self.make_record();
            agreeing.outgoing = record.encode().to_vec();
            agreeing.ours = Some((record, queue));
        }
        self.phase = Phase::Agreeing(Box::new(agreeing));
    }

    fn holds_bytes(&self) -> bool {
        self.has_unannounced()
    }

    fn arm(&mut self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let armed = self.try_arm();
        self.end_with(armed).unwrap_or(true)
    }

    fn direct(&mut self) -> Option<&mut dyn DirectAccess> {
        match &self.phase {
            Phase::Verbs(stream) if stream.may_send && self.side == Side::Caller => Some(self),
            _ if !self.outcomes.is_empty() => Some(self),
            _ => None,
        }
    }

    fn is_settled(&self) -> bool {
        match &self.phase {
            Phase::Proving | Phase::Agreeing(_) | Phase::Joining(_) => false,
            Phase::Verbs(stream) => stream.may_send,
            Phase::Plain => true,
        }
    }

    fn abandon(&mut self) {
        self.abandoned = true;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        if wanted == Interest::default() { wanted } else { Interest::READABLE }
    }

    fn peer_name(&self) -> &str {
        &self.peer_name
    }
}

impl Drop for VerbsLink {
    fn drop(&mut self) {
        if let Phase::Verbs(stream) = &mut self.phase
            && self.ended.is_none()
            && !self.abandoned
        {
            let tcp = std::cell::RefCell::new(&mut self.tcp);
            stream.linger(LINGER_MOMENTS, || tcp.borrow_mut().receive(&[RegionMut::from_slice(&mut [0])]).is_ok());
        }
        let is_over_device = matches!(self.phase, Phase::Joining(_) | Phase::Verbs(_));
        if self.side == Side::Caller && self.abandoned && is_over_device && !self.heard && self.ended.is_none() {
            // Given up because nothing came: the device may say so later than who waits has patience.
            self.shared.note_failure(&self.address, &self.peer_name);
        }
        if self.side == Side::Caller {
            // Those that an older connection had left, and nobody has asked for.
            let again = |(ticket, outcome)| Unresolved::ended(ticket, outcome);
            let mut unresolved: Vec<Unresolved> = self.outcomes.drain(..).map(again).collect();
            if let Phase::Verbs(stream) = &mut self.phase {
                unresolved.extend(stream.unresolved());
            }
            self.shared.leave_unresolved(&self.address, unresolved);
        }
        if let Phase::Verbs(stream) = &mut self.phase {
            // The peer may have heard from the device already, and waits for the word of TCP to know that this is no failure. To
            // give the queue and its memory back takes longer.
            stream.finish();
            if let Some(tcp) = self.tcp.descriptor() {
                let _ = rustix::net::shutdown(tcp, rustix::net::Shutdown::Write);
            }
        }
    }
}
