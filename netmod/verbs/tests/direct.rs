//! Direct transfers over real devices: what arrives, what they cost, and what becomes of them when the connection breaks.
//! Without two devices nothing is tested, which is said.

mod direct {
    mod calls;
    mod coalesced;
    mod inline_poll;
    mod memory;
    mod paging;
    mod updates;
}
#[path = "../../registration/tests/support/mapping.rs"]
mod mapping;
mod skipped;

use std::process::Command;
use std::thread;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    DirectOutcome, DirectSource, Interest, Link, LinkError, Listener, Loan, Netmod, Poller, Reach, TcpOptions, Wish,
};
use longarm_proto::{AccessKey, Generation, Rank, Run, WindowId, WindowRef};
use longarm_verbs::{Costs, Counts, OnDemand, Verbs, VerbsOptions};

use skipped::skipped;

const PART: WindowRef =
    WindowRef { rank: Rank(1), window: WindowId(7), generation: Generation(1), key: AccessKey(0x1234) };

/// Memory of this process for as long as it lives.
#[derive(Clone, Copy)]
struct Memory(RegionMut<'static>);

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory(RegionMut::from_slice(Box::leak(vec![0; bytes].into_boxed_slice())))
    }

    fn fill(self, seed: u8) -> Memory {
        let bytes: Vec<u8> = (0..self.0.len()).map(|index| (index % 251) as u8 ^ seed).collect();
        self.0.copy_from_slice(&bytes);
        self
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.len()];
        self.0.copy_to_slice(&mut bytes);
        bytes
    }
}

impl Loan for Memory {
    fn memory(&self) -> RegionMut<'_> {
        self.0
    }
}

/// Two processes' worth: one has a window, the other a link to it.
struct Pair {
    origin: Verbs,
    target: Verbs,
    listener: Box<dyn Listener>,
    caller: Box<dyn Link>,
    called: Box<dyn Link>,
    window: Memory,
    published: Option<Box<dyn Send + Sync>>,
}

const WINDOW_BYTES: usize = 8 << 20;

impl Pair {
    /// `None` where there are no two devices.
    fn new(change: impl Fn(&mut VerbsOptions)) -> Option<Pair> {
        let names = longarm_verbs::device_names();
        let [here, there, ..] = &names[..] else {
            skipped(&format!("{} RDMA devices on this machine", names.len()));
            return None;
        };
        let verbs = |device: &str| {
            let mut options = VerbsOptions { device: device.into(), demanded: true, ..VerbsOptions::default() };
            // What is counted must not depend on the machine's speed.
            options.costs = Some(Costs::TYPICAL);
            // An emulated machine takes its time to bring pages; no packet is lost here.
            options.timeout_code = 19;
            // What the whole suite is to be run with.
            options.on_demand = match std::env::var("LONGARM_TEST_ODP").as_deref() {
                Ok("all") => OnDemand::All,
                Ok("no") => OnDemand::No,
                _ => OnDemand::Auto,
            };
            change(&mut options);
            let verbs = Verbs::new(TcpOptions::default(), options);
            verbs.open().expect("the device can be used");
            verbs
        };
        let (origin, target) = (verbs(here), verbs(there));
        let mut listener = target.listen().unwrap();
        let (caller, called) = connected(&origin, &mut *listener);
        let window = Memory::new(WINDOW_BYTES);
        let remote = target.remote_memory().expect("verbs can do that");
        let published = Some(remote.publish(PART, window.0));
        Some(Pair { origin, target, listener, caller, called, window, published })
    }

    /// Writes end when their bytes are on their way, so a read behind them has to tell that they have arrived.
    fn is_iwarp() -> bool {
        longarm_verbs::devices().is_ok_and(|devices| devices.iter().any(|device| device.is_iwarp))
    }

    /// What a put costs but for that read.
    fn without_proof(cost: Counts) -> Counts {
        let proof = u64::from(Pair::is_iwarp());
        Counts {
            requests: cost.requests - proof,
            reads: cost.reads - proof,
            doorbells: cost.doorbells - proof,
            completions: cost.completions - proof,
            ..cost
        }
    }

    /// Drives both sides until the window can be reached.
    fn reach(&mut self) -> Reach {
        self.reach_part(&PART)
    }

    /// The same of any window.
    fn reach_part(&mut self, part: &WindowRef) -> Reach {
        loop {
            step(&mut *self.caller);
            step(&mut *self.called);
            match self.caller.direct().map(|access| access.reach(part, Wish::PutLent)) {
                None | Some(Reach::Asked) => thread::yield_now(),
                Some(decided) => return decided,
            }
        }
    }

