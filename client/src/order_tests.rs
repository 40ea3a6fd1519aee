use std::sync::Arc;

use longarm_proto::{NodeId, Refusal, Rmw, RmwOp, RmwWidth, Run};

use super::*;
use crate::error::Lost;
use crate::mock::{MockRank, MockWorld, note_death};
use crate::origin_bytes::OriginBuffer;
use crate::shapes::Shapes;

const THERE: Rank = Rank(3);

/// A put that nobody waits for, too large to be put together with others.
fn start(rank: &MockRank, bytes: u64) {
    let buffer = OriginBuffer::new(vec![1_u8; bytes as usize]);
    let shapes = Shapes::contiguous(Run { offset: 0, bytes });
    rank.client.start_put(&rank.window, THERE, shapes, &buffer.lender()).unwrap();
}

fn quiets(rank: &MockRank, node: u32) -> usize {
    rank.asked(node).iter().filter(|request| matches!(request, Request::Quiet)).count()
}

#[test]
fn where_nothing_was_issued_nobody_is_asked() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.client.put(&rank.window, Rank(1), 0, [1; 8][..].into()).unwrap();
    rank.client.quiet().unwrap();
    rank.client.quiet_rank(THERE).unwrap();
    assert_eq!(rank.calls(), []);
    // Nor where all is confirmed.
    rank.client.put(&rank.window, THERE, 0, [1; 8][..].into()).unwrap();
    rank.client.quiet().unwrap();
    let before = rank.server(1).lock().asked_in_all();
    rank.client.quiet().unwrap();
    rank.client.quiet_rank(THERE).unwrap();
    assert_eq!(rank.server(1).lock().asked_in_all(), before);
}

#[test]
fn a_quiet_behind_a_blocking_put_waits_for_what_that_has_asked_already() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    rank.client.put(&rank.window, THERE, 0, [1; 8][..].into()).unwrap();
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    rank.client.quiet().unwrap();
    assert_eq!((rank.time.rests().len(), quiets(&rank, 1)), (1, 0));
    assert_eq!(rank.memory(THERE, 0, 8), [1; 8]);
}

#[test]
fn a_quiet_behind_several_puts_asks_once_and_returns_when_all_are_done() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    for bytes in [2000, 3000, 4000] {
        start(&rank, bytes);
    }
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    rank.client.quiet_rank(THERE).unwrap();
    assert_eq!(rank.memory(THERE, 0, 4000), [1; 4000]);
    assert_eq!((rank.time.rests().len(), quiets(&rank, 1)), (1, 1));
}

#[test]
fn what_was_refused_is_said_by_the_next_quiet_and_by_no_other() {
    let rank = MockWorld::new().rank(Rank(0));
    for asks_more in [false, true] {
        rank.server(1).lock().refuses = Some(Refusal::OutOfMemory);
        start(&rank, 2000);
        if asks_more {
            start(&rank, 2000);
            // Somebody else may have taken the refusal in.
            rank.client.poll_progress();
        }
        let refused = rank.client.quiet().unwrap_err();
        let operation = Operation::Quiet;
        assert!(
            matches!(refused, TransferError::Refused { refusal: Refusal::OutOfMemory, operation: found, .. } if found == operation),
            "{refused}"
        );
        rank.client.quiet().unwrap();
    }
}

#[test]
fn a_quiet_towards_one_rank_leaves_other_nodes_alone() {
    let world = MockWorld::new();
    let rank = world.rank(Rank(0));
    // A connection to this node's own server too.
    let home = crate::lock::MutexHome::new(Arc::new(world.rank(Rank(0)).window));
    rank.set_memory(Rank(1), 0, &longarm_proto::mutex_word(Rank(1)).to_le_bytes());
    let server = rank.server(0);
    rank.time.at_next_rest(move || server.lock().grant(false));
    let taken = rank.client.lock(&home, Rank(1), 0).unwrap();
    rank.client.unlock_taken(&home, taken, Rank(1), 0).unwrap();
    assert_eq!(rank.calls(), [NodeId(0)]);
    start(&rank, 2000);
    start(&rank, 2000);
    rank.time.rests();
    rank.server(1).lock().stand_still();
    rank.client.quiet_rank(Rank(1)).unwrap();
    assert_eq!((rank.time.rests(), quiets(&rank, 1)), (vec![], 0));
}

