//! `routed`: the servers of nodes connect, and the ranks of a node go through theirs, but for a few connections that each has by itself.
//!
//! ```text
//!   node A                                       node B
//!   rank 0 (hosts the server) ──┐                ┌── server
//!   rank 1 ══ line ══════════ router ══ trunk ══ router
//!   rank 2 ══ line ═════════════┘    (one link)
//! ```
//!
//! To the nodes that it calls first a rank has connections of its own, as many as its share of what a node may have allows (`own`). At
//! every other node it talks to it has a channel: a stream of bytes with credits of its own, so that one slow target stops
//! nobody else. All channels from one node to another share a trunk, which is one link of the network below. A rank that does not host its node's server has
//! a line to it, one unix socket which carries its channels in the same way; the router carries each on over a trunk. So channels cost nodes × nodes connections in
//! place of ranks × nodes, and a line for each rank. What the channels carry is what links carry without a router, handshakes, encryption and
//! sessions included: a trunk that breaks is a link that breaks, for each of its channels.
//!
//! What channels cost: a copy and two system calls more for each rank that is not the server's host, and that the server's thread of its own
//! node takes part in each of its operations. Over channels nothing reaches memory without the target's server.

mod address;
mod channel;
mod line;
mod options;
mod own;
mod router;
mod table;
#[cfg(test)]
mod tests;
mod tick;
mod trunk;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::direct::{NoDeviceRmw, RemoteMemory};
use crate::link_error::LinkError;
use crate::poller::Poller;
use crate::traits::{Capabilities, Intake, Link, Listener, Netmod};
use address::{Address, for_routers};
pub use options::RoutedOptions;
use own::{Choice, OwnNodes};
use router::Router;
pub use tick::ROUTER_TICK_MS;
pub use trunk::TRUNK_SESSION;

/// The netmod. The process that listens has the node's router; the others of the node reach it by its name. Addresses are
/// `NODE@ROUTER` or `NODE@ROUTER/SERVER`: the number of the node, and what the network below calls its router, and its server for connections of ranks' own.
pub struct Routed {
    options: Arc<RoutedOptions>,
    /// The router of this process, as long as somebody listens or has a channel.
    here: Mutex<Weak<Mutex<Router>>>,
    /// The line of this process, if it has no router. Made when a link is first wanted.
    line: OnceLock<Arc<Line>>,
    /// The nodes that this process has connections of its own to.
    own: OwnNodes,
}

/// The way to a node that goes by routers, as people read it; what the network below calls its ways are addresses.
const BY_ROUTERS: &str = "the router of its node";

/// A rank's end of its line.
struct Line {
    router: Arc<Mutex<Router>>,
    poller: Arc<Poller>,
}

impl Intake for Line {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn turn(&self) {
        self.router.lock().drive();
    }
}

impl Routed {
    /// A netmod with these options. Opens nothing yet.
    ///
    /// # Panics
    /// When the network below has no descriptors to sleep on.
    pub fn new(options: RoutedOptions) -> Routed {
        assert!(options.netmod.capabilities().descriptor_sleep, "a router sleeps on descriptors");
        let own = OwnNodes::new(options.own_nodes_max);
        Routed { options: Arc::new(options), here: Mutex::new(Weak::new()), line: OnceLock::new(), own }
    }

    /// As if this process had ended, for simulators: its router takes nobody in any more, and its line or its trunks break.
    pub fn cut_off(&self) {
        let here = self.here.lock().upgrade();
        for router in here.iter().chain(self.line.get().map(|line| &line.router)) {
            router.lock().cut_off();
        }
    }

    /// For simulators, where no alarm rings: makes the router's descriptor readable if its time limits are due.
    pub fn ring(&self) {
        if let Some(router) = self.here.lock().upgrade() {
            router.lock().ring();
        }
    }

    fn line(&self) -> Result<&Arc<Line>, LinkError> {
        if let Some(line) = self.line.get() {
            return Ok(line);
        }
        let (router, poller) = Router::of_rank(Arc::clone(&self.options))?;
        // If another thread was quicker its line is the one, and nothing has gone over this one.
        let _ = self.line.set(Arc::new(Line { router: Arc::new(Mutex::new(router)), poller }));
        Ok(self.line.get().expect("set by now"))
    }
}

impl Netmod for Routed {
    fn name(&self) -> &'static str {
        self.options.netmod.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: self.options.reaches_memory(), descriptor_sleep: true }
    }

    fn remote_memory(&self) -> Option<Arc<dyn RemoteMemory>> {
        self.options.netmod.remote_memory().filter(|_| self.options.reaches_memory())
    }

    fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        Err(NoDeviceRmw::Routed)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.options.netmod.counts()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let mut here = self.here.lock();
        let is_first = here.strong_count() == 0;
        let (router, poller) = Router::open(Arc::clone(&self.options), is_first)?;
        let address = router.address().to_owned();
        let router = Arc::new(Mutex::new(router));
        if is_first {
            *here = Arc::downgrade(&router);
        }
        Ok(Box::new(RoutedListener { router, poller, address, is_corked: false }))
    }

    /// Asked for the first time for a node, this takes one of the places for connections of the process's own, if one is left.
    fn ways(&self, address: &str) -> Result<Vec<String>, LinkError> {
        let Address { node, server, .. } = Address::parse(address).ok_or(LinkError::BadAddress)?;
        let choice = if node == self.options.identity.node { Choice::ByRouters } else { self.own.choose(node) };
        let mut ways = match (choice, server) {
            (Choice::ByItself | Choice::Either, Some(server)) => self.options.netmod.ways(server)?,
            _ => Vec::new(),
        };
        if ways.is_empty() || (choice == Choice::Either && !self.options.has_device()) {
            ways.push(BY_ROUTERS.to_owned());
        }
        Ok(ways)
    }

    fn connect_by(&self, address: &str, way: &str) -> Result<Box<dyn Link>, LinkError> {
        if way != BY_ROUTERS {
            let server = Address::parse(address).and_then(|address| address.server).ok_or(LinkError::BadAddress)?;
            return self.options.netmod.connect_by(server, way);
        }
        let address = for_routers(address);
        match self.here.lock().upgrade() {
            Some(router) => Router::connect(&router, address),
            None => Router::connect(&self.line()?.router, address),
        }
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let ways = self.ways(address)?;
        self.connect_by(address, &ways[0])
    }

    fn intake(&self) -> Option<Arc<dyn Intake>> {
        self.line.get().map(|line| Arc::clone(line) as Arc<dyn Intake>)
    }
}

/// Where the server takes in channels. Its links move bytes while it is driven, by [`Listener::accept`] and [`Listener::drive`].
struct RoutedListener {
    router: Arc<Mutex<Router>>,
    poller: Arc<Poller>,
    address: String,
    is_corked: bool,
}

impl Listener for RoutedListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        Ok(Router::accept(&self.router))
    }

    fn drive(&mut self) -> bool {
        self.router.lock().drive();
        true
    }

    fn cork(&mut self) {
        if !std::mem::replace(&mut self.is_corked, true) {
            self.router.lock().cork();
        }
    }

    fn uncork(&mut self) {
        if std::mem::take(&mut self.is_corked) {
            self.router.lock().uncork();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for RoutedListener {
    fn drop(&mut self) {
        self.uncork();
        self.router.lock().stop_listening();
    }
}
