//! The part of the suite that is about memory: what a process publishes is reached as [`DirectAccess`](crate::DirectAccess) and
//! [`RemoteMemory`](crate::RemoteMemory) promise, in their order, and of what a broken link leaves the next one tells.
//!
//! Where a link turns out to have no way to the peer's memory, as over a device that is not there, it tests nothing.

use std::thread;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{AccessKey, Generation, Rank, Run, WindowId, WindowRef};

use crate::direct::{DeviceRmw, DirectAccess, DirectOutcome, DirectSource, InlinePoll, Loan, Reach, Wish};
use crate::link_conformance::{connected, listen};
use crate::traits::{Link, Listener, Netmod};

/// Bytes of a window: more than what goes in one piece, and no multiple of anything.
const WINDOW_BYTES: usize = 150_001;
/// Longer puts are lent.
const COPIED_BYTES_MAX: usize = 8 << 10;
const PART: WindowRef =
    WindowRef { rank: Rank(1), window: WindowId(7), generation: Generation(1), key: AccessKey(0x1234) };

/// A step of the part: its netmod, and where its links arrive.
type Step = fn(&dyn Netmod, &mut dyn Listener);

/// Runs the part. Each step has a listener, links and memory of its own.
///
/// # Panics
/// With a sentence, if the netmod breaks a promise of its traits.
pub(crate) fn memory(netmod: &dyn Netmod) {
    let has_memory = netmod.remote_memory().is_some();
    assert!(!has_memory || netmod.capabilities().remote_memory, "who publishes memory says that it can be reached");
    if !has_memory {
        return;
    }
    let steps: [Step; 9] = [
        puts_and_gets_move_their_bytes_and_no_others,
        memory_in_pieces_is_moved_in_their_order,
        what_is_kept_back_goes_out_with_its_batch,
        a_get_that_is_looked_for_is_done_or_goes_on_as_another,
        who_is_told_that_all_is_over_finds_every_end,
        what_is_begun_behind_a_put_comes_after_it,
        only_what_is_published_is_reached_and_only_with_its_key,
        updates_of_a_word_are_done_once_and_tell_the_value_before,
        a_broken_link_leaves_word_of_each_transfer,
    ];
    // Every listener stays open until the last step: if one were given the port of an earlier one, the netmod would still remember that
    // address's keys and ends of transfers.
    let mut listeners = steps.map(|_| listen(netmod));
    for (step, listener) in steps.iter().zip(&mut listeners) {
        step(netmod, &mut **listener);
    }
}

/// Memory of this process for as long as it lives.
struct Leaked(RegionMut<'static>);

impl Loan for Leaked {
    fn memory(&self) -> RegionMut<'_> {
        self.0
    }
}

/// Memory of this process for as long as it lives, of which some pieces take part: what tests of netmods lend.
///
/// ```
/// use longarm_memory::RegionMut;
/// use longarm_netmod::{InPieces, Loan};
/// use longarm_proto::Run;
///
/// let memory = RegionMut::from_slice(Box::leak(Box::new([0; 100])));
/// let lent = InPieces(memory, vec![Run { offset: 50, bytes: 8 }, Run { offset: 0, bytes: 1 }]);
/// assert_eq!((lent.memory().len(), lent.pieces().len()), (100, 2));
/// ```
pub struct InPieces(pub RegionMut<'static>, pub Vec<Run>);

impl Loan for InPieces {
    fn memory(&self) -> RegionMut<'_> {
        self.0
    }

    fn pieces(&self) -> &[Run] {
        &self.1
    }
}

fn leaked(byte: u8, bytes: usize) -> RegionMut<'static> {
    RegionMut::from_slice(Box::leak(vec![byte; bytes].into_boxed_slice()))
}

fn bytes_of(memory: RegionMut<'_>) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.copy_to_slice(&mut bytes);
    bytes
}

/// A link that reaches memory, and its other end, whose process serves what is asked.
struct Pair {
    caller: Box<dyn Link>,
    called: Box<dyn Link>,
}

impl Pair {
    fn drive(&mut self) {
        for link in [&mut self.caller, &mut self.called] {
            assert_eq!(link.send(&[]), Ok(0), "nothing was to be sent");
            assert_eq!(link.receive(&[RegionMut::from_slice(&mut [0])]), Ok(0), "nobody has sent anything");
        }
    }

