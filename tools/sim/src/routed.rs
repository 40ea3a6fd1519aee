//! Jobs whose nodes have routers: the real ones, over simulated links between nodes and real sockets within each. They sleep on descriptors, and so do
//! the servers and ranks that use them: who is not told by one goes on only when something else has him look.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Beacon, Capabilities, CoarseClock, DirectAccess, Interest, Link, LinkError, Listener, Netmod, Poller, Routed,
    RoutedOptions,
};
use longarm_proto::{Identity, JobId, NodeId, Rank, Secret};
use longarm_server::door::door_name;
use longarm_shm::sync::{AtomicBool, AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::hooks::{SimLink, SimListener};
use crate::network::{self, Owner};
use crate::plan::Shape;

/// How long nothing may come over a trunk on which a channel waits, in milliseconds.
const TRUNK_SILENCE_MS: u64 = 2_000;
/// How long a connection between routers may take to prove itself.
const HANDSHAKE_TIMEOUT_MS: u64 = 5_000;
/// Connections that have not, besides one of each node.
const HALF_OPEN_MAX: usize = 2;
/// What announces what comes over a rank's line.
const LINE: u64 = 0;

/// The network between routers.
struct SimNetmod {
    run: u64,
    node: u32,
}

impl Netmod for SimNetmod {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: false, descriptor_sleep: true }
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(SimListener::announced(self.run, self.node)?))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let node = address.strip_prefix("sim:").and_then(|node| node.parse().ok()).ok_or(LinkError::BadAddress)?;
        let number = network::with(|network| network.call(Owner::Server(self.node), node))?;
        Ok(Box::new(SimLink::announced(self.run, number, 0)?))
    }
}

/// The router of a node, which the node's server drives.
pub struct Router {
    /// What the server's process has of the routed network.
    netmod: Arc<Routed>,
    /// Where others reach it.
    pub address: String,
}

impl Router {
    /// That of a node, and what its server listens with.
    ///
    /// # Errors
    /// When it cannot be reached by others.
    pub fn begin(
        shape: &Shape,
        job: (JobId, u64),
        secret: &Secret,
        node: u32,
    ) -> Result<(Router, Box<dyn Listener>), String> {
        let netmod = netmod(shape, job, secret, shape.ranks_of(node).start);
        let listener = netmod.listen().map_err(|error| error.to_string())?;
        let address = listener.address().to_owned();
        Ok((Router { netmod, address }, listener))
    }
}

/// What a process of a node, that of this rank, has of the routed network.
fn netmod(shape: &Shape, (job, run): (JobId, u64), secret: &Secret, rank: u32) -> Arc<Routed> {
    let node = shape.node_of(rank);
    Arc::new(Routed::new(RoutedOptions {
        netmod: Arc::new(SimNetmod { run, node }),
        socket_name: format!("{}-router", door_name(job, NodeId(node))),
        identity: Identity { job, rank: Rank(rank), node: NodeId(node) },
        secret: secret.clone(),
        node_count: shape.nodes(),
        half_open_max: HALF_OPEN_MAX,
        own_nodes_max: 0,
        own_links_max: 0,
        silence_ms_max: TRUNK_SILENCE_MS,
        handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
        simulated_clock: Some(CoarseClock::simulated(|| network::now_ns() / 1_000_000)),
    }))
}

/// A rank's way to the routers.
pub struct RankNetwork {
    netmod: Arc<Routed>,
    /// Watches its line, and all links that it has made.
    poller: Arc<Poller>,
    hears_line: AtomicBool,
    links: AtomicU64,
    /// What was announced when the rank had looked, and has been since: it is about nothing that the rank wants, such as a connection that
    /// broke while nothing was under way.
    ignored: Mutex<BTreeSet<u64>>,
}

