//! How the ranks of a world that is one node meet: in shared memory, without messages.

use longarm_proto::Rank;
use longarm_shm::flag_barrier::{Member, WORDS};
use longarm_shm::sync::{Ordering, fence};
use longarm_shm::{CounterKind, NodeBoard};

use crate::client::Client;
use crate::error::Lost;
use crate::progress::pace::Drive;
use crate::progress::waits::{Awaited, WaitingCall, Whom};

impl Client {
    /// Whether all ranks of the world meet by [`Client::meet`].
    pub fn can_meet(&self) -> bool {
        self.local.barriers.is_some()
    }

    /// All ranks of the world meet, and each shows some words; `read` is told those of every rank. A death in `group` ends
    /// the wait.
    ///
    /// # Errors
    /// What `group` gives: then not all have come.
    ///
    /// # Panics
    /// If the world has several nodes.
    pub fn meet<R>(
        &self,
        words: &[u64],
        call: WaitingCall,
        group: &dyn Fn() -> Option<Lost>,
        read: impl FnOnce(&dyn Fn(u32, usize) -> u64) -> R,
    ) -> Result<R, Lost> {
        assert!(words.len() <= WORDS);
        let barriers = self.local.barriers.as_ref().expect("asked for by `can_meet`");
        let member = barriers.0.lock();
        if let Some(owed) = member.owed() {
            self.wait_for_all(&member, owed, call, group)?;
        }
        let barrier = member.come(words);
        // Of those who come, the one whose fence is the last sees all numbers, and wakes whoever sleeps: one wake-up for each,
        // however many come. PAIR sleeping of the eventcount: a sleeper's fence is before that one, and it is seen, or behind it,
        // and it sees all numbers itself.
        fence(Ordering::SeqCst);
        let me = self.local.layout.me();
        self.local.count(me, CounterKind::Collective, 8 * words.len() as u64);
        if member.have_all_come(&mut 0, barrier) {
            let others = (0..self.local.layout.rank_count()).filter(|rank| *rank != me.0);
            others.for_each(|rank| self.local.ring_mail(Rank(rank)));
        } else {
            self.wait_for_all(&member, barrier, call, group)?;
        }
        Ok(read(&|rank, at| member.word(rank as usize, at)))
    }

    fn wait_for_all(
        &self,
        member: &Member<NodeBoard>,
        barrier: u64,
        call: WaitingCall,
        group: &dyn Fn() -> Option<Lost>,
    ) -> Result<(), Lost> {
        let mut from = 0;
        let mut look = || member.have_all_come(&mut from, barrier).then_some(());
        if self.glance(&mut look).is_some() {
            return Ok(());
        }
        let awaited = Awaited { call, whom: Whom::Rank(Rank(from as u32)) };
        self.wait_for(Drive::Memory, awaited, || {
            member.have_all_come(&mut from, barrier).then_some(Ok(())).or_else(|| group().map(Err))
        })
    }
}
