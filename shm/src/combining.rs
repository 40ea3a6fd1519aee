//! How ranks of one node that add to the same word of another node at the same time send one request for many of them.
//!
//! It is combining, as in flat combining and in the switches of the NYU Ultracomputer, at the edge of the node: `n` additions are one addition of their
//! sum, and the answer to it says what each of them has found.
//!
//! A word that many want has an *entry*, and in it a few *permits*, each of which is one request under way. While there is a free permit, a rank takes
//! it and sends its own update. A rank that finds all of them taken writes what it adds into its *seat*, and pushes the seat onto the entry's stack. When
//! the request of a permit is answered, its rank takes the whole stack, turns it around, so that the oldest comes first, and hands the permit to that
//! one, the *combiner*; without a stack it frees the permit. The combiner sends the sum for all, and tells each what it has found. So nobody waits for
//! others to come, the more ranks there are the more go together, and each waits for two requests at most: one under way, and the one it goes
//! with, unless that is refused.
//!
//! ```text
//!   entry:   tag of the word │ permits taken │ newest: rank 3
//!   stack:   rank 3: adds 1 ─► rank 7: adds 5 ─► rank 2: adds 1
//!   turned:  rank 2 ─► rank 7 ─► rank 3       2 is the combiner, adds 7, finds 100, and tells 7: 101, 3: 106
//! ```
//!
//! PAIR stack: who enters the stack (Release) has written its seat; who takes the stack (Acquire) reads the seats of all. Seats leave a stack all at
//! once, so a seat that is pushed lies on the stack that is there when its exchange succeeds, even if that was taken and begun again since it was read.
//!
//! PAIR phase: who writes a seat's phase (Release) has written what else the rank is told; the rank reads the rest after the phase (Acquire).
//!
//! Two words may share an entry, because there are more words than entries. Only the one that comes first combines, until its permits are free; updates
//! of the other go alone. If they have the same tag too, ranks that wait for another word than the permit's are told to go alone.
//!
//! If a process dies: the permits that it had, or that are handed to it, stay taken, and those whose seats it had taken from the stack are never told.
//! So who waits has to know of deaths otherwise, and nobody waits after one.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Entries of a node, a power of two.
pub const ENTRIES: usize = 64;

/// What identifies a word, the same for all ranks of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordName(pub [u64; 4]);

/// The permits and the stack of one of the words whose names lead here. All zeros while nobody has a permit.
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
    phase: AtomicU32,
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

/// More seats than a node has: a list that is none ends here.
const FOLLOWED_MAX: usize = u16::MAX as usize;

/// Phases of a seat.
const WAITING: u32 = 1;
const COMBINES: u32 = 2;
const ANSWERED: u32 = 3;
const GOES_ALONE: u32 = 4;
const UNKNOWN: u32 = 5;
const LEFT: u32 = 6;

/// An entry's word: the newest of those who wait, the permits taken, the tag.
#[derive(Clone, Copy)]
struct State(u64);

const NEWEST_BITS: u32 = 16;
const PERMIT: u64 = 1 << NEWEST_BITS;
const TAG_SHIFT: u32 = 24;
/// The most permits that an entry can count.
const PERMITS_COUNTED_MAX: u64 = (1 << (TAG_SHIFT - NEWEST_BITS)) - 1;

impl State {
    const fn newest(self) -> u32 {
        self.0 as u32 & (PERMIT - 1) as u32
    }

    const fn permits(self) -> u64 {
        self.0 >> NEWEST_BITS & PERMITS_COUNTED_MAX
    }

    const fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    const fn with_newest(self, newest: u32) -> State {
        State(self.0 & !(PERMIT - 1) | newest as u64)
    }
}

