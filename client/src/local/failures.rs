//! The ranks that are known to be dead. Written by the thread that hears the launcher, read by every thread that waits.
//!
//! A wait for something that any rank may bring about cannot know whether it depends on a dead one: a death ends it. A
//! program that goes on after a death has to be able to wait again, so it acknowledges the deaths that it knows of, and
//! only later ones end such waits (as `MPIX_Comm_failure_ack` of ULFM).

use longarm_proto::{Mutation, Rank, mutation};
use longarm_shm::sync::{AtomicU32, Ordering};
use parking_lot::RwLock;

/// The end of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The rank.
    pub rank: Rank,
    /// "exited with status 3", "was killed by signal 9 (SIGKILL)".
    pub how: String,
}

/// The dead ranks of the world.
pub struct Failures {
    count: AtomicU32,
    /// How many of the deaths, in the order in which they were noted, the program has acknowledged.
    acknowledged: AtomicU32,
    deaths: RwLock<Vec<Death>>,
    /// A bit for every rank of the world, set if it is dead.
    dead: Box<[AtomicU32]>,
    survivors_go_on: bool,
}

impl Failures {
    /// Nobody of so many ranks is dead. `survivors_go_on`: a death does not end the job.
    pub fn new(ranks: u32, survivors_go_on: bool) -> Failures {
        Failures {
            count: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            deaths: RwLock::default(),
            dead: (0..ranks.div_ceil(u32::BITS)).map(|_| AtomicU32::new(0)).collect(),
            survivors_go_on,
        }
    }

    /// Whether the others go on after a death. If not, they leave, and each may seem to be the first that is gone.
    pub fn survivors_go_on(&self) -> bool {
        self.survivors_go_on
    }

    /// Notes a death. Whoever sleeps has to be woken by the caller afterwards.
    pub fn note(&self, death: Death) {
        let mut deaths = self.deaths.write();
        if deaths.iter().any(|known| known.rank == death.rank) {
            return;
        }
        let (word, bit) = Failures::place_of(death.rank);
        deaths.push(death);
        if mutation(Mutation::DeathNotNoted) {
            return;
        }
        if let Some(word) = self.dead.get(word) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        // PAIR death-noted: who sees the count finds the entry and the mark.
        self.count.store(deaths.len() as u32, Ordering::Release);
    }

    /// Whether anybody died. One load: for loops that wait.
    #[inline]
    pub fn any(&self) -> bool {
        // PAIR death-noted.
        self.count.load(Ordering::Acquire) != 0
    }

    /// Whether this rank is dead: one load before the first death, two after it.
    #[inline]
    pub fn is_dead(&self, rank: Rank) -> bool {
        if !self.any() {
            return false;
        }
        seldom();
        self.is_marked(rank)
    }

    /// Inlined: a call would have the hottest operations keep what they hold in memory, although nobody has died.
    #[inline]
    fn is_marked(&self, rank: Rank) -> bool {
        let (word, bit) = Failures::place_of(rank);
        self.dead.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    #[inline]
    fn place_of(rank: Rank) -> (usize, u32) {
        ((rank.0 / u32::BITS) as usize, 1 << (rank.0 % u32::BITS))
    }

    /// How this rank died, if it did.
    pub fn of(&self, rank: Rank) -> Option<Death> {
        if !self.is_dead(rank) {
            return None;
        }
        self.deaths.read().iter().find(|death| death.rank == rank).cloned()
    }

    /// The first death among these ranks: the one that was noted first, because the others may follow from it.
    pub fn among(&self, ranks: impl Iterator<Item = Rank>) -> Option<Death> {
        if !self.any() {
            return None;
        }
        let ranks: Vec<Rank> = ranks.collect();
        self.deaths.read().iter().find(|death| ranks.contains(&death.rank)).cloned()
    }

    /// The first death of all.
    pub fn first(&self) -> Option<Death> {
        if !self.any() {
            return None;
        }
        self.deaths.read().first().cloned()
    }

    /// The first death that the program has not acknowledged.
    pub fn first_unacknowledged(&self) -> Option<Death> {
        if !self.any() {
            return None;
        }
        let deaths = self.deaths.read();
        deaths.get(self.acknowledged.load(Ordering::Relaxed) as usize).cloned()
    }

    /// All deaths so far, in the order in which they became known.
    pub fn all(&self) -> Vec<Death> {
        self.deaths.read().clone()
    }

    /// Acknowledges all deaths so far, and says which these are.
    pub fn acknowledge(&self) -> Vec<Death> {
        // Under the lock: a death that is noted meanwhile is either in the list or not acknowledged.
        let deaths = self.deaths.write();
        self.acknowledged.store(deaths.len() as u32, Ordering::Relaxed);
        deaths.clone()
    }
}

/// Marks where it is called as the way that is seldom taken, so that the compiler lays the other one out straight.
#[cold]
fn seldom() {}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(rank: u32) -> Death {
        Death { rank: Rank(rank), how: format!("exited with status {rank}") }
    }

    #[test]
    fn what_was_acknowledged_interrupts_no_more_and_what_comes_later_does() {
        let failures = Failures::new(4, true);
        assert_eq!((failures.first_unacknowledged(), failures.acknowledge()), (None, vec![]));
        failures.note(death(3));
        failures.note(death(1));
        assert_eq!(failures.first_unacknowledged(), Some(death(3)));
        assert_eq!(failures.acknowledge(), [death(3), death(1)]);
        assert_eq!(failures.first_unacknowledged(), None);
        failures.note(death(1));
        assert_eq!(failures.first_unacknowledged(), None, "nobody dies twice");
        failures.note(death(0));
        assert_eq!(failures.first_unacknowledged(), Some(death(0)));
        assert_eq!(failures.all(), [death(3), death(1), death(0)]);
    }

    #[test]
    fn a_death_says_nothing_of_other_ranks() {
        let failures = Failures::new(70, true);
        let dead = |failures: &Failures| (0..200).filter(|rank| failures.is_dead(Rank(*rank))).collect::<Vec<_>>();
        assert_eq!(dead(&failures), []);
        for rank in [0, 31, 32, 69, 199] {
            failures.note(death(rank));
        }
        assert_eq!(dead(&failures), [0, 31, 32, 69], "nobody has the last number");
        assert_eq!((failures.of(Rank(69)), failures.of(Rank(68))), (Some(death(69)), None));
    }
}
