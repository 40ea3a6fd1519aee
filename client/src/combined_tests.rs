use std::sync::Arc;

use longarm_proto::{NodeId, Rank, Refusal, Request};
use parking_lot::Mutex;

use super::*;
use crate::mock::{MockRank, MockWorld};

const THERE: Rank = Rank(3);
const OFFSET: u64 = 64;

fn add(operand: u64) -> Rmw {
    Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand, compare: 0 }
}

fn update(rank: &MockRank, rmw: Rmw) -> Result<u64, RmwError> {
    rank.client.rmw(&rank.window, THERE, OFFSET, rmw)
}

/// Rank 0, which has a connection to the other node and nothing under way there.
fn rank(world: &MockWorld) -> MockRank {
    let rank = world.rank(Rank(0));
    update(&rank, add(0)).unwrap();
    rank.asked(1);
    rank
}

/// Leaked: permits and those who wait borrow it.
fn board(rank: &MockRank) -> &'static NodeCombining {
    Box::leak(Box::new(rank.client.segment().combining()))
}

/// What rank 1 of this node does with the word, at the same time.
fn enter(rank: &MockRank, rmw: Rmw) -> Entered<'static, NodeCombining> {
    let aim = Aim { operation: Operation::Rmw, window: &rank.window, rank: THERE };
    let permits = rank.client.local.combining.as_ref().unwrap().permits;
    combining::enter(board(rank), name(aim, OFFSET, rmw), permits, (1, rmw.operand))
}

/// All permits, taken by others.
fn all_permits(rank: &MockRank, rmw: Rmw) -> Vec<Permit<'static, NodeCombining>> {
    let permits = rank.client.local.combining.as_ref().unwrap().permits;
    let permit = |_| match enter(rank, rmw) {
        Entered::Permit(permit) => permit,
        _ => panic!("it is free"),
    };
    (0..permits).map(permit).collect()
}

fn waits(rank: &MockRank, rmw: Rmw) -> Waiting<'static, NodeCombining> {
    match enter(rank, rmw) {
        Entered::Waits(waiting) => waiting,
        _ => panic!("all permits are taken"),
    }
}

fn operands(asked: &[Request]) -> Vec<u64> {
    let operand = |request: &Request| match request {
        Request::Rmw { rmw, .. } => rmw.operand,
        other => panic!("{other:?}"),
    };
    asked.iter().map(operand).collect()
}

/// Rank 0 waits, then rank 1 does behind it, and rank 0 updates the word for both: what rank 0 finds, and what rank 1 is told.
fn before_another(
    world: &MockWorld,
    rank: &MockRank,
    (mine, others): (Rmw, Rmw),
    meanwhile: impl FnOnce() + Send + 'static,
) -> (Result<u64, RmwError>, Told<'static, NodeCombining>) {
    let mut permits = all_permits(rank, mine);
    let (told, neighbour) = (Arc::new(Mutex::new(None)), world.rank(Rank(1)));
    let waiting = Arc::clone(&told);
    rank.time.at_next_rest(move || {
        *waiting.lock() = Some(waits(&neighbour, others));
        meanwhile();
        permits.clear();
    });
    let found = update(rank, mine);
    let told = told.lock().as_mut().and_then(Waiting::look);
    (found, told.expect("it was told"))
}

/// Rank 0 waits behind rank 1, which then does with its permit what is wanted.
fn behind_another(
    rank: &MockRank,
    then: impl FnOnce(Permit<'static, NodeCombining>) + Send + 'static,
) -> Result<u64, RmwError> {
    let mut permits = all_permits(rank, add(0));
    let mut combiner = waits(rank, add(5));
    rank.time.at_next_rest(move || {
        permits.pop();
        match combiner.look() {
            Some(Told::Combines(permit)) => then(permit),
            _ => panic!("it came first"),
        }
        permits.clear();
    });
    update(rank, add(7))
}

#[test]
fn the_rank_that_waits_longest_asks_once_for_all() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    rank.set_memory(THERE, OFFSET, &100_u64.to_le_bytes());
    let (found, told) = before_another(&world, &rank, (add(7), add(5)), || {});
    assert_eq!((found.unwrap(), operands(&rank.asked(1)), rank.word(THERE, OFFSET)), (100, vec![12], 112));
    assert!(matches!(told, Told::Answer(107)));
    // Nobody has a permit any more, and the seat is free again.
    drop(all_permits(&rank, add(0)));
    assert_eq!(behind_another(&rank, |mut permit| permit.answer(112, 5)).unwrap(), 117);
}

#[test]
fn another_ranks_request_does_it_and_its_answer_is_this_ranks_too() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let total = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&total);
    let found = behind_another(&rank, move |mut permit| {
        *seen.lock() = permit.total(5);
        permit.answer(30, 5);
    });
    assert_eq!((found.unwrap(), *total.lock(), rank.asked(1)), (35, 12, vec![]));
}

