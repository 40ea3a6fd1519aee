//! The connection manager of the RDMA devices, which connects queue pairs over iWARP: there the devices speak TCP themselves,
//! and nobody but the manager makes them begin.
//!
//! A queue pair stays one of ours, made on our own context of its device. The manager opens the device once more for itself; it
//! knows queues by their numbers, which belong to the device.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::context::Context;
use super::errno::{check, last_errno};
use super::library::{ManagerLibrary, NoLibrary};
use super::queue::Queue;

/// Bytes of the private data that a caller sends along: the number of the connection.
const CONNECTION_NUMBER_BYTES: usize = 8;

/// Calls that may wait to be looked at.
pub(crate) const BACKLOG: i32 = 256;
/// For an answer to the question where a peer is.
const PATIENCE_MS: i32 = 5000;

/// The manager's event channel (`rdma_event_channel`) of some ids, and what to sleep on until it has more.
pub(crate) struct ManagerEvents {
    library: &'static ManagerLibrary,
    raw: NonNull<rdma_event_channel>,
}

// SAFETY: the library lets any thread use a channel at any time.
unsafe impl Send for ManagerEvents {}
// SAFETY: as above.
unsafe impl Sync for ManagerEvents {}

/// One event of the manager (`rdma_cm_event`).
pub(crate) enum ManagerEvent {
    /// Somebody calls an id that listens, and says which connection this is to be.
    ConnectRequest { id: ManagerId, number: u64 },
    /// Our device knows where the peer is.
    AddressResolved,
    /// And how it is reached.
    RouteResolved,
    /// The queues of both sides are connected.
    Established,
    /// The connection has ended, or comes to nothing. The manager says why, if it knows.
    Ended(Errno),
    /// Nothing that matters.
    Other,
}

/// Why there is no channel.
pub(crate) enum NoManager {
    Library(NoLibrary),
    System(Errno),
}

impl ManagerEvents {
    /// A channel for events.
    ///
    /// # Errors
    /// No library, or no device of the manager's.
    pub(crate) fn new() -> Result<Arc<ManagerEvents>, NoManager> {
        let library = ManagerLibrary::get().map_err(NoManager::Library)?;
        ManagerEvents::with(library).map_err(NoManager::System)
    }

    fn with(library: &'static ManagerLibrary) -> Result<Arc<ManagerEvents>, Errno> {
        // SAFETY: takes nothing.
        let raw = unsafe { (library.create_event_channel)() };
        let events = Arc::new(ManagerEvents { library, raw: NonNull::new(raw).ok_or_else(last_errno)? });
        let flags = rustix::fs::fcntl_getfl(events.descriptor())?;
        rustix::fs::fcntl_setfl(events.descriptor(), flags | OFlags::NONBLOCK)?;
        Ok(events)
    }

    /// A channel beside this one.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn another(&self) -> Result<Arc<ManagerEvents>, Errno> {
        ManagerEvents::with(self.library)
    }

    /// What to sleep on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: it lives as long as we do.
        let channel = unsafe { self.raw.as_ref() };
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(channel.fd) }
    }

    /// The next event, if there is one.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ManagerEvent> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel is there, and there is room for the answer.
        let got = unsafe { (self.library.get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        let event = NonNull::new(event).filter(|_| got == 0)?;
        // SAFETY: it is ours until it is acknowledged below.
        let taken = self.read(unsafe { event.as_ref() });
        // SAFETY: it was just fetched, and is acknowledged once.
        unsafe { (self.library.ack_cm_event)(event.as_ptr()) };
        Some(taken)
    }

    fn read(self: &Arc<Self>, event: &rdma_cm_event) -> ManagerEvent {
        let why = Errno::from_raw_os_error(event.status.unsigned_abs().clamp(1, 4095) as i32);
        match event.event {
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST => {
                let Some(raw) = NonNull::new(event.id) else { return ManagerEvent::Other };
                // From now on ours: who does nothing with it lets go of it, which turns the caller away.
                let id = ManagerId { events: Arc::clone(self), raw };
                ManagerEvent::ConnectRequest { id, number: number_of(event) }
            }
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED => ManagerEvent::AddressResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => ManagerEvent::RouteResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => ManagerEvent::Established,
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED | rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                ManagerEvent::Ended(Errno::CONNRESET)
            }
            rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => ManagerEvent::Ended(Errno::CONNREFUSED),
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR
            | rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR
            | rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR
            | rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE => ManagerEvent::Ended(why),
            _ => ManagerEvent::Other,
        }
    }
}

