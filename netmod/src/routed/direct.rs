//! Connections of ranks themselves, beside those of the routers: each rank calls as many nodes directly as its share of what a node may have allows, and a server takes
//! in as many as a node may have.

use std::collections::HashSet;

use longarm_proto::NodeId;
use parking_lot::Mutex;

use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::poller::Poller;
use crate::traits::{Link, Listener};

/// By which ways a rank calls a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    Directly,
    ByRouters,
    /// By the routers if it cannot be had directly.
    Either,
}

/// The nodes that a rank calls directly: the first ones that it calls at all.
pub(super) struct DirectNodes {
    max: usize,
    called: Mutex<HashSet<NodeId>>,
}

impl DirectNodes {
    pub(super) fn new(max: usize) -> DirectNodes {
        DirectNodes { max, called: Mutex::default() }
    }

    /// For the next call of a node. One that has been called before was too busy to answer, or has as many connections as it may.
    pub(super) fn choose(&self, node: NodeId) -> Choice {
        let mut called = self.called.lock();
        if called.contains(&node) {
            return Choice::Either;
        }
        if called.len() >= self.max {
            return Choice::ByRouters;
        }
        called.insert(node);
        Choice::Directly
    }
}

/// Where ranks of other nodes reach a server by themselves.
pub(super) struct DirectListener {
    listener: Box<dyn Listener>,
    token: u64,
    /// The poller has announced somebody, and is silent until all are taken in: the server may have no room for them.
    is_announced: bool,
}

impl DirectListener {
    /// Takes in as many at a time as a node may have, and is watched under this token.
    pub(super) fn new(
        mut listener: Box<dyn Listener>,
        links_max: usize,
        poller: &Poller,
        token: u64,
    ) -> std::io::Result<DirectListener> {
        listener.limit_links(links_max);
        if let Some(descriptor) = listener.descriptor() {
            poller.add(descriptor, token, Interest::READABLE)?;
        }
        Ok(DirectListener { listener, token, is_announced: false })
    }

    /// Whether somebody waits to be taken in.
    pub(super) fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// The poller has announced somebody.
    pub(super) fn announce(&mut self, poller: &Poller) {
        self.is_announced = true;
        self.watch(poller, Interest::default());
    }

    /// The next rank that has come.
    pub(super) fn accept(&mut self, poller: &Poller) -> Result<Option<Box<dyn Link>>, LinkError> {
        if !self.is_announced {
            return Ok(None);
        }
        let next = self.listener.accept()?;
        if next.is_none() {
            self.is_announced = false;
            self.watch(poller, Interest::READABLE);
        }
        Ok(next)
    }

    fn watch(&self, poller: &Poller, interest: Interest) {
        if let Some(descriptor) = self.listener.descriptor()
            && let Err(error) = poller.modify(descriptor, self.token, interest)
        {
            tracing::error!(%error, "cannot watch for ranks that call directly");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nodes_are_called_directly_and_by_either_way_from_then_on() {
        let nodes = DirectNodes::new(2);
        let choices = [5, 5, 7, 8, 7, 8, 5].map(|node| nodes.choose(NodeId(node)));
        use Choice::*;
        assert_eq!(choices, [Directly, Either, Directly, ByRouters, Either, ByRouters, Either]);
        assert_eq!(DirectNodes::new(0).choose(NodeId(1)), ByRouters);
    }
}
