//! The values of all variables, and what is built in.

use serde::Serialize;

use super::interface::InterfaceChoice;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;

/// How long to spin before sleeping, in microseconds, while no processor is shared. About ten times what it costs
/// to sleep and to be woken.
pub(super) const SPIN_US: u64 = 100;
/// Up to so many ranks a processor the built-in limits on waiting hold. 64 ranks on two processors connect to all others within a second; 512
/// with routers and 1,024 without them ran into the limits (`longarm-scale contact`).
pub(super) const PROMPT_RANKS_MAX: u64 = 32;
/// Above this, non-temporal copies are assumed to help where the caches are not known.
pub(super) const NONTEMPORAL_BYTES: u64 = 4 * MIB;
/// Below, a copy around the caches only costs.
pub(super) const NONTEMPORAL_BYTES_MIN: u64 = 4 * KIB;

/// How many variables there are.
pub(super) const VARIABLE_COUNT: usize = 39;

/// The value of every variable. All ranks of a job have the same, but for what follows from their own machine: how long they spin, how many
/// threads a server has, from which size copies go around the caches, and how long they wait for others.
///
/// ```
/// use longarm::config::Config;
///
/// let mut config = Config::from_environment()?; // or Config::default(), which looks at nothing
/// config.eager_bytes = 4096; // a field,
/// config.set("LONGARM_HEAP_BYTES", "64m")?; // or a name and a value, as in the environment
/// let world = longarm::init_with(config)?;
/// assert_eq!(world.config().heap_bytes, 64 << 20);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// What `longarm run` does is said by its own environment and arguments: here `nodes`, `on_failure`, `report_ms` and `watchdog_s`
/// mean nothing for the ranks that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At which addresses the servers listen. What was chosen, in the configuration of a [`World`](crate::World).
    pub interface: InterfaceChoice,
    /// Size of the kernel's socket buffers. 0: the kernel chooses, if it was set; if not, it follows from the round trip of
    /// each connection. [`Config::is_set`] tells them apart.
    pub socket_buffer_bytes: u64,
    /// By which rule TCP finds out how much it may send at once; empty: by the round trip, `kernel`: as the system has it.
    pub tcp_congestion: String,
    /// Whether connections between machines are of Multipath TCP, so that large transfers use all the networks between two hosts.
    pub tcp_multipath: bool,
    /// The network between nodes.
    pub network: NetworkChoice,
    /// The RDMA device, or several that the nodes take in turn. Empty: the first with an active port.
    pub verbs_device: String,
    /// Size of a preregistered buffer.
    pub verbs_slab_bytes: u64,
    /// Preregistered buffers that a peer may fill at a time.
    pub verbs_credits: u64,
    /// For how long an RDMA device waits for a packet, as a power of two.
    pub verbs_timeout: u64,
    /// Whether payload goes from memory to memory, with no server involved.
    pub verbs_direct: bool,
    /// From which size on memory is registered with RDMA devices rather than copied. 0: it is measured.
    pub verbs_register_bytes: u64,
    /// Bound on the program's own memory that is registered at a time.
    pub verbs_cache_bytes: u64,
    /// Windows larger than this are not registered with RDMA devices.
    pub verbs_pinned_bytes_max: u64,
    /// What is registered with RDMA devices without being kept in memory.
    pub verbs_on_demand: OnDemandChoice,
    /// Payloads of blocking calls up to this size, and up to half of [`Config::send_ring_bytes`], are copied behind their header; larger ones are
    /// sent from where they are. What is started is copied up to 16 KiB, or less if this is less.
    pub eager_bytes: u64,
    /// Bound on the bytes that one connection copies and keeps until the other side acknowledges them.
    pub send_ring_bytes: u64,
    /// How long a waiting thread spins before it sleeps. 0: sleep at once. See [`Config::settle_spin`].
    pub spin_us: u64,
    /// How many threads serve other nodes at once, where many ask. See [`Config::settle_server_threads`].
    pub server_threads: u64,
    /// Copies at least this large go around the caches.
    pub nontemporal_bytes: u64,
    /// How long to try to reach a node.
    pub connect_timeout_s: u64,
    /// How long a connection that broke may take to be made anew. 0: it is lost at once.
    pub reconnect_s: u64,
    /// How long a server that is waited for may be silent before its connection counts as broken.
    pub silence_ms: u64,
    /// Whether what is sent between nodes is encrypted.
    pub encrypt: bool,
    /// How many connections without a finished handshake a server keeps.
    pub half_open_max: u64,
    /// How long a handshake may take.
    pub handshake_timeout_ms: u64,
    /// How many connections the ranks of a node may have to servers of other nodes, and, counted by itself, how many of other ranks its server takes in. What goes
    /// beyond goes by routers.
    pub connections_max: u64,
    /// Size of the symmetric heap of each rank. Memory is used only where it is touched.
    pub heap_bytes: u64,
    /// The largest window a rank may ask for.
    pub window_bytes_max: u64,
    /// Whether parts of windows, and blocks of the heap, of more than 16 MiB take their memory in huge pages when they are made.
    pub huge_pages: bool,
    /// Into how many nodes the ranks of each machine are cut. 1: they share memory.
    pub nodes: u64,
    /// What the launcher does when a rank dies.
    pub on_failure: OnFailure,
    /// How long the others have to say what they know of a death before the launcher ends them.
    pub report_ms: u64,
    /// After how long in one call a rank is reported as waiting. 0: never.
    pub watchdog_s: u64,
    /// Where rank 0 of processes listens that were told their rank and size. Empty: nowhere.
    pub root: String,
    /// The file with the secret by which such processes know each other. Empty: none.
    pub secret_file: String,
    /// How long the ranks of a job that something else than `longarm run` has started may take to come together.
    pub meet_timeout_s: u64,
    /// Whether each of several processes that something else than `longarm run` has started is to be a world of its own.
    pub alone: bool,
    /// Whether ranks may stand still for as long as a debugger holds them. See [`Config::settle_debugger`].
    pub debugger: bool,
    /// What to log, as a filter of the `tracing` crates. `None`: warnings only.
    pub log: Option<String>,
    pub(super) origins: [Origin; VARIABLE_COUNT],
    pub(super) warnings: Vec<UnknownVariable>,
}

