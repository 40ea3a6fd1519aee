//! The netmod: connections are made and proven over TCP, and go on over queue pairs where both sides have them.

#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::RegionMut;
use longarm_netmod::{Capabilities, Link, LinkError, Listener, Netmod, NoDeviceRmw, RemoteMemory, Tcp, TcpOptions};
use longarm_proto::WindowRef;
use longarm_registration::Statistics as CacheStatistics;

use crate::counts::Counts;
use crate::fabric::{Fabric, VerbsError};
use crate::link::{Side, VerbsLink};
use crate::mapped::Mapped;
use crate::options::VerbsOptions;
use crate::paging::PagingChoice;
use crate::peers::Peers;

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
    shared: Arc<Peers>,
}

impl Verbs {
    /// Verbs on a device, with connections made by TCP. Nothing is opened yet.
    pub fn new(tcp: TcpOptions, options: VerbsOptions) -> Verbs {
        Verbs { tcp: Tcp::new(tcp), shared: Arc::new(Peers::new(options)) }
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

    fn ways(&self, address: &str) -> Result<Vec<String>, LinkError> {
        self.tcp.ways(address)
    }

    fn connect_by(&self, address: &str, way: &str) -> Result<Box<dyn Link>, LinkError> {
        let tcp = self.tcp.connect_by(address, way)?;
        // What is known of a peer is kept by all of its addresses: it is the same by whichever way.
        Ok(Box::new(VerbsLink::new(tcp, Arc::clone(&self.shared), Side::Caller, address.to_owned())?))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let ways = self.tcp.ways(address)?;
        self.connect_by(address, &ways[0])
    }
}

/// The windows of this node's server, and those that this process has mapped.
struct Windows(Arc<Peers>);

impl RemoteMemory for Windows {
    fn publish(&self, part: WindowRef, memory: RegionMut<'_>) -> Box<dyn Send + Sync> {
        self.0.published.publish(part, memory)
    }

    fn hold(&self, memory: RegionMut<'_>) -> Box<dyn Send + Sync> {
        Box::new(Mapped::hold(&self.0.mapped, memory))
    }

    fn rely_on_one_thread(&self) {
        self.0.mapped.rely_on_one_thread();
    }
}

struct VerbsListener {
    tcp: Box<dyn Listener>,
    shared: Arc<Peers>,
}

impl Listener for VerbsListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let Some(tcp) = self.tcp.accept()? else { return Ok(None) };
        let link = VerbsLink::new(tcp, Arc::clone(&self.shared), Side::Called, String::new())?;
        Ok(Some(Box::new(link)))
    }

    fn limit_links(&mut self, max: usize) {
        self.tcp.limit_links(max);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tcp.descriptor()
    }

    fn address(&self) -> &str {
        self.tcp.address()
    }
}
