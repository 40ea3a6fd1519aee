//! A word that ranks fetch and add 1 to. Old values are all different, without gaps, and in the order of time.

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    /// Operations that have begun.
    begun: u64,
    /// Operations that have ended well.
    ended: u64,
    /// One more than the largest old value of those.
    next: u64,
    /// Old values that somebody got.
    taken: Vec<u64>,
}

impl Counter {
    /// An operation begins: what its old value must be at least.
    pub fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.next
    }

    /// It has ended: an error if its old value cannot be.
    pub fn end(&mut self, least: u64, old: u64) -> Result<(), String> {
        if old < least {
            return Err(format!("old value {old}, but an operation that was over before got {}", least - 1));
        }
        if old >= self.begun {
            return Err(format!("old value {old}, but only {} operations have begun", self.begun));
        }
        let (word, bit) = (old as usize / 64, 1 << (old % 64));
        if self.taken.len() <= word {
            self.taken.resize(word + 1, 0);
        }
        if self.taken[word] & bit != 0 {
            return Err(format!("old value {old} was given out twice"));
        }
        self.taken[word] |= bit;
        self.ended += 1;
        self.next = self.next.max(old + 1);
        Ok(())
    }

    /// It has ended well, and nobody knows its old value.
    pub fn end_unheard(&mut self) {
        self.ended += 1;
    }

    /// A plain read that began when `least` was due. An error if its value cannot be.
    pub fn read(&self, least: u64, value: u64) -> Result<(), String> {
        if value < least || value > self.begun {
            return Err(format!("value {value}, which is not in {least}..={}", self.begun));
        }
        Ok(())
    }

    /// What the next old value is at least.
    pub fn least(&self) -> u64 {
        self.next
    }

    /// Nobody works on it: an error if its value cannot be.
    pub fn settle(&self, value: u64) -> Result<(), String> {
        if value < self.ended || value > self.begun || value < self.next {
            let Counter { begun, ended, .. } = self;
            return Err(format!("value {value} after {ended} operations of {begun}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_unique_and_in_order_are_fine_in_any_order_of_their_ends() {
        let mut counter = Counter::default();
        let least = [counter.begin(), counter.begin()];
        assert!(counter.end(least[1], 1).is_ok() && counter.end(least[0], 0).is_ok());
        assert_eq!(counter.begin(), 2);
        assert!(counter.end(2, 2).is_ok());
        assert!(counter.settle(3).is_ok() && counter.settle(2).is_err() && counter.settle(4).is_err());
    }

    #[test]
    fn a_value_given_out_twice_or_too_early_or_too_late_is_found() {
        let mut counter = Counter::default();
        let least = counter.begin();
        counter.end(least, 0).unwrap();
        let least = counter.begin();
        assert!(counter.end(least, 0).is_err(), "before one that was over");
        assert!(counter.end(least, 2).is_err(), "nobody has added so often");
        let other = counter.begin();
        counter.end(least, 1).unwrap();
        assert!(counter.end(other, 1).is_err(), "twice");
    }

    #[test]
    fn an_operation_that_was_lost_may_have_been_done_or_not() {
        let mut counter = Counter::default();
        counter.begin();
        let least = counter.begin();
        counter.end(least, 1).unwrap();
        assert!(counter.settle(2).is_ok());
        let mut counter = Counter::default();
        counter.begin();
        assert!(counter.settle(0).is_ok() && counter.settle(1).is_ok() && counter.settle(2).is_err());
    }
}
