//! Gets that are looked for at once, and the look for the ends of all.

use longarm_memory::Region;
use longarm_netmod::{DirectOutcome, DirectSource, InlinePoll, Reach};
use longarm_proto::Run;
use longarm_verbs::Counts;

use crate::{Memory, PART, Pair};

const WORD: Run = Run { offset: 64, bytes: 8 };

fn poll_inline(pair: &mut Pair, run: Run, into: Memory, looks: u32) -> InlinePoll {
    pair.caller.direct().unwrap().get_polling(&PART, run, into.0, looks)
}

#[test]
fn a_small_get_that_is_looked_for_is_one_request_and_nobody_else_hears_of_it() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    pair.window.fill(9);
    let there = pair.window.bytes();
    let copy = Memory::new(8);
    let cost = pair.cost(|pair| assert_eq!(poll_inline(pair, WORD, copy, u32::MAX), InlinePoll::Done));
    let one = Counts { requests: 1, reads: 1, doorbells: 1, completions: 1, copied_bytes: 8, ..Counts::default() };
    assert_eq!(cost, one);
    assert_eq!(copy.bytes(), there[64..72]);
    assert_eq!(pair.caller.direct().unwrap().take_outcome(), None);
    // What is too long for that, or lies elsewhere, goes another way.
    assert_eq!(poll_inline(&mut pair, Run { bytes: 1 << 20, ..WORD }, Memory::new(1 << 20), 1), InlinePoll::NotBegun);
    assert_eq!(poll_inline(&mut pair, Run { offset: u64::MAX - 4, ..WORD }, copy, 1), InlinePoll::NotBegun);
    assert_eq!(poll_inline(&mut pair, Run { offset: there.len() as u64 - 4, ..WORD }, copy, 1), InlinePoll::NotBegun);
}

#[test]
fn one_that_takes_longer_goes_on_as_any_other_with_the_same_request() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    pair.window.fill(3);
    let there = pair.window.bytes();
    let copy = Memory::new(8);
    let cost = pair.cost(|pair| {
        assert_eq!(poll_inline(pair, WORD, Memory::new(8), 0), InlinePoll::UnderWay);
        pair.caller.direct().unwrap().lend_polled(7, Box::new(copy));
        assert_eq!(pair.outcome(), (7, DirectOutcome::Done));
    });
    assert_eq!((cost.requests, cost.reads), (1, 1));
    assert_eq!(copy.bytes(), there[64..72]);
    // One that nobody lends memory for ends unheard, and the next one is not taken for it.
    assert_eq!(poll_inline(&mut pair, Run { offset: 0, bytes: 8 }, Memory::new(8), 0), InlinePoll::UnderWay);
    let other = Memory::new(8);
    assert_eq!(poll_inline(&mut pair, Run { offset: 128, bytes: 8 }, other, u32::MAX), InlinePoll::Done);
    assert_eq!(other.bytes(), there[128..136]);
    assert_eq!(pair.caller.direct().unwrap().take_outcome(), None);
}

#[test]
fn who_looks_for_the_ends_of_puts_finds_them_although_most_are_not_told() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    for ticket in 0..20_u64 {
        pair.put(ticket, ticket as usize * 8, DirectSource::Copied(Region::from_slice(&[7; 8])), 8);
    }
    assert!(!pair.caller.direct().unwrap().look_for_ends(0), "nobody has looked");
    assert!(pair.caller.direct().unwrap().look_for_ends(u32::MAX));
    let outcomes = std::iter::from_fn(|| pair.caller.direct().unwrap().take_outcome());
    assert!(outcomes.eq((0..20).map(|ticket| (ticket, DirectOutcome::Done))));
    assert!(pair.window.bytes()[..160].iter().all(|byte| *byte == 7));
}

#[test]
fn what_is_refused_while_it_is_looked_for_is_known_to_the_next_connection() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    if Pair::is_iwarp() {
        // The device does not say that it has refused something, and not always that it has ended: whoever looks again and again
        // would look for ever.
        return;
    }
    pair.published = None;
    assert_eq!(poll_inline(&mut pair, WORD, Memory::new(8), u32::MAX), InlinePoll::UnderWay);
    pair.caller.direct().unwrap().lend_polled(5, Box::new(Memory::new(8)));
    assert!(!pair.caller.direct().unwrap().look_for_ends(u32::MAX));
    pair.reconnect();
    assert_eq!(pair.outcome(), (5, DirectOutcome::Refused));
}
