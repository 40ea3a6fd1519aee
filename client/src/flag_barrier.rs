//! How ranks of a node meet: in shared memory, without messages.

use longarm_proto::Rank;
use longarm_shm::flag_barrier::{Member, WORDS};
use longarm_shm::sync::{Ordering, fence};
use longarm_shm::{CounterKind, NodeBoard};
use parking_lot::MutexGuard;

use crate::client::Client;
use crate::error::{Lost, LostHow};
use crate::local::flag_barriers::FlagBarriers;
use crate::progress::pace::Drive;
use crate::progress::waits::{Awaited, WaitingCall, Whom};

/// The place of the rank that speaks for the others.
const FIRST: usize = 0;

impl Client {
    /// Whether all ranks of the world meet by [`Client::node_barriers`].
    pub fn can_meet(&self) -> bool {
        self.local.all_are_here
    }

    /// Where the ranks of this node meet.
    pub fn node_barriers(&self) -> &FlagBarriers {
        &self.local.node_barriers
    }

    /// All who meet at these barriers meet, and each shows some words; `read` is told the barrier's number and those of every place. A death in
    /// `group` ends the wait. `show` is told the number too, if all are known to have come to the barrier before; it makes what `words` are in.
    ///
    /// No other thread of this rank meets there before `read` is done: so by the time that a member knows that all have come to a barrier, they
    /// have read what they wanted of the one before.
    ///
    /// # Errors
    /// What `group` gives: then not all have come.
    pub fn meet<S, R>(
        &self,
        barriers: &FlagBarriers,
        (show, words): (impl FnOnce(Option<u64>) -> S, impl FnOnce(&S) -> &[u64]),
        call: WaitingCall,
        group: &dyn Fn() -> Option<Lost>,
        read: impl FnOnce(u64, ShownWords<'_>) -> R,
    ) -> Result<R, Lost> {
        let here = self.meet_on_node(barriers, call, group);
        let before = here.member.met();
        let shown = show(here.member.is_reached(before).then_some(before + 1));
        let barrier = here.come(words(&shown))?;
        if here.member.have_all_come(&mut 0, barrier) {
            here.wake_others();
        } else {
            here.wait_for_all(barrier)?;
        }
        Ok(read(barrier, ShownWords(&here.member)))
    }

    /// Those who meet at these barriers come together, for one collective. A death in `group` ends what they wait for.
    pub fn meet_on_node<'a>(
        &'a self,
        barriers: &'a FlagBarriers,
        call: WaitingCall,
        group: &'a dyn Fn() -> Option<Lost>,
    ) -> NodeBarriers<'a> {
        let (member, ranks) = (self.progress.time.lock(&barriers.member), &*barriers.ranks);
        NodeBarriers { client: self, ranks, member, call, group }
    }
}

/// What those show who have come to a barrier.
pub struct ShownWords<'a>(&'a Member<NodeBoard>);

impl ShownWords<'_> {
    /// A word of the member at this place.
    #[inline]
    pub fn word(&self, place: u32, at: usize) -> u64 {
        self.0.word(place as usize, at)
    }
}

/// Ranks of a node during one collective, in which all do the same with this, in the same order.
pub struct NodeBarriers<'a> {
    client: &'a Client,
    /// By place.
    ranks: &'a [Rank],
    member: MutexGuard<'a, Member<NodeBoard>>,
    call: WaitingCall,
    group: &'a dyn Fn() -> Option<Lost>,
}

