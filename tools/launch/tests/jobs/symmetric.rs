//! What interfaces with symmetric addresses build on: groups that are made without a word, a heap of a size of their own,
//! words that are waited for, bytes with signals, updates that nobody waits for, memory that is in no window, and a world that
//! several interfaces of a process share.

use std::sync::Arc;

use longarm::error::{Operation, TransferError};
use longarm::ffi::sync::{AtomicBool, Ordering};
use longarm::ffi::{Completion, OriginBytes, OriginBytesMut, RegionMut, Rmw, RmwOp, RmwWidth, SignalOp};
use longarm::{Compare, World};

use super::support::{ahead, barrier, ranks};

/// Groups of the same ranks are told apart by their tags, also where threads of one rank use them at the same time; their
/// order is that of the list; who is not listed gets none.
pub fn groups(world: &World) {
    let me = world.rank();
    let everybody: Vec<u32> = ranks(world).collect();
    let backwards: Vec<u32> = everybody.iter().rev().copied().collect();
    let lists =
        [everybody.clone(), backwards, everybody.iter().copied().filter(|rank| rank % 2 == 0).collect(), vec![me]];
    for list in &lists {
        let made: Vec<_> = [7, 8, 7 << 32].iter().map(|tag| world.group_among(list, *tag)).collect();
        if !list.contains(&me) {
            assert!(made.iter().all(Option::is_none));
            continue;
        }
        std::thread::scope(|scope| {
            for (number, group) in made.into_iter().enumerate() {
                let list = list.clone();
                scope.spawn(move || {
                    let group = group.expect("this rank is listed");
                    assert_eq!(group.members(), list);
                    assert_eq!(list[group.rank() as usize], me);
                    for round in 0..20 {
                        let word = |rank: u32| u64::from(rank) << 32 | (number as u64) << 16 | round;
                        let all = group.allgather_collective(&[word(me)]).expect("all members are there");
                        let expected: Vec<u64> = list.iter().map(|rank| word(*rank)).collect();
                        assert_eq!(all, expected, "group {number}, round {round}");
                    }
                });
            }
        });
    }
    let nobody = world.group_among(&[], 1);
    assert!(nobody.is_none());
}

/// The first call says how large the heap is.
pub fn heap(world: &World) {
    let heap = world.heap_of_collective(300_000).expect("a heap");
    assert_eq!(heap.bytes(), 300_000);
    assert_eq!(heap.free_bytes(), 300_000);
    let again = world.heap_of_collective(1 << 30).expect("the same heap");
    let same = world.heap_collective().expect("the same heap");
    assert!(Arc::ptr_eq(&heap, &again) && Arc::ptr_eq(&heap, &same));
    let block = heap.allocate_collective(200_000).expect("a block");
    assert!(heap.allocate_collective(200_000).is_err());
    let right = ahead(world, 1);
    heap.window::<u8>().put(right, block.offset() + 199_999, &[9]).expect("the last byte");
    barrier(world);
    let last = heap
        .window::<u8>()
        .get_vec(world.rank(), block.offset() + 199_999..block.offset() + 199_999 + 1)
        .expect("one's own");
    assert_eq!(last, [9]);
    barrier(world);
}

/// A rank waits for what it looks at itself: a word of its window, or what another thread says and rings for.
pub fn waits(world: &World) {
    let words = world.allocate_collective::<u8>(64).expect("a window");
    let counts = world.allocate_collective::<u64>(1).expect("a window");
    let (me, right) = (world.rank(), ahead(world, 1));
    for round in 1..=20u64 {
        counts.fetch_add(right, 0, 1).expect("the neighbour");
        let mut looks = 0;
        let found = world.wait_for_words(|| {
            looks += 1;
            counts.fetch(me, 0).ok().filter(|count| *count >= round)
        });
        assert_eq!(found.expect("nobody has died"), round);
        assert!(looks > 0);
        barrier(world);
    }
    let is_said = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            is_said.swap(true, Ordering::SeqCst);
            world.notify(me);
        });
        world.wait_for_words(|| is_said.load(Ordering::Acquire).then_some(())).expect("nobody has died");
    });
    // Bytes with a signal in another window: who sees the signal sees them.
    let heap = world.heap_of_collective(4096).expect("a heap");
    let (signals, signal_bytes) = (heap.window::<u64>(), heap.window::<u8>());
    for round in 1..=20u8 {
        let place = |offset: u64| (&signal_bytes, offset);
        words
            .put_signal_bytes((right, 3), OriginBytes::from(&[round; 61][..]), place(8), (SignalOp::Add, 2))
            .expect("add");
        signals.wait_until(1, Compare::Equal, 2 * u64::from(round)).expect("the signal");
        assert_eq!(words.get_vec(me, 0..64).expect("mine"), [&[0; 3][..], &[round; 61][..]].concat());
        barrier(world);
    }
    words
        .put_signal_bytes((right, 0), OriginBytes::from(&[][..]), (&signal_bytes, 0), (SignalOp::Set, 5))
        .expect("set");
    signals.wait_until(0, Compare::Equal, 5).expect("the signal alone");
    let beyond =
        words.put_signal_bytes((right, 60), OriginBytes::from(&[0; 5][..]), (&signal_bytes, 0), (SignalOp::Set, 5));
    assert!(beyond.is_err());
    barrier(world);
}

