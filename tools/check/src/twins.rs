//! Collective calls of the public interface have twins that are awaited: `NAME_collective` has `start_NAME_collective`. `NAME_into_collective`
//! needs no twin of its own if `NAME_collective` has one: a started call cannot borrow the caller's memory.

use std::collections::BTreeMap;

use crate::rules::{Finding, Rule};
use crate::source::Source;

/// Where the calls are. What the C interfaces take from there stands below `ffi`, and needs none.
const INTERFACE: &str = "runtime/src/";
const FOR_C: &str = "runtime/src/ffi";

/// Where a collective is said that has no twin. Several types have calls of the same name: then each has one.
pub fn check_twins(sources: &[Source]) -> Vec<Finding> {
    let of_interface = |source: &&Source| source.path.starts_with(INTERFACE) && !source.path.starts_with(FOR_C);
    let mut blocking: BTreeMap<&str, Vec<Finding>> = BTreeMap::new();
    let mut started: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(of_interface) {
        for at in source.find("pub fn *").into_iter().filter(|at| !source.is_test(*at)) {
            let name = source.code[at + "pub fn ".len()..].split(|letter: char| !is_of_name(letter)).next();
            let Some(name) = name.filter(|name| name.ends_with("_collective")) else { continue };
            if let Some(twin_of) = name.strip_prefix("start_") {
                *started.entry(twin_of).or_default() += 1;
                continue;
            }
            let what = format!("{name} has no twin start_{name} that is awaited");
            let finding = Finding { rule: Rule::Twins, path: source.path.clone(), line: source.line_of(at), what };
            blocking.entry(name).or_default().push(finding);
        }
    }
    let has_twins = |name: &str, count: usize| {
        let into = name.strip_suffix("_into_collective").map(|name| format!("{name}_collective"));
        started.get(into.as_deref().unwrap_or(name)).is_some_and(|twins| *twins >= count)
    };
    let lacking = blocking.into_iter().filter(|(name, all)| !has_twins(name, all.len()));
    lacking.flat_map(|(_, all)| all).collect()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        check_twins(&sources).into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn a_collective_without_a_twin_is_found_wherever_the_twins_stand() {
        let calls = "pub fn sum_collective<T>(&self) {}\npub fn free_collective(&self) {}\n";
        let file = |line| ("runtime/src/a.rs".to_owned(), line);
        assert_eq!(lacking(&[("runtime/src/a.rs", calls)]), [file(2), file(1)]);
        let twin = ("runtime/src/b/c.rs", "pub fn start_sum_collective(&self) {}");
        assert_eq!(lacking(&[("runtime/src/a.rs", calls), twin]), [file(2)]);
        let both = ("runtime/src/b.rs", "pub fn start_sum_collective() {}\npub fn start_free_collective() {}");
        assert!(lacking(&[("runtime/src/a.rs", calls), both]).is_empty());
        assert_eq!(lacking(&[("runtime/src/a.rs", calls), both, ("runtime/src/d.rs", calls)]).len(), 4, "one of two");
    }

    #[test]
    fn what_goes_into_memory_that_is_there_has_the_other_forms_twin() {
        let into = ("runtime/src/a.rs", "pub fn sum_into_collective() {}");
        assert_eq!(lacking(&[into]).len(), 1);
        assert!(lacking(&[into, ("runtime/src/b.rs", "pub fn start_sum_collective() {}")]).is_empty());
    }

    #[test]
    fn what_is_not_public_or_for_c_needs_none() {
        assert!(lacking(&[("runtime/src/a.rs", "pub(crate) fn a_collective() {}\nfn b_collective() {}")]).is_empty());
        assert!(lacking(&[("runtime/src/ffi.rs", "pub fn a_collective() {}")]).is_empty());
        assert!(lacking(&[("shims/armci/src/a.rs", "pub fn a_collective() {}")]).is_empty());
    }
}
