//! Which network the nodes talk over.

use std::sync::Arc;

use longarm_client::Layout;
use longarm_netmod::{Congestion, Interface, Netmod, Routed, RoutedOptions, SocketBuffers, Tcp, TcpOptions};
use longarm_proto::{Identity, Secret};
use longarm_server::door::door_name;
use rustix::process::Resource;

use crate::config::{Config, NetworkChoice};
use crate::error::InitError;

/// The network that the configuration asks for, or that the machine has; in large jobs with a router on each node.
///
/// # Errors
/// [`InitError::Network`] when one was asked for by name and cannot be used.
pub(crate) fn network(
    config: &Config,
    layout: &Layout,
    identity: Identity,
    secret: &Secret,
    interfaces: &[Interface],
) -> Result<Arc<dyn Netmod>, InitError> {
    let netmod = network_below(config, layout, interfaces)?;
    if !is_routed(config, layout) {
        return Ok(netmod);
    }
    // Neither a rank nor its server can have more connections than its process has descriptors for.
    let connections_max = (descriptors_max() / 2) as usize;
    Ok(Arc::new(Routed::new(RoutedOptions {
        netmod,
        socket_name: format!("{}-router", door_name(identity.job, identity.node)),
        identity,
        secret: secret.clone(),
        node_count: layout.node_count(),
        half_open_max: config.half_open_max as usize,
        own_nodes_max: own_nodes_max(config, layout).min(connections_max),
        own_links_max: connections_max.min(config.connections_max as usize),
        // In half of the time for which ranks go on calling.
        unanswered_ms_max: (config.reconnect_s.min(config.connect_timeout_s) * 500).max(TRUNK_UNANSWERED_MS_MIN),
        handshake_timeout_ms: config.handshake_timeout_ms,
        simulated_clock: None,
    })))
}

/// However short ranks wait, a trunk is not given up before.
const TRUNK_UNANSWERED_MS_MIN: u64 = 800;

/// How many descriptors this process may have, as it raises its limit.
fn descriptors_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Whether nodes have routers: some node could have more connections than it may, if each of its ranks called all other nodes.
pub(crate) fn is_routed(config: &Config, layout: &Layout) -> bool {
    let nodes_elsewhere = u64::from(layout.node_count()) - 1;
    u64::from(layout.ranks_per_node_max()) * nodes_elsewhere > config.connections_max
}

/// How many nodes this rank may call by itself where nodes have routers: the ranks of its node share what that may have.
fn own_nodes_max(config: &Config, layout: &Layout) -> usize {
    config.connections_max as usize / layout.ranks_of(layout.my_node()).len()
}

fn network_below(config: &Config, layout: &Layout, interfaces: &[Interface]) -> Result<Arc<dyn Netmod>, InitError> {
    let tcp = tcp_options(config, interfaces);
    let stays_here = interfaces.iter().all(|interface| interface.address().is_loopback());
    match config.network {
        NetworkChoice::Tcp => Ok(Arc::new(Tcp::new(tcp))),
        // Nodes of one machine gain nothing by a device, and all of them see the same address.
        NetworkChoice::Auto if stays_here => Ok(Arc::new(Tcp::new(tcp))),
        NetworkChoice::Auto => Ok(verbs_or_tcp(config, layout, tcp)),
        NetworkChoice::Verbs => verbs_demanded(config, layout, tcp),
    }
}

fn tcp_options(config: &Config, interfaces: &[Interface]) -> TcpOptions {
    TcpOptions {
        interfaces: interfaces.to_vec(),
        socket_buffers: match config.socket_buffer_bytes {
            0 if config.is_set("LONGARM_SOCKET_BUFFER_BYTES") => SocketBuffers::Kernel,
            0 => SocketBuffers::ByRoundTrip,
            bytes => SocketBuffers::Fixed(bytes as usize),
        },
        congestion: match config.tcp_congestion.as_str() {
            "" => Congestion::ByRoundTrip,
            "kernel" => Congestion::Kernel,
            name => Congestion::Named(name.into()),
        },
        multipath: config.tcp_multipath,
    }
}

