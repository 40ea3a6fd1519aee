//! Direct transfers that a connection has left behind, and what became of each.

use longarm_netmod::DirectOutcome;

use crate::packets::was_done;

/// A direct transfer that a connection leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unresolved {
    pub(crate) ticket: u64,
    /// The number behind its last packet, if all of it went out and the peer's memory is what matters.
    pub(crate) behind: Option<u32>,
    /// It updates a word.
    pub(crate) is_atomic: bool,
    /// It is done again where nobody knows whether it was done: over iWARP nobody ever does.
    pub(crate) is_repeated: bool,
    /// What is known already.
    pub(crate) outcome: Option<DirectOutcome>,
}

impl Unresolved {
    /// One of which all is known.
    pub(crate) fn ended(ticket: u64, outcome: DirectOutcome) -> Unresolved {
        Unresolved { ticket, behind: None, is_atomic: false, is_repeated: false, outcome: Some(outcome) }
    }

    /// Without word of the peer nobody knows: what was done is not done again, as others may have changed the place meanwhile. What
    /// did not go out as a whole, and what only reads, was not done.
    pub(crate) fn outcome(&self, executed: Option<u32>) -> DirectOutcome {
        let is_done = |behind| executed.map(|executed| was_done(behind, executed));
        match (self.outcome, self.behind.map(is_done)) {
            (Some(outcome), _) => outcome,
            (None, Some(Some(true))) if self.is_atomic => DirectOutcome::ValueLost,
            (None, Some(Some(true))) => DirectOutcome::Done,
            (None, Some(None)) if !self.is_repeated => DirectOutcome::Unknown,
            _ => DirectOutcome::NotDone,
        }
    }
}
