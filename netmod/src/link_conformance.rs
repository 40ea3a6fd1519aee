//! The part of the suite that is about links: what every netmod has to pass, whatever lies under it.

use std::os::fd::BorrowedFd;
use std::thread;

use longarm_memory::{Region, RegionMut};
use rustix::event::{PollFd, PollFlags, poll};

use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::poller::Poller;
use crate::traits::{Link, Listener, Netmod};

/// The test pattern repeats after a prime, so that no power of two hides a part that is missing or doubled.
const PATTERN_BYTES: usize = 251;
/// Bytes of an ordinary transfer over a network that the kernel buffers, and no multiple of anything.
const STREAM_BYTES: u64 = 200_003;
/// The same where luck cuts everything small, and each byte may take some calls.
const STREAM_BYTES_IN_PARTS: u64 = 10_007;
/// Bytes offered by one call of an ordinary transfer.
const OFFER_BYTES: usize = 9_001;
/// A sender that got rid of this much, with nobody receiving, has no back-pressure.
const UNREAD_BYTES_MAX: u64 = 1 << 32;
/// Tries in a row that move nothing before a simulated pipe counts as full. Where there are descriptors, one does.
const TRIES_MAX: usize = 200;
/// Links that are open at once.
const LINK_COUNT: usize = 12;

/// Runs what is about links. Each part opens listeners and links of its own.
///
/// # Panics
/// With a sentence, if the netmod breaks a promise of its traits.
pub(crate) fn links(netmod: &dyn Netmod) {
    assert!(!netmod.name().is_empty(), "a netmod has a name");
    descriptors_are_there_exactly_if_promised(netmod);
    bytes_arrive_whole_and_in_order(netmod);
    many_and_empty_regions_are_one_stream(netmod);
    a_call_without_room_moves_nothing(netmod);
    a_full_link_takes_nothing_and_later_goes_on(netmod);
    both_directions_flow_at_once(netmod);
    a_close_is_seen_after_all_bytes(netmod);
    a_sender_learns_that_its_peer_is_gone(netmod);
    a_link_that_was_reset_is_not_well_again(netmod);
    an_abandoned_link_waits_for_nobody_and_its_peer_learns_of_it(netmod);
    several_links_do_not_mix(netmod);
    a_listener_can_go_while_its_links_live(netmod);
    a_connection_to_nobody_is_an_error(netmod);
    a_link_may_move_to_another_thread(netmod);
}

fn descriptors_are_there_exactly_if_promised(netmod: &dyn Netmod) {
    let promised = netmod.capabilities().descriptor_sleep;
    let mut listener = listen(netmod);
    assert!(!listener.address().is_empty(), "a listener has an address");
    assert_eq!(listener.descriptor().is_some(), promised, "the listener's descriptor is as promised");
    let (caller, mut called) = connected(netmod, &mut *listener);
    for link in [&caller, &called] {
        assert_eq!(link.descriptor().is_some(), promised, "a link's descriptor is as promised");
        assert!(!link.peer_name().is_empty(), "a link can name its peer");
    }
    let mut caller = caller;
    let mut stream = Stream::new(0, 1);
    while !stream.send(&mut *caller) {
        // Both may have to agree on something first.
        assert!(!stream.receive(&mut *called), "nothing was sent");
        thread::yield_now();
    }
    while !stream.receive(&mut *called) {
        // Returns only once the bytes make the descriptor readable.
        wait_readable(&mut *called);
    }
}

fn bytes_arrive_whole_and_in_order(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    let mut stream = Stream::new(0, stream_bytes(netmod));
    while !stream.is_done() {
        if !stream.step(&mut *caller, &mut *called) {
            wait_for_either(&mut *caller, &mut *called);
        }
    }
    assert_silent(&mut *called);
    assert_silent(&mut *caller);
}

