//! A mutex: one rank has it at a time, and who asked first gets it first, as far as the asking can be told apart.

use longarm_client::Taken;

/// Somebody who has asked and not got it.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    rank: u32,
    since_ns: u64,
    /// Others who have asked later, by more than anything takes to arrive, and got it.
    overtaken: u32,
}

/// Whether its last holder has died with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Orphaned {
    #[default]
    No,
    Perhaps,
    Surely,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct MutexBook {
    holder: Option<u32>,
    /// Who gives it back and does not know yet that this is done.
    releasing: Option<u32>,
    orphaned: Orphaned,
    waiters: Vec<Waiter>,
    /// Times that it was held, by those who have changed the word that it guards.
    pub held: u64,
    /// The same, and those who may have changed it.
    pub held_most: u64,
}

impl MutexBook {
    /// It was given back, as far as the one knows who did it.
    pub fn released(&mut self, rank: u32) {
        self.releasing = self.releasing.filter(|releasing| *releasing != rank);
    }

    /// A rank asks.
    pub fn ask(&mut self, rank: u32, now_ns: u64) {
        self.waiters.push(Waiter { rank, since_ns: now_ns, overtaken: 0 });
    }

    /// A rank is dead. If it had it, the next one is told; if it was about to get it or to give it back, perhaps.
    pub fn bury(&mut self, rank: u32) {
        let waited = self.waiters.iter().any(|waiter| waiter.rank == rank);
        self.give_up(rank);
        if self.holder == Some(rank) {
            (self.holder, self.orphaned) = (None, Orphaned::Surely);
        } else if (waited || self.releasing == Some(rank)) && self.orphaned == Orphaned::No {
            self.orphaned = Orphaned::Perhaps;
        }
    }

    fn take(&mut self, rank: u32, taken: Taken) -> Result<(), String> {
        if let Some(holder) = self.holder {
            return Err(format!("rank {rank} has it, and so has rank {holder}"));
        }
        let died = taken.previous_holder_died;
        let told = match std::mem::take(&mut self.orphaned) {
            Orphaned::No => !died,
            Orphaned::Perhaps => true,
            Orphaned::Surely => died,
        };
        if !told {
            return Err(format!("rank {rank} got it, and is told that the holder before died: {died}"));
        }
        (self.holder, self.releasing) = (Some(rank), None);
        Ok(())
    }

    /// It has it. `slack_ns`: two requests whose askers are this far apart arrive in their order.
    pub fn got(&mut self, rank: u32, taken: Taken, slack_ns: u64) -> Result<(), String> {
        let at = self.waiters.iter().position(|waiter| waiter.rank == rank).expect("who gets it has asked");
        let mine = self.waiters.swap_remove(at);
        self.take(rank, taken)?;
        for waiter in &mut self.waiters {
            if waiter.since_ns + slack_ns < mine.since_ns {
                waiter.overtaken += 1;
                let apart_us = (mine.since_ns - waiter.since_ns) / 1000;
                let other = waiter.rank;
                return Err(format!("rank {rank} got it before rank {other}, which had asked {apart_us} us earlier"));
            }
        }
        Ok(())
    }

    /// It did not get it after all.
    pub fn give_up(&mut self, rank: u32) {
        self.waiters.retain(|waiter| waiter.rank != rank);
    }

    /// Took it without asking, or failed to.
    pub fn tried(&mut self, rank: u32, taken: Option<Taken>) -> Result<(), String> {
        taken.map_or(Ok(()), |taken| self.take(rank, taken))
    }

    /// The holder begins to give it back.
    pub fn release(&mut self, rank: u32) -> Result<(), String> {
        match self.holder.take() {
            Some(holder) if holder == rank => {
                self.releasing = Some(rank);
                Ok(())
            }
            holder => Err(format!("rank {rank} gives it back, and {holder:?} has it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Taken = Taken { previous_holder_died: false };
    const DIED: Taken = Taken { previous_holder_died: true };

    #[test]
    fn two_holders_at_a_time_are_found() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10);
        mutex.ask(2, 20);
        assert_eq!(mutex.got(1, WELL, 100), Ok(()));
        assert!(mutex.got(2, WELL, 100).is_err());
        assert!(mutex.tried(3, Some(WELL)).is_err());
    }

    #[test]
    fn the_heir_of_a_dead_holder_is_told_and_nobody_else() {
        let mut mutex = MutexBook::default();
        assert!(mutex.tried(1, Some(DIED)).is_err(), "nobody has died");
        let mut mutex = MutexBook::default();
        assert_eq!(mutex.tried(1, Some(WELL)), Ok(()));
        mutex.bury(1);
        assert!(mutex.clone().tried(2, Some(WELL)).is_err());
        assert_eq!(mutex.tried(2, Some(DIED)), Ok(()));
        assert_eq!(mutex.tried(2, None), Ok(()));
    }

    #[test]
    fn who_asked_much_earlier_is_not_overtaken() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10);
        mutex.ask(2, 1000);
        assert!(mutex.got(2, WELL, 100).is_err());
        let mut close = MutexBook::default();
        close.ask(1, 10);
        close.ask(2, 50);
        assert_eq!(close.got(2, WELL, 100), Ok(()));
        assert_eq!(close.release(2), Ok(()));
        assert!(close.release(2).is_err());
    }
}
