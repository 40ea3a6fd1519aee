//! The netmod: connections are made and proven over TCP, and go on over queue pairs where both sides have them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use longarm_memory::RegionMut;
use longarm_netmod::{
    Capabilities, DirectOutcome, Link, LinkError, Listener, Netmod, NoDeviceRmw, RemoteMemory, Tcp, TcpOptions,
};
use longarm_proto::WindowRef;
use longarm_registration::Statistics as CacheStatistics;
use parking_lot::Mutex;

use crate::counts::Counts;
use crate::fabric::{Fabric, VerbsError};
use crate::keys::{Known, Published};
use crate::link::{Side, VerbsLink};
use crate::mapped::{AllMapped, Mapped};
use crate::options::VerbsOptions;
use crate::packets::was_done;
use crate::paging::PagingChoice;
use crate::stream::Unresolved;

/// Queues in a row that brought nothing before a peer is reached over TCP.
const FAILURES_MAX: u32 = 3;

/// What the links of one netmod know of each other.
pub(crate) struct Shared {
    options: VerbsOptions,
    fabric: OnceLock<Option<Arc<Fabric>>>,
    /// By the address that was called.
    called: Mutex<HashMap<String, Called>>,
    said: Mutex<Vec<String>>,
    pub(crate) published: Arc<Published>,
    pub(crate) mapped: AllMapped,
}

/// What is remembered of a peer that was called.
#[derive(Default)]
struct Called {
    /// The number of our last connection, and what it left undone.
    previous: u64,
    unresolved: Vec<Unresolved>,
    known: Arc<Known>,
    /// Queues in a row over which nothing came back.
    failures: u32,
    /// Transfers were handed back as not done, and nothing has come since. Whoever has begun them posts them anew, which only the
    /// device can take.
    has_handed_back: bool,
}

impl Shared {
    pub(crate) fn fabric(&self) -> Option<Arc<Fabric>> {
        let opened = self.fabric.get_or_init(|| match Fabric::open(&self.options) {
            Ok(fabric) => Some(fabric),
            Err(error @ (VerbsError::NoLibrary { .. } | VerbsError::NoDevice { .. })) if !self.options.demanded => {
                tracing::debug!("verbs cannot be used here, TCP is: {error}");
                None
            }
            Err(error) => {
                tracing::warn!("verbs cannot be used here, TCP is: {error}");
                None
            }
        });
        if let Some(fabric) = opened {
            self.mapped.catch_up(fabric);
        }
        opened.clone()
    }

    /// The device, if it is open.
    pub(crate) fn opened(&self) -> Option<&Arc<Fabric>> {
        self.fabric.get()?.as_ref()
    }

    /// The device, unless it has failed on the way to this peer too often.
    pub(crate) fn fabric_for(&self, address: &str) -> Option<Arc<Fabric>> {
        if self.is_given_up(address) { None } else { self.fabric() }
    }

    fn is_given_up(&self, address: &str) -> bool {
        self.called.lock().get(address).is_some_and(|called| called.failures >= FAILURES_MAX)
    }

    /// Numbers for a connection, and for its first packet: others for each, so that late packets of an old one are not taken.
    pub(crate) fn numbers(&self, queue: u32) -> (u64, u32) {
        let (mut connection, mut packet) = ([0; 8], [0; 3]);
        if getrandom::fill(&mut connection).is_err() || getrandom::fill(&mut packet).is_err() {
            // Without a name the peer does not know it again, and nobody knows what was done when it breaks.
            return (0, queue.wrapping_mul(0x9e37) & 0x00ff_ffff);
        }
        (u64::from_le_bytes(connection), u32::from_le_bytes([packet[0], packet[1], packet[2], 0]))
    }

    pub(crate) fn previous(&self, address: &str) -> u64 {
        self.called.lock().get(address).map_or(0, |called| called.previous)
    }

    /// What is known of the windows of this peer.
    pub(crate) fn known(&self, address: &str) -> Arc<Known> {
        Arc::clone(&self.called.lock().entry(address.to_owned()).or_default().known)
    }

    /// A connection has ended with transfers under way.
    pub(crate) fn leave_unresolved(&self, address: &str, unresolved: Vec<Unresolved>) {
        let mut called = self.called.lock();
        let called = called.entry(address.to_owned()).or_default();
        called.known.forget_questions();
        if !unresolved.is_empty() {
            // Only the device can end them, so it gets another chance.
            called.failures = 0;
        }
        called.unresolved.extend(unresolved);
    }