/// What the configuration says, for a node of this number.
#[cfg(feature = "verbs")]
pub(crate) fn verbs_options(config: &Config, node: u32) -> longarm_verbs::VerbsOptions {
    let mut devices = config.verbs_device.split(',').map(str::trim);
    let count = devices.clone().count();
    let device = devices.nth(node as usize % count.max(1)).unwrap_or_default();
    longarm_verbs::VerbsOptions {
        device: device.to_owned(),
        demanded: config.network == NetworkChoice::Verbs || config.is_set("LONGARM_VERBS_DEVICE"),
        slab_bytes: config.verbs_slab_bytes as usize,
        credits: config.verbs_credits as u16,
        timeout_code: config.verbs_timeout as u8,
        pinned_bytes_max: if config.verbs_direct { config.verbs_pinned_bytes_max } else { 0 },
        register_bytes_min: (config.verbs_register_bytes > 0).then_some(config.verbs_register_bytes as usize),
        cache_bytes_max: config.verbs_cache_bytes as usize,
        on_demand: match config.verbs_on_demand {
            crate::config::OnDemandChoice::Auto => longarm_verbs::OnDemand::Auto,
            crate::config::OnDemandChoice::All => longarm_verbs::OnDemand::All,
            crate::config::OnDemandChoice::No => longarm_verbs::OnDemand::No,
        },
        ..longarm_verbs::VerbsOptions::default()
    }
}

#[cfg(feature = "verbs")]
fn verbs(config: &Config, layout: &Layout, tcp: TcpOptions) -> longarm_verbs::Verbs {
    let is_elsewhere = |rank: &u32| layout.node_of(longarm_proto::Rank(*rank)) != layout.my_node();
    let ranks_elsewhere = (0..layout.rank_count()).filter(is_elsewhere).count();
    let nodes_elsewhere = layout.node_count() as usize - 1;
    let peers = match is_routed(config, layout) {
        // A trunk to each node and one from it, what this rank calls by itself, and what its server takes in.
        true => 2 * nodes_elsewhere + own_nodes_max(config, layout) + config.connections_max as usize,
        false => ranks_elsewhere,
    };
    let options = longarm_verbs::VerbsOptions { peers, ..verbs_options(config, layout.my_node().0) };
    longarm_verbs::Verbs::new(tcp, options)
}

#[cfg(feature = "verbs")]
fn verbs_or_tcp(config: &Config, layout: &Layout, tcp: TcpOptions) -> Arc<dyn Netmod> {
    // Also where this machine has no device: another may have one, and both have to speak alike.
    Arc::new(verbs(config, layout, tcp))
}

#[cfg(feature = "verbs")]
fn verbs_demanded(config: &Config, layout: &Layout, tcp: TcpOptions) -> Result<Arc<dyn Netmod>, InitError> {
    let verbs = verbs(config, layout, tcp);
    if layout.rank_count() > 1 {
        verbs.open().map_err(|error| InitError::Network { reason: error.to_string() })?;
    }
    Ok(Arc::new(verbs))
}

#[cfg(not(feature = "verbs"))]
fn verbs_or_tcp(_: &Config, _: &Layout, tcp: TcpOptions) -> Arc<dyn Netmod> {
    Arc::new(Tcp::new(tcp))
}

#[cfg(not(feature = "verbs"))]
fn verbs_demanded(_: &Config, _: &Layout, _: TcpOptions) -> Result<Arc<dyn Netmod>, InitError> {
    let reason = "this build has no verbs; build it with `--features verbs`, or set LONGARM_NETMOD=tcp".to_owned();
    Err(InitError::Network { reason })
}

#[cfg(test)]
mod tests {
    use longarm_proto::{NodeId, Rank};

    use super::*;

    #[test]
    fn a_job_has_routers_if_its_largest_node_could_have_too_many_connections_and_its_ranks_share_what_it_may_have() {
        // Nodes of three ranks and of two: at most three times one connection.
        let layout = Layout::new(Rank(0), &[0, 0, 0, 1, 1].map(NodeId));
        let with = |connections_max| {
            let mut config = Config::default();
            config.connections_max = connections_max;
            config
        };
        assert!(!is_routed(&with(3), &layout) && is_routed(&with(2), &layout) && is_routed(&with(0), &layout));
        let shares = |max| [0, 4].map(|rank| own_nodes_max(&with(max), &layout.of(Rank(rank))));
        assert_eq!([shares(0), shares(2), shares(7)], [[0, 0], [0, 1], [2, 3]]);
        let alone = Layout::new(Rank(0), &[NodeId(0); 4]);
        assert!(!is_routed(&with(0), &alone), "one node has nobody to connect to");
    }
}