#[test]
fn a_quiet_towards_a_dead_rank_or_none_says_so() {
    let rank = MockWorld::new().rank(Rank(0));
    let nobody = rank.client.quiet_rank(Rank(4));
    assert!(matches!(nobody, Err(TransferError::NoSuchRank { operation: Operation::Quiet, rank: Rank(4), ranks: 4 })));
    start(&rank, 2000);
    rank.note_death(THERE);
    let dead = rank.client.quiet_rank(THERE);
    assert!(matches!(dead, Err(TransferError::Lost(Lost { rank: THERE, .. }))));
    rank.client.quiet().unwrap();
    // Also where nothing was ever opened.
    let alone = MockWorld::new().rank(Rank(0));
    alone.client.quiet_rank(THERE).unwrap();
    alone.note_death(THERE);
    assert!(matches!(alone.client.quiet_rank(THERE), Err(TransferError::Lost(Lost { rank: THERE, .. }))));
    alone.client.quiet_rank(Rank(0)).unwrap();
}

#[test]
fn what_was_lost_with_a_node_is_said_by_the_next_quiet_and_by_no_other() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().stand_still();
    start(&rank, 2000);
    start(&rank, 2000);
    let client = Arc::clone(&rank.client);
    rank.time.at_next_rest(move || note_death(&client, Rank(2)));
    let lost = rank.client.quiet();
    assert!(matches!(lost, Err(TransferError::Lost(Lost { rank: Rank(2), .. }))));
    rank.client.quiet().unwrap();
}

#[test]
fn the_old_value_of_a_word_says_that_all_before_it_is_done_and_nothing_of_what_follows() {
    let rank = MockWorld::new().rank(Rank(0));
    let add = |operand| Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand, compare: 0 };
    let update = || rank.client.rmw(&rank.window, THERE, 8000, add(1)).unwrap();
    // Behind a put that asks for nothing, and one that has asked already.
    start(&rank, 2000);
    start(&rank, 2000);
    update();
    rank.client.quiet().unwrap();
    rank.client.put(&rank.window, THERE, 0, [1; 8][..].into()).unwrap();
    update();
    rank.client.quiet().unwrap();
    assert_eq!(quiets(&rank, 1), 0);
    // A put between the request and its reply, which goes out by itself or waits for others to go with.
    for bytes in [2000, 8] {
        rank.server(1).lock().stand_still();
        let (completion, part) = Completion::begin();
        rank.client.start_rmw(&rank.window, THERE, 8000, add(1), &part).unwrap();
        drop(part);
        start(&rank, bytes);
        let server = rank.server(1);
        rank.time.at_next_rest(move || server.lock().go_on());
        rank.client.wait_completion(Awaited::anyone(Operation::Wait), &completion);
        rank.client.quiet().unwrap();
        assert_eq!(quiets(&rank, 1), 1, "{bytes} bytes");
    }
    // What was refused before is said all the same.
    rank.server(1).lock().refuses = Some(Refusal::OutOfMemory);
    start(&rank, 2000);
    update();
    rank.client.quiet().unwrap_err();
    rank.client.quiet().unwrap();
}

#[test]
fn the_reply_of_another_operation_is_no_quiet() {
    let rank = MockWorld::new().rank(Rank(0));
    start(&rank, 2000);
    start(&rank, 2000);
    let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    rank.client.rmw(&rank.window, THERE, 8000, rmw).unwrap();
    rank.server(1).lock().refuses = Some(Refusal::WrongKey);
    start(&rank, 2000);
    assert!(rank.client.quiet().is_err());
}
