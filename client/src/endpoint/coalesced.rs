//! Small puts, or gets, or accumulates, or read-modify-writes, that nobody waits for, taken together: one request with many runs or
//! words instead of a request for each.
//!
//! ```text
//!   put 8 B ─┐
//!   put 8 B ─┼─► runs + payload ── take ──► one put of a vector
//!   put 8 B ─┘        (all to one part, all of one kind: accumulates of one operation, type and scale,
//!                      read-modify-writes of one operation and width)
//! ```
//!
//! A header is eight times as long as the word that most of them carry, and the server spends more on a request than on
//! the word.
//!
//! It sends nothing and keeps no order: `State` makes the request before it begins any other.

use longarm_memory::{Region, RegionMut};
use longarm_proto::{
    EAGER_BYTES_MAX, Kernel, Mutation, Request, Rmw, RmwOp, RmwWidth, RmwWord, Run, SEGMENTS_PER_FRAME_MAX, Scale,
    Shape, WindowRef, mutation,
};

use super::request::Token;
use crate::completion::CompletionPart;
use crate::origin_bytes::Held;

/// Behind a small operation that was coalesced, what is corked is sent once so many bytes wait: the target takes its time for each run, and begins.
pub(super) const COALESCED_BYTES_MAX: usize = 16 << 10;
/// Larger ones are requests of their own.
pub(crate) const COALESCED_RUN_BYTES_MAX: u64 = 1 << 10;
/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// About what a run takes in a request besides its bytes.
const RUN_WIRE_BYTES: usize = 16;

/// What the target does with the bytes of a list.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Writes {
    /// It stores them.
    Put,
    /// It updates elements with them.
    Accumulate(Kernel, Scale),
}

/// What the target does with words whose old values come back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Updates {
    op: RmwOp,
    width: RmwWidth,
}

impl Updates {
    /// What others may do too. `None`: a compare-and-swap goes alone.
    pub(crate) fn of(rmw: Rmw) -> Option<Updates> {
        (rmw.op != RmwOp::CompareSwap).then_some(Updates { op: rmw.op, width: rmw.width })
    }
}

/// See the module. What does not leave with a token keeps its room from one request to the next.
#[derive(Default)]
pub(super) struct Coalesced {
    /// `None`: nothing was taken in.
    target: Option<WindowRef>,
    runs: Vec<Run>,
    /// What is written, and how. `None`: these are gets.
    writes: Option<Writes>,
    payload: Vec<u8>,
    /// Where what is got goes, and how much that is together.
    places: Vec<(Held, Run)>,
    got_bytes: u64,
    /// What is done with the words. `None`: these are no read-modify-writes.
    updates: Option<Updates>,
    words: Vec<RmwWord>,
    /// By word, what its old value ends.
    parts: Vec<CompletionPart>,
}

