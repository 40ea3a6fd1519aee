use std::sync::Arc;

use longarm_proto::{Rank, Rmw, RmwOp, RmwWidth};
use longarm_shm::sync::{AtomicBool, Ordering};

use super::*;
use crate::error::{LostHow, WaitError};
use crate::mail::Slot;
use crate::mock::{MockWorld, note_death};
use crate::progress::waits::{WaitingCall, Whom};

const THERE: Rank = Rank(3);

#[test]
fn who_finds_what_it_waits_for_does_not_sleep_and_is_not_listed() {
    let rank = MockWorld::new().rank(Rank(0));
    let result = rank.client.wait_for(Drive::Memory, Awaited::anyone(Operation::Wait), || {
        assert_eq!(rank.client.waits(), []);
        Some(7)
    });
    assert_eq!((result, rank.time.rests()), (7, vec![]));
}

#[test]
fn who_sleeps_is_listed_with_its_call_and_for_whom_it_waits_until_it_returns() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let (server, client) = (rank.server(1), Arc::clone(&rank.client));
    rank.time.at_next_rest(move || {
        let waits = client.waits();
        assert_eq!(waits.len(), 1);
        assert_eq!(waits[0].awaited.call, WaitingCall::Operation(Operation::Rmw));
        assert_eq!(waits[0].awaited.whom, Whom::Rank(THERE));
        server.lock().go_on();
    });
    let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    assert_eq!(rank.client.rmw(&rank.window, THERE, 0, add).unwrap(), 0);
    assert_eq!((rank.time.rests(), rank.client.waits()), (vec![RestOn::Links], vec![]));
}

#[test]
fn who_waits_for_an_answer_takes_mail_in_meanwhile() {
    let world = MockWorld::new();
    let (rank, neighbour) = (world.rank(Rank(0)), world.rank(Rank(1)));
    rank.server(1).lock().stand_still();
    let segment = Arc::clone(rank.client.segment());
    rank.time.at_next_rest(move || {
        let slot = Slot { group: 1, sequence: 2, step: 3 };
        neighbour.client.send_letter(Rank(0), slot, 1000, &[5; 1000]).unwrap();
        assert!(!segment.inbox_is_empty(0));
    });
    let (segment, server) = (Arc::clone(rank.client.segment()), rank.server(1));
    rank.time.at_next_rest(move || {
        assert!(segment.inbox_is_empty(0), "the cells of its inbox are others' room");
        server.lock().go_on();
    });
    let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    rank.client.rmw(&rank.window, THERE, 0, add).unwrap();
    assert_eq!(rank.time.rests().len(), 2);
}

#[test]
fn what_is_slept_on_is_where_it_comes_from() {
    let rank = MockWorld::new().rank(Rank(0));
    let done = Arc::new(AtomicBool::new(false));
    let is_done = || done.swap(false, Ordering::Relaxed).then_some(());
    let drives = [
        Drive::Memory,
        Drive::Neighbour,
        Drive::Cells,
        Drive::FlagBarrier,
        Drive::Handlers,
        Drive::Stores,
        Drive::Endpoints,
        Drive::Exchange,
    ];
    for drive in drives {
        let done = Arc::clone(&done);
        rank.time.at_next_rest(move || done.store(true, Ordering::Relaxed));
        rank.client.wait_for(drive, Awaited::anyone(Operation::Wait), is_done);
    }
    use RestOn::{Links, Mail, Windows};
    assert_eq!(rank.time.rests(), [Mail, Mail, Mail, Mail, Mail, Windows, Links, Links]);
}

#[test]
fn a_wait_in_memory_moves_what_is_under_way_to_other_nodes() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    let (completion, part) = Completion::begin();
    let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    rank.client.start_rmw(&rank.window, THERE, 0, add, &part).unwrap();
    drop(part);
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    rank.client.wait_for(Drive::Memory, Awaited::anyone(Operation::Wait), || completion.is_complete().then_some(()));
    assert!(completion.failure().is_none());
}

#[test]
fn a_barrier_ends_with_the_death_of_a_rank_and_with_a_node_that_was_lost() {
    let rank = MockWorld::new().rank(Rank(0));
    let client = Arc::clone(&rank.client);
    rank.time.at_next_rest(move || note_death(&client, Rank(1)));
    let lost = rank.client.wait_at_barrier(|| None::<()>).unwrap_err();
    assert!(matches!(&lost, WaitError::Lost(lost) if lost.rank == Rank(1)), "{lost}");
    let rank = MockWorld::new().rank(Rank(1));
    rank.client.put(&rank.window, THERE, 0, [1; 8][..].into()).unwrap();
    let client = Arc::clone(&rank.client);
    rank.time.at_next_rest(move || client.cut_off(Rank(0), "was killed by a test"));
    let lost = rank.client.wait_at_barrier(|| None::<()>).unwrap_err();
    assert!(matches!(&lost, WaitError::Lost(lost) if matches!(lost.how, LostHow::Failed(_))), "{lost}");
}

#[test]
fn who_waits_drives_the_server_of_its_node_and_leaves_off_when_it_has_what_it_waits_for() {
    let rank = MockWorld::new().rank_that_spins(Rank(0), 1_000_000);
    let done = Arc::new(AtomicBool::new(false));
    let turned = Arc::clone(&done);
    rank.assist.at_next_turn(|| ());
    rank.assist.at_next_turn(move || turned.store(true, Ordering::Relaxed));
    rank.assist.at_next_turn(|| panic!("nobody waits any more"));
    let is_done = || done.load(Ordering::Relaxed).then_some(());
    rank.client.wait_for(Drive::Memory, Awaited::anyone(Operation::Wait), is_done);
    assert_eq!(rank.time.rests(), []);
}
