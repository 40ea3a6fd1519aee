//! Flag barriers: how ranks of one node meet, and show each other a few words meanwhile, without a message.
//!
//! ```text
//!   lines of one member:   │ 56 bytes, number │ 56 bytes, number │ … LINES of them, written in turn by this member alone
//!   barrier 9:             line 9 % LINES of each: its words, then its number
//! ```
//!
//! A barrier has a number, the same for all members. Who comes to it writes its words and its number into the line of that
//! barrier. Who waits looks at the lines of those it waits for: of all, where everybody meets, or of one, whose words it
//! needs. A line serves again `LINES` barriers later; who writes it then has seen that all others have come to the barrier
//! behind the earlier one, and so have read what was in it.
//!
//! There are several lines so that the root of a broadcast may run ahead of those who listen, and so that nobody waits to be
//! read before it can write.
//!
//! PAIR come: the store of the number (Release) and the others' loads of it (Acquire). Who sees the number sees the words, and
//! all that its writer wrote before. The words themselves need no order: they are written again only after every reader has
//! come to a later barrier, by the same pair.
//!
//! Each member keeps what it shows besides, and reads it there. Some processors hand a line that one core has written over to another one that reads it,
//! rather than share it: who then reads its own line fetches it again.
//!
//! If a process dies, the number that it would have written never comes. Who waits has to know of the death otherwise. A line
//! without its number is not read.

use crate::sync::{AtomicU64, Ordering};

/// Lines of one member, a power of two.
#[cfg(not(loom))]
pub const LINES: usize = 8;
/// In the models, where every barrier is work, the least with which one may run ahead.
#[cfg(loom)]
pub const LINES: usize = 2;
/// Words that one member can show in one barrier.
pub const WORDS: usize = 7;

/// What one member shows in one barrier.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Line {
    words: [AtomicU64; WORDS],
    number: AtomicU64,
}

/// The lines of one member. All zeros before its first barrier.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Lines([Line; LINES]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64 && LINES.is_power_of_two());

/// Where the lines of the members are.
pub trait Board {
    /// Those of the member at this place.
    fn lines(&self, place: usize) -> &Lines;
}

/// One member's view of the barriers of a group. Collective calls of one group are made by one thread at a time, so what
/// it remembers needs no order of its own.
#[derive(Debug)]
pub struct Member<B> {
    board: B,
    size: usize,
    me: usize,
    /// The last barrier that this member came to.
    met: AtomicU64,
    /// A barrier to which all have come, as far as this member knows.
    reached: AtomicU64,
    /// The words that this member shows in its last barrier, and what was left of earlier ones behind them.
    shown: Line,
}

impl Lines {
    #[inline]
    fn line(&self, barrier: u64) -> &Line {
        &self.0[barrier as usize % LINES]
    }

