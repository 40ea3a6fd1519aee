//! The functions of `libibverbs` and `librdmacm`, found at run time.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library as NetmodState;
use rdma_sys::{
    _compat_ibv_port_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid, ibv_mr, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};

/// Where the libraries are looked for: what Debian, Red Hat and SUSE all call them.
const NAME: &str = "libibverbs.so.1";
const MANAGER_NAME: &str = "librdmacm.so.1";

/// There is no such library on this machine, or it lacks a function that we need.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no {name} ({reason}); install the rdma-core packages (Debian: {packages})")]
pub(crate) struct NoLibrary {
    name: &'static str,
    packages: &'static str,
    reason: String,
}

macro_rules! functions {
    ($library:ident: $($name:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Pointers to the functions of a library, as its header declares them.
        pub(crate) struct $library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Keeps them valid.
            _shared: NetmodState,
        }

        impl $library {
            fn of(shared: NetmodState) -> Result<$library, libloading::Error> {
                $(
                    // SAFETY: the symbol has this type in the header that `rdma-sys` was generated from, and the library keeps
                    // its interface for as long as its name has this number.
                    let found = unsafe { shared.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) };
                    let $name = *found?;
                )*
                Ok($library { $($name,)* _shared: shared })
            }
        }
    };
}

functions! {
    Library:
    get_device_list = b"ibv_get_device_list\0": fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list = b"ibv_free_device_list\0": fn(*mut *mut ibv_device) -> ();
    get_device_name = b"ibv_get_device_name\0": fn(*mut ibv_device) -> *const c_char;
    open_device = b"ibv_open_device\0": fn(*mut ibv_device) -> *mut ibv_context;
    close_device = b"ibv_close_device\0": fn(*mut ibv_context) -> c_int;
    query_device = b"ibv_query_device\0": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port = b"ibv_query_port\0": fn(*mut ibv_context, u8, *mut _compat_ibv_port_attr) -> c_int;
    query_gid = b"ibv_query_gid\0": fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    alloc_pd = b"ibv_alloc_pd\0": fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd = b"ibv_dealloc_pd\0": fn(*mut ibv_pd) -> c_int;
    reg_mr_iova = b"ibv_reg_mr_iova\0": fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr;
    dereg_mr = b"ibv_dereg_mr\0": fn(*mut ibv_mr) -> c_int;
    create_comp_channel = b"ibv_create_comp_channel\0": fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel = b"ibv_destroy_comp_channel\0": fn(*mut ibv_comp_channel) -> c_int;
    create_cq = b"ibv_create_cq\0": fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq = b"ibv_destroy_cq\0": fn(*mut ibv_cq) -> c_int;
    get_cq_event = b"ibv_get_cq_event\0": fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events = b"ibv_ack_cq_events\0": fn(*mut ibv_cq, u32) -> ();
    create_srq = b"ibv_create_srq\0": fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq = b"ibv_destroy_srq\0": fn(*mut ibv_srq) -> c_int;
    create_qp = b"ibv_create_qp\0": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp = b"ibv_modify_qp\0": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    query_qp = b"ibv_query_qp\0": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    destroy_qp = b"ibv_destroy_qp\0": fn(*mut ibv_qp) -> c_int;
    fork_init = b"ibv_fork_init\0": fn() -> c_int;
}

impl Library {
    /// The library of this process, loaded on the first call.
    ///
    /// # Errors
    /// When it is not installed, or is too old.
    pub(crate) fn get() -> Result<&'static Library, NoLibrary> {
        static LIBRARY: OnceLock<Result<Library, NoLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Library, NoLibrary> {
        let packages = "libibverbs1 and ibverbs-providers";
        let missing = |error: libloading::Error| NoLibrary { name: NAME, packages, reason: error.to_string() };
        // SAFETY: what the library runs when it is loaded is fit for any program; it is the system's own.
        let shared = unsafe { NetmodState::new(NAME) }.map_err(missing)?;
        let library = Library::of(shared).map_err(missing)?;
        // SAFETY: takes nothing. It has to come before the first registration. Newer kernels give children copies of
        // registered pages by themselves, and then it does nothing.
        let forking = unsafe { (library.fork_init)() };
        if forking != 0 {
            tracing::debug!(forking, "the verbs library does not look after forks");
        }
        Ok(library)
    }
}

/// Addresses are handed over as the bytes of one.
type Address = *mut c_void;

functions! {
    ManagerLibrary:
    create_event_channel = b"rdma_create_event_channel\0": fn() -> *mut rdma_event_channel;
    destroy_event_channel = b"rdma_destroy_event_channel\0": fn(*mut rdma_event_channel) -> ();
    create_id = b"rdma_create_id\0": fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, rdma_sys::rdma_port_space::Type) -> c_int;
    destroy_id = b"rdma_destroy_id\0": fn(*mut rdma_cm_id) -> c_int;
    bind_addr = b"rdma_bind_addr\0": fn(*mut rdma_cm_id, Address) -> c_int;
    listen = b"rdma_listen\0": fn(*mut rdma_cm_id, c_int) -> c_int;
    get_src_port = b"rdma_get_src_port\0": fn(*mut rdma_cm_id) -> u16;
    resolve_addr = b"rdma_resolve_addr\0": fn(*mut rdma_cm_id, Address, Address, c_int) -> c_int;
    resolve_route = b"rdma_resolve_route\0": fn(*mut rdma_cm_id, c_int) -> c_int;
    connect = b"rdma_connect\0": fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    accept = b"rdma_accept\0": fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    disconnect = b"rdma_disconnect\0": fn(*mut rdma_cm_id) -> c_int;
    migrate_id = b"rdma_migrate_id\0": fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    get_cm_event = b"rdma_get_cm_event\0": fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    ack_cm_event = b"rdma_ack_cm_event\0": fn(*mut rdma_cm_event) -> c_int;
}

impl ManagerLibrary {
    /// The library of this process, loaded on the first call: only devices of iWARP need it.
    ///
    /// # Errors
    /// When it is not installed, or is too old.
    pub(crate) fn get() -> Result<&'static ManagerLibrary, NoLibrary> {
        static LIBRARY: OnceLock<Result<ManagerLibrary, NoLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(ManagerLibrary::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<ManagerLibrary, NoLibrary> {
        let missing = |error: libloading::Error| NoLibrary {
            name: MANAGER_NAME,
            packages: "librdmacm1",
            reason: error.to_string(),
        };
        // SAFETY: as for the other library.
        let shared = unsafe { NetmodState::new(MANAGER_NAME) }.map_err(missing)?;
        ManagerLibrary::of(shared).map_err(missing)
    }
}
