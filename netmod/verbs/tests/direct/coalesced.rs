//! Transfers of memory that lies in pieces, and several that the device is told of at once.

use longarm_memory::Region;
use longarm_netmod::{DirectOutcome, DirectSource, InPieces, Loan, Reach};
use longarm_proto::Run;
use longarm_verbs::Counts;

use crate::{Memory, PART, Pair};

/// Pieces of some memory, in this order.
struct Pieces {
    memory: Memory,
    pieces: Vec<Run>,
}

impl Pieces {
    fn new(memory: Memory, pieces: impl IntoIterator<Item = (usize, usize)>) -> Pieces {
        let run = |(offset, bytes)| Run { offset: offset as u64, bytes: bytes as u64 };
        Pieces { memory, pieces: pieces.into_iter().map(run).collect() }
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes as usize).sum()
    }

    fn loan(&self) -> Box<dyn Loan> {
        Box::new(InPieces(self.memory.0, self.pieces.clone()))
    }

    /// What lies in them.
    fn bytes(&self) -> Vec<u8> {
        let all = self.memory.bytes();
        self.pieces.iter().flat_map(|piece| all[piece.offset as usize..][..piece.bytes as usize].to_vec()).collect()
    }
}

fn put(pair: &mut Pair, pieces: &Pieces, offset: usize) {
    pair.put(1, offset, DirectSource::Lent(pieces.loan()), pieces.len());
    assert_eq!(pair.outcome(), (1, DirectOutcome::Done));
    let there = pair.window.bytes();
    assert!(there[offset..offset + pieces.len()] == pieces.bytes(), "{} pieces", pieces.pieces.len());
}

fn get(pair: &mut Pair, pieces: &Pieces, offset: usize) {
    let run = Run { offset: offset as u64, bytes: pieces.len() as u64 };
    let between = {
        let mut all = pieces.memory.bytes();
        pieces.pieces.iter().for_each(|piece| all[piece.offset as usize..][..piece.bytes as usize].fill(0));
        all
    };
    pair.caller.direct().unwrap().get(2, &PART, run, pieces.loan()).unwrap();
    assert_eq!(pair.outcome(), (2, DirectOutcome::Done));
    assert!(pieces.bytes() == pair.window.bytes()[offset..offset + pieces.len()]);
    let mut all = pieces.memory.bytes();
    pieces.pieces.iter().for_each(|piece| all[piece.offset as usize..][..piece.bytes as usize].fill(0));
    assert!(all == between, "what lies between is left alone");
}

#[test]
fn one_request_takes_as_many_pieces_as_the_device_does_and_all_are_registered_once() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let rows = |count, bytes| {
        Pieces::new(Memory::new(count * (16 << 10)).fill(5), (0..count).map(move |row| (row * (16 << 10) + 100, bytes)))
    };
    for (rows, requests) in [(rows(6, 8 << 10), 1), (rows(12, 4 << 10), 2), (rows(3, 16_000), 1)] {
        let misses = pair.origin.cache_statistics().unwrap().misses;
        let bytes = rows.len() as u64;
        let cost = Pair::without_proof(pair.cost(|pair| put(pair, &rows, 64)));
        let all = Counts {
            requests,
            doorbells: requests,
            completions: requests,
            zero_copy_bytes: bytes,
            ..Counts::default()
        };
        assert_eq!(cost, Counts { writes: requests, ..all });
        let statistics = pair.origin.cache_statistics().unwrap();
        if statistics.watch.to_string() != "off" {
            assert_eq!(statistics.misses - misses, 1);
        }
        pair.window.fill(bytes as u8);
        let cost = pair.cost(|pair| get(pair, &rows, 64));
        // A device of iWARP reads into one place only.
        let reads = if Pair::is_iwarp() { rows.pieces.len() as u64 } else { requests };
        assert_eq!(cost, Counts { reads, requests: reads, doorbells: reads, completions: reads, ..all });
    }
}

#[test]
fn pieces_that_are_not_worth_registering_are_copied_together() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    // Too few bytes, and too far apart.
    let few = Pieces::new(Memory::new(1 << 20).fill(5), (0..16).map(|row| (row * 1000 + 3, 512)));
    let far = Pieces::new(Memory::new(1 << 20).fill(6), (0..16).map(|row| (row * (64 << 10) + 3, 5000)));
    for (pieces, buffers) in [(few, 1), (far, 10)] {
        let bytes = pieces.len() as u64;
        let cost = pair.cost(|pair| put(pair, &pieces, 8));
        assert_eq!((cost.writes, cost.copied_bytes, cost.zero_copy_bytes), (buffers, bytes, 0));
        pair.window.fill(9);
        let cost = pair.cost(|pair| get(pair, &pieces, 8));
        assert_eq!((cost.reads, cost.copied_bytes, cost.zero_copy_bytes), (buffers, bytes, 0));
    }
}

