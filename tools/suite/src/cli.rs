//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  longarm-suite run --build ga/mpich-longarm --list tools/ga/ga.list --mpi mpich --ranks 2,3,4,5 --nodes 1,2
      Every program of the list on 2 to 5 ranks, on one node and cut into two.
  longarm-suite run --build ga/mpich-longarm --list tools/ga/ga.list --only test --ranks 4 --logs out
      One program, its output kept in out/.
  longarm-suite run --build ga/mpich-longarm --list tools/ga/ga.list --hosts 198.51.100.1,198.51.100.2 --agent tools/ga/at-host.sh
      The same on two hosts; here those that tools/ga/hosts.sh makes up.
  longarm-suite run --build ga/mpich-mpi-pr --list tools/ga/ga.list --ranks 2 --extra-ranks 1
      The same programs on ComEx MPI-PR, which takes a rank for itself.

Exit status:
  0     nothing failed
  1     a run failed
  2     the command line or the list is wrong";

/// Runs the test programs of Global Arrays and of the classic ARMCI.
#[derive(Debug, Parser)]
#[command(name = "longarm-suite", version, after_help = EXAMPLES)]
pub enum CommandLine {
    /// Run the programs of a list and show a table
    #[command(after_help = EXAMPLES)]
    Run(Arguments),
    /// Run the perf programs on several runtimes and compare their times
    Speed(SpeedArguments),
}

/// What starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Launcher {
    /// The mpiexec or mpirun of the MPI
    Mpi,
    /// `longarm run`, for programs without MPI
    Longarm,
}

/// Whose mpiexec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mpi {
    /// mpiexec.mpich, or mpiexec
    Mpich,
    /// mpirun.openmpi, or mpirun
    Openmpi,
}

/// On which hosts, where it is not this one.
#[derive(Args, Clone, Debug, Default)]
pub struct HostArguments {
    /// Cut the ranks over these hosts, as mpiexec of MPICH is to call them; itself it is started on the first
    #[arg(long, value_name = "HOST,..", value_delimiter = ',', requires = "agent")]
    pub hosts: Vec<String>,
    /// What starts a command on a host, in place of ssh
    #[arg(long, value_name = "FILE", requires = "hosts")]
    pub agent: Option<PathBuf>,
}

/// Arguments of `longarm-suite run`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The folder in which the programs were built
    #[arg(long, value_name = "DIR")]
    pub build: PathBuf,
    /// The list of programs
    #[arg(long, value_name = "FILE")]
    pub list: PathBuf,
    /// Which MPI starts them
    #[arg(long, value_enum, default_value_t = Mpi::Mpich)]
    pub mpi: Mpi,
    /// Start them by the MPI, or by `longarm run`
    #[arg(long, value_enum, default_value_t = Launcher::Mpi)]
    pub launcher: Launcher,
    /// The longarm command, for --launcher longarm
    #[arg(long, value_name = "FILE", default_value = "longarm")]
    pub longarm: PathBuf,
    /// Numbers of ranks
    #[arg(long, value_name = "P,..", value_delimiter = ',', default_value = "2,3,4,5", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Vec<u32>,
    /// Numbers of nodes into which the ranks are cut; with --hosts, one node a host
    #[arg(long, conflicts_with = "hosts", value_name = "N,..", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: Vec<u32>,
    /// Ranks to start besides on each host, for a runtime that takes some for itself
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub extra_ranks: u32,
    /// On which hosts.
    #[command(flatten)]
    pub hosts: HostArguments,
    /// Only programs of these names
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only the programs that the list calls quick
    #[arg(long)]
    pub quick: bool,
    /// After how long a run counts as hung
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub limit_seconds: u64,
    /// Preload this into the ranks, made of tools/suite/say_finalize.c: a run that stands in MPI_Finalize with all its ranks
    /// is then told from one that hangs before
    #[arg(long, value_name = "FILE", requires = "hosts")]
    pub say_finalize: Option<PathBuf>,
    /// Where the input files of the list are found: the fetched source
    #[arg(long, value_name = "DIR")]
    pub sources: Option<PathBuf>,
    /// Keep the output of every run in this folder
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
    /// Write the outcome as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the outcome as a page of Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Arguments of `longarm-suite speed`.
#[derive(Args, Clone, Debug)]
pub struct SpeedArguments {
    /// A runtime and the folder of its build, as NAME=DIR, or NAME=DIR:K where it takes K ranks of each host for itself;
    /// the first is compared with the others
    #[arg(long, value_name = "NAME=DIR", required = true)]
    pub runtime: Vec<String>,
    /// Which MPI starts them
    #[arg(long, value_enum, default_value_t = Mpi::Mpich)]
    pub mpi: Mpi,
    /// On which hosts.
    #[command(flatten)]
    pub hosts: HostArguments,
    /// Only these of armci-perf, perf_rmw, ngatest, test, ga-perf
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = ["armci-perf", "perf_rmw", "ngatest", "test", "ga-perf"])]
    pub only: Vec<String>,
    /// How often everything is run; the best counts
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Keep the output of every run in this folder
    #[arg(long, value_name = "DIR")]
    pub logs: PathBuf,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}
