//! How ranks of one node that add to the same word of another node at the same time send one request for many of them.
//!
//! It is combining, as in flat combining and in the switches of the NYU Ultracomputer, at the edge of the node: `n` additions are one addition of their
//! sum, and the answer to it says what each of them has found.
//!
//! A word that many want has a few *permits*, each of which is one request under way. While there is a free one, a rank takes it and sends its
//! own update. Who finds all of them taken enters itself, with what it adds, into a stack of those who wait. Whoever has a permit and is
//! answered takes the whole stack and hands its permit to the rank that has waited longest, the *combiner*: it sends the sum for all, and tells
//! each what it has found. So nobody waits for others to come, the more ranks there are the more go together, and each waits for two requests at most.
//!
//! ```text
//!   entry:     tag of the word │ permits taken │ newest of those who wait
//!   seats:     rank 3: adds 1, next ─► rank 7: adds 5, next ─► rank 2: adds 1
//!                                                              combiner: adds 7, and tells 7 and 3
//! ```
//!
//! PAIR stack: who enters the stack (Release) has written its seat; who takes the stack (Acquire) reads the seats of all. A stack is
//! taken as a whole, so that the newest of it is still the newest, whatever has happened in between, when an exchange succeeds.
//!
//! PAIR stage: who writes a seat's stage (Release) has written what else the rank is told; the rank reads it behind the stage (Acquire).
//!
//! Words that share an entry, because there are more words than entries, do not combine: the one that comes first does, until its
//! permits are free. Should two of them have the same tag too, each rank of the wrong word is told to go alone.
//!
//! If a process dies: those whose update a dead combiner has sent, or was to send, are never told, and a permit that it had stays taken. So who waits has to
//! know of deaths otherwise, and nobody enters after one.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Entries of a node, a power of two.
pub const ENTRIES: usize = 64;

/// What identifies a word, the same for all ranks of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordName(pub [u64; 4]);

/// Of the words whose names lead here. All zeros while nobody updates one.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Entry(AtomicU64);

/// What a rank that waits shows to the others of its node. It is that of one thread at a time.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Seat {
    name: [AtomicU64; 4],
    operand: AtomicU64,
    answer: AtomicU64,
    /// The place on the node + 1 of the rank that is next in the stack, or behind the combiner; 0 for none.
    next: AtomicU32,
    stage: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Seat>() == 64 && size_of::<Entry>() == 64 && ENTRIES.is_power_of_two());

/// Where entries and seats are.
pub trait Board {
    /// One of [`ENTRIES`].
    fn entry(&self, number: usize) -> &Entry;
    /// The seat of the rank at this place on the node, if there is one.
    fn seat(&self, local: u32) -> Option<&Seat>;
    /// Wakes a rank that may sleep until its seat changes.
    fn wake(&self, local: u32);
}

/// Stages of a seat.
const WAITING: u32 = 1;
const COMBINES: u32 = 2;
const ANSWERED: u32 = 3;
const GOES_ALONE: u32 = 4;
const UNKNOWN: u32 = 5;
const LEFT: u32 = 6;

/// A entry's word: who waits, the permits taken, the tag.
#[derive(Clone, Copy)]
struct State(u64);

const NEWEST_BITS: u32 = 16;
const PERMIT: u64 = 1 << NEWEST_BITS;
const TAG_SHIFT: u32 = 24;
/// The most that a entry can count.
const PERMITS_MAX: u64 = (1 << (TAG_SHIFT - NEWEST_BITS)) - 1;

impl State {
    const fn newest(self) -> u32 {
        self.0 as u32 & (PERMIT - 1) as u32
    }

    const fn permits(self) -> u64 {
        self.0 >> NEWEST_BITS & PERMITS_MAX
    }

    const fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    const fn with_newest(self, newest: u32) -> State {
        State(self.0 & !(PERMIT - 1) | newest as u64)
    }
}

