use std::sync::Arc;

use longarm_proto::Request;

use super::*;
use crate::error::TransferError;
use crate::mock::{MockWorld, PART_BYTES, note_death};

const HERE: Rank = Rank(1);
const THERE: Rank = Rank(2);

#[test]
fn a_signal_comes_with_the_bytes_in_one_request_and_is_set_or_added_to() {
    let rank = MockWorld::new().rank(Rank(0));
    let (client, window) = (&rank.client, &rank.window);
    for to in [HERE, THERE] {
        for (op, value, after) in [(SignalOp::Add, 4, 4), (SignalOp::Add, 5, 9), (SignalOp::Set, 2, 2)] {
            let source = [value as u8; 24];
            client.put_signal((window, 100), (window, 8), (op, value), to, source[..].into()).unwrap();
            client.quiet().unwrap();
            assert_eq!((rank.memory(to, 100, 24), rank.word(to, 8)), (source.to_vec(), after));
        }
        // A signal alone.
        client.put_signal((window, 0), (window, 8), (SignalOp::Add, 1), to, [][..].into()).unwrap();
        client.quiet().unwrap();
        assert_eq!(rank.word(to, 8), 3);
    }
    let puts = rank.asked(1).into_iter().filter(|request| matches!(request, Request::Put { signal: Some(_), .. }));
    assert_eq!(puts.count(), 4);
    assert_eq!(client.segment().counters(0).read(HERE, longarm_shm::CounterKind::Signal), (4, 72));
}

#[test]
fn a_signal_that_has_no_place_keeps_its_bytes_back() {
    let rank = MockWorld::new().rank(Rank(0));
    let (client, window) = (&rank.client, &rank.window);
    for to in [HERE, THERE] {
        let put = |offset, signal| {
            client.put_signal((window, offset), (window, signal), (SignalOp::Set, 1), to, [1; 16][..].into())
        };
        let misaligned = put(0, 12).unwrap_err();
        assert!(matches!(misaligned, RmwError::Misaligned { offset: 12, word_bytes: 8, .. }), "{misaligned}");
        for (offset, signal) in [(0, PART_BYTES), (0, u64::MAX - 7), (PART_BYTES - 8, 0), (u64::MAX - 8, 0)] {
            let outside = put(offset, signal).unwrap_err();
            assert!(matches!(outside, RmwError::Transfer(TransferError::OutsideWindow { .. })), "{outside}");
        }
        assert_eq!((rank.memory(to, 0, 16), rank.memory(to, PART_BYTES - 16, 16)), (vec![0; 16], vec![0; 16]));
    }
    assert_eq!(rank.calls(), []);
}

#[test]
fn a_neighbour_that_sleeps_until_a_signal_is_woken_by_it() {
    let world = MockWorld::new();
    let (sleeper, other) = (world.rank(HERE), world.rank(Rank(0)));
    sleeper.time.at_next_rest(move || {
        let eventcount = other.client.segment().window_eventcount(1);
        let before = eventcount.sequence();
        let (place, signal) = ((&other.window, 64), (&other.window, 0));
        other.client.put_signal(place, signal, (SignalOp::Set, 3), HERE, [8; 8][..].into()).unwrap();
        assert_ne!(eventcount.sequence(), before, "nobody woke it");
    });
    let came = || Ok((sleeper.client.load_word(&sleeper.window, 0, WordWidth::W64)? == 3).then_some(()));
    sleeper.client.wait_words(came).unwrap();
    assert_eq!(sleeper.memory(HERE, 64, 8), [8; 8]);
    assert_eq!(sleeper.time.rests(), [crate::progress::time::RestOn::Windows]);
}

#[test]
fn a_word_is_read_in_its_own_width_and_only_where_there_is_one() {
    let rank = MockWorld::new().rank(Rank(0));
    rank.set_memory(Rank(0), 8, &[0xff; 8]);
    let load = |offset, width| rank.client.load_word(&rank.window, offset, width);
    assert_eq!(load(8, WordWidth::W32).unwrap(), 0xffff_ffff);
    assert_eq!(load(8, WordWidth::W64).unwrap(), u64::MAX);
    assert_eq!(load(4, WordWidth::W32).unwrap(), 0);
    assert!(matches!(load(4, WordWidth::W64), Err(WaitError::Misaligned { offset: 4, word_bytes: 8, .. })));
    assert!(matches!(load(2, WordWidth::W32), Err(WaitError::Misaligned { offset: 2, word_bytes: 4, .. })));
    for offset in [PART_BYTES - 4, PART_BYTES, u64::MAX - 7] {
        assert!(matches!(load(offset, WordWidth::W64), Err(WaitError::OutsideWindow { .. })));
    }
    assert!(rank.window.mark_freed());
    assert!(matches!(load(8, WordWidth::W64), Err(WaitError::Transfer(TransferError::FreedWindow { .. }))));
}

#[test]
fn a_death_ends_a_wait_for_words_unless_it_was_acknowledged() {
    let world = MockWorld::new();
    let (rank, other) = (world.rank(Rank(0)), world.rank(HERE));
    let came = || Ok((rank.client.load_word(&rank.window, 0, WordWidth::W64)? == 1).then_some(()));
    let client = Arc::clone(&rank.client);
    rank.time.at_next_rest(move || note_death(&client, Rank(3)));
    let lost = rank.client.wait_words(came).unwrap_err();
    assert!(matches!(&lost, WaitError::Lost(Lost { rank: Rank(3), operation: Operation::Wait, .. })), "{lost}");
    rank.client.failures().acknowledge();
    rank.time.at_next_rest(move || {
        let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
        other.client.rmw(&other.window, Rank(0), 0, add).unwrap();
    });
    rank.client.wait_words(came).unwrap();
    let wrong = rank.client.wait_words(|| rank.client.load_word(&rank.window, 1, WordWidth::W64).map(|_| None::<()>));
    assert!(matches!(wrong, Err(WaitError::Misaligned { offset: 1, .. })));
}

#[test]
fn comparisons_are_those_of_their_names() {
    use Compare::*;
    let holding = |left: i64, right| {
        let all = [Equal, NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual];
        all.into_iter().filter(|compare| compare.holds(left, right)).collect::<Vec<_>>()
    };
    assert_eq!(holding(3, 3), [Equal, GreaterOrEqual, LessOrEqual]);
    assert_eq!(holding(-1, 3), [NotEqual, Less, LessOrEqual]);
    assert_eq!(holding(3, -1), [NotEqual, Greater, GreaterOrEqual]);
}
