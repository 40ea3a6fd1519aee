//! `longarm run`: starts the ranks, lets them find each other, passes on what they write, and sees to it that none is
//! left behind.
//!
//! ```text
//!              guardian ◄── pipe ──┐
//!  stdin ──► input ──► rank 0      │
//!                      rank r ──► output ──► stdout, stderr
//!                        ▲ control socket
//!                        ▼
//!                      watch ──► supervise (rendezvous, ending, watchdog) ──► messages, signals
//!                                    ▲
//!  longarm ps ──► questions ─────────┘
//! ```
//!
//! One thread runs all of it, except for the blocking reads and writes of the launcher's own stdin, stdout and stderr.
//! The decisions stand in `rendezvous`, `ending` and `watchdog`, which know no process and no clock.

use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;

use longarm::config::{Config, ConfigError};
use longarm::topology;
use longarm_control::messages::CONTROL_FD_VARIABLE;
use rustix::process::{Resource, Rlimit};

use self::guardian::Guardian;
use self::hosts::HostsError;
use self::program::ProgramError;
use crate::cli::RunArguments;
use longarm_control::plan::PlanError;

pub mod agent;
mod alike;
mod child;
mod ending;
mod far;
pub mod guardian;
mod here;
mod hosts;
mod input;
mod link;
mod output;
mod program;
pub mod questions;
mod reasons;
mod site;
mod supervise;
mod to_launcher;
mod watch;

/// Descriptors that whoever starts a rank needs for it: the control socket, two outputs, the process.
const DESCRIPTORS_PER_RANK: u64 = 4;
/// And for each agent: what leads to it has three pipes, and two are open twice for a moment.
const DESCRIPTORS_PER_LINK: u64 = 5;
/// And for itself, with some to spare.
const DESCRIPTORS_OWN: u64 = 64;

/// Why no job was started, or why it could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A variable is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The numbers on the command line are wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The program is wrong.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The hosts are wrong.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// The ranks' folder is missing on a host.
    #[error("the working folder {} cannot be entered: {source}; every host needs it", .folder.display())]
    Folder {
        /// The folder.
        folder: std::path::PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Too few descriptors.
    #[error("{ranks} ranks take {needed} open files in the launcher, but the limit is {limit}; raise it (ulimit -Hn)")]
    Descriptors {
        /// Ranks asked for.
        ranks: u32,
        /// How many descriptors they take.
        needed: u64,
        /// How many there may be.
        limit: u64,
    },
    /// The system refused a rank.
    #[error("rank {rank} cannot be started: {}: {source}{}", .program.display(), remedy(source))]
    Rank {
        /// The rank.
        rank: u32,
        /// The file.
        program: std::path::PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused something that the launcher itself needs.
    #[error("{what}: {source}{}", remedy(source))]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl RunError {
    /// What the launcher exits with.
    fn status(&self) -> u8 {
        match self {
            RunError::Config(_) | RunError::Plan(_) | RunError::Hosts(_) => 2,
            RunError::Program(ProgramError::NotFound { .. }) => 127,
            RunError::Program(ProgramError::NotExecutable { .. }) => 126,
            // The file is there, but its interpreter is not, or it is no program.
            RunError::Rank { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            RunError::Rank { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 126,
            RunError::Rank { source, .. }
                if source.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) =>
            {
                126
            }
            RunError::Folder { .. }
            | RunError::Rank { .. }
            | RunError::Descriptors { .. }
            | RunError::System { .. } => 1,
        }
    }
}

/// What to do about an error of the system, where it is known.
fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::WouldBlock {
        ": no more processes are allowed; raise the limit (ulimit -u, or pids.max of the control group)"
    } else {
        ""
    }
}

/// Lets an error of the system say what was being done.
trait While<T> {
    fn while_doing(self, what: &'static str) -> Result<T, RunError>;
}

impl<T, E: Into<io::Error>> While<T> for Result<T, E> {
    fn while_doing(self, what: &'static str) -> Result<T, RunError> {
        self.map_err(|source| RunError::System { what, source: source.into() })
    }
}

/// Runs a job to its end.
pub fn run(arguments: &RunArguments) -> ExitCode {
    child::close_stale_control(std::env::var_os(CONTROL_FD_VARIABLE).as_deref());
    match launch(arguments) {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error) => {
            eprintln!("longarm: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn launch(arguments: &RunArguments) -> Result<i32, RunError> {
    let mut config = Config::from_environment()?;
    config.debugger |= arguments.debug;
    for warning in config.warnings() {
        eprintln!("longarm: {warning}");
    }
    longarm::log_to_stderr(&config);
    // The variable is for jobs of any launcher; what stands on the command line wins.
    let cut = (arguments.ppn.is_none() && config.is_set("LONGARM_NODES")).then_some(config.nodes);
    let (plan, machines) = hosts::plan(arguments, cut)?;
    if let Some(told) = machines.oversubscribed(&plan) {
        eprintln!("longarm: {told}");
    }
    let ranks_here = (0..plan.ranks()).filter(|rank| machines.is_here(plan.machine_of(*rank))).count() as u32;
    config.settle_wait_limits(ranks_here, topology::processors_allowed().len() as u32);
    config.settle_debugger();
    // Where no rank is on this machine, the program need not be.
    let path = if ranks_here > 0 {
        program::find_program(program_of(arguments), std::env::var_os("PATH"))?
    } else {
        "".into()
    };
    let descriptors = raise_descriptors(ranks_here, machines.far())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.while_doing("starting the launcher's event loop")?;
    let guardian = Guardian::start().while_doing("starting the guardian process")?;
    let template = child::Template {
        path: &path,
        command: &arguments.command,
        ranks: plan.ranks(),
        guardian: guardian.pipe(),
        descriptors,
        debugger: config.debugger,
        environment: None,
    };
    let ended = runtime.block_on(supervise::supervise(arguments, &config, (plan, machines), &template));
    drop(template);
    guardian.dismiss();
    // Nothing that is left needs to be waited for.
    runtime.shutdown_background();
    ended
}

fn program_of(arguments: &RunArguments) -> &OsStr {
    arguments.command.first().expect("the command line demands a program")
}

/// Makes sure that there are enough descriptors. Returns the limit that the ranks have to get back if it was changed.
fn raise_descriptors(ranks: u32, links: u32) -> Result<Option<Rlimit>, RunError> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let needed = DESCRIPTORS_OWN + DESCRIPTORS_PER_RANK * u64::from(ranks) + DESCRIPTORS_PER_LINK * u64::from(links);
    if before.current.is_none_or(|limit| limit >= needed) {
        return Ok(None);
    }
    if let Some(limit) = before.maximum.filter(|limit| *limit < needed) {
        return Err(RunError::Descriptors { ranks, needed, limit });
    }
    let raised = Rlimit { current: Some(needed), maximum: before.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised).while_doing("raising the limit on open files")?;
    Ok(Some(before))
}
