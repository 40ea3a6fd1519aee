//! The rank that asks, and what it is told where the answer is no.

use longarm_proto::{Rank, Refusal, RequestId};

/// Who asked, and where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asker {
    pub(crate) connection: usize,
    pub(crate) rank: Rank,
    pub(crate) id: RequestId,
}

/// A refusal and the number that explains it.
pub(crate) type Refused = (Refusal, u64);