/// What happens to the others when a rank dies.
///
/// ```
/// use longarm::config::{Config, OnFailure};
/// let mut config = Config::default();
/// assert_eq!(config.on_failure, OnFailure::Abort);
/// config.set("LONGARM_ON_FAILURE", "continue")?;
/// assert_eq!(config.on_failure, OnFailure::Continue);
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// They are ended too.
    Abort,
    /// They go on without it.
    Continue,
}

/// Which network nodes talk over.
///
/// ```
/// use longarm::config::{Config, NetworkChoice};
/// let mut config = Config::default();
/// config.network = NetworkChoice::Tcp; // even where there are RDMA devices
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkChoice {
    /// Verbs where there is a device and the nodes are on several machines, else TCP.
    Auto,
    /// TCP.
    Tcp,
    /// Verbs, and nothing starts where there is no device.
    Verbs,
}

/// What is registered on demand with RDMA devices that do that.
///
/// ```
/// use longarm::config::{Config, OnDemandChoice};
/// let mut config = Config::default();
/// config.verbs_on_demand = OnDemandChoice::No; // what is registered stays in memory
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDemandChoice {
    /// Windows; and memory of the program where nothing else tells when it goes.
    Auto,
    /// Windows, and memory of the program.
    All,
    /// Nothing.
    No,
}

/// Where a value came from.
///
/// ```
/// use longarm::config::{Config, Origin};
/// let mut config = Config::default();
/// config.set("LONGARM_HEAP_BYTES", "64m")?;
/// assert!(config.is_set("LONGARM_HEAP_BYTES") && !config.is_set("LONGARM_NODES"));
/// let entries = config.entries();
/// let heap = entries.iter().find(|entry| entry.name == "LONGARM_HEAP_BYTES").expect("it is there");
/// assert_eq!((heap.value.as_str(), heap.origin), ("64m", Origin::Program));
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is built in.
    Default,
    /// It was set by hand.
    Environment,
    /// The program has set it.
    Program,
    /// It follows from the machine or from the job.
    Measured,
}

/// A variable with longarm's prefix that longarm does not know.
///
/// ```
/// let config = longarm::config::Config::from_environment()?;
/// for unknown in config.warnings() {
///     let meant = unknown.nearest.map(|name| format!("; is it {name}?")).unwrap_or_default();
///     eprintln!("longarm knows no variable {}{meant}", unknown.name);
/// }
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// Its name as found.
    pub name: String,
    /// The known name closest to it, if any is close.
    pub nearest: Option<&'static str>,
}

impl Default for Config {
    /// The built-in values, with nothing read from anywhere.
    fn default() -> Config {
        Config {
            interface: InterfaceChoice::Auto,
            socket_buffer_bytes: 0,
            tcp_congestion: String::new(),
            tcp_multipath: false,
            network: NetworkChoice::Auto,
            verbs_device: String::new(),
            verbs_slab_bytes: 8 * KIB,
            verbs_credits: 8,
            verbs_timeout: 14,
            verbs_direct: true,
            verbs_register_bytes: 0,
            verbs_cache_bytes: GIB,
            verbs_pinned_bytes_max: 16 * GIB,
            verbs_on_demand: OnDemandChoice::Auto,
            eager_bytes: 48 * KIB,
            send_ring_bytes: MIB,
            spin_us: SPIN_US,
            server_threads: 1,
            nontemporal_bytes: NONTEMPORAL_BYTES,
            connect_timeout_s: 10,
            reconnect_s: 10,
            silence_ms: 750,
            encrypt: false,
            half_open_max: 64,
            handshake_timeout_ms: 2000,
            connections_max: 4096,
            heap_bytes: GIB,
            window_bytes_max: 1 << 46,
            huge_pages: false,
            nodes: 1,
            on_failure: OnFailure::Abort,
            report_ms: 700,
            watchdog_s: 10,
            debugger: false,
            root: String::new(),
            secret_file: String::new(),
            meet_timeout_s: 60,
            alone: false,
            log: None,
            origins: [Origin::Default; VARIABLE_COUNT],
            warnings: Vec::new(),
        }
    }
}
