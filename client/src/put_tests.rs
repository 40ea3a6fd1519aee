use longarm_proto::{AccumulateOp, ElementType, Level, Refusal, SEGMENTS_PER_FRAME_MAX, Shape, Strided};

use super::*;
use crate::mock::{EAGER_BYTES, MockRank, MockWorld, PART_BYTES};
use crate::origin_bytes::{IssuedBuffer, OriginBuffer};

const HERE: Rank = Rank(1);
const THERE: Rank = Rank(3);

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 + index / 251) as u8).collect()
}

/// Starts a put of a run that nobody waits for.
fn start(rank: &MockRank, to: Rank, offset: u64, bytes: &[u8]) -> IssuedBuffer<u8> {
    let buffer = OriginBuffer::new(bytes.to_vec());
    let run = Run { offset, bytes: bytes.len() as u64 };
    rank.client.start_put(&rank.window, to, Shapes::contiguous(run), &buffer.lender()).unwrap();
    buffer.issued()
}

/// Rows of 8 bytes, 64 bytes apart.
fn rows(offset: u64, count: u64) -> Shape {
    Shape::Strided(Strided::new(offset, 8, &[Level { count, stride: 64 }]).unwrap())
}

#[test]
fn a_put_on_the_node_is_there_when_the_call_returns_and_nobody_is_asked() {
    let rank = MockWorld::new().rank(Rank(0));
    let source = bytes(3000);
    // The first one maps the part, the second one finds it mapped.
    for offset in [40, 70_000] {
        rank.client.put(&rank.window, HERE, offset, source[..].into()).unwrap();
        assert_eq!(rank.memory(HERE, offset, 3000), source);
    }
    assert_eq!((rank.memory(HERE, 0, 40), rank.memory(HERE, 3040, 8)), (vec![0; 40], vec![0; 8]));
    assert_eq!((rank.calls(), rank.time.rests()), (vec![], vec![]));
    let (operations, total) = rank.client.segment().counters(0).read(HERE, CounterKind::Put);
    assert_eq!((operations, total), (2, 6000));
}

#[test]
fn a_small_put_to_another_node_is_copied_and_waits_for_nobody() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let mut source = bytes(EAGER_BYTES);
    rank.client.put(&rank.window, THERE, 16, source[..].into()).unwrap();
    source.fill(0xee);
    assert_eq!((rank.memory(THERE, 16, EAGER_BYTES), rank.time.rests()), (vec![0; EAGER_BYTES], vec![]));
    rank.server(1).lock().go_on();
    assert_eq!(rank.memory(THERE, 16, EAGER_BYTES), bytes(EAGER_BYTES));
    let shape = Shape::contiguous(16, EAGER_BYTES as u64);
    assert_eq!(rank.asked(1), [Request::Put { target: rank.window.target(THERE), shape, signal: None }]);
}

#[test]
fn a_large_put_returns_when_the_server_has_all_of_it() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    let source = bytes(EAGER_BYTES + 1);
    rank.client.put(&rank.window, THERE, 0, source[..].into()).unwrap();
    assert_eq!(rank.time.rests().len(), 1, "until then its bytes are needed");
    assert_eq!(rank.memory(THERE, 0, source.len()), source);
}

/// Nobody waits for its buffer, which a blocking one of as many bytes copies.
#[test]
fn a_started_put_is_copied_up_to_a_smaller_size() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let copied = start(&rank, THERE, 0, &bytes(16 << 10));
    let lent = start(&rank, THERE, 32 << 10, &bytes((16 << 10) + 1));
    assert!(copied.completion().is_complete() && !lent.completion().is_complete());
    rank.client.put(&rank.window, THERE, 64 << 10, bytes((16 << 10) + 1)[..].into()).unwrap();
    assert_eq!(rank.time.rests(), vec![]);
    rank.server(1).lock().go_on();
    rank.client.quiet().unwrap();
    assert!(lent.completion().is_complete());
    for offset in [32 << 10, 64 << 10] {
        assert_eq!(rank.memory(THERE, offset, (16 << 10) + 1), bytes((16 << 10) + 1));
    }
}

#[test]
fn a_nonblocking_large_put_keeps_its_buffer_until_the_server_has_it() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let source = bytes(100_000);
    let issued = start(&rank, THERE, 0, &source);
    assert!(!issued.completion().is_complete());
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    rank.client.quiet().unwrap();
    assert_eq!(issued.take(), Some(source.clone()));
    assert_eq!(rank.memory(THERE, 0, source.len()), source);
}

