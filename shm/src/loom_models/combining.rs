//! Combining: every update is done once, each rank hears what it found, nobody waits for ever.

use loom::sync::Arc;
use loom::thread;

use super::check;
use crate::combining::{Board, ENTRIES, Entered, Entry, Permit, Seat, Told, WordName, enter};
use crate::sync::{AtomicU64, Ordering};

const WORD: WordName = WordName([1, 2, 3, 4]);

/// A node of three ranks, and the word of another one.
struct Node {
    entry: Entry,
    seats: [Seat; 3],
    word: AtomicU64,
}

impl Node {
    fn new() -> Arc<Node> {
        Arc::new(Node { entry: Entry::default(), seats: Default::default(), word: AtomicU64::new(0) })
    }

    fn is_idle(&self) -> bool {
        matches!(enter(self, WORD, 1, (9, 0)), Entered::Permit(_))
    }
}

impl Board for Node {
    fn entry(&self, number: usize) -> &Entry {
        assert!(number < ENTRIES);
        &self.entry
    }

    fn seat(&self, local: u32) -> Option<&Seat> {
        self.seats.get(local as usize)
    }

    fn wake(&self, _local: u32) {}
}

fn send(node: &Node, mut permit: Permit<'_, Node>, mine: u64) -> u64 {
    let old = node.word.fetch_add(permit.total(mine), Ordering::Relaxed);
    permit.answer(old, mine);
    old
}

/// Adds what no other rank adds. What it found.
fn update(node: &Node, local: u32) -> u64 {
    let mine = 1 << (8 * local);
    match enter(node, WORD, 1, (local, mine)) {
        Entered::Permit(permit) => send(node, permit, mine),
        Entered::Alone => panic!("there is one word"),
        Entered::Waits(mut waiting) => loop {
            match waiting.look() {
                None => thread::yield_now(),
                Some(Told::Combines(permit)) => break send(node, permit, mine),
                Some(Told::Answer(old)) => break old,
                Some(Told::GoesAlone | Told::Unknown) => panic!("nothing failed"),
            }
        },
    }
}

/// Whether these values are what updates one after the other find, each of which adds what no other does.
fn follow_each_other(mut found: Vec<(u32, u64)>, all: u64) -> bool {
    found.sort_by_key(|(_, old)| old.count_ones());
    let mut word = 0;
    found.iter().all(|(local, old)| {
        let expected = *old == word;
        word += 1 << (8 * local);
        expected
    }) && word == all
}

#[test]
fn loom_three_ranks_add_and_find_what_they_would_have_found_one_after_the_other() {
    check(Some(2), || {
        let node = Node::new();
        let others: Vec<_> = (1..3)
            .map(|local| {
                let node = node.clone();
                thread::spawn(move || update(&node, local))
            })
            .collect();
        let mut found = vec![(0, update(&node, 0))];
        found.extend((1..).zip(others).map(|(local, other)| (local, other.join().unwrap())));
        assert!(follow_each_other(found.clone(), node.word.load(Ordering::Relaxed)), "{found:x?}");
        assert!(node.is_idle());
    });
}

#[test]
fn loom_a_rank_that_waits_again_in_its_seat_hears_what_each_update_found() {
    check(Some(2), || {
        let node = Node::new();
        let other = {
            let node = node.clone();
            thread::spawn(move || [(); 2].map(|()| update(&node, 1)))
        };
        let mine = [(); 2].map(|()| update(&node, 0));
        let others = other.join().unwrap();
        let mut all = [mine, others].concat();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:x?}");
        assert_eq!(node.word.load(Ordering::Relaxed), 2 + (2 << 8));
        assert!(mine[0] < mine[1] && others[0] < others[1] && node.is_idle());
    });
}

/// An update of which nobody is answered: whoever has the permit drops it. It ends all the same.
fn comes_through(node: &Node, local: u32) {
    match enter(node, WORD, 1, (local, 1)) {
        Entered::Permit(permit) => drop(permit),
        Entered::Alone => panic!("there is one word"),
        Entered::Waits(mut waiting) => loop {
            match waiting.look() {
                None => thread::yield_now(),
                Some(Told::Combines(permit)) => break drop(permit),
                Some(Told::Unknown | Told::GoesAlone) => break,
                Some(Told::Answer(_)) => panic!("nobody is answered"),
            }
        },
    }
}

#[test]
fn loom_who_leaves_keeps_nobody_from_going_on() {
    check(Some(2), || {
        let node = Node::new();
        let leaves = {
            let node = node.clone();
            thread::spawn(move || drop(enter(&*node, WORD, 1, (1, 1))))
        };
        let stays = {
            let node = node.clone();
            thread::spawn(move || comes_through(&node, 2))
        };
        comes_through(&node, 0);
        leaves.join().unwrap();
        stays.join().unwrap();
        assert!(node.is_idle());
    });
}
