//! Connections of ranks' own, past the routers: each rank has as many as its share of what a node may have allows, and a server takes in as
//! many as a node may have.

use std::collections::HashSet;

use longarm_proto::NodeId;
use parking_lot::Mutex;

use crate::interest::Interest;
use crate::poller::Poller;
use crate::traits::{Link, Listener};

/// By which ways a rank calls a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    ByItself,
    ByRouters,
    /// By the routers if the rank's own call leads nowhere.
    Either,
}

/// The nodes to which a rank has connections of its own: the first ones that it calls at all.
pub(super) struct OwnNodes {
    max: usize,
    called: Mutex<HashSet<NodeId>>,
}

impl OwnNodes {
    pub(super) fn new(max: usize) -> OwnNodes {
        OwnNodes { max, called: Mutex::default() }
    }

    /// For the next call of a node. One that has been called before has refused, being too busy or full, or the connection broke.
    pub(super) fn choose(&self, node: NodeId) -> Choice {
        let mut called = self.called.lock();
        if called.contains(&node) {
            return Choice::Either;
        }
        if called.len() >= self.max {
            return Choice::ByRouters;
        }
        called.insert(node);
        Choice::ByItself
    }
}

/// Where ranks of other nodes reach a server by themselves.
pub(super) struct RankListener {
    listener: Box<dyn Listener>,
    token: u64,
    /// The poller has announced somebody, and is silent until all are taken in: the server may have no room for them.
    is_announced: bool,
    /// Somebody could not be taken in a moment ago. Most likely no descriptor was free.
    rests: bool,
}

impl RankListener {
    /// Is watched under this token.
    pub(super) fn new(listener: Box<dyn Listener>, poller: &Poller, token: u64) -> std::io::Result<RankListener> {
        if let Some(descriptor) = listener.descriptor() {
            poller.add(descriptor, token, Interest::READABLE)?;
        }
        Ok(RankListener { listener, token, is_announced: false, rests: false })
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
    pub(super) fn accept(&mut self, poller: &Poller) -> Option<Box<dyn Link>> {
        if !self.is_announced {
            return None;
        }
        let next = self.listener.accept();
        self.is_announced = matches!(next, Ok(Some(_)));
        match next {
            Ok(Some(link)) => return Some(link),
            Ok(None) => self.watch(poller, Interest::READABLE),
            Err(error) => {
                // The listener stays readable, so it is not watched for a while. Channels go on.
                tracing::warn!("cannot take in a connection of a rank: {error}");
                self.rests = true;
            }
        }
        None
    }

    /// Whether [`RankListener::look_after`] has something to do some time, which nothing announces.
    pub(super) fn rests(&self) -> bool {
        self.rests
    }

    /// Now and then: takes in again after a pause.
    pub(super) fn look_after(&mut self, poller: &Poller) {
        if std::mem::take(&mut self.rests) {
            self.watch(poller, Interest::READABLE);
        }
    }

    fn watch(&self, poller: &Poller, interest: Interest) {
        if let Some(descriptor) = self.listener.descriptor()
            && let Err(error) = poller.modify(descriptor, self.token, interest)
        {
            tracing::error!(%error, "cannot watch for ranks that call by themselves");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use super::*;
    use crate::link_error::LinkError;
    use crate::waker::Waker;

    /// Somebody waits there, and cannot be taken in.
    struct MockFull(Waker);

    impl Listener for MockFull {
        fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
            Err(rustix::io::Errno::MFILE.into())
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.descriptor())
        }

        fn address(&self) -> &str {
            "nowhere"
        }
    }

    #[test]
    fn a_listener_that_can_take_in_nobody_is_silent_until_it_is_looked_after() {
        let (waker, poller) = (Waker::new().unwrap(), Poller::new().unwrap());
        waker.wake();
        let mut ranks = RankListener::new(Box::new(MockFull(waker)), &poller, 7).unwrap();
        let is_ready = || {
            let mut ready = Vec::new();
            poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
            !ready.is_empty()
        };
        for _ in 0..2 {
            assert!(is_ready());
            ranks.announce(&poller);
            assert!(ranks.accept(&poller).is_none() && ranks.rests() && !ranks.is_announced());
            assert!(!is_ready(), "the router has other things to do");
            ranks.look_after(&poller);
            assert!(!ranks.rests());
        }
    }

    #[test]
    fn the_first_nodes_are_called_by_the_rank_itself_and_by_either_way_from_then_on() {
        let nodes = OwnNodes::new(2);
        let choices = [5, 5, 7, 8, 7, 8, 5].map(|node| nodes.choose(NodeId(node)));
        use Choice::*;
        assert_eq!(choices, [ByItself, Either, ByItself, ByRouters, Either, ByRouters, Either]);
        assert_eq!(OwnNodes::new(0).choose(NodeId(1)), ByRouters);
    }
}
