//! Files with a host a line, as MPICH, Open MPI, the MPI operator of Kubernetes and PBS write them.
//!
//! ```text
//!   a                           a slot for each time a name is repeated (PBS's node file)
//!   b:4                         MPICH, Intel
//!   c slots=4 max_slots=8       Open MPI: for 4 ranks
//!   node[01-16]:2               as on the command line
//!   # comments, and empty lines
//! ```
//!
//! Words that say how a host is reached or bound (`user=`, `binding=`, `ifname=`, `max_slots=`) are read over; a user is written as `user@c`.

use crate::environment::shortened;
use crate::host::{HOSTS_MAX, Host, Hosts, SLOTS_MAX, TooMany};
use crate::hostlist::{self, HostListError};

/// What is wrong with a file of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFileError {
    /// Only comments and empty lines.
    #[error("the file names no host; write one a line, as in `a`, `b:4` or `c slots=4`")]
    Empty,
    /// A name that is none.
    #[error("line {line}: {reason}")]
    BadHost {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: HostListError,
    },
    /// Something behind the name that says nothing known.
    #[error("line {line}: {word:?} says nothing that is known of a host; write `name`, `name:4` or `name slots=4`")]
    UnknownWord {
        /// Counted from 1.
        line: usize,
        /// What stands there, cut where it is long.
        word: String,
    },
    /// A number of slots that is none.
    #[error("line {line}: {word:?} is no number of ranks from 1 to {SLOTS_MAX}")]
    BadSlots {
        /// Counted from 1.
        line: usize,
        /// What stands there, cut where it is long.
        word: String,
    },
    /// Both `name:4` and `slots=4`.
    #[error("line {line} says twice how many ranks its host takes; leave one of them out")]
    SlotsTwice {
        /// Counted from 1.
        line: usize,
    },
    /// More than is ever meant.
    #[error("line {line}: more than {HOSTS_MAX} hosts, or more than {SLOTS_MAX} ranks on this one")]
    TooMany {
        /// Counted from 1.
        line: usize,
    },
}

/// Words with a value behind `=` that say nothing of how many ranks a host takes.
const READ_OVER: [&str; 8] = ["max_slots", "max-slots", "user", "user_name", "username", "binding", "ifname", "port"];

/// The hosts of a file, given its text. One that is named again has the slots of both, and keeps its place.
///
/// # Errors
/// [`HostFileError`], with the number of the line.
///
/// ```
/// use longarm_managers::{Host, hostfile};
///
/// let hosts = hostfile::parse("# two of them\na:2\nb slots=4 max_slots=8\n")?;
/// assert_eq!(hosts, [Host::new("a", 2), Host::new("b", 4)]);
/// # Ok::<(), hostfile::HostFileError>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<Host>, HostFileError> {
    let mut hosts = Hosts::default();
    let mut is_empty = true;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default().replace(" =", "=").replace("= ", "=");
        let mut words = content.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        is_empty = false;
        let slots = slots_of(line, words)?;
        for host in hostlist::parse(name).map_err(|reason| HostFileError::BadHost { line, reason })? {
            let slots = match (host.slots, slots) {
                (Some(_), Some(_)) => return Err(HostFileError::SlotsTwice { line }),
                (one, another) => one.or(another),
            };
            hosts.add(&host.name, slots).map_err(|TooMany| HostFileError::TooMany { line })?;
        }
    }
    if is_empty { Err(HostFileError::Empty) } else { Ok(hosts.into_list()) }
}

/// What the words behind a name say of its slots.
fn slots_of<'a>(line: usize, words: impl Iterator<Item = &'a str>) -> Result<Option<u32>, HostFileError> {
    let mut slots = None;
    for word in words {
        match word.split_once('=') {
            Some(("slots" | "count" | "cpu", number)) => match number.parse() {
                Ok(number @ 1..=SLOTS_MAX) if slots.is_none() => slots = Some(number),
                Ok(1..=SLOTS_MAX) => return Err(HostFileError::SlotsTwice { line }),
                _ => return Err(HostFileError::BadSlots { line, word: shortened(word) }),
            },
            Some((key, _)) if READ_OVER.contains(&key) => {}
            _ => return Err(HostFileError::UnknownWord { line, word: shortened(word) }),
        }
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_mpich_open_mpi_and_pbs_are_read() {
        let text = "# hosts\n\na:4   # MPICH\r\nb slots=4 max_slots=8\n  c slots = 2\nd\nd\nd\nuser@e binding=numa\n10.0.0.1\n[fd00::1]:3\n";
        let nothing = |name: &str| Host { name: name.to_owned(), slots: None };
        let all = [
            Host::new("a", 4),
            Host::new("b", 4),
            Host::new("c", 2),
            Host::new("d", 3),
            nothing("user@e"),
            nothing("10.0.0.1"),
            Host::new("fd00::1", 3),
        ];
        assert_eq!(parse(text).unwrap(), all);
    }

    #[test]
    fn a_name_may_have_brackets_and_then_slots_hold_for_each() {
        assert_eq!(parse("n[1-2] slots=3").unwrap(), [Host::new("n1", 3), Host::new("n2", 3)]);
        assert_eq!(parse("n[1-2]:3").unwrap(), [Host::new("n1", 3), Host::new("n2", 3)]);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("\n# nothing\n \n"), HostFileError::Empty);
        assert_eq!(error("a\nb solts=4"), HostFileError::UnknownWord { line: 2, word: "solts=4".to_owned() });
        assert_eq!(error("a 4"), HostFileError::UnknownWord { line: 1, word: "4".to_owned() });
        assert_eq!(error("a\n\nb slots=x"), HostFileError::BadSlots { line: 3, word: "slots=x".to_owned() });
        assert_eq!(error("b slots=0"), HostFileError::BadSlots { line: 1, word: "slots=0".to_owned() });
        assert_eq!(error("b:4 slots=4"), HostFileError::SlotsTwice { line: 1 });
        assert_eq!(error("b slots=4 slots=4"), HostFileError::SlotsTwice { line: 1 });
        assert!(matches!(error("a\n^b"), HostFileError::BadHost { line: 2, .. }));
        assert!(error("a\n^b").to_string().contains("line 2") && error("a\n^b").to_string().contains("^b"));
        assert_eq!(error("a:65536\na"), HostFileError::TooMany { line: 2 });
        assert_eq!(error("a[0-99999]\nb[0-99999]"), HostFileError::TooMany { line: 2 });
    }
}
