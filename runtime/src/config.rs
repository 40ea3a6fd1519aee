//! Every `LONGARM_*` variable, in one table: name, unit, meaning, limits, and where its value came from.
//!
//! The environment is read once, here. The rest of longarm gets the values as arguments. A value that cannot be used
//! is an error that says what is accepted. A variable nobody knows is only a warning: it names the nearest known one.
//! A blank value counts as not set. Sizes take the suffixes `k`, `m`, `g` and `t` (powers of 1024).
//!
//! A program may bring its configuration along: [`init_with`](crate::init_with) takes a [`Config`] in place of the
//! environment.
//!
//! This module holds no state and prints nothing.

mod debugger;
mod interface;
mod program;
mod values;
mod variables;

use std::ffi::{OsStr, OsString};
use std::fmt;

use serde::Serialize;

use crate::topology;
pub use interface::{InterfaceChoice, InterfaceName, NoInterfaceName};
pub use values::{Config, NetworkChoice, OnDemandChoice, OnFailure, Origin, UnknownVariable};
use values::{NONTEMPORAL_BYTES_MIN, PROMPT_RANKS_MAX, SPIN_US};
use variables::{INTERFACE, NONTEMPORAL, SERVER_THREADS, SPIN, Slot, VARIABLES, WAIT_LIMITS};

/// What all variables of longarm begin with.
///
/// ```
/// use longarm::config::{Config, PREFIX};
/// assert!(Config::default().entries().iter().all(|entry| entry.name.starts_with(PREFIX)));
/// ```
pub const PREFIX: &str = "LONGARM_";
/// What the variables begin with by which tests speak to their own ranks; they are none of ours.
const TEST_PREFIX: &str = "LONGARM_TEST_";

/// One line of [`Config::entries`].
///
/// ```
/// for entry in longarm::config::Config::default().entries() {
///     println!("{} = {} {}: {} ({})", entry.name, entry.value, entry.unit, entry.meaning, entry.accepted);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The variable.
    pub name: &'static str,
    /// Its value, in a form that the variable accepts.
    pub value: String,
    /// What the value counts, empty where it counts nothing.
    pub unit: &'static str,
    /// Where the value came from.
    pub origin: Origin,
    /// What it is for.
    pub meaning: &'static str,
    /// What may be set.
    pub accepted: String,
}

/// A variable has a value that cannot be used. The caller's fault; nothing was started.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value cannot be read or is out of range.
    #[error("{name} is set to {value:?}, which is not accepted: it takes {accepted}")]
    Refused {
        /// The variable.
        name: &'static str,
        /// Its value, with replacement characters where it is no text.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// There is no such variable. Only of [`Config::set`]: in the environment it is a warning.
    #[error("longarm knows no variable {name}{}", nearest.map(|name| format!("; is it {name}?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The known name closest to it, if any is close.
        nearest: Option<&'static str>,
    },
}

longarm_client::debug_as_display!(ConfigError);

/// More were not measured.
const SERVER_THREADS_DEFAULT_MAX: u64 = 4;

const _: () = assert!(matches!(VARIABLES[INTERFACE].slot, Slot::Interface));

#[doc(hidden)]
/// Variables that tell a rank its place: set by the launcher, or by a script that starts ranks one by one. They are no configuration.
pub const LAUNCHER_VARIABLES: [(&str, &str); 6] = [
    (longarm_control::messages::CONTROL_FD_VARIABLE, "descriptor of the socket to the launcher"),
    ("LONGARM_RANK", "number of this rank: for scripts, and where LONGARM_ROOT is set"),
    ("LONGARM_SIZE", "how many ranks the job has: for scripts, and where LONGARM_ROOT is set"),
    ("LONGARM_LOCAL_RANK", "number of this rank among those of its host, where LONGARM_ROOT is set"),
    ("LONGARM_LOCAL_SIZE", "how many ranks its host has, where LONGARM_ROOT is set"),
    ("LONGARM_NODE", "number of this rank's node, for scripts"),
];

impl Config {
    /// Reads the environment, and the caches of this machine for the values that follow from them.
    ///
    /// # Errors
    /// The first variable whose value cannot be used, or two that contradict each other.
    pub fn from_environment() -> Result<Config, ConfigError> {
        let last_cache = topology::last_cache_here().map(std::slice::from_ref);
        Config::from_variables(std::env::vars_os(), last_cache.unwrap_or_default())
    }

