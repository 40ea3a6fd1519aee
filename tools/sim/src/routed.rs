//! Jobs whose nodes have routers: the real ones, over simulated links between nodes and real sockets within each. They sleep on descriptors, and so do
//! the servers and ranks that use them: who is not told by one goes on only when something else has him look.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use longarm_client::{DialStep, Dialing, LostHow};
use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Beacon, Call, CallerStep, Calls, Capabilities, CoarseClock, DirectAccess, Guest, Interest, Link, LinkError,
    Listener, Netmod, Poller, Routed, RoutedOptions,
};
use longarm_proto::{Identity, JobId, NodeId, Rank, Secret};
use longarm_server::door::door_name;
use longarm_shm::sync::{AtomicBool, AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::hooks::{ByAnyWay, SimLink, SimListener, parse_address};
use crate::network::{self, Owner, Port, Speed};
use crate::plan::Shape;

/// How long no opening of a channel may be answered over a trunk, in milliseconds.
const TRUNK_UNANSWERED_MS: u64 = 2_000;
/// How long a connection between routers may take to prove itself.
const HANDSHAKE_TIMEOUT_MS: u64 = 5_000;
/// Connections that have not, besides one of each node.
const HALF_OPEN_MAX: usize = 2;
/// What announces what comes over a rank's line.
const LINE: u64 = 0;

/// The network between nodes, as a process of one has it.
struct SimNetmod {
    run: u64,
    node: u32,
    rank: u32,
    /// Its router listens.
    has_router: AtomicBool,
}

impl Netmod for SimNetmod {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: false, descriptor_sleep: true }
    }

    /// For its router first, and then for ranks that call by themselves.
    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let port = if self.has_router.swap(true, Ordering::Relaxed) { Port::Ranks } else { Port::Node };
        Ok(Box::new(SimListener::announced(self.run, self.node, port)?))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let (node, port) = parse_address(address).ok_or(LinkError::BadAddress)?;
        let caller = match port {
            Port::Node => Owner::Server(self.node),
            Port::Ranks => Owner::Rank(self.rank),
        };
        let number = network::with(|network| network.call_at(caller, node, port))?;
        Ok(Box::new(SimLink::announced(self.run, number, 0)?))
    }
}

fn now_ms() -> u64 {
    network::now_ns() / 1_000_000
}

/// What a router has done for ranks of its node, at the real sockets between them, which take no simulated time: in nanoseconds.
type Owed = Arc<AtomicU64>;

/// The router of a node, which the node's server drives.
pub struct Router {
    /// What the server's process has of the routed network.
    netmod: Arc<Routed>,
    /// Where others reach it.
    pub address: String,
    /// Watches what the ranks of the node sleep on.
    poller: Poller,
    owed: Owed,
}

impl Router {
    /// Before its server looks at its descriptor: no alarm rings there.
    pub fn ring(&self) {
        self.netmod.ring();
    }

    /// Works as long as the router has for the ranks of the node since this was last called.
    pub fn pay(&self) {
        let owed_ns = self.owed.swap(0, Ordering::Relaxed);
        network::with(|network| network.work(owed_ns));
    }

    /// The ranks of the node that a descriptor has something to tell, in their order.
    pub fn told(&self) -> BTreeSet<u32> {
        announced(&self.poller).map(|token| token as u32).collect()
    }
}

/// What a node's server listens with, and the node's router, where nodes have some.
///
/// # Errors
/// When others cannot reach it.
pub fn listen(
    shape: &Shape,
    (job, run): (JobId, u64),
    secret: &Secret,
    node: u32,
) -> Result<(Option<Router>, Box<dyn Listener>), String> {
    if !shape.plan.routed {
        return Ok((None, Box::new(SimListener::new(run, node))));
    }
    let netmod = netmod(shape, (job, run), secret, shape.host_of(node));
    let listener = netmod.listen().map_err(|error| error.to_string())?;
    let address = listener.address().to_owned();
    let poller = Poller::new().map_err(|error| error.to_string())?;
    Ok((Some(Router { netmod, address, poller, owed: Owed::default() }), listener))
}

/// What a poller tells of, and is told of again until it is taken in.
fn announced(poller: &Poller) -> impl Iterator<Item = u64> {
    let mut ready = Vec::new();
    // What cannot be asked for says nothing.
    let _ = poller.wait(&mut ready, Some(Duration::ZERO));
    ready.into_iter().map(|ready| ready.token)
}

/// What a process of a node, that of this rank, has of the routed network.
fn netmod(shape: &Shape, (job, run): (JobId, u64), secret: &Secret, rank: u32) -> Arc<Routed> {
    let node = shape.node_of(rank);
    Arc::new(Routed::new(RoutedOptions {
        netmod: Arc::new(SimNetmod { run, node, rank, has_router: AtomicBool::new(false) }),
        socket_name: format!("{}-router", door_name(job, NodeId(node))),
        identity: Identity { job, rank: Rank(rank), node: NodeId(node) },
        secret: secret.clone(),
        node_count: shape.nodes(),
        half_open_max: HALF_OPEN_MAX,
        own_nodes_max: shape.own_nodes_max,
        own_links_max: shape.own_links_max,
        unanswered_ms_max: TRUNK_UNANSWERED_MS,
        handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
        simulated_clock: Some(CoarseClock::simulated(now_ms)),
    }))
}

