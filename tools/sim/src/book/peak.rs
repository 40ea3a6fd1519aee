//! A word that keeps the largest, or smallest, of the values that ranks bring, no two of them the same one. So an old value is never the
//! caller's own, which it would be if the operation were done twice.
//!
//! What the checker holds are ranks in the order of the word: whatever wins has the larger one.

use std::collections::HashSet;

use longarm_proto::RmwOp;

/// Which of its values a word keeps, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The largest of unsigned numbers.
    Largest,
    /// The largest of signed ones.
    LargestSigned,
    /// The smallest of signed ones.
    SmallestSigned,
}

impl Extreme {
    /// That of a word, by its number.
    pub fn of(number: u64) -> Extreme {
        match number {
            0 => Extreme::Largest,
            1 => Extreme::LargestSigned,
            _ => Extreme::SmallestSigned,
        }
    }

    /// What is asked of the word.
    pub fn op(self) -> RmwOp {
        match self {
            Extreme::Largest => RmwOp::FetchMaxUnsigned,
            Extreme::LargestSigned => RmwOp::FetchMaxSigned,
            Extreme::SmallestSigned => RmwOp::FetchMinSigned,
        }
    }

    /// The value of this height, which is below 2^63. A word is zero at first, which is of height 0.
    pub fn value(self, height: u64) -> u64 {
        match self {
            Extreme::Largest | Extreme::LargestSigned => height,
            Extreme::SmallestSigned => height.wrapping_neg(),
        }
    }

    /// The height of a value, an error if it has none. Values that no rank brings have one too.
    pub fn height(self, value: u64) -> Result<u64, String> {
        let height = if self == Extreme::SmallestSigned { value.wrapping_neg() } else { value };
        if height >> 63 == 0 { Ok(height) } else { Err(format!("value {value:#x}, which no rank brings")) }
    }

    /// A value that never wins against what is there.
    pub fn loser(self) -> u64 {
        match self {
            Extreme::Largest => 0,
            // Wrongly taken for unsigned ones, they would.
            Extreme::LargestSigned => u64::MAX,
            Extreme::SmallestSigned => 1,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    /// The word is this high at least.
    low: u64,
    /// What was brought, and may be there. Height 0 is there at first.
    brought: HashSet<u64>,
    /// What was replaced by somebody who saw it.
    replaced: HashSet<u64>,
}

impl Peak {
    /// An operation with this height begins: how high its old value must be at least.
    pub fn begin(&mut self, height: u64) -> u64 {
        self.brought.insert(height);
        self.low
    }

    /// It has ended: an error if its old value cannot be.
    pub fn end(&mut self, least: u64, height: u64, old: u64) -> Result<(), String> {
        if old < least {
            return Err(format!("old height {old}, but before it was {least}"));
        }
        if old == height {
            return Err(format!("the old value is that of the operation itself, of height {height}"));
        }
        self.exists(old)?;
        if old < height && !self.replaced.insert(old) {
            return Err(format!("height {old} was replaced twice"));
        }
        self.low = self.low.max(old).max(height);
        Ok(())
    }

    /// How high an old value must be at least for who begins now.
    pub fn least(&self) -> u64 {
        self.low
    }

    /// An operation that changes nothing has ended: an error if its old value cannot be.
    pub fn saw(&mut self, least: u64, old: u64) -> Result<(), String> {
        if old < least {
            return Err(format!("height {old} was seen, but before it was {least}"));
        }
        self.exists(old)?;
        self.low = self.low.max(old);
        Ok(())
    }

    /// Nobody works on it: an error if its value cannot be.
    pub fn settle(&self, height: u64) -> Result<(), String> {
        if height < self.low {
            return Err(format!("height {height}, but it was {}", self.low));
        }
        self.exists(height)
    }

    fn exists(&self, height: u64) -> Result<(), String> {
        if height == 0 || self.brought.contains(&height) {
            return Ok(());
        }
        Err(format!("height {height}, which nobody has brought"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_values_rise_and_each_is_replaced_once() {
        let mut peak = Peak::default();
        let least = [peak.begin(5), peak.begin(3)];
        assert!(peak.end(least[0], 5, 0).is_ok() && peak.end(least[1], 3, 5).is_ok());
        assert_eq!(peak.begin(9), 5);
        assert!(peak.clone().end(5, 9, 5).is_ok() && peak.settle(9).is_ok() && peak.settle(5).is_ok());
        assert!(peak.settle(3).is_err() && peak.settle(7).is_err());
    }

    #[test]
    fn what_was_done_twice_or_lost_or_never_brought_is_found() {
        let mut peak = Peak::default();
        let least = peak.begin(5);
        assert!(peak.clone().end(least, 5, 5).is_err(), "done twice");
        assert!(peak.clone().end(least, 5, 4).is_err(), "never brought");
        peak.end(least, 5, 0).unwrap();
        let least = peak.begin(6);
        assert!(peak.clone().end(least, 6, 0).is_err(), "5 was lost");
        peak.begin(7);
        peak.end(least, 6, 5).unwrap();
        assert!(peak.end(least, 7, 5).is_err(), "two replaced the same");
    }

    #[test]
    fn heights_are_values_in_the_order_of_the_word() {
        for extreme in (0..3).map(Extreme::of) {
            for height in [0, 1, 77, u64::MAX >> 1] {
                assert_eq!(extreme.height(extreme.value(height)), Ok(height), "{extreme:?}");
            }
        }
        assert!(Extreme::SmallestSigned.height(5).is_err() && Extreme::LargestSigned.height(u64::MAX).is_err());
    }
}
