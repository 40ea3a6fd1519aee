use std::sync::Arc;

use longarm_proto::{Refusal, RmwOp, RmwWidth};

use super::*;
use crate::completion::Outcome;
use crate::error::TransferError;
use crate::mock::{MockRank, MockWorld, PART_BYTES};
use crate::signal::WordWidth;

const HERE: Rank = Rank(1);
const THERE: Rank = Rank(3);
/// Has its node's server.
const HOST: Rank = Rank(2);

fn rmw(op: RmwOp, operand: u64, compare: u64) -> Rmw {
    Rmw { op, width: RmwWidth::W64, operand, compare }
}

#[test]
fn each_update_gives_the_old_value_and_leaves_the_new_one_on_both_nodes() {
    let rank = MockWorld::new().rank(Rank(0));
    let updates = [
        (rmw(RmwOp::FetchAdd, 5, 0), 5),
        (rmw(RmwOp::Swap, 12, 0), 12),
        (rmw(RmwOp::CompareSwap, 3, 11), 12),
        (rmw(RmwOp::CompareSwap, 6, 12), 6),
        (rmw(RmwOp::FetchOr, 9, 0), 15),
        (rmw(RmwOp::Fetch, 0, 0), 15),
    ];
    for to in [HERE, THERE] {
        let mut before = 0;
        for (update, after) in updates {
            assert_eq!(rank.client.rmw(&rank.window, to, 64, update).unwrap(), before, "{update:?}");
            assert_eq!(rank.word(to, 64), after, "{update:?}");
            before = after;
        }
        let narrow = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W32, operand: u64::from(u32::MAX), compare: 0 };
        assert_eq!(rank.client.rmw(&rank.window, to, 64, narrow).unwrap(), 15);
        assert_eq!(rank.word(to, 64), 14, "nothing is carried into the word beside it");
    }
    assert_eq!((rank.asked(0).len(), rank.asked(1).len()), (0, updates.len() + 1));
}

#[test]
fn an_update_by_a_server_is_waited_for() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.set_memory(THERE, 8, &41_u64.to_le_bytes());
    rank.server(1).lock().stand_still();
    let server = rank.server(1);
    rank.time.at_next_rest(move || server.lock().go_on());
    assert_eq!(rank.client.rmw(&rank.window, THERE, 8, rmw(RmwOp::FetchAdd, 1, 0)).unwrap(), 41);
    assert_eq!(rank.time.rests().len(), 1);
}

#[test]
fn an_update_that_was_started_brings_its_value_with_the_completion() {
    let rank = MockWorld::new().rank(Rank(0));
    for to in [HERE, THERE] {
        rank.set_memory(to, 0, &7_u64.to_le_bytes());
        rank.server(1).lock().stand_still();
        let (completion, part) = Completion::begin();
        rank.client.start_rmw(&rank.window, to, 0, rmw(RmwOp::Swap, 8, 0), &part).unwrap();
        assert!(!completion.is_complete());
        drop(part);
        assert_eq!(completion.is_complete(), to == HERE);
        rank.server(1).lock().go_on();
        rank.client.poll_progress();
        assert!(completion.is_complete());
        assert_eq!((completion.value(), rank.word(to, 0)), (7, 8));
    }
}

/// Starts updates of the target's first word, while its server stands still.
fn started(rank: &MockRank, updates: &[Rmw]) -> Vec<Arc<Completion>> {
    rank.server(1).lock().stand_still();
    let start = |update: &Rmw| {
        let (completion, part) = Completion::begin();
        rank.client.start_rmw(&rank.window, THERE, 0, *update, &part).unwrap();
        completion
    };
    updates.iter().map(start).collect()
}

fn values(started: &[Arc<Completion>]) -> Vec<u64> {
    assert!(started.iter().all(|completion| completion.is_complete() && completion.failure().is_none()));
    started.iter().map(|completion| completion.value()).collect()
}

#[test]
fn updates_that_are_started_one_after_the_other_are_one_request_behind_the_first() {
    let rank = MockWorld::new().rank(Rank(0));
    let started = started(&rank, &[rmw(RmwOp::FetchAdd, 1, 0); 5]);
    rank.server(1).lock().go_on();
    assert_eq!(rank.asked(1).len(), 1, "nobody waits for the others yet");
    rank.client.poll_progress();
    let asked = rank.asked(1);
    assert!(matches!(&asked[..], [Request::RmwMany { words, .. }] if words.len() == 4), "{asked:?}");
    rank.client.poll_progress();
    assert_eq!(values(&started), [0, 1, 2, 3, 4]);
}

