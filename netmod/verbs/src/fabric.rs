//! What all links of a process share: the device, its domain, the buffers, and what became of connections that ended.
//!
//! Opened when the first link needs it, and once: windows are registered in the same domain that queues reach.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use longarm_proto::rdma::Record;
use longarm_registration::{Cache, CacheError, Options as CacheOptions, RegisterError, Registrar, Watch, Watched};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::accounts;
use crate::costs::Costs;
use crate::counts::Counters;
use crate::executed::Executed;
use crate::manager::Manager;
use crate::near;
use crate::options::{RECEIVE_BYTES_MAX, VerbsOptions};
use crate::packets::IMMEDIATE_BYTES;
use crate::paging::{self, Named, OnDemand, PagingChoice};
use crate::patience::Patience;
use crate::sys::{
    Access, Connection, Context, Domain, Library, NoLibrary, NoManager, Pages, Port, PortLimits, Queue, QueueLimits,
    Registration, SharedReceive, Slab, Slabs,
};

/// Registrations that the cache keeps: finding one among many more takes longer than it saves.
const CACHE_ENTRIES_MAX: usize = 1024;

/// Requests of the shortest queue: with fewer it could not take all that is posted at once, and the messages that have to go beside it.
const DEPTH_MIN: u32 = 2 * crate::sys::CHAIN_MAX as u32;

/// Bytes within a request that a device is asked for, the first that it takes; it may give more.
const INLINE_BYTES: [u32; 4] = [128, 64, 48, 0];

/// Why verbs cannot be used here. In every case TCP can.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The machine has no verbs library.
    #[error("{reason}")]
    NoLibrary {
        /// What is missing.
        reason: String,
    },
    /// There is no device, or none with an active port.
    #[error("no RDMA device with an active port (found: {found}); see `longarm info`")]
    NoDevice {
        /// What there is.
        found: String,
    },
    /// The device that was asked for cannot be used.
    #[error("RDMA device {device}: {what}: {errno}")]
    Device {
        /// Its name, as it was asked for.
        device: String,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        errno: Errno,
    },
    /// Memory cannot be registered by the cache.
    #[error(transparent)]
    Cache(#[from] longarm_registration::CacheError),
    /// The name of the device is none.
    #[error("{text:?} names no device and port: NAME, NAME:PORT or NAME:PORT:GID is meant")]
    BadName {
        /// What was given.
        text: String,
    },
}

impl From<NoLibrary> for VerbsError {
    fn from(missing: NoLibrary) -> Self {
        VerbsError::NoLibrary { reason: missing.to_string() }
    }
}

/// An open device, and all that links share.
pub(crate) struct Fabric {
    pub(crate) options: VerbsOptions,
    pub(crate) port: Port,
    pub(crate) gid_index: u8,
    pub(crate) gid: [u8; 16],
    pub(crate) limits: PortLimits,
    /// Why this device, in words.
    pub(crate) why_chosen: String,
    /// How long its threads wait for the last words of connections.
    pub(crate) patience: Patience,
    /// What connects the queues of devices of iWARP; others are connected by what the records say.
    pub(crate) manager: Option<Arc<Manager>>,
    /// Where the byte goes that is read to learn that writes have arrived, over iWARP.
    pub(crate) sink: Option<Slab>,
    /// Copied into before they are sent.
    pub(crate) outgoing: Arc<Slabs>,
    /// The same, one for each queue, beside what all share: there are as many as queues.
    pub(crate) own: Arc<Slabs>,
    shared: Arc<SharedReceive>,
    incoming: Mutex<Incoming>,
    incoming_slabs: Arc<Slabs>,
    /// What the device says of queues that have ended can be believed.
    pub(crate) accounts_are_believed: bool,
    /// How far connections went that peers have made and that have ended.
    pub(crate) executed: Mutex<Executed>,
    /// What of the program's own memory is registered.
    pub(crate) cache: Cache<Device>,
    /// Whether requests may name what it registers.
    pub(crate) named: Named,
    /// Whether memory is registered on demand.
    pub(crate) paging: PagingChoice,
    pub(crate) counters: Counters,
    pub(crate) costs: Costs,
    /// From which size on memory is registered.
    pub(crate) register_bytes_min: usize,
    pub(crate) domain: Arc<Domain>,
}