    /// What became of them, as the peer knows up to which packet it went along.
    pub(crate) fn resolve(&self, address: &str, executed: Option<u32>) -> Vec<(u64, DirectOutcome)> {
        let mut called = self.called.lock();
        let Some(called) = called.get_mut(address) else { return Vec::new() };
        let unresolved = std::mem::take(&mut called.unresolved);
        let outcomes: Vec<_> =
            unresolved.iter().map(|transfer| (transfer.ticket, outcome(transfer, executed))).collect();
        if outcomes.iter().any(|(_, outcome)| *outcome == DirectOutcome::NotDone) {
            (called.has_handed_back, called.failures) = (true, 0);
        }
        outcomes
    }

    /// From now on transfers may go over this connection.
    pub(crate) fn note_connection(&self, address: &str, connection: u64) {
        self.called.lock().entry(address.to_owned()).or_default().previous = connection;
    }

    pub(crate) fn note_success(&self, address: &str) {
        if let Some(called) = self.called.lock().get_mut(address) {
            (called.has_handed_back, called.failures) = (false, 0);
        }
    }

    pub(crate) fn note_failure(&self, address: &str, peer: &str) {
        let mut called = self.called.lock();
        let called = called.entry(address.to_owned()).or_default();
        if called.has_handed_back {
            return;
        }
        called.failures += 1;
        if called.failures == FAILURES_MAX {
            tracing::warn!(
                peer,
                "{FAILURES_MAX} queues in a row brought nothing back; this peer is reached over TCP from now on"
            );
        }
    }

    /// Something that a person should read, and once.
    pub(crate) fn say_once(&self, sentence: &str) {
        let mut said = self.said.lock();
        if !said.iter().any(|other| other == sentence) {
            tracing::warn!("{sentence}");
            said.push(sentence.to_owned());
        }
    }
}

/// Without word of the peer nobody knows: what was done is not done again, as others may have changed the place meanwhile. What
/// did not go out as a whole, and what only reads, was not done.
fn outcome(transfer: &Unresolved, executed: Option<u32>) -> DirectOutcome {
    let is_done = |behind| executed.map(|executed| was_done(behind, executed));
    match (transfer.outcome, transfer.behind.map(is_done)) {
        (Some(outcome), _) => outcome,
        (None, Some(Some(true))) if transfer.is_atomic => DirectOutcome::ValueLost,
        (None, Some(Some(true))) => DirectOutcome::Done,
        (None, Some(None)) if !transfer.is_repeated => DirectOutcome::Unknown,
        _ => DirectOutcome::NotDone,
    }
}

/// InfiniBand, RoCE and iWARP by the verbs interface.
///
/// Connections are made over TCP, proven there, and leave it for a reliable queue pair. The TCP connection stays, and tells when
/// the peer is gone. Where one side has no device, they stay on TCP altogether.
///
/// # Example
/// ```
/// use longarm_netmod::{Netmod, TcpOptions};
/// use longarm_verbs::{Verbs, VerbsOptions};
///
/// let verbs = Verbs::new(TcpOptions::default(), VerbsOptions::default());
/// assert_eq!(verbs.name(), "verbs");
/// if let Err(why) = verbs.open() {
///     println!("TCP will be used: {why}");
/// }
/// ```
#[derive(Clone)]
pub struct Verbs {
    tcp: Tcp,
    shared: Arc<Shared>,
}

impl Verbs {
    /// Verbs on a device, with connections made by TCP. Nothing is opened yet.
    pub fn new(tcp: TcpOptions, options: VerbsOptions) -> Verbs {
        let shared = Shared {
            options,
            fabric: OnceLock::new(),
            called: Mutex::default(),
            said: Mutex::default(),
            published: Arc::default(),
            mapped: AllMapped::default(),
        };
        Verbs { tcp: Tcp::new(tcp), shared: Arc::new(shared) }
    }

    /// Opens the device now, to hear whether it can be used. Links open it by themselves otherwise, and use TCP if it cannot.
    ///
    /// # Errors
    /// [`VerbsError`], which says why not.
    pub fn open(&self) -> Result<(), VerbsError> {
        if self.shared.fabric.get().is_some_and(Option::is_some) {
            return Ok(());
        }
        let fabric = Fabric::open(&self.shared.options)?;
        if let Some(fabric) = self.shared.fabric.get_or_init(|| Some(fabric)) {
            self.shared.mapped.catch_up(fabric);
        }
        Ok(())
    }

