//! What a job is, what becomes of it, and what it has from the runtime.

use std::time::Duration;

use longarm_control::desk::FLUSH;

/// `LONGARM_MEET_TIMEOUT_S`: how long all ranks may take to come.
pub(super) const MEET_NS: u64 = 60_000_000_000;
/// `LONGARM_HANDSHAKE_TIMEOUT_MS`: how long a connection may take to prove itself.
pub(super) const PROOF: Duration = Duration::from_millis(2000);
/// `LONGARM_HALF_OPEN_MAX`: connections that have not, besides one for each rank.
pub(super) const HALF_OPEN_MAX: usize = 64;
/// `LONGARM_REPORT_MS`: how long the others have to say what they know of a death.
pub(super) const REPORT: Duration = Duration::from_millis(700);
/// Of `runtime/src/bootstrap/listening.rs`: how many may wait at a listener.
pub(super) const BACKLOG: usize = 4096;
/// Of `coordinator.rs` there: how many are taken in at a time.
pub(super) const ACCEPTED_MAX: usize = 64;
/// How long a process that ends waits for those behind it.
pub(super) const FLUSH_NS: u64 = FLUSH.as_nanos() as u64;
/// Of `assembly.rs`: how long a rank waits for each answer to its proof, how long it rests between two tries, and for how much longer than the
/// coordinator it waits for all to come.
pub(super) const ATTEMPT_NS: u64 = 2_000_000_000;
pub(super) const PAUSE_MIN_NS: u64 = 5_000_000;
pub(super) const PAUSE_MAX_NS: u64 = 500_000_000;
pub(super) const SPARE_NS: u64 = 10_000_000_000;
/// Of `neighbours.rs`: how long the leader of a node is waited for.
pub(super) const LEADER_NS: u64 = 2_000_000_000;
/// Of Linux: a call that finds no place to wait at is made again after a second, and then after twice as long each time.
pub(super) const CALL_AGAIN_NS: u64 = 1_000_000_000;
/// What the coordinator computes for a message that comes and the one that answers it: `cargo run --release -p longarm-control --example starts`.
pub(super) const ANSWER_NS: u64 = 3_000;
/// Ranks whose whole start is read: what all are told of the nodes is as long as there are ranks.
pub(super) const READ_MAX: u32 = 1000;
/// When nothing is to happen any more.
pub(super) const END_NS: u64 = 200_000_000_000;

/// Who comes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// How many ranks there are.
    pub ranks: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// Whether the ranks of a node come through the first of them.
    pub by_relays: bool,
}

/// What coming in and leaving took, in microseconds; since the first rank called, where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Admitted {
    /// All were let in and had said where they run.
    pub met_us: f64,
    /// All knew the server of their node.
    pub started_us: f64,
    /// From when all leave at once until all are let go.
    pub left_us: f64,
    /// For how long the thread of the coordinator was busy until all had started.
    pub busy_us: f64,
    /// Connections to rank 0.
    pub connections: u32,
}

/// What became of a job with faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// All came together, and left.
    pub are_well: bool,
    /// Who was killed, or did not come.
    pub lost: Option<u32>,
    /// How often a rank had to try again.
    pub tries_again: u64,
    /// Strangers that called.
    pub strangers: u64,
    /// Connections that were broken before they were let in.
    pub broken: u64,
    /// Pauses of the coordinator or of a relay.
    pub pauses: u64,
    /// Everything that has happened, in one number.
    pub hash: u64,
}

/// Nanoseconds.
pub(super) fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