#[test]
fn sums_of_words_of_32_bits_carry_into_nothing() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let narrow = |operand: u32| Rmw { width: RmwWidth::W32, operand: operand.into(), ..add(0) };
    let (found, told) = before_another(&world, &rank, (narrow(u32::MAX), narrow(3)), || {});
    assert_eq!((found.unwrap(), operands(&rank.asked(1)), rank.word(THERE, OFFSET)), (0, vec![2], 2));
    assert!(matches!(told, Told::Answer(found) if found as u32 == u32::MAX));
    // Who is told more than the word has looks at the word's bits alone.
    let (mut permits, mut combiner) = (all_permits(&rank, narrow(0)), waits(&rank, narrow(3)));
    rank.time.at_next_rest(move || {
        permits.pop();
        let Some(Told::Combines(mut permit)) = combiner.look() else { panic!("it came first") };
        permit.answer(u32::MAX.into(), 3);
    });
    assert_eq!(update(&rank, narrow(1)).unwrap(), 2);
}

#[test]
fn who_went_with_a_refused_request_asks_alone_and_hears_why() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    rank.server(1).lock().refuses = Some(Refusal::WrongKey);
    let refused = behind_another(&rank, |mut permit| permit.refused()).unwrap_err();
    assert!(matches!(&refused, RmwError::Transfer(TransferError::Refused { .. })), "{refused}");
    assert_eq!(operands(&rank.asked(1)), [7], "alone");
}

#[test]
fn who_goes_with_a_request_that_is_refused_is_told_to_go_alone() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    rank.server(1).lock().refuses = Some(Refusal::FreedWindow);
    let (found, told) = before_another(&world, &rank, (add(7), add(5)), || {});
    assert!(found.is_err() && matches!(told, Told::GoesAlone));
}

#[test]
fn nobody_knows_what_came_of_a_request_whose_connection_broke() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let lost = behind_another(&rank, drop).unwrap_err().to_string();
    assert!(lost.contains("rmw failed: rank 2 (node 1)") && lost.ends_with("the update may have been done"), "{lost}");
    assert!(matches!(&rank.asked(1)[..], [Request::Rmw { rmw, .. }] if rmw.op == RmwOp::Fetch), "whether it is gone");
}

#[test]
fn who_hears_that_nobody_knows_says_how_the_node_ended_if_it_did() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let client = Arc::clone(&rank.client);
    let died = behind_another(&rank, move |permit| {
        drop(permit);
        client.failures().note(crate::Death { rank: Rank(2), how: "was killed by a test".into() });
    });
    let died = died.unwrap_err().to_string();
    assert!(died.contains("rank 2 (node 1) was killed by a test"), "{died}");
}

#[test]
fn who_goes_with_a_request_that_was_never_sent_is_told_to_go_alone() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let client = Arc::clone(&rank.client);
    let give_up = move || client.progress.endpoint_if_open(NodeId(1)).unwrap().give_up(LostHow::Closed);
    let (found, told) = before_another(&world, &rank, (add(7), add(5)), give_up);
    assert!(found.unwrap_err().to_string().contains("closed the connection"));
    assert!(matches!(told, Told::GoesAlone));
}

#[test]
fn who_leaves_the_job_waits_for_nobody() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let permits = all_permits(&rank, add(0));
    let client = Arc::clone(&rank.client);
    rank.time.at_next_rest(move || client.close());
    let left = update(&rank, add(1)).unwrap_err().to_string();
    assert!(left.contains("this rank has finalized its world"), "{left}");
    drop(permits);
}

#[test]
fn a_death_ends_the_wait_and_nobody_waits_after_it() {
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let permits = all_permits(&rank, add(0));
    let client = Arc::clone(&rank.client);
    rank.time.at_next_rest(move || crate::mock::note_death(&client, Rank(1)));
    let died = update(&rank, add(1)).unwrap_err().to_string();
    assert!(died.contains("rank 1 (node 0) was killed by a test"), "{died}");
    assert_eq!(rank.asked(1), []);
    update(&rank, add(2)).unwrap();
    assert_eq!(operands(&rank.asked(1)), [2], "although all permits are taken");
    drop(permits);
}

#[test]
fn what_may_not_wait_for_others_goes_alone() {
    // Nothing rests here: that would be a failure.
    let world = MockWorld::that_a_death_ends();
    let rank = rank(&world);
    let permits = all_permits(&rank, add(0));
    // Another kind of update.
    update(&rank, Rmw { op: RmwOp::FetchOr, ..add(8) }).unwrap();
    assert_eq!(operands(&rank.asked(1)), [8]);
    // Behind a put, which it must not overtake.
    rank.client.put(&rank.window, THERE, OFFSET, [1; 8][..].into()).unwrap();
    update(&rank, add(1)).unwrap();
    assert_eq!(rank.word(THERE, OFFSET), u64::from_le_bytes([1; 8]) + 1);
    rank.asked(1);
    // Another thread of this rank does the same.
    let seat = rank.client.local.combining.as_ref().unwrap().take_seat().unwrap();
    update(&rank, add(2)).unwrap();
    seat.give_back();
    // No connection.
    let other = world.rank(Rank(1));
    update(&other, add(3)).unwrap();
    assert_eq!((operands(&rank.asked(1)), operands(&other.asked(1))), (vec![2], vec![3]));
    drop(permits);
    // In a job that goes on after a death nobody combines anything.
    assert!(MockWorld::new().rank(Rank(0)).client.local.combining.is_none());
}
