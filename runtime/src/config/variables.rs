//! The table of variables: how each is called, read and shown.

use tracing_subscriber::filter::Targets;

use super::values::{
    Config, GIB, KIB, MIB, NONTEMPORAL_BYTES_MIN, NetworkChoice, OnDemandChoice, OnFailure, TIB, VARIABLE_COUNT,
};

/// One row of the table.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) meaning: &'static str,
    pub(super) slot: Slot,
}

/// How a value is read and where it is kept.
pub(super) enum Slot {
    /// A size within bounds. `zero` says what 0 stands for, if it is accepted below the bounds.
    Bytes { field: fn(&mut Config) -> &mut u64, min: u64, max: u64, zero: Option<&'static str> },
    /// A plain number within bounds.
    Number { field: fn(&mut Config) -> &mut u64, min: u64, max: u64 },
    /// Yes or no.
    Switch { field: fn(&mut Config) -> &mut bool },
    /// Addresses of this machine.
    Interface,
    /// What a death leads to.
    Policy,
    /// A network.
    Network,
    /// What RDMA devices register on demand.
    OnDemand,
    /// Any text; `empty` says what none stands for.
    Text { field: fn(&mut Config) -> &mut String, accepted: &'static str, empty: &'static str },
    /// A filter of log lines.
    Filter,
}

// The order is the order of `longarm info`.
pub(super) const INTERFACE: usize = 0;
/// A ring takes at least two payloads that are copied, see [`Config::copied_bytes_max`].
const EAGER_BYTES_SETTING_MAX: u64 = 64 * KIB;
const SEND_RING_BYTES_MIN: u64 = 64 * KIB;
/// More would find nothing to do: one thread lends all connections out.
const SERVER_THREADS_MAX: u64 = 64;
pub(super) const SPIN: usize = 16;
pub(super) const SERVER_THREADS: usize = 17;
pub(super) const NONTEMPORAL: usize = 18;
/// What bounds how long a rank waits for others. See [`Config::settle_wait_limits`].
pub(super) const WAIT_LIMITS: [&str; 5] = [
    "LONGARM_CONNECT_TIMEOUT_S",
    "LONGARM_RECONNECT_S",
    "LONGARM_SILENCE_MS",
    "LONGARM_HANDSHAKE_TIMEOUT_MS",
    "LONGARM_WATCHDOG_S",
];

/// The table.
pub(super) const VARIABLES: [Variable; VARIABLE_COUNT] = [
    Variable {
        name: "LONGARM_INTERFACE",
        unit: "",
        meaning: "addresses that the servers of the nodes listen on",
        slot: Slot::Interface,
    },
    Variable {
        name: "LONGARM_SOCKET_BUFFER_BYTES",
        unit: "bytes",
        meaning: "size of the kernel's socket buffers; if not set, it follows from each connection's round trip",
        slot: Slot::Bytes {
            field: |config| &mut config.socket_buffer_bytes,
            min: 4 * KIB,
            max: GIB,
            zero: Some("the kernel chooses"),
        },
    },
    Variable {
        name: "LONGARM_TCP_CONGESTION",
        unit: "",
        meaning: "by which rule TCP finds out how much it may send at once",
        slot: Slot::Text {
            field: |config| &mut config.tcp_congestion,
            accepted: "auto (reno where the round trip is short and the kernel has bbr or cubic), kernel (as it has it), or a name of net.ipv4.tcp_allowed_congestion_control",
            empty: "auto",
        },
    },
    Variable {
        name: "LONGARM_TCP_MULTIPATH",
        unit: "",
        meaning: "whether connections between machines are of Multipath TCP, over all networks that the system was told to use",
        slot: Slot::Switch { field: |config| &mut config.tcp_multipath },
    },
    Variable {
        name: "LONGARM_NETMOD",
        unit: "",
        meaning: "network between nodes; has to be the same for all",
        slot: Slot::Network,
    },
    Variable {
        name: "LONGARM_VERBS_DEVICE",
        unit: "",
        meaning: "RDMA device, with its port and the index of its address where they matter",
        slot: Slot::Text {
            field: |config| &mut config.verbs_device,
            accepted: "NAME, NAME:PORT or NAME:PORT:GID; several, with commas, are taken in turn by the nodes",
            empty: "nearest",
        },
    },
    Variable {
        name: "LONGARM_VERBS_SLAB_BYTES",
        unit: "bytes",
        meaning: "size of the preregistered buffers that bytes are copied through",
        slot: Slot::Bytes { field: |config| &mut config.verbs_slab_bytes, min: 256, max: MIB, zero: None },
    },
    Variable {
        name: "LONGARM_VERBS_CREDITS",
        unit: "buffers",
        meaning: "preregistered buffers that a peer may fill at a time; fewer in jobs of very many ranks",
        slot: Slot::Number { field: |config| &mut config.verbs_credits, min: 4, max: 1024 },
    },
    Variable {
        name: "LONGARM_VERBS_TIMEOUT",
        unit: "",
        meaning: "an RDMA device waits 4.096 us times two to the power of this for a packet, seven times",
        slot: Slot::Number { field: |config| &mut config.verbs_timeout, min: 1, max: 31 },
    },
    Variable {
        name: "LONGARM_VERBS_DIRECT",
        unit: "",
        meaning: "whether RDMA devices read and write windows with no server involved",
        slot: Slot::Switch { field: |config| &mut config.verbs_direct },
    },
    Variable {
        name: "LONGARM_VERBS_REGISTER_BYTES",
        unit: "bytes",
        meaning: "memory from this size on is registered with RDMA devices rather than copied",
        slot: Slot::Bytes {
            field: |config| &mut config.verbs_register_bytes,
            min: 4 * KIB,
            max: TIB,
            zero: Some("it follows from what is measured"),
        },
    },
    Variable {
        name: "LONGARM_VERBS_CACHE_BYTES",
        unit: "bytes",
        meaning: "bound on the program's own memory that is registered at a time, in use or kept for later",
        slot: Slot::Bytes { field: |config| &mut config.verbs_cache_bytes, min: MIB, max: 64 * TIB, zero: None },
    },
    Variable {
        name: "LONGARM_VERBS_PINNED_BYTES_MAX",
        unit: "bytes",
        meaning: "larger windows are not registered, as all their pages would have to stay in memory, unless on demand",
        slot: Slot::Bytes {
            field: |config| &mut config.verbs_pinned_bytes_max,
            min: 4 * KIB,
            max: 64 * TIB,
            zero: Some("none is registered"),
        },
    },
    Variable {
        name: "LONGARM_VERBS_ODP",
        unit: "",
        meaning: "what is registered without being kept in memory, where the device has on-demand paging and does it right",
        slot: Slot::OnDemand,
    },
    Variable {
        name: "LONGARM_EAGER_BYTES",
        unit: "bytes",
        meaning: "blocking puts and accumulates up to this size are copied, larger ones are sent from where they are",
        slot: Slot::Bytes {
            field: |config| &mut config.eager_bytes,
            min: 64,
            max: EAGER_BYTES_SETTING_MAX,
            zero: None,
        },
    },
    Variable {
        name: "LONGARM_SEND_RING_BYTES",
        unit: "bytes",
        meaning: "bound on the bytes that one connection copies and keeps until the other side acknowledges them",
        slot: Slot::Bytes {
            field: |config| &mut config.send_ring_bytes,
            min: SEND_RING_BYTES_MIN,
            max: GIB,
            zero: None,
        },
    },
    Variable {
        name: "LONGARM_SPIN_US",
        unit: "microseconds",
        meaning: "how long a waiting thread spins before it sleeps; by default 0 where ranks share processors",
        slot: Slot::Number { field: |config| &mut config.spin_us, min: 0, max: 1_000_000 },
    },
    Variable {
        name: "LONGARM_SERVER_THREADS",
        unit: "threads",
        meaning: "how many threads serve other nodes where many ask at once; 1: the server's alone; by default up to 4 where ranks leave processors free",
        slot: Slot::Number { field: |config| &mut config.server_threads, min: 1, max: SERVER_THREADS_MAX },
    },
    Variable {
        name: "LONGARM_NONTEMPORAL_BYTES",
        unit: "bytes",
        meaning: "copies, or walks of copies from 128k on, at least this large go around the caches",
        slot: Slot::Bytes {
            field: |config| &mut config.nontemporal_bytes,
            min: NONTEMPORAL_BYTES_MIN,
            max: 64 * TIB,
            zero: None,
        },
    },
    Variable {
        name: "LONGARM_CONNECT_TIMEOUT_S",
        unit: "seconds",
        meaning: "how long to try to reach a node",
        slot: Slot::Number { field: |config| &mut config.connect_timeout_s, min: 1, max: 3600 },
    },
    Variable {
        name: "LONGARM_RECONNECT_S",
        unit: "seconds",
        meaning: "how long a connection that broke may take to be made anew before its node counts as lost; 0: at once",
        slot: Slot::Number { field: |config| &mut config.reconnect_s, min: 0, max: 86_400 },
    },
    Variable {
        name: "LONGARM_SILENCE_MS",
        unit: "milliseconds",
        meaning: "how long a node that is waited for may be silent before its connection counts as broken",
        slot: Slot::Number { field: |config| &mut config.silence_ms, min: 50, max: 3_600_000 },
    },
    Variable {
        name: "LONGARM_ENCRYPT",
        unit: "",
        meaning: "whether what is sent over connections is encrypted; has to be the same for all",
        slot: Slot::Switch { field: |config| &mut config.encrypt },
    },
    Variable {
        name: "LONGARM_HALF_OPEN_MAX",
        unit: "connections",
        meaning: "how many connections without a finished handshake a server keeps, besides one for each rank of the job",
        slot: Slot::Number { field: |config| &mut config.half_open_max, min: 1, max: 65536 },
    },
    Variable {
        name: "LONGARM_HANDSHAKE_TIMEOUT_MS",
        unit: "milliseconds",
        meaning: "how long a handshake may take",
        slot: Slot::Number { field: |config| &mut config.handshake_timeout_ms, min: 1, max: 600_000 },
    },
    Variable {
        name: "LONGARM_CONNECTIONS_MAX",
        unit: "connections",
        meaning: "how many connections the ranks of a node may have to other nodes, and its server to their ranks; what goes beyond goes through the servers of both, \
                  and with 0 all does; has to be the same for all",
        slot: Slot::Number { field: |config| &mut config.connections_max, min: 0, max: 1 << 32 },
    },
    Variable {
        name: "LONGARM_HEAP_BYTES",
        unit: "bytes",
        meaning: "size of the symmetric heap of each rank, used only where touched",
        slot: Slot::Bytes {
            field: |config| &mut config.heap_bytes,
            min: 64 * KIB,
            max: 64 * TIB,
            zero: Some("no heap"),
        },
    },
    Variable {
        name: "LONGARM_WINDOW_BYTES_MAX",
        unit: "bytes",
        meaning: "the largest window a rank may ask for",
        slot: Slot::Bytes { field: |config| &mut config.window_bytes_max, min: 4 * KIB, max: 64 * TIB, zero: None },
    },
    Variable {
        name: "LONGARM_HUGE_PAGES",
        unit: "",
        meaning: "whether large windows take their memory in huge pages, and at once",
        slot: Slot::Switch { field: |config| &mut config.huge_pages },
    },
    Variable {
        name: "LONGARM_NODES",
        unit: "nodes",
        meaning: "into how many nodes, which share no memory, the ranks of a machine are cut",
        slot: Slot::Number { field: |config| &mut config.nodes, min: 1, max: 1 << 20 },
    },
    Variable {
        name: "LONGARM_ON_FAILURE",
        unit: "",
        meaning: "what longarm run does with the other ranks when one dies",
        slot: Slot::Policy,
    },
    Variable {
        name: "LONGARM_REPORT_MS",
        unit: "milliseconds",
        meaning: "how long the others have to say what they know of a death before longarm run ends them",
        slot: Slot::Number { field: |config| &mut config.report_ms, min: 0, max: 600_000 },
    },
    Variable {
        name: "LONGARM_WATCHDOG_S",
        unit: "seconds",
        meaning: "after how long in one call a rank is reported as waiting; 0 for never",
        slot: Slot::Number { field: |config| &mut config.watchdog_s, min: 0, max: 86400 },
    },
    Variable {
        name: "LONGARM_ROOT",
        unit: "",
        meaning: "where rank 0 of processes that were told their LONGARM_RANK and LONGARM_SIZE listens",
        slot: Slot::Text {
            field: |config| &mut config.root,
            accepted: "HOST:PORT, or an address in brackets with a port",
            empty: "none",
        },
    },
    Variable {
        name: "LONGARM_SECRET_FILE",
        unit: "",
        meaning: "file with the secret by which such processes know each other",
        slot: Slot::Text { field: |config| &mut config.secret_file, accepted: "a path", empty: "none" },
    },
    Variable {
        name: "LONGARM_MEET_TIMEOUT_S",
        unit: "seconds",
        meaning: "how long the ranks of a job that something else has started may take to come to init, with all that their process manager needs until then",
        slot: Slot::Number { field: |config| &mut config.meet_timeout_s, min: 1, max: 86_400 },
    },
    Variable {
        name: "LONGARM_ALONE",
        unit: "",
        meaning: "whether each process that srun, mpiexec or the like has started is a job of its own",
        slot: Slot::Switch { field: |config| &mut config.alone },
    },
    Variable {
        name: "LONGARM_DEBUGGER",
        unit: "",
        meaning: "whether ranks may stand still for as long as a debugger holds them: nobody's silence counts; has to be the same for all",
        slot: Slot::Switch { field: |config| &mut config.debugger },
    },
    Variable {
        name: "LONGARM_LOG",
        unit: "",
        meaning: "what to log, such as \"debug\" or \"longarm_server=trace\"",
        slot: Slot::Filter,
    },
];

impl Slot {
    /// Reads a value into its field. `None` when the value is refused.
    pub(super) fn parse(&self, config: &mut Config, value: &str) -> Option<()> {
        match *self {
            Slot::Bytes { field, min, max, zero } => {
                let bytes = parse_bytes(value)?;
                let zero_meant = bytes == 0 && zero.is_some();
                *field(config) = Some(bytes).filter(|bytes| zero_meant || (min..=max).contains(bytes))?;
            }
            Slot::Number { field, min, max } => {
                *field(config) = value.parse().ok().filter(|number| (min..=max).contains(number))?;
            }
            Slot::Switch { field } => {
                *field(config) = match value {
                    "1" | "yes" => true,
                    "0" | "no" => false,
                    _ => return None,
                };
            }
            Slot::Interface => config.interface = value.parse().ok()?,
            Slot::Policy => {
                config.on_failure = match value {
                    "abort" => OnFailure::Abort,
                    "continue" => OnFailure::Continue,
                    _ => return None,
                }
            }
            Slot::Network => {
                config.network = match value {
                    "auto" => NetworkChoice::Auto,
                    "tcp" => NetworkChoice::Tcp,
                    "verbs" => NetworkChoice::Verbs,
                    _ => return None,
                }
            }
            Slot::OnDemand => {
                config.verbs_on_demand = match value {
                    "auto" => OnDemandChoice::Auto,
                    "all" => OnDemandChoice::All,
                    "no" => OnDemandChoice::No,
                    _ => return None,
                }
            }
            Slot::Text { field, empty, .. } => {
                *field(config) = if value == empty { String::new() } else { value.to_owned() };
            }
            Slot::Filter => {
                value.parse::<Targets>().ok()?;
                config.log = Some(value.to_owned());
            }
        }
        Some(())
    }