    /// The largest number that was written here. Only the member whose lines these are may ask.
    #[cfg(not(loom))]
    pub(crate) fn last(&self) -> u64 {
        self.0.iter().map(|line| line.number.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    #[inline]
    fn has_come(&self, barrier: u64) -> bool {
        // PAIR come. A later number in the same line means that it was there long ago.
        self.line(barrier).number.load(Ordering::Acquire) >= barrier
    }
}

impl<B: Board> Member<B> {
    /// The member at place `me` of `size`. The next barrier is the one behind `met`; no line that is in use has a larger
    /// number.
    pub fn new(board: B, size: usize, me: usize, met: u64) -> Member<B> {
        assert!(me < size);
        Member { board, size, me, met: AtomicU64::new(met), reached: AtomicU64::new(met), shown: Line::default() }
    }

    /// The last barrier.
    #[inline]
    pub fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// This member's place.
    #[inline]
    pub fn me(&self) -> usize {
        self.me
    }

    /// Where the lines are.
    #[inline]
    pub fn board(&self) -> &B {
        &self.board
    }

    /// To which barrier all have to have come before this member may come to the next one, if that is not known yet.
    #[inline]
    pub fn owed(&self) -> Option<u64> {
        let next = self.met() + 1;
        // Half of the lines more than it needs, so that it has not to ask again at once.
        (!self.may_write(next)).then(|| next - LINES.div_ceil(2) as u64)
    }

    /// Whether the line of a barrier may be written: all have come to the one behind the barrier that it served before.
    #[inline]
    fn may_write(&self, barrier: u64) -> bool {
        barrier < self.reached.load(Ordering::Relaxed) + LINES as u64
    }

    /// Comes to the next barrier and shows these words. The barrier's number.
    ///
    /// # Panics
    /// If there is something [owed](Member::owed), or there are more words than fit.
    #[inline]
    pub fn come(&self, words: &[u64]) -> u64 {
        let barrier = self.met() + 1;
        assert!(self.may_write(barrier), "who comes has seen that the line is free");
        let line = self.board.lines(self.me).line(barrier);
        for ((place, own), word) in line.words[..words.len()].iter().zip(&self.shown.words).zip(words) {
            place.store(*word, Ordering::Relaxed);
            own.store(*word, Ordering::Relaxed);
        }
        // PAIR come.
        line.number.store(barrier, Ordering::Release);
        self.met.store(barrier, Ordering::Relaxed);
        barrier
    }

    /// Whether the member at this place has come to a barrier, so that [`Member::word`] is what it shows there.
    #[inline]
    pub fn has_come(&self, place: usize, barrier: u64) -> bool {
        self.board.lines(place).has_come(barrier)
    }

    /// Whether all have come to a barrier. `from` remembers how far it has looked; it begins with 0.
    #[inline]
    pub fn have_all_come(&self, from: &mut usize, barrier: u64) -> bool {
        debug_assert!(self.met() >= barrier, "this member has come to it");
        while *from < self.size {
            if *from != self.me && !self.has_come(*from, barrier) {
                return false;
            }
            *from += 1;
        }
        self.reached.store(barrier, Ordering::Relaxed);
        true
    }

    /// Whether it is known that all have come to a barrier.
    #[inline]
    pub fn is_reached(&self, barrier: u64) -> bool {
        self.reached.load(Ordering::Relaxed) >= barrier
    }

    #[inline]
    fn shown_by(&self, place: usize) -> &Line {
        if place == self.me { &self.shown } else { self.board.lines(place).line(self.met()) }
    }

    /// A word that a member shows in this member's last barrier. It has to have come to it.
    #[inline]
    pub fn word(&self, place: usize, at: usize) -> u64 {
        self.shown_by(place).words[at].load(Ordering::Relaxed)
    }

    /// Where all words are that a member shows in this member's last barrier: until this member comes to the next one. It
    /// has to have come to it.
    #[cfg(not(loom))]
    #[inline]
    pub fn words(&self, place: usize) -> *const u64 {
        self.shown_by(place).words.as_ptr().cast()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Here<'a>(&'a [Lines]);

    impl Board for Here<'_> {
        fn lines(&self, place: usize) -> &Lines {
            &self.0[place]
        }
    }

    const ROUNDS: u64 = if cfg!(miri) { 40 } else { 20_000 };

    fn wait(done: impl Fn() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }

    fn come(member: &Member<Here<'_>>, words: &[u64]) -> u64 {
        if let Some(owed) = member.owed() {
            wait(|| member.have_all_come(&mut 0, owed));
        }
        member.come(words)
    }

    #[test]
    fn everybody_hears_everybody_whoever_speaks_next() {
        const SIZE: usize = 3;
        let lines: Vec<Lines> = (0..SIZE).map(|_| Lines::default()).collect();
        std::thread::scope(|scope| {
            for me in 0..SIZE {
                let member = Member::new(Here(&lines), SIZE, me, 0);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let root = (round / 5) as usize % SIZE;
                        let words = [round, round << 8 | me as u64];
                        // Mostly one speaks, and now and then all meet.
                        let all = round % 7 == 0;
                        let barrier = come(&member, if all || me == root { &words } else { &[] });
                        assert_eq!((barrier, member.met()), (round, round));
                        let heard = if all { 0..SIZE } else { root..root + 1 };
                        for place in heard {
                            wait(|| member.has_come(place, barrier));
                            assert_eq!(member.word(place, 0), round);
                            assert_eq!(member.word(place, 1), round << 8 | place as u64);
                            // SAFETY: as many words as were shown, which nobody writes before this member goes on.
                            let last = unsafe { member.words(place).wrapping_add(1).read() };
                            assert_eq!(last, member.word(place, 1));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn who_is_ahead_comes_to_as_many_barriers_as_there_are_lines_and_to_no_more() {
        let lines = [Lines::default(), Lines::default()];
        let ahead = Member::new(Here(&lines), 2, 0, 100);
        let behind = Member::new(Here(&lines), 2, 1, 100);
        for barrier in 101..100 + LINES as u64 {
            assert_eq!((ahead.owed(), ahead.come(&[])), (None, barrier));
            assert!(ahead.has_come(0, barrier) && !ahead.has_come(1, barrier));
        }
        let owed = ahead.owed().expect("nobody else has come to any");
        while behind.met() < owed {
            assert!(!ahead.have_all_come(&mut 0, owed));
            behind.come(&[]);
        }
        assert!(ahead.have_all_come(&mut 0, owed) && ahead.is_reached(owed));
        assert_eq!(ahead.owed(), None);
    }

    #[test]
    #[should_panic(expected = "the line is free")]
    fn nobody_writes_a_line_that_may_still_be_read() {
        let lines = [Lines::default(), Lines::default()];
        let ahead = Member::new(Here(&lines), 2, 0, 0);
        for _ in 0..LINES {
            ahead.come(&[]);
        }
    }
}
