use std::collections::VecDeque;
use std::sync::Mutex;

use super::*;

/// A rank without a seat.
const NOBODY: (u32, u64) = (99, 1);
const WORD: WordName = WordName([7, 0, 64, 3 << 32]);

/// Entries and seats of a node, and the ranks that were woken, in order.
struct Node {
    entries: Vec<Entry>,
    seats: Vec<Seat>,
    woken: Mutex<Vec<u32>>,
}

impl Node {
    fn new(ranks: usize) -> Node {
        Node {
            entries: std::iter::repeat_with(Entry::default).take(ENTRIES).collect(),
            seats: std::iter::repeat_with(Seat::default).take(ranks).collect(),
            woken: Mutex::default(),
        }
    }

    fn woken(&self) -> Vec<u32> {
        std::mem::take(&mut self.woken.lock().unwrap())
    }

    fn is_idle(&self) -> bool {
        self.entries.iter().all(|entry| entry.state().0 == 0)
    }
}

impl Board for Node {
    fn entry(&self, number: usize) -> &Entry {
        &self.entries[number]
    }

    fn seat(&self, local: u32) -> Option<&Seat> {
        self.seats.get(local as usize)
    }

    fn wake(&self, local: u32) {
        self.woken.lock().unwrap().push(local);
    }
}

fn permit(node: &Node, name: WordName, permits: u64) -> Permit<'_, Node> {
    match enter(node, name, permits, NOBODY) {
        Entered::Permit(permit) => permit,
        _ => panic!("there is a free permit"),
    }
}

fn waits(node: &Node, name: WordName, local: u32, operand: u64) -> Waiting<'_, Node> {
    match enter(node, name, 1, (local, operand)) {
        Entered::Waits(waiting) => waiting,
        _ => panic!("there is no free permit"),
    }
}

fn combines<'a>(waiting: &mut Waiting<'a, Node>) -> Permit<'a, Node> {
    match waiting.look() {
        Some(Told::Combines(permit)) => permit,
        _ => panic!("it is the combiner"),
    }
}

/// Another word that shares the entry of [`WORD`], but not its tag.
fn word_of_the_same_entry() -> WordName {
    let (number, tag) = WORD.entry_and_tag();
    (1..)
        .map(|word| WordName([word, 1, 1, 1]))
        .find(|name| name.entry_and_tag().0 == number && name.entry_and_tag().1 != tag)
        .unwrap()
}

#[test]
fn who_waits_goes_with_the_one_that_waits_longest_and_all_find_what_they_would_have_found_one_after_the_other() {
    let node = Node::new(4);
    let first = permit(&node, WORD, 1);
    assert_eq!(first.total(5), 5);
    let mut waiting = [waits(&node, WORD, 2, 10), waits(&node, WORD, 0, 20), waits(&node, WORD, 3, u64::MAX)];
    assert!(waiting.iter_mut().all(|waiting| waiting.look().is_none()));
    drop(first);
    assert_eq!(node.woken(), [2], "the one that came first, alone");
    let mut combiner = combines(&mut waiting[0]);
    assert_eq!(combiner.total(10), 29);
    combiner.answer(100, 10);
    assert_eq!(node.woken(), [0, 3]);
    assert!(matches!(waiting[1].look(), Some(Told::Answer(110))));
    assert!(matches!(waiting[2].look(), Some(Told::Answer(130))));
    assert!(waiting.iter_mut().all(|waiting| waiting.look().is_none()), "each is told once");
    drop(combiner);
    assert!(node.woken().is_empty() && node.is_idle());
}

#[test]
fn a_word_has_as_many_permits_as_were_asked_for_and_each_goes_on_to_who_waits() {
    let node = Node::new(4);
    let permits = [(); 3].map(|()| permit(&node, WORD, 3));
    assert!(matches!(enter(&node, WORD, 3, NOBODY), Entered::Alone), "who has no seat");
    let Entered::Waits(mut waiting) = enter(&node, WORD, 3, (1, 1)) else { panic!("all permits are taken") };
    let [first, second, third] = permits;
    drop(second);
    let combiner = combines(&mut waiting);
    assert!(matches!(enter(&node, WORD, 3, NOBODY), Entered::Alone), "it has the permit");
    [first, third, combiner].into_iter().for_each(drop);
    assert!(node.is_idle());
}

#[test]
fn who_comes_after_the_combiner_was_made_waits_for_the_next_one() {
    let node = Node::new(4);
    let first = permit(&node, WORD, 1);
    let mut early = waits(&node, WORD, 0, 1);
    drop(first);
    let mut late = waits(&node, WORD, 1, 1);
    let combiner = combines(&mut early);
    assert_eq!(combiner.total(1), 1, "the other one came later");
    assert!(late.look().is_none());
    drop(combiner);
    drop(combines(&mut late));
    assert!(node.is_idle());
}

#[test]
fn what_fails_is_said_to_those_whose_update_it_was() {
    let node = Node::new(4);
    for is_refused in [true, false] {
        let first = permit(&node, WORD, 1);
        let mut combiner = waits(&node, WORD, 0, 1);
        let mut other = waits(&node, WORD, 1, 1);
        drop(first);
        let mut permit = combines(&mut combiner);
        if is_refused {
            permit.refused();
        }
        drop(permit);
        let told = other.look().unwrap();
        assert!(matches!((told, is_refused), (Told::GoesAlone, true) | (Told::Unknown, false)));
        assert!(node.is_idle());
    }
}