    /// Whether the part can be reached, once that is decided. `None`: the link reaches no memory.
    fn reach(&mut self, part: &WindowRef, wish: Wish) -> Option<Reach> {
        loop {
            self.drive();
            match self.caller.direct().map(|access| access.reach(part, wish)) {
                None if self.caller.is_settled() => return None,
                None | Some(Reach::Asked | Reach::Full) => thread::yield_now(),
                decided => return decided,
            }
        }
    }

    /// As above, of what has to be reached unless nothing is.
    fn reaches(&mut self, wish: Wish) -> bool {
        let reach = self.reach(&PART, wish);
        assert!(matches!(reach, None | Some(Reach::Yes)), "what is published is reached for {wish:?}");
        reach.is_some()
    }

    fn put(&mut self, ticket: u64, run: Run, source: DirectSource<'_>) {
        let wish = match &source {
            DirectSource::Copied(region) => Wish::PutCopied(region.len()),
            DirectSource::Lent(_) => Wish::PutLent,
        };
        assert!(self.reaches(wish), "a link that has reached memory reaches it");
        let access = self.caller.direct().expect("it reaches memory");
        access.put(ticket, &PART, run, source).expect("a put on a healthy link begins");
    }

    fn get(&mut self, ticket: u64, run: Run, into: RegionMut<'static>) {
        assert!(self.reaches(Wish::Get), "a link that has reached memory reaches it");
        let access = self.caller.direct().expect("it reaches memory");
        access.get(ticket, &PART, run, Box::new(Leaked(into))).expect("a get on a healthy link begins");
    }

    fn rmw(&mut self, ticket: u64, offset: u64, rmw: DeviceRmw) -> DirectOutcome {
        assert!(self.reaches(Wish::Rmw), "a link that has reached a word reaches it");
        let access = self.caller.direct().expect("it reaches memory");
        access.rmw(ticket, &PART, offset, rmw).expect("an update on a healthy link begins");
        self.outcome(ticket)
    }

    /// Waits for the next end, which has to be that of this transfer.
    fn outcome(&mut self, ticket: u64) -> DirectOutcome {
        loop {
            self.drive();
            if let Some((ended, outcome)) = self.caller.direct().and_then(|access| access.take_outcome()) {
                assert_eq!(ended, ticket, "transfers end in the order in which they were begun, each once");
                return outcome;
            }
            thread::yield_now();
        }
    }

    /// Waits until a transfer is refused, or the link fails of it.
    fn await_refusal(&mut self) {
        loop {
            for link in [&mut self.called, &mut self.caller] {
                let moved = link.send(&[]).and_then(|_| link.receive(&[RegionMut::from_slice(&mut [0])]));
                if moved.is_err() {
                    return;
                }
            }
            if let Some((_, outcome)) = self.caller.direct().and_then(|access| access.take_outcome()) {
                return assert_eq!(outcome, DirectOutcome::Refused, "what was withdrawn is not reached any more");
            }
            thread::yield_now();
        }
    }

    fn is_done(&mut self, ticket: u64) {
        assert_eq!(self.outcome(ticket), DirectOutcome::Done, "a transfer on a healthy link is done");
    }

    /// Nothing listens to it any more.
    fn break_off(mut self) {
        for link in [&mut self.caller, &mut self.called] {
            link.abandon();
        }
        // The server's end first, as when its peer calls again.
        drop(self.called);
        drop(self.caller);
    }
}

fn pair(netmod: &dyn Netmod, listener: &mut dyn Listener) -> Pair {
    let (caller, called) = connected(netmod, listener);
    Pair { caller, called }
}

/// A pair of which one end reaches what the other has published. Its ends go before what they reach.
struct Reaching {
    pair: Pair,
    published: Box<dyn Send + Sync>,
}

/// Publishes the memory of [`PART`] and connects who is to reach it. `None`: the link reaches no memory.
fn reaching(
    netmod: &dyn Netmod,
    listener: &mut dyn Listener,
    window: RegionMut<'static>,
    wish: Wish,
) -> Option<Reaching> {
    let memory = netmod.remote_memory().expect("asked before");
    let published = memory.publish(PART, window);
    let mut pair = pair(netmod, listener);
    pair.reaches(wish).then_some(Reaching { pair, published })
}

