//! How ranks of one node pass a mutex from one to the next without the server, while all of them look.
//!
//! It is lock cohorting: a lock of the node inside the one of the job. A set of ranks stands where others have a queue, because a rank that dies in a
//! queue would cut off those behind it.
//!
//! A mutex is a word (`longarm_proto::mutex_word`), and behind it, on the same line, a set of ranks that look at it without sleeping,
//! the *spinners*, and a number. A rank that finds the mutex held enters itself into the set and looks; who gives the mutex back takes the
//! next rank, around the node, out of the set, and writes its name into the word. So all get their turn, and what passes between two
//! processors is this line.
//!
//! ```text
//!   spinner                                holder
//!   enter the set
//!   look: held ─► set SPINNERS             give back: SPINNERS is set
//!   look: held                             take the spinner out of the set
//!   look: my name, PASSED ─► clear PASSED  word: spinner's name, PASSED
//! ```
//!
//! Whoever takes a rank out of the set decides. If the rank itself does, because it has looked for long, nobody passes the mutex to it.
//! If the holder does, the mutex is on its way, and the rank has to wait for it, or for the holder's death in between.
//! [`PASSED`] tells a mutex that was passed to this rank from one that another thread of it holds.
//!
//! Where ranks wait at the server too ([`CONTENDED`]), the mutex goes around the node once, from the rank that had it first, and then the
//! server says who is next: so ranks that look do not keep away those that sleep or are on other nodes, and do not each wait for the server.
//!
//! The set is of memory that all ranks of the node may change. A rank in it that there is not, or that is dead, is taken out and left out.
//! One that dies with the mutex on its way is its holder, as any other, also if it had died before: the server looks at contended mutexes again while a rank of the node is dead.

use longarm_proto::{CONTENDED, PASSED, Rank, SPINNERS, mutex_holder, mutex_word};

/// Words of the set.
pub const SET_WORDS: u32 = 7;
/// Ranks of a node from here on have no place in the set: they ask the server.
pub const SPINNERS_MAX: u32 = SET_WORDS * u64::BITS;

/// What lies on the line of a mutex. All of it is zero at first.
pub trait MutexLine {
    /// The word, with Acquire.
    fn word(&self) -> u32;
    /// Exchanges the word, with Acquire and Release. `Err`: what it is instead.
    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32>;
    /// A word of the set, with Acquire.
    fn set(&self, index: u32) -> u64;
    /// Adds to a word of the set, with Release.
    fn add(&self, index: u32, bits: u64);
    /// Takes out of a word of the set, with Acquire. What was in it.
    fn take_out(&self, index: u32, bits: u64) -> u64;
    /// Where a round began in which the mutex goes around the node: a rank's place there + 1, 0 for none. Only its holder calls this.
    fn round(&self) -> u32;
    /// Only its holder calls this.
    fn set_round(&self, first: u32);
}

/// What a rank finds that wants a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It has it from now on.
    Taken {
        /// From its holder, which has taken this rank out of the set.
        passed: bool,
    },
    /// A rank holds it, which may be this one, by another thread. `None`: it was free for a moment, or is no mutex.
    Held(Option<Rank>),
}

/// The way of a rank to a mutex that it has found held.
#[derive(Debug)]
#[must_use = "a rank that has entered the set takes what is passed to it"]
pub struct Attempt {
    me: Rank,
    local: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Spinning,
    /// Somebody has taken this rank out of the set: the holder that the rank has found since, if it has looked.
    OnItsWay(Option<Rank>),
}

/// How far an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// This rank has the mutex from now on.
    Taken,
    /// Another rank has it: look again soon.
    Spin,
    /// It is on its way to this rank: sleep until it is here, or a death is known.
    Await,
    /// This rank has it, by another thread. The attempt is over.
    HeldAlready,
    /// Nobody passes it to this rank: the server says when. The attempt is over.
    AskServer,
}

