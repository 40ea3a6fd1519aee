//! What a routed network is made of.

use std::sync::Arc;

use longarm_proto::{Identity, Secret};

use crate::traits::Netmod;

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
    /// Nodes that this process connects to by itself, at most: the first ones that it calls.
    pub direct_nodes_max: usize,
    /// Such connections of ranks of other nodes that are taken in here at a time. 0: ranks do not connect, whatever the former number says. Has to be 0 on all
    /// nodes or on none.
    pub direct_links_max: usize,
    /// How long nothing may come over a trunk on which a channel waits, at most, in milliseconds: so that a rank that goes on calling finds
    /// another one before it gives up.
    pub silence_ms_max: u64,
    /// How long a connection may take to prove itself, in milliseconds.
    pub handshake_timeout_ms: u64,
}
