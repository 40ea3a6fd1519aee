//! The command line: what may be written, and the help that explains it.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// More ranks than this on one machine are refused: each takes a process and four descriptors.
pub const RANKS_MAX: u32 = 4096;

const EXAMPLES: &str = "\
Examples:
  longarm run -n 4 ./program input.dat
  longarm run -n 4 --nodes 2 --stats ./program      (two emulated nodes that talk TCP)
  longarm perf latency                              (put and get by size, on one node and over TCP)
  longarm ps                                        (which jobs run, and what their ranks wait for)
  longarm info";

const PS_EXAMPLES: &str = "\
Examples:
  longarm ps
      The running jobs of this user, with the process of each launcher.
  longarm ps 4711
      Who waits in which call for whom, who computes, and who does not answer, in the job of that launcher.
  longarm ps 4711 --json
      The same for programs.";

const RUN_EXAMPLES: &str = "\
Examples:
  longarm run -n 4 ./program input.dat
      Four ranks on one node. Output is passed on by whole lines; stdin goes to rank 0.
  longarm run -n 8 --nodes 2 --tag-output ./program
      Two emulated nodes of four ranks that share no memory and talk TCP. Each line says its rank.
  longarm run -n 6 --ppn 2 --bind core ./program
      Three nodes of two ranks, each rank on a processor of its own.
  longarm run -n 4 --stats --timeout 60 -- ./program --its-own-option
      Shows who moved how many bytes where, and gives up after a minute.

Exit status:
  0     every rank ended well
  124   the time given by --timeout was over
  126   PROGRAM cannot be executed
  127   PROGRAM was not found
  2     the command line or a LONGARM_* variable is wrong
  else  that of the first rank that failed (128 + signal when it was killed), which is named on stderr";

/// Starts programs that read, write and update each other's memory.
#[derive(Debug, Parser)]
#[command(name = "longarm", version, after_help = EXAMPLES)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do. What only `longarm run` itself starts is none of it, and so stands in no help, manual page or completion.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a program as many ranks
    Run(RunArguments),
    /// Measure longarm on this machine: latency, bandwidth, GUPS, COMB and more (`longarm perf --help`)
    #[command(disable_help_flag = true)]
    Perf(PerfArguments),
    /// Show the running jobs of this user, or where the ranks of one stand
    Ps(PsArguments),
    /// Show the machine as longarm sees it, and every configuration variable
    Info(InfoArguments),
}

/// Arguments of `longarm run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES, override_usage = "longarm run [-n <P>] [OPTIONS] [--] PROGRAM [ARGS]...")]
pub struct RunArguments {
    /// How many ranks to start
    #[arg(
        short = 'n',
        long = "ranks",
        value_name = "P",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)),
        help = "How many ranks to start; may be left out where hosts say how many they take"
    )]
    pub ranks: Option<u32>,
    /// On which hosts the ranks run.
    #[arg(
        long,
        value_name = "HOST[:K],...",
        conflicts_with = "hostfile",
        help = "Start ranks on these hosts, K on each at first; each host needs longarm"
    )]
    pub hosts: Option<String>,
    /// The same in a file.
    #[arg(long, value_name = "FILE", help = "The same from a file: a host a line, as HOST, HOST:K or HOST slots=K")]
    pub hostfile: Option<OsString>,
    /// What leads to a host.
    #[arg(
        long,
        value_name = "COMMAND",
        help = "What runs a program on a host, instead of ssh; {} stands for the host, which otherwise comes last"
    )]
    pub agent_command: Option<String>,
    /// Where longarm is on the hosts.
    #[arg(long, value_name = "PATH", help = "Where longarm is on the hosts [default: as here, else along PATH there]")]
    pub agent_path: Option<String>,
    /// Over how many nodes to spread them, in blocks as even as possible; else LONGARM_NODES says it, else it is one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: Option<u32>,
    /// How many ranks a node has
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub ppn: Option<u32>,
    /// Whether to bind each rank to one processor
    #[arg(long, value_enum, default_value_t = Bind::None)]
    pub bind: Bind,
    /// Whether each line of output begins with its rank.
    #[arg(long, help = "Begin each line of output with \"[rank] \", on several hosts with \"[rank on host] \"")]
    pub tag_output: bool,
    /// Show operations, bytes and a traffic matrix at the end, and write a heat map
    #[arg(long)]
    pub stats: bool,
    /// Where the heat map is written.
    #[arg(
        long,
        value_name = "PREFIX",
        help = "Write the heat map to PREFIX-traffic.svg; implies --stats [default: longarm-stats-<pid>]"
    )]
    pub stats_file: Option<OsString>,
    /// Print the statistics as one JSON object on stdout, after the job's own output; implies --stats
    #[arg(long)]
    pub json: bool,
    /// End the job after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Let a debugger hold ranks for as long as it likes, and say the process of each
    #[arg(long)]
    pub debug: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl RunArguments {
    /// Whether statistics are wanted in any form.
    pub fn wants_stats(&self) -> bool {
        self.stats || self.json || self.stats_file.is_some()
    }
}