/// What a queue has for itself: buffers that a peer may fill, which stay for the next peer when this is dropped.
pub(crate) struct Promise {
    fabric: Arc<Fabric>,
    /// A buffer to send from, so that no queue waits for what others give back: nobody would tell it.
    pub(crate) own: Option<Slab>,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.fabric.incoming.lock().tally.promised -= usize::from(self.fabric.options.credits_each());
    }
}

/// What the cache registers with.
pub(crate) struct Device {
    domain: Arc<Domain>,
    pages: Pages,
}

impl Registrar for Device {
    type Handle = Registration;

    fn register(&self, start: usize, bytes: usize) -> Result<Registration, RegisterError> {
        Registration::new(&self.domain, (start, bytes), Access::Local, self.pages).map_err(|errno| match errno {
            Errno::NOMEM | Errno::AGAIN | Errno::NOSPC => RegisterError::Limit { bytes },
            Errno::FAULT | Errno::INVAL => RegisterError::BadRange { start, bytes },
            other => RegisterError::System { errno: other.raw_os_error() },
        })
    }
}

/// The buffers that wait in the shared receive queue, by the number of their request.
#[derive(Default)]
struct Incoming {
    posted: slab::Slab<Slab>,
    tally: Tally,
}

/// How many buffers there are, and have to be.
#[derive(Default)]
struct Tally {
    /// What links were promised.
    promised: usize,
    /// Buffers that there are: posted, or with a link. Less than that where connections have ended in the middle of a message.
    made: usize,
    /// Buffers that connections may have taken along, and that were not replaced yet.
    doubtful: usize,
}

impl Tally {
    /// How many have to be made before so many are promised, beside those that are doubtful.
    fn wanted(&self, credits: usize) -> usize {
        (self.promised + credits).saturating_sub(self.made)
    }
}

/// How a queue is connected to another one of the same device.
fn to_itself(port: &Port, (gid_index, gid): (u8, [u8; 16]), limits: &PortLimits, options: &VerbsOptions) -> Connection {
    Connection {
        port: port.number,
        gid_index,
        is_ethernet: port.is_ethernet,
        mtu_code: port.mtu_code,
        peer_queue: 0,
        peer_lid: port.lid,
        peer_gid: gid,
        first_sent: 0,
        first_received: 0,
        reads_out: limits.reads_at_once,
        reads_in: limits.reads_at_once,
        timeout_code: options.timeout_code,
    }
}

fn say_not_believed(device: &str, why: &impl std::fmt::Display) {
    tracing::warn!(
        device,
        "what the device says of connections that have ended is not believed: {why}; where one breaks, puts and device words that \
         its peer has under way end with an error, as nobody knows whether they were done"
    );
}

