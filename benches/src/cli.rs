//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::counts::Call;
use crate::micro::limits::Waiting;
use crate::micro::rank::Suite;

const EXAMPLES: &str = "\
Examples:
  longarm perf all                      everything, some minutes; a table
  longarm perf all --quick --json       a smaller number of shorter batches; JSON lines on stdout
  longarm perf all --only tcp           only what goes over TCP, with its limits
  longarm perf limits                   what the machine allows, without longarm
  longarm perf latency --plot pictures  put and get by size on one node and over TCP, drawn
  longarm perf comb --layout tcp        how much processor a transfer leaves, and how much bandwidth
  longarm perf draw before.json after.json --plot pictures    curves of what was measured before
  longarm perf gups -n 4 --layout shm   random updates by four ranks of one node
  longarm perf bandwidth --layout hosts --json    between two network namespaces, as lines of JSON";

/// Measures longarm beside what the machine allows.
#[derive(Debug, Parser)]
#[command(name = "longarm perf", bin_name = "longarm perf", version, after_help = EXAMPLES)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the limits and longarm, and compare
    All(AllArguments),
    /// Measure the limits only
    Limits(AllArguments),
    /// One rank of a measurement; started by `longarm run`
    #[command(hide = true)]
    Rank(RankArguments),
    /// The other end of the socket limits
    #[command(hide = true)]
    Server(ServerArguments),
    /// Make a call many times, to count its instructions
    #[command(hide = true)]
    Counts(CountsArguments),
    /// Draw the curves of lines that were measured before
    Draw(DrawArguments),
    #[command(flatten)]
    Measure(What),
}

/// What can be measured by itself.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Put and get by size, one at a time
    Latency(PerfArguments),
    /// Words that two ranks put into each other's memory in turn: the time one way
    Pingpong(PerfArguments),
    /// Put and get by size, many at once
    Bandwidth(PerfArguments),
    /// Every operation: put, get, strided, accumulate, atomics, mutex
    Ops(PerfArguments),
    /// Barriers
    Barrier(PerfArguments),
    /// Broadcast, allreduce and allgather by size, in the world and in a group of its ranks in the reverse order
    Collectives(PerfArguments),
    /// Everybody to everybody by size, as a collective and by puts
    Alltoall(PerfArguments),
    /// Active messages there and back
    Message(PerfArguments),
    /// Windows that are made, written to and freed again, by the bytes of each rank
    Windows(PerfArguments),
    /// All ranks at once, each with its neighbour and all with the last one, beside plain servers: what all do together
    Many(PerfArguments),
    /// Random updates of a table that all share (HPC Challenge RandomAccess), checked
    Gups(PerfArguments),
    /// Integer sort (kernel IS of the NAS parallel benchmarks), checked
    Sort(PerfArguments),
    /// How much of one transfer hides behind a computation
    Overlap(PerfArguments),
    /// Processor and bandwidth left during transfers, by polling and by post-work-wait (COMB)
    Comb(PerfArguments),
    /// Operations while the target computes and makes no call
    Computing(PerfArguments),
    /// Large messages between two ranks of a node by every way there is
    Lmt(PerfArguments),
    /// Words at random places of a large window of the same node, in small pages and in huge ones
    Large(PerfArguments),
    /// Memory of a process, for each node that it talks to, for each window
    Footprint(PerfArguments),
}

