//! Who is known to be dead. Written by the thread that hears the launcher, read by everyone who waits.

use longarm_proto::Rank;
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
#[derive(Default)]
pub struct Failures {
    count: AtomicU32,
    deaths: RwLock<Vec<Death>>,
}

impl Failures {
    /// Nobody is dead.
    pub fn new() -> Failures {
        Failures::default()
    }

    /// Notes a death. Whoever sleeps has to be woken by the caller afterwards.
    pub fn note(&self, death: Death) {
        let mut deaths = self.deaths.write();
        if deaths.iter().any(|known| known.rank == death.rank) {
            return;
        }
        deaths.push(death);
        // PAIR death-noted: who sees the count finds the entry.
        self.count.store(deaths.len() as u32, Ordering::Release);
    }

    /// Whether anybody died. One load: for loops that wait.
    #[inline]
    pub fn any(&self) -> bool {
        // PAIR death-noted.
        self.count.load(Ordering::Acquire) != 0
    }

    /// How this rank died, if it did.
    pub fn of(&self, rank: Rank) -> Option<Death> {
        if !self.any() {
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
}