impl WordName {
    /// Which entry it combines to, and its tag.
    fn place(self) -> (usize, u64) {
        // Fibonacci hashing, word by word.
        let mixed =
            self.0.iter().fold(0_u64, |mixed, word| (mixed.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        ((mixed >> TAG_SHIFT) as usize % ENTRIES, mixed >> (TAG_SHIFT + ENTRIES.trailing_zeros()))
    }
}

impl Entry {
    fn state(&self) -> State {
        // PAIR stack.
        State(self.0.load(Ordering::Acquire))
    }

    fn exchange(&self, from: State, to: State) -> bool {
        // PAIR stack.
        self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Seat {
    fn name(&self) -> WordName {
        WordName(std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed)))
    }

    fn next(&self) -> Option<u32> {
        self.next.load(Ordering::Relaxed).checked_sub(1)
    }

    fn tell(&self, stage: u32) {
        // PAIR stage.
        self.stage.store(stage, Ordering::Release);
    }

    /// The rank stops to wait, or is the combiner. False: the other came first.
    fn stop_waiting(&self, stage: u32) -> bool {
        // PAIR stage.
        self.stage.compare_exchange(WAITING, stage, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// How a rank does its update.
#[must_use]
pub enum Entered<'a, B: Board> {
    /// By a request of its own, which others may wait for.
    Permit(Permit<'a, B>),
    /// Another one's request may do it.
    Waits(Waiting<'a, B>),
    /// By a request of its own, that concerns nobody else.
    Aside,
}

/// Begins an update. `permits`: how many the word has, the same for all ranks of the node. `seat`: the place on the node of a rank that may wait, and
/// what it adds; its seat is this call's until it has been told, and for ever if it leaves.
pub fn enter<B: Board>(board: &B, name: WordName, permits: u64, seat: Option<(u32, u64)>) -> Entered<'_, B> {
    let (number, tag) = name.place();
    let entry = board.entry(number);
    loop {
        let state = entry.state();
        if state.permits() == 0 {
            if entry.exchange(state, State(tag << TAG_SHIFT | PERMIT)) {
                return Entered::Permit(Permit { board, name, number, behind: None });
            }
        } else if state.tag() != tag {
            return Entered::Aside;
        } else if state.permits() < permits.min(PERMITS_MAX) {
            if entry.exchange(state, State(state.0 + PERMIT)) {
                return Entered::Permit(Permit { board, name, number, behind: None });
            }
        } else {
            let Some((local, operand)) = seat else { return Entered::Aside };
            let Some(seat) = board.seat(local) else { return Entered::Aside };
            seat.name.iter().zip(name.0).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
            seat.operand.store(operand, Ordering::Relaxed);
            seat.next.store(state.newest(), Ordering::Relaxed);
            seat.stage.store(WAITING, Ordering::Relaxed);
            if entry.exchange(state, state.with_newest(local + 1)) {
                return Entered::Waits(Waiting { board, seat, name, number, is_told: false });
            }
        }
    }
}

/// A request under way. Dropped, it is another rank's if one waits, and nobody's else.
#[must_use]
pub struct Permit<'a, B: Board> {
    board: &'a B,
    name: WordName,
    number: usize,
    /// Whose update goes with the combiner's, and who is behind that one. None from the moment on when all were told.
    behind: Option<u32>,
}

/// What a rank that waited is told.
#[must_use]
pub enum Told<'a, B: Board> {
    /// It is the combiner.
    Combines(Permit<'a, B>),
    /// What the word was before, as far as it is as wide as that.
    Answer(u64),
    /// Nothing was done for it.
    GoesAlone,
    /// Its combiner's request has failed, which may or may not have been done.
    Unknown,
}

impl<B: Board> Permit<'_, B> {
    /// What a request adds that does an update of `mine` first, and those of all whom it goes for.
    #[must_use]
    pub fn total(&self, mine: u64) -> u64 {
        self.others().fold(mine, |total, (_, seat)| total.wrapping_add(seat.operand.load(Ordering::Relaxed)))
    }

    /// The request has found `old`: tells the others what each of their updates has.
    pub fn answer(&mut self, old: u64, mine: u64) {
        let mut found = old.wrapping_add(mine);
        self.tell(|seat| {
            seat.answer.store(found, Ordering::Relaxed);
            found = found.wrapping_add(seat.operand.load(Ordering::Relaxed));
            ANSWERED
        });
    }

    /// The request was refused, and did nothing.
    pub fn refused(&mut self) {
        self.tell(|_| GOES_ALONE);
    }

    fn others(&self) -> impl Iterator<Item = (u32, &Seat)> {
        chain(self.board, self.behind)
    }

    fn tell(&mut self, mut stage: impl FnMut(&Seat) -> u32) {
        let mut next = self.behind.take();
        let told: Vec<u32> = std::iter::from_fn(|| {
            let local = next?;
            let seat = self.board.seat(local)?;
            // Before it is told: its seat may be in another stack then.
            next = seat.next();
            seat.tell(stage(seat));
            Some(local)
        })
        .take(usize::from(u16::MAX))
        .collect();
        // Behind all: a rank that sleeps is woken by a system call.
        told.into_iter().for_each(|local| self.board.wake(local));
    }

    /// Turns a stack around, whose newest is `newest`, and leaves those out of it that wait for another word. The oldest.
    fn turn_around(&self, newest: u32) -> Option<u32> {
        let (mut behind, mut at) = (0, newest);
        while let Some(local) = at.checked_sub(1)
            && let Some(seat) = self.board.seat(local)
        {
            let next = seat.next.load(Ordering::Relaxed);
            if seat.name() == self.name {
                seat.next.store(behind, Ordering::Relaxed);
                behind = at;
            } else {
                seat.tell(GOES_ALONE);
                self.board.wake(local);
            }
            at = next;
        }
        behind.checked_sub(1)
    }

    /// Makes the first of these that has not left the combiner. False: there is none.
    fn hand_on(&self, oldest: Option<u32>) -> bool {
        let combiner = chain(self.board, oldest).find(|(_, seat)| seat.stop_waiting(COMBINES));
        combiner.map(|(local, _)| self.board.wake(local)).is_some()
    }
}

/// The ranks of a list of seats that nobody else changes. More than there can be are not followed.
fn chain<B: Board>(board: &B, first: Option<u32>) -> impl Iterator<Item = (u32, &Seat)> {
    let seat = move |local: u32| Some((local, board.seat(local)?));
    std::iter::successors(first.and_then(seat), move |(_, at)| at.next().and_then(seat)).take(usize::from(u16::MAX))
}

impl<B: Board> Drop for Permit<'_, B> {
    fn drop(&mut self) {
        // Who was not told hears nothing else any more: the request failed, or its caller panicked.
        self.tell(|_| UNKNOWN);
        let entry = self.board.entry(self.number);
        loop {
            let state = entry.state();
            let newest = state.newest();
            if newest == 0 {
                let free = if state.permits() <= 1 { State(0) } else { State(state.0 - PERMIT) };
                if entry.exchange(state, free) {
                    return;
                }
            } else if entry.exchange(state, state.with_newest(0)) && self.hand_on(self.turn_around(newest)) {
                return;
            }
        }
    }
}

/// A rank that waits. Dropped before it was told, it leaves: nobody may use its seat again.
#[must_use]
pub struct Waiting<'a, B: Board> {
    board: &'a B,
    seat: &'a Seat,
    name: WordName,
    number: usize,
    is_told: bool,
}

impl<'a, B: Board> Waiting<'a, B> {
    /// What the rank was told, if it was; once.
    pub fn look(&mut self) -> Option<Told<'a, B>> {
        // PAIR stage.
        let stage = self.seat.stage.load(Ordering::Acquire);
        if stage == WAITING || self.is_told {
            return None;
        }
        self.is_told = true;
        Some(match stage {
            COMBINES => Told::Combines(self.permit()),
            ANSWERED => Told::Answer(self.seat.answer.load(Ordering::Relaxed)),
            GOES_ALONE => Told::GoesAlone,
            _ => Told::Unknown,
        })
    }

    fn permit(&self) -> Permit<'a, B> {
        Permit { board: self.board, name: self.name, number: self.number, behind: self.seat.next() }
    }
}

impl<B: Board> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        if !self.is_told && !self.seat.stop_waiting(LEFT) && self.seat.stage.load(Ordering::Acquire) == COMBINES {
            drop(self.permit());
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "combining_tests.rs"]
mod tests;
