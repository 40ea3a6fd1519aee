use longarm_proto::{Level, Refusal, SEGMENTS_PER_FRAME_MAX, Shape, Strided};

use super::*;
use crate::mock::{MockRank, MockWorld, PART_BYTES, note_death};
use crate::origin_bytes::OriginBuffer;

const HERE: Rank = Rank(1);
const THERE: Rank = Rank(2);

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 5 + index / 241) as u8).collect()
}

fn get(rank: &MockRank, from: Rank, offset: u64, count: usize) -> Result<Vec<u8>, TransferError> {
    let mut target = vec![0xaa; count];
    rank.client.get(&rank.window, from, offset, target[..].as_mut().into()).map(|()| target)
}

#[test]
fn a_get_brings_the_bytes_from_both_nodes_and_asks_a_server_only_for_those_of_the_other() {
    let rank = MockWorld::new().rank(Rank(0));
    let there = bytes(100_000);
    for from in [HERE, THERE] {
        rank.set_memory(from, 24, &there);
        for count in [0, 8, 100_000] {
            assert_eq!(get(&rank, from, 24, count).unwrap(), there[..count]);
        }
    }
    let shapes = [8, 100_000].map(|count| Shape::contiguous(24, count));
    let target = rank.window.target(THERE);
    assert_eq!(rank.asked(1), shapes.map(|shape| Request::Get { target, shape }));
    assert_eq!((rank.calls(), rank.asked(0)), (vec![longarm_proto::NodeId(1)], vec![]));
}

#[test]
fn a_get_returns_when_its_data_is_here() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.set_memory(THERE, 0, &[7; 16]);
    rank.server(1).lock().stand_still();
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    assert_eq!(get(&rank, THERE, 8, 16).unwrap(), [[7; 8], [0; 8]].concat());
    assert_eq!(rank.time.rests().len(), 1);
}

#[test]
fn a_get_shows_what_this_rank_has_put_before_whether_that_waits_for_company_or_not() {
    let rank = MockWorld::new().rank(Rank(0));
    for value in 1..=4_u8 {
        let buffer = OriginBuffer::new(vec![value; 8]);
        let run = Run { offset: 8 * u64::from(value), bytes: 8 };
        rank.client.start_put(&rank.window, THERE, Shapes::contiguous(run), &buffer.lender()).unwrap();
        assert_eq!(get(&rank, THERE, run.offset, 8).unwrap(), [value; 8]);
    }
    let puts = [5_u8, 6, 7].map(|value| {
        let buffer = OriginBuffer::new(vec![value; 8]);
        let run = Run { offset: 64 + 8 * u64::from(value), bytes: 8 };
        rank.client.start_put(&rank.window, THERE, Shapes::contiguous(run), &buffer.lender()).unwrap();
        (run.offset, value)
    });
    for (offset, value) in puts {
        assert_eq!(get(&rank, THERE, offset, 8).unwrap(), [value; 8]);
    }
}

#[test]
fn shapes_of_both_sides_are_paired_in_their_packed_order() {
    let rank = MockWorld::new().rank(Rank(0));
    let there = bytes(PART_BYTES as usize);
    let count = SEGMENTS_PER_FRAME_MAX as u64 + 3;
    for from in [HERE, THERE] {
        rank.set_memory(from, 0, &there);
        let patch = Strided::new(16, 4, &[Level { count: 6, stride: 100 }]).unwrap();
        let shapes = Shapes { target: Shape::Strided(patch), origin: Shape::contiguous(3, 24) };
        let mut target = vec![0; 30];
        rank.client.get_shaped(&rank.window, from, shapes, target[..].as_mut().into()).unwrap();
        let expected: Vec<u8> = (0..6).flat_map(|row| there[16 + 100 * row..][..4].to_vec()).collect();
        assert_eq!(target, [&[0; 3][..], &expected, &[0; 3]].concat());
        let runs = (0..count).map(|at| Run { offset: 40 * (count - 1 - at), bytes: 3 }).collect();
        let shapes = Shapes { target: Shape::Vector(runs), origin: Shape::contiguous(0, 3 * count) };
        let mut target = vec![0; 3 * count as usize];
        rank.client.get_shaped(&rank.window, from, shapes, target[..].as_mut().into()).unwrap();
        for at in 0..count {
            let offset = 40 * (count - 1 - at) as usize;
            assert_eq!(target[3 * at as usize..][..3], there[offset..offset + 3]);
        }
    }
    assert_eq!(rank.asked(1).len(), 3, "a patch is one request, a list as many as its runs need");
}

#[test]
fn small_gets_that_nobody_waits_for_become_one_request_and_each_gets_its_own_bytes() {
    let rank = MockWorld::new().rank(Rank(0));
    let there = bytes(4096);
    rank.set_memory(THERE, 0, &there);
    rank.server(1).lock().stand_still();
    let issued = [0, 1000, 500].map(|offset| {
        let buffer = OriginBuffer::new(vec![0_u8; 32]);
        let shapes = Shapes::contiguous(Run { offset, bytes: 32 });
        rank.client.start_get(&rank.window, THERE, shapes, &buffer.lender()).unwrap();
        (offset as usize, buffer.issued())
    });
    assert!(issued.iter().all(|(_, issued)| !issued.completion().is_complete()));
    rank.server(1).lock().go_on();
    rank.client.wait_any(|| issued.iter().all(|(_, issued)| issued.completion().is_complete()).then_some(()));
    for (offset, issued) in issued {
        assert_eq!(issued.take().unwrap(), there[offset..offset + 32]);
    }
    let target = rank.window.target(THERE);
    let together = Shape::Vector([1000, 500].map(|offset| Run { offset, bytes: 32 }).into());
    let shapes = [Shape::contiguous(0, 32), together];
    assert_eq!(rank.asked(1), shapes.map(|shape| Request::Get { target, shape }));
}

