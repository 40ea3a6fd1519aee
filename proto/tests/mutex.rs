//! The mutex's queue: step by step, and as a model with ranks of the node and remote ranks interleaved at random.

use longarm_proto::*;
use proptest::prelude::*;
use std::collections::VecDeque;

fn held(rank: u32) -> u32 {
    mutex_word(Rank(rank))
}

/// A grant of a mutex that was given back.
fn given(waiter: u32) -> Option<Grant<u32>> {
    Some(Grant { waiter, inherited: false })
}

/// A grant of a mutex whose holder died.
fn inherited(waiter: u32) -> Option<Grant<u32>> {
    Some(Grant { waiter, inherited: true })
}

/// These are dead, and nothing of them is on its way.
fn gone(ranks: &[u32]) -> Deaths {
    let mut deaths = Deaths::new();
    for rank in ranks {
        assert!(deaths.note(Rank(*rank)));
    }
    assert_eq!(deaths.settle(0, |_| false).len(), ranks.len());
    deaths
}

/// Makes a lock's swap succeed; who was granted.
fn lock(queue: &mut MutexQueue<u32>, word: &mut u32, who: u32) -> Option<Grant<u32>> {
    lock_among(queue, word, who, &Deaths::new())
}

fn lock_among(queue: &mut MutexQueue<u32>, word: &mut u32, who: u32, deaths: &Deaths) -> Option<Grant<u32>> {
    match queue.lock(*word, Rank(who), who, deaths) {
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
fn unlock(queue: &mut MutexQueue<u32>, word: &mut u32, who: u32) -> Option<Grant<u32>> {
    match queue.unlock(*word, Rank(who)) {
        UnlockStep::Swap { from, to, step } => {
            assert_eq!(from, *word);
            *word = to;
            queue.commit(step)
        }
        UnlockStep::NotHeld { holder } => panic!("rank {who} holds it, not {holder:?}"),
    }
}

/// Makes an inheritance's swap succeed, if there is one; who was granted.
fn inherit(queue: &mut MutexQueue<u32>, word: &mut u32, deaths: &Deaths) -> Option<Grant<u32>> {
    match queue.inherit(*word, deaths) {
        InheritStep::Swap { from, to, step } => {
            assert_eq!(from, *word);
            *word = to;
            queue.commit(step)
        }
        InheritStep::Nothing => None,
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
    assert_eq!(lock(&mut queue, &mut word, 4), given(4));
    assert_eq!(word, held(4));
    assert_eq!(lock(&mut queue, &mut word, 2), None);
    assert_eq!(word, held(4) | CONTENDED);
    assert_eq!(lock(&mut queue, &mut word, 9), None);
    assert_eq!(queue.len(), 2);
    assert_eq!(unlock(&mut queue, &mut word, 4), given(2));
    assert_eq!(word, held(2) | CONTENDED);
    assert_eq!(unlock(&mut queue, &mut word, 2), given(9));
    // Nobody waits any more, so that rank 9 may give it back without the server.
    assert_eq!(word, held(9));
    assert_eq!(unlock(&mut queue, &mut word, 9), None);
    assert_eq!((word, queue.is_empty()), (0, true));
}

#[test]
fn a_swap_that_fails_leaves_the_queue_as_it_was_and_gives_the_waiter_back() {
    let (mut queue, nobody) = (MutexQueue::new(), Deaths::new());
    let LockStep::Swap { step, .. } = queue.lock(0, Rank(1), "one", &nobody) else { panic!("it was free") };
    assert_eq!(step.into_waiter(), Some("one"));
    let LockStep::Swap { step, .. } = queue.lock(held(7), Rank(1), "one", &nobody) else { panic!("nobody waits") };
    assert_eq!(step.into_waiter(), Some("one"));
    assert!(queue.is_empty());
    assert!(matches!(queue.lock(held(7) | CONTENDED, Rank(1), "one", &nobody), LockStep::Queued));
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
    let (mut queue, dead) = (MutexQueue::new(), gone(&[0, u32::MAX]));
    assert!(matches!(queue.lock(CONTENDED, Rank(1), 1, &dead), LockStep::NotAMutex(1)));
    assert_eq!(queue.try_lock(CONTENDED, Rank(1), &dead), TryLockStep::NotAMutex);
    assert!(matches!(queue.inherit(CONTENDED, &dead), InheritStep::Nothing));
    assert!(queue.is_empty());
}

#[test]
fn a_try_takes_only_what_is_free_and_overtakes_nobody() {
    let (mut queue, nobody) = (MutexQueue::new(), Deaths::new());
    let free = TryLockStep::Swap { from: 0, to: held(3), inherited: false };
    assert_eq!(queue.try_lock(0, Rank(3), &nobody), free);
    assert_eq!(queue.try_lock(held(1), Rank(3), &nobody), TryLockStep::Busy);
    assert_eq!(queue.try_lock(held(1) | CONTENDED, Rank(3), &nobody), TryLockStep::Busy);
    assert_eq!(queue.try_lock(held(3), Rank(3), &nobody), TryLockStep::Busy);
    for word in [held(1), held(1) | CONTENDED] {
        let left = TryLockStep::Swap { from: word, to: held(3), inherited: true };
        assert_eq!(queue.try_lock(word, Rank(3), &gone(&[1])), left);
    }
    let mut word = held(1);
    assert_eq!(lock(&mut queue, &mut word, 5), None);
    assert_eq!(queue.try_lock(0, Rank(3), &nobody), TryLockStep::Busy);
    assert_eq!(queue.try_lock(word, Rank(3), &gone(&[1])), TryLockStep::Busy);
}

#[test]
fn a_mutex_of_the_dead_goes_to_the_first_who_waits_and_only_he_is_told() {
    let (mut queue, mut word) = (MutexQueue::new(), 0);
    for rank in [1, 2, 3] {
        lock(&mut queue, &mut word, rank);
    }
    assert_eq!(inherit(&mut queue, &mut word, &gone(&[2, 3, 4])), None, "its holder lives");
    let deaths = gone(&[1]);
    assert_eq!(inherit(&mut queue, &mut word, &deaths), inherited(2));
    assert_eq!(word, held(2) | CONTENDED);
    assert_eq!(inherit(&mut queue, &mut word, &deaths), None, "its holder lives");
    assert_eq!(unlock(&mut queue, &mut word, 2), given(3));
    assert_eq!(inherit(&mut queue, &mut word, &gone(&[3])), None, "nobody waits");
    assert_eq!(word, held(3), "so that nobody takes it without being told");
    assert_eq!(lock_among(&mut queue, &mut word, 4, &gone(&[3])), inherited(4));
    assert_eq!((word, unlock(&mut queue, &mut word, 4)), (held(4), None));
}

#[test]
fn who_asks_for_a_mutex_of_the_dead_stands_behind_those_who_wait() {
    let (mut queue, mut word) = (MutexQueue::new(), 0);
    for rank in [1, 2, 3] {
        lock(&mut queue, &mut word, rank);
    }
    let deaths = gone(&[1]);
    assert_eq!(lock_among(&mut queue, &mut word, 4, &deaths), inherited(2));
    assert_eq!(word, held(2) | CONTENDED);
    assert_eq!(unlock(&mut queue, &mut word, 2), given(3));
    assert_eq!(unlock(&mut queue, &mut word, 3), given(4));
    assert_eq!(unlock(&mut queue, &mut word, 4), None);
}

#[test]
fn a_mutex_is_left_when_the_connection_of_its_dead_holder_ends_or_a_second_has_passed() {
    let mut deaths = Deaths::new();
    assert!(!deaths.is_settling());
    assert!(deaths.note(Rank(1)) && deaths.note(Rank(2)) && !deaths.note(Rank(1)));
    // Time counts from the first turn after the death, not from 0.
    assert_eq!(deaths.settle(50_000, |_| true), []);
    assert_eq!(deaths.settle(50_000 + SETTLE_MS - 1, |rank| rank == Rank(1)), [Rank(2)]);
    assert!(deaths.is_dead(Rank(1)) && !deaths.is_gone(Rank(1)) && deaths.is_settling());
    let mut queue = MutexQueue::<u32>::new();
    assert_eq!(queue.try_lock(held(1), Rank(3), &deaths), TryLockStep::Busy);
    let LockStep::Swap { step, .. } = queue.lock(held(1), Rank(3), 3, &deaths) else { panic!("it is held") };
    assert_eq!(queue.commit(step), None);
    assert!(matches!(queue.inherit(held(1) | CONTENDED, &deaths), InheritStep::Nothing));
    assert_eq!(deaths.settle(50_000 + SETTLE_MS, |_| true), [Rank(1)]);
    assert!(deaths.is_gone(Rank(1)) && !deaths.is_settling());
    let mut word = held(1) | CONTENDED;
    assert_eq!(inherit(&mut queue, &mut word, &deaths), inherited(3));
    // It is said once.
    assert_eq!(deaths.settle(u64::MAX, |_| true), []);
    assert!(!deaths.note(Rank(1)) && deaths.is_gone(Rank(1)));
}

#[test]
fn waiters_that_are_gone_are_not_granted_and_the_mutex_is_set_right() {
    let (mut queue, mut word) = (MutexQueue::new(), 0);
    for rank in [1, 2, 3, 4] {
        lock(&mut queue, &mut word, rank);
    }
    assert_eq!(queue.remove(|&waiter| waiter == 2 || waiter == 4), [2, 4]);
    assert_eq!(unlock(&mut queue, &mut word, 1), given(3));
    assert_eq!(word, held(3));
    lock(&mut queue, &mut word, 5);
    assert_eq!(queue.remove(|_| true), [5]);
    assert_eq!(word, held(3) | CONTENDED);
    // Others may still come, and the holder gives it back as if nobody had been there.
    lock(&mut queue, &mut word, 6);
    assert_eq!(unlock(&mut queue, &mut word, 3), given(6));
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
    assert_eq!(lock(&mut queue, &mut word, 4), given(2));
    assert_eq!(word, held(2) | CONTENDED);
    assert_eq!(unlock(&mut queue, &mut word, 2), given(3));
    assert_eq!(unlock(&mut queue, &mut word, 3), given(4));
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
    Dead,
}

/// What is on its way to the server.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mail {
    Lock,
    Unlock,
    /// The connection's end: behind everything that its rank has sent.
    End,
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
    deaths: Deaths,
    now_ms: u64,
    /// Ranks below this one share memory with the server.
    local_ranks: u32,
    ranks: Vec<Rest>,
    connected: Vec<bool>,
    turns: Vec<u32>,
    inbox: VecDeque<(u32, Mail)>,
    serving: Option<Serving>,
    /// Deaths that the server has not heard of.
    news: VecDeque<u32>,
    /// The order in which the server let them wait, and the order in which it granted those.
    enqueued: Vec<u32>,
    passed: Vec<u32>,
}

impl Model {
    fn new(local_ranks: u32, rank_count: u32, turns: u32) -> Model {
        Model {
            word: 0,
            queue: MutexQueue::new(),
            deaths: Deaths::new(),
            now_ms: 7,
            local_ranks,
            ranks: vec![Rest::Idle; rank_count as usize],
            connected: vec![true; rank_count as usize],
            turns: vec![turns; rank_count as usize],
            inbox: VecDeque::new(),
            serving: None,
            news: VecDeque::new(),
            enqueued: Vec::new(),
            passed: Vec::new(),
        }
    }

    fn is_dead(&self, who: u32) -> bool {
        self.ranks[who as usize] == Rest::Dead
    }

    /// `who` is granted the mutex. A dead one does not learn of it, and holds it all the same.
    fn enter(&mut self, who: u32) {
        assert!(self.ranks.iter().all(|rest| *rest != Rest::Holding), "{who} enters beside another");
        if !self.is_dead(who) {
            assert_eq!(self.ranks[who as usize], Rest::Waiting);
            self.ranks[who as usize] = Rest::Holding;
        }
    }

    /// Whoever is granted the mutex is told whether its holder, as the word had it before, has died with it.
    fn check_mark(&self, from: u32, grant: Grant<u32>) {
        assert_eq!(grant.inherited, mutex_holder(from).is_some(), "{} is granted it: {from:#x}", grant.waiter);
        if let Some(holder) = mutex_holder(from) {
            assert!(self.is_dead(holder.0), "{holder:?} lives, and its mutex is granted to {}", grant.waiter);
            let left = self.inbox.iter().any(|(who, _)| *who == holder.0);
            assert!(!left && !self.connected[holder.0 as usize], "something of {holder:?} may still arrive");
        }
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
                    self.inbox.push_back((who, Mail::Lock));
                }
            }
            Rest::Holding => {
                self.ranks[who as usize] = if local && self.word == held(who) {
                    self.word = 0;
                    Rest::Idle
                } else {
                    self.inbox.push_back((who, Mail::Unlock));
                    Rest::Unlocking
                };
            }
            Rest::Idle | Rest::Waiting | Rest::Unlocking | Rest::Dead => return false,
        }
        true
    }

    /// The rank dies, wherever it stands. Its connection ends behind what it has sent, or perhaps never.
    fn die(&mut self, who: u32, connection_ends: bool) {
        if !self.is_dead(who) {
            self.ranks[who as usize] = Rest::Dead;
            self.turns[who as usize] = 0;
            self.news.push_back(who);
            if connection_ends {
                self.inbox.push_back((who, Mail::End));
            }
        }
    }

    /// The server hears of a death.
    fn hear(&mut self) -> bool {
        if self.serving.is_some() {
            return false;
        }
        let Some(who) = self.news.pop_front() else { return false };
        assert!(self.deaths.note(Rank(who)));
        for removed in self.queue.remove(|waiter| *waiter == who) {
            let at = self.enqueued.iter().rposition(|enqueued| *enqueued == removed);
            self.enqueued.remove(at.expect("who waits was let in"));
        }
        true
    }

    /// Time goes on. The server cuts off those of the dead whose connections do not end, and hands on what they held.
    fn settle(&mut self, passed_ms: u64) -> bool {
        if self.serving.is_some() || !self.deaths.is_settling() {
            return false;
        }
        self.now_ms += passed_ms;
        let all_gone = self.deaths.settle(self.now_ms, |rank| self.connected[rank.0 as usize]);
        for gone in &all_gone {
            self.connected[gone.0 as usize] = false;
            self.inbox.retain(|(who, _)| *who != gone.0);
        }
        let from = self.word;
        if !all_gone.is_empty()
            && let Some(grant) = inherit(&mut self.queue, &mut self.word, &self.deaths)
        {
            self.check_mark(from, grant);
            self.passed.push(grant.waiter);
            self.enter(grant.waiter);
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
                    Some(grant) => {
                        assert_eq!(grant.waiter, who);
                        self.check_mark(from, grant);
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
                if !self.is_dead(who) {
                    assert_eq!(self.ranks[who as usize], Rest::Unlocking);
                    self.ranks[who as usize] = Rest::Idle;
                }
                if let Some(grant) = self.queue.commit(step) {
                    assert!(!grant.inherited, "it was given back");
                    self.passed.push(grant.waiter);
                    self.enter(grant.waiter);
                }
            }
            None => match self.inbox.pop_front() {
                // Nobody waits for an answer.
                Some((who, Mail::Lock)) if self.deaths.is_dead(Rank(who)) => {}
                Some((who, Mail::Lock)) => self.read_for_lock(who),
                Some((who, Mail::Unlock)) => self.read_for_unlock(who),
                Some((who, Mail::End)) => self.connected[who as usize] = false,
                None => return false,
            },
        }
        true
    }

    fn read_for_lock(&mut self, who: u32) {
        match self.queue.lock(self.word, Rank(who), who, &self.deaths) {
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

    /// Everyone in turn until nobody can: whoever is left over then was forgotten.
    fn finish(&mut self) {
        loop {
            let mut moved = self.step_server() | self.hear() | self.settle(SETTLE_MS / 3);
            for who in 0..self.ranks.len() as u32 {
                moved |= self.step_rank(who);
            }
            if !moved {
                return;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Rank(u32),
    Server,
    Die { who: u32, connection_ends: bool },
    Hear,
    Settle { passed_ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0_u32..8).prop_map(Step::Rank),
        10 => Just(Step::Server),
        1 => (0_u32..8, any::<bool>()).prop_map(|(who, connection_ends)| Step::Die { who, connection_ends }),
        2 => Just(Step::Hear),
        3 => prop_oneof![Just(1), Just(SETTLE_MS / 2)].prop_map(|passed_ms| Step::Settle { passed_ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4000 }))]

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
        model.finish();
        prop_assert!(model.ranks.iter().all(|rest| *rest == Rest::Idle), "{:?}", model);
        prop_assert!(model.turns.iter().all(|&turns| turns == 0));
        prop_assert_eq!(model.word, 0);
        prop_assert!(model.queue.is_empty());
        prop_assert_eq!(model.passed, model.enqueued);
    }

    #[test]
    fn whoever_dies_where_the_others_get_their_turns_in_order_and_the_heirs_are_told(
        local_ranks in 0_u32..4,
        remote_ranks in 0_u32..4,
        turns in 1_u32..5,
        schedule in prop::collection::vec(step(), 0..200),
    ) {
        let rank_count = local_ranks + remote_ranks;
        let mut model = Model::new(local_ranks, rank_count, turns);
        for step in schedule {
            match step {
                Step::Rank(who) if who < rank_count => drop(model.step_rank(who)),
                Step::Die { who, connection_ends } if who < rank_count => model.die(who, connection_ends),
                Step::Rank(_) | Step::Die { .. } | Step::Server => drop(model.step_server()),
                Step::Hear => drop(model.hear()),
                Step::Settle { passed_ms } => drop(model.settle(passed_ms)),
            }
        }
        model.finish();
        prop_assert!(model.ranks.iter().all(|rest| matches!(rest, Rest::Idle | Rest::Dead)), "{:?}", model);
        prop_assert!(model.turns.iter().all(|&turns| turns == 0));
        // Free, or for the next one to inherit.
        prop_assert!(mutex_holder(model.word).is_none_or(|holder| model.is_dead(holder.0)), "{:?}", model);
        prop_assert!(model.queue.is_empty());
        prop_assert_eq!(model.passed, model.enqueued);
    }
}
