//! Words that the target's device updates.

use std::process::Command;
use std::thread;

use longarm_memory::RegionMut;
use longarm_netmod::{DeviceRmw, DirectOutcome, Link, LinkError, Netmod, NoDeviceRmw, Reach, Wish};
use longarm_proto::{WindowId, WindowRef};
use longarm_verbs::Counts;

use crate::{Memory, PART, Pair, connected, step};

const WORDS: WindowRef = WindowRef { window: WindowId(8), ..PART };

/// A pair whose target has words too. `None` where there are no two devices, or none that update words.
struct Words {
    pair: Pair,
    words: Memory,
    published: Option<Box<dyn Send + Sync>>,
}

impl Words {
    fn new(timeout_code: u8) -> Option<Words> {
        let mut pair = Pair::new(|options| options.timeout_code = timeout_code)?;
        let words = Memory::new(4096);
        let published = Some(pair.target.remote_memory().unwrap().publish(WORDS, words.0));
        if Pair::is_iwarp() {
            assert_eq!(pair.origin.device_rmw(), Err(NoDeviceRmw::Iwarp));
            assert_eq!(reach(&mut pair, &WORDS, Wish::Rmw), Reach::No);
            return None;
        }
        assert_eq!(pair.origin.device_rmw(), Ok(()));
        assert_eq!(reach(&mut pair, &WORDS, Wish::Rmw), Reach::Yes);
        Some(Words { pair, words, published })
    }