#[test]
fn a_patch_is_one_request_and_a_long_list_as_many_as_its_runs_need() {
    let rank = MockWorld::new().rank(Rank(0));
    let source = bytes(8 * 100);
    for to in [HERE, THERE] {
        let shapes = Shapes { target: rows(8, 100), origin: Shape::contiguous(0, 800) };
        rank.client.put_shaped(&rank.window, to, shapes, source[..].into()).unwrap();
        for row in 0..100 {
            assert_eq!(rank.memory(to, 8 + 64 * row as u64, 8), source[8 * row..8 * row + 8]);
        }
    }
    assert_eq!(rank.asked(1).len(), 1);
    let count = 2 * SEGMENTS_PER_FRAME_MAX as u64 + 1;
    let runs = |stride| (0..count).map(|at| Run { offset: stride * (count - 1 - at), bytes: 4 }).collect();
    let source = bytes(4 * count as usize);
    for to in [HERE, THERE] {
        let shapes = Shapes { target: Shape::Vector(runs(24)), origin: Shape::Vector(runs(4)) };
        rank.client.put_shaped(&rank.window, to, shapes, source[..].into()).unwrap();
        for at in 0..count {
            let from = 4 * at as usize;
            assert_eq!(rank.memory(to, 24 * at, 4), source[from..from + 4], "{to} {at}");
        }
    }
    assert_eq!(rank.asked(1).len(), 3);
}

#[test]
fn small_puts_that_nobody_waits_for_become_one_request() {
    let rank = MockWorld::new().rank(Rank(0));
    assert!(!rank.client.put_together(&rank.window, THERE, 0, [1_u8; 8][..].into()), "there is no connection yet");
    let issued = [0, 64, 128].map(|offset| start(&rank, THERE, offset, &[9; 8]));
    assert!(issued.iter().all(|issued| issued.completion().is_complete()), "their bytes are copied");
    assert!(!rank.client.put_together(&rank.window, HERE, 0, [1_u8; 8][..].into()), "that one is not sent");
    rank.client.quiet().unwrap();
    let put_shape = |request| if let Request::Put { shape, .. } = request { Some(shape) } else { None };
    let shapes: Vec<Shape> = rank.asked(1).into_iter().filter_map(put_shape).collect();
    let together = Shape::Vector(vec![Run { offset: 64, bytes: 8 }, Run { offset: 128, bytes: 8 }]);
    assert_eq!(shapes, [Shape::contiguous(0, 8), together]);
    for offset in [0, 64, 128] {
        assert_eq!(rank.memory(THERE, offset, 8), [9; 8]);
    }
}

#[test]
fn who_finds_no_room_waits_until_there_is_some() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    for part in 0..8 {
        let source = vec![part as u8 + 1; EAGER_BYTES];
        rank.client.put(&rank.window, THERE, part * EAGER_BYTES as u64, source[..].into()).unwrap();
    }
    assert_eq!(rank.time.rests().len(), 1, "64 KiB are kept for a server that takes nothing");
    rank.client.quiet().unwrap();
    for part in 0..8 {
        assert_eq!(rank.memory(THERE, part * EAGER_BYTES as u64, EAGER_BYTES), vec![part as u8 + 1; EAGER_BYTES]);
    }
}

