//! Memory that comes and goes while the device uses it. What is seen has to be the same whether memory is registered on demand or
//! kept, and tests say which it was.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longarm_memory::RegionMut;
use longarm_netmod::{DirectOutcome, DirectSource, Netmod, Reach};
use longarm_proto::{Generation, WindowRef};
use longarm_verbs::{OnDemand, Verbs, VerbsOptions, Watched};

use crate::mapping::{Mapping, first_bytes, in_child, page_bytes};
use crate::{Memory, PART, Pair, WINDOW_BYTES};

const PAGES: usize = 32;

/// A mapping as the netmod takes it. It stays mapped while that is used, as the tests see to.
fn lent(mapping: &Mapping) -> Memory {
    // SAFETY: nothing in it is Rust memory, and no transfer goes on while any of it is not mapped.
    #[allow(unsafe_code)]
    Memory(unsafe { RegionMut::from_raw(std::ptr::with_exposed_provenance_mut(mapping.start), mapping.bytes) })
}

fn mark(mapping: &Mapping, seed: u8) -> Vec<u8> {
    let pages = mapping.bytes / page_bytes();
    (0..pages).for_each(|page| mapping.write(page, page as u8 ^ seed));
    (0..pages).map(|page| page as u8 ^ seed).collect()
}

fn marks(mapping: &Mapping) -> Vec<u8> {
    first_bytes(mapping.start, mapping.bytes).expect("it is mapped")
}

/// Whether the device registers on demand. What the caller of the tests expects, it may say: `LONGARM_TEST_ODP_EXPECTED`.
fn is_used(verbs: &Verbs) -> bool {
    let choice = verbs.paging().expect("its device is open");
    eprintln!("on-demand paging is {choice}");
    if let Ok(expected) = std::env::var("LONGARM_TEST_ODP_EXPECTED") {
        assert_eq!(choice.to_string(), expected);
    }
    choice.is_used()
}

/// Bytes of this process that the kernel may not move, as it says itself.
fn pinned_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).expect("the kernel counts them");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn put(pair: &mut Pair, mapping: &Mapping) -> Vec<u8> {
    pair.put(1, 0, DirectSource::Lent(Box::new(lent(mapping))), mapping.bytes);
    assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
    pair.window.bytes()[..mapping.bytes].iter().step_by(page_bytes()).copied().collect()
}

fn get(pair: &mut Pair, mapping: &Mapping) {
    pair.get(2, 0, lent(mapping));
    assert_eq!(pair.outcome(), (2, DirectOutcome::Done));
}