#[test]
fn only_updates_of_one_kind_go_together_and_all_are_done_in_their_order() {
    let rank = MockWorld::new().rank(Rank(0));
    let narrow = |operand| Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W32, operand, compare: 0 };
    let updates = [
        rmw(RmwOp::FetchAdd, 1, 0),
        rmw(RmwOp::FetchAdd, 1, 0),
        rmw(RmwOp::FetchAdd, 5, 0),
        rmw(RmwOp::CompareSwap, 8, 7),
        rmw(RmwOp::CompareSwap, 9, 7),
        rmw(RmwOp::Swap, 3, 0),
        narrow(2),
        narrow(4),
        rmw(RmwOp::Fetch, 0, 0),
    ];
    let started = started(&rank, &updates);
    rank.server(1).lock().go_on();
    rank.client.quiet().unwrap();
    assert_eq!(values(&started), [0, 1, 2, 7, 8, 8, 3, 5, 9]);
    let asked = rank.asked(1);
    let together = asked.iter().filter_map(|request| match request {
        Request::RmwMany { words, .. } => Some(words.len()),
        _ => None,
    });
    assert_eq!(together.collect::<Vec<_>>(), [2, 2], "{asked:?}");
}

#[test]
fn each_of_several_updates_is_refused_if_one_is() {
    let rank = MockWorld::new().rank(Rank(0));
    let started = started(&rank, &[rmw(RmwOp::FetchAdd, 1, 0); 4]);
    rank.server(1).lock().go_on();
    rank.server(1).lock().refuses = Some(Refusal::FreedWindow);
    rank.client.quiet().unwrap();
    let refused = Outcome::Refused { refusal: Refusal::FreedWindow, detail: 77 };
    let failures: Vec<_> = started.iter().map(|completion| completion.failure()).collect();
    assert_eq!(failures, [None, Some(&refused), Some(&refused), Some(&refused)]);
    assert!(started.iter().all(|completion| completion.is_complete()));
}

#[test]
fn each_of_several_updates_ends_with_its_connection_whether_they_were_sent_or_not() {
    for were_sent in [false, true] {
        let rank = MockWorld::new().rank(Rank(0));
        let started = started(&rank, &[rmw(RmwOp::FetchAdd, 1, 0); 4]);
        if were_sent {
            rank.client.poll_progress();
        }
        assert!(started.iter().all(|completion| !completion.is_complete()));
        rank.note_death(HOST);
        for completion in &started {
            assert!(completion.is_complete());
            assert!(matches!(completion.failure(), Some(Outcome::Lost(_))), "{:?}", completion.failure());
        }
    }
}

#[test]
fn what_is_wrong_is_said_and_no_word_changes() {
    let rank = MockWorld::new().rank(Rank(0));
    let add = rmw(RmwOp::FetchAdd, 1, 0);
    for to in [HERE, THERE] {
        rank.client.rmw(&rank.window, to, 0, add).unwrap();
        let misaligned = rank.client.rmw(&rank.window, to, 4, add).unwrap_err();
        assert!(matches!(misaligned, RmwError::Misaligned { offset: 4, word_bytes: 8, .. }), "{misaligned}");
        for offset in [PART_BYTES - 4, PART_BYTES, u64::MAX - 7] {
            let outside = rank.client.rmw(&rank.window, to, offset, add).unwrap_err();
            assert!(matches!(outside, RmwError::Transfer(TransferError::OutsideWindow { .. })), "{outside}");
        }
        assert_eq!((rank.word(to, 0), rank.word(to, 8)), (1, 0));
    }
    let requests = rank.asked(1).len();
    assert_eq!(requests, 1);
    for to in [HERE, THERE] {
        rank.note_death(to);
        let dead = rank.client.rmw(&rank.window, to, 0, add).unwrap_err();
        assert!(matches!(&dead, RmwError::Transfer(TransferError::Lost(lost)) if lost.rank == to), "{dead}");
        assert_eq!(rank.word(to, 0), 1);
    }
    assert!(rank.window.mark_freed());
    let freed = rank.client.rmw(&rank.window, Rank(0), 0, add).unwrap_err();
    assert!(matches!(freed, RmwError::Transfer(TransferError::FreedWindow { .. })), "{freed}");
    assert_eq!((rank.word(Rank(0), 0), rank.asked(1)), (0, vec![]));
}

#[test]
fn a_refusal_is_the_error_of_the_call() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.server(1).lock().refuses = Some(Refusal::WrongKey);
    let refused = rank.client.rmw(&rank.window, THERE, 0, rmw(RmwOp::FetchAdd, 1, 0)).unwrap_err();
    let transfer = |error: &TransferError| matches!(error, TransferError::Refused { operation: Operation::Rmw, .. });
    assert!(matches!(&refused, RmwError::Transfer(error) if transfer(error)), "{refused}");
    rank.client.quiet().unwrap();
}

#[test]
fn a_neighbour_that_sleeps_until_its_word_changes_is_woken() {
    let world = MockWorld::new();
    let (sleeper, other) = (world.rank(HERE), Arc::new(world.rank(Rank(0))));
    // Both ways that an update on the node may take: the part is mapped by the first one.
    for value in [1, 2] {
        let other = Arc::clone(&other);
        sleeper.time.at_next_rest(move || {
            let eventcount = other.client.segment().window_eventcount(1);
            let before = eventcount.sequence();
            other.client.rmw(&other.window, HERE, 0, rmw(RmwOp::FetchAdd, 1, 0)).unwrap();
            assert_ne!(eventcount.sequence(), before, "nobody woke it");
        });
        let changed = || Ok((sleeper.client.load_word(&sleeper.window, 0, WordWidth::W64)? == value).then_some(()));
        sleeper.client.wait_words(changed).unwrap();
    }
}
