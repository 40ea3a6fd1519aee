//! Devices: which there are, opening one, its ports, and the protection domain that all of ours lies in.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{_compat_ibv_port_attr, ibv_context, ibv_device, ibv_device_attr, ibv_gid, ibv_pd, ibv_port_attr};
use rustix::io::Errno;

use super::errno::{check, last_errno};
use super::library::Library;

/// An open device.
pub(crate) struct Context {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<ibv_context>,
    name: String,
    limits: ibv_device_attr,
}

// SAFETY: the library lets any thread use a context at any time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What a port is and can do now.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) is_active: bool,
    /// The code of the largest payload of a packet: 1 stands for 256 bytes, 5 for 4096.
    pub(crate) mtu_code: u32,
    pub(crate) lid: u16,
    /// Packets travel over Ethernet, so peers are named by GID alone.
    pub(crate) is_ethernet: bool,
    pub(crate) gids: i32,
}

/// The device's limits that matter to us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLimits {
    pub(crate) ports: u8,
    /// Requests that a queue takes, and its completion queue.
    pub(crate) queue_depth: u32,
    pub(crate) reads_at_once: u8,
    pub(crate) shared_receives: u32,
    pub(crate) gathers: u32,
    /// The same for reads.
    pub(crate) read_gathers: u32,
    pub(crate) registrations: u32,
    /// It updates words of memory on behalf of peers.
    pub(crate) atomics: bool,
}

/// Calls `with` with every device of the machine, until it returns something.
fn find_device<R>(library: &'static Library, with: impl Fn(*mut ibv_device, &str) -> Option<R>) -> Option<R> {
    let mut count = 0;
    // SAFETY: `count` is a place for the number.
    let list = unsafe { (library.get_device_list)(&raw mut count) };
    let list = NonNull::new(list)?;
    let found = (0..usize::try_from(count).unwrap_or(0)).find_map(|index| {
        // SAFETY: the list has `count` entries.
        let entry = unsafe { list.add(index) };
        // SAFETY: as above; it is not freed yet.
        let device = unsafe { entry.read() };
        // SAFETY: the device is of the list.
        let name = unsafe { (library.get_device_name)(device) };
        // SAFETY: the name ends with a zero and lives as long as the list.
        let name = unsafe { CStr::from_ptr(name) };
        with(device, &name.to_string_lossy())
    });
    // SAFETY: nobody keeps an entry: opened devices do not need it.
    unsafe { (library.free_device_list)(list.as_ptr()) };
    found
}

/// The names of the devices of this machine.
pub(crate) fn device_names(library: &'static Library) -> Vec<String> {
    let names = std::cell::RefCell::new(Vec::new());
    find_device(library, |_, name| {
        names.borrow_mut().push(name.to_owned());
        None::<()>
    });
    names.into_inner()
}

impl Context {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// The system's: `NODEV` if there is none, `ACCESS` if this user may not.
    pub(crate) fn open(library: &'static Library, name: &str) -> Result<Arc<Context>, Errno> {
        let opened = find_device(library, |device, found| {
            (found == name).then(|| {
                // SAFETY: the device is of the list that is still there.
                let raw = unsafe { (library.open_device)(device) };
                NonNull::new(raw).ok_or_else(last_errno)
            })
        });
        let raw = opened.unwrap_or(Err(Errno::NODEV))?;
        let mut limits = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and there is room for the answer.
        let queried = check(unsafe { (library.query_device)(raw.as_ptr(), limits.as_mut_ptr()) });
        // SAFETY: zeros are numbers too.
        let limits = unsafe { limits.assume_init() };
        let context = Context { library, raw, name: name.to_owned(), limits };
        queried.map(|()| Arc::new(context))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it speaks iWARP: its queues are connected by the connection manager, and it takes no numbers with messages.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open, and what it says of its device does not change.
        let device = unsafe { self.raw.as_ref() }.device;
        // SAFETY: the device is there as long as its context.
        unsafe { (*device).transport_type == rdma_sys::ibv_transport_type::IBV_TRANSPORT_IWARP }
    }

    /// What the device can do at most.
    pub(crate) fn limits(&self) -> PortLimits {
        let limits = &self.limits;
        let positive = |number: i32| u32::try_from(number).unwrap_or(0);
        let reads = limits.max_qp_rd_atom.min(limits.max_qp_init_rd_atom);
        PortLimits {
            ports: limits.phys_port_cnt,
            queue_depth: positive(limits.max_qp_wr.min(limits.max_cqe)),
            reads_at_once: u8::try_from(reads.clamp(0, 16)).unwrap_or(0),
            shared_receives: if limits.max_srq > 0 { positive(limits.max_srq_wr) } else { 0 },
            gathers: positive(limits.max_sge),
            read_gathers: positive(limits.max_sge_rd),
            registrations: positive(limits.max_mr),
            atomics: limits.atomic_cap != rdma_sys::ibv_atomic_cap::IBV_ATOMIC_NONE && !self.is_iwarp(),
        }
    }

    /// Asks for the state of a port.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn port(&self, number: u8) -> Result<Port, Errno> {
        let mut port = MaybeUninit::<ibv_port_attr>::zeroed();
        let place = port.as_mut_ptr().cast::<_compat_ibv_port_attr>();
        // SAFETY: the older form of the answer, which this function fills in, is the beginning of the newer one.
        check(unsafe { (self.library.query_port)(self.raw.as_ptr(), number, place) })?;
        // SAFETY: zeros are numbers too.
        let port = unsafe { port.assume_init() };
        Ok(Port {
            number,
            is_active: port.state == rdma_sys::ibv_port_state::IBV_PORT_ACTIVE,
            mtu_code: port.active_mtu,
            lid: port.lid,
            is_ethernet: port.link_layer == 2,
            gids: port.gid_tbl_len,
        })
    }

    /// One of a port's addresses.
    ///
    /// # Errors
    /// The system's, when there is none of this number.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Result<[u8; 16], Errno> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open, and there is room for the answer.
        check(unsafe { (self.library.query_gid)(self.raw.as_ptr(), port, index.into(), &raw mut gid) })?;
        // SAFETY: all of the union's forms are sixteen bytes.
        Ok(unsafe { gid.raw })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all that was made of it holds a count of it, so nothing is left.
        let closed = unsafe { (self.library.close_device)(self.raw.as_ptr()) };
        debug_assert_eq!(closed, 0, "something of the device is left");
    }
}

/// What belongs together: queues reach memory of their own domain only.
pub(crate) struct Domain {
    pub(super) context: Arc<Context>,
    pub(super) raw: NonNull<ibv_pd>,
}

// SAFETY: the library lets any thread use a domain at any time.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// A new domain of a device.
    ///
    /// # Errors
    /// The system's, when the device has no more.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Domain>, Errno> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.alloc_pd)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        Ok(Arc::new(Domain { context: Arc::clone(context), raw }))
    }

    /// How many registrations the device keeps.
    pub(crate) fn registrations(&self) -> u32 {
        self.context.limits().registrations
    }

    pub(crate) fn device_name(&self) -> &str {
        self.context.name()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: all that was made in it holds a count of it, so nothing is left.
        let freed = unsafe { (self.context.library.dealloc_pd)(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "something of the domain is left");
    }
}