#[test]
fn a_wrong_small_get_is_refused_although_others_are_corked() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let start = |from: Rank, there: Run, here: Run| {
        let buffer = OriginBuffer::new(vec![0_u8; 32]);
        let shapes = Shapes { target: Shape::Contiguous(there), origin: Shape::Contiguous(here) };
        let started = rank.client.start_get(&rank.window, from, shapes, &buffer.lender());
        (started, buffer.issued())
    };
    let run = |offset, bytes| Run { offset, bytes };
    let well = [(0, 0), (8, 24), (64, 0)].map(|(there, here)| start(THERE, run(there, 8), run(here, 8)));
    assert!(well.iter().all(|(started, _)| started.is_ok()));
    let node = rank.client.layout().node_of(THERE);
    let endpoint = rank.client.progress.endpoint_if_open(node).expect("it was asked");
    assert!(endpoint.coalesces_gets(), "or the long way would find all that is wrong");
    assert!(start(THERE, run(0, 0), run(0, 0)).0.is_ok(), "nothing is got");
    for here in [run(0, 9), run(25, 8), run(u64::MAX, 8), run(u64::MAX - 7, 8)] {
        let (wrong, _) = start(THERE, run(0, 8), here);
        assert!(matches!(wrong, Err(TransferError::LengthMismatch { .. })), "{here:?} of 32 bytes: {wrong:?}");
    }
    for offset in [PART_BYTES - 7, u64::MAX - 7, u64::MAX] {
        let (wrong, _) = start(THERE, run(offset, 8), run(0, 8));
        assert!(matches!(wrong, Err(TransferError::OutsideWindow { .. })), "{offset}: {wrong:?}");
    }
    assert!(matches!(start(Rank(7), run(0, 8), run(0, 8)).0, Err(TransferError::NoSuchRank { .. })));
    rank.note_death(THERE);
    assert!(matches!(start(THERE, run(0, 8), run(0, 8)).0, Err(TransferError::Lost(lost)) if lost.rank == THERE));
}

#[test]
fn what_is_wrong_is_said_before_anybody_is_asked() {
    let rank = MockWorld::new().rank(Rank(0));
    for from in [HERE, THERE] {
        get(&rank, from, 0, 1).unwrap();
        for offset in [PART_BYTES - 7, u64::MAX - 7, u64::MAX - 3] {
            let outside = get(&rank, from, offset, 8);
            assert!(matches!(outside, Err(TransferError::OutsideWindow { operation: Operation::Get, .. })));
        }
        let mut target = [0; 8];
        let short = Shapes::contiguous(Run { offset: 0, bytes: 9 });
        let short = rank.client.get_shaped(&rank.window, from, short, target[..].as_mut().into());
        assert!(matches!(short, Err(TransferError::LengthMismatch { .. })));
    }
    assert!(matches!(get(&rank, Rank(7), 0, 8), Err(TransferError::NoSuchRank { .. })));
    rank.asked(1);
    for from in [HERE, THERE] {
        rank.note_death(from);
        for count in [0, 8] {
            assert!(matches!(get(&rank, from, 0, count), Err(TransferError::Lost(lost)) if lost.rank == from));
        }
    }
    assert!(rank.window.mark_freed());
    assert!(matches!(get(&rank, Rank(0), 0, 8), Err(TransferError::FreedWindow { .. })));
    assert!(matches!(get(&rank, Rank(3), 0, 8), Err(TransferError::FreedWindow { .. })));
    assert_eq!(rank.asked(1), []);
}

#[test]
fn a_get_that_is_refused_or_whose_server_dies_says_so() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().refuses = Some(Refusal::FreedWindow);
    let refused = get(&rank, THERE, 0, 8).unwrap_err();
    assert!(
        matches!(refused, TransferError::Refused { operation: Operation::Get, refusal: Refusal::FreedWindow, .. }),
        "{refused}"
    );
    rank.server(1).lock().stand_still();
    let client = std::sync::Arc::clone(&rank.client);
    rank.time.at_next_rest(move || note_death(&client, Rank(2)));
    let lost = get(&rank, Rank(3), 0, 8).unwrap_err();
    assert!(matches!(&lost, TransferError::Lost(lost) if lost.rank == Rank(2)), "the host of its server died: {lost}");
}

#[test]
fn who_exchanges_with_others_answers_them_while_it_waits() {
    let rank = MockWorld::new().rank_that_spins(Rank(0), 1_000_000);
    rank.set_memory(HERE, 0, &[1; 8]);
    rank.set_memory(THERE, 0, &[2; 8]);
    rank.server(1).lock().stand_still();
    // The other rank answers once it was answered by this node's server.
    let server = rank.server(1);
    rank.assist.at_next_turn(move || server.lock().go_on());
    let (mut near, mut far) = ([0; 8], [0; 8]);
    let runs = vec![(THERE, 0, far[..].as_mut().into()), (HERE, 0, near[..].as_mut().into())];
    rank.client.get_in_exchange(&rank.window, runs).unwrap();
    assert_eq!((near, far, rank.time.rests()), ([1; 8], [2; 8], vec![]));
}