/// Updates are started without an answer, all under one completion, and are all there when it is complete.
pub fn updates(world: &World) {
    const ROUNDS: u64 = 200;
    let heap = world.heap_of_collective(16).expect("a heap");
    let (counts, bytes) = (heap.window::<u64>(), heap.window::<u8>());
    let (completion, part) = Completion::begin();
    for _ in 0..ROUNDS {
        for rank in ranks(world) {
            let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 3, compare: 0 };
            bytes.start_rmw_bytes(rank, 8, rmw, &part).expect("it is started");
        }
    }
    let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    assert!(bytes.start_rmw_bytes(0, 16, rmw, &part).is_err());
    assert!(bytes.start_rmw_bytes(0, 4, rmw, &part).is_err());
    drop(part);
    world.wait_for_completion(Operation::Rmw, world.rank(), &completion).expect("none has failed");
    world.sync_collective().expect("all are complete");
    assert_eq!(counts.fetch(world.rank(), 1).expect("mine"), 3 * ROUNDS * u64::from(world.size()));
    barrier(world);
}

/// Memory that stays for good is read and written by the ranks of its node, and has to be on it.
pub fn exposed_for_good(world: &World) {
    let me = world.rank();
    let mine: &'static mut [u8] = Vec::leak(vec![me as u8 + 1; 5000 + me as usize]);
    let region = RegionMut::from_slice(mine);
    let exposed = world.expose_for_good_collective(region).expect("memory can be exposed");
    for rank in ranks(world) {
        let mut all = vec![0; 5000 + rank as usize];
        let got = exposed.get(rank, 0, OriginBytesMut::from(&mut all[..]));
        if !world.shares_memory_with(rank) {
            assert!(matches!(got, Err(TransferError::OtherNode { .. })), "{got:?}");
            continue;
        }
        got.expect("the ranks of a node reach each other's memory");
        assert!(all.iter().all(|byte| *byte == rank as u8 + 1));
        let outside = exposed.put(rank, 4999 + u64::from(rank), OriginBytes::from(&[0; 2][..]));
        assert!(matches!(outside, Err(TransferError::OutsideExposed { .. })), "{outside:?}");
    }
    barrier(world);
    for rank in ranks(world).filter(|rank| world.shares_memory_with(*rank)) {
        exposed.put(rank, u64::from(me) * 10, OriginBytes::from(&[100 + me as u8; 10][..])).expect("a neighbour");
    }
    barrier(world);
    let mut found = vec![0; 10];
    for rank in ranks(world) {
        region.slice(rank as usize * 10, 10).copy_to_slice(&mut found);
        let expected = if world.shares_memory_with(rank) { 100 + rank as u8 } else { me as u8 + 1 };
        assert_eq!(found, [expected; 10]);
    }
    barrier(world);
}

/// Who comes second gets the same world, and leaves it to the others when it is done.
pub fn shared(world: &World) {
    assert!(longarm::is_initialized());
    assert!(longarm::init().is_err(), "init makes a world of its own, and there is one");
    for _ in 0..3 {
        let again = longarm::init_shared().expect("the world that there is");
        let third = longarm::init_shared().expect("the same");
        assert_eq!((again.rank(), again.size()), (world.rank(), world.size()));
        again.finalize().expect("all meet");
        third.sync_collective().expect("it is still there");
        third.finalize().expect("all meet");
    }
    let window = world.allocate_collective::<u32>(1).expect("the world goes on");
    window.fetch_add(ahead(world, 1), 0, 1).expect("the neighbour");
    barrier(world);
    assert_eq!(window.fetch(world.rank(), 0).expect("mine"), 1);
}