impl Fabric {
    /// Opens a device.
    ///
    /// # Errors
    /// [`VerbsError`], which says why not.
    pub(crate) fn open(options: &VerbsOptions) -> Result<Arc<Fabric>, VerbsError> {
        let library = Library::get()?;
        let ((context, port, gid_index), why_chosen) = choose(library, &options.device)?;
        let name = context.name().to_owned();
        let failed = |what: &'static str| {
            let device = name.clone();
            move |errno| VerbsError::Device { device, what, errno }
        };
        if options.queue_depth.min(context.limits().queue_depth) < DEPTH_MIN {
            return Err(failed("asking for queues of enough requests")(Errno::NOBUFS));
        }
        let gid = context.gid(port.number, gid_index).map_err(failed("asking for its address"))?;
        let domain = Domain::new(&context).map_err(failed("making a protection domain"))?;
        let manager = context.is_iwarp().then(|| Manager::open(&context)).transpose().map_err(|why| match why {
            NoManager::Library(missing) => missing.into(),
            NoManager::System(errno) => failed("listening at an address of its network")(errno),
        })?;
        let limits = context.limits();
        let limits = PortLimits { reads_at_once: limits.reads_at_once.min(options.reads_at_once_max), ..limits };
        let incoming_max = RECEIVE_BYTES_MAX / options.slab_bytes.max(1);
        let buffers = limits.shared_receives.min(u32::try_from(incoming_max).unwrap_or(u32::MAX));
        let shared = SharedReceive::new(&domain, buffers).map_err(failed("making a shared receive queue"))?;
        let shared = Arc::new(shared);
        let myself = to_itself(&port, (gid_index, gid), &limits, options);
        // A queue cannot call itself there without others that answer.
        let myself = manager.is_none().then_some(&myself);
        let costs = options.costs.unwrap_or_else(|| Costs::measure(&domain, &shared, myself));
        let trial = || paging::trial(&domain, &shared, myself);
        let paging = PagingChoice::decide(options.on_demand, context.paging(), trial);
        tracing::debug!(device = name, "on-demand paging is {paging}");
        // Over iWARP messages are counted here, and the device is asked nothing.
        let account = myself.map_or(Ok(()), |myself| accounts::trial(&domain, &shared, myself, limits.atomics));
        if let Err(why) = &account {
            say_not_believed(&name, why);
        }
        let cache = cache(&domain, options, paging)?;
        let own = Slabs::new(&domain, options.slab_bytes, usize::MAX);
        let sink =
            manager.as_ref().and_then(|_| own.take().transpose()).transpose().map_err(failed("registering memory"))?;
        Ok(Arc::new(Fabric {
            why_chosen,
            patience: Patience::new(),
            manager,
            sink,
            options: options.clone(),
            port,
            gid_index,
            gid,
            limits,
            outgoing: Slabs::new(&domain, options.slab_bytes, options.outgoing_bytes_max / options.slab_bytes.max(1)),
            own,
            shared,
            incoming: Mutex::default(),
            incoming_slabs: Slabs::new(&domain, options.slab_bytes, buffers as usize),
            accounts_are_believed: account.is_ok(),
            executed: Mutex::default(),
            named: Named::new(cache.statistics().watch == Watched::Device),
            cache,
            paging,
            counters: Counters::default(),
            costs,
            register_bytes_min: options.register_bytes_min.unwrap_or_else(|| costs.register_bytes_min()),
            domain,
        }))
    }

    /// A queue that is not connected, and as many buffers for it as a peer is promised.
    ///
    /// # Errors
    /// The system's: most often the limit of locked memory.
    pub(crate) fn queue(self: &Arc<Self>) -> Result<(Queue, Promise), Errno> {
        let credits = self.options.credits_each();
        let mut limits = QueueLimits {
            depth: self.options.queue_depth.min(self.limits.queue_depth),
            inline_bytes: 0,
            gathers: (crate::sys::GATHERS_MAX as u32).min(self.limits.gathers).max(1),
            // Each buffer that the peer may fill, and what fails when the queue ends.
            receives: self.receives_each() as u32,
        };
        let mut made = Err(Errno::INVAL);
        for inline_bytes in INLINE_BYTES {
            limits.inline_bytes = inline_bytes;
            made = Queue::new(&self.domain, &self.shared, limits);
            if !matches!(made, Err(Errno::INVAL)) {
                break;
            }
        }
        let queue = made?;
        if self.manager.is_some() && queue.inline_bytes() < IMMEDIATE_BYTES {
            return Err(Errno::OPNOTSUPP);
        }
        self.promise(credits.into())?;
        let mut promise = Promise { fabric: Arc::clone(self), own: None };
        promise.own = Some(self.own.take()?.ok_or(Errno::NOBUFS)?);
        Ok((queue, promise))
    }

    fn promise(&self, credits: usize) -> Result<(), Errno> {
        let mut incoming = self.incoming.lock();
        for _ in 0..incoming.tally.wanted(credits) {
            let slab = self.incoming_slabs.take()?.ok_or(Errno::NOBUFS)?;
            self.post(&mut incoming, slab)?;
            incoming.tally.made += 1;
        }
        self.replace_doubtful(&mut incoming);
        incoming.tally.promised += credits;
        Ok(())
    }

    /// Messages of which one queue can tell, before they are taken up.
    pub(crate) fn receives_each(&self) -> usize {
        usize::from(self.options.credits_each()) + 8
    }

    /// A peer has sent more than its queue could tell of, so any of the buffers that were posted may have been filled without a word,
    /// those that others were promised included. As many are posted anew as there is room for.
    pub(crate) fn replace_lost(&self) {
        let mut incoming = self.incoming.lock();
        incoming.tally.doubtful += incoming.posted.len();
        self.replace_doubtful(&mut incoming);
    }

    fn replace_doubtful(&self, incoming: &mut Incoming) {
        for _ in 0..incoming.tally.doubtful {
            // Beyond what has to be there, so nothing fails where the device or the memory has no room for it.
            let Ok(Some(slab)) = self.incoming_slabs.take() else { break };
            if self.post(incoming, slab).is_err() {
                break;
            }
            incoming.tally.doubtful -= 1;
        }
    }

    /// A connected queue has ended. If its device was in the middle of a message of the peer, nobody will say which buffer it had
    /// begun to fill: that one is lost, and another one takes its place when the next queue is made.
    pub(crate) fn note_end(&self) {
        self.incoming.lock().tally.doubtful += 1;
    }

    fn post(&self, incoming: &mut Incoming, slab: Slab) -> Result<(), Errno> {
        let entry = incoming.posted.vacant_entry();
        let id = entry.key() as u64;
        let slab = entry.insert(slab);
        // SAFETY: it stays in the table until its completion is handed to `filled`, and the table outlives the queue.
        #[allow(unsafe_code)]
        let posted = unsafe { self.shared.post(id, slab) };
        if posted.is_err() {
            incoming.posted.remove(id as usize);
        }
        posted
    }

    /// Until the guard is dropped nobody gives a queue back, nor takes a buffer.
    #[cfg(test)]
    pub(crate) fn hold_up(&self) -> impl Drop + '_ {
        self.incoming.lock()
    }

    /// The buffer of a completion.
    pub(crate) fn filled(&self, id: u64) -> Slab {
        self.incoming.lock().posted.remove(id as usize)
    }

    /// A buffer may be filled again, by whoever comes first.
    pub(crate) fn give_back(&self, slab: Slab) {
        let posted = self.post(&mut self.incoming.lock(), slab);
        if let Err(errno) = posted {
            tracing::error!(%errno, "the device does not take a buffer back");
        }
    }

    /// What we say of ourselves, less what belongs to one connection.
    pub(crate) fn record(&self) -> Record {
        let (gid, port) = match &self.manager {
            Some(manager) => (as_ipv6(manager.address), manager.port),
            None => (self.gid, 0),
        };
        Record {
            usable: true,
            is_ethernet: self.port.is_ethernet,
            is_iwarp: self.manager.is_some(),
            port,
            mtu_code: u8::try_from(self.port.mtu_code).unwrap_or(1),
            reads_in: self.limits.reads_at_once,
            lid: self.port.lid,
            credits: self.options.credits_each(),
            slab_bytes: u32::try_from(self.options.slab_bytes).unwrap_or(u32::MAX),
            gid,
            ..Record::default()
        }
    }

    /// How much memory the preregistered buffers take: those to send from, and those that peers fill.
    pub(crate) fn slab_bytes(&self) -> (usize, usize) {
        (self.outgoing.bytes() + self.own.bytes(), self.incoming_slabs.bytes())
    }
}

