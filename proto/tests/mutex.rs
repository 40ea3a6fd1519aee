//! The mutex's queue: step by step, and as a model with ranks of the node and remote ranks interleaved at random.

use longarm_proto::*;
use proptest::prelude::*;
use std::collections::VecDeque;

fn held(rank: u32) -> u32 {
    mutex_word(Rank(rank))
}

/// Makes a lock's swap succeed; who was granted.
fn lock(queue: &mut MutexQueue<u32>, word: &mut u32, who: u32) -> Option<u32> {
    match queue.lock(*word, Rank(who), who) {
        LockStep::Swap { from, to, step } => {
            assert_eq!(from, *word);
            *word = to;
            queue.commit(step)
        }
        LockStep::Queued => None,
        LockStep::NotAMutex(_) => panic!("the word {word:#x} is a mutex's"),
    }
}

/// Makes an unlock's swap succeed; who was granted.
fn unlock(queue: &mut MutexQueue<u32>, word: &mut u32, who: u32) -> Option<u32> {
    match queue.unlock(*word, Rank(who)) {
        UnlockStep::Swap { from, to, step } => {
            assert_eq!(from, *word);
            *word = to;
            queue.commit(step)
        }
        UnlockStep::NotHeld { holder } => panic!("rank {who} holds it, not {holder:?}"),
    }
}

#[test]
fn the_word_tells_the_holder() {
    assert_eq!(mutex_holder(0), None);
    assert_eq!(mutex_holder(CONTENDED), None);
    assert_eq!(mutex_holder(mutex_word(Rank(0))), Some(Rank(0)));
    assert_eq!(mutex_holder(mutex_word(Rank(77)) | CONTENDED), Some(Rank(77)));
}

#[test]
fn waiters_are_granted_in_the_order_in_which_they_came() {
    let (mut queue, mut word) = (MutexQueue::new(), 0);
    assert_eq!(lock(&mut queue, &mut word, 4), Some(4));
    assert_eq!(word, held(4));
    assert_eq!(lock(&mut queue, &mut word, 2), None);
    assert_eq!(word, held(4) | CONTENDED);
    assert_eq!(lock(&mut queue, &mut word, 9), None);
    assert_eq!(queue.len(), 2);
    assert_eq!(unlock(&mut queue, &mut word, 4), Some(2));
    assert_eq!(word, held(2) | CONTENDED);
    assert_eq!(unlock(&mut queue, &mut word, 2), Some(9));
    // Nobody waits any more, so that rank 9 may give it back without the server.
    assert_eq!(word, held(9));
    assert_eq!(unlock(&mut queue, &mut word, 9), None);
    assert_eq!((word, queue.is_empty()), (0, true));
}

#[test]
fn a_swap_that_fails_leaves_the_queue_as_it_was_and_gives_the_waiter_back() {
    let mut queue = MutexQueue::new();
    let LockStep::Swap { step, .. } = queue.lock(0, Rank(1), "one") else { panic!("it was free") };
    assert_eq!(step.into_waiter(), Some("one"));
    let LockStep::Swap { step, .. } = queue.lock(held(7), Rank(1), "one") else { panic!("nobody waits") };
    assert_eq!(step.into_waiter(), Some("one"));
    assert!(queue.is_empty());
    assert!(matches!(queue.lock(held(7) | CONTENDED, Rank(1), "one"), LockStep::Queued));
    let UnlockStep::Swap { step, .. } = queue.unlock(held(7) | CONTENDED, Rank(7)) else { panic!("7 holds it") };
    assert_eq!(step.into_waiter(), None);
    assert_eq!(queue.len(), 1);
}

#[test]
fn only_the_holder_gives_back() {
    let mut queue = MutexQueue::<u32>::new();
    assert!(matches!(queue.unlock(0, Rank(1)), UnlockStep::NotHeld { holder: None }));
    assert!(matches!(queue.unlock(held(2), Rank(1)), UnlockStep::NotHeld { holder: Some(Rank(2)) }));
    assert!(matches!(queue.unlock(CONTENDED, Rank(1)), UnlockStep::NotHeld { holder: None }));
}

