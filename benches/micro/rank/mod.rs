//! What one rank of a measurement does. Rank 0 measures and prints; the others are targets.

mod barrier;
mod buffers;
mod collectives;
mod comb;
mod computing;
mod contended;
mod curve;
mod footprint;
mod gups;
mod idle;
mod large;
mod lmt;
mod many;
mod message;
pub(crate) mod misses;
pub(crate) mod ops;
mod overlap;
mod peer_collectives;
mod pingpong;
mod sort;
mod start;
mod windows;

pub(crate) use start::now_ns;

use longarm::World;

use crate::Failure;
use crate::cli::RankArguments;
use crate::line::{Key, LONGARM, Line};
use crate::micro::sample::{Effort, Sample};

/// What a job measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// One operation after the other, the target waiting in a barrier
    Ops,
    /// The few that tell most, the target waiting in a barrier
    Short,
    /// All that the harness of other systems measures too, one after the other
    Peers,
    /// The target computes and makes no call
    Computing,
    /// Barriers
    Barrier,
    /// Active messages there and back
    Message,
    /// What a job costs that does nothing
    Idle,
    /// How long a job takes to start
    Start,
    /// Put and get by size
    Latency,
    /// Words put into each other's memory in turn
    Pingpong,
    /// Many puts and gets at once, by size
    Bandwidth,
    /// Puts from one of several buffers, taken at random
    Buffers,
    /// How much of a transfer hides behind a computation
    Overlap,
    /// Availability of the processor during transfers, by two methods
    Comb,
    /// Broadcast, allreduce, allgather
    Collectives,
    /// Everybody to everybody, as a collective and by puts
    Alltoall,
    /// The collectives that benches/peers/collectives.c measures of other systems
    PeerCollectives,
    /// Making and freeing windows
    Windows,
    /// All ranks at once, each with its neighbour and all with one
    Many,
    /// Random updates of a table that all share
    Gups,
    /// Integer sort
    Sort,
    /// Large messages between two ranks of a node
    Lmt,
    /// Words of a large window of the same node, in small pages or huge ones
    Large,
    /// Memory that the runtime takes
    Footprint,
}

impl Suite {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Ops => "ops",
            Suite::Short => "short",
            Suite::Peers => "peers",
            Suite::Computing => "computing",
            Suite::Barrier => "barrier",
            Suite::Message => "message",
            Suite::Idle => "idle",
            Suite::Start => "start",
            Suite::Latency => "latency",
            Suite::Pingpong => "pingpong",
            Suite::Bandwidth => "bandwidth",
            Suite::Buffers => "buffers",
            Suite::Overlap => "overlap",
            Suite::Comb => "comb",
            Suite::Collectives => "collectives",
            Suite::Alltoall => "alltoall",
            Suite::PeerCollectives => "peer-collectives",
            Suite::Windows => "windows",
            Suite::Many => "many",
            Suite::Gups => "gups",
            Suite::Sort => "sort",
            Suite::Lmt => "lmt",
            Suite::Large => "large",
            Suite::Footprint => "footprint",
        }
    }
}

/// How many ranks and nodes a suite has unless it is told.
impl Suite {
    pub(crate) fn ranks(self) -> u32 {
        if self == Suite::Footprint { 64 } else { 2 }
    }

    pub(crate) fn nodes(self) -> u32 {
        if self == Suite::Footprint { 16 } else { 2 }
    }
}

/// What all suites get.
pub(crate) struct Job<'a> {
    world: &'a World,
    arguments: &'a RankArguments,
    effort: Effort,
}

impl Job<'_> {
    fn measures(&self) -> bool {
        self.world.rank() == 0
    }

    /// Prints a result.
    fn tell(&self, op: &str, bytes: usize, sample: &Sample) {
        self.tell_window(op, bytes, 1, sample);
    }

    /// Prints a result of operations that were under way together.
    fn tell_window(&self, op: &str, bytes: usize, window: usize, sample: &Sample) {
        let key = Key { transport: &self.arguments.transport, op, bytes: bytes as u64 };
        let line = Line { window: window as u32, np: self.world.size(), ..Line::new(LONGARM, key, sample) };
        println!("{}", line.to_json());
    }
}

/// Runs this rank's part of a suite.
pub(crate) fn run(arguments: &RankArguments) -> Result<(), Failure> {
    longarm::log_to_stderr(&longarm::config::Config::from_environment()?);
    let world = longarm::init()?;
    let job = Job { world: &world, arguments, effort: Effort::new(arguments.quick) };
    if arguments.target >= world.size() {
        return Err("the target is no rank of this job".into());
    }
    match arguments.suite {
        Suite::Ops => ops::run(&job, true)?,
        Suite::Short => ops::run(&job, false)?,
        Suite::Peers => {
            ops::run(&job, true)?;
            overlap::run(&job)?;
            contended::run(&job)?;
            computing::run(&job, computing::Kinds::Passive)?;
            windows::run(&job)?;
            barrier::run(&job)?;
        }
        Suite::Computing => computing::run(&job, computing::Kinds::Both)?,
        Suite::Barrier => barrier::run(&job)?,
        Suite::Message => message::run(&job)?,
        Suite::Idle => idle::run(&job)?,
        Suite::Start => start::run(&job)?,
        Suite::Latency => curve::run(&job, false)?,
        Suite::Pingpong => pingpong::run(&job)?,
        Suite::Bandwidth => curve::run(&job, true)?,
        Suite::Buffers => buffers::run(&job)?,
        Suite::Overlap => overlap::run(&job)?,
        Suite::Comb => comb::run(&job)?,
        Suite::Collectives => collectives::run(&job)?,
        Suite::Alltoall => collectives::all_to_all(&job)?,
        Suite::PeerCollectives => peer_collectives::run(&job)?,
        Suite::Windows => windows::run(&job)?,
        Suite::Many => many::run(&job)?,
        Suite::Gups => gups::run(&job)?,
        Suite::Sort => sort::run(&job)?,
        Suite::Lmt => lmt::run(&job)?,
        Suite::Large => large::run(&job)?,
        Suite::Footprint => footprint::run(&job)?,
    }
    world.finalize()?;
    Ok(())
}