impl RankNetwork {
    /// That of a rank: the process of the one that hosts its node's server has the node's router too.
    ///
    /// # Errors
    /// When there is no descriptor.
    pub fn new(
        shape: &Shape,
        job: (JobId, u64),
        secret: &Secret,
        rank: u32,
        router: &Router,
    ) -> Result<Arc<RankNetwork>, String> {
        let is_host = shape.ranks_of(shape.node_of(rank)).start == rank;
        let netmod = if is_host { Arc::clone(&router.netmod) } else { netmod(shape, job, secret, rank) };
        let poller = Arc::new(Poller::new().map_err(|error| error.to_string())?);
        let (hears_line, links) = (AtomicBool::new(false), AtomicU64::new(LINE + 1));
        Ok(Arc::new(RankNetwork { netmod, poller, hears_line, links, ignored: Mutex::default() }))
    }

    /// Begins to connect to the server of a node.
    ///
    /// # Errors
    /// What the router says at once.
    pub fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let inner = self.netmod.connect(address)?;
        if let Some(intake) = self.netmod.intake()
            && !self.hears_line.swap(true, Ordering::Relaxed)
        {
            self.poller.add(intake.descriptor(), LINE, Interest::READABLE)?;
        }
        let descriptor = inner.descriptor().expect("a router's links have descriptors");
        self.poller.add(descriptor, self.links.fetch_add(1, Ordering::Relaxed), Interest::READABLE)?;
        let link = HeardLink { inner, poller: Arc::clone(&self.poller), wants_room: true };
        link.await_more();
        Ok(Box::new(link))
    }

    /// Whether a descriptor tells its process of something that it has not ignored.
    pub fn hears(&self) -> bool {
        let announced = self.announced();
        let mut ignored = self.ignored.lock();
        ignored.retain(|number| announced.contains(number));
        announced.len() > ignored.len()
    }

    /// The rank has looked at all that it wants to know of.
    pub fn note_look(&self) {
        *self.ignored.lock() = self.announced();
    }

    fn announced(&self) -> BTreeSet<u64> {
        let mut ready = Vec::new();
        // What cannot be asked for says nothing.
        let _ = self.poller.wait(&mut ready, Some(Duration::ZERO));
        ready.into_iter().map(|ready| ready.token).collect()
    }

    /// Takes in what has come over its line, as who sleeps on it does.
    pub fn turn(&self) {
        if let Some(intake) = self.netmod.intake() {
            intake.turn();
        }
    }

    /// Its process has ended.
    pub fn cut_off(&self) {
        self.netmod.cut_off();
    }
}

/// A link of a rank, whose descriptor its rank sleeps on.
struct HeardLink {
    inner: Box<dyn Link>,
    poller: Arc<Poller>,
    wants_room: bool,
}

impl HeardLink {
    /// What its descriptor is to announce.
    fn await_more(&self) {
        self.inner.awaits(Interest { readable: true, writable: self.wants_room });
    }
}

impl Link for HeardLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let offered: usize = regions.iter().map(|region| region.len()).sum();
        let sent = self.inner.send(regions);
        self.wants_room = sent.is_ok_and(|sent| sent < offered);
        self.await_more();
        sent
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let received = self.inner.receive(regions);
        self.await_more();
        received
    }

    fn on_proven(&mut self) {
        self.inner.on_proven();
    }

    fn holds_bytes(&self) -> bool {
        self.inner.holds_bytes()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn direct(&mut self) -> Option<&mut dyn DirectAccess> {
        self.inner.direct()
    }

    fn is_settled(&self) -> bool {
        self.inner.is_settled()
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn beacon(&self) -> Option<&Beacon> {
        self.inner.beacon()
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        self.inner.awaits(wanted)
    }

    fn peer_name(&self) -> &str {
        self.inner.peer_name()
    }
}

impl Drop for HeardLink {
    fn drop(&mut self) {
        if let Some(descriptor) = self.inner.descriptor() {
            let _ = self.poller.remove(descriptor);
        }
    }
}