#[test]
fn a_word_that_no_mutex_has_is_refused() {
    let mut queue = MutexQueue::new();
    assert!(matches!(queue.lock(CONTENDED, Rank(1), 1), LockStep::NotAMutex(1)));
    assert_eq!(queue.try_lock(CONTENDED, Rank(1)), TryLockStep::NotAMutex);
    assert!(queue.is_empty());
}

#[test]
fn a_try_takes_only_what_is_free_and_overtakes_nobody() {
    let mut queue = MutexQueue::new();
    assert_eq!(queue.try_lock(0, Rank(3)), TryLockStep::Swap { from: 0, to: held(3) });
    assert_eq!(queue.try_lock(held(1), Rank(3)), TryLockStep::Busy);
    assert_eq!(queue.try_lock(held(1) | CONTENDED, Rank(3)), TryLockStep::Busy);
    assert_eq!(queue.try_lock(held(3), Rank(3)), TryLockStep::Busy);
    let mut word = held(1);
    assert_eq!(lock(&mut queue, &mut word, 5), None);
    assert_eq!(queue.try_lock(0, Rank(3)), TryLockStep::Busy);
}

#[test]
fn waiters_that_are_gone_are_not_granted_and_the_mutex_is_set_right() {
    let (mut queue, mut word) = (MutexQueue::new(), 0);
    for rank in [1, 2, 3, 4] {
        lock(&mut queue, &mut word, rank);
    }
    assert_eq!(queue.remove(|&waiter| waiter == 2 || waiter == 4), [2, 4]);
    assert_eq!(unlock(&mut queue, &mut word, 1), Some(3));
    assert_eq!(word, held(3));
    lock(&mut queue, &mut word, 5);
    assert_eq!(queue.remove(|_| true), [5]);
    assert_eq!(word, held(3) | CONTENDED);
    // Others may still come, and the holder gives it back as if nobody had been there.
    lock(&mut queue, &mut word, 6);
    assert_eq!(unlock(&mut queue, &mut word, 3), Some(6));
    assert_eq!(unlock(&mut queue, &mut word, 6), None);
    assert_eq!(word, 0);
}

#[test]
fn a_word_that_somebody_cleared_strands_no_waiter() {
    let (mut queue, mut word) = (MutexQueue::new(), 0);
    for rank in [1, 2, 3] {
        lock(&mut queue, &mut word, rank);
    }
    word = 0;
    assert_eq!(lock(&mut queue, &mut word, 4), Some(2));
    assert_eq!(word, held(2) | CONTENDED);
    assert_eq!(unlock(&mut queue, &mut word, 2), Some(3));
    assert_eq!(unlock(&mut queue, &mut word, 3), Some(4));
    assert_eq!(unlock(&mut queue, &mut word, 4), None);
}

/// What a rank does next. One compare-and-swap or one message a step.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rest {
    Idle,
    Waiting,
    Holding,
    /// The release without the server failed, or was not tried: an unlock is on its way.
    Unlocking,
}

/// What the server does: it has read the word, and its compare-and-swap comes in a later step.
#[derive(Debug)]
enum Serving {
    Lock { who: u32, from: u32, to: u32, step: MutexStep<u32> },
    Unlock { who: u32, from: u32, to: u32, step: MutexStep<u32> },
}

#[derive(Debug)]
struct Model {
    word: u32,
    queue: MutexQueue<u32>,
    /// Ranks below this one share memory with the server.
    local_ranks: u32,
    ranks: Vec<Rest>,
    turns: Vec<u32>,
    inbox: VecDeque<(u32, bool)>,
    serving: Option<Serving>,
    /// The order in which the server let them wait, and the order in which it granted those.
    enqueued: Vec<u32>,
    passed: Vec<u32>,
}

impl Model {
    fn new(local_ranks: u32, rank_count: u32, turns: u32) -> Model {
        Model {
            word: 0,
            queue: MutexQueue::new(),
            local_ranks,
            ranks: vec![Rest::Idle; rank_count as usize],
            turns: vec![turns; rank_count as usize],
            inbox: VecDeque::new(),
            serving: None,
            enqueued: Vec::new(),
            passed: Vec::new(),
        }
    }