/// What comes of a mutex that a rank gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum GivenBack {
    /// It is free, or another rank's.
    Done,
    /// It is still this rank's: the server says who is next.
    AskServer,
    /// It was not this rank's.
    NotHeld,
}

/// Where a rank is in the set. `None`: it has no place there.
const fn place(local: u32) -> Option<(u32, u64)> {
    if local < SPINNERS_MAX { Some((local / u64::BITS, 1 << (local % u64::BITS))) } else { None }
}

/// Enters a rank of the node into the set. False: it has no place there.
fn enter(line: &impl MutexLine, local: u32) -> bool {
    let Some((index, bit)) = place(local) else { return false };
    line.add(index, bit);
    true
}

/// Takes a rank out of the set. False: somebody else has, and passes the mutex to it.
fn leave(line: &impl MutexLine, local: u32) -> bool {
    place(local).is_some_and(|(index, bit)| line.take_out(index, bit) & bit != 0)
}

impl Attempt {
    /// Enters a rank, by its place on the node, into the set. `None`: it has no place there, and asks the server.
    pub fn begin(line: &impl MutexLine, me: Rank, local: u32) -> Option<Attempt> {
        enter(line, local).then_some(Attempt { me, local, phase: Phase::Spinning })
    }

    /// Looks once. `is_late`: the rank has spun for long enough; `is_dead`: whether a rank is known to be dead, with Acquire.
    pub fn step(&mut self, line: &impl MutexLine, is_late: bool, is_dead: impl Fn(Rank) -> bool) -> Step {
        let holder = match (look(line, self.me), &self.phase) {
            (Found::Taken { passed: false }, Phase::Spinning) => {
                leave(line, self.local);
                return Step::Taken;
            }
            (Found::Taken { .. }, _) => return Step::Taken,
            (Found::Held(holder), _) => holder,
        };
        let is_mine = holder == Some(self.me);
        let is_left = holder.is_some_and(is_dead);
        match &mut self.phase {
            Phase::Spinning if !(is_mine || is_late || is_left) => Step::Spin,
            Phase::Spinning if leave(line, self.local) => self.over(is_mine),
            Phase::Spinning => {
                self.phase = Phase::OnItsWay(None);
                Step::Await
            }
            // Another thread of this rank has taken what was passed to it.
            Phase::OnItsWay(_) if is_mine => self.over(true),
            Phase::OnItsWay(passer) => {
                // Only who holds it passes it. Another holder, or none, has it from the server.
                let is_coming = holder.is_some_and(|holder| *passer.get_or_insert(holder) == holder) && !is_left;
                if is_coming { Step::Await } else { self.look_last(line) }
            }
        }
    }

    /// The passer is known to be dead, and writes no more. It may have written this rank's name behind the look before.
    fn look_last(&self, line: &impl MutexLine) -> Step {
        match look(line, self.me) {
            Found::Taken { .. } => Step::Taken,
            Found::Held(holder) => self.over(holder == Some(self.me)),
        }
    }

    fn over(&self, is_mine: bool) -> Step {
        if is_mine { Step::HeldAlready } else { Step::AskServer }
    }
}

/// Looks once: takes the mutex if it is free or was passed to this rank, else sees to it that its holder looks at the set.
fn look(line: &impl MutexLine, me: Rank) -> Found {
    let mut word = line.word();
    if word == 0 && line.exchange(0, mutex_word(me)).is_ok() {
        return Found::Taken { passed: false };
    }
    // Others only add to it, but for another thread of this rank, which takes it too.
    while mutex_holder(word) == Some(me) && word & PASSED != 0 {
        match line.exchange(word, word & !PASSED) {
            Ok(_) => return Found::Taken { passed: true },
            Err(now) => word = now,
        }
    }
    let holder = mutex_holder(word);
    if holder.is_some() && word & SPINNERS == 0 {
        // If it fails, the next look does it.
        let _ = line.exchange(word, word | SPINNERS);
    }
    Found::Held(holder)
}