fn many_and_empty_regions_are_one_stream(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    // More regions than one system call takes, a run of empty ones longer than that, and ever other lengths.
    let lengths: Vec<usize> = (0..400).map(|index| if index < 150 { 0 } else { index % 4 * 7 }).collect();
    let bytes_total: usize = lengths.iter().sum();
    let source = pattern(0, bytes_total);
    let mut sent = 0;
    let mut received = vec![0; bytes_total];
    let mut received_bytes = 0;
    while received_bytes < bytes_total {
        let mut progress = 0;
        if sent < bytes_total {
            let mut rest = &source[sent..];
            let mut regions = Vec::new();
            for length in &lengths {
                let (region, behind) = rest.split_at((*length).min(rest.len()));
                regions.push(Region::from_slice(region));
                rest = behind;
            }
            let bytes = caller.send(&regions).expect("a send on a healthy link works");
            sent += bytes;
            progress += bytes;
        }
        let mut rest = &mut received[received_bytes..];
        let mut regions: Vec<_> = (0..150).map(|_| RegionMut::from_slice(&mut [])).collect();
        for length in lengths.iter().rev() {
            let cut = (*length).min(rest.len());
            let (region, behind) = rest.split_at_mut(cut);
            regions.push(RegionMut::from_slice(region));
            // Empty regions in the middle and at the end, too.
            regions.push(RegionMut::from_slice(&mut []));
            rest = behind;
        }
        let bytes = called.receive(&regions).expect("a receive on a healthy link works");
        received_bytes += bytes;
        if progress + bytes == 0 {
            wait_for_either(&mut *caller, &mut *called);
        }
    }
    assert!(received == source, "vectored bytes arrive in the order of the regions");
    assert_silent(&mut *called);
}

fn a_call_without_room_moves_nothing(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    send_byte(&mut *caller, &mut *called);
    for _ in 0..TRIES_MAX {
        assert_eq!(caller.send(&[]), Ok(0), "a send of no region moves nothing");
        assert_eq!(caller.send(&[Region::from_slice(&[])]), Ok(0), "a send of an empty region moves nothing");
        assert_eq!(called.receive(&[]), Ok(0), "a receive without regions moves nothing");
        let empty = called.receive(&[RegionMut::from_slice(&mut [])]);
        assert_eq!(empty, Ok(0), "a receive without room is not the end of the stream");
    }
    receive_byte(&mut *called);
    assert_silent(&mut *called);
}

fn a_full_link_takes_nothing_and_later_goes_on(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    // Luck may make one try move nothing; only many in a row are a full pipe.
    let tries_max = if netmod.capabilities().descriptor_sleep { 1 } else { TRIES_MAX };
    let mut stream = Stream::new(0, u64::MAX);
    while !stream.send(&mut *caller) {
        assert!(!stream.receive(&mut *called), "nothing was sent");
    }
    let mut tries = 0;
    while tries < tries_max {
        tries = if stream.send(&mut *caller) { 0 } else { tries + 1 };
        assert!(stream.sent < UNREAD_BYTES_MAX, "a sender whose peer does not receive is stopped at some time");
    }
    // Going on needs room, and room comes only from receiving.
    stream.end = stream.sent + stream_bytes(netmod);
    while !stream.is_done() {
        if !stream.step(&mut *caller, &mut *called) {
            wait_for_either(&mut *caller, &mut *called);
        }
    }
    assert_silent(&mut *called);
}

fn both_directions_flow_at_once(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    let mut there = Stream::new(0, stream_bytes(netmod));
    let mut back = Stream::new(100, stream_bytes(netmod));
    while !(there.is_done() && back.is_done()) {
        // Each side first fills its direction as far as it goes, as two servers with much to say would.
        let mut progress = false;
        while there.send(&mut *caller) {
            progress = true;
        }
        while back.send(&mut *called) {
            progress = true;
        }
        progress |= there.receive(&mut *called);
        progress |= back.receive(&mut *caller);
        if !progress {
            wait_for_either(&mut *caller, &mut *called);
        }
    }
    assert_silent(&mut *called);
    assert_silent(&mut *caller);
}

fn a_close_is_seen_after_all_bytes(netmod: &dyn Netmod) {
    for closer_is_caller in [true, false] {
        for bytes in [0_u64, 1, 3_000] {
            let mut listener = listen(netmod);
            let (caller, called) = connected(netmod, &mut *listener);
            let (mut closer, mut other) = if closer_is_caller { (caller, called) } else { (called, caller) };
            let mut stream = Stream::new(5, bytes);
            while stream.sent < stream.end {
                if !stream.send(&mut *closer) && !stream.receive(&mut *other) {
                    wait_for_either(&mut *closer, &mut *other);
                }
            }
            drop(closer);
            while !stream.is_done() {
                if !stream.receive(&mut *other) {
                    wait_readable(&mut *other);
                }
            }
            assert_eq!(first_error(&mut *other), LinkError::Closed, "an orderly close is the end of the stream");
            assert_eq!(first_error(&mut *other), LinkError::Closed, "the end of the stream stays the end");
            let empty = other.receive(&[RegionMut::from_slice(&mut [])]);
            assert_eq!(empty, Ok(0), "a receive without room moves nothing, even at the end of the stream");
        }
    }
}

