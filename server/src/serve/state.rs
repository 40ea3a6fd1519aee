//! What requests are served from: the windows of this node, its segment, and the waiters of its mutexes.

use std::collections::HashMap;
use std::sync::Arc;

use longarm_proto::{Mutation, Rank, mutation};
use longarm_shm::NodeSegment;
use parking_lot::Mutex;

use crate::mutex_waiters::MutexWaiters;
use crate::table::Windows;

/// What every connection of the engine works on, several at once if the engine has a crew.
pub(crate) struct ServeState {
    pub(crate) windows: Windows,
    pub(crate) node: Arc<NodeSegment>,
    pub(crate) local_of_rank: HashMap<Rank, u32>,
    pub(crate) mutexes: Mutex<MutexWaiters>,
    /// Held by whoever fills one of the server's cells, of which one thread at a time may take.
    pub(crate) cells: Mutex<()>,
    /// Somebody's mail waits for free cells: that of others goes behind it. It stays as it is while connections are lent out.
    pub(crate) mail_waits: bool,
    /// The rank whose process this is: it holds the stripe locks that the server takes.
    pub(crate) host: Rank,
}

impl ServeState {
    /// Wakes a rank of this node that sleeps until its memory changes.
    pub(crate) fn notify(&self, rank: Rank) {
        if let Some(local) = self.local_of_rank.get(&rank)
            && !mutation(Mutation::WindowNotNotified)
        {
            self.node.window_eventcount(*local).notify_if_sleeping();
        }
    }
}