    /// Only the origin moves, as if the target's process stood still.
    fn outcome(&mut self) -> (u64, DirectOutcome) {
        loop {
            step(&mut *self.caller);
            if let Some(outcome) = self.caller.direct().and_then(|access| access.take_outcome()) {
                return outcome;
            }
            thread::yield_now();
        }
    }

    fn put(&mut self, ticket: u64, offset: usize, source: DirectSource<'_>, bytes: usize) {
        let run = Run { offset: offset as u64, bytes: bytes as u64 };
        self.caller.direct().unwrap().put(ticket, &PART, run, source).unwrap();
    }

    fn get(&mut self, ticket: u64, offset: usize, into: Memory) {
        let run = Run { offset: offset as u64, bytes: into.0.len() as u64 };
        self.caller.direct().unwrap().get(ticket, &PART, run, Box::new(into)).unwrap();
    }

    /// What one thing costs the origin.
    fn cost(&mut self, work: impl FnOnce(&mut Pair)) -> Counts {
        let before = self.origin.counts().unwrap();
        work(self);
        let after = self.origin.counts().unwrap();
        Counts {
            requests: after.requests - before.requests,
            messages: after.messages - before.messages,
            writes: after.writes - before.writes,
            reads: after.reads - before.reads,
            inline: after.inline - before.inline,
            doorbells: after.doorbells - before.doorbells,
            completions: after.completions - before.completions,
            copied_bytes: after.copied_bytes - before.copied_bytes,
            zero_copy_bytes: after.zero_copy_bytes - before.zero_copy_bytes,
            ..Counts::default()
        }
    }

    /// Over iWARP the device does not say what it has refused: these were not done, and who asks anew finds no window.
    fn was_forgotten(&mut self, tickets: &[u64]) -> bool {
        if !Pair::is_iwarp() {
            return false;
        }
        for ticket in tickets {
            assert_eq!(self.outcome(), (*ticket, DirectOutcome::NotDone));
        }
        assert_eq!(self.reach(), Reach::No);
        true
    }

    /// The connection has broken: the next one.
    fn reconnect(&mut self) {
        let (caller, called) = connected(&self.origin, &mut *self.listener);
        (self.caller, self.called) = (caller, called);
        while !self.caller.is_settled() || !self.called.is_settled() {
            step(&mut *self.caller);
            step(&mut *self.called);
            thread::yield_now();
        }
    }
}

/// Connects, with nothing proven: that is not what is tested here.
fn connected(origin: &Verbs, listener: &mut dyn Listener) -> (Box<dyn Link>, Box<dyn Link>) {
    let mut caller = origin.connect(listener.address()).unwrap();
    let mut called = loop {
        match listener.accept().unwrap() {
            Some(called) => break called,
            None => thread::yield_now(),
        }
    };
    caller.on_proven();
    called.on_proven();
    (caller, called)
}

/// Lets a link do what it can. Nothing is sent over the stream here.
fn step(link: &mut dyn Link) {
    let _ = link.send(&[]);
    let _ = link.receive(&[RegionMut::from_slice(&mut [0; 8])]);
}

#[test]
fn what_is_put_is_there_and_what_is_got_is_right_at_every_length() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let mut ticket = 0;
    for bytes in [1, 8, 127, 128, 129, 1000, 4096, 8192, 8193, 16384, 40_000, 65536, 300_001, 1 << 20, 5_000_003] {
        let offset = bytes % 61;
        let source = Memory::new(bytes).fill(bytes as u8);
        ticket += 1;
        if bytes <= 16 << 10 {
            let mut copy = source.bytes();
            pair.put(ticket, offset, DirectSource::Copied(Region::from_slice(&copy)), bytes);
            copy.fill(0xee);
        } else {
            pair.put(ticket, offset, DirectSource::Lent(Box::new(source)), bytes);
        }
        assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
        let there = pair.window.bytes();
        assert!(there[offset..offset + bytes] == source.bytes(), "a put of {bytes} bytes");
        let copy = Memory::new(bytes);
        pair.get(ticket + 1000, offset, copy);
        assert_eq!(pair.outcome(), (ticket + 1000, DirectOutcome::Done));
        assert!(copy.bytes() == source.bytes(), "a get of {bytes} bytes");
    }
}

