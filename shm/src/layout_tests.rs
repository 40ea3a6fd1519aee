use super::*;
use crate::area_state::AreaState;
use crate::combining::{ENTRIES, Entry, Seat};
use crate::parts::{SLOT_BYTES, SYNC_AREAS};
use std::collections::VecDeque;

use crate::LOCAL_RANKS_MAX;

fn node(local_ranks: u32) -> NodeSegment {
    NodeSegment::create(JobId(77), 100, local_ranks).unwrap()
}

fn push(node: &NodeSegment, producer: Producer, to: u32, tag: u32, payload: &[u8]) -> Result<(), Full> {
    let head = CellHead { tag, message_bytes: payload.len() as u64, ..CellHead::default() };
    node.try_push(producer, to, head, &[Region::from_slice(payload)])
}

fn pop(node: &NodeSegment, local: u32) -> Option<(CellHead, Vec<u8>)> {
    let mut taken = None;
    let popped = node.try_pop(local, &mut |head, payload| {
        let mut bytes = vec![0; payload.len()];
        payload.copy_to_slice(&mut bytes);
        taken = Some((head, bytes));
    });
    assert_eq!(popped == Popped::Taken, taken.is_some());
    assert_ne!(popped, Popped::Broken);
    taken
}

#[test]
fn what_one_mapping_pushes_another_one_pops() {
    let here = node(3);
    let there = NodeSegment::attach(here.file().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!((there.job(), there.world_ranks(), there.local_ranks()), (JobId(77), 100, 3));
    assert!(there.inbox_is_empty(2));
    let notified = there.eventcount(2).sequence();
    let head = CellHead { source: 9, bytes: 0, message_bytes: 11, kind: 4, tag: 5, words: [1, 2, u64::MAX], behind: 0 };
    let pieces: [&[u8]; 3] = [b"hello", b"", b" world"];
    here.try_push(Producer::Local(0), 2, head, &pieces.map(Region::from_slice)).unwrap();
    assert!(!there.inbox_is_empty(2));
    assert_eq!(there.eventcount(2).sequence(), notified + 1);
    assert_eq!(there.eventcount(1).sequence(), 0, "only the receiver's eventcount is notified");
    assert_eq!(pop(&there, 1), None);
    let (found, bytes) = pop(&there, 2).unwrap();
    assert_eq!((CellHead { behind: 0, ..found }, bytes), (CellHead { bytes: 11, ..head }, b"hello world".to_vec()));
    assert_eq!(pop(&there, 2), None);
    assert!(here.inbox_is_empty(2));
}

#[test]
fn a_producer_is_full_after_its_own_cells_and_free_again_after_a_pop() {
    let node = node(2);
    for (producer, cells) in [(Producer::Local(0), CELLS_PER_RANK), (Producer::Server, CELLS_OF_SERVER)] {
        for tag in 0..cells {
            push(&node, producer, 1, tag, &tag.to_le_bytes()).unwrap();
        }
        assert_eq!(push(&node, producer, 1, 0, b""), Err(Full));
        assert_eq!(push(&node, Producer::Local(1), 0, 0, b""), Ok(()), "others have their own cells");
        assert!(pop(&node, 0).is_some());
        assert_eq!(pop(&node, 1).unwrap().0.tag, 0);
        push(&node, producer, 1, cells, b"").unwrap();
        assert_eq!(push(&node, producer, 1, 0, b""), Err(Full));
        for tag in 1..=cells {
            assert_eq!(pop(&node, 1).unwrap().0.tag, tag);
        }
        assert_eq!(pop(&node, 1), None);
    }
}

#[test]
fn a_whole_cell_of_payload_arrives_and_more_is_our_own_bug() {
    let node = node(1);
    let payload: Vec<u8> = (0..CELL_PAYLOAD_BYTES).map(|index| index as u8).collect();
    push(&node, Producer::Local(0), 0, 0, &payload).unwrap();
    assert_eq!(pop(&node, 0).unwrap().1, payload);
    let longer = vec![0; CELL_PAYLOAD_BYTES + 1];
    let result = std::panic::catch_unwind(|| push(&node, Producer::Local(0), 0, 0, &longer));
    assert!(result.is_err());
}

#[test]
fn what_is_not_a_segment_of_a_node_is_refused() {
    let attach = |segment: &Segment| NodeSegment::attach(segment.file().try_clone_to_owned().unwrap()).unwrap_err();
    let empty = Segment::create("longarm-test", 0).unwrap();
    assert!(matches!(attach(&empty), SegmentError::WrongSize { found: 0, .. }));
    let zeros = Segment::create("longarm-test", 4096).unwrap();
    assert!(matches!(attach(&zeros), SegmentError::WrongMagic { found: 0 }));

    let good = node(2);
    let mut header = [0; 64];
    good.segment.region(0, 64).unwrap().copy_to_slice(&mut header);
    let with = |at: usize, value: u32| {
        let segment = Segment::create("longarm-test", good.segment.bytes()).unwrap();
        let mut header = header;
        header[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        segment.region_mut(0, 64).unwrap().copy_from_slice(&header);
        segment
    };
    assert!(matches!(attach(&with(16, 99)), SegmentError::WrongVersion { expected: VERSION, found: 99 }));
    assert!(matches!(attach(&with(20, 1_000_000)), SegmentError::WrongSize { .. }));
    assert!(matches!(attach(&with(24, 3)), SegmentError::WrongSize { .. }));
    assert!(matches!(attach(&with(24, u32::MAX)), SegmentError::TooLarge));
    assert!(matches!(NodeSegment::create(JobId(1), 2, 3), Err(SegmentError::TooLarge)));
    assert!(matches!(NodeSegment::create(JobId(1), u32::MAX, 5000), Err(SegmentError::TooLarge)));
}

#[test]
fn the_parts_of_a_layout_never_overlap() {
    for (world, local) in [(1, 1), (2, 2), (3, 1), (100, 7), (100_000, 64), (u32::MAX, LOCAL_RANKS_MAX), (5, 0)] {
        let layout = Layout::new(world, local).unwrap();
        let locals = u64::from(local);
        let parts = [
            (0, 64),
            (layout.eventcounts, locals * 64),
            (layout.inboxes, locals * 128),
            (layout.in_use, (locals + 1) * IN_USE_BYTES),
            (layout.stripes, STRIPE_COUNT as u64 * 64),
            (layout.cells, u64::from(cell_count(local)) * size_of::<Cell>() as u64),
            (layout.boxes, locals * BOXES_STRIDE),
            (layout.lines, locals * size_of::<Lines>() as u64),
            (layout.entries, (ENTRIES * size_of::<Entry>()) as u64),
            (layout.seats, locals * size_of::<Seat>() as u64),
            (layout.area_states, u64::from(SYNC_AREAS) * size_of::<AreaState>() as u64),
            (layout.areas, u64::from(SYNC_AREAS) * layout.areas_stride),
            (layout.counters, locals * layout.counters_stride),
            (layout.bytes, 0),
        ];
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{world} {local} {pair:?}");
        }
        assert!(2 * peers_bytes(world) + PAGE_BYTES <= layout.counters_stride);
        assert!(locals * size_of::<Lines>() as u64 <= layout.slots);
        assert!(layout.slots + locals * 2 * SLOT_BYTES as u64 <= layout.areas_stride);
    }
}

#[test]
fn a_segment_of_a_large_job_takes_little_memory_until_it_is_used() {
    let node = NodeSegment::create(JobId(1), 100_000, 64).unwrap();
    assert!(node.segment.bytes() > 1 << 30);
    push(&node, Producer::Local(3), 4, 0, b"x").unwrap();
    node.counters(63).add(Rank(99_999), crate::CounterKind::Put, 8, true);
    let blocks = rustix::fs::fstat(node.file()).unwrap().st_blocks;
    assert!(blocks * 512 <= 16 << 20, "{blocks} blocks of 512 bytes exist");
}

#[test]
fn counters_of_different_ranks_and_peers_are_apart() {
    let node = node(3);
    let there = NodeSegment::attach(node.file().try_clone_to_owned().unwrap()).unwrap();
    let mut expected = Vec::new();
    for local in 0..3 {
        for peer in [0, 1, 99] {
            for kind in crate::CounterKind::ALL {
                let bytes = u64::from(local * 1000 + peer * 10) + kind as u64;
                node.counters(local).add(Rank(peer), kind, bytes, peer == 1);
                node.counters(local).add(Rank(peer), kind, 1, peer != 1);
                expected.push((local, peer, kind, (2, bytes + 1)));
            }
        }
    }
    for (local, peer, kind, count) in expected {
        assert_eq!(there.counters(local).read(Rank(peer), kind), count);
    }
}

#[test]
fn a_dead_ranks_inbox_is_emptied_by_another_one_and_the_cells_return() {
    let node = node(2);
    while push(&node, Producer::Local(0), 1, 0, b"x").is_ok() {}
    node.take_over(1);
    while pop(&node, 1).is_some() {}
    for _ in 0..CELLS_PER_RANK {
        push(&node, Producer::Local(0), 0, 0, b"y").unwrap();
    }
}

#[test]
fn a_gap_left_by_a_dead_sender_is_closed_and_its_last_message_arrives() {
    let node = node(3);
    push(&node, Producer::Local(1), 0, 1, b"before").unwrap();
    // Local rank 2 pushes, and dies between the two steps of the enqueue: the link to its cell is missing.
    push(&node, Producer::Local(2), 0, 2, b"last words").unwrap();
    push(&node, Producer::Server, 0, 3, b"after").unwrap();
    let first = node.cells_of(Producer::Local(1)).start;
    node.cells()[first as usize].next.store(crate::queue::NONE, Ordering::Relaxed);

    assert_eq!(node.try_pop(0, &mut |_, _| panic!("nothing can be taken")), Popped::Broken);
    assert!(!node.mend(0, |producer| producer == Producer::Local(0)));
    let dead = |producer| producer == Producer::Local(2);
    assert!(!node.mend(1, dead), "another inbox has no gap");
    assert!(node.mend(0, dead));
    assert!(!node.mend(0, dead));
    let tags: VecDeque<u32> = std::iter::from_fn(|| pop(&node, 0)).map(|(head, _)| head.tag).collect();
    assert_eq!(tags, [1, 2, 3]);
}

#[test]
fn threads_that_push_to_each_other_lose_nothing_and_keep_their_order() {
    let (ranks, messages) = (3, 5_000u64);
    let node = node(ranks);
    std::thread::scope(|scope| {
        for me in 0..ranks {
            let node = &node;
            scope.spawn(move || {
                let mut sent = vec![0u64; ranks as usize];
                let mut received = vec![0u64; ranks as usize];
                let all = messages * u64::from(ranks);
                while sent.iter().sum::<u64>() < all || received.iter().sum::<u64>() < all {
                    let seen = node.eventcount(me).sequence();
                    let mut moved = false;
                    for to in 0..ranks {
                        let count = &mut sent[to as usize];
                        if *count < messages {
                            let head = CellHead { source: me, words: [*count, 0, 0], ..CellHead::default() };
                            let payload = count.to_le_bytes();
                            if node.try_push(Producer::Local(me), to, head, &[Region::from_slice(&payload)]).is_ok() {
                                *count += 1;
                                moved = true;
                            }
                        }
                    }
                    let popped = node.try_pop(me, &mut |head, payload| {
                        let mut bytes = [0; 8];
                        payload.copy_to_slice(&mut bytes);
                        let count = &mut received[head.source as usize];
                        assert_eq!((head.words[0], u64::from_le_bytes(bytes)), (*count, *count));
                        *count += 1;
                        moved = true;
                    });
                    let all_sent = sent.iter().sum::<u64>() == all;
                    if !moved && all_sent && popped == Popped::Empty && received.iter().sum::<u64>() < all {
                        node.eventcount(me).sleep(seen, None);
                    } else if !moved {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert!((0..ranks).all(|local| node.inbox_is_empty(local)));
}

fn send_short(node: &NodeSegment, from: u32, to: u32, message: &[u8]) -> bool {
    node.try_send_short(from, to, Rank(40 + from), &ShortMessage::of([message, &[]]).unwrap())
}

#[test]
fn what_a_sender_sends_short_and_long_arrives_in_order_with_its_name_and_a_ring_each() {
    let here = node(3);
    let there = NodeSegment::attach(here.file().try_clone_to_owned().unwrap()).unwrap();
    let mut sent = 0;
    let mut taken = 0;
    for round in 0..200_u32 {
        // Now and then so many that the box is full, and the rest goes by cells.
        for _ in 0..1 + round % 23 {
            let message = [sent as u8, 1, 2];
            if round % 5 == 0 || !send_short(&here, 1, 2, &message) {
                let head = CellHead { source: 41, message_bytes: 3, ..CellHead::default() };
                here.try_push(Producer::Local(1), 2, head, &[Region::from_slice(&message)]).unwrap();
            }
            sent += 1;
        }
        assert!(!there.inbox_is_empty(2));
        assert_eq!(there.eventcount(2).sequence(), sent);
        let mut takes = 0;
        loop {
            let popped = there.try_pop(2, &mut |head, payload| {
                let mut message = [0; 3];
                payload.copy_to_slice(&mut message);
                assert_eq!((head.source, head.bytes, head.message_bytes), (41, 3, 3));
                assert_eq!(message, [taken as u8, 1, 2]);
                taken += 1;
                takes += 1;
            });
            if popped == Popped::Empty {
                break;
            }
        }
        assert!(takes > 0 && taken == sent && there.inbox_is_empty(2));
    }
}

#[test]
fn the_senders_without_a_box_are_told_to_push() {
    let node = node(20);
    let with_a_box = (0..19).filter(|from| send_short(&node, *from, 19, b"hello")).count();
    assert_eq!(with_a_box, BOX_COUNT);
    let from: Vec<u32> = std::iter::from_fn(|| pop(&node, 19)).map(|(head, _)| head.source).collect();
    assert_eq!(from, (40..40 + BOX_COUNT as u32).collect::<Vec<_>>());
    assert_eq!(pop(&node, 18), None, "others have boxes of their own");
    assert!(send_short(&node, 17, 18, b"hello"));
    assert_eq!(pop(&node, 18).unwrap().1, b"hello");
}

#[test]
fn nothing_goes_into_the_boxes_of_the_dead() {
    let node = node(2);
    assert!(send_short(&node, 0, 1, b"before"));
    node.take_over(1);
    assert!(!send_short(&node, 0, 1, b"after"));
    push(&node, Producer::Local(0), 1, 7, b"after").unwrap();
    assert_eq!(pop(&node, 1).unwrap().0.tag, 7, "what is in the box is nobody's");
    assert_eq!(pop(&node, 1), None);
}

#[test]
fn nobody_is_passed_over_for_one_who_sends_all_the_time() {
    let node = node(4);
    for from in 0..3 {
        assert!(send_short(&node, from, 3, b"first"));
    }
    push(&node, Producer::Server, 3, 9, b"by the queue").unwrap();
    let mut sources = Vec::new();
    for _ in 0..4 * crate::fastbox::TURN_EVERY {
        sources.push(pop(&node, 3).unwrap().0.source);
        assert!(send_short(&node, 0, 3, b"more"));
    }
    for source in [0, 41, 42] {
        assert_eq!(sources.iter().filter(|other| **other == source).count(), 1, "{source} had its turn");
    }
}