/// What a program does to its memory, and the memory afterwards.
type Change = (&'static str, fn(Mapping) -> Mapping);

const CHANGES: [Change; 7] = [
    ("discarded", |mapping| {
        mapping.discard(0, PAGES);
        mapping
    }),
    ("unmapped, and mapped at the same addresses", |mapping| {
        mapping.unmap(3, PAGES - 5);
        assert!(mapping.map_again(3, PAGES - 5));
        mapping
    }),
    ("mapped over", |mapping| {
        mapping.map_over(1, PAGES - 1);
        mapping
    }),
    ("replaced by another that is moved there", |mapping| {
        let other = Mapping::new(PAGES);
        mark(&other, 0xcc);
        other.moved_onto(mapping)
    }),
    ("shrunk, and mapped again behind that", |mut mapping| {
        mapping.shrink(5);
        mapping.bytes = PAGES * page_bytes();
        assert!(mapping.map_again(5, PAGES - 5));
        mapping
    }),
    ("grown elsewhere, and mapped at the old addresses", |mapping| {
        let start = mapping.start;
        let in_the_way = Mapping { start: start + mapping.bytes, bytes: page_bytes() };
        assert!(in_the_way.map_again(0, 1));
        let grown = mapping.grown(600);
        assert_ne!(grown.start, start);
        let again = Mapping { start, bytes: PAGES * page_bytes() };
        assert!(again.map_again(0, PAGES));
        again
    }),
    ("copied to a child", |mapping| {
        assert_eq!(in_child(|| true), 0);
        mapping
    }),
];

#[test]
fn windows_are_registered_on_demand_where_the_device_does_it_right_and_else_kept_in_memory() {
    let Some(mut pair) = Pair::new(|options| options.on_demand = OnDemand::No) else { return };
    let before = pinned_bytes();
    assert_eq!(pair.reach(), Reach::Yes);
    let counts = pair.target.counts().unwrap();
    assert_eq!((counts.windows_kept, counts.windows_on_demand), (1, 0));
    assert!(pinned_bytes() >= before + WINDOW_BYTES, "all its pages stay in memory");
    drop(pair);

    let little = |options: &mut VerbsOptions| {
        options.pinned_bytes_max = 4096;
        options.pinned_together_bytes_max = 4096;
    };
    let mut pair = Pair::new(little).expect("as before");
    let before = pinned_bytes();
    let (reach, counts) = (pair.reach(), pair.target.counts().unwrap());
    if !is_used(&pair.target) {
        assert_eq!((reach, counts.windows_kept, counts.windows_on_demand), (Reach::No, 0, 0));
        return;
    }
    assert_eq!((reach, counts.windows_kept, counts.windows_on_demand), (Reach::Yes, 0, 1));
    assert!(pinned_bytes() < before + WINDOW_BYTES, "its pages come and go");
}

#[test]
fn pages_of_a_window_may_go_and_come_while_it_is_registered() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    if !is_used(&pair.target) {
        crate::skipped::skipped("the device keeps pages");
        return;
    }
    let remote = pair.target.remote_memory().unwrap();
    for (number, (what, change)) in CHANGES.into_iter().enumerate() {
        let mut mapping = Mapping::new(PAGES);
        let part = WindowRef { generation: Generation(100 + number as u32), ..PART };
        let published = remote.publish(part, lent(&mapping).0);
        pair.reach_part(&part);
        let ours = Mapping::new(PAGES);
        for (round, seed) in [3, 77].into_iter().enumerate() {
            let marked = mark(&ours, seed);
            let run = longarm_proto::Run { offset: 0, bytes: ours.bytes as u64 };
            let source = DirectSource::Lent(Box::new(lent(&ours)));
            pair.caller.direct().unwrap().put(1, &part, run, source).expect(what);
            assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
            assert_eq!(marks(&mapping), marked, "put, {what}, round {round}");
            mapping = change(mapping);
            // What is there now is what is got, whatever that is.
            let now = marks(&mapping);
            pair.caller.direct().unwrap().get(2, &part, run, Box::new(lent(&ours))).expect(what);
            assert_eq!(pair.outcome(), (2, DirectOutcome::Done));
            assert_eq!(marks(&ours), now, "got, {what}, round {round}");
        }
        drop(published);
    }
    let counts = pair.target.counts().unwrap();
    assert_eq!((counts.windows_kept, counts.windows_on_demand), (0, CHANGES.len() as u64));
}

#[test]
fn memory_of_the_program_may_go_and_come_between_transfers() {
    for on_demand in [OnDemand::Auto, OnDemand::All] {
        let Some(mut pair) = Pair::new(|options| options.on_demand = on_demand) else { return };
        assert_eq!(pair.reach(), Reach::Yes);
        for (what, change) in CHANGES {
            let mut mapping = Mapping::new(PAGES);
            // Read before it was ever written: pages that all processes share, until somebody writes.
            assert_eq!(put(&mut pair, &mapping), vec![0; PAGES], "{what}");
            for seed in [9, 200] {
                pair.window.fill(seed);
                get(&mut pair, &mapping);
                let there = pair.window.bytes();
                let there: Vec<u8> = there[..mapping.bytes].iter().step_by(page_bytes()).copied().collect();
                assert_eq!(marks(&mapping), there, "got, {what}");
                let marked = mark(&mapping, seed);
                assert_eq!(put(&mut pair, &mapping), marked, "put, {what}");
                mapping = change(mapping);
                let now = marks(&mapping);
                assert_eq!(put(&mut pair, &mapping), now, "put afterwards, {what}");
            }
        }
        // Nobody else's zeros were written to.
        assert_eq!(marks(&Mapping::new(PAGES)), [0; PAGES]);
        let statistics = pair.origin.cache_statistics().unwrap();
        if on_demand == OnDemand::All && is_used(&pair.origin) {
            assert_eq!((statistics.watch, statistics.invalidations), (Watched::Device, 0));
            assert!(statistics.hits > 0 && statistics.uncached == 0, "{statistics}");
        } else {
            assert_ne!(statistics.watch, Watched::Device);
        }
    }
}

