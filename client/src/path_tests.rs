use longarm_proto::{AccumulateOp, ElementType, Kernel, Rmw, RmwOp, RmwWidth, Run, Scale};

use super::*;
use crate::completion::Completion;
use crate::mock::{MockRank, MockWorld};
use crate::origin_bytes::{IssuedBuffer, OriginBuffer};
use crate::progress::time::RestOn;
use crate::shapes::Shapes;

const NOBODY: [NodeId; 0] = [];

fn put(rank: &MockRank, to: Rank) -> Result<(), TransferError> {
    rank.client.put(&rank.window, to, 0, [1; 8][..].into())
}

fn place(rank: &MockRank, to: Rank) -> Result<Location<'_>, TransferError> {
    rank.client.place(Aim { operation: Operation::Put, window: &rank.window, rank: to })
}

/// A get of eight bytes of rank 3, started.
fn start_get(rank: &MockRank) -> IssuedBuffer<u8> {
    let buffer = OriginBuffer::new(vec![0_u8; 8]);
    let run = Shapes::contiguous(Run { offset: 0, bytes: 8 });
    rank.client.start_get(&rank.window, Rank(3), run, &buffer.lender()).unwrap();
    buffer.issued()
}

/// Whether an error says that the server of rank 3, which rank 2 hosts, cannot be reached.
fn is_unreachable(error: &TransferError) -> bool {
    matches!(error, TransferError::Lost(Lost { rank: Rank(2), how: LostHow::Unreachable(_), .. }))
}

#[test]
fn ranks_of_this_node_are_reached_directly_and_those_of_another_by_one_connection() {
    let rank = MockWorld::new().rank(Rank(0));
    for to in [Rank(0), Rank(1)] {
        assert!(matches!(place(&rank, to).unwrap(), Location::Here(_)));
    }
    assert_eq!(rank.calls(), NOBODY);
    for to in [Rank(2), Rank(3), Rank(2)] {
        assert!(
            matches!(place(&rank, to).unwrap(), Location::There(endpoint) if endpoint.node() == NodeId(1) && endpoint.is_up())
        );
    }
    assert_eq!(rank.calls(), [NodeId(1)]);
}

#[test]
fn peers_met_are_those_of_the_node_and_of_nodes_that_were_called() {
    let rank = MockWorld::new().rank(Rank(1));
    assert_eq!(rank.client.peers_met(), [Rank(0), Rank(1)]);
    put(&rank, Rank(3)).unwrap();
    assert_eq!(rank.client.peers_met(), [Rank(0), Rank(1), Rank(2), Rank(3)]);
}

#[test]
fn a_server_that_cannot_be_reached_is_called_once_and_every_operation_says_so() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().is_away = true;
    for _ in 0..2 {
        let lost = put(&rank, Rank(3)).unwrap_err();
        let is_right = |lost: &Lost| lost.rank == Rank(2) && matches!(lost.how, LostHow::Unreachable(_));
        assert!(matches!(&lost, TransferError::Lost(lost) if is_right(lost)), "{lost}");
    }
    assert_eq!(rank.calls(), [NodeId(1)]);
    put(&rank, Rank(1)).unwrap();
}

#[test]
fn what_is_written_waits_for_a_connection_without_its_caller() {
    let rank = MockWorld::new().rank(Rank(0));
    let server = rank.server(1);
    server.lock().is_late = true;
    for to in [Rank(2), Rank(3)] {
        put(&rank, to).unwrap(); // A rank that waited would sleep, which nothing ends yet.
    }
    assert_eq!((rank.calls(), rank.asked(1)), (vec![NodeId(1)], vec![]));
    rank.time.at_next_rest(move || server.lock().is_late = false);
    rank.client.quiet().unwrap();
    assert_eq!((rank.memory(Rank(2), 0, 8), rank.memory(Rank(3), 0, 8)), (vec![1; 8], vec![1; 8]));
    assert_eq!(rank.calls(), [NodeId(1)]);
}

#[test]
fn accumulates_do_not_wait_for_a_connection_either_but_what_a_device_may_do_does() {
    let world = MockWorld::new();
    let rank = world.rank(Rank(0));
    rank.server(1).lock().is_late = true;
    let kernel = Kernel::new(ElementType::I64, AccumulateOp::Sum).unwrap();
    let run = Shapes::contiguous(Run { offset: 0, bytes: 8 });
    let one = 1_i64.to_le_bytes();
    let scale = Scale::one(ElementType::I64);
    rank.client.accumulate(&rank.window, Rank(3), run, (kernel, scale), one[..].into()).unwrap();
    assert_eq!((rank.calls(), rank.time.rests()), (vec![NodeId(1)], vec![]));
    let other = world.rank(Rank(0));
    other.servers.may_reach_memory.store(true, Ordering::Relaxed);
    let server = other.server(1);
    server.lock().is_late = true;
    other.time.at_next_rest(move || server.lock().is_late = false);
    put(&other, Rank(3)).unwrap();
    assert_eq!(other.time.rests(), [RestOn::Links], "it shows with the connection whether one does");
}

