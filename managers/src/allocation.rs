//! The hosts that a batch system has given to the job which this process is in.
//!
//! Asked in this order; the first that says anything is believed, and an error of it is an error, so that no job runs on the
//! wrong hosts: Flux (whose instances run inside the jobs of others), Slurm, LSF, PBS, Grid Engine, the MPI operator of Kubernetes.

use std::fmt;
use std::io;

use crate::environment::Environment;
use crate::flux::{self, FluxError};
use crate::grid_engine::{self, GridEngineError};
use crate::host::Host;
use crate::hostfile::{self, HostFileError};
use crate::kubernetes;
use crate::lsf::{self, LsfError};
use crate::pbs;
use crate::slurm::{self, StepError};

/// Who has given the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum System {
    /// An instance of Flux.
    Flux,
    /// A job of Slurm.
    Slurm,
    /// A job of LSF.
    Lsf,
    /// A job of PBS.
    Pbs,
    /// A parallel job of Grid Engine.
    GridEngine,
    /// The MPI operator of Kubernetes.
    MpiOperator,
}

impl fmt::Display for System {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            System::Flux => "Flux",
            System::Slurm => "Slurm",
            System::Lsf => "LSF",
            System::Pbs => "PBS",
            System::GridEngine => "Grid Engine",
            System::MpiOperator => "the MPI operator",
        })
    }
}

/// The hosts of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Who has given them.
    pub system: System,
    /// The job, as its system calls it; empty where it does not say.
    pub job: String,
    /// Each with its slots, in the order of the system.
    pub hosts: Vec<Host>,
}

/// What an allocation is read from, besides the environment.
pub trait Outside {
    /// The text of a file.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, file: &str) -> io::Result<String>;

    /// What a program prints.
    ///
    /// # Errors
    /// Where it cannot be run, or fails.
    fn run(&self, command: &[&str]) -> io::Result<String>;
}

