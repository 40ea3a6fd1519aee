//! The connections to other nodes: those that are open, and their end.

use std::collections::BTreeSet;

use longarm_proto::{NodeId, Rank};
use longarm_shm::sync::Ordering;

use super::Progress;
use super::waits::Awaited;
use crate::endpoint::Endpoint;
use crate::error::{Lost, LostHow, Operation};
use crate::wakers;

impl Progress {
    /// The connection to a node, if it was ever opened.
    pub(crate) fn endpoint_if_open(&self, node: NodeId) -> Option<&Endpoint> {
        self.endpoints.of(node)
    }

    /// Those connections that have something to do.
    pub(crate) fn occupied_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        // One that is just being opened is not found yet, and looked after by who opens it.
        self.occupied.iter().filter_map(|node| self.endpoints.of(node))
    }

    /// The connections to nodes from which something is to come: what these waits are for, or an answer that is due.
    pub(crate) fn awaited_endpoints(&self, waits: &[Awaited]) -> Vec<&Endpoint> {
        // `None`: one of the waits may be ended by any node.
        let nodes: Option<BTreeSet<NodeId>> =
            waits.iter().map(|awaited| awaited.only_node(&self.local.layout)).collect();
        match nodes {
            Some(nodes) if !self.answers.are_any_due() => {
                nodes.into_iter().filter_map(|node| self.endpoint_if_open(node)).collect()
            }
            nodes => {
                let is_awaited = |node| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
                let concerns = |node| is_awaited(node) || self.answers.are_due_from(node);
                self.open_endpoints().filter(|endpoint| concerns(endpoint.node())).collect()
            }
        }
    }

    /// Every connection that is open.
    pub(crate) fn open_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter()
    }

    /// A node card has come. A call may have waited for it: the thread or helper that drives the call looks again.
    pub(crate) fn on_node_card(&self) {
        // Most come before they are needed.
        if self.is_calling() {
            self.sleepers.completed();
            self.wake_helper_if_busy();
        }
    }

    /// A rank died: its connections fail, and everybody who sleeps looks again. For the thread that hears of it, once it has
    /// noted the death.
    pub(crate) fn on_death(&self, rank: Rank, how: &str) {
        // Who opens a connection before this is found below; who does it later finds the death noted.
        drop(self.dialing.lock());
        for endpoint in self.open_endpoints().filter(|endpoint| endpoint.host() == rank) {
            endpoint.give_up(LostHow::Died(how.to_owned()));
        }
        self.wake_all();
    }

    /// The server of this node is gone, and all connections went through it: nobody on other nodes can be reached any more.
    pub(crate) fn cut_off(&self, host: Rank, how: &str) {
        let how =
            LostHow::Failed(format!("it went through the server of this node, which rank {host} hosted, who {how}"));
        {
            let _nobody_opens = self.dialing.lock();
            let _ = self.cut_off.set(how.clone());
        }
        for endpoint in self.open_endpoints() {
            endpoint.give_up(how.clone());
        }
        self.wake_all();
    }

    /// Ends every conversation: what is asked of another node from now on is an error. Called once, at finalize.
    pub(crate) fn close(&self) {
        // Whoever is woken by this may call us.
        let _kept = wakers::keep();
        let _nobody_opens = self.dialing.lock();
        self.closed.store(true, Ordering::Release);
        for endpoint in self.open_endpoints() {
            endpoint.leave();
        }
        self.stop_helper();
        self.wake_all();
    }

    /// Everybody of this process who sleeps in a call looks again.
    pub(crate) fn wake_all(&self) {
        self.sleepers.wake_all();
        self.local.my_eventcount().notify();
        self.local.segment.window_eventcount(self.local.layout.local_of(self.local.layout.me())).notify();
        self.answers.tell_of_loss();
    }

    /// The error for a connection that ended, with what is known of the rank at its other end.
    pub(crate) fn lost(&self, operation: Operation, endpoint: &Endpoint, how: LostHow) -> Lost {
        self.local.lost_host(operation, endpoint.host(), how)
    }

    /// The nodes whose servers cannot be reached any more, although nobody knows of their deaths, with their connections.
    fn lost_endpoints(&self) -> impl Iterator<Item = (&Endpoint, &LostHow)> {
        let those = if self.occupied.any_lost() { Some(self.open_endpoints()) } else { None };
        those.into_iter().flatten().filter_map(|endpoint| {
            let how = endpoint.broken()?;
            how.lacks_a_death().then_some((endpoint, how))
        })
    }

    /// Why, for those whom the ranks of such a node may still reach.
    pub(crate) fn lost_nodes(&self) -> impl Iterator<Item = (NodeId, String)> {
        self.lost_endpoints().map(|(endpoint, how)| match how {
            LostHow::Failed(why) | LostHow::Unreachable(why) => (endpoint.node(), why.clone()),
            other => (endpoint.node(), format!("rank {} {other}", endpoint.host())),
        })
    }

    /// The host of a server that cannot be reached any more, although nobody knows of its death, or a rank that cannot reach this node.
    pub(crate) fn lost_any(&self, operation: Operation) -> Option<Lost> {
        self.lost_connection(operation, |_| true).or_else(|| self.local.out_of_reach(operation, |_| true))
    }

    /// The host of a server that cannot be reached any more, although nobody knows of its death, if its node is one of
    /// those that matter.
    pub(crate) fn lost_connection(&self, operation: Operation, matters: impl Fn(NodeId) -> bool) -> Option<Lost> {
        let those = self.lost_endpoints().filter(|(endpoint, _)| matters(endpoint.node()));
        // The lowest one, as others may have opened theirs in another order.
        let (endpoint, how) = those.min_by_key(|(endpoint, _)| endpoint.node())?;
        Some(self.lost(operation, endpoint, how.clone()))
    }

    /// A rank lives, and cannot reach this node any more: everybody who sleeps looks again.
    pub(crate) fn on_out_of_reach(&self, rank: Rank, how: &str) {
        self.local.out_of_reach.note(rank, how);
        self.wake_all();
    }
}