#[test]
fn transfers_keep_their_order_and_a_get_sees_the_put_before_it() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    for round in 0..20_u8 {
        let large = Memory::new(200_000).fill(round);
        let result = Memory::new(200_000);
        pair.put(1, 0, DirectSource::Lent(Box::new(large)), 200_000);
        pair.get(2, 0, result);
        // It overwrites what the get before it reads.
        let zeros = Memory::new(200_000);
        pair.put(3, 0, DirectSource::Lent(Box::new(zeros)), 200_000);
        for ticket in 1..=3 {
            assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
        }
        assert!(result.bytes() == large.bytes(), "round {round}");
        assert!(pair.window.bytes()[..200_000] == zeros.bytes()[..], "round {round}");
    }
}

#[test]
fn each_path_costs_what_the_book_says() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let one = Counts { requests: 1, doorbells: 1, completions: 1, ..Counts::default() };
    let word = [5; 8];
    let put = |pair: &mut Pair, source: DirectSource<'_>, bytes| {
        pair.put(1, 64, source, bytes);
        assert_eq!(pair.outcome().1, DirectOutcome::Done);
    };
    let cost = pair.cost(|pair| put(pair, DirectSource::Copied(Region::from_slice(&word)), 8));
    assert_eq!(Pair::without_proof(cost), Counts { writes: 1, inline: 1, ..one }, "a put of 8 B");
    let page = vec![6; 4096];
    let cost = pair.cost(|pair| put(pair, DirectSource::Copied(Region::from_slice(&page)), 4096));
    assert_eq!(Pair::without_proof(cost), Counts { writes: 1, copied_bytes: 4096, ..one }, "a put of 4 KiB");
    let pages = vec![7; 16 << 10];
    let cost = pair.cost(|pair| put(pair, DirectSource::Copied(Region::from_slice(&pages)), 16 << 10));
    let two =
        Counts { requests: 2, writes: 2, doorbells: 1, completions: 1, copied_bytes: 16 << 10, ..Counts::default() };
    assert_eq!(Pair::without_proof(cost), two, "a put of 16 KiB: two buffers, one chain");
    let large = Memory::new(64 << 10).fill(1);
    for (what, made) in [("new", 1), ("known", 0)] {
        let misses = pair.origin.cache_statistics().unwrap().misses;
        let cost = pair.cost(|pair| put(pair, DirectSource::Lent(Box::new(large)), 64 << 10));
        assert_eq!(
            Pair::without_proof(cost),
            Counts { writes: 1, zero_copy_bytes: 64 << 10, ..one },
            "a put of 64 KiB of {what} memory"
        );
        let statistics = pair.origin.cache_statistics().unwrap();
        if statistics.watch.to_string() == "off" {
            eprintln!("this system lets nobody watch memory: every transfer registers anew");
        } else {
            assert_eq!(statistics.misses - misses, made, "registrations for a put of {what} memory");
        }
    }
    let huge = Memory::new(1 << 20).fill(2);
    let cost = pair.cost(|pair| put(pair, DirectSource::Lent(Box::new(huge)), 1 << 20));
    assert_eq!(Pair::without_proof(cost), Counts { writes: 1, zero_copy_bytes: 1 << 20, ..one }, "a put of 1 MiB");
    let many = Memory::new(4 << 20).fill(2);
    let cost = pair.cost(|pair| put(pair, DirectSource::Lent(Box::new(many)), 4 << 20));
    let cost = Pair::without_proof(cost);
    assert_eq!((cost.requests, cost.writes, cost.doorbells), (4, 4, 4), "a put of 4 MiB goes in pieces of one");
    assert_eq!((cost.copied_bytes, cost.zero_copy_bytes), (0, 4 << 20));
    let cost = pair.cost(|pair| {
        pair.get(2, 64, Memory::new(8));
        assert_eq!(pair.outcome().1, DirectOutcome::Done);
    });
    assert_eq!(cost, Counts { reads: 1, copied_bytes: 8, ..one }, "a get of 8 B");
    let place = Memory::new(64 << 10);
    let cost = pair.cost(|pair| {
        pair.get(2, 64, place);
        assert_eq!(pair.outcome().1, DirectOutcome::Done);
    });
    assert_eq!(cost, Counts { reads: 1, zero_copy_bytes: 64 << 10, ..one }, "a get of 64 KiB");
}