    fn word(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        self.words.0.slice(index * 8, 8).copy_to_slice(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn begin(&mut self, ticket: u64, index: u64, rmw: DeviceRmw) {
        self.pair.caller.direct().unwrap().rmw(ticket, &WORDS, index * 8, rmw).unwrap();
    }

    /// The old value.
    fn update(&mut self, index: u64, rmw: DeviceRmw) -> u64 {
        self.begin(77, index, rmw);
        match self.pair.outcome() {
            (77, DirectOutcome::Value(old)) => old,
            other => panic!("{rmw:?} gave {other:?}"),
        }
    }

    fn await_break(&mut self) {
        while !matches!(self.pair.caller.receive(&[RegionMut::from_slice(&mut [0; 8])]), Err(LinkError::Device(_))) {
            thread::yield_now();
        }
    }
}

fn reach(pair: &mut Pair, part: &WindowRef, wish: Wish) -> Reach {
    loop {
        step(&mut *pair.caller);
        step(&mut *pair.called);
        match pair.caller.direct().map(|access| access.reach(part, wish)) {
            None | Some(Reach::Asked) => thread::yield_now(),
            Some(decided) => return decided,
        }
    }
}

#[test]
fn the_device_adds_and_swaps_and_gives_the_old_value() {
    let Some(mut words) = Words::new(19) else { return };
    assert_eq!(words.update(3, DeviceRmw::FetchAdd(0x0102_0304_0506_0708)), 0);
    assert_eq!(words.word(3), 0x0102_0304_0506_0708, "in the order of bytes of this machine");
    assert_eq!(words.update(3, DeviceRmw::FetchAdd(u64::MAX)), 0x0102_0304_0506_0708);
    assert_eq!(words.update(3, DeviceRmw::FetchAdd(0)), 0x0102_0304_0506_0707);
    let swap = |expected, new| DeviceRmw::CompareSwap { expected, new };
    assert_eq!(words.update(511, swap(0, 9)), 0);
    assert_eq!(words.update(511, swap(8, 10)), 9);
    assert_eq!(words.word(511), 9, "it was not what was expected");
    assert_eq!(words.update(511, swap(9, u64::MAX)), 9);
    assert_eq!(words.word(511), u64::MAX);
    let others = (0..512).filter(|index| ![3, 511].contains(index));
    assert!(others.into_iter().all(|index| words.word(index) == 0));
}

#[test]
fn an_update_is_one_request_and_the_target_does_nothing() {
    let Some(mut words) = Words::new(19) else { return };
    let before = words.pair.target.counts().unwrap();
    let origin = words.pair.origin.counts().unwrap();
    let updates = 10;
    for round in 0..updates {
        assert_eq!(words.update(0, DeviceRmw::FetchAdd(1)), round);
    }
    let after = words.pair.origin.counts().unwrap();
    let made = Counts {
        requests: origin.requests + updates,
        atomics: origin.atomics + updates,
        doorbells: origin.doorbells + updates,
        completions: origin.completions + updates,
        ..origin
    };
    assert_eq!(after, made);
    assert_eq!(words.pair.target.counts().unwrap(), before);
}

#[test]
fn updates_over_two_queues_lose_nothing_and_see_each_value_once() {
    let Some(mut words) = Words::new(19) else { return };
    let (mut other, mut other_called) = connected(&words.pair.origin, &mut *words.pair.listener);
    while other.direct().is_none_or(|access| access.reach(&WORDS, Wish::Rmw) != Reach::Yes) {
        step(&mut *other);
        step(&mut *other_called);
    }
    // More than one at a time on each, and more than the device answers at once.
    const EACH: u64 = 200;
    let mut seen = Vec::new();
    let (mut begun, mut ended) = ([0; 2], [0; 2]);
    while ended != [EACH; 2] {
        let links: [&mut dyn Link; 2] = [&mut *words.pair.caller, &mut *other];
        for (at, link) in links.into_iter().enumerate() {
            step(link);
            let access = link.direct().unwrap();
            if begun[at] < EACH && access.reach(&WORDS, Wish::Rmw) == Reach::Yes {
                access.rmw(begun[at], &WORDS, 40, DeviceRmw::FetchAdd(1)).unwrap();
                begun[at] += 1;
            }
            while let Some((ticket, outcome)) = access.take_outcome() {
                assert_eq!(ticket, ended[at], "in the order of the calls");
                ended[at] += 1;
                let DirectOutcome::Value(old) = outcome else { panic!("{outcome:?}") };
                seen.push(old);
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * EACH).collect::<Vec<_>>());
    assert_eq!(words.word(5), 2 * EACH);
}

#[test]
fn a_window_is_either_updated_or_read_and_written() {
    let Some(mut words) = Words::new(19) else { return };
    let pair = &mut words.pair;
    assert_eq!(pair.reach(), Reach::Yes);
    // Another process that knows of neither yet.
    let (caller, called) = connected(&pair.target, &mut *pair.listener);
    (pair.caller, pair.called) = (caller, called);
    assert_eq!(reach(pair, &PART, Wish::Rmw), Reach::No);
    assert_eq!(reach(pair, &WORDS, Wish::PutLent), Reach::No);
    let wrong = WindowRef { window: WindowId(9), ..WORDS };
    assert_eq!(reach(pair, &wrong, Wish::Rmw), Reach::No);
}

#[test]
fn words_that_are_gone_refuse() {
    let Some(mut words) = Words::new(19) else { return };
    words.published = None;
    words.begin(1, 0, DeviceRmw::FetchAdd(1));
    words.begin(2, 1, DeviceRmw::FetchAdd(1));
    words.await_break();
    words.pair.reconnect();
    assert_eq!(words.pair.outcome(), (1, DirectOutcome::Refused));
    assert_eq!(words.pair.outcome(), (2, DirectOutcome::NotDone), "the one behind it was not tried");
    assert_eq!((words.word(0), words.word(1)), (0, 0));
}

#[test]
fn an_update_that_never_arrived_is_handed_back() {
    let Some(mut words) = Words::new(10) else { return };
    assert_eq!(words.update(0, DeviceRmw::FetchAdd(5)), 0);
    // The target's queue ends, which knows how far it went.
    let (caller, called) = connected(&words.pair.origin, &mut *words.pair.listener);
    words.pair.called = called;
    words.begin(1, 0, DeviceRmw::FetchAdd(1));
    while words.pair.caller.receive(&[RegionMut::from_slice(&mut [0; 8])]).is_ok() {
        thread::yield_now();
    }
    words.pair.caller = caller;
    while !words.pair.caller.is_settled() {
        step(&mut *words.pair.caller);
        step(&mut *words.pair.called);
        thread::yield_now();
    }
    assert_eq!(words.pair.outcome(), (1, DirectOutcome::NotDone));
    assert_eq!(words.word(0), 5);
    assert_eq!(reach(&mut words.pair, &WORDS, Wish::Rmw), Reach::Yes);
    assert_eq!(words.update(0, DeviceRmw::FetchAdd(1)), 5);
}

#[test]
fn an_update_whose_answer_was_lost_is_told_to_be_done() {
    let Ok(wire) = std::env::var("LONGARM_TEST_RDMA_WIRE") else {
        crate::skipped::skipped("LONGARM_TEST_RDMA_WIRE names no interface of the answers' way");
        return;
    };
    let Some(mut words) = Words::new(10) else { return };
    let tc = |arguments: &[&str]| {
        let status = Command::new("tc").args(["qdisc"]).args(arguments).status().expect("tc is installed");
        assert!(status.success(), "tc {arguments:?}");
    };
    tc(&["add", "dev", &wire, "root", "netem", "loss", "100%"]);
    words.begin(1, 0, DeviceRmw::FetchAdd(3));
    while words.word(0) == 0 {
        thread::yield_now();
    }
    // It is sent again until the device gives up, and done once.
    words.await_break();
    tc(&["del", "dev", &wire, "root"]);
    let (caller, called) = connected(&words.pair.origin, &mut *words.pair.listener);
    // The server lets go of the old connection before it welcomes the new one.
    drop(std::mem::replace(&mut words.pair.caller, caller));
    words.pair.called = called;
    while !words.pair.caller.is_settled() {
        step(&mut *words.pair.caller);
        step(&mut *words.pair.called);
        thread::yield_now();
    }
    assert_eq!(words.pair.outcome(), (1, DirectOutcome::ValueLost));
    assert_eq!(words.word(0), 3);
}
