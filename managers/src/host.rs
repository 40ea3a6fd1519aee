//! A host of a job, as people and batch systems write it, and how much of them is taken.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Hosts of one list, at most: more than any machine has, and few enough to hold.
pub const HOSTS_MAX: usize = 1 << 17;
/// Bytes of a host's name, at most: those of a name of DNS and a user before it.
pub const NAME_BYTES_MAX: usize = 320;
/// Slots of one host, at most.
pub const SLOTS_MAX: u32 = 1 << 16;

/// A host of a job, and for how many ranks it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address, with a user before it (`user@host`) where one was given.
    pub name: String,
    /// Ranks that are meant to run there; `None` where nothing was said.
    pub slots: Option<u32>,
}

impl Host {
    /// A host and its slots.
    ///
    /// ```
    /// use longarm_managers::Host;
    /// assert_eq!(Host::new("a", 4), Host { name: "a".to_owned(), slots: Some(4) });
    /// ```
    pub fn new(name: impl Into<String>, slots: u32) -> Host {
        Host { name: name.into(), slots: Some(slots) }
    }
}

/// The list has more than [`HOSTS_MAX`] hosts, or a host more than [`SLOTS_MAX`] slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Hosts in the order in which they were first named. One that is named again has the slots of both.
#[derive(Default)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    places: HashMap<String, usize>,
}

impl Hosts {
    pub(crate) fn add(&mut self, name: &str, slots: Option<u32>) -> Result<(), TooMany> {
        if slots.is_some_and(|slots| slots > SLOTS_MAX) {
            return Err(TooMany);
        }
        match self.places.entry(name.to_owned()) {
            Entry::Occupied(place) => {
                let host = &mut self.hosts[*place.get()];
                // Named twice without a number is one slot each time.
                let both = host.slots.unwrap_or(1) + slots.unwrap_or(1);
                host.slots = Some(both).filter(|both| *both <= SLOTS_MAX);
                host.slots.map(|_| ()).ok_or(TooMany)
            }
            Entry::Vacant(place) => {
                if self.hosts.len() == HOSTS_MAX {
                    return Err(TooMany);
                }
                place.insert(self.hosts.len());
                self.hosts.push(Host { name: name.to_owned(), slots });
                Ok(())
            }
        }
    }

    pub(crate) fn into_list(self) -> Vec<Host> {
        self.hosts
    }
}

/// Whether a host can have this name: what names of DNS, addresses and users are made of, and nothing that a shell or an option
/// parser would take for something else.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || b"-._:@%+".contains(&letter);
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(fits)
        && !name.starts_with(['-', '+', '.', '@'])
        && !name.contains("@-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_named_again_has_the_slots_of_both_and_keeps_its_place() {
        let mut hosts = Hosts::default();
        for (name, slots) in [("b", None), ("a", Some(3)), ("b", None), ("a", Some(2)), ("c", None)] {
            hosts.add(name, slots).unwrap();
        }
        let c = Host { name: "c".to_owned(), slots: None };
        assert_eq!(hosts.into_list(), [Host::new("b", 2), Host::new("a", 5), c]);
    }

    #[test]
    fn slots_have_a_bound_however_they_add_up() {
        let mut hosts = Hosts::default();
        assert_eq!(hosts.add("a", Some(u32::MAX)), Err(TooMany));
        assert_eq!(hosts.add("a", Some(SLOTS_MAX)), Ok(()));
        assert_eq!(hosts.add("a", None), Err(TooMany));
    }

    #[test]
    fn a_name_that_ssh_would_take_for_an_option_is_none() {
        for name in ["-oProxyCommand=x", "user@-x", "a b", "a;b", "$a", "", "a/b", "ä", ".a", &"a".repeat(400)] {
            assert!(!is_name(name), "{name}");
        }
        for name in ["a", "n-01.site.org", "user@a", "10.0.0.1", "fd00::1", "fe80::1%eth0", "first.last@a_b"] {
            assert!(is_name(name), "{name}");
        }
    }
}
