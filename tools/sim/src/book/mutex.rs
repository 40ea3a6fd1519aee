//! A mutex: one rank has it at a time, and who asked first gets it first, as far as the asking can be told apart.

use longarm_client::Taken;

/// Somebody who has asked and not got it.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    rank: u32,
    /// When it asked.
    since_ns: u64,
    /// How long it may take before it asks the server, others' requests not counted.
    call_ns: u64,
}

/// The messages of a call, and the request behind them: each may be delayed for itself.
const CALL_MESSAGES: u64 = 5;

impl Waiter {
    /// How much later its request may arrive than one that was sent at the same time and arrived at once. `slack_ns`: how long one
    /// message may take.
    fn late_ns(&self, slack_ns: u64) -> u64 {
        let messages = if self.call_ns > 0 { CALL_MESSAGES } else { 1 };
        self.call_ns.saturating_add(slack_ns.saturating_mul(messages))
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct MutexBook {
    holder: Option<u32>,
    /// Who gives it back and does not know yet that this is done.
    releasing: Option<u32>,
    /// Its holder has died with it, and nobody has had it since.
    orphaned: bool,
    /// Dead ranks to whom it may still be given, or may have been, before the server hears of their death.
    ghosts: u32,
    waiters: Vec<Waiter>,
    /// Who tries to take it and does not know yet, and whether it has been free since, for all of the others.
    trying: Vec<(u32, bool)>,
    /// Somebody's lock failed who lives: the server may think that it has the mutex.
    uncertain: bool,
    /// Who that was, until it has it.
    gave_up: Vec<u32>,
    /// Times that it was held, by those who have changed the word that it guards.
    pub held: u64,
    /// The same, and those who may have changed it.
    pub held_most: u64,
}

impl MutexBook {
    /// Who has it.
    pub fn holder(&self) -> Option<u32> {
        self.holder
    }

    /// It was given back, as far as the one knows who did it.
    pub fn released(&mut self, rank: u32) {
        self.releasing = self.releasing.filter(|releasing| *releasing != rank);
    }

    /// A rank asks, and may have to call the server first, which takes so long.
    pub fn ask(&mut self, rank: u32, now_ns: u64, call_ns: u64) {
        self.nobody_is_sure();
        self.waiters.push(Waiter { rank, since_ns: now_ns, call_ns });
    }

    /// A rank is dead. If it had it, the next one is told; if it was about to get it or to give it back, perhaps.
    pub fn bury(&mut self, rank: u32) {
        self.nobody_is_sure();
        let tried = self.trying.iter().any(|(trying, _)| *trying == rank);
        let waited = tried || self.gave_up.contains(&rank) || self.waiters.iter().any(|waiter| waiter.rank == rank);
        self.waiters.retain(|waiter| waiter.rank != rank);
        self.trying.retain(|(trying, _)| *trying != rank);
        if self.holder == Some(rank) {
            (self.holder, self.orphaned) = (None, true);
        } else if waited || self.releasing == Some(rank) {
            self.ghosts += 1;
        }
    }

    fn take(&mut self, rank: u32, taken: Taken<'_>) -> Result<(), String> {
        if let Some(holder) = self.holder {
            return Err(format!("rank {rank} has it, and so has rank {holder}"));
        }
        let died = taken.previous_holder_died;
        let orphaned = std::mem::take(&mut self.orphaned);
        let by_ghost = died && !orphaned;
        if orphaned && !died || by_ghost && self.ghosts == 0 {
            return Err(format!("rank {rank} got it, and is told that the holder before died: {died}"));
        }
        self.ghosts -= u32::from(by_ghost);
        self.gave_up.retain(|gave_up| *gave_up != rank);
        (self.holder, self.releasing) = (Some(rank), None);
        Ok(())
    }

    /// It has it. `slack_ns`: two requests whose askers are this far apart arrive in their order.
    pub fn got(&mut self, rank: u32, taken: Taken<'_>, slack_ns: u64) -> Result<(), String> {
        // Who is dead gets nothing, whatever its last calls come to.
        let Some(at) = self.waiters.iter().position(|waiter| waiter.rank == rank) else { return Ok(()) };
        let mine = self.waiters.swap_remove(at);
        self.take(rank, taken)?;
        let is_earlier = |waiter: &&Waiter| waiter.since_ns.saturating_add(waiter.late_ns(slack_ns)) < mine.since_ns;
        if let Some(waiter) = self.waiters.iter().find(is_earlier) {
            let apart_us = (mine.since_ns - waiter.since_ns) / 1000;
            let other = waiter.rank;
            return Err(format!("rank {rank} got it before rank {other}, which had asked {apart_us} us earlier"));
        }
        Ok(())
    }

    /// It did not get it after all.
    pub fn give_up(&mut self, rank: u32) {
        self.uncertain = true;
        self.gave_up.push(rank);
        self.waiters.retain(|waiter| waiter.rank != rank);
    }

    /// A rank tries to take it.
    pub fn begin_try(&mut self, rank: u32) {
        self.nobody_is_sure();
        let is_free = self.holder.or(self.releasing).is_none() && !self.orphaned && self.ghosts == 0;
        let alone = self.waiters.is_empty() && self.trying.is_empty() && !self.uncertain;
        self.trying.push((rank, is_free && alone));
    }

    /// Took it without waiting, or failed to.
    pub fn tried(&mut self, rank: u32, taken: Option<Taken<'_>>) -> Result<(), String> {
        let Some(at) = self.trying.iter().position(|(trying, _)| *trying == rank) else { return Ok(()) };
        let (_, sure) = self.trying.swap_remove(at);
        match taken {
            Some(taken) => self.take(rank, taken),
            None if sure => Err(format!("rank {rank} is told that it is held, and nobody has it")),
            None => Ok(()),
        }
    }

    /// Others may take it now before those who try to.
    fn nobody_is_sure(&mut self) {
        self.trying.iter_mut().for_each(|(_, sure)| *sure = false);
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

    const WELL: Taken<'static> = Taken::somehow(false);
    const DIED: Taken<'static> = Taken::somehow(true);

    #[test]
    fn a_try_fails_only_where_somebody_may_have_it() {
        let mut mutex = MutexBook::default();
        mutex.begin_try(1);
        assert!(mutex.tried(1, None).is_err());
        mutex.begin_try(1);
        assert_eq!(mutex.tried(1, Some(WELL)), Ok(()));
        assert_eq!(mutex.release(1), Ok(()));
        mutex.begin_try(2);
        assert_eq!(mutex.tried(2, None), Ok(()), "it is on its way back");
        mutex.released(1);
        mutex.begin_try(2);
        mutex.ask(3, 1, 0);
        assert_eq!(mutex.tried(2, None), Ok(()), "another one asks");
    }

    #[test]
    fn two_holders_at_a_time_are_found() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10, 0);
        mutex.ask(2, 20, 0);
        mutex.begin_try(3);
        assert_eq!(mutex.got(1, WELL, 100), Ok(()));
        assert!(mutex.got(2, WELL, 100).is_err());
        assert!(mutex.tried(3, Some(WELL)).is_err());
    }

    #[test]
    fn the_heir_of_a_dead_holder_is_told_and_nobody_else() {
        let tried = |mutex: &mut MutexBook, rank, taken| {
            mutex.begin_try(rank);
            mutex.tried(rank, taken)
        };
        assert!(tried(&mut MutexBook::default(), 1, Some(DIED)).is_err(), "nobody has died");
        let mut mutex = MutexBook::default();
        assert_eq!(tried(&mut mutex, 1, Some(WELL)), Ok(()));
        mutex.bury(1);
        assert!(tried(&mut mutex.clone(), 2, Some(WELL)).is_err());
        assert_eq!(tried(&mut mutex, 2, Some(DIED)), Ok(()));
        assert_eq!(tried(&mut mutex, 3, None), Ok(()));
        mutex.begin_try(4);
        mutex.bury(4);
        assert_eq!(mutex.release(2), Ok(()));
        assert_eq!(tried(&mut mutex, 5, Some(DIED)), Ok(()), "the dead one may have got it");
    }

    #[test]
    fn the_heir_of_one_whose_lock_failed_before_it_died_may_be_told_of_the_death() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10, 0);
        mutex.ask(2, 20, 0);
        mutex.give_up(1);
        assert!(mutex.clone().got(2, DIED, 100).is_err(), "it lives");
        mutex.bury(1);
        assert_eq!(mutex.clone().got(2, WELL, 100), Ok(()));
        assert_eq!(mutex.got(2, DIED, 100), Ok(()));
    }

    #[test]
    fn who_asked_much_earlier_is_not_overtaken() {
        let mut mutex = MutexBook::default();
        mutex.ask(1, 10, 0);
        mutex.ask(2, 1000, 0);
        assert!(mutex.got(2, WELL, 100).is_err());
        let calling = |since_ns| {
            let mut mutex = MutexBook::default();
            mutex.ask(1, 10, 300);
            mutex.ask(2, since_ns, 0);
            mutex.got(2, WELL, 100)
        };
        assert_eq!(calling(810), Ok(()), "each message of its call may have been delayed");
        assert!(calling(811).is_err());
        let mut close = MutexBook::default();
        close.ask(1, 10, 0);
        close.ask(2, 50, 0);
        assert_eq!(close.got(2, WELL, 100), Ok(()));
        assert_eq!(close.release(2), Ok(()));
        assert!(close.release(2).is_err());
    }
}