#[test]
fn long_pieces_far_apart_are_registered_each_for_itself() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    // The second lies before the first.
    let far = Pieces::new(Memory::new(4 << 20).fill(6), [(3 << 20, 200_000), (5, 100_000)]);
    let cost = pair.cost(|pair| put(pair, &far, 8));
    assert_eq!((cost.writes, cost.copied_bytes, cost.zero_copy_bytes), (2, 0, 300_000));
    pair.window.fill(9);
    let cost = pair.cost(|pair| get(pair, &far, 8));
    assert_eq!((cost.reads, cost.copied_bytes, cost.zero_copy_bytes), (2, 0, 300_000));
}

#[test]
fn many_pieces_at_odd_places_arrive_at_every_length() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    for step in [777, 4096, 20_011, 70_001] {
        let pieces = (0..40).map(|piece| (piece * step + piece % 7, 512 + (piece * 131) % (step - 512).max(1)));
        let pieces = Pieces::new(Memory::new(41 * step + 4096).fill(step as u8), pieces);
        put(&mut pair, &pieces, 13);
        pair.window.fill(77);
        get(&mut pair, &pieces, 13);
    }
}

#[test]
fn the_device_is_told_of_several_transfers_at_once() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let source = Memory::new(256 << 10).fill(3);
    let part = |at: usize| Memory(source.0.slice(at * (32 << 10), 32 << 10));
    let cost = pair.cost(|pair| {
        pair.caller.direct().unwrap().begin_batch();
        for at in 0..8 {
            pair.put(at as u64, at * (40 << 10), DirectSource::Lent(Box::new(part(at))), 32 << 10);
        }
        pair.caller.direct().unwrap().post_batch().unwrap();
        for at in 0..8 {
            assert_eq!(pair.outcome(), (at, DirectOutcome::Done));
        }
    });
    let cost = Pair::without_proof(cost);
    assert_eq!((cost.writes, cost.doorbells, cost.completions), (8, 1, 1), "{cost:?}");
    let there = pair.window.bytes();
    assert!((0..8).all(|at| there[at * (40 << 10)..][..32 << 10] == part(at).bytes()[..]));
    // Copied ones too, with reads among them, which the others wait for.
    let page = vec![9; 4096];
    let copy = Memory::new(4096);
    let cost = pair.cost(|pair| {
        pair.caller.direct().unwrap().begin_batch();
        pair.put(1, 0, DirectSource::Copied(Region::from_slice(&page)), 4096);
        pair.get(2, 0, copy);
        pair.put(3, 0, DirectSource::Copied(Region::from_slice(&[1; 4096])), 4096);
        pair.caller.direct().unwrap().post_batch().unwrap();
        for ticket in 1..=3 {
            assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
        }
    });
    let cost = Pair::without_proof(cost);
    assert_eq!((cost.requests, cost.doorbells), (3, 1));
    assert!(copy.bytes() == page);
    assert_eq!(pair.window.bytes()[..4096], [1; 4096]);
    // What is kept back and forgotten goes out with whatever comes next.
    pair.caller.direct().unwrap().begin_batch();
    pair.put(5, 8, DirectSource::Copied(Region::from_slice(&page)), 4096);
    assert_eq!(pair.outcome(), (5, DirectOutcome::Done));
    pair.caller.direct().unwrap().post_batch().unwrap();
}

#[test]
fn what_carries_its_bytes_comes_behind_what_was_kept_back_and_its_end_is_told() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let memory = Memory::new(4 * 256).fill(4);
    pair.caller.direct().unwrap().begin_batch();
    for ticket in 0..4 {
        let piece = Pieces::new(memory, [(ticket * 256, 256)]);
        pair.put(ticket as u64, ticket * 256, DirectSource::Lent(piece.loan()), 256);
    }
    pair.put(4, 1024, DirectSource::Copied(Region::from_slice(&[9; 8])), 8);
    pair.caller.direct().unwrap().post_batch().unwrap();
    for ticket in 0..=4 {
        assert_eq!(pair.outcome(), (ticket, DirectOutcome::Done));
    }
    let there = pair.window.bytes();
    assert!(there[..1024] == memory.bytes() && there[1024..1032] == [9; 8]);
}
