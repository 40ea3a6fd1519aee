//! An element that ranks add to. Nothing negative is added, so that with operations that may have been done or not the
//! sum has bounds.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// What was added for certain, once all are quiet.
    low: u64,
    /// What was added at most.
    high: u64,
}

impl Sum {
    /// An operation begins.
    pub fn begin(&mut self, addend: u64) {
        self.high += addend;
    }

    /// It is known to be done.
    pub fn confirm(&mut self, addend: u64) {
        self.low += addend;
    }

    /// Nobody works on it: an error if its value cannot be.
    pub fn settle(&self, value: u64) -> Result<(), String> {
        if value < self.low || value > self.high {
            return Err(format!("sum {value}, which is not in {}..={}", self.low, self.high));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_exact_where_all_is_confirmed_and_between_bounds_else() {
        let mut sum = Sum::default();
        sum.begin(5);
        sum.confirm(5);
        assert!(sum.settle(5).is_ok() && sum.settle(4).is_err() && sum.settle(10).is_err());
        sum.begin(2);
        assert!(sum.settle(5).is_ok() && sum.settle(7).is_ok() && sum.settle(8).is_err());
    }
}