    #[doc(hidden)]
    /// Reads any list of variables. Those without longarm's prefix are passed over.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_variables(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        caches: &[topology::Cache],
    ) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        if let Some(bytes) = nontemporal_bytes(caches) {
            config.nontemporal_bytes = bytes;
            config.origins[NONTEMPORAL] = Origin::Measured;
        }
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            if name.starts_with(TEST_PREFIX) {
                continue;
            }
            config.take(name, &value)?;
        }
        config.warnings.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(config)
    }

    #[doc(hidden)]
    /// Decides how long to spin, once the job is known: not at all where ranks share processors. A value set by hand
    /// stays.
    pub fn settle_spin(&mut self, ranks_on_machine: u32, processors: u32) {
        if self.origins[SPIN].is_by_hand() {
            return;
        }
        self.spin_us = if ranks_on_machine > processors { 0 } else { SPIN_US };
        self.origins[SPIN] = Origin::Measured;
    }

    #[doc(hidden)]
    /// How much of a blocking put is copied at most: what is copied has to fit twice into what a connection keeps.
    pub fn copied_bytes_max(&self) -> usize {
        self.eager_bytes.min(self.send_ring_bytes / 2) as usize
    }

    #[doc(hidden)]
    /// Decides how many threads of a server may serve other nodes at once, once the job is known: besides its own as many as ranks leave
    /// processors free, divided among the nodes of the machine, up to a bound. A value set by hand stays.
    pub fn settle_server_threads(&mut self, ranks_on_machine: u32, nodes_on_machine: u32, processors: u32) {
        if self.origins[SERVER_THREADS].is_by_hand() {
            return;
        }
        let free = processors.saturating_sub(ranks_on_machine) / nodes_on_machine.max(1);
        self.server_threads = (1 + u64::from(free)).min(SERVER_THREADS_DEFAULT_MAX);
        self.origins[SERVER_THREADS] = Origin::Measured;
    }

    #[doc(hidden)]
    /// Decides for how long ranks wait for others before they take it for a fault, once the job is known: where many ranks share a processor,
    /// in proportion to how many, for each of them waits that long for its turn. Other machines are taken to be as full as this one. A value
    /// set by hand stays.
    pub fn settle_wait_limits(&mut self, ranks_on_machine: u32, processors: u32) {
        let ranks_each = u64::from(ranks_on_machine.div_ceil(processors.max(1)));
        let mut built_in = Config::default();
        for (index, variable) in VARIABLES.iter().enumerate() {
            let Slot::Number { field, max, .. } = variable.slot else { continue };
            if !WAIT_LIMITS.contains(&variable.name) || self.origins[index].is_by_hand() {
                continue;
            }
            *field(self) = (*field(&mut built_in) * ranks_each.max(PROMPT_RANKS_MAX) / PROMPT_RANKS_MAX).min(max);
            self.origins[index] = if ranks_each > PROMPT_RANKS_MAX { Origin::Measured } else { Origin::Default };
        }
    }

    /// Whether a variable was set by hand, in the environment or by the program.
    ///
    /// ```
    /// let mut config = longarm::config::Config::default();
    /// config.set("LONGARM_HEAP_BYTES", "64m")?;
    /// assert!(config.is_set("LONGARM_HEAP_BYTES") && !config.is_set("LONGARM_NODES"));
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn is_set(&self, name: &str) -> bool {
        let index = VARIABLES.iter().position(|variable| variable.name == name);
        index.is_some_and(|index| self.origins[index].is_by_hand())
    }

    #[doc(hidden)]
    /// Says at which addresses the servers listen, once it is known where the others are. A choice made by hand stays.
    pub fn settle_interface(&mut self, addresses: impl Iterator<Item = std::net::IpAddr>) {
        if self.interface == InterfaceChoice::Auto {
            self.interface = InterfaceChoice::Listed(addresses.map(InterfaceName::Address).collect());
            self.origins[INTERFACE] = Origin::Measured;
        }
    }

    /// Every variable with its value, in a fixed order.
    pub fn entries(&self) -> Vec<Entry> {
        // The table leads to mutable fields, so it is read on a copy.
        let mut copy = self.clone();
        let rows = VARIABLES.iter().zip(self.origins);
        let entries = rows.map(|(variable, origin)| Entry {
            name: variable.name,
            value: variable.slot.show(&mut copy),
            unit: variable.unit,
            origin,
            meaning: variable.meaning,
            accepted: variable.slot.accepted(),
        });
        entries.collect()
    }

    /// The variables with longarm's prefix that longarm does not know, sorted by name.
    ///
    /// ```
    /// let config = longarm::config::Config::from_environment()?;
    /// assert!(config.warnings().iter().all(|unknown| unknown.name.starts_with(longarm::config::PREFIX)));
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn warnings(&self) -> &[UnknownVariable] {
        &self.warnings
    }

    fn take(&mut self, name: &str, value: &OsStr) -> Result<(), ConfigError> {
        let Some(index) = VARIABLES.iter().position(|variable| variable.name == name) else {
            let is_of_pods = name == longarm_managers::kubernetes::SERVICE;
            if !is_of_pods && !LAUNCHER_VARIABLES.iter().any(|(known, _)| *known == name) {
                self.warnings.push(UnknownVariable { name: name.to_owned(), nearest: nearest(name) });
            }
            return Ok(());
        };
        if value.to_str().is_some_and(|value| value.trim().is_empty()) {
            return Ok(());
        }
        self.take_value(index, value, Origin::Environment)
    }

    fn take_value(&mut self, index: usize, value: &OsStr, origin: Origin) -> Result<(), ConfigError> {
        let variable = &VARIABLES[index];
        let taken = value.to_str().and_then(|value| variable.slot.parse(self, value.trim()));
        taken.ok_or_else(|| ConfigError::Refused {
            name: variable.name,
            value: value.to_string_lossy().into_owned(),
            accepted: variable.slot.accepted(),
        })?;
        self.origins[index] = origin;
        Ok(())
    }
}