fn a_sender_learns_that_its_peer_is_gone(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, called) = connected(netmod, &mut *listener);
    drop(called);
    let bytes = pattern(0, OFFER_BYTES);
    let error = loop {
        match caller.send(&[Region::from_slice(&bytes)]) {
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Closed | LinkError::Reset), "a peer that is gone is closed or reset: {error}");
}

fn a_link_that_was_reset_is_not_well_again(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, called) = connected(netmod, &mut *listener);
    let bytes = pattern(0, OFFER_BYTES);
    // Its peer goes with bytes that it has not read.
    let mut called = Some(called);
    let mut sent = 0;
    let error = loop {
        match caller.send(&[Region::from_slice(&bytes)]) {
            Ok(0) if sent == 0 => {
                // Both may have to agree on something first.
                let peer = called.as_mut().expect("it goes when something was sent");
                assert_eq!(peer.receive(&[RegionMut::from_slice(&mut [0])]), Ok(0), "nothing was sent");
            }
            Ok(more) => {
                sent += more;
                called = None;
                thread::yield_now();
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Closed | LinkError::Reset), "a peer that is gone is closed or reset: {error}");
    for _ in 0..10 {
        let again = caller.send(&[Region::from_slice(&bytes)]);
        assert!(again.is_err(), "a link that has failed takes nothing more: {again:?}");
    }
    first_error(&mut *caller);
    for _ in 0..10 {
        let again = caller.receive(&[RegionMut::from_slice(&mut [0; 16])]);
        assert!(again.is_err(), "a link that has failed gives nothing more: {again:?}");
    }
}

fn an_abandoned_link_waits_for_nobody_and_its_peer_learns_of_it(netmod: &dyn Netmod) {
    for is_full in [false, true] {
        let mut listener = listen(netmod);
        let (mut caller, mut called) = connected(netmod, &mut *listener);
        let (bytes, mut sent, mut tries) = (pattern(0, OFFER_BYTES), 0, 0);
        while sent == 0 {
            sent = caller.send(&[Region::from_slice(&bytes[..1])]).expect("a send on a healthy link works");
            // Both may have to agree on something first.
            assert!(sent > 0 || called.receive(&[RegionMut::from_slice(&mut [0])]) == Ok(0), "nothing was sent");
        }
        while is_full && tries < TRIES_MAX {
            match caller.send(&[Region::from_slice(&bytes[sent % PATTERN_BYTES..])]) {
                Ok(0) => tries += 1,
                Ok(more) => sent += more,
                Err(error) => panic!("a healthy link fails: {error}"),
            }
        }
        // Nobody receives meanwhile: a drop that waits for the delivery of these bytes never returns.
        caller.abandon();
        drop(caller);
        let (mut received, mut buffer) = (0, vec![0; OFFER_BYTES]);
        let error = loop {
            match called.receive(&[RegionMut::from_slice(&mut buffer)]) {
                Ok(0) => wait_readable(&mut *called),
                Ok(got) => {
                    assert!(received + got <= sent, "bytes arrive that nobody sent");
                    assert!(buffer[..got] == pattern(received % PATTERN_BYTES, got), "what arrives was sent");
                    received += got;
                }
                Err(error) => break error,
            }
        };
        // What was under way may be lost. What is encrypted may be cut in the midst.
        let is_due = matches!(error, LinkError::Closed | LinkError::Reset | LinkError::Forged);
        assert!(is_due, "an abandoned link is closed or reset: {error}");
    }
}

fn several_links_do_not_mix(netmod: &dyn Netmod) {
    let mut listeners = [listen(netmod), listen(netmod)];
    assert_ne!(listeners[0].address(), listeners[1].address(), "each listener has an address of its own");
    let mut links = Vec::new();
    for index in 0..LINK_COUNT {
        let (caller, called) = connected(netmod, &mut *listeners[index % 2]);
        links.push((caller, called, Stream::new(index * 17, stream_bytes(netmod) / 10)));
    }
    while links.iter().any(|(_, _, stream)| !stream.is_done()) {
        for (caller, called, stream) in &mut links {
            stream.step(&mut **caller, &mut **called);
        }
    }
    for (caller, called, _) in &mut links {
        assert_silent(&mut **called);
        assert_silent(&mut **caller);
    }
}

fn a_listener_can_go_while_its_links_live(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    drop(listener);
    let mut stream = Stream::new(0, 3_000);
    while !stream.is_done() {
        if !stream.step(&mut *caller, &mut *called) {
            wait_for_either(&mut *caller, &mut *called);
        }
    }
}

