//! A word that ranks swap, each time with a value that nobody else uses. The old values tell in which order: each one
//! leads from the value before to the one after, and that order must agree with time.

use std::collections::HashMap;

/// One swap, or a compare-and-swap that changed the word.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: u64,
    to: u64,
    began: u64,
    ended: u64,
}

/// A value that somebody saw without changing it.
#[derive(Clone, Copy, Debug)]
struct Sight {
    value: u64,
    began: u64,
    ended: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    first: u64,
    links: Vec<Link>,
    sights: Vec<Sight>,
    /// Values that may have been stored by operations that were lost.
    doubtful: Vec<u64>,
    /// What was stored last, as far as is known, for whoever compares.
    pub latest: u64,
}

impl Chain {
    /// A swap has ended.
    pub fn swapped(&mut self, from: u64, to: u64, began: u64, ended: u64) {
        self.links.push(Link { from, to, began, ended });
        self.latest = to;
    }

    /// A value was seen.
    pub fn saw(&mut self, value: u64, began: u64, ended: u64) {
        self.sights.push(Sight { value, began, ended });
        self.latest = value;
    }

    /// A swap was lost.
    pub fn doubt(&mut self, to: u64) {
        self.doubtful.push(to);
    }

    /// Nobody works on it: an error if its value, or the order of all that was done, cannot be. The next round goes on
    /// from this value.
    pub fn settle(&mut self, value: u64) -> Result<(), String> {
        let result = self.check(value);
        *self = Chain { first: value, latest: value, ..Chain::default() };
        result
    }

    fn check(&self, value: u64) -> Result<(), String> {
        if !self.doubtful.is_empty() {
            return self.check_doubtful();
        }
        let mut next: HashMap<u64, usize> = HashMap::new();
        for (number, link) in self.links.iter().enumerate() {
            if next.insert(link.from, number).is_some() {
                return Err(format!("two swaps took the same old value {:#x}", link.from));
            }
        }
        // When each value came at the earliest, and was gone at the latest.
        let mut times: HashMap<u64, (u64, u64)> = HashMap::new();
        let (mut at, mut latest_begin, mut done) = (self.first, 0, 0);
        times.insert(at, (0, u64::MAX));
        while let Some(link) = next.get(&at).map(|number| self.links[*number]) {
            if link.ended < latest_begin {
                return Err(format!("the swap to {:#x} was over before one that it follows began", link.to));
            }
            latest_begin = latest_begin.max(link.began);
            times.entry(at).and_modify(|time| time.1 = link.ended);
            at = link.to;
            times.insert(at, (link.began, u64::MAX));
            done += 1;
        }
        if done != self.links.len() {
            return Err(format!("{done} of {} swaps follow from the first value {:#x}", self.links.len(), self.first));
        }
        if at != value {
            return Err(format!("the word is {value:#x}, the last swap stored {at:#x}"));
        }
        for sight in &self.sights {
            let Some((from, until)) = times.get(&sight.value) else {
                return Err(format!("{:#x} was seen, which nobody has stored", sight.value));
            };
            if sight.ended < *from || sight.began > *until {
                return Err(format!("{:#x} was seen at a time when it was not there", sight.value));
            }
        }
        Ok(())
    }

    /// With swaps that may have been done or not: no value is taken twice.
    fn check_doubtful(&self) -> Result<(), String> {
        let mut taken = HashMap::new();
        for link in &self.links {
            if taken.insert(link.from, link.to).is_some() {
                return Err(format!("two swaps took the same old value {:#x}", link.from));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_that_follow_each_other_are_fine() {
        let mut chain = Chain::default();
        chain.swapped(5, 6, 10, 20);
        chain.swapped(0, 5, 12, 22);
        chain.saw(5, 15, 16);
        assert_eq!(chain.settle(6), Ok(()));
        chain.swapped(6, 9, 30, 31);
        assert_eq!(chain.settle(9), Ok(()));
    }

    #[test]
    fn a_value_taken_twice_a_broken_chain_and_a_lost_swap_are_found() {
        let mut twice = Chain::default();
        twice.swapped(0, 5, 1, 2);
        twice.swapped(0, 6, 3, 4);
        assert!(twice.settle(6).is_err());
        let mut broken = Chain::default();
        broken.swapped(7, 8, 1, 2);
        assert!(broken.settle(8).is_err());
        let mut lost = Chain::default();
        lost.swapped(0, 5, 1, 2);
        assert!(lost.settle(0).is_err());
    }

    #[test]
    fn an_order_against_time_is_found() {
        let mut chain = Chain::default();
        chain.swapped(5, 6, 1, 2);
        chain.swapped(0, 5, 3, 4);
        assert!(chain.settle(6).is_err());
        let mut stale = Chain::default();
        stale.swapped(0, 5, 1, 2);
        stale.saw(0, 3, 4);
        assert!(stale.settle(5).is_err());
    }
}
