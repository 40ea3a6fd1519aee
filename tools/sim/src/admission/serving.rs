//! The two threads that serve connections, as they are between two turns.

use std::collections::{BTreeSet, VecDeque};

use longarm_control::desk::{COORDINATOR, RelayDesk};

use super::sockets::Numbers;

/// What the threads of the coordinator and of a relay have in common.
#[derive(Default)]
pub(super) struct Serving {
    /// Connections over which something has come.
    pub(super) ready: BTreeSet<u32>,
    /// Those that wait at the listener.
    pub(super) backlog: VecDeque<u32>,
    /// When it takes its next turn.
    pub(super) turn_ns: Option<u64>,
    /// Until when it works at its last one.
    pub(super) busy_until_ns: u64,
    /// Until when a fault keeps it from doing anything.
    pub(super) paused_until_ns: u64,
    /// For how long it has worked.
    pub(super) worked_ns: u64,
    /// Its process is over.
    pub(super) has_ended: bool,
}

/// The thread of a relay.
pub(super) struct RelayThread {
    pub(super) desk: RelayDesk,
    pub(super) numbers: Numbers,
    pub(super) serving: Serving,
    /// The rank in whose process it is.
    pub(super) leader: u32,
    /// The connection that leads to the coordinator.
    pub(super) up: u32,
    /// It takes in whoever comes.
    pub(super) is_open: bool,
    /// Where its leader goes by itself: the process stays until all members are gone, or until then.
    pub(super) lingers_until_ns: Option<u64>,
}

impl RelayThread {
    /// It was let in, over this connection.
    pub(super) fn new(leader: u32, up: u32, members_max: usize) -> RelayThread {
        let mut numbers = Numbers::default();
        numbers.insert(COORDINATOR, up, 0);
        RelayThread {
            desk: RelayDesk::new(leader, members_max),
            numbers,
            serving: Serving::default(),
            leader,
            up,
            is_open: true,
            lingers_until_ns: None,
        }
    }

    /// Its process was killed: the ends of connections that end with it.
    pub(super) fn be_killed(&mut self) -> Vec<(u32, usize)> {
        (self.is_open, self.serving.has_ended) = (false, true);
        let waiting = std::mem::take(&mut self.serving.backlog).into_iter().map(|connection| (connection, 1));
        self.numbers.take().chain(waiting).collect()
    }
}
