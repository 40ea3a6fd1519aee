//! The other end of a connection: which node it is, how it is called, and within which bounds.

use std::sync::Arc;

use longarm_netmod::flow::Costs;
use longarm_proto::{NodeId, Rank};

use crate::progress::dialing::Dial;
use crate::progress::time::Time;

/// The bounds of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointOptions {
    /// Who calls. Pauses between calls differ from rank to rank.
    pub caller: Rank,
    /// Bytes that are copied and wait to be sent, or to be acknowledged, at most.
    pub buffered_bytes_max: usize,
    /// How long the first connection may take.
    pub connect_ms: u64,
    /// How long a connection that broke may take to be made anew. 0: it is lost at once.
    pub reconnect_ms: u64,
    /// How long a server that is waited for may be silent before its connection counts as broken.
    pub silence_ms: u64,
    /// What packing and sending cost, which says how much is packed at a time.
    pub costs: Costs,
}

/// See the module.
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) host: Rank,
    pub(super) dial: Arc<dyn Dial>,
    pub(super) time: Arc<dyn Time>,
    pub(super) options: EndpointOptions,
}