/// Gives a mutex back. `rank_of`: the rank by its place on the node, if there is one and it lives.
pub fn give_back(line: &impl MutexLine, (me, local): (Rank, u32), rank_of: impl Fn(u32) -> Option<Rank>) -> GivenBack {
    loop {
        let word = line.word();
        if mutex_holder(word) != Some(me) || word & PASSED != 0 {
            return GivenBack::NotHeld;
        }
        let at_server = word & CONTENDED != 0;
        if word & SPINNERS != 0 {
            let first = if at_server { line.round().checked_sub(1).unwrap_or(local) } else { local };
            if let Some(next) = take_next(line, local, first, &rank_of) {
                if at_server {
                    line.set_round(first + 1);
                }
                return pass(line, word, next);
            }
        }
        if at_server {
            line.set_round(0);
            return GivenBack::AskServer;
        }
        if line.exchange(word, 0).is_ok() {
            return GivenBack::Done;
        }
    }
}

/// Writes the name of the next holder into the word, which others meanwhile only add to. If it has another holder by then, two threads of this rank
/// have given it back at once: the next holder, whom the other one has made, is left alone.
fn pass(line: &impl MutexLine, mut word: u32, next: Rank) -> GivenBack {
    let holder = mutex_holder(word);
    loop {
        match line.exchange(word, mutex_word(next) | PASSED | SPINNERS | word & CONTENDED) {
            Ok(_) => return GivenBack::Done,
            Err(now) if mutex_holder(now) == holder && now & PASSED == 0 => word = now,
            Err(_) => return GivenBack::NotHeld,
        }
    }
}