#[test]
fn the_ends_of_many_short_puts_are_told_together() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let cost = pair.cost(|pair| {
        for ticket in 0..64 {
            while pair.caller.direct().unwrap().reach(&PART, Wish::PutCopied(8)) != Reach::Yes {
                step(&mut *pair.caller);
            }
            pair.put(ticket, ticket as usize * 8, DirectSource::Copied(Region::from_slice(&ticket.to_le_bytes())), 8);
        }
        for ticket in 0..64 {
            assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
        }
    });
    assert!((64..=66).contains(&cost.writes), "{cost:?}");
    assert!(cost.completions <= 4 + 64 / 8 + 2, "{cost:?}");
    let there = pair.window.bytes();
    assert!((0..64_u64).all(|word| there[word as usize * 8..][..8] == word.to_le_bytes()));
}

/// Begins as many puts of a page as take all buffers of their process, and takes up none of their ends.
fn take_all_buffers(link: &mut dyn Link) {
    let page = vec![1; 4096];
    let run = Run { offset: 1 << 20, bytes: 4096 };
    // One that is the connection's own, and the 32 that were made together.
    for ticket in 0..33 {
        let access = link.direct().unwrap();
        assert_eq!(access.reach(&PART, Wish::PutCopied(4096)), Reach::Yes);
        access.put(ticket, &PART, run, DirectSource::Copied(Region::from_slice(&page))).unwrap();
    }
}

#[test]
fn who_finds_no_buffer_goes_on_with_the_one_of_his_own() {
    let Some(mut pair) = Pair::new(|options| options.outgoing_bytes_max = 1) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    // Another connection of the same process has all the others. Connected first, so that it has its own.
    let (mut other, mut other_called) = connected(&pair.origin, &mut *pair.listener);
    while other.direct().is_none_or(|access| access.reach(&PART, Wish::PutLent) != Reach::Yes) {
        step(&mut *other);
        step(&mut *other_called);
    }
    take_all_buffers(&mut *other);
    let bytes: Vec<u8> = (0..16 << 10).map(|index| (index % 249) as u8).collect();
    for round in 0..3 {
        let access = pair.caller.direct().unwrap();
        assert_eq!(access.reach(&PART, Wish::PutCopied(bytes.len())), Reach::Yes);
        pair.put(round, 64, DirectSource::Copied(Region::from_slice(&bytes)), bytes.len());
        assert_eq!(pair.outcome(), (round, DirectOutcome::Done));
        assert!(pair.window.bytes()[64..64 + bytes.len()] == bytes[..], "round {round}");
    }
    // So does who sends over the stream, and sleeps until there is room.
    let mut sent = 0;
    let mut received = Vec::new();
    while received.len() < bytes.len() {
        if sent < bytes.len() {
            sent += pair.caller.send(&[Region::from_slice(&bytes[sent..])]).unwrap();
        }
        if sent < bytes.len() && !pair.caller.arm() {
            sleep_on(&*pair.caller);
        }
        let mut buffer = [0; 4096];
        let got = pair.called.receive(&[RegionMut::from_slice(&mut buffer)]).unwrap();
        received.extend_from_slice(&buffer[..got]);
        pair.called.send(&[]).unwrap();
    }
    assert!(received == bytes);
}

#[test]
fn a_connection_that_is_made_while_another_has_all_buffers_has_its_own() {
    let Some(mut pair) = Pair::new(|options| options.outgoing_bytes_max = 1) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    take_all_buffers(&mut *pair.caller);
    let (mut other, mut other_called) = connected(&pair.origin, &mut *pair.listener);
    while !other.is_settled() || !other_called.is_settled() {
        step(&mut *other);
        step(&mut *other_called);
    }
    assert!(other.direct().is_some(), "it went to TCP");
}

/// Until its descriptor announces something.
fn sleep_on(link: &dyn Link) {
    let poller = Poller::new().unwrap();
    poller.add(link.descriptor().unwrap(), 1, link.awaits(Interest::READABLE)).unwrap();
    poller.wait(&mut Vec::new(), None).unwrap();
}

