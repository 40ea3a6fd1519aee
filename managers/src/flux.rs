//! Flux: what it tells each task of a job, and how its instance is asked for hosts.
//!
//! Flux speaks [PMI-1](crate::pmi1); what is here tells a task who it is before that, and a script where it may start others.

use crate::environment::{self, Environment, EnvironmentError, shortened};
use crate::host::{HOSTS_MAX, Host, Hosts, SLOTS_MAX, TooMany};
use crate::hostlist::{self, HostListError};

/// A task of a job of Flux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// This task.
    pub rank: u32,
    /// Tasks of the job.
    pub size: u32,
    /// This task among those of its host.
    pub local_id: u32,
    /// Hosts of the job.
    pub nodes: u32,
    /// The job, as Flux writes it.
    pub job_id: String,
}

impl Task {
    /// The task that this process is; `None` where Flux has not started it.
    ///
    /// # Errors
    /// [`EnvironmentError`] where the variables do not make sense together.
    ///
    /// ```
    /// use longarm_managers::flux::Task;
    /// let set = |name: &str| Some(match name {
    ///     "FLUX_TASK_RANK" => "1", "FLUX_JOB_SIZE" => "4", "FLUX_TASK_LOCAL_ID" => "1", "FLUX_JOB_NNODES" => "2",
    ///     "FLUX_JOB_ID" => "f3A", _ => return None,
    /// }.to_owned());
    /// let task = Task::from_environment(&set)?.expect("it is one");
    /// assert_eq!((task.rank, task.size, task.nodes), (1, 4, 2));
    /// # Ok::<(), longarm_managers::EnvironmentError>(())
    /// ```
    pub fn from_environment(environment: Environment<'_>) -> Result<Option<Task>, EnvironmentError> {
        const RANK: &str = "FLUX_TASK_RANK";
        let Some(rank) = environment::number(environment, RANK)? else { return Ok(None) };
        let number = |name| environment::number_beside(environment, RANK, name);
        let size = number("FLUX_JOB_SIZE")?;
        environment::below("the task's number (FLUX_TASK_RANK)", rank, size)?;
        let local_id = number("FLUX_TASK_LOCAL_ID")?;
        environment::below("the task's number on its host (FLUX_TASK_LOCAL_ID)", local_id, size)?;
        let nodes = number("FLUX_JOB_NNODES")?;
        Ok(Some(Task { rank, size, local_id, nodes, job_id: environment("FLUX_JOB_ID").unwrap_or_default() }))
    }
}

/// What an instance of Flux is asked with: its output is for [`hosts`].
pub const HOSTS_COMMAND: [&str; 7] =
    ["flux", "resource", "list", "--states=free,allocated", "--no-header", "-o", "{ncores} {nodelist}"];

/// Whether this process belongs to an instance of Flux, which can be asked for hosts.
pub fn is_instance(environment: Environment<'_>) -> bool {
    environment("FLUX_URI").is_some_and(|address| !address.is_empty())
}

/// What is wrong with what Flux said of its hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FluxError {
    /// It named none.
    #[error("flux resource list names no host; give the hosts with --hosts")]
    Empty,
    /// A line that is not a number of cores and a list of hosts.
    #[error(
        "flux resource list says {line:?}, and not a number of cores with hosts behind it; give the hosts with --hosts"
    )]
    BadLine {
        /// The line, cut where it is long.
        line: String,
    },
    /// Hosts that cannot be read.
    #[error("flux resource list: {0}")]
    Hosts(#[from] HostListError),
    /// More than is ever meant.
    #[error(
        "flux resource list names more than {HOSTS_MAX} hosts, or more than {SLOTS_MAX} cores of one; give the hosts with --hosts"
    )]
    TooMany,
}

/// The hosts that the output of [`HOSTS_COMMAND`] names. The cores of a line are shared out evenly over its hosts.
///
/// # Errors
/// [`FluxError`], which shows what cannot be read.
///
/// ```
/// use longarm_managers::{Host, flux};
/// assert_eq!(flux::hosts("0 \n8 a[1-2]\n")?, [Host::new("a1", 4), Host::new("a2", 4)]);
/// # Ok::<(), flux::FluxError>(())
/// ```
pub fn hosts(output: &str) -> Result<Vec<Host>, FluxError> {
    let mut hosts = Hosts::default();
    for line in output.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let bad = || FluxError::BadLine { line: shortened(line) };
        let (cores, list) = line.split_once(' ').unwrap_or((line, ""));
        let cores: usize = cores.parse().map_err(|_| bad())?;
        if list.trim().is_empty() && cores == 0 {
            continue;
        }
        let names = hostlist::names(list)?;
        let slots = u32::try_from(cores / names.len()).map_err(|_| FluxError::TooMany)?;
        for name in names {
            hosts.add(&name, Some(slots.max(1))).map_err(|TooMany| FluxError::TooMany)?;
        }
    }
    let hosts = hosts.into_list();
    if hosts.is_empty() { Err(FluxError::Empty) } else { Ok(hosts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_all_of_its_numbers_or_the_missing_one_is_named() {
        assert_eq!(Task::from_environment(&|_| None), Ok(None));
        let set = |name: &str| matches!(name, "FLUX_TASK_RANK" | "FLUX_JOB_SIZE").then(|| "3".to_owned());
        let error = Task::from_environment(&set).unwrap_err();
        assert!(matches!(error, EnvironmentError::OutOfRange { number: 3, count: 3, .. }), "{error}");
        let error = Task::from_environment(&|name| (name == "FLUX_TASK_RANK").then(|| "3".to_owned())).unwrap_err();
        assert!(error.to_string().contains("FLUX_JOB_SIZE"), "{error}");
    }

    #[test]
    fn what_flux_does_not_say_is_shown() {
        assert_eq!(hosts("0\n"), Err(FluxError::Empty));
        assert_eq!(hosts(""), Err(FluxError::Empty));
        assert!(matches!(hosts("x a"), Err(FluxError::BadLine { .. })));
        assert!(matches!(hosts("4 a["), Err(FluxError::Hosts(_))));
        assert_eq!(hosts("99999999999 a"), Err(FluxError::TooMany));
    }

    #[test]
    fn hosts_in_several_states_have_the_cores_of_all() {
        assert_eq!(hosts("2 a\n4 a,b"), Ok(vec![Host::new("a", 4), Host::new("b", 2)]));
    }
}
