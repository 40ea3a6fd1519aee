//! How many requests of a connection wait for an answer: what comes behind them may have to wait too.

use crate::requests::Act;

/// Requests that the peer's device has to answer, and has not answered.
#[derive(Clone, Copy, Default)]
pub(crate) struct AnswersDue {
    pub(crate) reads: usize,
    atomics: usize,
}

impl AnswersDue {
    pub(crate) fn any(self) -> bool {
        self.reads + self.atomics > 0
    }

    fn of(&mut self, act: Act) -> Option<&mut usize> {
        match act {
            Act::Write => None,
            Act::Read => Some(&mut self.reads),
            Act::Atomic(_) => Some(&mut self.atomics),
        }
    }

    pub(crate) fn add(&mut self, act: Act) {
        self.of(act).into_iter().for_each(|due| *due += 1);
    }

    pub(crate) fn remove(&mut self, act: Act) {
        self.of(act).into_iter().for_each(|due| *due -= 1);
    }
}