fn puts_and_gets_move_their_bytes_and_no_others(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    let window = leaked(0, WINDOW_BYTES);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::PutLent) else { return };
    let pair = &mut reaching.pair;
    let mut expected = vec![0; WINDOW_BYTES];
    let mut ticket = 10;
    for (bytes, offset) in [(1, 0), (8, 8), (100, 3), (5_000, 1_001), (70_001, 9), (0, 77), (8, WINDOW_BYTES - 8)] {
        for is_lent in [false, true] {
            let source = leaked(0, bytes);
            source.copy_from_slice(&(0..bytes).map(|at| (at % 251) as u8 ^ ticket as u8).collect::<Vec<u8>>());
            expected[offset..offset + bytes].copy_from_slice(&bytes_of(source));
            let run = Run { offset: offset as u64, bytes: bytes as u64 };
            // What is long is lent: a link has room for so much only.
            if bytes > COPIED_BYTES_MAX || is_lent && bytes > 0 {
                pair.put(ticket, run, DirectSource::Lent(Box::new(Leaked(source))));
            } else {
                pair.put(ticket, run, DirectSource::Copied(source.as_region()));
                // From here on they are the caller's again.
                source.copy_from_slice(&vec![0xee; bytes]);
            }
            pair.is_done(ticket);
            assert!(bytes_of(window) == expected, "a put of {bytes} bytes at {offset} writes these and no others");
            if bytes > 0 {
                let into = leaked(0xdd, bytes + 2);
                pair.get(ticket + 1, run, into.slice(1, bytes));
                pair.is_done(ticket + 1);
                let came = bytes_of(into);
                let is_right = came[1..=bytes] == expected[offset..offset + bytes];
                assert!(is_right, "a get of {bytes} bytes at {offset} brings what is there");
                assert!(came[0] == 0xdd && came[bytes + 1] == 0xdd, "a get writes to its own memory only");
            }
            ticket += 2;
        }
    }
}

fn memory_in_pieces_is_moved_in_their_order(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    let window = leaked(0, 4096);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::PutLent) else { return };
    let pair = &mut reaching.pair;
    let pieces: Vec<Run> = [(700, 100), (0, 300), (350, 1)].map(|(offset, bytes)| Run { offset, bytes }).into();
    let (mine, run) = (leaked(0, 1000), Run { offset: 10, bytes: 401 });
    let all: Vec<u8> = (0..1000_u32).map(|at| (at % 251) as u8).collect();
    mine.copy_from_slice(&all);
    let packed = [&all[700..800], &all[..300], &all[350..351]].concat();
    pair.put(0, run, DirectSource::Lent(Box::new(InPieces(mine, pieces.clone()))));
    pair.is_done(0);
    assert!(bytes_of(window.slice(10, 401)) == packed, "a put writes the bytes of its pieces, one behind the other");
    let into = leaked(0xdd, 1000);
    assert!(pair.reaches(Wish::Get), "a link that has reached memory reaches it");
    let access = pair.caller.direct().expect("it reaches memory");
    access.get(1, &PART, run, Box::new(InPieces(into, pieces))).expect("a get on a healthy link begins");
    pair.is_done(1);
    let mut due = vec![0xdd; 1000];
    due[700..800].copy_from_slice(&packed[..100]);
    due[..300].copy_from_slice(&packed[100..400]);
    due[350] = packed[400];
    assert!(bytes_of(into) == due, "a get fills its pieces, one behind the other, and nothing between them");
}

fn what_is_kept_back_goes_out_with_its_batch(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    const PUTS: u64 = 5;
    let window = leaked(0, 4096);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::PutCopied(64)) else { return };
    let pair = &mut reaching.pair;
    for round in 0..3 {
        let access = pair.caller.direct().expect("it reaches memory");
        access.begin_batch();
        for number in 0..PUTS {
            assert_eq!(access.reach(&PART, Wish::PutCopied(64)), Reach::Yes, "there is room for a few puts");
            let (run, bytes) = (Run { offset: 100 * number, bytes: 64 }, [(10 * round + number + 1) as u8; 64]);
            let source = DirectSource::Copied(Region::from_slice(&bytes));
            access.put(PUTS * round + number, &PART, run, source).expect("a put on a healthy link begins");
        }
        access.post_batch().expect("a batch on a healthy link is posted");
        for number in 0..PUTS {
            pair.is_done(PUTS * round + number);
            let there = bytes_of(window.slice(100 * number as usize, 64));
            assert!(there == [(10 * round + number + 1) as u8; 64], "a put of a batch is done when it is said to be");
        }
    }
}