#[test]
fn words_that_share_an_entry_do_not_combine() {
    let node = Node::new(4);
    let first = permit(&node, WORD, 1);
    let other = word_of_the_same_entry();
    assert!(matches!(enter(&node, other, 1, (0, 1)), Entered::Alone));
    drop(first);
    let first = permit(&node, other, 1);
    assert!(matches!(enter(&node, WORD, 1, (0, 1)), Entered::Alone));
    drop(first);
    assert!(node.is_idle());
}

#[test]
fn a_word_of_the_same_tag_is_not_updated_in_place_of_another_one() {
    let node = Node::new(4);
    for wrong in [[0, 1], [1, 0], [2, 2]] {
        let first = permit(&node, WORD, 1);
        let mut waiting: VecDeque<_> = (0..3).map(|local| waits(&node, WORD, local, 1)).collect();
        // As if they had waited for another one.
        wrong.iter().for_each(|local| node.seats[*local].name[2].store(72, Ordering::Relaxed));
        drop(first);
        for (local, waiting) in waiting.iter_mut().enumerate() {
            let told = waiting.look().unwrap();
            let is_wrong = wrong.contains(&local);
            assert!(matches!(&told, Told::GoesAlone) == is_wrong, "{local}");
            // The combiner is the first of the others: who is behind it hears of its end.
            drop(told);
        }
        assert!(node.is_idle(), "{wrong:?}");
    }
}

#[test]
fn nobody_waits_for_one_that_has_left() {
    let node = Node::new(4);
    let first = permit(&node, WORD, 1);
    let [gone, mut stays] = [waits(&node, WORD, 0, 4), waits(&node, WORD, 1, 8)];
    drop(gone);
    drop(first);
    assert_eq!(node.woken(), [1]);
    let permit = combines(&mut stays);
    assert_eq!(permit.total(8), 8);
    // The only one that waits leaves.
    let gone = waits(&node, WORD, 2, 1);
    drop(gone);
    drop(permit);
    assert!(node.is_idle());
}

#[test]
fn a_combiner_that_leaves_passes_its_permit_on() {
    let node = Node::new(4);
    let first = permit(&node, WORD, 1);
    let [gone, mut other] = [waits(&node, WORD, 0, 4), waits(&node, WORD, 1, 8)];
    drop(first);
    drop(gone);
    assert!(matches!(other.look(), Some(Told::GoesAlone)), "nothing was sent");
    assert!(node.is_idle());
}

#[test]
fn what_is_no_list_is_followed_to_no_end() {
    let node = Node::new(4);
    for (at, next) in [(0, 1), (0, 2), (0, 77), (1, 77), (1, 2)] {
        let first = permit(&node, WORD, 1);
        let _waiting = [waits(&node, WORD, 0, 1), waits(&node, WORD, 1, 1)];
        node.seats[at].next.store(next, Ordering::Relaxed);
        drop(first);
    }
    // One that waits for another word, and is behind itself.
    let node = Node::new(4);
    let first = permit(&node, WORD, 1);
    let _waiting = waits(&node, WORD, 0, 1);
    node.seats[0].name[2].store(72, Ordering::Relaxed);
    node.seats[0].next.store(1, Ordering::Relaxed);
    drop(first);
}

#[test]
fn threads_that_add_all_at_once_find_every_value_once() {
    const RANKS: u32 = 8;
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 2000 };
    let node = Node::new(RANKS as usize);
    let word = std::sync::atomic::AtomicU64::new(0);
    let requests = std::sync::atomic::AtomicU64::new(0);
    let send = |mut permit: Permit<'_, Node>| {
        requests.fetch_add(1, Ordering::Relaxed);
        let old = word.fetch_add(permit.total(1), Ordering::Relaxed);
        std::thread::yield_now();
        permit.answer(old, 1);
        old
    };
    let update = |local| match enter(&node, WORD, 2, (local, 1)) {
        Entered::Permit(permit) => send(permit),
        Entered::Alone => unreachable!("there is one word"),
        Entered::Waits(mut waiting) => loop {
            match waiting.look() {
                None => std::thread::yield_now(),
                Some(Told::Combines(permit)) => break send(permit),
                Some(Told::Answer(old)) => break old,
                Some(Told::GoesAlone | Told::Unknown) => panic!("nothing failed"),
            }
        },
    };
    let mut found: Vec<u64> = std::thread::scope(|scope| {
        let rank = |local| move || (0..ROUNDS).map(|_| update(local)).collect::<Vec<_>>();
        let ranks: Vec<_> = (0..RANKS).map(|local| scope.spawn(rank(local))).collect();
        ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect()
    });
    found.sort_unstable();
    assert!(found.into_iter().eq(0..ROUNDS * u64::from(RANKS)));
    assert!(node.is_idle());
    assert!(requests.into_inner() <= ROUNDS * u64::from(RANKS));
}