/// A rank's way to the routers.
pub struct RankNetwork {
    polled: Arc<PolledNetmod>,
    calls: Arc<Calls>,
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
        let is_host = shape.host_of(shape.node_of(rank)) == rank;
        let netmod = if is_host { Arc::clone(&router.netmod) } else { netmod(shape, job, secret, rank) };
        let poller = Arc::new(Poller::new().map_err(|error| error.to_string())?);
        let watched = router.poller.add(poller.as_fd(), rank.into(), Interest::READABLE);
        watched.map_err(|error| error.to_string())?;
        let (hears_line, links) = (AtomicBool::new(false), AtomicU64::new(LINE + 1));
        // Within a process there is no socket.
        let owed = (!is_host).then(|| Arc::clone(&router.owed));
        let polled = Arc::new(PolledNetmod { netmod, poller, hears_line, links, owed });
        let calls = Calls::new(Arc::clone(&polled) as Arc<dyn Netmod>);
        Ok(Arc::new(RankNetwork { polled, calls, ignored: Mutex::default() }))
    }

    /// How its rank calls the servers of nodes, of which each has an address.
    pub fn by_any_way(self: Arc<Self>, address_of: impl Fn(u32) -> String + Send + Sync + 'static) -> ByAnyWay {
        Box::new(move |guest: Guest| {
            let (address, is_known) = (address_of(guest.peer.0), guest.session.is_known);
            let call = self.calls.start(&address, guest, now_ms());
            let call = call.map_err(|error| LostHow::Unreachable(error.to_string()))?;
            Ok(Box::new(RoutedDialing { call, is_known }))
        })
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
        announced(&self.polled.poller).collect()
    }

    /// Takes in what has come over its line, as who sleeps on it does.
    pub fn turn(&self) {
        if let Some(intake) = self.polled.netmod.intake() {
            intake.turn();
        }
    }

    /// Its process has ended.
    pub fn cut_off(&self) {
        self.polled.netmod.cut_off();
    }
}

/// What the process of a rank has of the routed network, with links whose descriptors the rank sleeps on.
struct PolledNetmod {
    netmod: Arc<Routed>,
    /// Watches its line, and all links that it has made.
    poller: Arc<Poller>,
    hears_line: AtomicBool,
    links: AtomicU64,
    owed: Option<Owed>,
}

impl Netmod for PolledNetmod {
    fn name(&self) -> &'static str {
        self.netmod.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.netmod.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        self.netmod.listen()
    }

    fn ways(&self, address: &str) -> Result<Vec<String>, LinkError> {
        self.netmod.ways(address)
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        self.connect_by(address, &self.ways(address)?[0])
    }

    fn connect_by(&self, address: &str, way: &str) -> Result<Box<dyn Link>, LinkError> {
        let inner = self.netmod.connect_by(address, way)?;
        if let Some(intake) = self.netmod.intake()
            && !self.hears_line.swap(true, Ordering::Relaxed)
        {
            self.poller.add(intake.descriptor(), LINE, Interest::READABLE)?;
        }
        let descriptor = inner.descriptor().expect("its links have descriptors");
        self.poller.add(descriptor, self.links.fetch_add(1, Ordering::Relaxed), Interest::READABLE)?;
        let link = PolledLink { inner, poller: Arc::clone(&self.poller), wants_room: true, owed: self.owed.clone() };
        link.await_more();
        Ok(Box::new(link))
    }
}

/// A call on its way, by whatever ways there are.
struct RoutedDialing {
    call: Call,
    is_known: bool,
}

impl Dialing for RoutedDialing {
    fn poll(&mut self) -> DialStep {
        match self.call.poll(now_ms()) {
            CallerStep::Pending => DialStep::Pending,
            CallerStep::Failed(error) => {
                DialStep::Failed { reason: error.to_string(), may_pass: self.call.may_pass(self.is_known) }
            }
            CallerStep::Proven { link, reception } => DialStep::Up { link, reception },
        }
    }
}

/// A link of a rank, whose descriptor its rank sleeps on.
struct PolledLink {
    inner: Box<dyn Link>,
    poller: Arc<Poller>,
    wants_room: bool,
    owed: Option<Owed>,
}

impl PolledLink {
    /// Of a call that moved so many bytes between its rank and the router: the rank has worked as long as `mine` says, and the router has, or will
    /// have, as long as `router` says.
    fn account(&self, bytes: usize, mine: fn(&Speed, usize) -> u64, router: fn(&Speed, usize) -> u64) {
        let Some(owed) = self.owed.as_ref().filter(|_| bytes > 0) else { return };
        network::with(|network| {
            let speed = network.speed();
            network.work(mine(&speed, bytes));
            owed.fetch_add(router(&speed, bytes), Ordering::Relaxed);
        });
    }

    /// What its descriptor is to announce.
    fn await_more(&self) {
        self.inner.awaits(Interest { readable: true, writable: self.wants_room });
    }
}

impl Link for PolledLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let offered: usize = regions.iter().map(|region| region.len()).sum();
        let sent = self.inner.send(regions);
        self.wants_room = sent.is_ok_and(|sent| sent < offered);
        self.await_more();
        self.account(sent.unwrap_or(0), Speed::send_takes_ns, Speed::receive_takes_ns);
        sent
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let received = self.inner.receive(regions);
        self.await_more();
        self.account(received.unwrap_or(0), Speed::receive_takes_ns, Speed::send_takes_ns);
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

impl Drop for PolledLink {
    fn drop(&mut self) {
        if let Some(descriptor) = self.inner.descriptor() {
            let _ = self.poller.remove(descriptor);
        }
    }
}
