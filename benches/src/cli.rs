//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::counts::Call;
use crate::micro::limits::Waiting;
use crate::micro::rank::Suite;

const EXAMPLES: &str = "\
Examples:
  longarm-bench all                     everything, some minutes; a table
  longarm-bench all --quick --json      a smaller number of shorter batches; JSON lines on stdout
  longarm-bench all --only tcp          only what goes over TCP, with its limits
  longarm-bench limits                  what the machine allows, without longarm";

/// Measures longarm beside what the machine allows.
#[derive(Debug, Parser)]
#[command(name = "longarm-bench", version, after_help = EXAMPLES)]
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
    Counts(CountsArguments),
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