fn a_get_that_is_looked_for_is_done_or_goes_on_as_another(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    let window = leaked(0, 4096);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::Get) else { return };
    let pair = &mut reaching.pair;
    for round in 1..=40_u8 {
        window.copy_from_slice(&[round; 4096]);
        let (run, into) = (Run { offset: 64, bytes: 64 }, leaked(0, 64));
        let access = pair.caller.direct().expect("it reaches memory");
        let mut own = [0; 64];
        // Once in a while there is hardly time for it.
        let looks = if round % 2 == 0 { 1 } else { 100_000 };
        match access.get_polling(&PART, run, RegionMut::from_slice(&mut own), looks) {
            InlinePoll::Done => assert!(own == [round; 64], "a get that is said to be done has brought its bytes"),
            InlinePoll::UnderWay => {
                access.lend_polled(round.into(), Box::new(Leaked(into)));
                pair.is_done(round.into());
                assert!(
                    bytes_of(into) == [round; 64],
                    "a get that was not waited for brings its bytes to what is lent"
                );
            }
            InlinePoll::NotBegun => {}
        }
    }
}

fn who_is_told_that_all_is_over_finds_every_end(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    const TRANSFERS: u64 = 6;
    let window = leaked(0, 4096);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::PutLent) else { return };
    let pair = &mut reaching.pair;
    for round in 0..20 {
        let tickets = TRANSFERS * round..TRANSFERS * (round + 1);
        for ticket in tickets.clone() {
            let run = Run { offset: 8 * (ticket % TRANSFERS), bytes: 8 };
            pair.put(ticket, run, DirectSource::Copied(Region::from_slice(&ticket.to_ne_bytes())));
        }
        let access = pair.caller.direct().expect("it reaches memory");
        let is_over = (0..1000).any(|_| access.look_for_ends(100));
        for ticket in tickets {
            if is_over {
                let outcome = access_of(pair).take_outcome();
                assert_eq!(outcome, Some((ticket, DirectOutcome::Done)), "what is said to be over can be taken");
            } else {
                pair.is_done(ticket);
            }
            let there = bytes_of(window.slice(8 * (ticket % TRANSFERS) as usize, 8));
            assert!(there == ticket.to_ne_bytes(), "what is said to be over is done");
        }
        assert_eq!(access_of(pair).take_outcome(), None, "each end is told once");
    }
}

fn access_of(pair: &mut Pair) -> &mut dyn DirectAccess {
    pair.caller.direct().expect("it reaches memory")
}

fn what_is_begun_behind_a_put_comes_after_it(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    let window = leaked(0, WINDOW_BYTES);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::PutLent) else { return };
    let pair = &mut reaching.pair;
    for round in 1..40_u8 {
        let ticket = u64::from(round) * 2;
        let (run, into) = (Run { offset: 64, bytes: 64 }, leaked(0, 64));
        pair.put(ticket, run, DirectSource::Copied(Region::from_slice(&[round; 64])));
        pair.get(ticket + 1, run, into);
        // What goes over the stream behind them: who reads it finds what was put before.
        let mut byte = [0];
        let mut is_sent = false;
        loop {
            is_sent = is_sent || pair.caller.send(&[Region::from_slice(b"x")]) == Ok(1);
            if pair.called.receive(&[RegionMut::from_slice(&mut byte)]) == Ok(1) {
                break;
            }
            let came = pair.caller.receive(&[RegionMut::from_slice(&mut [0])]);
            assert_eq!(came, Ok(0), "nobody has sent anything");
            thread::yield_now();
        }
        let there = bytes_of(window.slice(64, 64));
        assert!(there == [round; 64], "who hears of a put over the stream finds it done");
        pair.is_done(ticket);
        pair.is_done(ticket + 1);
        assert!(bytes_of(into) == [round; 64], "a get sees the put that was begun before it");
    }
}

