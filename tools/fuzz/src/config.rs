//! Environment variables of any name and value: whatever is accepted can be shown, and what is shown is accepted again.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use longarm::config::{Config, ConfigError, Entry, LAUNCHER_VARIABLES, Origin, PREFIX};

use crate::choices::{Choices, Script};

/// Variables of one input, at most.
const VARIABLES_MAX: usize = 24;

/// Takes the bytes for variables.
pub fn config(data: &[u8]) {
    let mut choices = Choices::new(data);
    let known: Vec<&'static str> = Config::default().entries().iter().map(|entry| entry.name).collect();
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    while !choices.is_over() && variables.len() < VARIABLES_MAX {
        let name = match choices.byte() {
            number if usize::from(number) < known.len() => known[usize::from(number)].into(),
            0x80..=0xbf => OsString::from_vec([PREFIX.as_bytes(), choices.bytes()].concat()),
            0xc0..=0xff => OsString::from_vec(choices.bytes().to_vec()),
            number => LAUNCHER_VARIABLES[usize::from(number) % LAUNCHER_VARIABLES.len()].0.into(),
        };
        variables.push((name, OsString::from_vec(choices.bytes().to_vec())));
    }
    match Config::from_variables(variables.iter().cloned(), &[]) {
        Ok(config) => check_accepted(&config),
        Err(error) => {
            let ConfigError::Refused { name, accepted, .. } = &error else { panic!("{error}") };
            assert!(known.contains(name) && variables.iter().any(|(set, _)| set == name), "{name} was not set");
            assert!(!accepted.is_empty() && error.to_string().contains(accepted.as_str()));
        }
    }
}

fn check_accepted(config: &Config) {
    let entries = config.entries();
    let shown = |entry: &Entry| (OsString::from(entry.name), OsString::from(&entry.value));
    let again = Config::from_variables(entries.iter().map(shown), &[]).expect("what is shown is accepted");
    for (before, after) in entries.iter().zip(again.entries()) {
        assert_eq!((before.name, &before.value), (after.name, &after.value));
        assert_eq!(before.origin == Origin::Environment, config.is_set(before.name));
    }
    assert!(again.warnings().is_empty(), "known names are no reason to warn");
    for warning in config.warnings() {
        assert!(!entries.iter().any(|entry| entry.name == warning.name), "{warning}");
    }
}

/// Values that are accepted, and some that are not.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let set = |script: Script, number: u8, value: &str| script.byte(number).bytes(value.as_bytes());
    let one = |number: u8, value: &str| set(Script::default(), number, value).written();
    let shown = Config::default().entries();
    let all = (0..).zip(&shown).fold(Script::default(), |script, (number, entry)| set(script, number, &entry.value));
    let unknown =
        Script::default().byte(0x80).bytes(b"EAGER_BYTE").bytes(b"1").byte(0xc0).bytes(b"PATH").bytes(b"/bin");
    vec![
        ("defaults", all.written()),
        ("an_address", one(0, "fe80::1")),
        ("no_address", one(0, "localhost")),
        ("a_size_with_suffix", one(3, " 3M ")),
        ("a_size_too_large", one(3, "99999999999t")),
        ("zero", one(1, "0")),
        ("a_number_below_zero", one(4, "-1")),
        ("nothing", one(2, "")),
        ("a_filter", one(12, "longarm_server=trace")),
        ("unknown_names", unknown.written()),
        ("of_the_launcher", one(0x20, "3")),
    ]
}
