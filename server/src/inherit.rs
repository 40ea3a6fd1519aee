//! What becomes of mutexes when ranks die.
//!
//! - A dead rank waits for nothing any more: it is taken out of the queues at once, and what it had asked for before is
//!   not given to it.
//! - The mutexes that it *holds* on this node go to the ranks that wait as soon as nothing of it can arrive any more: its
//!   connection has ended, and what came over it was applied, or it was cut off after a while ([`Deaths`]). One that
//!   nobody waits for is inherited by the next rank that asks (`serve::atomic`).
//! - The mutexes that it *hosts* are gone. The ranks that wait for one are told.
//!
//! [`Deaths`]: longarm_proto::Deaths

use longarm_proto::{InheritStep, Rank};

use crate::mutex_waiters::MutexId;
use crate::serve::state::ServeState;

impl ServeState {
    /// A rank of the job died.
    pub(crate) fn note_death(&mut self, rank: Rank) {
        let mutexes = self.mutexes.get_mut();
        if mutexes.deaths.note(rank) {
            mutexes.forget_rank(rank);
            mutexes.forget_host(rank);
        }
    }

    /// Hands on what those who are gone hold and others wait for. After the connections of all of them have ended.
    pub(crate) fn hand_on_mutexes(&mut self) {
        for place in self.mutexes.get_mut().contended() {
            self.hand_on(place);
        }
    }

    fn hand_on(&mut self, place: MutexId) {
        let (window, host, offset) = place;
        // Only windows that are served have queues.
        let Some(memory) = self.windows.place(window, host) else { return };
        let mutexes = self.mutexes.get_mut();
        let heir = mutexes.with(place, |queue, deaths| {
            loop {
                let word = memory.window().load_u32(offset).expect("checked when the first waiter asked");
                match queue.inherit(word, deaths) {
                    InheritStep::Swap { from, to, step } => {
                        let swapped = memory.window().compare_exchange_u32(offset, from, to);
                        if swapped.expect("checked when the first waiter asked").is_ok() {
                            return queue.commit(step);
                        }
                    }
                    InheritStep::Nothing => return None,
                }
            }
        });
        if let Some(heir) = heir {
            tracing::debug!(heir = heir.waiter.rank.0, host = host.0, offset, "a mutex of a dead rank is handed on");
            mutexes.grant(heir);
        }
    }
}
