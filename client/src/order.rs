//! Completion and order: quiet, quiet_rank, fence.
//!
//! Direct operations are done when their call returns, served ones are applied in the order in which they were
//! issued. Nothing on this node is served while it could also be direct, so that no direct operation has a served
//! one to the same place to overtake.

use longarm_proto::{Mutation, Rank, Request, mutation};
use longarm_shm::sync::{Ordering, fence};

use crate::client::Client;
use crate::completion::Completion;
use crate::endpoint::{Endpoint, Payload, Sending, Token};
use crate::error::{LostHow, Operation, TransferError};
use crate::progress::pace::{Drive, drive_for};
use crate::progress::waits::Awaited;

impl Client {
    /// Everything this rank has issued towards `rank` is visible there on return. `ARMCI_Fence`, `shmem_pe_quiet`.
    #[inline]
    pub fn quiet_rank(&self, rank: Rank) -> Result<(), TransferError> {
        let nothing_is_open = self.progress.endpoints.is_empty();
        // A dead rank is an error, which the long way gives.
        if nothing_is_open && !self.local.failures.any() && self.local.layout.contains(rank) {
            // SeqCst fence: as in `quiet_rank_long`.
            fence(Ordering::SeqCst);
            return Ok(());
        }
        self.quiet_rank_long(rank)
    }

    #[inline(never)]
    fn quiet_rank_long(&self, rank: Rank) -> Result<(), TransferError> {
        if !self.local.layout.contains(rank) {
            let ranks = self.local.layout.rank_count();
            return Err(TransferError::NoSuchRank { operation: Operation::Quiet, rank, ranks });
        }
        // Its node's server may well live, and would say that all is done.
        self.local.alive(Operation::Quiet, rank)?;
        // SeqCst fence: the stores before are visible before any load after, as a reply would make them.
        fence(Ordering::SeqCst);
        match self.progress.endpoint_if_open(self.local.layout.node_of(rank)) {
            Some(endpoint) if self.is_quiet_soon(endpoint) => Ok(()),
            Some(endpoint) => self.quiet_endpoints(&[endpoint]),
            None => Ok(()),
        }
    }

    /// Everything this rank has issued is visible at its targets on return. `ARMCI_AllFence`, `shmem_quiet`.
    #[inline]
    pub fn quiet(&self) -> Result<(), TransferError> {
        let nothing_is_open = self.progress.endpoints.is_empty();
        // SeqCst fence: as in `quiet_rank_long`. Loads behind it wait for it, so what there is to look at is looked at before.
        fence(Ordering::SeqCst);
        if nothing_is_open { Ok(()) } else { self.quiet_endpoints_before_handing_on() }
    }

    /// As [`Client::quiet`], but weaker on this node: a release fence instead of a full one. Enough before an exchange or a message that
    /// hands something on, such as a lock: whoever receives it sees what was stored before. It does not order those stores
    /// before later loads of this rank.
    #[inline]
    pub fn quiet_before_handing_on(&self) -> Result<(), TransferError> {
        // PAIR fence: with what is handed on, and with whoever acquires it.
        fence(Ordering::Release);
        if self.progress.endpoints.is_empty() { Ok(()) } else { self.quiet_endpoints_before_handing_on() }
    }

    #[inline(never)]
    fn quiet_endpoints_before_handing_on(&self) -> Result<(), TransferError> {
        if self
            .progress
            .open_endpoints()
            .all(|endpoint| self.is_quiet_soon(endpoint) || self.is_dead_and_told(endpoint))
        {
            return Ok(());
        }
        // What was issued towards a dead node without a reply of its own is lost, and said to be once. Nothing else depends on that
        // node: what has a reply is told to its caller if that one waits, and an unlock's does not.
        let (gone, there): (Vec<&Endpoint>, Vec<&Endpoint>) =
            self.progress.open_endpoints().partition(|endpoint| self.local.failures.is_dead(endpoint.host()));
        let mut result = self.quiet_endpoints(&there);
        for endpoint in gone.into_iter().filter(|endpoint| endpoint.take_unconfirmed()) {
            result = result.and(Err(self.progress.lost(Operation::Quiet, endpoint, LostHow::Closed).into()));
        }
        result
    }

