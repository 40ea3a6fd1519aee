//! Direct transfers of a connection that are not wholly posted, and those that are over.

use std::collections::VecDeque;
use std::sync::Arc;

use longarm_netmod::{DirectOutcome, Loan};

use crate::requests::Act;

/// What waits for room, and what is over.
#[derive(Default)]
pub(crate) struct Direct {
    pub(crate) backlog: VecDeque<Transfer>,
    pub(crate) outcomes: VecDeque<(u64, DirectOutcome)>,
    /// Where the last write went that no read has followed yet. Only over iWARP, as what follows.
    pub(crate) to_prove: Option<(u64, u32)>,
    /// Puts whose writes have ended here, and the numbers behind them: a read has to come back before they are done.
    pub(crate) unproven: VecDeque<(u64, u32)>,
}

impl Direct {
    /// A read has come back, and what was written before it has arrived.
    pub(crate) fn prove(&mut self) {
        self.outcomes.extend(self.unproven.drain(..).map(|(ticket, _)| (ticket, DirectOutcome::Done)));
    }
}

/// A transfer that is not wholly posted.
pub(crate) struct Transfer {
    pub(crate) ticket: u64,
    pub(crate) local: LocalMemory,
    pub(crate) remote: u64,
    pub(crate) remote_key: u32,
    pub(crate) bytes: usize,
    pub(crate) posted: usize,
    pub(crate) act: Act,
}

/// Where the bytes of a transfer are, or go, at this end.
#[derive(Clone)]
pub(crate) enum LocalMemory {
    Lent(Arc<dyn Loan>),
    /// Copied, because no buffer was free when they had to be.
    Kept(Arc<[u8]>),
    /// The old value of a word, which goes on with the outcome.
    Word,
}