/// Takes the next living rank out of the set: of those behind `local` around the node, before `first`. That one is the last itself, by
/// another thread, where it is `local`.
fn take_next(line: &impl MutexLine, local: u32, first: u32, rank_of: &impl Fn(u32) -> Option<Rank>) -> Option<Rank> {
    // How many places are left in the round; a rank that has no place in the set is before all that have.
    let (local, first) = (local.min(SPINNERS_MAX - 1), first.min(SPINNERS_MAX - 1));
    let left = (first + SPINNERS_MAX - local - 1) % SPINNERS_MAX + u32::from(first == local);
    let mut turn = 0;
    while turn < left {
        let at = (local + 1 + turn) % SPINNERS_MAX;
        let (index, bit) = place(at)?;
        // The rest of a word at once.
        let here = (u64::BITS - at % u64::BITS).min(left - turn);
        let wanted = line.set(index) & (u64::MAX >> (u64::BITS - here) << (at % u64::BITS));
        if wanted == 0 {
            turn += here;
            continue;
        }
        turn += wanted.trailing_zeros() - bit.trailing_zeros();
        let bit = wanted & wanted.wrapping_neg();
        let is_ours = line.take_out(index, bit) & bit != 0;
        if is_ours && let Some(next) = rank_of(index * u64::BITS + bit.trailing_zeros()) {
            return Some(next);
        }
        turn += 1;
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct Line {
        word: AtomicU32,
        round: AtomicU32,
        set: [AtomicU64; SET_WORDS as usize],
    }

    impl MutexLine for Line {
        fn word(&self) -> u32 {
            self.word.load(SeqCst)
        }

        fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
            self.word.compare_exchange(from, to, SeqCst, SeqCst)
        }

        fn set(&self, index: u32) -> u64 {
            self.set[index as usize].load(SeqCst)
        }

        fn add(&self, index: u32, bits: u64) {
            self.set[index as usize].fetch_or(bits, SeqCst);
        }

        fn take_out(&self, index: u32, bits: u64) -> u64 {
            self.set[index as usize].fetch_and(!bits, SeqCst)
        }

        fn round(&self) -> u32 {
            self.round.load(SeqCst)
        }

        fn set_round(&self, first: u32) {
            self.round.store(first, SeqCst);
        }
    }

    /// Ranks of the node have the same numbers there.
    fn everybody(local: u32) -> Option<Rank> {
        Some(Rank(local))
    }

    /// Who has the mutex after the holder gave it back, and takes it; `None` if the server is to say.
    fn next(line: &Line, holder: u32) -> Option<u32> {
        match give_back(line, (Rank(holder), holder), everybody) {
            GivenBack::Done => {
                let next = mutex_holder(line.word())?;
                assert_eq!(look(line, next), Found::Taken { passed: true });
                Some(next.0)
            }
            GivenBack::AskServer => None,
            GivenBack::NotHeld => panic!("{holder} holds it"),
        }
    }

    fn held_by(holder: u32, marks: u32) -> Line {
        let line = Line::default();
        line.word.store(mutex_word(Rank(holder)) | marks, SeqCst);
        line
    }

    #[test]
    fn a_mutex_goes_around_the_node_and_past_the_ends_of_words() {
        let places = [0, 1, 62, 63, 64, 127, 128, 300, SPINNERS_MAX - 1];
        for (at, first) in places.into_iter().enumerate() {
            let line = held_by(first, SPINNERS);
            places.into_iter().for_each(|place| assert!(enter(&line, place)));
            let mut order = vec![first];
            while let Some(next) = next(&line, *order.last().unwrap()) {
                order.push(next);
            }
            // Another thread of the first rank is in the set too, and comes last.
            let around = places[at..].iter().chain(&places[..=at]).copied();
            assert!(order.iter().copied().eq(around), "{order:?}");
            assert_eq!(line.word(), 0);
        }
    }

    #[test]
    fn while_ranks_wait_at_the_server_each_rank_that_looks_has_one_turn_before_theirs() {
        let line = held_by(5, SPINNERS | CONTENDED);
        [2, 7, 9].into_iter().for_each(|place| assert!(enter(&line, place)));
        let mut holder = 5;
        for due in [7, 9, 2] {
            holder = next(&line, holder).unwrap();
            assert_eq!(holder, due);
            // They all want it again.
            assert!(enter(&line, holder));
        }
        assert_eq!(next(&line, holder), None, "those at the server");
        assert_eq!((line.round(), line.word()), (0, mutex_word(Rank(2)) | SPINNERS | CONTENDED));
    }

    #[test]
    fn what_another_thread_of_a_rank_holds_was_not_passed_to_it() {
        let line = held_by(1, 0);
        assert_eq!(look(&line, Rank(1)), Found::Held(Some(Rank(1))));
        assert_eq!(line.word(), mutex_word(Rank(1)) | SPINNERS);
        assert_eq!(give_back(&line, (Rank(1), 1), everybody), GivenBack::Done);
        assert_eq!(look(&line, Rank(1)), Found::Taken { passed: false });
    }

    #[test]
    fn whom_there_is_no_place_for_is_told_so_and_passes_it_on_all_the_same() {
        let line = held_by(SPINNERS_MAX, SPINNERS);
        assert!(!enter(&line, SPINNERS_MAX) && !leave(&line, SPINNERS_MAX));
        assert!(enter(&line, 3));
        assert_eq!(next(&line, SPINNERS_MAX), Some(3));
    }

    #[test]
    fn who_has_left_the_set_and_who_is_dead_are_passed_nothing() {
        let line = held_by(0, SPINNERS);
        [1, 2, 3].into_iter().for_each(|place| assert!(enter(&line, place)));
        assert!(leave(&line, 1) && !leave(&line, 1));
        let given = give_back(&line, (Rank(0), 0), |local| (local != 2).then_some(Rank(local)));
        assert_eq!((given, line.word()), (GivenBack::Done, mutex_word(Rank(3)) | PASSED | SPINNERS));
        assert_eq!(line.set(0), 0);
        assert_eq!(look(&line, Rank(1)), Found::Held(Some(Rank(3))));
        assert_eq!(give_back(&line, (Rank(3), 3), everybody), GivenBack::NotHeld, "not before it has noticed");
    }

    /// A line on which another thread of the rank, or its server, does something right before an exchange.
    struct Disturbed<'a> {
        line: &'a Line,
        before_exchange: std::cell::Cell<Option<u32>>,
    }

    impl MutexLine for Disturbed<'_> {
        fn word(&self) -> u32 {
            self.line.word()
        }

        fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
            self.before_exchange.take().into_iter().for_each(|word| self.line.word.store(word, SeqCst));
            self.line.exchange(from, to)
        }

        fn set(&self, index: u32) -> u64 {
            self.line.set(index)
        }

        fn add(&self, index: u32, bits: u64) {
            self.line.add(index, bits);
        }

        fn take_out(&self, index: u32, bits: u64) -> u64 {
            self.line.take_out(index, bits)
        }

        fn round(&self) -> u32 {
            self.line.round()
        }

        fn set_round(&self, first: u32) {
            self.line.set_round(first);
        }
    }

    fn disturb(line: &Line, word: u32) -> Disturbed<'_> {
        Disturbed { line, before_exchange: std::cell::Cell::new(Some(word)) }
    }

    #[test]
    fn of_two_threads_of_a_rank_one_takes_what_is_passed_to_it() {
        let line = held_by(1, PASSED | SPINNERS);
        let mine = mutex_word(Rank(1)) | SPINNERS;
        assert_eq!(look(&disturb(&line, mine), Rank(1)), Found::Held(Some(Rank(1))));
        assert_eq!(line.word(), mine);
    }

    #[test]
    fn of_two_threads_that_give_a_mutex_back_at_once_the_second_one_leaves_the_next_holder_alone() {
        for next in [mutex_word(Rank(3)) | SPINNERS, mutex_word(Rank(1)) | PASSED | SPINNERS, 0] {
            let line = held_by(1, SPINNERS);
            assert!(enter(&line, 2));
            assert_eq!(give_back(&disturb(&line, next), (Rank(1), 1), everybody), GivenBack::NotHeld);
            assert_eq!(line.word(), next);
        }
    }

    #[test]
    fn an_attempt_that_was_taken_out_of_the_set_waits_for_its_passer_only() {
        let nobody = |_| false;
        let on_its_way = |line: &Line| {
            let mut attempt = Attempt::begin(line, Rank(1), 1).unwrap();
            assert_eq!(attempt.step(line, false, nobody), Step::Spin);
            assert!(leave(line, 1));
            assert_eq!(attempt.step(line, true, nobody), Step::Await);
            assert_eq!(attempt.step(line, true, nobody), Step::Await);
            attempt
        };
        let line = held_by(0, 0);
        let cases = [
            (mutex_word(Rank(1)) | PASSED, Step::Taken),
            (mutex_word(Rank(1)), Step::HeldAlready),
            (mutex_word(Rank(2)), Step::AskServer),
            (0, Step::Taken),
        ];
        for (word, due) in cases {
            line.word.store(mutex_word(Rank(0)), SeqCst);
            let mut attempt = on_its_way(&line);
            line.word.store(word, SeqCst);
            assert_eq!(attempt.step(&line, true, nobody), due);
        }
        line.word.store(mutex_word(Rank(0)), SeqCst);
        assert_eq!(on_its_way(&line).step(&line, true, |rank| rank == Rank(0)), Step::AskServer);
    }

    #[test]
    fn what_a_passer_writes_last_is_found_when_its_death_is_known() {
        let line = held_by(0, SPINNERS);
        let mut attempt = Attempt::begin(&line, Rank(1), 1).unwrap();
        assert!(leave(&line, 1));
        assert_eq!(attempt.step(&line, true, |_| false), Step::Await);
        let step = attempt.step(&line, true, |_| {
            // Behind the look that found rank 0, and before its death was known.
            line.word.store(mutex_word(Rank(1)) | PASSED, SeqCst);
            true
        });
        assert_eq!(step, Step::Taken);
    }
}