    /// What was asked of the device so far; `None` where it is not open.
    pub fn counts(&self) -> Option<Counts> {
        Some(self.opened()?.counters.read())
    }

    /// What the cache of registrations has done so far; `None` where no device is open.
    pub fn cache_statistics(&self) -> Option<CacheStatistics> {
        Some(self.opened()?.cache.statistics())
    }

    /// What has become of on-demand paging; `None` where no device is open.
    pub fn paging(&self) -> Option<PagingChoice> {
        Some(self.opened()?.paging)
    }

    /// How much memory the preregistered buffers take: those to send from, and those that peers fill.
    pub fn buffer_bytes(&self) -> Option<(usize, usize)> {
        Some(self.opened()?.slab_bytes())
    }

    fn opened(&self) -> Option<&Arc<Fabric>> {
        self.shared.opened()
    }
}

impl Netmod for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: true, descriptor_sleep: true }
    }

    fn remote_memory(&self) -> Option<Arc<dyn RemoteMemory>> {
        (self.shared.options.pinned_bytes_max > 0).then(|| Arc::new(Windows(Arc::clone(&self.shared))) as _)
    }

    fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        if self.remote_memory().is_none() {
            return Err(NoDeviceRmw::Served);
        }
        match self.shared.fabric() {
            None => Err(NoDeviceRmw::NoDevice),
            Some(fabric) if fabric.manager.is_some() => Err(NoDeviceRmw::Iwarp),
            Some(fabric) if !fabric.limits.atomics || fabric.limits.reads_at_once == 0 => Err(NoDeviceRmw::Device),
            Some(_) => Ok(()),
        }
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let Some(fabric) = self.opened() else { return Vec::new() };
        let (counts, cache) = (fabric.counters.read(), fabric.cache.statistics());
        if counts.requests + counts.completions == 0 {
            return Vec::new();
        }
        vec![
            ("requests", counts.requests),
            ("messages", counts.messages),
            ("writes", counts.writes),
            ("reads", counts.reads),
            ("atomics", counts.atomics),
            ("inline", counts.inline),
            ("doorbells", counts.doorbells),
            ("completions", counts.completions),
            ("bytes copied", counts.copied_bytes),
            ("bytes not copied", counts.zero_copy_bytes),
            ("windows kept in memory", counts.windows_kept),
            ("windows on demand", counts.windows_on_demand),
            ("registrations found", cache.hits),
            ("registrations made", cache.misses),
            ("registrations for one use", cache.uncached),
            ("registrations evicted", cache.evictions),
            ("registrations invalidated", cache.invalidations),
            ("registrations refused", cache.refused),
            ("bytes registered", cache.bytes as u64),
        ]
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let tcp = self.tcp.listen()?;
        Ok(Box::new(VerbsListener { tcp, shared: Arc::clone(&self.shared) }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let tcp = self.tcp.connect(address)?;
        Ok(Box::new(VerbsLink::new(tcp, Arc::clone(&self.shared), Side::Caller, address.to_owned())?))
    }
}

/// The windows of this node's server, and those that this process has mapped.
struct Windows(Arc<Shared>);

impl RemoteMemory for Windows {
    fn publish(&self, part: WindowRef, memory: RegionMut<'_>) -> Box<dyn Send> {
        self.0.published.publish(part, memory)
    }

    fn hold(&self, memory: RegionMut<'_>) -> Box<dyn Send + Sync> {
        Box::new(Mapped::hold(&self.0, memory))
    }

    fn rely_on_one_thread(&self) {
        self.0.mapped.rely_on_one_thread(&self.0);
    }
}

struct VerbsListener {
    tcp: Box<dyn Listener>,
    shared: Arc<Shared>,
}

impl Listener for VerbsListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let Some(tcp) = self.tcp.accept()? else { return Ok(None) };
        let link = VerbsLink::new(tcp, Arc::clone(&self.shared), Side::Called, String::new())?;
        Ok(Some(Box::new(link)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tcp.descriptor()
    }

    fn address(&self) -> &str {
        self.tcp.address()
    }
}