    /// Whether nothing is under way towards a node, or only what a device brings to its end before it is worth to do anything
    /// else.
    fn is_quiet_soon(&self, endpoint: &Endpoint) -> bool {
        if endpoint.has_transfers() && !endpoint.is_unconfirmed() {
            let (is_over, driven) = endpoint.look_for_ends(self.inline_poll_looks());
            self.progress.note_driven(endpoint, Some(driven));
            if !is_over {
                return false;
            }
        }
        endpoint.is_at_rest() && endpoint.broken().is_none()
    }

    /// Whether a node's server is known to be dead, and what was lost with it has been said.
    fn is_dead_and_told(&self, endpoint: &Endpoint) -> bool {
        self.local.failures.is_dead(endpoint.host()) && endpoint.broken().is_some() && !endpoint.is_unconfirmed()
    }

    /// Operations issued after it towards a rank take effect after those issued before it. `shmem_fence`.
    pub fn fence(&self) {
        // PAIR fence: towards this node, plain stores before it are not seen after plain stores behind it. Towards
        // other nodes every operation is in order anyway.
        fence(Ordering::Release);
    }

    fn quiet_endpoints(&self, endpoints: &[&Endpoint]) -> Result<(), TransferError> {
        if mutation(Mutation::QuietEarly) {
            return Ok(());
        }
        let mut asked = Vec::new();
        let mut result: Result<(), TransferError> = Ok(());
        // One wait, of many parts: the helper is not to drive between them.
        let waiting = self.progress.helper.begin_wait();
        // What no server is involved in, none can answer for.
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.has_transfers()) {
            let awaited = Awaited::rank(Operation::Quiet, endpoint.host());
            let over = || (!endpoint.has_transfers()).then_some(());
            self.wait_for(Drive::Endpoint(endpoint), awaited, over);
            result = result.and(self.take_refused(endpoint).map_or(Ok(()), Err));
        }
        let any_asks = || endpoints.iter().any(|endpoint| !endpoint.is_at_rest());
        let expecting = any_asks().then(|| self.progress.expect_answer()).flatten();
        let drive_for = |endpoint| drive_for(endpoint, expecting.as_ref());
        // What was put last may have brought the question along.
        let (confirming, others): (Vec<_>, Vec<_>) =
            endpoints.iter().map(|endpoint| (*endpoint, endpoint.confirming())).partition(|(_, asked)| asked.is_some());
        let confirmed = confirming.into_iter().inspect(|(endpoint, asked)| {
            let awaited = Awaited::rank(Operation::Quiet, endpoint.host());
            let answered = || (endpoint.confirming() != *asked).then_some(());
            self.wait_for(drive_for(endpoint), awaited, answered);
        });
        for (endpoint, _) in others.into_iter().chain(confirmed) {
            if endpoint.is_at_rest() {
                if let Some(how) = endpoint.broken() {
                    result = result.and(Err(self.progress.lost(Operation::Quiet, endpoint, how.clone()).into()));
                }
                continue;
            }
            let (completion, part) = Completion::begin();
            let token = Token::Part(part);
            match self.issue(Operation::Quiet, endpoint, &Request::Quiet, Some(token), Payload::None, Sending::Now) {
                Ok(()) => asked.push((endpoint, completion)),
                // The other nodes are asked all the same.
                Err(lost) => result = result.and(Err(lost.into())),
            }
        }
        for (endpoint, completion) in asked {
            self.wait_complete(drive_for(endpoint), Awaited::rank(Operation::Quiet, endpoint.host()), &completion);
            let outcome = self.local.failure(&completion, Operation::Quiet, endpoint.host());
            let refused = self.take_refused(endpoint);
            if result.is_ok() {
                result = outcome.and(refused.map_or(Ok(()), Err));
            }
        }
        drop(waiting);
        self.progress.wake_helper_if_busy();
        result
    }

    fn take_refused(&self, endpoint: &Endpoint) -> Option<TransferError> {
        endpoint.take_refused().map(|outcome| self.local.explain(&outcome, Operation::Quiet, endpoint.host()))
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
