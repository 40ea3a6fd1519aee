//! A mutex: one rank has it at a time, and who asked first gets it first, as far as the asking can be told apart.

/// Somebody who has asked and not got it.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    rank: u32,
    since_ns: u64,
    /// Others who have asked later, by more than anything takes to arrive, and got it.
    overtaken: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct MutexBook {
    holder: Option<u32>,
    waiters: Vec<Waiter>,
    /// Times that it was held, by those who have changed the word that it guards.
    pub held: u64,
    /// The same, and those who may have changed it.
    pub held_most: u64,
}

impl MutexBook {
    /// A rank asks.
    pub fn ask(&mut self, rank: u32, now_ns: u64) {
        self.waiters.push(Waiter { rank, since_ns: now_ns, overtaken: 0 });
    }

    /// It has it. `slack_ns`: two requests whose askers are this far apart arrive in their order.
    pub fn got(&mut self, rank: u32, slack_ns: u64) -> Result<(), String> {
        let at = self.waiters.iter().position(|waiter| waiter.rank == rank).expect("who gets it has asked");
        let mine = self.waiters.swap_remove(at);
        if let Some(holder) = self.holder {
            return Err(format!("rank {rank} has it, and so has rank {holder}"));
        }
        self.holder = Some(rank);
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

    /// Took it without asking, or failed to (`false`).
    pub fn tried(&mut self, rank: u32, taken: bool) -> Result<(), String> {
        if !taken {
            return Ok(());
        }
        match self.holder.replace(rank) {
            Some(holder) => Err(format!("rank {rank} has it, and so has rank {holder}")),
            None => Ok(()),
        }
    }

    /// The holder gives it back.
    pub fn release(&mut self, rank: u32) -> Result<(), String> {
        match self.holder.take() {
            Some(holder) if holder == rank => Ok(()),
            holder => Err(format!("rank {rank} gives it back, and {holder:?} has it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_at_a_time_are_found() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10);
        mutex.ask(2, 20);
        assert_eq!(mutex.got(1, 100), Ok(()));
        assert!(mutex.got(2, 100).is_err());
        assert!(mutex.tried(3, true).is_err());
    }

    #[test]
    fn who_asked_much_earlier_is_not_overtaken() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10);
        mutex.ask(2, 1000);
        assert!(mutex.got(2, 100).is_err());
        let mut close = MutexBook::default();
        close.ask(1, 10);
        close.ask(2, 50);
        assert_eq!(close.got(2, 100), Ok(()));
        assert_eq!(close.release(2), Ok(()));
        assert!(close.release(2).is_err());
    }
}