/// What the caller has sent along; 0, which nobody waits for, if it is something else.
fn number_of(event: &rdma_cm_event) -> u64 {
    // SAFETY: a request to connect has this form of the union, and for all of them its words are numbers and a pointer.
    let sent = unsafe { event.param.conn };
    if usize::from(sent.private_data_len) < CONNECTION_NUMBER_BYTES || sent.private_data.is_null() {
        return 0;
    }
    // SAFETY: there are so many bytes, which stay until the event is acknowledged.
    u64::from_le_bytes(unsafe { sent.private_data.cast::<[u8; CONNECTION_NUMBER_BYTES]>().read_unaligned() })
}

impl Drop for ManagerEvents {
    fn drop(&mut self) {
        // SAFETY: its ids hold a count of it, so none is left.
        unsafe { (self.library.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An address as system calls take it: bytes of `sockaddr_in` or `sockaddr_in6`.
#[repr(C, align(8))]
struct RawSocketAddr([u8; 28]);

impl RawSocketAddr {
    fn new(address: SocketAddr) -> RawSocketAddr {
        let mut bytes = [0; 28];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        RawSocketAddr(bytes)
    }
}

/// The manager's handle (`rdma_cm_id`) of one end of a connection that it makes, or of an address and port where it listens.
pub(crate) struct ManagerId {
    events: Arc<ManagerEvents>,
    raw: NonNull<rdma_cm_id>,
}

// SAFETY: the library lets any thread use an id.
unsafe impl Send for ManagerId {}
// SAFETY: as above, at any time; what changes an id takes its owner.
unsafe impl Sync for ManagerId {}

impl ManagerId {
    /// One that leads nowhere yet.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(events: &Arc<ManagerEvents>) -> Result<ManagerId, Errno> {
        let (mut raw, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        let space = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is there, and there is room for the answer.
        check(unsafe { (events.library.create_id)(events.raw.as_ptr(), &raw mut raw, none, space) })?;
        Ok(ManagerId { events: Arc::clone(events), raw: NonNull::new(raw).ok_or(Errno::NOMEM)? })
    }

    /// Listens at an address of this machine, at a port that is free, if that address belongs to the device. Returns the port.
    ///
    /// # Errors
    /// The system's; `NODEV` if it is another device's.
    pub(crate) fn listen(&self, address: IpAddr, context: &Context) -> Result<u16, Errno> {
        let mut address = RawSocketAddr::new(SocketAddr::new(address, 0));
        let library = self.events.library;
        // SAFETY: the id and the address are there.
        check(unsafe { (library.bind_addr)(self.raw.as_ptr(), (&raw mut address).cast()) })?;
        if !self.is_of(context) {
            return Err(Errno::NODEV);
        }
        // SAFETY: the id is there.
        check(unsafe { (library.listen)(self.raw.as_ptr(), BACKLOG) })?;
        // SAFETY: as above.
        Ok(u16::from_be(unsafe { (library.get_src_port)(self.raw.as_ptr()) }))
    }

    /// Whether it leads over this device.
    fn is_of(&self, context: &Context) -> bool {
        // SAFETY: the id is there, and nobody writes to it now.
        let verbs = unsafe { self.raw.as_ref() }.verbs;
        let Some(verbs) = NonNull::new(verbs) else { return false };
        // SAFETY: the manager keeps its context of a device while an id is bound to it.
        let device = unsafe { verbs.as_ref() }.device;
        // SAFETY: the device is that of an open context.
        let name = unsafe { (context.library.get_device_name)(device) };
        // SAFETY: the name ends with a zero, and lives as long as the device.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_bytes() == context.name().as_bytes()
    }

    /// Looks for the way to a peer.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn resolve_address(&self, from: IpAddr, to: SocketAddr) -> Result<(), Errno> {
        let (mut from, mut to) = (RawSocketAddr::new(SocketAddr::new(from, 0)), RawSocketAddr::new(to));
        let (from, to) = ((&raw mut from).cast(), (&raw mut to).cast());
        // SAFETY: the id and the addresses are there.
        check(unsafe { (self.events.library.resolve_addr)(self.raw.as_ptr(), from, to, PATIENCE_MS) })
    }

    /// The second part of that.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn resolve_route(&self) -> Result<(), Errno> {
        // SAFETY: the id is there.
        check(unsafe { (self.events.library.resolve_route)(self.raw.as_ptr(), PATIENCE_MS) })
    }

    /// Calls the peer. What becomes of it comes as an event.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn connect(&mut self, queue: &Queue, number: u64, reads: u8) -> Result<(), Errno> {
        let bytes = number.to_le_bytes();
        let mut param = self.join(queue, reads);
        param.private_data = bytes.as_ptr().cast();
        param.private_data_len = CONNECTION_NUMBER_BYTES as u8;
        // SAFETY: the id, its queue and the bytes are there.
        check(unsafe { (self.events.library.connect)(self.raw.as_ptr(), &raw mut param) })
    }

    /// Takes the call. What becomes of it comes as an event of `events` from now on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn accept(&mut self, events: &Arc<ManagerEvents>, queue: &Queue, reads: u8) -> Result<(), Errno> {
        let library = self.events.library;
        // SAFETY: both are there; the events of the id so far are acknowledged, so nobody is waited for.
        check(unsafe { (library.migrate_id)(self.raw.as_ptr(), events.raw.as_ptr()) })?;
        self.events = Arc::clone(events);
        let mut param = self.join(queue, reads);
        // SAFETY: the id and its queue are there.
        check(unsafe { (library.accept)(self.raw.as_ptr(), &raw mut param) })
    }