/// Why the hosts of a job cannot be known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationError {
    /// The file of hosts cannot be read.
    #[error(
        "this is a job of {system}, and its file of hosts {file} cannot be read ({reason}); give the hosts with --hosts"
    )]
    Read {
        /// Whose job.
        system: System,
        /// The file.
        file: String,
        /// Why.
        reason: io::Error,
    },
    /// The program that knows the hosts cannot be asked.
    #[error("this is an instance of Flux, and `{command}` fails ({reason}); give the hosts with --hosts")]
    Run {
        /// The program with its arguments.
        command: String,
        /// Why.
        reason: io::Error,
    },
    /// What Slurm says.
    #[error("this is a job of Slurm: {0}")]
    Slurm(#[from] StepError),
    /// What LSF says.
    #[error("this is a job of LSF: {0}")]
    Lsf(#[from] LsfError),
    /// What Flux says.
    #[error("this is an instance of Flux: {0}")]
    Flux(#[from] FluxError),
    /// What stands in a file.
    #[error("this is a job of {system}, and of its file of hosts {file}, {reason}")]
    File {
        /// Whose job.
        system: System,
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: HostFileError,
    },
    /// What stands in Grid Engine's file.
    #[error("this is a job of Grid Engine: {0}")]
    GridEngine(#[from] GridEngineError),
}

/// The allocation that this process is in; `None` where it is in none.
///
/// # Errors
/// [`AllocationError`], where a system has given hosts and does not say which.
///
/// ```
/// use longarm_managers::Host;
/// use longarm_managers::allocation::{self, Outside, System};
///
/// struct Nothing;
/// impl Outside for Nothing {
///     fn read(&self, file: &str) -> std::io::Result<String> { Ok("a\na\nb\n".to_owned()) }
///     fn run(&self, command: &[&str]) -> std::io::Result<String> { Err(std::io::ErrorKind::NotFound.into()) }
/// }
/// let set = |name: &str| (name == "PBS_NODEFILE").then(|| "/aux/7".to_owned());
/// let allocation = allocation::find(&set, &Nothing)?.expect("there is one");
/// assert_eq!((allocation.system, allocation.hosts), (System::Pbs, vec![Host::new("a", 2), Host::new("b", 1)]));
/// # Ok::<(), allocation::AllocationError>(())
/// ```
pub fn find(environment: Environment<'_>, outside: &dyn Outside) -> Result<Option<Allocation>, AllocationError> {
    let variable = |name| environment(name).unwrap_or_default();
    let found = |system, job, hosts| Ok(Some(Allocation { system, job, hosts }));
    let read = |system, file: &str| {
        let failed = |reason| AllocationError::Read { system, file: file.to_owned(), reason };
        outside.read(file).map_err(failed)
    };
    let bad_file = |system, file| move |reason| AllocationError::File { system, file, reason };
    if flux::is_instance(environment) {
        let failed = |reason| AllocationError::Run { command: flux::HOSTS_COMMAND.join(" "), reason };
        let output = outside.run(&flux::HOSTS_COMMAND).map_err(failed)?;
        return found(System::Flux, variable("FLUX_JOB_ID"), flux::hosts(&output)?);
    }
    if let Some(hosts) = slurm::hosts(environment)? {
        return found(System::Slurm, variable("SLURM_JOB_ID"), hosts);
    }
    if let Some(hosts) = lsf::hosts(environment)? {
        return found(System::Lsf, variable("LSB_JOBID"), hosts);
    }
    if let Some((job, file)) = pbs::job(environment) {
        let text = read(System::Pbs, &file)?;
        let hosts = pbs::hosts(&text).map_err(bad_file(System::Pbs, file))?;
        return found(System::Pbs, job, hosts);
    }
    if let Some((job, file)) = grid_engine::job(environment) {
        return found(System::GridEngine, job, grid_engine::hosts(&read(System::GridEngine, &file)?)?);
    }
    if let Some(file) = kubernetes::operator_host_file(environment) {
        let text = read(System::MpiOperator, &file)?;
        let hosts = hostfile::parse(&text).map_err(bad_file(System::MpiOperator, file))?;
        return found(System::MpiOperator, String::new(), hosts);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files and programs by name.
    struct Written(&'static [(&'static str, &'static str)]);

    impl Outside for Written {
        fn read(&self, file: &str) -> io::Result<String> {
            let found = self.0.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned());
            found.ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn run(&self, command: &[&str]) -> io::Result<String> {
            self.read(command[0])
        }
    }

    type Set = &'static [(&'static str, &'static str)];

    fn found(set: &[(&str, &str)], outside: &Written) -> Result<Option<Allocation>, AllocationError> {
        find(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()), outside)
    }

    #[test]
    fn each_system_is_known_by_what_it_sets() {
        let outside = Written(&[
            ("nodes", "a\nb\na"),
            ("pe", "a 2 q@a 0\nb 1 q@b 0"),
            ("flux", "3 a,b"),
            ("/etc/mpi/hostfile", "a slots=2\nb"),
        ]);
        let cases: [(Set, System, &str); 6] = [
            (
                &[("SLURM_JOB_ID", "5"), ("SLURM_JOB_NODELIST", "a,b"), ("SLURM_TASKS_PER_NODE", "2,1")],
                System::Slurm,
                "5",
            ),
            (&[("LSB_JOBID", "6"), ("LSB_MCPU_HOSTS", "a 2 b 1")], System::Lsf, "6"),
            (&[("PBS_JOBID", "7"), ("PBS_NODEFILE", "nodes")], System::Pbs, "7"),
            (&[("JOB_ID", "8"), ("PE_HOSTFILE", "pe")], System::GridEngine, "8"),
            (&[("FLUX_URI", "local:///x"), ("SLURM_JOB_NODELIST", "c")], System::Flux, ""),
            (&[("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile")], System::MpiOperator, ""),
        ];
        for (set, system, job) in cases {
            let allocation = found(set, &outside).unwrap().unwrap();
            assert_eq!((allocation.system, allocation.job.as_str()), (system, job));
            let names: Vec<_> = allocation.hosts.iter().map(|host| host.name.as_str()).collect();
            assert_eq!(names, ["a", "b"], "{system}");
            let slots = if system == System::Flux { Some(1) } else { Some(2) };
            assert_eq!(allocation.hosts[0].slots, slots, "{system}");
        }
        assert!(found(&[], &outside).unwrap().is_none());
    }

    #[test]
    fn a_job_whose_hosts_cannot_be_known_is_an_error_that_says_what_to_do() {
        let nothing = Written(&[("bad", "a b")]);
        let cases: [(Set, &str); 6] = [
            (&[("FLUX_URI", "x")], "flux resource list"),
            (&[("SLURM_JOB_NODELIST", "a[")], "SLURM_JOB_NODELIST"),
            (&[("LSB_HOSTS", "-a")], "LSB_HOSTS"),
            (&[("PBS_NODEFILE", "none")], "none"),
            (&[("PBS_NODEFILE", "bad")], "line 1"),
            (&[("PE_HOSTFILE", "bad")], "line 1"),
        ];
        for (set, named) in cases {
            let said = found(set, &nothing).unwrap_err().to_string();
            assert!(said.contains(named) && said.contains("this is "), "{said}");
        }
    }
}
