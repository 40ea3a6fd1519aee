//! Grid Engine (SGE, Univa, Altair): what it says of the hosts of a parallel job.

use crate::environment::{Environment, shortened};
use crate::host::{HOSTS_MAX, Host, Hosts, SLOTS_MAX, TooMany, is_name};

/// The variable that names the file of hosts.
pub const HOST_FILE: &str = "PE_HOSTFILE";

/// What is wrong with Grid Engine's file of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridEngineError {
    /// Not one line.
    #[error("the file that PE_HOSTFILE names is empty; give the hosts with --hosts")]
    Empty,
    /// A line that is not `name slots queue processors`.
    #[error(
        "line {line} of the file that PE_HOSTFILE names is {text:?}, without a name and a number of ranks; give the hosts with --hosts"
    )]
    BadLine {
        /// Counted from 1.
        line: usize,
        /// The line, cut where it is long.
        text: String,
    },
    /// More than is ever meant.
    #[error(
        "line {line} of the file that PE_HOSTFILE names: more than {HOSTS_MAX} hosts, or more than {SLOTS_MAX} ranks on one of them; give the hosts with --hosts"
    )]
    TooMany {
        /// Counted from 1.
        line: usize,
    },
}

/// The number of the job, and its file of hosts, where this process is in one.
///
/// ```
/// use longarm_managers::grid_engine;
/// assert_eq!(grid_engine::job(&|name| (name == "PE_HOSTFILE").then(|| "/spool/pe".to_owned())), Some((String::new(), "/spool/pe".to_owned())));
/// ```
pub fn job(environment: Environment<'_>) -> Option<(String, String)> {
    let file = environment(HOST_FILE).filter(|file| !file.is_empty())?;
    Some((environment("JOB_ID").unwrap_or_default(), file))
}

/// The hosts of the file, with their slots.
///
/// # Errors
/// [`GridEngineError`], with the number of the line.
///
/// ```
/// use longarm_managers::{Host, grid_engine};
/// let file = "a.site 4 all.q@a.site <NULL>\nb.site 2 all.q@b.site UNDEFINED\n";
/// assert_eq!(grid_engine::hosts(file)?, [Host::new("a.site", 4), Host::new("b.site", 2)]);
/// # Ok::<(), grid_engine::GridEngineError>(())
/// ```
pub fn hosts(host_file: &str) -> Result<Vec<Host>, GridEngineError> {
    let mut hosts = Hosts::default();
    let mut is_empty = true;
    for (line, text) in (1..).zip(host_file.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        is_empty = false;
        let mut words = text.split_ascii_whitespace();
        let name = words.next().filter(|name| is_name(name));
        let slots = words.next().and_then(|slots| slots.parse().ok()).filter(|slots| *slots > 0);
        let (name, slots) = name.zip(slots).ok_or_else(|| GridEngineError::BadLine { line, text: shortened(text) })?;
        hosts.add(name, Some(slots)).map_err(|TooMany| GridEngineError::TooMany { line })?;
    }
    if is_empty { Err(GridEngineError::Empty) } else { Ok(hosts.into_list()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_in_two_queues_has_the_slots_of_both() {
        assert_eq!(hosts("a 4 all.q@a 0,1\n\na 2 big.q@a\n"), Ok(vec![Host::new("a", 6)]));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        assert_eq!(hosts("\n"), Err(GridEngineError::Empty));
        for bad in ["a", "a x q", "a 0 q", "-a 4"] {
            let error = hosts(&format!("b 1\n{bad}")).unwrap_err();
            assert_eq!(error, GridEngineError::BadLine { line: 2, text: bad.to_owned() });
        }
        assert_eq!(hosts("a 99999"), Err(GridEngineError::TooMany { line: 1 }));
    }
}