impl NodeBarriers<'_> {
    /// Whether this rank speaks for the others.
    pub fn is_leader(&self) -> bool {
        self.member.me() == FIRST
    }

    /// Each shows some words to the leader, which waits for all; there `read` is told the words of each, by its place. `None`
    /// at the others, which wait for nobody.
    ///
    /// # Errors
    /// What the group gives: then not all have come. The leader has to come to [`NodeBarriers::hear_leader`] all the same.
    pub fn tell_leader<R>(
        &self,
        words: &[u64],
        read: impl FnOnce(&dyn Fn(u32, usize) -> u64) -> R,
    ) -> Result<Option<R>, Lost> {
        let barrier = self.come(words)?;
        if self.is_leader() {
            self.wait_for_all(barrier)?;
            return Ok(Some(read(&|place, at| self.member.word(place as usize, at))));
        }
        // The last one wakes the leader, if it sleeps.
        if self.member.have_all_come(&mut 0, barrier) {
            self.client.local.ring_mail(self.ranks[FIRST]);
        }
        Ok(None)
    }

    /// The leader shows some words to the others, which wait for it; `read` is told these words, at the leader too.
    ///
    /// # Errors
    /// What the group gives: then the leader has not come.
    pub fn hear_leader<R>(&self, words: &[u64], read: impl FnOnce(&dyn Fn(usize) -> u64) -> R) -> Result<R, Lost> {
        let barrier = self.come(if self.is_leader() { words } else { &[] })?;
        if self.is_leader() {
            self.wake_others();
        } else {
            self.wait_until(|| self.member.has_come(FIRST, barrier), || FIRST)?;
        }
        Ok(read(&|at| self.member.word(FIRST, at)))
    }

    /// Waits until a death in the group is known here, of which the leader has told.
    pub fn hear_of_death(&self) -> Lost {
        let awaited = Awaited { call: self.call, whom: Whom::Rank(self.ranks[FIRST]) };
        self.client.wait_for(Drive::Memory, awaited, || self.death())
    }

    /// Comes to the next barrier, once its line is free. That is not given up but for a death: who did not come would be a barrier
    /// behind the others from then on.
    fn come(&self, words: &[u64]) -> Result<u64, Lost> {
        assert!(words.len() <= WORDS);
        if let Some(owed) = self.member.owed() {
            let mut from = 0;
            let mut look = || self.member.have_all_come(&mut from, owed).then_some(Ok(()));
            // Nobody wakes this rank when they come.
            let awaited = Awaited { call: self.call, whom: Whom::Rank(self.ranks[FIRST]) };
            self.client.wait_for(Drive::FlagBarrier, awaited, || look().or_else(|| self.death().map(Err)))?;
        }
        let barrier = self.member.come(words);
        // Of those who come, the one whose fence is the last sees all numbers, and wakes whoever sleeps: one wake-up for each,
        // however many come. PAIR sleeping of the eventcount: a sleeper's fence is before that one, and it is seen, or behind it,
        // and it sees all numbers itself.
        fence(Ordering::SeqCst);
        let local = &self.client.local;
        local.count(local.layout.me(), CounterKind::Collective, 8 * words.len() as u64);
        Ok(barrier)
    }

    fn death(&self) -> Option<Lost> {
        (self.group)().filter(|lost| matches!(lost.how, LostHow::Died(_)))
    }

    fn wake_others(&self) {
        let me = self.client.local.layout.me();
        self.ranks.iter().filter(|rank| **rank != me).for_each(|rank| self.client.local.ring_mail(*rank));
    }

    fn wait_for_all(&self, barrier: u64) -> Result<(), Lost> {
        let from = std::cell::Cell::new(0);
        let have_all_come = || {
            let mut place = from.get();
            let have_come = self.member.have_all_come(&mut place, barrier);
            from.set(place);
            have_come
        };
        self.wait_until(have_all_come, || from.get())
    }

    /// `missing`: the place of one that has not come.
    fn wait_until(&self, has_come: impl Fn() -> bool, missing: impl Fn() -> usize) -> Result<(), Lost> {
        let mut look = || has_come().then_some(());
        if self.client.glance(&mut look).is_some() {
            return Ok(());
        }
        let awaited = Awaited { call: self.call, whom: Whom::Rank(self.ranks[missing()]) };
        self.client
            .wait_for(Drive::Memory, awaited, || has_come().then_some(Ok(())).or_else(|| (self.group)().map(Err)))
    }
}