#[test]
fn a_window_that_takes_long_to_register_holds_nobody_up_and_is_reached_later() {
    let slow = Costs { register_kib_ns: 1_000_000, ..Costs::TYPICAL };
    let slowly = |options: &mut VerbsOptions| {
        options.costs = Some(slow);
        options.on_demand = OnDemand::No;
    };
    let Some(mut pair) = Pair::new(slowly) else { return };
    while !pair.caller.is_settled() || !pair.called.is_settled() {
        step(&mut *pair.caller);
        step(&mut *pair.called);
    }
    assert_eq!(pair.caller.direct().unwrap().reach(&PART, Wish::PutLent), Reach::Asked);
    // The target sleeps whenever nothing is there, as a server does: it is woken by the question, and by the answer.
    thread::scope(|scope| {
        let Pair { called, caller, .. } = &mut pair;
        let called = scope.spawn(move || {
            loop {
                match called.receive(&[RegionMut::from_slice(&mut [0; 8])]) {
                    Ok(0) => sleep_on(&**called),
                    Ok(_) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        while caller.direct().unwrap().reach(&PART, Wish::PutLent) != Reach::Yes {
            step(&mut **caller);
            thread::yield_now();
        }
        assert_eq!(caller.send(&[Region::from_slice(&[1])]).unwrap(), 1);
        called.join().unwrap();
    });
    let source = Memory::new(100_000).fill(9);
    pair.put(1, 5, DirectSource::Lent(Box::new(source)), 100_000);
    assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
    assert!(pair.window.bytes()[5..100_005] == source.bytes());
}

#[test]
fn a_window_that_goes_while_it_is_registered_is_not_reached() {
    let slow = Costs { register_kib_ns: 1_000_000, ..Costs::TYPICAL };
    let slowly = |options: &mut VerbsOptions| {
        options.costs = Some(slow);
        options.on_demand = OnDemand::No;
    };
    let Some(mut pair) = Pair::new(slowly) else { return };
    while !pair.caller.is_settled() || !pair.called.is_settled() {
        step(&mut *pair.caller);
        step(&mut *pair.called);
    }
    for round in 0..20 {
        let part = WindowRef { generation: Generation(100 + round), ..PART };
        let published = pair.target.remote_memory().unwrap().publish(part, pair.window.0);
        let mut published = Some(published);
        let mut waited = 0;
        let decided = loop {
            match pair.caller.direct().unwrap().reach(&part, Wish::PutLent) {
                Reach::Asked => {
                    step(&mut *pair.caller);
                    step(&mut *pair.called);
                }
                decided => break decided,
            }
            waited += 1;
            if waited > round {
                published = None;
            }
        };
        // Whichever came first, there was an answer.
        assert!(matches!(decided, Reach::Yes | Reach::No), "{decided:?}");
        drop(published);
    }
    assert_eq!(pair.reach(), Reach::Yes, "other windows are there as before");
}

#[test]
fn without_reads_on_the_device_gets_are_left_to_the_server() {
    let Some(mut pair) = Pair::new(|options| options.reads_at_once_max = 0) else { return };
    if Pair::is_iwarp() {
        assert_eq!(pair.reach(), Reach::No, "without reads nobody learns that a put has arrived");
        return;
    }
    assert_eq!(pair.reach(), Reach::Yes);
    assert_eq!(pair.caller.direct().unwrap().reach(&PART, Wish::Get), Reach::No);
    pair.put(1, 0, DirectSource::Copied(Region::from_slice(&[7; 8])), 8);
    assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
}

#[test]
fn a_queue_of_few_requests_is_not_overrun() {
    let Some(mut pair) = Pair::new(|options| options.queue_depth = 16) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let source = Memory::new(3 << 20).fill(4);
    // Longer than fits at a time, through buffers and not.
    pair.put(1, 0, DirectSource::Lent(Box::new(source)), 3 << 20);
    let mut puts = 0_u64;
    while puts < 200 {
        if pair.caller.direct().unwrap().reach(&PART, Wish::PutCopied(8)) == Reach::Yes {
            let word = puts.to_le_bytes();
            pair.put(100 + puts, (4 << 20) + puts as usize * 8, DirectSource::Copied(Region::from_slice(&word)), 8);
            puts += 1;
        } else {
            step(&mut *pair.caller);
        }
    }
    assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
    for ticket in 100..300 {
        assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
    }
    let there = pair.window.bytes();
    assert!(there[..3 << 20] == source.bytes());
    assert!((0..200_u64).all(|word| there[(4 << 20) + word as usize * 8..][..8] == word.to_le_bytes()));
}

#[test]
fn who_puts_and_never_looks_finds_room_all_the_same() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    // More than the queue holds. What is told of them is taken up by nobody but who asks for room.
    for ticket in 0..1000_u64 {
        while pair.caller.direct().unwrap().reach(&PART, Wish::PutCopied(8)) != Reach::Yes {
            std::hint::spin_loop();
        }
        pair.put(ticket, ticket as usize * 8, DirectSource::Copied(Region::from_slice(&ticket.to_le_bytes())), 8);
    }
    for ticket in 0..1000 {
        assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
    }
    let there = pair.window.bytes();
    assert!((0..1000_u64).all(|word| there[word as usize * 8..][..8] == word.to_le_bytes()));
}

#[test]
fn who_has_the_wrong_key_or_no_window_reaches_nothing() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    for wrong in [
        WindowRef { key: AccessKey(0x1235), ..PART },
        WindowRef { window: WindowId(8), ..PART },
        WindowRef { generation: Generation(2), ..PART },
        WindowRef { rank: Rank(2), ..PART },
    ] {
        let decided = loop {
            match pair.caller.direct().unwrap().reach(&wrong, Wish::PutLent) {
                Reach::Asked => {
                    step(&mut *pair.caller);
                    step(&mut *pair.called);
                }
                decided => break decided,
            }
        };
        assert_eq!(decided, Reach::No, "{wrong:?}");
    }
}

#[test]
fn a_window_that_is_gone_refuses() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    pair.window.fill(3);
    let before = pair.window.bytes();
    pair.published = None;
    pair.put(9, 0, DirectSource::Copied(Region::from_slice(&[1; 8])), 8);
    pair.put(10, 8, DirectSource::Copied(Region::from_slice(&[1; 8])), 8);
    while !matches!(pair.caller.receive(&[RegionMut::from_slice(&mut [0; 8])]), Err(LinkError::Device(_))) {
        thread::yield_now();
    }
    pair.reconnect();
    if pair.was_forgotten(&[9, 10]) {
        assert!(pair.window.bytes() == before, "nothing was written");
        return;
    }
    assert_eq!(pair.outcome(), (9, DirectOutcome::Refused));
    assert_eq!(pair.outcome(), (10, DirectOutcome::NotDone), "the one behind it was not tried");
    assert!(pair.window.bytes() == before, "nothing was written");
}

#[test]
fn a_refusal_of_any_piece_is_one_of_the_whole() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    pair.published = None;
    let large = Memory::new(4 << 20).fill(3);
    pair.put(9, 0, DirectSource::Lent(Box::new(large)), 4 << 20);
    while !matches!(pair.caller.receive(&[RegionMut::from_slice(&mut [0; 8])]), Err(LinkError::Device(_))) {
        thread::yield_now();
    }
    pair.reconnect();
    if pair.was_forgotten(&[9]) {
        return;
    }
    assert_eq!(pair.outcome(), (9, DirectOutcome::Refused));
}