    fn enter(&mut self, who: u32) {
        assert!(self.ranks.iter().all(|rest| *rest != Rest::Holding), "{who} enters beside another");
        assert_eq!(self.ranks[who as usize], Rest::Waiting);
        self.ranks[who as usize] = Rest::Holding;
    }

    /// One step of a rank; whether it had one.
    fn step_rank(&mut self, who: u32) -> bool {
        let local = who < self.local_ranks;
        match self.ranks[who as usize] {
            Rest::Idle if self.turns[who as usize] > 0 => {
                self.turns[who as usize] -= 1;
                self.ranks[who as usize] = Rest::Waiting;
                if local && self.word == 0 {
                    assert!(self.queue.is_empty(), "{who} overtakes those who wait");
                    self.word = held(who);
                    self.enter(who);
                } else {
                    self.inbox.push_back((who, true));
                }
            }
            Rest::Holding => {
                self.ranks[who as usize] = if local && self.word == held(who) {
                    self.word = 0;
                    Rest::Idle
                } else {
                    self.inbox.push_back((who, false));
                    Rest::Unlocking
                };
            }
            Rest::Idle | Rest::Waiting | Rest::Unlocking => return false,
        }
        true
    }

    /// One step of the server: it reads, or it swaps what it has read before.
    fn step_server(&mut self) -> bool {
        match self.serving.take() {
            Some(Serving::Lock { who, from, to, step }) => {
                if self.word != from {
                    assert_eq!(step.into_waiter(), Some(who));
                    self.read_for_lock(who);
                    return true;
                }
                self.word = to;
                match self.queue.commit(step) {
                    Some(granted) => {
                        assert_eq!(granted, who);
                        self.enter(who);
                    }
                    None => self.enqueued.push(who),
                }
            }
            Some(Serving::Unlock { who, from, to, step }) => {
                if self.word != from {
                    self.read_for_unlock(who);
                    return true;
                }
                self.word = to;
                assert_eq!(self.ranks[who as usize], Rest::Unlocking);
                self.ranks[who as usize] = Rest::Idle;
                if let Some(granted) = self.queue.commit(step) {
                    self.passed.push(granted);
                    self.enter(granted);
                }
            }
            None => match self.inbox.pop_front() {
                Some((who, true)) => self.read_for_lock(who),
                Some((who, false)) => self.read_for_unlock(who),
                None => return false,
            },
        }
        true
    }

    fn read_for_lock(&mut self, who: u32) {
        match self.queue.lock(self.word, Rank(who), who) {
            LockStep::Swap { from, to, step } => self.serving = Some(Serving::Lock { who, from, to, step }),
            LockStep::Queued => self.enqueued.push(who),
            LockStep::NotAMutex(_) => panic!("the word became {:#x}", self.word),
        }
    }

    fn read_for_unlock(&mut self, who: u32) {
        match self.queue.unlock(self.word, Rank(who)) {
            UnlockStep::Swap { from, to, step } => self.serving = Some(Serving::Unlock { who, from, to, step }),
            UnlockStep::NotHeld { holder } => panic!("{who} unlocks, {holder:?} holds"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn one_holds_at_a_time_and_those_at_the_server_go_in_order(
        local_ranks in 0_u32..4,
        remote_ranks in 0_u32..4,
        turns in 1_u32..5,
        schedule in prop::collection::vec(0_u32..10, 0..200),
    ) {
        let rank_count = local_ranks + remote_ranks;
        let mut model = Model::new(local_ranks, rank_count, turns);
        for who in schedule {
            if who < rank_count {
                model.step_rank(who);
            } else {
                model.step_server();
            }
        }
        // Then everyone in turn until nobody can: whoever is left over then was forgotten.
        loop {
            let mut moved = model.step_server();
            for who in 0..rank_count {
                moved |= model.step_rank(who);
            }
            if !moved {
                break;
            }
        }
        prop_assert!(model.ranks.iter().all(|rest| *rest == Rest::Idle), "{:?}", model);
        prop_assert!(model.turns.iter().all(|&turns| turns == 0));
        prop_assert_eq!(model.word, 0);
        prop_assert!(model.queue.is_empty());
        prop_assert_eq!(model.passed, model.enqueued);
    }
}
