//! Addresses of nodes behind their routers.

use longarm_proto::NodeId;

pub(super) fn address(node: NodeId, network_address: &str) -> String {
    format!("{node}@{network_address}")
}

/// The node, and its address in the network below.
pub(super) fn parse_address(address: &str) -> Option<(NodeId, &str)> {
    let (node, network_address) = address.split_once('@')?;
    let node = node.parse().ok().filter(|_| node.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((NodeId(node), network_address))
}
