//! LSF: what it says of the hosts of a job.

use crate::environment::{Environment, shortened};
use crate::host::{HOSTS_MAX, Host, Hosts, SLOTS_MAX, TooMany, is_name};

/// What is wrong with LSF's list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LsfError {
    /// Names without numbers, or what are no names.
    #[error("the variable {name} is {value:?}, and not names of hosts{form}; give the hosts with --hosts, or unset it")]
    Bad {
        /// Which variable.
        name: &'static str,
        /// Its value, cut where it is long.
        value: String,
        /// What it should be like.
        form: &'static str,
    },
    /// More than is ever meant.
    #[error(
        "the variable {name} has more than {HOSTS_MAX} hosts, or more than {SLOTS_MAX} ranks on one of them; give the hosts with --hosts"
    )]
    TooMany {
        /// Which variable.
        name: &'static str,
    },
}

const COUNTED: &str = "LSB_MCPU_HOSTS";
const REPEATED: &str = "LSB_HOSTS";

/// The hosts of the job that this process is in, with their slots; `None` outside of one.
///
/// # Errors
/// [`LsfError`], where the variables are not what LSF writes.
///
/// ```
/// use longarm_managers::{Host, lsf};
/// let set = |name: &str| (name == "LSB_MCPU_HOSTS").then(|| "a 4 b 2 ".to_owned());
/// assert_eq!(lsf::hosts(&set)?, Some(vec![Host::new("a", 4), Host::new("b", 2)]));
/// # Ok::<(), lsf::LsfError>(())
/// ```
pub fn hosts(environment: Environment<'_>) -> Result<Option<Vec<Host>>, LsfError> {
    let set = |name| environment(name).filter(|value| !value.trim().is_empty());
    // The longer form is left out by LSF where it would be very long.
    if let Some(value) = set(COUNTED) {
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        let pairs =
            words.chunks(2).map(|pair| Some((*pair.first()?, pair.get(1)?.parse().ok().filter(|slots| *slots > 0)?)));
        return listed(COUNTED, &value, " with numbers behind them", pairs).map(Some);
    }
    let Some(value) = set(REPEATED) else { return Ok(None) };
    listed(REPEATED, &value, "", value.split_ascii_whitespace().map(|name| Some((name, 1)))).map(Some)
}

fn listed<'a>(
    name: &'static str,
    value: &str,
    form: &'static str,
    pairs: impl Iterator<Item = Option<(&'a str, u32)>>,
) -> Result<Vec<Host>, LsfError> {
    let mut hosts = Hosts::default();
    for pair in pairs {
        let pair = pair.filter(|(host, _)| is_name(host));
        let (host, slots) = pair.ok_or_else(|| LsfError::Bad { name, value: shortened(value), form })?;
        hosts.add(host, Some(slots)).map_err(|TooMany| LsfError::TooMany { name })?;
    }
    Ok(hosts.into_list())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_repeated_are_slots_where_there_are_no_numbers() {
        let set = |name: &str| (name == REPEATED).then(|| "a a b a".to_owned());
        assert_eq!(hosts(&set), Ok(Some(vec![Host::new("a", 3), Host::new("b", 1)])));
        assert_eq!(hosts(&|_| None), Ok(None));
    }

    #[test]
    fn the_numbers_count_where_both_are_there() {
        let set = |name: &str| Some(if name == COUNTED { "a 4 b 2" } else { "c" }.to_owned());
        assert_eq!(hosts(&set), Ok(Some(vec![Host::new("a", 4), Host::new("b", 2)])));
    }

    #[test]
    fn what_lsf_does_not_write_is_named() {
        for bad in ["a", "a 4 b", "a x", "a 0", "-a 4", "a -1"] {
            let error = hosts(&|_| Some(bad.to_owned())).unwrap_err();
            assert!(error.to_string().contains(COUNTED) && error.to_string().contains(bad), "{error}");
        }
        assert_eq!(hosts(&|_| Some("a 65537".to_owned())), Err(LsfError::TooMany { name: COUNTED }));
    }
}