    /// Tells the library of the queue, whose states it changes, and the kernel of its number.
    fn join(&mut self, queue: &Queue, reads: u8) -> rdma_conn_param {
        // SAFETY: nobody else has the id. Who owns both lets go of the id first.
        unsafe { self.raw.as_mut() }.qp = queue.raw();
        rdma_conn_param {
            private_data: std::ptr::null(),
            private_data_len: 0,
            responder_resources: reads,
            initiator_depth: reads,
            flow_control: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            srq: 1,
            qp_num: queue.number(),
        }
    }

    /// Ends the connection in order: what was handed over to the device is still delivered.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the id and its queue are there. An error says that it has ended already.
        unsafe { (self.events.library.disconnect)(self.raw.as_ptr()) };
    }
}

impl Drop for ManagerId {
    fn drop(&mut self) {
        // SAFETY: it is ours and let go of once. All of its events were acknowledged.
        unsafe { (self.events.library.destroy_id)(self.raw.as_ptr()) };
    }
}

/// The addresses of this machine's networks, but for those that lead nowhere else.
pub(crate) fn local_addresses() -> Vec<IpAddr> {
    let mut first = std::ptr::null_mut();
    // SAFETY: there is room for the answer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = NonNull::new(first);
    while let Some(entry) = next {
        // SAFETY: an entry of the list, which is freed below.
        let entry = unsafe { entry.as_ref() };
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0 && entry.ifa_flags & libc::IFF_LOOPBACK as u32 == 0;
        found.extend(NonNull::new(entry.ifa_addr).filter(|_| is_up).and_then(address_of));
        next = NonNull::new(entry.ifa_next);
    }
    // SAFETY: the list is the one from above.
    unsafe { libc::freeifaddrs(first) };
    // Those of version 4 first.
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

fn address_of(raw: NonNull<libc::sockaddr>) -> Option<IpAddr> {
    // SAFETY: an address is long enough for its family.
    match i32::from(unsafe { raw.as_ref() }.sa_family) {
        libc::AF_INET => {
            // SAFETY: of this family it has this form.
            let address = unsafe { raw.cast::<libc::sockaddr_in>().as_ref() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { raw.cast::<libc::sockaddr_in6>().as_ref() };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            // One that holds on one link only would need the link beside it.
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}