impl Origin {
    /// Whether somebody has said that it shall be so.
    fn is_by_hand(self) -> bool {
        matches!(self, Origin::Environment | Origin::Program)
    }
}

impl fmt::Display for OnFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            OnFailure::Abort => "abort",
            OnFailure::Continue => "continue",
        })
    }
}

impl fmt::Display for NetworkChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            NetworkChoice::Auto => "auto",
            NetworkChoice::Tcp => "tcp",
            NetworkChoice::Verbs => "verbs",
        })
    }
}

impl fmt::Display for OnDemandChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            OnDemandChoice::Auto => "auto",
            OnDemandChoice::All => "all",
            OnDemandChoice::No => "no",
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Origin::Default => "default",
            Origin::Environment => "environment",
            Origin::Program => "program",
            Origin::Measured => "measured",
        })
    }
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is set but longarm does not know it", self.name)?;
        match self.nearest {
            Some(nearest) => write!(formatter, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}

/// Where copies begin to go around the caches: half of each core's share of the last cache, because source and
/// destination both want room. This is the bound of the large message transfer in MPICH's Nemesis.
fn nontemporal_bytes(caches: &[topology::Cache]) -> Option<u64> {
    let cache = topology::last_cache(caches)?;
    let share_bytes = cache.bytes / (2 * u64::from(cache.cores.max(1)));
    Some(share_bytes.max(NONTEMPORAL_BYTES_MIN))
}

/// The known name closest to `name`, unless even that one differs in more than a third of its letters.
fn nearest(name: &str) -> Option<&'static str> {
    let own = name.strip_prefix(PREFIX)?;
    let known = VARIABLES.iter().map(|variable| variable.name);
    let known = known.chain(LAUNCHER_VARIABLES.iter().map(|(name, _)| *name));
    let distances = known.map(|known| (edit_distance(own, &known[PREFIX.len()..]), known));
    let (distance, known) = distances.min()?;
    (distance * 3 <= known.len() - PREFIX.len()).then_some(known)
}

