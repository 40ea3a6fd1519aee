//! What came of a run of a user's program.

use std::fmt;

use super::job::{Ended, Job};
use crate::fault::{FAULTS, Fault, FaultSet};
use crate::network;
use crate::trace::Who;

/// Events that the report of a failure shows.
const SHOWN: usize = 24;

/// A run in which all went well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A number that stands for all events of the run, in their order: the same for the same seed and program.
    pub hash: u64,
    /// How many events there were.
    pub events: u64,
    /// Simulated time from the first event to the last, in nanoseconds.
    pub virtual_ns: u64,
    /// The most connections that were made to the server of one node, or to its router, those made anew included.
    pub connections_max: u32,
    /// The most ends of connections between nodes that the server and the ranks of one node had, those made anew included. What is between ranks and
    /// their router does not count.
    pub sockets_max: u32,
    /// Nodes had routers, for all that went over no connection of a rank's own.
    pub routed: bool,
    /// The ranks that faults killed, and those that ended with their node's server.
    pub deaths: Vec<u32>,
    faults: [u64; FAULTS],
}

impl Report {
    /// How often a kind of fault has happened.
    pub fn count_of(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }
}

/// A run that failed. Shown by `{}` and by `{:?}`, so that `unwrap` says all of it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failure {
    /// The seed: [`crate::run()`] with it shows the same again.
    pub seed: u64,
    /// How many ranks there were.
    pub ranks: u32,
    /// How many nodes.
    pub nodes: u32,
    /// Nodes had routers: see [`Report::routed`].
    pub routed: bool,
    /// Which faults could happen.
    pub faults: FaultSet,
    /// What was seen.
    pub seen: Seen,
    /// The last events before.
    pub events: Vec<String>,
}

/// What was seen of a run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// The program of a rank panicked, by an assertion perhaps.
    Panicked {
        /// The rank.
        rank: u32,
        /// With this.
        said: String,
    },
    /// The program of a rank returned an error.
    Failed {
        /// The rank.
        rank: u32,
        /// What it says.
        error: String,
    },
    /// A rank ended the job: it left its world without finalize, or a handler panicked.
    Aborted {
        /// The rank.
        rank: u32,
        /// Why.
        reason: String,
    },
    /// Nobody will ever go on.
    Stuck {
        /// Who waits in which call for whom.
        waits: Vec<String>,
    },
    /// There was no end to it: a rank looks again and again, perhaps.
    Endless {
        /// Who waits in which call for whom.
        waits: Vec<String>,
    },
    /// The system has no room for it.
    NotBegun {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, waits) = match self {
            Seen::Panicked { rank, said } => return write!(formatter, "rank {rank} panicked: {said}"),
            Seen::Failed { rank, error } => return write!(formatter, "rank {rank} returned an error: {error}"),
            Seen::Aborted { rank, reason } => return write!(formatter, "rank {rank} ended the job: {reason}"),
            Seen::NotBegun { reason } => return write!(formatter, "the run could not be set up: {reason}"),
            Seen::Stuck { waits } => ("nobody will ever go on:", waits),
            Seen::Endless { waits } => ("it goes on and on:", waits),
        };
        formatter.write_str(what)?;
        waits.iter().try_for_each(|wait| write!(formatter, "\n  {wait}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, ranks, nodes, routed, faults, seen, events } = self;
        let with = if *routed { " with routers" } else { "" };
        write!(formatter, "seed {seed} ({ranks} ranks on {nodes} nodes{with}, faults: {faults}): {seen}")?;
        if !events.is_empty() {
            formatter.write_str("\nthe last events before:")?;
        }
        events.iter().try_for_each(|event| write!(formatter, "\n  {event}"))
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Failure {}

/// What came of a run up to now.
pub(super) fn of(job: &Job, seen: Result<(), Seen>) -> Result<Report, Failure> {
    let plan = job.shape.plan;
    let state = job.state.lock();
    let seen = match (&state.ended, seen) {
        (Some(ended), _) => Err(match ended.clone() {
            Ended::Panicked(rank, said) => Seen::Panicked { rank, said },
            Ended::Failed(rank, error) => Seen::Failed { rank, error },
            Ended::Aborted(rank, reason) => Seen::Aborted { rank, reason },
        }),
        (None, seen) => seen,
    };
    network::with(|network| match seen {
        Ok(()) => Ok(Report {
            seed: plan.seed,
            hash: network.trace.hash(),
            events: network.trace.count(),
            virtual_ns: network.now(),
            connections_max: network.link_count_max(),
            sockets_max: network.socket_count_max(|rank| job.shape.node_of(rank)),
            routed: plan.routed,
            deaths: state.deaths.iter().map(|(rank, _)| *rank).collect(),
            faults: state.faults,
        }),
        Err(seen) => {
            let events = network.trace.last(SHOWN, |who| !matches!(who, Who::Server(_)));
            let (ranks, nodes) = (plan.ranks, job.shape.nodes());
            Err(Failure { seed: plan.seed, ranks, nodes, routed: plan.routed, faults: plan.faults, seen, events })
        }
    })
}
