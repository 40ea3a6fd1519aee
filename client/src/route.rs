//! How a target is reached: the one place that asks whether it is on the same node, and opens the connection if it is not.

use std::sync::Arc;

use longarm_proto::{NodeId, Rank};
use longarm_shm::Window;
use longarm_shm::sync::Ordering;

use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::{Lost, LostHow, Operation, TransferError};
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;
use crate::window::ClientWindow;

/// How a target's part of a window is reached.
pub(crate) enum Route<'a> {
    /// It is mapped here: loads, stores and CPU atomics.
    Direct(Window<'a>),
    /// Its node's server does it.
    Served(&'a Endpoint),
}

impl Client {
    /// How the part of `rank` is reached. The caller has checked that the rank has one.
    #[inline]
    pub(crate) fn route<'a>(
        &'a self,
        window: &'a ClientWindow,
        operation: Operation,
        rank: Rank,
    ) -> Result<Route<'a>, TransferError> {
        if self.local.failures.is_dead(rank) {
            self.local.alive(operation, rank)?;
        }
        match window.part_here(operation, rank)? {
            Some(part) => Ok(Route::Direct(part)),
            None => Ok(Route::Served(self.endpoint(operation, self.local.layout.node_of(rank))?)),
        }
    }

    /// The connection to a node, opened now if need be.
    pub(crate) fn endpoint(&self, operation: Operation, node: NodeId) -> Result<&Endpoint, Lost> {
        let place = &self.progress.endpoints[node.0 as usize];
        let endpoint: &Endpoint = match place.get() {
            Some(endpoint) => endpoint,
            None => self.open(operation, node)?,
        };
        match endpoint.broken() {
            None => Ok(endpoint),
            Some(how) => Err(self.progress.lost(operation, endpoint, how.clone())),
        }
    }

    #[cold]
    fn open(&self, operation: Operation, node: NodeId) -> Result<&Endpoint, Lost> {
        let host = self.local.layout.server_host(node);
        let endpoint: &Endpoint = {
            let _nobody_closes = self.progress.dialing.lock();
            if self.progress.closed.load(Ordering::Acquire) {
                return Err(Lost { rank: host, node, operation, how: LostHow::Finalized });
            }
            if let Some(how) = self.progress.cut_off.get() {
                return Err(self.local.lost_host(operation, host, how.clone()));
            }
            self.progress.endpoints[node.0 as usize].get_or_init(|| {
                let (dial, time) = (Arc::clone(&self.progress.dial), Arc::clone(&self.progress.time));
                Box::new(Endpoint::new(node, host, dial, time, self.progress.endpoint_options))
            })
        };
        // A death that was noted before the lock was taken has given up all but this one, which would be called for as long as
        // connecting may take.
        if let Some(death) = self.local.failures.of(host) {
            endpoint.give_up(LostHow::Died(death.how));
        }
        // Who asks first hears at once if nobody answers. Not `is_up`: the connection may break in the very moment it
        // is made, and nobody makes it anew while nothing waits to be sent.
        self.wait_for(Drive::Endpoint(endpoint), Awaited::rank(operation, host), || {
            (endpoint.is_known() || endpoint.broken().is_some()).then_some(())
        });
        Ok(endpoint)
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