#[test]
fn what_is_wrong_is_said_before_a_byte_moves_however_the_rank_is_reached() {
    let rank = MockWorld::new().rank(Rank(0));
    let (client, window) = (&rank.client, &rank.window);
    let source = bytes(64);
    for to in [HERE, THERE] {
        // Once so that both are reached the short way, if there is one.
        client.put(window, to, 0, [1][..].into()).unwrap();
        for offset in [PART_BYTES - 63, PART_BYTES, u64::MAX - 3] {
            let outside = client.put(window, to, offset, source[..].into());
            assert!(matches!(outside, Err(TransferError::OutsideWindow { operation: Operation::Put, .. })), "{offset}");
            let buffer = OriginBuffer::new(source.clone());
            let outside = client.start_put(window, to, Shapes::contiguous(Run { offset, bytes: 64 }), &buffer.lender());
            assert!(matches!(outside, Err(TransferError::OutsideWindow { .. })), "{offset}");
            assert!(!client.put_together(window, to, offset, source[..].into()));
            assert!(!client.put_at_once(window, to, offset, source[..].into()));
        }
        let longer = Shapes { target: Shape::contiguous(0, 65), origin: Shape::contiguous(0, 64) };
        let longer = client.put_shaped(window, to, longer, source[..].into());
        assert!(matches!(longer, Err(TransferError::LengthMismatch { .. })));
        let beyond = Shapes { target: Shape::contiguous(0, 64), origin: Shape::contiguous(1, 64) };
        let beyond = client.put_shaped(window, to, beyond, source[..].into());
        assert!(matches!(beyond, Err(TransferError::LengthMismatch { .. })));
        let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
        let scale = Scale::one(ElementType::F64);
        let run = Shapes::contiguous(Run { offset: 0, bytes: 60 });
        let part = client.accumulate(window, to, run, (kernel, scale), source[..60].into());
        assert!(matches!(part, Err(TransferError::BadShape { operation: Operation::Accumulate, .. })));
    }
    let nobody = client.put(window, Rank(4), 0, source[..].into());
    assert!(matches!(nobody, Err(TransferError::NoSuchRank { rank: Rank(4), ranks: 4, .. })));
    rank.asked(1);
    for to in [HERE, THERE] {
        rank.note_death(to);
        for bytes in [0, 64] {
            let dead = client.put(window, to, 8, source[..bytes].into());
            assert!(matches!(dead, Err(TransferError::Lost(ref lost)) if lost.rank == to), "{bytes} bytes to {to}");
        }
        assert_eq!(rank.memory(to, 1, 64), [0; 64]);
    }
    let still = MockWorld::new().rank(Rank(0));
    still.server(1).lock().stand_still();
    for _ in 0..2 {
        start(&still, Rank(2), 0, &[1; 8]);
    }
    still.note_death(THERE);
    assert!(!still.client.put_together(&still.window, THERE, 8, source[..].into()), "although there is company");
    assert!(still.client.put_together(&still.window, Rank(2), 8, source[..].into()));
    assert!(window.mark_freed());
    for to in [Rank(0), Rank(2)] {
        let freed = client.put(window, to, 0, source[..].into());
        assert!(matches!(freed, Err(TransferError::FreedWindow { .. })));
        assert_eq!(rank.memory(to, 0, 64), [0; 64]);
    }
    assert_eq!(rank.asked(1), []);
}

#[test]
fn nothing_is_put_without_a_request() {
    let rank = MockWorld::new().rank(Rank(0));
    for to in [HERE, THERE] {
        rank.client.put(&rank.window, to, PART_BYTES, [][..].into()).unwrap();
    }
    assert_eq!((rank.calls(), rank.asked(1)), (vec![], vec![]));
}

#[test]
fn an_accumulate_adds_on_both_nodes_and_goes_with_its_like_when_nobody_waits() {
    let rank = MockWorld::new().rank(Rank(0));
    let kernel = Kernel::new(ElementType::I64, AccumulateOp::Sum).unwrap();
    let (three, ones) = (Scale::from(3_i64), [1_i64, 2].map(i64::to_le_bytes).concat());
    for to in [HERE, THERE] {
        rank.client.accumulate_run(&rank.window, to, 8, (kernel, &three), ones[..].into()).unwrap();
        rank.client.accumulate_run(&rank.window, to, 8, (kernel, &three), ones[..].into()).unwrap();
        for _ in 0..3 {
            let buffer = OriginBuffer::new(ones.clone());
            let run = Shapes::contiguous(Run { offset: 16, bytes: 16 });
            rank.client.start_accumulate(&rank.window, to, run, (kernel, three), &buffer.lender()).unwrap();
        }
        rank.client.quiet().unwrap();
        assert_eq!([8, 16, 24].map(|offset| rank.word(to, offset)), [6, 12 + 9, 18]);
    }
    let requests = rank.asked(1);
    let accumulates = requests.iter().filter(|request| matches!(request, Request::Accumulate { .. })).count();
    assert_eq!(accumulates, 4, "two of the last three together: {requests:?}");
}

#[test]
fn a_refused_put_is_no_news_of_the_put_itself_if_it_was_copied_and_is_if_it_was_not() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().refuses = Some(Refusal::WrongKey);
    rank.client.put(&rank.window, THERE, 0, [1; 8][..].into()).unwrap();
    let refused = rank.client.quiet().unwrap_err();
    assert!(matches!(refused, TransferError::Refused { refusal: Refusal::WrongKey, detail: 77, .. }), "{refused}");
    assert_eq!(rank.memory(THERE, 0, 8), [0; 8]);
}