impl WordName {
    /// Its entry, and its tag there.
    fn entry_and_tag(self) -> (usize, u64) {
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

    fn tell(&self, phase: u32) {
        // PAIR phase.
        self.phase.store(phase, Ordering::Release);
    }

    /// Ends the wait: the rank leaves, or is made the combiner. False: it had ended already.
    fn end_wait(&self, phase: u32) -> bool {
        // PAIR phase.
        self.phase.compare_exchange(WAITING, phase, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// How a rank does its update.
#[must_use]
pub enum Entered<'a, B: Board> {
    /// By a request of its own, which others may wait for.
    Permit(Permit<'a, B>),
    /// Another one's request may do it.
    Waits(Waiting<'a, B>),
    /// By a request of its own, which nobody waits for.
    Alone,
}

/// Begins an update of a rank, which is at a place on the node and adds something. `permits`: how many the word has, the same for all ranks of the node.
/// The rank's seat is this call's until it has been told, and for ever if it leaves.
pub fn enter<B: Board>(board: &B, name: WordName, permits: u64, (local, operand): (u32, u64)) -> Entered<'_, B> {
    let (number, tag) = name.entry_and_tag();
    let entry = board.entry(number);
    loop {
        let state = entry.state();
        if state.permits() == 0 {
            if entry.exchange(state, State(tag << TAG_SHIFT | PERMIT)) {
                return Entered::Permit(Permit { board, name, number, behind: None });
            }
        } else if state.tag() != tag {
            return Entered::Alone;
        } else if state.permits() < permits.min(PERMITS_COUNTED_MAX) {
            if entry.exchange(state, State(state.0 + PERMIT)) {
                return Entered::Permit(Permit { board, name, number, behind: None });
            }
        } else {
            let Some(seat) = board.seat(local) else { return Entered::Alone };
            seat.name.iter().zip(name.0).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
            seat.operand.store(operand, Ordering::Relaxed);
            seat.next.store(state.newest(), Ordering::Relaxed);
            seat.phase.store(WAITING, Ordering::Relaxed);
            if entry.exchange(state, state.with_newest(local + 1)) {
                return Entered::Waits(Waiting { board, seat, name, number, is_told: false });
            }
        }
    }
}

/// The right to one request, from before it is sent until it is answered. Dropped, it goes to a rank that waits, or is free.
#[must_use]
pub struct Permit<'a, B: Board> {
    board: &'a B,
    name: WordName,
    number: usize,
    /// The first of those whose updates go with this one; each seat says who is next. `None`: nobody, or all were told.
    behind: Option<u32>,
}

/// What a rank that waited is told.
#[must_use]
pub enum Told<'a, B: Board> {
    /// It is the combiner.
    Combines(Permit<'a, B>),
    /// What its update has found; of a word of 32 bits, the low half.
    Answer(u64),
    /// Nothing was done for it.
    GoesAlone,
    /// The request that its update went with has failed, and may have been done.
    Unknown,
}

impl<B: Board> Permit<'_, B> {
    /// What the request adds: `mine`, and what all add who go with it.
    #[must_use]
    pub fn total(&self, mine: u64) -> u64 {
        self.others().fold(mine, |total, (_, seat)| total.wrapping_add(seat.operand.load(Ordering::Relaxed)))
    }

    /// The request has found `old`, and `mine` was added first: tells each of the others what its update has found.
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

    fn tell(&mut self, mut phase: impl FnMut(&Seat) -> u32) {
        let mut next = self.behind.take();
        let told: Vec<u32> = std::iter::from_fn(|| {
            let local = next?;
            let seat = self.board.seat(local)?;
            // Read before it is told: its seat may be in another stack then.
            next = seat.next();
            seat.tell(phase(seat));
            Some(local)
        })
        .take(FOLLOWED_MAX)
        .collect();
        // After all are told: to wake a rank that sleeps takes a system call.
        told.into_iter().for_each(|local| self.board.wake(local));
    }

    /// Turns the stack around that begins at `newest`, and leaves out who waits for another word. Gives the oldest.
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
                // What is no list has an end all the same.
                seat.next.store(0, Ordering::Relaxed);
                seat.tell(GOES_ALONE);
                self.board.wake(local);
            }
            at = next;
        }
        behind.checked_sub(1)
    }

    /// Makes a combiner of the first of these that has not left. False: there is none.
    fn hand_on(&self, oldest: Option<u32>) -> bool {
        let combiner = chain(self.board, oldest).find(|(_, seat)| seat.end_wait(COMBINES));
        combiner.map(|(local, _)| self.board.wake(local)).is_some()
    }
}

/// The ranks of a list of seats that nobody else changes. More than there can be are not followed.
fn chain<B: Board>(board: &B, first: Option<u32>) -> impl Iterator<Item = (u32, &Seat)> {
    let seat = move |local: u32| Some((local, board.seat(local)?));
    std::iter::successors(first.and_then(seat), move |(_, at)| at.next().and_then(seat)).take(FOLLOWED_MAX)
}

impl<B: Board> Drop for Permit<'_, B> {
    fn drop(&mut self) {
        // Who was not told by now is told nothing else: the request failed, or its caller panicked.
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
        // PAIR phase.
        let phase = self.seat.phase.load(Ordering::Acquire);
        if phase == WAITING || self.is_told {
            return None;
        }
        self.is_told = true;
        Some(match phase {
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
        // PAIR phase.
        if !self.is_told && !self.seat.end_wait(LEFT) && self.seat.phase.load(Ordering::Acquire) == COMBINES {
            // Nothing was sent.
            self.permit().refused();
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "combining_tests.rs"]
mod tests;
