//! The waiters of this node's mutexes, and whose turn has come.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use longarm_proto::{Deaths, Grant, MutexQueue, Rank, Refusal, WindowId};

use crate::serve::asker::{Asker, Refused};

/// Where a mutex is: window, host, offset.
pub(crate) type MutexId = (WindowId, Rank, u64);

/// Queues of the mutexes that have waiters now, or have just been asked for.
#[derive(Default)]
pub(crate) struct MutexWaiters {
    queues: HashMap<MutexId, MutexQueue<Asker>>,
    granted: VecDeque<Grant<Asker>>,
    /// How many wait over each connection, or are to be told.
    waiting: HashMap<usize, usize>,
    /// Waiters whose mutex is gone, and why it is.
    orphaned: Vec<(Asker, Refused)>,
    /// Whose mutexes others get.
    pub(crate) deaths: Deaths,
}

impl MutexWaiters {
    /// Works on the queue of one mutex; a queue that is empty afterwards is forgotten.
    pub(crate) fn with<R>(&mut self, place: MutexId, work: impl FnOnce(&mut MutexQueue<Asker>, &Deaths) -> R) -> R {
        let queue = self.queues.entry(place).or_default();
        let result = work(queue, &self.deaths);
        if queue.is_empty() {
            self.queues.remove(&place);
        }
        result
    }

    /// How many wait for a mutex, or are to be told that theirs has come or is gone.
    pub(crate) fn waiters(&self) -> usize {
        self.queues.values().map(MutexQueue::len).sum::<usize>() + self.granted.len() + self.orphaned.len()
    }

    /// Notes that somebody waits over this connection from now on.
    pub(crate) fn note_waiting(&mut self, connection: usize) {
        *self.waiting.entry(connection).or_default() += 1;
    }

    /// How many wait over this connection, or are to be told.
    pub(crate) fn waiting_of(&self, connection: usize) -> usize {
        self.waiting.get(&connection).copied().unwrap_or(0)
    }

    fn note_told(&mut self, connection: usize) {
        if let Entry::Occupied(mut waiting) = self.waiting.entry(connection) {
            *waiting.get_mut() -= 1;
            if *waiting.get() == 0 {
                waiting.remove();
            }
        }
    }

    /// Notes that somebody's turn has come.
    pub(crate) fn grant(&mut self, grant: Grant<Asker>) {
        self.granted.push_back(grant);
    }

    /// The next one to be told.
    pub(crate) fn next_grant(&mut self) -> Option<Grant<Asker>> {
        let grant = self.granted.pop_front()?;
        self.note_told(grant.waiter.connection);
        Some(grant)
    }

    /// The next one whose mutex is gone.
    pub(crate) fn next_orphan(&mut self) -> Option<(Asker, Refused)> {
        let orphan = self.orphaned.pop()?;
        self.note_told(orphan.0.connection);
        Some(orphan)
    }

    /// Where somebody waits.
    pub(crate) fn contended(&self) -> Vec<MutexId> {
        self.queues.keys().copied().collect()
    }

    /// Whether somebody waits over this connection.
    pub(crate) fn is_waiting(&self, connection: usize) -> bool {
        self.queues.values().any(|queue| queue.has(|asker| asker.connection == connection))
    }

    /// Whoever waits over this connection waits no more.
    pub(crate) fn forget_connection(&mut self, connection: usize) {
        self.forget(|asker| asker.connection == connection);
        self.waiting.remove(&connection);
    }

    /// This rank waits no more, over no connection.
    pub(crate) fn forget_rank(&mut self, rank: Rank) {
        self.forget(|asker| asker.rank == rank);
    }

    fn forget(&mut self, gone: impl Fn(&Asker) -> bool) {
        self.granted.retain(|grant| !gone(&grant.waiter));
        self.orphaned.retain(|(asker, _)| !gone(asker));
        for queue in self.queues.values_mut() {
            queue.remove(&gone);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    /// The mutexes of a window that is freed are gone.
    pub(crate) fn forget_window(&mut self, window: WindowId) {
        self.orphan((Refusal::FreedWindow, 0), |place| place.0 == window);
    }

    /// The mutexes that a dead rank hosts are gone.
    pub(crate) fn forget_host(&mut self, host: Rank) {
        self.orphan((Refusal::TargetLost, u64::from(host.0)), |place| place.1 == host);
    }

    fn orphan(&mut self, why: Refused, gone: impl Fn(&MutexId) -> bool) {
        for (_, mut queue) in self.queues.extract_if(|place, _| gone(place)) {
            self.orphaned.extend(queue.remove(|_| true).into_iter().map(|asker| (asker, why)));
        }
    }
}