fn a_connection_to_nobody_is_an_error(netmod: &dyn Netmod) {
    let listener = listen(netmod);
    let address = listener.address().to_owned();
    drop(listener);
    let error = match netmod.connect(&address) {
        Ok(mut link) => first_error_of_sends(&mut *link),
        Err(error) => error,
    };
    assert_eq!(error, LinkError::Refused, "where a listener was, nobody answers");
    for text in ["", " ", "nonsense", "sim:", ":0", "12345", "host name:1"] {
        let error = netmod.connect(text).err();
        assert_eq!(error, Some(LinkError::BadAddress), "{text:?} is no address");
    }
}

/// Sends until that fails, on a link that was never connected.
fn first_error_of_sends(link: &mut dyn Link) -> LinkError {
    loop {
        match link.send(&[Region::from_slice(b"x")]) {
            Ok(0) => wait(&mut [(link, Interest::WRITABLE)]),
            Ok(_) => panic!("nobody is there to send to"),
            Err(error) => return error,
        }
    }
}

fn a_link_may_move_to_another_thread(netmod: &dyn Netmod) {
    let mut listener = listen(netmod);
    let (mut caller, mut called) = connected(netmod, &mut *listener);
    let bytes = stream_bytes(netmod);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = Stream::new(3, bytes);
            while stream.sent < stream.end {
                if !stream.send(&mut *caller) {
                    wait(&mut [(&mut *caller, Interest::WRITABLE)]);
                }
            }
        });
        let mut stream = Stream::new(3, bytes);
        stream.sent = stream.end;
        while !stream.is_done() {
            if !stream.receive(&mut *called) {
                wait_readable(&mut *called);
            }
        }
    });
    assert_eq!(first_error(&mut *called), LinkError::Closed);
}

/// A one-way transfer of a known pattern, checked byte by byte as it arrives.
struct Stream {
    /// Where in the pattern the stream begins, so that streams differ.
    phase: usize,
    sent: u64,
    received: u64,
    end: u64,
    offer: Vec<u8>,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(phase: usize, bytes: u64) -> Self {
        let offer = pattern(phase, OFFER_BYTES + PATTERN_BYTES);
        Self { phase, sent: 0, received: 0, end: bytes, offer, buffer: vec![0; OFFER_BYTES / 2] }
    }

    fn is_done(&self) -> bool {
        self.received == self.end
    }

    /// One call to send and one to receive. Whether anything moved.
    fn step(&mut self, from: &mut dyn Link, to: &mut dyn Link) -> bool {
        let sent = self.send(from);
        self.receive(to) || sent
    }

    fn send(&mut self, link: &mut dyn Link) -> bool {
        let bytes = usize::try_from(self.end - self.sent).unwrap_or(usize::MAX).min(OFFER_BYTES);
        if bytes == 0 {
            return false;
        }
        let start = pattern_offset(self.sent);
        let moved = link.send(&[Region::from_slice(&self.offer[start..start + bytes])]);
        let moved = moved.expect("a send on a healthy link works");
        assert!(moved <= bytes, "no more bytes are accepted than were offered");
        self.sent += moved as u64;
        moved > 0
    }

    fn receive(&mut self, link: &mut dyn Link) -> bool {
        if self.is_done() {
            return false;
        }
        let moved = link.receive(&[RegionMut::from_slice(&mut self.buffer)]);
        let moved = moved.expect("a receive on a healthy link works");
        self.received += moved as u64;
        assert!(self.received <= self.sent, "no byte arrives that was not sent");
        let start = pattern_offset(self.received - moved as u64);
        let arrived = &self.buffer[..moved];
        assert!(arrived == &self.offer[start..start + moved], "bytes of stream {} arrive as sent", self.phase);
        moved > 0
    }
}

fn pattern(phase: usize, bytes: usize) -> Vec<u8> {
    (phase..phase + bytes).map(|index| u8::try_from(index % PATTERN_BYTES).expect("the period fits a byte")).collect()
}

fn pattern_offset(position: u64) -> usize {
    usize::try_from(position % PATTERN_BYTES as u64).expect("the period is small")
}

fn stream_bytes(netmod: &dyn Netmod) -> u64 {
    if netmod.capabilities().descriptor_sleep { STREAM_BYTES } else { STREAM_BYTES_IN_PARTS }
}

pub(crate) fn listen(netmod: &dyn Netmod) -> Box<dyn Listener> {
    netmod.listen().expect("a netmod can listen")
}

