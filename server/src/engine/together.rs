//! Turns of several connections at once, with the engine's workers, where one thread has more than it can do.

use std::sync::Arc;

use super::{Engine, RECENT_MAX};
use crate::lent::Lent;
use crate::workers::{Task, WorkerOptions, Workers};

/// How long connections that move in the same turns are counted together.
const WINDOW_MS: u64 = 8;
/// So many of them in that time, besides the first of each turn, are a crowd. A burst of a collective is none.
const CROWD: usize = 16;

/// How many connections move in the same turns.
#[derive(Default)]
pub(super) struct Crowding {
    window_ends_ms: u64,
    /// Those beyond the first of each turn, in this window.
    moved: usize,
    /// The window before was crowded.
    before: bool,
}

impl Crowding {
    /// So many connections moved in a turn.
    pub(super) fn note(&mut self, now_ms: u64, moved: usize) {
        if now_ms >= self.window_ends_ms {
            let is_next = now_ms < self.window_ends_ms + WINDOW_MS;
            self.before = is_next && self.moved >= CROWD;
            self.moved = 0;
            self.window_ends_ms = now_ms + WINDOW_MS;
        }
        self.moved += moved.saturating_sub(1);
    }

    fn is_crowd(&self) -> bool {
        self.before || self.moved >= CROWD
    }
}

impl Engine {
    /// From now on these threads may turn some of the connections of a turn, where many move in the same turns for a while.
    pub fn employ(&mut self, options: WorkerOptions) {
        self.workers = Workers::new(options);
    }

    /// The workers, which are the engine's no more.
    pub(crate) fn take_workers(&mut self) -> Workers {
        std::mem::replace(&mut self.workers, Workers::new(WorkerOptions::none()))
    }

    /// Whether connections are turned together now.
    pub(super) fn turns_together(&self) -> bool {
        self.workers.exist() && self.crowding.is_crowd()
    }

    /// Turns these connections and gives how many moved. What they come to is looked at in their order.
    pub(super) fn turn_together(&mut self, numbers: &[usize]) -> usize {
        let (together, alone): (Vec<usize>, Vec<usize>) = numbers.iter().partition(|number| self.may_be_lent(**number));
        let mut moved = 0;
        if together.len() > 1 {
            moved += self.lend_out(&together);
        } else {
            moved += together.into_iter().filter(|number| self.turn_recent(*number)).count();
        }
        moved + alone.into_iter().filter(|number| self.turn_recent(*number)).count()
    }

    /// Turns those that were busy last.
    pub(super) fn turn_recents(&mut self, now_ms: u64) -> bool {
        let moved = if self.recent.len() > 1 && self.turns_together() {
            let recent = self.recent.clone();
            self.turn_together(&recent)
        } else {
            // A turn may end one, which leaves the list.
            let (mut index, mut moved) = (0, 0);
            while index < self.recent.len() {
                moved += usize::from(self.turn_peer(self.recent[index]));
                index += 1;
            }
            moved
        };
        self.crowding.note(now_ms, moved);
        moved > 0
    }

    fn may_be_lent(&self, number: usize) -> bool {
        let peer = self.peers.get(number);
        peer.and_then(|peer| peer.connection.link()).is_some_and(|link| link.stands_alone())
    }

    fn lend_out(&mut self, numbers: &[usize]) -> usize {
        let shared = Arc::new(*self.shared.lend().expect("it is lent out within a turn only"));
        let lend = |number: &usize| {
            let connection = self.peers.get_mut(*number)?.connection.lend()?;
            Some(Task { number: *number, connection, shared: Arc::clone(&shared) })
        };
        let tasks: Vec<Task> = numbers.iter().filter_map(lend).collect();
        self.looks += tasks.len() as u64;
        let mut finished = self.workers.turn(tasks);
        let shared = Arc::into_inner(shared).expect("a task lets go of it before it is finished");
        self.shared = Lent::new(shared);
        let mut turns = Vec::with_capacity(finished.len());
        for task in finished.drain(..) {
            self.peers[task.number].connection.give_back(task.connection);
            turns.push((task.number, task.turn));
        }
        let mut moved = 0;
        for (number, turn) in turns {
            let turn = turn.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if self.follow(number, turn) {
                moved += 1;
                self.note_recent(number);
            }
        }
        moved
    }

    /// As [`Engine::turn_peer`], of one that is ready.
    pub(super) fn turn_recent(&mut self, number: usize) -> bool {
        let moved = self.turn_peer(number);
        if moved {
            self.note_recent(number);
        }
        moved
    }

    fn note_recent(&mut self, number: usize) {
        if self.recent.len() <= RECENT_MAX && !self.recent.contains(&number) {
            self.recent.push(number);
        }
    }
}
