//! What can be chosen.

use crate::costs::Costs;
use crate::paging::OnDemand;

/// All buffers for what arrives are at most so many bytes.
pub(crate) const RECEIVE_BYTES_MAX: usize = 64 << 20;

/// How the netmod behaves. The defaults are for a device of today and a job of some dozen nodes.
#[derive(Clone, Debug)]
pub struct VerbsOptions {
    /// Which device and port: `NAME`, `NAME:PORT` or `NAME:PORT:GID`, where GID is an index of the port's table. Empty:
    /// the nearest device with an active port.
    pub device: String,
    /// Whether somebody has asked for it: then it is worth a warning if it cannot be used.
    pub demanded: bool,
    /// Bytes of a preregistered buffer.
    pub slab_bytes: usize,
    /// Bytes of the buffers that all connections send from, together. Some each are there in any case.
    pub outgoing_bytes_max: usize,
    /// Buffers that a peer may fill before it hears from us again. Fewer where many peers are expected.
    pub credits: u16,
    /// Requests of one connection that may be under way, if the device takes so many. More than messages that a peer has
    /// buffers for: the rest is for reads and writes of its memory.
    pub queue_depth: u32,
    /// Reads that a peer may have under way, if the device answers so many. Without any, gets are served.
    pub reads_at_once_max: u8,
    /// How many peers are expected at most: ranks of other nodes, or where nodes have routers their trunks and the ranks' own connections.
    pub peers: usize,
    /// How long a packet is waited for before it is sent again: 4.096 µs times two to the power of this, seven times.
    pub timeout_code: u8,
    /// Below this, lent memory is copied through buffers. `None`: what follows from the costs.
    pub register_bytes_min: Option<usize>,
    /// What copying, registering and sending cost. `None`: it is measured when the device is opened.
    pub costs: Option<Costs>,
    /// Bytes of the program's own memory that are registered at a time, in use or kept for the next transfer.
    pub cache_bytes_max: usize,
    /// What is registered on demand, where the device has shown that it does that right.
    pub on_demand: OnDemand,
    /// More memory than this is never registered for one window, unless on demand: its pages would have to stay in memory all at once.
    pub pinned_bytes_max: u64,
    /// More memory than this is never registered for all windows of this process together: pages that nobody has touched yet
    /// would be made too, until the machine has none left.
    pub pinned_together_bytes_max: u64,
}

impl Default for VerbsOptions {
    fn default() -> Self {
        Self {
            device: String::new(),
            demanded: false,
            slab_bytes: 8 << 10,
            outgoing_bytes_max: 64 << 20,
            credits: 8,
            queue_depth: 128,
            reads_at_once_max: 16,
            peers: 1,
            timeout_code: 14,
            register_bytes_min: None,
            costs: None,
            cache_bytes_max: 1 << 30,
            on_demand: OnDemand::Auto,
            pinned_bytes_max: 16 << 30,
            pinned_together_bytes_max: memory_bytes() / 2,
        }
    }
}

/// What this machine has.
fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(system.mem_unit.into())
}

impl VerbsOptions {
    /// Buffers for each peer, so that all of them together stay within bounds.
    pub(crate) fn credits_each(&self) -> u16 {
        // Peers that call, and peers that are called.
        let fair = RECEIVE_BYTES_MAX / self.slab_bytes.max(1) / (2 * self.peers.max(1));
        let fair = u16::try_from(fair).unwrap_or(u16::MAX);
        self.credits.min(fair).max(longarm_proto::rdma::CREDITS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_peers_get_fewer_buffers_each_and_never_too_few() {
        let credits = |peers| VerbsOptions { peers, ..VerbsOptions::default() }.credits_each();
        assert_eq!((credits(1), credits(512)), (8, 8));
        assert_eq!((credits(750), credits(100_000)), (5, 4));
    }
}
