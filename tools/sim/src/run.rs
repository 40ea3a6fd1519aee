//! One run: a job from its first rank to its last freed byte, and what came of it.

use std::rc::Rc;

use longarm_proto::UNACKNOWLEDGED_REPLY_BYTES_MAX;

use crate::book::{self, Kind, Violation};
use crate::fault::FAULTS;
use crate::job::{self, Job};
use crate::network::{self, Speed};
use crate::plan::{Plan, Shape};
use crate::schedule::{Scheduler, is_violated};
use crate::trace::Who;

/// Events that the report of a failure shows.
const SHOWN: usize = 40;
/// Bytes of replies that are kept for one connection at most: those that were not acknowledged, those that wait to be sent,
/// and one reply and its bytes on top.
const REPLY_BYTES_MAX: usize = UNACKNOWLEDGED_REPLY_BYTES_MAX + (256 << 10) + (16 << 10) + 64;

/// How long what ranks say when they leave is under way at most.
const FAREWELLS_NS: u64 = 20_000_000_000;

/// Something that cannot be, and what led to it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was seen.
    pub violation: Violation,
    /// The last events that concern it.
    pub events: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was asked for.
    pub plan: Plan,
    /// Operations that were checked, by kind.
    pub counts: Vec<u64>,
    /// Operations that ended because somebody is gone.
    pub lost: u64,
    /// Updates by devices that were done, and whose old values were lost with their link.
    pub values_lost: u64,
    /// Updates by devices of which nobody knows whether they were done.
    pub fates_unknown: u64,
    /// Transfers that were done with no server involved.
    pub direct: u64,
    /// Ends of connections of which a direction was silent for good that were given up.
    pub silent: network::SilentLinks,
    /// Calls of strangers at routers.
    pub strangers_at_routers: u64,
    /// Faults, by kind.
    pub faults: [u64; FAULTS],
    /// Simulated time.
    pub virtual_ns: u64,
    /// A number that stands for all that happened.
    pub hash: u64,
    /// How many events there were.
    pub events: u64,
    /// Ranks that were killed.
    pub deaths: u32,
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// Operations that were checked.
    pub fn operations(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Runs a job on this thread. `progress` is called now and then with the operations so far.
///
/// # Errors
/// When the job could not be set up: descriptors or memory ran out.
pub fn run(plan: Plan, progress: &mut dyn FnMut()) -> Result<Outcome, String> {
    let shape = Rc::new(Shape::new(plan));
    let run = network::begin(plan.seed, shape.nodes(), Speed::default());
    if shape.direct {
        network::with(network::Network::allow_direct);
    }
    book::begin(&shape);
    let job = Job::begin(Rc::clone(&shape), run)?;
    let mut scheduler = Scheduler::new(&job)?;
    scheduler.run(progress);
    let deaths = scheduler.deaths;
    let failed = is_violated();
    // What happened up to here counts; the rest tidies up, and is looked at only where all went well.
    let failure_so_far = failure(&shape);
    let (hash, events, virtual_ns) =
        network::with(|network| (network.trace.hash(), network.trace.count(), network.now()));
    let (direct, strangers_at_routers) = network::with(|network| (network.direct_count, network.strangers_at_routers));
    let silent = network::with(|network| network.silent);
    if !failed && deaths == 0 {
        check_end(&mut scheduler);
    } else {
        scheduler.end_fibers();
    }
    drop(scheduler);
    drop(job);
    job::end_nodes();
    let failure = failure_so_far.or_else(|| failure(&shape));
    Ok(book::with(|book| Outcome {
        plan,
        counts: book.counts.clone(),
        lost: book.lost,
        values_lost: book.values_lost,
        fates_unknown: book.fates_unknown,
        direct,
        silent,
        strangers_at_routers,
        faults: job::faults(),
        virtual_ns,
        hash,
        events,
        deaths,
        failure,
    }))
}

fn failure(shape: &Shape) -> Option<Failure> {
    let violation = book::with(|book| book.violation().cloned())?;
    let nodes: Vec<u32> = violation.ranks.iter().map(|rank| shape.node_of(*rank)).collect();
    let events = network::with(|network| {
        let between = |link: u32| {
            let ends = network.owners(link).map(|owner| match owner {
                network::Owner::Rank(rank) => violation.ranks.contains(&rank),
                network::Owner::Server(node) => nodes.contains(&node),
                network::Owner::Stranger(_) => false,
            });
            ends[0] && (ends[1] || nodes.len() < 2)
        };
        network.trace.last(SHOWN, |who| match who {
            Who::Rank(rank) => violation.ranks.contains(&rank),
            Who::Server(_) => false,
            Who::Link(link, _) => between(link),
        })
    });
    Some(Failure { violation, events })
}

/// After all have left: what they held is free.
fn check_end(scheduler: &mut Scheduler) {
    scheduler.hang_up();
    scheduler.run_out(FAREWELLS_NS);
    // A session whose connection was broken just now lasts as long as its server: its rank could not say that it leaves.
    let keeps_sessions = scheduler.shape.plan.faults.breaks();
    if scheduler.reply_bytes_max > REPLY_BYTES_MAX {
        book::violate(&[], format!("{} bytes of replies waited at one connection", scheduler.reply_bytes_max));
    }
    for node in 0..scheduler.shape.nodes() {
        let census = job::with_node(node, |state| state.engine.as_ref().map(longarm_server::Engine::census));
        let Some(census) = census else { continue };
        let first = scheduler.shape.host_of(node);
        let kept = if keeps_sessions { 0 } else { census.connections };
        if kept + census.half_open + census.windows + census.waiters > 0 {
            book::violate(&[first], format!("the server of node {node} still has {census:?} after all have left"));
        }
    }
    let served = book::with(|book| book.windows);
    if served > 0 {
        book::violate(&[], format!("{served} parts of windows were not freed"));
    }
}

/// The name of a kind of operation and how often it was checked, those that never were left out.
pub fn by_kind(counts: &[u64]) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    Kind::ALL.iter().zip(counts).filter(|(_, count)| **count > 0).map(|(kind, count)| (kind.name(), *count))
}