    /// The value, in a form that `parse` accepts.
    pub(super) fn show(&self, config: &mut Config) -> String {
        match *self {
            Slot::Bytes { field, .. } => show_bytes(*field(config)),
            Slot::Number { field, .. } => field(config).to_string(),
            Slot::Switch { field } => if *field(config) { "yes" } else { "no" }.to_owned(),
            Slot::Interface => config.interface.to_string(),
            Slot::Policy => config.on_failure.to_string(),
            Slot::Network => config.network.to_string(),
            Slot::OnDemand => config.verbs_on_demand.to_string(),
            Slot::Text { field, empty, .. } => match field(config).as_str() {
                "" => empty.to_owned(),
                text => text.to_owned(),
            },
            Slot::Filter => config.log.clone().unwrap_or_else(|| "warn".to_owned()),
        }
    }

    pub(super) fn accepted(&self) -> String {
        match *self {
            Slot::Bytes { min, max, zero, .. } => {
                let zero = zero.map(|meaning| format!(", or 0 ({meaning})")).unwrap_or_default();
                let (min, max) = (show_bytes(min), show_bytes(max));
                format!("bytes from {min} to {max}, with an optional suffix k, m, g or t{zero}")
            }
            Slot::Number { min, max, .. } => format!("a number from {min} to {max}"),
            Slot::Switch { .. } => "yes (or 1) or no (or 0)".to_owned(),
            Slot::Interface => "auto (the loopback in a job on one machine, else what other machines reach), an address, a network \
                                such as 10.0.0.0/8, the name of an interface, or several of these with commas"
                .to_owned(),
            Slot::Policy => "abort (they are ended) or continue (they go on)".to_owned(),
            Slot::Network => {
                "auto (verbs between machines that have a device, else tcp), tcp or verbs (or nothing starts)"
                    .to_owned()
            }
            Slot::OnDemand => {
                "auto (windows; and memory of the program where nothing else tells when it goes), all (both) or no (nothing)"
                    .to_owned()
            }
            Slot::Text { accepted, .. } => accepted.to_owned(),
            Slot::Filter => {
                "a level (error, warn, info, debug, trace) or a filter such as longarm_server=trace".to_owned()
            }
        }
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => KIB,
        "m" => MIB,
        "g" => GIB,
        "t" => TIB,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A size with the largest suffix that leaves a whole number.
fn show_bytes(bytes: u64) -> String {
    let units = [(TIB, "t"), (GIB, "g"), (MIB, "m"), (KIB, "k")];
    let fitting = units.iter().find(|(unit, _)| bytes != 0 && bytes.is_multiple_of(*unit));
    fitting.map_or_else(|| bytes.to_string(), |(unit, suffix)| format!("{}{suffix}", bytes / unit))
}
