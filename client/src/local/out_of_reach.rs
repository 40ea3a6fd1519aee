//! Ranks that live and for which this node is out of reach: they have lost their connection to its server, which this rank may not
//! notice, as its own way to them is another connection. Whatever they owe to ranks here does not come.
//!
//! Each of them says so to the launcher, which tells the ranks of this node.

use std::collections::BTreeMap;

use longarm_proto::Rank;
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::RwLock;

/// See the module.
#[derive(Default)]
pub(crate) struct OutOfReach {
    any: AtomicBool,
    /// With the reason that each has given.
    ranks: RwLock<BTreeMap<Rank, String>>,
}

impl OutOfReach {
    /// A rank has said so. Whoever sleeps has to be woken by the caller afterwards.
    pub(crate) fn note(&self, rank: Rank, how: &str) {
        self.ranks.write().entry(rank).or_insert_with(|| how.to_owned());
        // Relaxed: the lock is what hands the entries on, and who is woken after this sees it.
        self.any.store(true, Ordering::Relaxed);
    }

    /// The first of those ranks that matter, with its reason. One load while there are none: for loops that wait.
    pub(crate) fn find(&self, matters: impl Fn(Rank) -> bool) -> Option<(Rank, String)> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let ranks = self.ranks.read();
        ranks.iter().find(|(rank, _)| matters(**rank)).map(|(rank, how)| (*rank, how.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_found_with_the_first_reason_that_it_gave_and_no_other_rank_is() {
        let ranks = OutOfReach::default();
        assert_eq!(ranks.find(|_| true), None);
        ranks.note(Rank(7), "the first");
        ranks.note(Rank(7), "the second");
        ranks.note(Rank(9), "another");
        assert_eq!(ranks.find(|rank| rank == Rank(7)), Some((Rank(7), "the first".to_owned())));
        assert_eq!(ranks.find(|rank| rank.0 > 7), Some((Rank(9), "another".to_owned())));
        assert_eq!(ranks.find(|rank| rank.0 < 7), None);
    }
}