/// Arguments of `longarm ps`.
#[derive(Args, Debug)]
#[command(after_help = PS_EXAMPLES)]
pub struct PsArguments {
    /// The process of a launcher, as the list shows it
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
    /// Print JSON: an object for one job, an array for the list
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `longarm info`.
#[derive(Args, Debug)]
pub struct InfoArguments {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Say only how a program that is started here, in this way, would find the other ranks of its job
    #[arg(long)]
    pub launch: bool,
}

/// Whether ranks are bound to processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// Rank i runs only on the i-th allowed processor, starting over when there are more ranks
    Core,
    /// Ranks run wherever the system puts them
    None,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let accepted = "a number of seconds above 0, such as 60 or 0.5";
    let seconds: f64 = text.parse().map_err(|_| accepted.to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| accepted.to_owned())?;
    if duration.is_zero() { Err(accepted.to_owned()) } else { Ok(duration) }
}

/// What `longarm perf` passes on to the program that measures.
#[derive(Args, Debug)]
pub struct PerfArguments {
    /// As `longarm perf --help` says.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RunArguments, clap::Error> {
        match CommandLine::try_parse_from(line.split_whitespace())?.command {
            Command::Run(arguments) => Ok(arguments),
            _ => panic!("only run is tried here"),
        }
    }

    #[test]
    fn the_command_line_definition_is_consistent() {
        use clap::CommandFactory;
        CommandLine::command().debug_assert();
    }

    #[test]
    fn what_longarm_starts_by_itself_stands_in_no_completion_and_no_manual_page() {
        use clap::CommandFactory;
        use clap_complete::Shell;
        let mut texts = Vec::new();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "longarm", &mut text);
            texts.push(String::from_utf8(text).unwrap());
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(CommandLine::command()).render(&mut page).unwrap();
        texts.push(String::from_utf8(page).unwrap());
        for text in texts {
            // The options --agent-command and --agent-path are for people.
            let text = text.replace("agent-", "").replace("agent\\-", "").replace("agent_", "");
            assert!(text.contains("perf") && !text.contains("guardian") && !text.contains("agent"), "{text}");
        }
    }

    #[test]
    fn options_behind_the_program_belong_to_the_program() {
        let arguments = parse("longarm run -n 2 program -n 5 --stats").unwrap();
        assert_eq!(arguments.command, ["program", "-n", "5", "--stats"]);
        assert_eq!((arguments.ranks, arguments.stats), (Some(2), false));
        let arguments = parse("longarm run -n 2 -- program --json -- x").unwrap();
        assert_eq!(arguments.command, ["program", "--json", "--", "x"]);
    }

    #[test]
    fn an_unknown_option_is_an_error_and_not_a_program() {
        assert_eq!(parse("longarm run -n 2 --unknown program").unwrap_err().exit_code(), 2);
        assert_eq!(parse("longarm run -n 0 program").unwrap_err().exit_code(), 2);
        assert_eq!(parse("longarm run -n 2").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_timeout_is_a_positive_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e300", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