impl What {
    pub(crate) fn suite_and_arguments(&self) -> (Suite, &PerfArguments) {
        match self {
            What::Latency(arguments) => (Suite::Latency, arguments),
            What::Pingpong(arguments) => (Suite::Pingpong, arguments),
            What::Bandwidth(arguments) => (Suite::Bandwidth, arguments),
            What::Ops(arguments) => (Suite::Ops, arguments),
            What::Barrier(arguments) => (Suite::Barrier, arguments),
            What::Collectives(arguments) => (Suite::Collectives, arguments),
            What::Alltoall(arguments) => (Suite::Alltoall, arguments),
            What::Message(arguments) => (Suite::Message, arguments),
            What::Windows(arguments) => (Suite::Windows, arguments),
            What::Many(arguments) => (Suite::Many, arguments),
            What::Gups(arguments) => (Suite::Gups, arguments),
            What::Sort(arguments) => (Suite::Sort, arguments),
            What::Overlap(arguments) => (Suite::Overlap, arguments),
            What::Comb(arguments) => (Suite::Comb, arguments),
            What::Computing(arguments) => (Suite::Computing, arguments),
            What::Lmt(arguments) => (Suite::Lmt, arguments),
            What::Large(arguments) => (Suite::Large, arguments),
            What::Footprint(arguments) => (Suite::Footprint, arguments),
        }
    }
}

/// Where ranks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// All on one node
    Shm,
    /// On nodes of this machine that talk TCP over the loopback
    Tcp,
    /// On two network namespaces, joined by a pair of virtual interfaces (tools/ga/hosts.sh up); lines and pictures call it veth
    Hosts,
}

impl LayoutName {
    /// As lines and pictures call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LayoutName::Shm => "shm",
            LayoutName::Tcp => "tcp",
            LayoutName::Hosts => "veth",
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PerfArguments {
    /// Where the ranks stand [default: shm and tcp; footprint: tcp]
    #[arg(long, value_name = "LAYOUT", value_delimiter = ',')]
    pub(crate) layout: Vec<LayoutName>,
    /// How many ranks [default: 2; footprint: 64]
    #[arg(short = 'n', long)]
    pub(crate) ranks: Option<u32>,
    /// How many nodes, over TCP [default: 2; footprint: 16]
    #[arg(long)]
    pub(crate) nodes: Option<u32>,
    /// Fewer and shorter batches: for a look, not for a report
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw curves into this folder, as SVG
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plot: Option<PathBuf>,
    /// Draw the lines of this file too: of other systems, by benchmarks that print the same lines [default: those that `make bench-peers` has left in
    /// cargo's target folder, if this program was built there]
    #[arg(long, value_name = "FILE", requires = "plot")]
    pub(crate) against: Option<PathBuf>,
    /// The `longarm` command [default: the one beside this program, else the one in the search path]
    #[arg(long, value_name = "PATH")]
    pub(crate) longarm: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct DrawArguments {
    /// Lines of JSON, as `latency`, `bandwidth` and others print them with --json
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The folder for the pictures, as SVG
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plot: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AllArguments {
    /// Fewer and shorter batches: for a look, not for a report
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object a line on stdout, and the tables on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
    /// How often to measure everything; the figures are the medians over the rounds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Measure only jobs and limits whose name contains this; more than one may be given
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// The `longarm` command [default: the one beside this program, else the one in the search path]
    #[arg(long, value_name = "PATH")]
    pub(crate) longarm: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct RankArguments {
    /// What to measure
    pub(crate) suite: Suite,
    /// What the lines call the way to the target
    #[arg(long, default_value = "shm")]
    pub(crate) transport: String,
    /// The rank whose memory is used
    #[arg(long, default_value_t = 1)]
    pub(crate) target: u32,
    #[arg(long)]
    pub(crate) quick: bool,
    /// When the job was started, by the system's monotonic clock
    #[arg(long, default_value_t = 0)]
    pub(crate) since_ns: u64,
}

#[derive(Args, Debug)]
pub(crate) struct ServerArguments {
    /// How it waits for requests
    pub(crate) waiting: Waiting,
    /// The processor it stays on
    #[arg(long)]
    pub(crate) processor: Option<usize>,
    /// Keep that processor busy with another thread
    #[arg(long)]
    pub(crate) busy: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CountsArguments {
    /// The call
    pub(crate) call: Call,
    /// How often
    pub(crate) times: u64,
}