fn only_what_is_published_is_reached_and_only_with_its_key(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    let window = leaked(0, 4096);
    let reached = reaching(netmod, listener, window, Wish::PutLent);
    let Some(Reaching { published, pair: mut first }) = reached else { return };
    let others = [
        WindowRef { key: AccessKey(0x4321), ..PART },
        WindowRef { window: WindowId(8), ..PART },
        WindowRef { generation: Generation(2), ..PART },
        WindowRef { rank: Rank(2), ..PART },
    ];
    for other in others {
        assert_eq!(first.reach(&other, Wish::Get), Some(Reach::No), "nobody has published {other:?}");
    }
    drop(published);
    first.break_off();
    let mut second = pair(netmod, listener);
    // Who has been told before may learn of it when it tries.
    if second.reach(&PART, Wish::PutLent) == Some(Reach::Yes) {
        let (source, run) = (DirectSource::Copied(Region::from_slice(&[5; 8])), Run { offset: 0, bytes: 8 });
        let begun = second.caller.direct().expect("it reaches memory").put(1, &PART, run, source);
        if begun.is_ok() {
            second.await_refusal();
        }
    }
    assert!(bytes_of(window).iter().all(|byte| *byte == 0), "what was withdrawn is not reached any more");
}

fn updates_of_a_word_are_done_once_and_tell_the_value_before(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    if netmod.device_rmw().is_err() {
        return;
    }
    let all = leaked(0, 4096 + 8);
    let window = all.slice(all.as_ptr().addr().wrapping_neg() % 8, 4096);
    let Some(mut reaching) = reaching(netmod, listener, window, Wish::Rmw) else { return };
    let pair = &mut reaching.pair;
    let word = || u64::from_ne_bytes(*bytes_of(window.slice(8, 8)).first_chunk().expect("eight bytes"));
    for round in 0..20 {
        let before = pair.rmw(round, 8, DeviceRmw::FetchAdd(3));
        assert_eq!(before, DirectOutcome::Value(3 * round), "an update tells the value before");
        assert_eq!(word(), 3 * (round + 1), "an update is done once");
    }
    let swap = |expected, new| DeviceRmw::CompareSwap { expected, new };
    assert_eq!(pair.rmw(100, 8, swap(1, 7)), DirectOutcome::Value(60), "an update tells the value before");
    assert_eq!(word(), 60, "a word that has another value stays as it is");
    assert_eq!(pair.rmw(101, 8, swap(60, u64::MAX)), DirectOutcome::Value(60), "an update tells the value before");
    assert_eq!(word(), u64::MAX, "a word that has the value is replaced");
    assert!(bytes_of(window).iter().filter(|byte| **byte != 0).count() == 8, "an update changes its word only");
}

fn a_broken_link_leaves_word_of_each_transfer(netmod: &dyn Netmod, listener: &mut dyn Listener) {
    const PUTS: u64 = 12;
    let window = leaked(0, 4096);
    let reached = reaching(netmod, listener, window, Wish::PutLent);
    let Some(Reaching { published: _published, pair: mut first }) = reached else { return };
    let run = |ticket: u64| Run { offset: ticket * 8, bytes: 8 };
    for ticket in 0..PUTS {
        first.put(ticket, run(ticket), DirectSource::Copied(Region::from_slice(&[ticket as u8 + 1; 8])));
    }
    first.break_off();
    let mut second = pair(netmod, listener);
    if !second.reaches(Wish::PutLent) {
        return;
    }
    let mut told = Vec::new();
    while let Some((ticket, outcome)) = second.caller.direct().and_then(|access| access.take_outcome()) {
        told.push(ticket);
        let there = bytes_of(window.slice(ticket as usize * 8, 8));
        match outcome {
            DirectOutcome::Done => assert!(there == [ticket as u8 + 1; 8], "a put that is said to be done is done"),
            DirectOutcome::NotDone | DirectOutcome::Unknown => {}
            other => panic!("a put that a broken link has left ends as {other:?}"),
        }
    }
    told.sort_unstable();
    assert!(told == (0..PUTS).collect::<Vec<_>>(), "of each transfer the next link tells once, and not of {told:?}");
    second.put(PUTS, run(PUTS), DirectSource::Copied(Region::from_slice(&[9; 8])));
    second.is_done(PUTS);
}