#[test]
fn what_was_done_before_a_connection_broke_is_not_done_again() {
    let Ok(wire) = std::env::var("LONGARM_TEST_RDMA_WIRE") else {
        skipped("LONGARM_TEST_RDMA_WIRE names no interface of the answers' way");
        return;
    };
    if Pair::is_iwarp() {
        skipped("over iWARP TCP sends again what a wire has lost");
        return;
    }
    let Some(mut pair) = Pair::new(|options| options.timeout_code = 10) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let tc = |arguments: &[&str]| {
        let status = Command::new("tc").args(["qdisc"]).args(arguments).status().expect("tc is installed");
        assert!(status.success(), "tc {arguments:?}");
    };
    tc(&["add", "dev", &wire, "root", "netem", "loss", "100%"]);
    // It arrives, and the answer does not.
    pair.put(1, 0, DirectSource::Copied(Region::from_slice(&[0xaa; 8])), 8);
    while pair.window.bytes()[..8] != [0xaa; 8] {
        thread::yield_now();
    }
    // The target takes notice, and goes on.
    pair.window.0.slice(0, 8).copy_from_slice(&[0x55; 8]);
    while !matches!(pair.caller.receive(&[RegionMut::from_slice(&mut [0; 8])]), Err(LinkError::Device(_))) {
        thread::yield_now();
    }
    tc(&["del", "dev", &wire, "root"]);
    pair.called = {
        let (caller, called) = connected(&pair.origin, &mut *pair.listener);
        // The server lets go of the old connection before it welcomes the new one.
        let old = std::mem::replace(&mut pair.caller, caller);
        drop(old);
        called
    };
    while !pair.caller.is_settled() {
        step(&mut *pair.caller);
        step(&mut *pair.called);
        thread::yield_now();
    }
    assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
    assert_eq!(pair.window.bytes()[..8], [0x55; 8], "it was not written a second time");
    assert!(pair.target.counts().is_some());
}
