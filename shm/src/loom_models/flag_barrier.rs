//! Flag barriers: who sees a number sees its words and what was written before; nobody's words are written over too early.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::check;
use super::mortal::die_after;
use crate::flag_barrier::{Board, Lines, Member};

/// The lines of two members, and memory that each writes before it comes to a barrier.
struct Shared {
    lines: [Lines; 2],
    before: [UnsafeCell<u64>; 2],
}

// SAFETY: each member writes its own `before`, and the other one reads it between two barriers. That the barriers order
// them is what the models check: loom reports any access that is not ordered.
unsafe impl Sync for Shared {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared { lines: Default::default(), before: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn write(&self, me: usize, value: u64) {
        self.before[me].with_mut(|before| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *before = value }
        });
    }

    fn read(&self, place: usize) -> u64 {
        self.before[place].with(|before| {
            // SAFETY: as in `write`.
            unsafe { *before }
        })
    }
}

struct Both(Arc<Shared>);

impl Board for Both {
    fn lines(&self, place: usize) -> &Lines {
        &self.0.lines[place]
    }
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

fn come(member: &Member<Both>, words: &[u64]) -> u64 {
    if let Some(owed) = member.owed() {
        let mut from = 0;
        until(|| member.have_all_come(&mut from, owed));
    }
    member.come(words)
}

#[test]
fn loom_all_who_met_see_each_others_words_and_what_was_written_before() {
    fn meet(shared: &Arc<Shared>, me: usize, barriers: u64) {
        let member = Member::new(Both(shared.clone()), 2, me, 0);
        for round in 1..=barriers {
            // Between two barriers the other one may read: written in every second turn only.
            if round % 2 == 1 {
                shared.write(me, round);
            }
            let barrier = come(&member, &[round * 10 + me as u64]);
            assert_eq!(barrier, round);
            let mut from = 0;
            until(|| member.have_all_come(&mut from, barrier));
            assert_eq!(member.word(1 - me, 0), round * 10 + 1 - me as u64);
            if round % 2 == 1 {
                assert_eq!(shared.read(1 - me), round);
            }
        }
    }
    check(Some(2), || {
        let shared = Shared::new();
        let other = shared.clone();
        let other = thread::spawn(move || meet(&other, 1, 4));
        meet(&shared, 0, 4);
        other.join().unwrap();
    });
}

#[test]
fn loom_who_runs_ahead_writes_over_nothing_that_is_still_to_be_read() {
    const BARRIERS: u64 = 4;
    check(Some(2), || {
        let shared = Shared::new();
        let root = {
            let shared = shared.clone();
            thread::spawn(move || {
                let member = Member::new(Both(shared), 2, 0, 0);
                for round in 1..=BARRIERS {
                    come(&member, &[round, round * 7]);
                }
            })
        };
        let member = Member::new(Both(shared.clone()), 2, 1, 0);
        for round in 1..=BARRIERS {
            let barrier = come(&member, &[]);
            until(|| member.has_come(0, barrier));
            assert_eq!((member.word(0, 0), member.word(0, 1)), (round, round * 7));
        }
        root.join().unwrap();
    });
}

#[test]
fn loom_a_member_dies_at_any_step_and_what_it_shows_is_whole() {
    for steps in 0..=16 {
        check(Some(1), move || {
            let shared = Shared::new();
            let mortal = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let member = Member::new(Both(shared), 2, 1, 0);
                    die_after(steps, || come(&member, &[3, 4])).is_some()
                })
            };
            let member = Member::new(Both(shared.clone()), 2, 0, 0);
            let barrier = come(&member, &[1, 2]);
            let has_come = || member.has_come(1, barrier).then(|| (member.word(1, 0), member.word(1, 1)));
            let early = has_come();
            let lived = mortal.join().unwrap();
            let late = has_come();
            assert!(early.is_none_or(|words| words == (3, 4)) && late.is_none_or(|words| words == (3, 4)));
            assert!(late.is_some() || !lived, "step {steps}");
            assert!(lived || steps < 16, "there are more steps to die at");
        });
    }
}
