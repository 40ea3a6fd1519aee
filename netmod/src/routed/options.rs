//! What a routed network is made of.

use std::sync::Arc;

use longarm_proto::{Identity, Secret};

use crate::clock::CoarseClock;
use crate::direct::NoDeviceRmw;
use crate::link_error::LinkError;
use crate::traits::{Listener, Netmod};

/// See the module.
#[derive(Clone)]
pub struct RoutedOptions {
    /// The network between the nodes. Its links have descriptors to sleep on.
    pub netmod: Arc<dyn Netmod>,
    /// Abstract name of the socket by which the ranks of this node find its router.
    pub socket_name: String,
    /// Who this process is: routers prove themselves to each other.
    pub identity: Identity,
    /// By what.
    pub secret: Secret,
    /// Nodes of the job.
    pub node_count: u32,
    /// Connections that have not proven themselves yet, at most, besides one of each node of the job.
    pub half_open_max: usize,
    /// Nodes that this process has connections of its own to, past the routers, at most: the first ones that it calls.
    pub own_nodes_max: usize,
    /// Such connections of ranks of other nodes that are taken in here at a time; where a device reaches memory over them all are. 0: ranks have
    /// none, whatever the former number says. Has to be 0 on all nodes or on none.
    pub own_links_max: usize,
    /// How long no opening of a channel may be answered over a trunk, at most, in milliseconds: so that a rank that goes on calling mostly finds
    /// another one before it gives up: a later opening waits from the answer to the one before it on.
    pub unanswered_ms_max: u64,
    /// How long a connection may take to prove itself, in milliseconds.
    pub handshake_timeout_ms: u64,
    /// The time in a simulator, which has to call [`Routed::ring`](super::Routed::ring) and give the router a turn then, every
    /// [`ROUTER_TICK_MS`](super::ROUTER_TICK_MS) milliseconds. `None`: the system's clock and alarms.
    pub simulated_clock: Option<CoarseClock>,
}

impl RoutedOptions {
    /// Whether ranks have connections of their own, past the routers.
    pub(super) fn has_own_links(&self) -> bool {
        self.own_links_max > 0
    }

    /// Whether devices may reach memory over these.
    pub(super) fn reaches_memory(&self) -> bool {
        self.has_own_links() && self.netmod.capabilities().remote_memory
    }

    /// Whether a device is there that does so, which is opened for that. What it has begun ends only over a connection of its kind: no channel takes the place of
    /// such a one.
    pub(super) fn has_device(&self) -> bool {
        let has_none = [NoDeviceRmw::Network, NoDeviceRmw::NoDevice, NoDeviceRmw::Served];
        self.reaches_memory() && !self.netmod.device_rmw().is_err_and(|why| has_none.contains(&why))
    }

    /// Where ranks of other nodes call the server. Whom it hangs up on goes by the routers, so it hangs up on nobody where they could not carry on.
    pub(super) fn listen_for_ranks(&self) -> Result<Box<dyn Listener>, LinkError> {
        let mut listener = self.netmod.listen()?;
        if !self.has_device() {
            listener.limit_links(self.own_links_max);
        }
        Ok(listener)
    }
}