/// How many letters have to be put in, taken out or changed (Levenshtein).
fn edit_distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, left) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, right) in right.bytes().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::values::MIB;
    use super::*;
    use crate::topology::{Cache, CacheKind};

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_variables(variables.iter().map(|(name, value)| (name.into(), value.into())), &[])
    }

    fn entry(config: &Config, name: &str) -> Entry {
        config.entries().into_iter().find(|entry| entry.name == name).expect("the name is in the table")
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let blank = [("PATH", "/bin"), ("LONGARM_EAGER_BYTES", ""), ("LONGARM_LOG", " "), ("LONGARM_SPIN_US", "\t")];
        let config = read(&blank).unwrap();
        assert_eq!(config, Config::default());
        assert!(config.entries().iter().all(|entry| entry.origin == Origin::Default));
    }

    #[test]
    fn a_value_from_the_environment_is_used_and_marked() {
        let config = read(&[("LONGARM_SEND_RING_BYTES", "3m"), ("LONGARM_INTERFACE", "::1")]).unwrap();
        assert_eq!(config.send_ring_bytes, 3 << 20);
        assert_eq!(config.interface, std::net::IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]).into());
        let entry = entry(&config, "LONGARM_SEND_RING_BYTES");
        assert_eq!((entry.value.as_str(), entry.origin), ("3m", Origin::Environment));
    }

    #[test]
    fn a_switch_takes_words_and_numbers_and_nothing_else() {
        for (value, expected) in [("1", true), ("yes", true), ("0", false), ("no", false)] {
            assert_eq!(read(&[("LONGARM_ENCRYPT", value)]).unwrap().encrypt, expected, "{value}");
        }
        for value in ["2", "true", "YES", "y"] {
            assert!(read(&[("LONGARM_ENCRYPT", value)]).is_err(), "{value}");
        }
    }

    #[test]
    fn every_shown_value_is_accepted_again_and_gives_the_same_configuration() {
        let variables = [
            ("LONGARM_LOG", "trace"),
            ("LONGARM_SPIN_US", "0"),
            ("LONGARM_ON_FAILURE", "continue"),
            ("LONGARM_ENCRYPT", "1"),
        ];
        let config = read(&variables).unwrap();
        let entries = config.entries();
        let variables = entries.iter().map(|entry| (entry.name.into(), entry.value.clone().into()));
        let again = Config::from_variables(variables, &[]).unwrap();
        for (before, after) in entries.iter().zip(again.entries()) {
            assert_eq!(before.value, after.value, "{}", before.name);
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_name_value_and_what_is_accepted() {
        let bad = [
            ("LONGARM_EAGER_BYTES", "1x"),
            ("LONGARM_EAGER_BYTES", "2m"),
            ("LONGARM_EAGER_BYTES", "0"),
            ("LONGARM_EAGER_BYTES", "99999999999t"),
            ("LONGARM_EAGER_BYTES", "-1"),
            ("LONGARM_EAGER_BYTES", "k"),
            ("LONGARM_SPIN_US", "fast"),
            ("LONGARM_INTERFACE", "10.0.0.0/33"),
            ("LONGARM_HALF_OPEN_MAX", "0"),
            ("LONGARM_ON_FAILURE", "ignore"),
            ("LONGARM_ENCRYPT", "maybe"),
        ];
        for (name, value) in bad {
            let text = read(&[(name, value)]).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(value) && text.contains("it takes"), "{text}");
        }
    }

    #[test]
    fn no_more_is_copied_than_fits_twice_into_what_is_kept() {
        let copied = |ring| {
            read(&[("LONGARM_EAGER_BYTES", "48k"), ("LONGARM_SEND_RING_BYTES", ring)]).unwrap().copied_bytes_max()
        };
        assert_eq!((copied("64k"), copied("95k"), copied("1m")), (32 << 10, 95 << 9, 48 << 10));
    }

    #[test]
    fn zero_is_accepted_only_where_it_has_a_meaning() {
        assert_eq!(read(&[("LONGARM_SOCKET_BUFFER_BYTES", "0")]).unwrap().socket_buffer_bytes, 0);
        assert!(read(&[("LONGARM_SEND_RING_BYTES", "0")]).is_err());
    }

    #[test]
    fn a_value_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let variable = ("LONGARM_LOG".into(), OsString::from_vec(vec![0xff]));
        assert!(matches!(Config::from_variables([variable], &[]), Err(ConfigError::Refused { .. })));
    }

    #[test]
    fn an_unknown_variable_is_a_warning_with_the_nearest_name() {
        let config = read(&[("LONGARM_EAGER_BYTE", "1"), ("LONGARM_ZZZZ", "1"), ("LONGARM_RANK", "1")]).unwrap();
        let text: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2);
        assert!(text[0].ends_with("did you mean LONGARM_EAGER_BYTES?"), "{}", text[0]);
        assert!(!text[1].contains("did you mean"), "{}", text[1]);
    }

    #[test]
    fn servers_have_more_threads_where_ranks_leave_processors_unless_set_by_hand() {
        let threads = |variables: &[(&str, &str)], (ranks, nodes), processors| {
            let mut config = read(variables).unwrap();
            config.settle_server_threads(ranks, nodes, processors);
            (config.server_threads, entry(&config, "LONGARM_SERVER_THREADS").origin)
        };
        let cases = [((3, 1), 2), ((2, 1), 2), ((2, 1), 3), ((4, 1), 16), ((8, 8), 16), ((8, 4), 16), ((9, 8), 16)];
        let by_itself = cases.map(|(job, processors)| threads(&[], job, processors).0);
        assert_eq!(by_itself, [1, 1, 2, 4, 2, 3, 1]);
        assert_eq!(threads(&[], (2, 1), 2).1, Origin::Measured);
        assert_eq!(threads(&[("LONGARM_SERVER_THREADS", "3")], (2, 1), 2), (3, Origin::Environment));
    }

    #[test]
    fn ranks_wait_longer_for_others_where_many_share_a_processor_unless_set_by_hand() {
        let limits = |variables: &[(&str, &str)], ranks, processors| {
            let mut config = read(variables).unwrap();
            config.settle_wait_limits(999, 1);
            config.settle_wait_limits(ranks, processors);
            let seconds = [config.connect_timeout_s, config.reconnect_s, config.watchdog_s];
            let origin = entry(&config, "LONGARM_RECONNECT_S").origin;
            (seconds, config.silence_ms, config.handshake_timeout_ms, origin)
        };
        let usual = ([10, 10, 10], 750, 2000, Origin::Default);
        assert_eq!(limits(&[], 64, 2), usual);
        assert_eq!(limits(&[], 512, 16), usual);
        assert_eq!(limits(&[], 32, 0), usual);
        assert_eq!(limits(&[], 65, 2), ([10, 10, 10], 773, 2062, Origin::Measured));
        assert_eq!(limits(&[], 512, 2), ([80, 80, 80], 6000, 16_000, Origin::Measured));
        assert_eq!(limits(&[], 1_000_000, 1), ([3600, 86_400, 86_400], 3_600_000, 600_000, Origin::Measured));
        let by_hand = [("LONGARM_SILENCE_MS", "600"), ("LONGARM_RECONNECT_S", "0"), ("LONGARM_WATCHDOG_S", "7")];
        assert_eq!(limits(&by_hand, 512, 2), ([80, 0, 7], 600, 16_000, Origin::Environment));
        assert!(WAIT_LIMITS.iter().all(|name| VARIABLES.iter().any(|variable| variable.name == *name)));
    }

    #[test]
    fn spinning_ends_where_ranks_share_processors_unless_set_by_hand() {
        let mut config = read(&[]).unwrap();
        config.settle_spin(3, 2);
        assert_eq!((config.spin_us, entry(&config, "LONGARM_SPIN_US").origin), (0, Origin::Measured));
        config.settle_spin(2, 2);
        assert_eq!(config.spin_us, SPIN_US);
        let mut config = read(&[("LONGARM_SPIN_US", "7")]).unwrap();
        config.settle_spin(3, 2);
        assert_eq!((config.spin_us, entry(&config, "LONGARM_SPIN_US").origin), (7, Origin::Environment));
    }

    #[test]
    fn the_bound_for_non_temporal_copies_follows_from_the_last_cache() {
        let cache = Cache {
            level: 3,
            kind: CacheKind::Unified,
            bytes: 32 * MIB,
            line_bytes: None,
            processors: vec![],
            cores: 8,
        };
        let config = Config::from_variables([], &[cache]).unwrap();
        assert_eq!(config.nontemporal_bytes, 2 * MIB);
        assert_eq!(entry(&config, "LONGARM_NONTEMPORAL_BYTES").origin, Origin::Measured);
    }

    #[test]
    fn every_name_is_listed_once_with_prefix_and_meaning() {
        let entries = Config::default().entries();
        for (index, entry) in entries.iter().enumerate() {
            assert!(entry.name.starts_with(PREFIX) && !entry.meaning.is_empty());
            assert!(!entries[..index].iter().any(|earlier| earlier.name == entry.name));
        }
    }

    #[test]
    fn the_distance_between_words_counts_single_letters() {
        assert_eq!(edit_distance("SPIN", "SPIN"), 0);
        assert_eq!(edit_distance("SPN", "SPIN"), 1);
        assert_eq!(edit_distance("", "ABC"), 3);
        assert_eq!(edit_distance("KITTEN", "SITTING"), 3);
    }
}
