//! The command line.

use clap::Parser;

use crate::fault::FaultSet;

const EXAMPLES: &str = "\
Examples:
  longarm-sim                                    # 8 seeds, 64 ranks, mild faults
  longarm-sim --seed 17                          # one seed again
  longarm-sim --seeds 100 --ranks 8 --ops 500    # many small jobs
  longarm-sim --ranks 1024 --ops 3000 --faults all
  longarm-sim --seeds 50 --ranks 24 --faults all --routed  # nodes have routers
  longarm-sim --seconds 600 --ranks 10000 --fresh  # a soak with seeds that nobody has seen
  longarm-sim --seed 17 --ranks 4 --ops 50 --faults delay,pause-rank --json

Faults are none, mild (no connection breaks), survivable (nobody dies), harmless (what a correct program does not notice), all,
or names with commas between them: delay, reorder, drop, half-open, truncate, duplicate-connect, stale-window, wrong-key,
forged-peer, silent-peer, slow-reader, pause-rank, pause-server, kill-rank, kill-server, restart-link, partition-one-way,
partition-two-way, no-memory, clock-jump, bit-flip (in a job that encrypts), silent-link (in a job without devices).
The exit status is 0 if every run was as it should be, 1 if one was not.";

/// Simulates whole jobs with faults, and checks every operation.
#[derive(Parser, Clone, Debug)]
#[command(name = "longarm-sim", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The seed of the first run; the others follow it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// How many runs, with one seed after the other. With --seed alone: 1.
    #[arg(long)]
    pub seeds: Option<u64>,

    /// Ranks of each job.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub ranks: u32,

    /// Operations of each rank, about.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub ops: u32,

    /// Which faults may happen; see below.
    #[arg(long, default_value = "mild")]
    pub faults: FaultSet,

    /// Nodes have routers; in half of the seeds ranks have a few connections of their own besides.
    #[arg(long)]
    pub routed: bool,

    /// Go on with one seed after the other for so long, instead of a number of them.
    #[arg(long, value_name = "SECONDS", conflicts_with = "seeds")]
    pub seconds: Option<u64>,

    /// Take the first seed from the system's random numbers.
    #[arg(long, conflicts_with = "seed")]
    pub fresh: bool,

    /// Runs at once, each on a thread of its own. By default one a processor.
    #[arg(long)]
    pub threads: Option<usize>,

    /// Stop at the first failure without looking for a smaller one.
    #[arg(long)]
    pub no_shrink: bool,

    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}
