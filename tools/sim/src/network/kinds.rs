//! What happens in a network, who and what is at its ends, and how fast it is.

/// What happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// What is first under way in a pipe arrives.
    Arrive(u32),
    /// Who waits for room in a pipe may go on.
    Room(u32),
    /// A reader that was given less than there is looks again.
    Again(u32),
    /// The end of a pipe is seen by its reader.
    End(u32),
    /// A transfer with no server involved reaches its target.
    Direct(u32),
    /// What became of one comes back.
    DeviceReply(u32),
    /// A connection reaches the server that it calls.
    Call(u32),
    /// A server does a turn.
    Turn(u32),
    /// A rank's rest is over, if it still is the one with this number.
    Wake(u32, u32),
    /// What a rank has in progress is looked after while it does something else.
    Help(u32),
    /// A rank's mail is taken in while it does something else.
    Attend(u32),
    /// What a rank has sent and nobody has acknowledged is looked after.
    Tend(u32),
    /// A fault of the plan happens.
    Fault(u32),
    /// A rank that is dead is heard of everywhere.
    Heard(u32),
}

/// Who is at an end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A rank's client.
    Rank(u32),
    /// A node's server.
    Server(u32),
    /// Somebody of the fault plan.
    Stranger(u32),
}

/// Somebody to be told that a link of his has news.
pub type News = Owner;

/// How fast things are.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Latency of a link at least.
    pub latency_ns_min: u64,
    /// And at most, jitter not counted.
    pub latency_ns_max: u64,
    /// More latency for any piece, at most.
    pub jitter_ns: u64,
    /// Nanoseconds that 1024 bytes take.
    pub kibibyte_ns: u64,
    /// Bytes that a pipe holds: a power of two from this one on.
    pub pipe_bytes_log2: (u64, u64),
    /// A receive gives all that has arrived.
    pub receives_all: bool,
    /// A call of the system that sends.
    pub send_ns: u64,
    /// A call of the system that receives something.
    pub receive_ns: u64,
    /// What 1024 bytes take between a process and the system.
    pub copy_kib_ns: u64,
}

impl Speed {
    /// A call of the system that sends so many bytes.
    pub fn send_takes_ns(&self, bytes: usize) -> u64 {
        self.send_ns + bytes as u64 * self.copy_kib_ns / 1024
    }

    /// One that receives so many.
    pub fn receive_takes_ns(&self, bytes: usize) -> u64 {
        self.receive_ns + bytes as u64 * self.copy_kib_ns / 1024
    }
}

impl Default for Speed {
    fn default() -> Speed {
        Speed {
            latency_ns_min: 800,
            latency_ns_max: 20_000,
            jitter_ns: 3_000,
            kibibyte_ns: 300,
            pipe_bytes_log2: (11, 18),
            receives_all: false,
            send_ns: 0,
            receive_ns: 0,
            copy_kib_ns: 0,
        }
    }
}

/// Where a node is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Port {
    /// The server, or where nodes have routers, the router.
    Node,
    /// Where ranks call the server by themselves, past the routers.
    Ranks,
}

/// What a descriptor tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// Whatever there is at an end of a link.
    End(u32, usize),
    /// Calls that have reached a node.
    Calls(u32, Port),
}

/// Ends that have closed a link of which a direction was silent for good.
#[derive(Clone, Copy, Default, Debug)]
pub struct SilentLinks {
    /// All of them.
    pub closed: u64,
    /// Those of trunks among them.
    pub trunks_closed: u64,
}
