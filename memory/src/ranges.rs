//! Which pieces of a range of numbers are taken: offsets in memory, or addresses.
//!
//! ```text
//!   range   │ taken │  gap   │ taken │ taken │       gap       │       no two gaps touch
//! ```
//!
//! First fit, in the order of the numbers, so that the same calls give the same pieces on every rank. Pieces have no names: what
//! was taken at once may be given back in parts, and pieces that touch may be given back as one.

use std::collections::BTreeMap;
use std::ops::Range;

/// Why a range was not given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotTaken;

/// See the module.
///
/// ```
/// use longarm_memory::Ranges;
///
/// let mut ranges = Ranges::new(0..4096);
/// let first = ranges.take_first(0, 64, 100).expect("there is room");
/// let second = ranges.take_first(0, 1024, 100).expect("also at a multiple of 1024");
/// assert_eq!((first, second), (0, 1024));
/// assert!(ranges.take_at(100..200) && !ranges.take_at(1100..1200));
/// ranges.release(0..200).expect("all of it was taken");
/// ranges.release(0..200).expect_err("none of it is any more");
/// assert_eq!(ranges.free_length(), 4096 - 100);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    whole: Range<u64>,
    /// The end of each gap by its start.
    gaps: BTreeMap<u64, u64>,
}

impl Ranges {
    /// None of this range is taken.
    pub fn new(whole: Range<u64>) -> Ranges {
        let gaps = if whole.is_empty() { BTreeMap::new() } else { BTreeMap::from([(whole.start, whole.end)]) };
        Ranges { whole, gaps }
    }

    /// Takes the first `length` numbers in a row that begin at a multiple of `alignment`, which is at least 1, and not before `from`.
    /// `None` if there are not so many, or if `length` is 0.
    pub fn take_first(&mut self, from: u64, alignment: u64, length: u64) -> Option<u64> {
        let start = self.gaps.iter().find_map(|(&gap, &end)| {
            let start = gap.max(from).checked_next_multiple_of(alignment)?;
            (start.checked_add(length)? <= end).then_some(start)
        })?;
        self.take_at(start..start + length).then_some(start)
    }

    /// Takes just this piece. False if any of it is taken or outside, or if it is empty.
    pub fn take_at(&mut self, piece: Range<u64>) -> bool {
        if piece.is_empty() {
            return false;
        }
        let Some((&gap, &end)) = self.gaps.range(..=piece.start).next_back().filter(|(_, end)| **end >= piece.end)
        else {
            return false;
        };
        self.gaps.remove(&gap);
        for (start, end) in [(gap, piece.start), (piece.end, end)] {
            if start < end {
                self.gaps.insert(start, end);
            }
        }
        true
    }

    /// Whether all of a piece is taken, of which there is nothing in an empty one.
    pub fn are_taken(&self, piece: &Range<u64>) -> bool {
        let is_inside = self.whole.start <= piece.start && piece.end <= self.whole.end;
        // The last gap that begins before its end.
        let gap = self.gaps.range(..piece.end).next_back();
        is_inside && (piece.is_empty() || gap.is_none_or(|(_, end)| *end <= piece.start))
    }

    /// From now on this piece is free. It need not have been taken at once, nor be all that was.
    ///
    /// # Errors
    /// [`NotTaken`] if any of it is free or outside; nothing has changed then.
    pub fn release(&mut self, piece: Range<u64>) -> Result<(), NotTaken> {
        if !self.are_taken(&piece) {
            return Err(NotTaken);
        }
        if piece.is_empty() {
            return Ok(());
        }
        let before = self.gaps.range(..piece.start).next_back().filter(|(_, end)| **end == piece.start);
        let start = before.map_or(piece.start, |(start, _)| *start);
        let end = self.gaps.remove(&piece.end).unwrap_or(piece.end);
        self.gaps.insert(start, end);
        Ok(())
    }

    /// How many numbers there are.
    pub fn length(&self) -> u64 {
        self.whole.end.saturating_sub(self.whole.start)
    }

    /// How many are free, in all gaps together.
    pub fn free_length(&self) -> u64 {
        self.gaps.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: Range<u64> = 64..128;

    /// What is taken, number by number.
    #[derive(Clone)]
    struct Model([bool; WHOLE.end as usize]);

    impl Model {
        fn all_are(&self, piece: &Range<u64>, taken: bool) -> bool {
            WHOLE.start <= piece.start && piece.end <= WHOLE.end && piece.clone().all(|at| self.0[at as usize] == taken)
        }

        fn set(&mut self, piece: Range<u64>, taken: bool) {
            piece.for_each(|at| self.0[at as usize] = taken);
        }

        fn first_fit(&self, from: u64, alignment: u64, length: u64) -> Option<u64> {
            (from.max(WHOLE.start)..WHOLE.end)
                .find(|at| at.is_multiple_of(alignment) && length > 0 && self.all_are(&(*at..at + length), false))
        }
    }

    proptest! {
        #[test]
        fn every_call_does_what_a_list_of_all_numbers_says(
            steps in prop::collection::vec((0..4_u8, 0..140_u64, 0..5_u32, 0..40_u64), 1..200)
        ) {
            let mut ranges = Ranges::new(WHOLE);
            let mut model = Model([false; WHOLE.end as usize]);
            for (step, at, power, length) in steps {
                let piece = at..at + length;
                match step {
                    0 => {
                        let due = model.first_fit(at, 1 << power, length);
                        prop_assert_eq!(ranges.take_first(at, 1 << power, length), due);
                        if let Some(start) = due {
                            model.set(start..start + length, true);
                        }
                    }
                    1 => {
                        let may = length > 0 && model.all_are(&piece, false);
                        prop_assert_eq!(ranges.take_at(piece.clone()), may);
                        if may {
                            model.set(piece, true);
                        }
                    }
                    _ => {
                        let may = model.all_are(&piece, true);
                        prop_assert_eq!(ranges.are_taken(&piece), may);
                        prop_assert_eq!(ranges.release(piece.clone()).is_ok(), may);
                        if may {
                            model.set(piece, false);
                        }
                    }
                }
                let free = WHOLE.filter(|at| !model.0[*at as usize]).count();
                prop_assert_eq!(ranges.free_length(), free as u64);
                let touch = ranges.gaps.values().any(|end| ranges.gaps.contains_key(end));
                prop_assert!(!touch, "{:?}", ranges.gaps);
            }
        }
    }

    #[test]
    fn what_does_not_fit_into_a_number_is_refused() {
        let mut ranges = Ranges::new(8..u64::MAX);
        assert_eq!(ranges.take_first(0, 1, u64::MAX), None);
        assert_eq!(ranges.take_first(u64::MAX, 1 << 40, 1), None);
        assert_eq!(ranges.take_first(0, 64, u64::MAX - 64), Some(64));
        assert_eq!(ranges.free_length(), 64 - 8);
    }

    #[test]
    fn an_empty_range_has_nothing_to_give() {
        let mut ranges = Ranges::new(5..5);
        assert_eq!((ranges.take_first(0, 1, 1), ranges.take_first(0, 1, 0), ranges.free_length()), (None, None, 0));
        assert_eq!(ranges.release(5..6), Err(NotTaken));
    }
}