/// What of the program's own memory is registered: watched by the kernel's events, and kept in memory as long as it is; or on
/// demand, where that is asked for, or where nothing else tells when memory goes. The head of `paging` says how it is chosen.
fn cache(domain: &Arc<Domain>, options: &VerbsOptions, paging: PagingChoice) -> Result<Cache<Device>, CacheError> {
    let made = |pages, watch| {
        let registrations = domain.registrations() / 2;
        let options = CacheOptions {
            bytes_max: options.cache_bytes_max,
            entries_max: usize::try_from(registrations).unwrap_or(0).clamp(1, CACHE_ENTRIES_MAX),
            watch,
            ..CacheOptions::default()
        };
        Cache::new(Device { domain: Arc::clone(domain), pages }, options)
    };
    if !paging.is_used() {
        return made(Pages::Kept, Watch::Auto);
    }
    if options.on_demand == OnDemand::All {
        return made(Pages::OnDemand, Watch::Device);
    }
    match made(Pages::Kept, Watch::Userfault) {
        // Refused, or the threads that it needs cannot be started.
        Err(CacheError::Userfault { .. } | CacheError::System { .. }) => made(Pages::OnDemand, Watch::Device),
        made => made,
    }
}

fn as_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// An open device, a port of it, and one of the port's addresses.
type Opened = (Arc<Context>, Port, u8);

