//! Turns of several connections at once, with the engine's crew, where one thread has more than it can do.

use std::sync::Arc;
use std::time::Duration;

use longarm_netmod::{Interest, Ready};

use super::{CONNECTION, Engine, NUMBER_MASK};
use crate::crew::{Crew, CrewOptions, Finished, Outcome, Task};
use crate::lendable::Lendable;
use crate::serve::state::ServeState;

/// A turn lends out no more connections when so many are back, or so many times as many as it began with, whichever is more: what else
/// there is to do waits meanwhile, and whoever drives the engine may have affairs of its own.
const TURNED_MAX: usize = 32;
const TURNED_MAX_PER_FIRST: usize = 4;

impl Engine {
    /// From now on these threads may turn some of the connections of a turn, where many move in the same turns for a while. An engine without
    /// them is whole: simulators and most tests have one.
    pub fn employ(&mut self, options: CrewOptions) {
        self.crew = Crew::new(options);
    }

    /// The crew, which is the engine's no more.
    pub(crate) fn take_crew(&mut self) -> Crew {
        std::mem::replace(&mut self.crew, Crew::new(CrewOptions::none()))
    }

    /// Whether connections are turned together now.
    pub(super) fn wants_crew(&self) -> bool {
        self.crew.may_have_threads() && self.crowding.is_crowd(self.now_ms)
    }

    /// Turns these connections, and gives how many moved.
    pub(super) fn turn_together(&mut self, numbers: &[usize]) -> usize {
        let (together, mut alone): (Vec<usize>, Vec<usize>) =
            numbers.iter().partition(|number| self.may_be_lent(**number));
        let mut moved = 0;
        if together.len() > 1 {
            moved += self.turn_with_crew(together);
        } else {
            alone.extend(together);
        }
        moved + alone.into_iter().filter(|number| self.turn_and_remember(*number)).count()
    }

    fn may_be_lent(&self, number: usize) -> bool {
        let peer = self.peers.get(number);
        peer.and_then(|peer| peer.connection.link()).is_some_and(|link| link.stands_alone())
    }

    /// Turns these and what becomes ready meanwhile. A turn has an end all the same.
    fn turn_with_crew(&mut self, numbers: Vec<usize>) -> usize {
        let shared = Arc::new(*self.shared.take().expect("it is lent out within a turn only"));
        let turned_max = TURNED_MAX.max(TURNED_MAX_PER_FIRST * numbers.len());
        let mut outcomes = Vec::new();
        let (mut finished, mut ready) = (Vec::new(), Vec::new());
        self.lend_to_crew(numbers, &shared);
        let mut looks_for_more = true;
        while !self.crew.all_are_back() {
            self.crew.work(&mut finished);
            for Finished { number, connection, turn } in finished.drain(..) {
                self.peers[number].connection.give_back(connection);
                // One that has ended is not turned again.
                looks_for_more &= matches!(turn, Ok(Ok(_)));
                outcomes.push((number, turn));
            }
            looks_for_more &= outcomes.len() < turned_max;
            if looks_for_more && self.crew.wants_more() {
                looks_for_more = self.poller.wait(&mut ready, Some(Duration::ZERO)).is_ok();
                let numbers = ready.iter().filter_map(|event| self.number_to_lend(event)).collect();
                // What is not a connection's comes in the next turn.
                self.looks_everywhere = ready.iter().any(|event| event.token & !NUMBER_MASK != CONNECTION);
                looks_for_more &= !self.looks_everywhere;
                self.lend_to_crew(numbers, &shared);
            }
        }
        let shared = Arc::into_inner(shared).expect("a task lets go of it before it is finished");
        self.shared = Lendable::new(shared);
        self.follow_all(outcomes)
    }

    /// The connection that an event is of, if it may be lent out and is not.
    fn number_to_lend(&self, event: &Ready) -> Option<usize> {
        let number = (event.token & NUMBER_MASK) as usize;
        let is_connection = event.token & !NUMBER_MASK == CONNECTION;
        let peer = self.peers.get(number).filter(|peer| is_connection && !peer.connection.is_lent_out())?;
        // Of one without interest only its end is announced: see `turn_those`.
        let may = peer.interest != Interest::default() && peer.connection.wants_input() && self.may_be_lent(number);
        may.then_some(number)
    }

    fn lend_to_crew(&mut self, numbers: Vec<usize>, shared: &Arc<ServeState>) {
        let task = |number| {
            let connection = self.peers.get_mut(number)?.connection.take()?;
            Some(Task { number, connection, shared: Arc::clone(shared) })
        };
        let tasks: Vec<Task> = numbers.into_iter().filter_map(task).collect();
        if !tasks.is_empty() {
            self.looks += tasks.len() as u64;
            self.crew.add(tasks);
        }
    }

    fn follow_all(&mut self, outcomes: Vec<(usize, Outcome)>) -> usize {
        let (mut moved, mut panicked) = (Vec::new(), None);
        for (number, turn) in outcomes {
            let has_moved = match turn {
                Ok(turn) => self.follow(number, turn),
                Err(panic) => {
                    panicked = Some(panic);
                    false
                }
            };
            if has_moved {
                self.remember(number);
                moved.push(number);
            }
        }
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
        moved.sort_unstable();
        moved.dedup();
        moved.len()
    }
}