#[test]
fn a_child_keeps_what_it_had_when_a_get_writes_to_its_parents_memory() {
    let Some(mut pair) = Pair::new(|options| options.on_demand = OnDemand::All) else { return };
    if !is_used(&pair.origin) {
        crate::skipped::skipped("the verbs library may take from children what the device keeps");
        return;
    }
    assert_eq!(pair.reach(), Reach::Yes);
    let mapping = Mapping::new(PAGES);
    for round in 0..5_u8 {
        let marked = mark(&mapping, round);
        // Known to the device before the child is there.
        assert_eq!(put(&mut pair, &mapping), marked);
        pair.window.fill(round ^ 0xff);
        let (mut child_is_there, child_says) = std::io::pipe().unwrap();
        let (child_hears, mut go_on) = std::io::pipe().unwrap();
        thread::scope(|scope| {
            let mapping = &mapping;
            let child = scope.spawn(move || {
                let (mut says, mut hears) = (child_says, child_hears);
                in_child(move || {
                    says.write_all(&[1]).unwrap();
                    hears.read_exact(&mut [0]).unwrap();
                    marks(mapping) == marked
                })
            });
            child_is_there.read_exact(&mut [0]).unwrap();
            get(&mut pair, mapping);
            let there = pair.window.bytes();
            assert!(marks(mapping).iter().eq(there[..mapping.bytes].iter().step_by(page_bytes())));
            go_on.write_all(&[1]).unwrap();
            assert_eq!(child.join().unwrap(), 0, "the child has what was there when it began");
        });
    }
}

#[test]
fn memory_beside_goes_and_children_come_while_transfers_run() {
    for on_demand in [OnDemand::Auto, OnDemand::All] {
        let Some(mut pair) = Pair::new(|options| options.on_demand = on_demand) else { return };
        assert_eq!(pair.reach(), Reach::Yes);
        let mapping = Mapping::new(2 * PAGES);
        // What is transferred is the first half, and registered is now all of it, where that is remembered.
        let first = std::mem::ManuallyDrop::new(Mapping { start: mapping.start, bytes: PAGES * page_bytes() });
        put(&mut pair, &mapping);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    mapping.discard(PAGES, PAGES);
                    mapping.map_over(PAGES + 1, PAGES - 2);
                    assert_eq!(in_child(|| true), 0);
                    thread::yield_now();
                }
            });
            for round in 0..20_u8 {
                let marked = mark(&first, round);
                assert_eq!(put(&mut pair, &first), marked);
                pair.window.fill(round ^ 0x80);
                get(&mut pair, &first);
                let there = pair.window.bytes();
                assert!(marks(&first).iter().eq(there[..first.bytes].iter().step_by(page_bytes())));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// A put that a device may fail at first, which breaks the connection.
fn put_at_last(pair: &mut Pair, mapping: &Mapping) {
    let put = |pair: &mut Pair| pair.put(1, 0, DirectSource::Lent(Box::new(lent(mapping))), mapping.bytes);
    put(pair);
    loop {
        if pair.caller.receive(&[RegionMut::from_slice(&mut [0; 8])]).is_err() {
            pair.reconnect();
        }
        match pair.caller.direct().and_then(|access| access.take_outcome()) {
            Some((1, DirectOutcome::Done)) => return,
            Some(outcome) => {
                assert_eq!(outcome, (1, DirectOutcome::NotDone));
                assert_eq!(pair.reach(), Reach::Yes);
                put(pair);
            }
            None => thread::yield_now(),
        }
    }
}

#[test]
fn memory_that_may_only_be_read_is_put_from_however_it_is_registered() {
    static CONSTANTS: [u8; 1 << 20] = [0xc5; 1 << 20];
    for on_demand in [OnDemand::No, OnDemand::Auto, OnDemand::All] {
        let Some(mut pair) = Pair::new(|options| options.on_demand = on_demand) else { return };
        assert_eq!(pair.reach(), Reach::Yes);
        let memory = rustix::fs::memfd_create("longarm-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(memory);
        let in_file: Vec<u8> = (0..CONSTANTS.len()).map(|at| (at % 239) as u8).collect();
        file.write_all_at(&in_file, 0).unwrap();
        let of_file = Mapping::of_file(&file, CONSTANTS.len() / page_bytes());
        // Read, or not yet: pages that are there, and those that the device has to ask for.
        let start = CONSTANTS.as_ptr().expose_provenance();
        let of_program = std::mem::ManuallyDrop::new(Mapping { start, bytes: CONSTANTS.len() });
        let sources = [(&of_file, &in_file[..]), (&of_program, &CONSTANTS[..])];
        for (mapping, bytes) in sources.into_iter().chain(sources) {
            pair.window.fill(1);
            put_at_last(&mut pair, mapping);
            assert!(pair.window.bytes()[..bytes.len()] == *bytes);
        }
        if on_demand == OnDemand::All && is_used(&pair.origin) {
            assert_eq!(pair.origin.cache_statistics().unwrap().watch, Watched::Device);
        }
    }
}