/// The device and port of this name, or the nearest of those that can be used; and why.
fn choose(library: &'static Library, name: &str) -> Result<(Opened, String), VerbsError> {
    let names = crate::sys::device_names(library);
    if name.is_empty() {
        let (mut active, mut distances, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for name in &names {
            match open_port(library, name, None, None) {
                Ok(opened) if opened.1.is_active => {
                    distances.push(near::distance(Path::new(near::SYSTEM), name));
                    active.push(opened);
                }
                Ok((_, port, _)) => found.push(format!("{name}, whose port {} is down", port.number)),
                Err(error) => found.push(format!("{name}: {error}")),
            }
        }
        if let Some((place, why)) = near::nearest(&distances) {
            return Ok((active.swap_remove(place), why));
        }
        let found = if found.is_empty() { "none".to_owned() } else { found.join("; ") };
        return Err(VerbsError::NoDevice { found });
    }
    let bad = || VerbsError::BadName { text: name.to_owned() };
    let mut parts = name.split(':');
    let device = parts.next().filter(|device| !device.is_empty()).ok_or_else(bad)?;
    let mut number = || parts.next().map(|text| text.parse::<u8>().map_err(|_| bad())).transpose();
    let (port, gid) = (number()?, number()?);
    if parts.next().is_some() {
        return Err(bad());
    }
    Ok((open_port(library, device, port, gid)?, "it is the one that was asked for".to_owned()))
}

/// The RDMA devices of this machine; none where there is no library.
pub fn device_names() -> Vec<String> {
    Library::get().map(crate::sys::device_names).unwrap_or_default()
}

/// Opens a device, finds its port (the first that is active, or the first), and one of the port's addresses.
pub(crate) fn open_port(
    library: &'static Library,
    device: &str,
    port: Option<u8>,
    gid: Option<u8>,
) -> Result<Opened, VerbsError> {
    let failed = |what: &'static str| move |errno| VerbsError::Device { device: device.to_owned(), what, errno };
    let context = Context::open(library, device).map_err(failed("opening it"))?;
    let port = match port {
        Some(number) => context.port(number).map_err(failed("asking for its port"))?,
        None => {
            let all = (1..=context.limits().ports.max(1)).map(|number| context.port(number));
            let all: Vec<Port> = all.collect::<Result<_, _>>().map_err(failed("asking for its ports"))?;
            let active = all.iter().find(|port| port.is_active).or(all.first());
            active.cloned().ok_or(Errno::NODEV).map_err(failed("asking for its ports"))?
        }
    };
    let gid = gid.unwrap_or_else(|| choose_gid(&context, &port));
    Ok((context, port, gid))
}

/// One of a port's addresses, as people and the choice want to know it.
#[derive(Clone, Debug)]
pub(crate) struct Gid {
    pub(crate) index: u8,
    pub(crate) bytes: [u8; 16],
    pub(crate) kind: String,
}

/// The addresses of a port that are set.
pub(crate) fn gids(context: &Context, port: &Port) -> Vec<Gid> {
    let count = u8::try_from(port.gids).unwrap_or(u8::MAX);
    let all = (0..count).filter_map(|index| Some((index, context.gid(port.number, index).ok()?)));
    let set = all.filter(|(_, bytes)| *bytes != [0; 16]);
    set.map(|(index, bytes)| {
        let folder =
            Path::new("/sys/class/infiniband").join(context.name()).join("ports").join(port.number.to_string());
        let kind = std::fs::read_to_string(folder.join("gid_attrs/types").join(index.to_string()));
        Gid { index, bytes, kind: kind.map(|kind| kind.trim().to_owned()).unwrap_or_default() }
    })
    .collect()
}

/// Over Ethernet RoCE v2 before v1, as only that is routed; an IPv4 address before an IPv6 one, and that before one that holds
/// on one link only. InfiniBand needs no choice.
pub(crate) fn choose_gid(context: &Context, port: &Port) -> u8 {
    if !port.is_ethernet {
        return 0;
    }
    gids(context, port).iter().min_by_key(|gid| (rank_of(gid), gid.index)).map_or(0, |gid| gid.index)
}

fn rank_of(gid: &Gid) -> u8 {
    let is_ipv4 = gid.bytes[..10] == [0; 10] && gid.bytes[10..12] == [0xff; 2];
    let is_local = gid.bytes[..2] == [0xfe, 0x80];
    let way = if is_ipv4 { 0 } else { 1 + u8::from(is_local) };
    let version = if gid.kind.contains("v2") { 0 } else { 3 };
    version + way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_connection_is_worth_another_buffer() {
        let mut tally = Tally::default();
        assert_eq!((tally.wanted(8), tally.doubtful), (8, 0));
        (tally.made, tally.promised) = (8, 8);
        for _ in 0..8 {
            // As the ends of a queue say: the buffers stay, and what it may have taken along is made anew.
            (tally.promised, tally.doubtful) = (0, tally.doubtful + 1);
        }
        assert_eq!((tally.wanted(8), tally.doubtful), (0, 8));
        assert_eq!((tally.wanted(16), tally.doubtful), (8, 8));
    }

    #[test]
    fn the_next_queue_brings_the_buffer_that_the_last_one_may_have_taken_along() {
        let Some(device) = device_names().into_iter().next() else {
            eprintln!("no RDMA device on this machine: nothing is tested here");
            return;
        };
        let options = VerbsOptions { device, demanded: true, costs: Some(Costs::TYPICAL), ..VerbsOptions::default() };
        let fabric = Fabric::open(&options).expect("the device can be used");
        let posted = || fabric.incoming.lock().posted.len();
        let each = usize::from(options.credits_each());
        let first = fabric.queue().unwrap();
        assert_eq!(posted(), each);
        // As a stream does at its end.
        drop(first);
        fabric.note_end();
        let second = fabric.queue().unwrap();
        assert_eq!(posted(), each + 1);
        // One that ends before it was connected takes nothing along.
        drop(second);
        let _third = fabric.queue().unwrap();
        assert_eq!(posted(), each + 1);
    }

    fn gid(index: u8, kind: &str, bytes: &[u8]) -> Gid {
        let mut whole = [0; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        Gid { index, bytes: whole, kind: kind.into() }
    }

    #[test]
    fn routed_addresses_are_chosen_first() {
        let ipv4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let table = [
            gid(0, "IB/RoCE v1", &[0xfe, 0x80]),
            gid(1, "RoCE v2", &[0xfe, 0x80]),
            gid(2, "IB/RoCE v1", &ipv4),
            gid(3, "RoCE v2", &ipv4),
            gid(4, "RoCE v2", &[0x20, 1]),
        ];
        let mut order: Vec<&Gid> = table.iter().collect();
        order.sort_by_key(|gid| rank_of(gid));
        assert_eq!(order.iter().map(|gid| gid.index).collect::<Vec<_>>(), [3, 4, 1, 2, 0]);
    }
}
