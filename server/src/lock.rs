//! The waiters of this node's mutexes, and whose turn has come.

use std::collections::{HashMap, VecDeque};

use longarm_proto::{MutexQueue, Rank, WindowId};

use crate::serve::Asker;

/// Where a mutex is: window, host, offset.
pub(crate) type MutexPlace = (WindowId, Rank, u64);

/// Queues of the mutexes that have waiters now, or have just been asked for.
#[derive(Default)]
pub(crate) struct Locks {
    queues: HashMap<MutexPlace, MutexQueue<Asker>>,
    granted: VecDeque<Asker>,
    /// Waiters whose mutex is gone.
    orphaned: Vec<Asker>,
}

impl Locks {
    /// Works on the queue of one mutex; a queue that is empty afterwards is forgotten.
    pub(crate) fn with<R>(&mut self, place: MutexPlace, work: impl FnOnce(&mut MutexQueue<Asker>) -> R) -> R {
        let queue = self.queues.entry(place).or_default();
        let result = work(queue);
        if queue.is_empty() {
            self.queues.remove(&place);
        }
        result
    }

    /// How many wait for a mutex, or are to be told that theirs has come or is gone.
    pub(crate) fn waiters(&self) -> usize {
        self.queues.values().map(MutexQueue::len).sum::<usize>() + self.granted.len() + self.orphaned.len()
    }

    /// Notes that somebody's turn has come.
    pub(crate) fn grant(&mut self, asker: Asker) {
        self.granted.push_back(asker);
    }

    /// The next one to be told.
    pub(crate) fn next_grant(&mut self) -> Option<Asker> {
        self.granted.pop_front()
    }

    /// The next one whose mutex is gone.
    pub(crate) fn next_orphan(&mut self) -> Option<Asker> {
        self.orphaned.pop()
    }

    /// Whoever waits over this connection waits no more.
    pub(crate) fn forget_connection(&mut self, connection: usize) {
        self.granted.retain(|asker| asker.connection != connection);
        self.orphaned.retain(|asker| asker.connection != connection);
        for queue in self.queues.values_mut() {
            queue.remove(|asker| asker.connection == connection);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    /// The mutexes of a window that is freed are gone.
    pub(crate) fn forget_window(&mut self, window: WindowId) {
        for (_, mut queue) in self.queues.extract_if(|place, _| place.0 == window) {
            self.orphaned.extend(queue.remove(|_| true));
        }
    }
}