/// Connects to the listener. Two threads, as a network may need both sides to move.
pub(crate) fn connected(netmod: &dyn Netmod, listener: &mut dyn Listener) -> (Box<dyn Link>, Box<dyn Link>) {
    let address = listener.address().to_owned();
    thread::scope(|scope| {
        let connect = || netmod.connect(&address).expect("a connection to a listener comes about");
        let mut calling = Some(scope.spawn(connect));
        let (mut caller, mut called) = (None, None);
        loop {
            // A failed connection is found here, and does not leave us waiting for it at the door.
            if let Some(done) = calling.take_if(|calling| calling.is_finished()) {
                caller = Some(done.join().expect("the connection came about"));
            }
            called = called.or(listener.accept().expect("a listener accepts"));
            match (caller, called) {
                (Some(mut caller), Some(mut called)) => {
                    // As after a handshake, which is not what is tested here.
                    caller.on_proven();
                    called.on_proven();
                    return (caller, called);
                }
                pair => (caller, called) = pair,
            }
            thread::yield_now();
        }
    })
}

/// One byte fits into every pipe, once both sides have agreed on what they have to.
fn send_byte(link: &mut dyn Link, peer: &mut dyn Link) {
    while link.send(&[Region::from_slice(b"x")]).expect("a send on a healthy link works") == 0 {
        assert_eq!(peer.receive(&[RegionMut::from_slice(&mut [0])]), Ok(0), "nothing was sent");
        thread::yield_now();
    }
}

fn receive_byte(link: &mut dyn Link) {
    let mut buffer = [0; 2];
    while link.receive(&[RegionMut::from_slice(&mut buffer)]).expect("a receive on a healthy link works") == 0 {
        wait_readable(link);
    }
    assert_eq!(&buffer, b"x\0", "the byte that was sent is the one that arrives");
}

/// The error that ends the stream. No byte may come before it.
fn first_error(link: &mut dyn Link) -> LinkError {
    loop {
        match link.receive(&[RegionMut::from_slice(&mut [0; 16])]) {
            Ok(0) => wait_readable(link),
            Ok(bytes) => panic!("{bytes} bytes arrive that nobody sent"),
            Err(error) => return error,
        }
    }
}

/// Nothing is there to receive, and the link lives.
fn assert_silent(link: &mut dyn Link) {
    for _ in 0..10 {
        assert_eq!(link.receive(&[RegionMut::from_slice(&mut [0; 16])]), Ok(0), "an idle link is silent and open");
    }
}

fn wait_readable(link: &mut dyn Link) {
    wait(&mut [(link, Interest::READABLE)]);
}

/// Until the sender has room or the receiver has bytes.
fn wait_for_either(from: &mut dyn Link, to: &mut dyn Link) {
    if from.beacon().is_some() || to.beacon().is_some() {
        return wait_at_poller(&mut [from, to]);
    }
    wait(&mut [(from, Interest::BOTH), (to, Interest::BOTH)]);
}

/// As [`wait`], by a poller, which watches beacons where there are some.
fn wait_at_poller(links: &mut [&mut dyn Link]) {
    if links.iter_mut().any(|link| link.arm()) {
        return;
    }
    let poller = Poller::new().expect("the system has descriptors");
    for (token, link) in (0..).zip(&*links) {
        // Watched for nothing at first: what counts is what it is changed to.
        poller.add_link(&**link, token, Interest::default()).expect("it can be watched");
        poller.modify_link(&**link, token, link.awaits(Interest::BOTH)).expect("it is watched");
    }
    let mut ready = Vec::new();
    poller.wait(&mut ready, None).expect("it can be waited for");
    assert!(!ready.is_empty(), "somebody can go on");
    links.iter().for_each(|link| poller.remove_link(&**link).expect("it is watched"));
}

fn wait(links: &mut [(&mut dyn Link, Interest)]) {
    if links.iter_mut().any(|(link, _)| link.arm()) {
        return;
    }
    let flags = |interest: Interest| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.readable);
        flags.set(PollFlags::OUT, interest.writable);
        flags
    };
    let sources: Option<Vec<_>> = links
        .iter()
        .map(|(link, wanted)| link.descriptor().map(|descriptor| (descriptor, flags(link.awaits(*wanted)))))
        .collect();
    match sources {
        Some(sources) => sleep_on(&sources),
        None => thread::yield_now(),
    }
}

fn sleep_on(sources: &[(BorrowedFd<'_>, PollFlags)]) {
    let mut polled: Vec<_> =
        sources.iter().map(|(descriptor, flags)| PollFd::from_borrowed_fd(*descriptor, *flags)).collect();
    // An interrupted sleep is a short one; the caller tries again in any case.
    let _ = poll(&mut polled, None);
}