#[test]
fn gets_and_updates_that_are_started_do_not_wait_for_a_connection_either_and_come_over_it() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.set_memory(Rank(3), 0, &[7; 16]);
    let server = rank.server(1);
    server.lock().is_late = true;
    let got = start_get(&rank);
    let (updated, part) = Completion::begin();
    let update = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    rank.client.start_rmw(&rank.window, Rank(3), 8, update, &part).unwrap();
    drop(part);
    assert_eq!((rank.calls(), rank.time.rests(), rank.asked(1)), (vec![NodeId(1)], vec![], vec![]));
    rank.time.at_next_rest(move || server.lock().is_late = false);
    let is_done = || got.completion().is_complete() && updated.is_complete();
    rank.client.wait_any(|| is_done().then_some(()));
    let old = u64::from_ne_bytes([7; 8]);
    assert_eq!((got.take().unwrap(), updated.value()), (vec![7; 8], old));
    assert_eq!((rank.calls(), rank.word(Rank(3), 8)), (vec![NodeId(1)], old + 1));
}

#[test]
fn that_nobody_answers_who_was_asked_for_bytes_is_said_by_what_waits_for_them() {
    let rank = MockWorld::new().rank(Rank(0));
    let server = rank.server(1);
    server.lock().is_late = true;
    let got = start_get(&rank);
    rank.time.at_next_rest(move || {
        let mut server = server.lock();
        (server.is_late, server.is_away) = (false, true);
    });
    rank.client.wait_any(|| got.completion().is_complete().then_some(()));
    let error = rank.client.local.failure(got.completion(), Operation::Get, Rank(3)).unwrap_err();
    assert!(is_unreachable(&error), "{error}");
}

#[test]
fn that_nobody_answers_who_was_written_to_is_said_by_what_waits_for_that() {
    let rank = MockWorld::new().rank(Rank(0));
    let server = rank.server(1);
    server.lock().is_late = true;
    put(&rank, Rank(3)).unwrap();
    rank.time.at_next_rest(move || {
        let mut server = server.lock();
        (server.is_late, server.is_away) = (false, true);
    });
    let (quiet, next) = (rank.client.quiet().unwrap_err(), put(&rank, Rank(2)).unwrap_err());
    assert!(is_unreachable(&quiet) && is_unreachable(&next), "{quiet}; {next}");
}

#[test]
fn nobody_is_called_for_a_rank_that_is_dead_or_whose_host_is() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.note_death(Rank(3));
    let dead = place(&rank, Rank(3)).map(drop);
    assert!(matches!(dead, Err(TransferError::Lost(Lost { rank: Rank(3), operation: Operation::Put, .. }))));
    rank.note_death(Rank(2));
    rank.server(1).lock().is_away = true;
    assert!(matches!(place(&rank, Rank(1)).unwrap(), Location::Here(_)));
    assert_eq!(rank.calls(), NOBODY);
}

#[test]
fn a_living_rank_whose_server_went_with_its_host_is_lost_without_a_call() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.note_death(Rank(2));
    let lost = put(&rank, Rank(3)).unwrap_err();
    assert!(matches!(&lost, TransferError::Lost(lost) if lost.rank == Rank(2)), "{lost}");
    assert_eq!(rank.calls(), NOBODY);
}

#[test]
fn after_the_end_and_once_this_node_is_cut_off_nobody_is_called() {
    let world = MockWorld::new();
    let rank = world.rank(Rank(0));
    rank.client.close();
    let finalized = put(&rank, Rank(3)).unwrap_err();
    assert!(matches!(&finalized, TransferError::Lost(lost) if lost.how == LostHow::Finalized), "{finalized}");
    let other = world.rank(Rank(1));
    put(&other, Rank(3)).unwrap();
    other.client.cut_off(Rank(0), "was killed by a test");
    let lost = put(&other, Rank(2)).unwrap_err();
    assert!(
        matches!(&lost, TransferError::Lost(lost) if lost.how.to_string().contains("server of this node")),
        "{lost}"
    );
    let third = world.rank(Rank(1));
    third.client.cut_off(Rank(0), "was killed by a test");
    assert!(put(&third, Rank(2)).is_err());
    assert_eq!((rank.calls(), other.calls(), third.calls()), (vec![], vec![NodeId(1)], vec![]));
}

#[test]
fn a_part_that_cannot_be_mapped_is_an_error_and_not_a_request() {
    let rank = MockWorld::new().rank(Rank(0));
    let refuses = || Err(crate::window::AttachError::Refused("no descriptor is left".into()));
    let members = [(Rank(0), 64), (Rank(1), 64)];
    let window =
        ClientWindow::new(rank.client.layout(), rank.window.identity(), crate::window::Parts::Each(&members), refuses);
    let shapes = Shapes::contiguous(Run { offset: 0, bytes: 8 });
    let refused = rank.client.put_shaped(&window, Rank(1), shapes, [1; 8][..].into());
    assert!(matches!(refused, Err(TransferError::Unmappable { rank: Rank(1), .. })));
    let none = rank.client.put(&window, Rank(2), 0, [1; 8][..].into());
    assert!(matches!(none, Err(TransferError::NotMember { rank: Rank(2), .. })));
    assert_eq!(rank.calls(), NOBODY);
}
