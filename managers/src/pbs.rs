//! PBS (OpenPBS, PBS Pro, Torque): what it says of the hosts of a job.

use crate::environment::Environment;
use crate::host::Host;
use crate::hostfile::{self, HostFileError};

/// The variable that names the file of hosts.
pub const NODE_FILE: &str = "PBS_NODEFILE";

/// The number of the job, and its file of hosts, where this process is in one.
///
/// ```
/// use longarm_managers::pbs;
/// let set = |name: &str| match name {
///     "PBS_JOBID" => Some("7.server".to_owned()),
///     "PBS_NODEFILE" => Some("/var/spool/pbs/aux/7.server".to_owned()),
///     _ => None,
/// };
/// assert_eq!(pbs::job(&set), Some(("7.server".to_owned(), "/var/spool/pbs/aux/7.server".to_owned())));
/// ```
pub fn job(environment: Environment<'_>) -> Option<(String, String)> {
    let file = environment(NODE_FILE).filter(|file| !file.is_empty())?;
    Some((environment("PBS_JOBID").unwrap_or_default(), file))
}

/// The hosts of a node file, each with as many slots as it has lines.
///
/// # Errors
/// As [`hostfile::parse`].
///
/// ```
/// use longarm_managers::{Host, pbs};
/// assert_eq!(pbs::hosts("a\na\nb\n")?, [Host::new("a", 2), Host::new("b", 1)]);
/// # Ok::<(), longarm_managers::hostfile::HostFileError>(())
/// ```
pub fn hosts(node_file: &str) -> Result<Vec<Host>, HostFileError> {
    let hosts = hostfile::parse(node_file)?;
    Ok(hosts.into_iter().map(|host| Host { slots: host.slots.or(Some(1)), ..host }).collect())
}