impl Coalesced {
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.target.is_some()
    }

    /// About how many bytes the request will have.
    pub(super) fn wire_bytes(&self) -> usize {
        self.payload.len() + (self.runs.len() + self.words.len()) * RUN_WIRE_BYTES
    }

    /// Whether a put, or an accumulate, can go into the same request as what is before it.
    #[inline]
    pub(super) fn fits_write(&self, target: &WindowRef, writes: &Writes, run: Run) -> bool {
        let is_same = match (&self.writes, writes) {
            (Some(Writes::Put), Writes::Put) => true,
            (Some(Writes::Accumulate(kernel, scale)), Writes::Accumulate(its_kernel, its_scale)) => {
                kernel == its_kernel && (scale == its_scale || mutation(Mutation::CoalescedScale))
            }
            _ => false,
        };
        is_same && self.has_room(target) && self.payload.len() as u64 + run.bytes <= EAGER_BYTES_MAX
    }

    /// The same for a get.
    #[inline]
    pub(super) fn fits_get(&self, target: &WindowRef, run: Run) -> bool {
        let are_gets = self.writes.is_none() && self.updates.is_none();
        are_gets && self.has_room(target) && self.got_bytes + run.bytes <= EAGER_BYTES_MAX
    }

    /// The same for a read-modify-write.
    #[inline]
    pub(super) fn fits_rmw(&self, target: &WindowRef, updates: Updates) -> bool {
        self.updates == Some(updates) && self.has_room(target)
    }

    #[inline]
    fn has_room(&self, target: &WindowRef) -> bool {
        self.target.as_ref() == Some(target) && self.runs.len() + self.words.len() < SEGMENTS_PER_FRAME_MAX
    }

    /// Takes a get in that fits, or the first one: what comes goes to a run of a place.
    #[inline]
    pub(super) fn add_get(&mut self, target: &WindowRef, run: Run, place: (Held, Run)) {
        self.target.get_or_insert(*target);
        self.runs.push(run);
        self.places.push(place);
        self.got_bytes += run.bytes;
    }

    /// Takes a read-modify-write in that fits, or the first one: its old value ends the part.
    #[inline]
    pub(super) fn add_rmw(&mut self, target: &WindowRef, updates: Updates, word: RmwWord, part: CompletionPart) {
        if self.target.is_none() {
            (self.target, self.updates) = (Some(*target), Some(updates));
        }
        self.words.push(word);
        self.parts.push(part);
    }

    /// Takes a put, or an accumulate, in that fits, or the first one.
    #[inline]
    pub(super) fn add_write(&mut self, target: &WindowRef, writes: &Writes, run: Run, bytes: Region<'_>) {
        if self.target.is_none() {
            (self.target, self.writes) = (Some(*target), Some(*writes));
        }
        // Never one run with the put beside it: the target stores each run by itself and in order, words whole, as a fence
        // and read-modify-writes between two of them need it. It updates run by run, too: an element that is in two of
        // them is updated twice.
        self.runs.push(run);
        if run.bytes == WORD_BYTES as u64 {
            // Most are words: no call fills or copies them.
            let mut word = [0; WORD_BYTES];
            bytes.copy_to_slice(&mut word);
            return self.payload.extend_from_slice(&word);
        }
        let at = self.payload.len();
        self.payload.resize(at + run.bytes as usize, 0);
        RegionMut::from_slice(&mut self.payload[at..]).copy_from(bytes);
    }

    /// The request of all that was taken in, its token, and its payload. The first and the last are to be given back.
    ///
    /// # Panics
    /// When nothing was taken in.
    pub(super) fn take(&mut self) -> (Request, Option<Token>, Vec<u8>) {
        let target = self.target.take().expect("something was taken in");
        if let Some(updates) = self.updates.take() {
            let (request, token) = self.take_updates(target, updates);
            return (request, Some(token), std::mem::take(&mut self.payload));
        }
        let runs = std::mem::take(&mut self.runs);
        let shape = if let [run] = runs[..] { Shape::Contiguous(run) } else { Shape::Vector(runs) };
        let payload = std::mem::take(&mut self.payload);
        match self.writes.take() {
            Some(Writes::Put) => return (Request::Put { target, shape, signal: None }, None, payload),
            Some(Writes::Accumulate(kernel, scale)) => {
                return (Request::Accumulate { target, shape, kernel, scale }, None, payload);
            }
            None => {}
        }
        let places = std::mem::take(&mut self.places);
        (Request::Get { target, shape }, Some(Token::Coalesced(places)), payload)
    }

    fn take_updates(&mut self, target: WindowRef, Updates { op, width }: Updates) -> (Request, Token) {
        let mut parts = std::mem::take(&mut self.parts);
        if let [RmwWord { offset, operand }] = self.words[..] {
            self.words.clear();
            let rmw = Rmw { op, width, operand, compare: 0 };
            return (Request::Rmw { target, offset, rmw }, Token::Part(parts.remove(0)));
        }
        let words = std::mem::take(&mut self.words);
        (Request::RmwMany { target, op, width, words }, Token::Values(parts))
    }

    /// Gives up what was taken in: who waits for it, if anybody does.
    pub(super) fn abandon(&mut self) -> Option<Token> {
        self.is_some().then(|| std::mem::take(self).take().1).flatten()
    }

    /// What [`Coalesced::take`] gave, for the next request.
    pub(super) fn take_back(&mut self, request: Request, payload: Vec<u8>) {
        if let Request::Put { shape: Shape::Vector(runs), .. }
        | Request::Accumulate { shape: Shape::Vector(runs), .. }
        | Request::Get { shape: Shape::Vector(runs), .. } = request
        {
            self.runs = runs;
        } else if let Request::RmwMany { words, .. } = request {
            self.words = words;
        }
        self.got_bytes = 0;
        self.payload = payload;
        self.runs.clear();
        self.words.clear();
        self.payload.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::{Completion, Outcome};
    use crate::error::LostHow;
    use crate::origin_bytes::{OriginBytesMut, lend};
    use longarm_proto::{AccessKey, AccumulateOp, ElementType, Generation, Rank, WindowId};

    fn target(rank: u32) -> WindowRef {
        WindowRef { rank: Rank(rank), window: WindowId(1), generation: Generation(0), key: AccessKey(2) }
    }

    fn add(coalesced: &mut Coalesced, offset: u64, bytes: &[u8]) {
        let run = Run { offset, bytes: bytes.len() as u64 };
        coalesced.add_write(&target(0), &Writes::Put, run, Region::from_slice(bytes));
    }

    #[test]
    fn puts_stay_apart_and_in_their_order_even_side_by_side() {
        let mut coalesced = Coalesced::default();
        add(&mut coalesced, 8, b"abcd");
        add(&mut coalesced, 12, b"ef");
        add(&mut coalesced, 8, b"xy");
        assert_eq!(coalesced.wire_bytes(), 8 + 3 * RUN_WIRE_BYTES);
        let (request, token, payload) = coalesced.take();
        assert!(token.is_none(), "puts are not answered");
        let runs = vec![Run { offset: 8, bytes: 4 }, Run { offset: 12, bytes: 2 }, Run { offset: 8, bytes: 2 }];
        assert_eq!(request, Request::Put { target: target(0), shape: Shape::Vector(runs), signal: None });
        assert_eq!(payload, b"abcdefxy");
        coalesced.take_back(request, payload);
        assert!(!coalesced.is_some() && coalesced.wire_bytes() == 0);
        add(&mut coalesced, 3, b"z");
        let (request, token, payload) = coalesced.take();
        assert!(token.is_none(), "puts are not answered");
        assert_eq!(request, Request::Put { target: target(0), shape: Shape::contiguous(3, 1), signal: None });
        assert_eq!(payload, b"z");
    }

    #[test]
    fn gets_go_with_gets_as_far_as_their_data_is_copied() {
        let mut memory = vec![0; EAGER_BYTES_MAX as usize];
        let completion = lend(|lent| {
            let lender = lent.target(OriginBytesMut::from(&mut memory[..]));
            let mut coalesced = Coalesced::default();
            let run = |offset, bytes| Run { offset, bytes };
            assert!(!coalesced.fits_get(&target(0), run(0, 1)), "there is none yet");
            coalesced.add_get(&target(0), run(64, 8), (lender.hold(), run(0, 8)));
            assert!(!coalesced.fits_write(&target(0), &Writes::Put, run(0, 1)), "a put is another request");
            coalesced.add_get(&target(0), run(72, 8), (lender.hold(), run(8, 8)));
            assert_eq!(coalesced.wire_bytes(), 2 * RUN_WIRE_BYTES);
            assert!(coalesced.fits_get(&target(0), run(0, EAGER_BYTES_MAX - 16)));
            assert!(!coalesced.fits_get(&target(0), run(0, EAGER_BYTES_MAX - 15)));
            let (request, token, payload) = coalesced.take();
            // Side by side there, perhaps not here.
            let shape = Shape::Vector(vec![run(64, 8), run(72, 8)]);
            assert_eq!(request, Request::Get { target: target(0), shape });
            coalesced.take_back(request, payload);
            assert!(!coalesced.is_some() && !coalesced.fits_get(&target(0), run(0, 1)));
            add(&mut coalesced, 0, b"a");
            assert!(!coalesced.fits_get(&target(0), run(0, 1)), "a get is another request");
            token.expect("gets are answered").fail(Outcome::Lost(LostHow::Finalized));
            lent.issued()
        });
        assert!(completion.is_complete() && completion.failure().is_some());
    }

    #[test]
    fn accumulates_go_with_those_that_do_the_same_with_the_same_elements() {
        let kernel = |element, op| Kernel::new(element, op).expect("it exists");
        let sum = kernel(ElementType::F64, AccumulateOp::Sum);
        let twice = Writes::Accumulate(sum, Scale::one(ElementType::F64));
        let run = |offset| Run { offset, bytes: 8 };
        let mut coalesced = Coalesced::default();
        assert!(!coalesced.fits_write(&target(0), &twice, run(0)), "there is none yet");
        coalesced.add_write(&target(0), &twice, run(64), Region::from_slice(&[1; 8]));
        let other_scale = Writes::Accumulate(sum, Scale::from(2.0_f64));
        let other_type = Writes::Accumulate(kernel(ElementType::I64, AccumulateOp::Sum), Scale::one(ElementType::I64));
        let other_op = Writes::Accumulate(kernel(ElementType::F64, AccumulateOp::Max), Scale::one(ElementType::F64));
        for other in [other_scale, other_type, other_op, Writes::Put] {
            assert!(!coalesced.fits_write(&target(0), &other, run(0)), "{other:?}");
        }
        assert!(!coalesced.fits_get(&target(0), run(0)) && !coalesced.fits_write(&target(1), &twice, run(0)));
        assert!(coalesced.fits_write(&target(0), &twice, run(64)));
        coalesced.add_write(&target(0), &twice, run(64), Region::from_slice(&[2; 8]));
        let (request, token, payload) = coalesced.take();
        // The same element twice is two updates.
        let shape = Shape::Vector(vec![run(64), run(64)]);
        let scale = Scale::one(ElementType::F64);
        assert_eq!(request, Request::Accumulate { target: target(0), shape, kernel: sum, scale });
        assert!(token.is_none(), "accumulates are not answered");
        assert_eq!(payload, [[1; 8], [2; 8]].concat());
        coalesced.take_back(request, payload);
        assert!(!coalesced.is_some() && !coalesced.fits_write(&target(0), &twice, run(0)));
        add(&mut coalesced, 0, b"a");
        assert!(!coalesced.fits_write(&target(0), &twice, run(0)), "a put is another request");
    }

    #[test]
    fn updates_go_with_those_that_do_the_same_with_words_of_the_same_width_and_one_is_a_request_as_ever() {
        let add =
            |width| Updates::of(Rmw { op: RmwOp::FetchAdd, width, operand: 1, compare: 0 }).expect("not compared");
        let (wide, narrow) = (add(RmwWidth::W64), add(RmwWidth::W32));
        let compare = Rmw { op: RmwOp::CompareSwap, width: RmwWidth::W64, operand: 1, compare: 0 };
        assert_eq!(Updates::of(compare), None);
        let word = |offset| RmwWord { offset, operand: 7 };
        let (completion, part) = Completion::begin();
        let mut coalesced = Coalesced::default();
        coalesced.add_rmw(&target(0), wide, word(8), part.another());
        assert!(coalesced.fits_rmw(&target(0), wide) && !coalesced.fits_rmw(&target(0), narrow));
        assert!(!coalesced.fits_rmw(&target(1), wide) && !coalesced.fits_get(&target(0), Run { offset: 0, bytes: 8 }));
        assert!(!coalesced.fits_write(&target(0), &Writes::Put, Run { offset: 0, bytes: 8 }));
        let (request, token, payload) = coalesced.take();
        let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 7, compare: 0 };
        assert_eq!(request, Request::Rmw { target: target(0), offset: 8, rmw });
        assert!(matches!(token, Some(Token::Part(_))));
        drop(token);
        coalesced.take_back(request, payload);
        for number in 0..SEGMENTS_PER_FRAME_MAX as u64 {
            assert!(number == 0 || coalesced.fits_rmw(&target(0), narrow));
            coalesced.add_rmw(&target(0), narrow, word(4 * number), part.another());
        }
        assert!(!coalesced.fits_rmw(&target(0), narrow), "no more words fit a frame");
        let (request, token, payload) = coalesced.take();
        let words: Vec<RmwWord> = (0..SEGMENTS_PER_FRAME_MAX as u64).map(|number| word(4 * number)).collect();
        let (op, width) = (RmwOp::FetchAdd, RmwWidth::W32);
        assert_eq!(request, Request::RmwMany { target: target(0), op, width, words });
        coalesced.take_back(request, payload);
        assert!(!coalesced.is_some() && coalesced.wire_bytes() == 0 && coalesced.abandon().is_none());
        drop(part);
        assert!(!completion.is_complete(), "the old values have not come");
        token.expect("updates are answered").fail(Outcome::Lost(LostHow::Finalized));
        assert!(completion.is_complete() && completion.failure().is_some());
    }

    #[test]
    fn a_request_is_about_one_part_and_no_longer_than_a_frame() {
        let mut coalesced = Coalesced::default();
        assert!(!coalesced.fits_write(&target(0), &Writes::Put, Run { offset: 0, bytes: 1 }), "there is none yet");
        for number in 0..SEGMENTS_PER_FRAME_MAX as u64 {
            add(&mut coalesced, 16 * number, b"12345678");
        }
        assert!(
            !coalesced.fits_write(&target(0), &Writes::Put, Run { offset: 0, bytes: 8 }),
            "no more runs fit a frame"
        );
        let (request, token, payload) = coalesced.take();
        assert!(token.is_none(), "puts are not answered");
        coalesced.take_back(request, payload);
        add(&mut coalesced, 0, &[1; EAGER_BYTES_MAX as usize - 1]);
        assert!(coalesced.fits_write(&target(0), &Writes::Put, Run { offset: 0, bytes: 1 }));
        assert!(
            !coalesced.fits_write(&target(0), &Writes::Put, Run { offset: 0, bytes: 2 }),
            "it is no longer copied as a whole"
        );
        assert!(!coalesced.fits_write(&target(1), &Writes::Put, Run { offset: 0, bytes: 1 }), "another rank's part");
    }
}
