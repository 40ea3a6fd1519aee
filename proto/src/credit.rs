//! How much one connection may have outstanding at the responder: of bytes or of requests, as its user decides.
//!
//! Just the count. It keeps memory bounded on both sides: the initiator takes before it sends and waits where
//! there is not enough; the responder takes when something arrives and ends a connection that overdraws.

use thiserror::Error;

/// More was taken than is left. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{wanted} taken of a credit of which {available} of {total} are left")]
pub struct Overdraft {
    /// What was to be taken.
    pub wanted: u64,
    /// What is left.
    pub available: u64,
    /// What there is when nothing is outstanding.
    pub total: u64,
}

/// A counter that cannot go below 0 or above its total.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    available: u64,
    total: u64,
}

impl Credit {
    /// With nothing outstanding.
    pub const fn new(total: u64) -> Credit {
        Credit { available: total, total }
    }

    /// Takes `wanted`.
    ///
    /// # Errors
    /// When less is left.
    pub fn take(&mut self, wanted: u64) -> Result<(), Overdraft> {
        let Credit { available, total } = *self;
        self.available = available.checked_sub(wanted).ok_or(Overdraft { wanted, available, total })?;
        Ok(())
    }

    /// Takes what there is, `wanted` at most; how much that was.
    pub fn take_up_to(&mut self, wanted: u64) -> u64 {
        let taken = wanted.min(self.available);
        self.available -= taken;
        taken
    }

    /// Gives back what was taken.
    ///
    /// # Panics
    /// When less was taken.
    pub fn give(&mut self, returned: u64) {
        assert!(returned <= self.outstanding(), "{returned} given back, {} were taken", self.outstanding());
        self.available += returned;
    }

    /// What can be taken now.
    pub const fn available(&self) -> u64 {
        self.available
    }

    /// What was taken and not given back.
    pub const fn outstanding(&self) -> u64 {
        self.total - self.available
    }

    /// What there is when nothing is outstanding.
    pub const fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdraft_says_what_is_left_and_takes_nothing() {
        let mut credit = Credit::new(10);
        assert_eq!(credit.take(7), Ok(()));
        assert_eq!(credit.take(4), Err(Overdraft { wanted: 4, available: 3, total: 10 }));
        assert_eq!(credit.take(u64::MAX), Err(Overdraft { wanted: u64::MAX, available: 3, total: 10 }));
        assert_eq!((credit.available(), credit.outstanding()), (3, 7));
        assert_eq!(credit.take(3), Ok(()));
        assert_eq!(credit.take_up_to(1), 0);
        credit.give(10);
        assert_eq!(credit.take_up_to(11), 10);
    }

    #[test]
    #[should_panic(expected = "given back")]
    fn nothing_is_given_back_that_was_not_taken() {
        let mut credit = Credit::new(10);
        credit.take(2).unwrap();
        credit.give(3);
    }
}
