//! The rules about Rust files. Each takes a file and says where it is broken.

use std::fmt;

use crate::source::{Source, block_bytes};

/// Lines that a file may have without its tests.
const LINES_MAX: usize = 600;

/// Lines that a function may have, from its name to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// What is asked of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Standard atomics outside the one place where the model checker's take their place.
    Atomics,
    /// A clock or the environment read below the runtime.
    Clock,
    /// Unsafe code where none is allowed.
    Unsafe,
    /// A crate that does not forbid unsafe code.
    Forbid,
    /// A file too long to be read in one sitting.
    Length,
    /// A function that does not fit a screen.
    Functions,
    /// A crate that imports one above it, or beside it.
    Imports,
    /// A crate that is published and misses something for it.
    Packages,
    /// Files of a crate that import each other in a cycle.
    Cycles,
    /// A public item that no example shows.
    Examples,
    /// A collective call without a twin that is awaited.
    Twins,
    /// Something left unfinished.
    Unfinished,
    /// A test that is skipped, or that sleeps.
    Tests,
    /// A word that does not belong into this tree.
    Words,
    /// A page of the docs that names something that does not exist.
    Docs,
    /// An exception that nothing needs.
    Allowance,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Rule::Atomics => "atomics",
            Rule::Clock => "clock",
            Rule::Unsafe => "unsafe",
            Rule::Forbid => "forbid",
            Rule::Length => "length",
            Rule::Functions => "functions",
            Rule::Imports => "imports",
            Rule::Packages => "packages",
            Rule::Cycles => "cycles",
            Rule::Examples => "examples",
            Rule::Twins => "twins",
            Rule::Unfinished => "unfinished",
            Rule::Tests => "tests",
            Rule::Words => "words",
            Rule::Docs => "docs",
            Rule::Allowance => "allowance",
        })
    }
}

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// Which file, from the root.
    pub path: String,
    /// Which line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { rule, path, line, what } = self;
        if *line == 0 {
            return write!(formatter, "{path}: {what} [{rule}]");
        }
        write!(formatter, "{path}:{line}: {what} [{rule}]")
    }
}

/// Which places of a file a word is looked for in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Everywhere,
    OutsideTests,
    InTests,
}

/// What is found wherever one of some words stands in the code.
struct WordRule {
    rule: Rule,
    place: Where,
    words: &'static [&'static str],
    what: &'static str,
}

const WORD_RULES: [WordRule; 6] = [
    WordRule {
        rule: Rule::Atomics,
        place: Where::OutsideTests,
        words: &["sync::atomic", "atomic::{", "atomic::Atomic*", "atomic::Ordering", "atomic::fence"],
        what: "names the standard library's atomics; use those of longarm_shm::sync",
    },
    WordRule {
        rule: Rule::Clock,
        place: Where::OutsideTests,
        words: &["Instant", "SystemTime", "clock_gettime", "env::var", "env::vars", "env::var_os", "env::vars_os"],
        what: "reads a clock or the environment; take the time as an argument and configuration as a value",
    },
    WordRule {
        rule: Rule::Unsafe,
        place: Where::Everywhere,
        words: &["unsafe"],
        what: "unsafe code where none is allowed",
    },
    WordRule {
        rule: Rule::Unfinished,
        place: Where::Everywhere,
        words: &["todo!", "unimplemented!", "dbg!"],
        what: "is left unfinished",
    },
    WordRule { rule: Rule::Tests, place: Where::Everywhere, words: &["#[ignore"], what: "a test that is skipped" },
    WordRule {
        rule: Rule::Tests,
        place: Where::InTests,
        words: &["thread::sleep", "time::sleep", "nanosleep"],
        what: "a test that sleeps; wait for an event",
    },
];

/// All rules about one Rust file, exceptions not counted.
pub fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in &WORD_RULES {
        let places = rule.words.iter().flat_map(|word| source.find(word));
        let mut lines: Vec<usize> = places
            .filter(|at| match rule.place {
                Where::Everywhere => true,
                Where::OutsideTests => !source.is_test(*at),
                Where::InTests => source.is_test(*at),
            })
            .map(|at| source.line_of(at))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        findings.extend(lines.into_iter().map(|line| Finding {
            rule: rule.rule,
            path: source.path.clone(),
            line,
            what: rule.what.to_owned(),
        }));
    }
    let lines = source.line_count();
    if lines > LINES_MAX {
        let what = format!("has {lines} lines without tests, more than {LINES_MAX}");
        findings.push(Finding { rule: Rule::Length, path: source.path.clone(), line: 0, what });
    }
    findings.extend(long_functions(source));
    findings
}

fn long_functions(source: &Source) -> impl Iterator<Item = Finding> {
    let names = source.find("fn *").into_iter().filter(|at| !source.is_test(*at));
    names.filter_map(|at| {
        let rest = &source.code[at..];
        // One without a body, and the type of a function, have no brace before they end.
        let open = rest.find('{').filter(|open| !rest[..*open].contains(';'))?;
        let lines = rest[..open + block_bytes(&rest[open..])].lines().count();
        let what = format!("a function of {lines} lines, more than {FUNCTION_LINES_MAX}");
        let finding = Finding { rule: Rule::Functions, path: source.path.clone(), line: source.line_of(at), what };
        (lines > FUNCTION_LINES_MAX).then_some(finding)
    })
}

/// Crates whose root does not forbid unsafe code, and the attribute that they have instead.
const NOT_FORBIDDING: [(&str, Option<&str>); 10] = [
    ("memory/src/lib.rs", None),
    ("shm/src/lib.rs", None),
    ("shims/armci/src/lib.rs", None),
    ("shims/mpi/src/lib.rs", None),
    ("shims/shmem/src/lib.rs", None),
    // One module of each allows it again.
    ("managers/src/lib.rs", Some("#![deny(unsafe_code)]")),
    ("client/src/lib.rs", Some("#![deny(unsafe_code)]")),
    ("netmod/registration/src/lib.rs", Some("#![deny(unsafe_code)]")),
    ("netmod/verbs/src/lib.rs", Some("#![deny(unsafe_code)]")),
    ("tools/launch/src/main.rs", Some("#![deny(unsafe_code)]")),
];

/// Whether the root of a crate forbids unsafe code.
pub fn check_root(source: &Source) -> Option<Finding> {
    let instead = NOT_FORBIDDING.iter().find(|(path, _)| *path == source.path).map(|(_, attribute)| *attribute);
    let attribute = instead.unwrap_or(Some("#![forbid(unsafe_code)]"))?;
    if source.code.contains(attribute) {
        return None;
    }
    let what = format!("the root of a crate without {attribute}");
    Some(Finding { rule: Rule::Forbid, path: source.path.clone(), line: 0, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<(Rule, usize)> {
        let findings = check_source(&Source::new(path, text));
        findings.into_iter().map(|finding| (finding.rule, finding.line)).collect()
    }

    #[test]
    fn standard_atomics_are_found_however_they_are_imported() {
        for import in [
            "use std::sync::atomic::AtomicU32;",
            "use core::sync::atomic::{AtomicU32, Ordering};",
            "use std::sync::{Arc, atomic::AtomicU32};",
            "use std::{sync::{atomic::{AtomicU32}}};",
            "static A: std::sync::atomic::AtomicU32 = B;",
        ] {
            assert_eq!(broken("client/src/a.rs", import), [(Rule::Atomics, 1)], "{import}");
        }
        assert_eq!(broken("client/src/a.rs", "use longarm_shm::sync::AtomicU32; atomic::rmw(a)"), []);
    }

    #[test]
    fn clocks_and_the_environment_are_found_outside_tests_only() {
        assert_eq!(broken("netmod/src/a.rs", "\nlet a = Instant::now();"), [(Rule::Clock, 2)]);
        assert_eq!(broken("netmod/src/a.rs", "use std::time::{Duration, SystemTime};"), [(Rule::Clock, 1)]);
        assert_eq!(broken("netmod/src/a.rs", "std::env::var(NAME)"), [(Rule::Clock, 1)]);
        assert_eq!(broken("netmod/src/a.rs", "env!(NAME); Instantly"), []);
        assert_eq!(broken("netmod/tests/a.rs", "Instant::now()"), []);
    }

    #[test]
    fn unsafe_code_is_found_in_tests_too() {
        assert_eq!(broken("proto/src/a.rs", "fn a() { unsafe { b() } }"), [(Rule::Unsafe, 1)]);
        assert_eq!(broken("proto/tests/a.rs", "unsafe impl Send for A {}"), [(Rule::Unsafe, 1)]);
        assert_eq!(broken("proto/src/a.rs", "#![forbid(unsafe_code)]"), []);
    }

    #[test]
    fn unfinished_code_and_skipped_or_sleeping_tests_are_found() {
        assert_eq!(broken("a/src/a.rs", "fn a() { todo!() }"), [(Rule::Unfinished, 1)]);
        assert_eq!(broken("a/src/a.rs", "fn a() { unimplemented!(\"b\") }"), [(Rule::Unfinished, 1)]);
        assert_eq!(broken("a/tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}"), [(Rule::Tests, 2)]);
        assert_eq!(broken("a/tests/a.rs", "std::thread::sleep(MOMENT)"), [(Rule::Tests, 1)]);
        assert_eq!(broken("a/src/a.rs", "#[cfg(test)]\nmod tests {\n thread::sleep(A)\n}"), [(Rule::Tests, 3)]);
        assert_eq!(broken("a/src/a.rs", "std::thread::sleep(MOMENT)"), []);
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let long = "fn a() {}\n".repeat(LINES_MAX);
        assert_eq!(broken("a/src/a.rs", &long), []);
        assert_eq!(broken("a/src/a.rs", &format!("{long}fn b() {{}}\n")), [(Rule::Length, 0)]);
        assert_eq!(broken("a/src/a.rs", &format!("{long}#[cfg(test)]\nmod tests {{\n{long}}}\n")), []);
        assert_eq!(broken("a/tests/a.rs", &long.repeat(2)), []);
    }

    #[test]
    fn long_functions_are_found_and_tests_do_not_count() {
        let of = |lines: usize| {
            format!("    fn a(\n        b: fn(u8) -> u8,\n    ) {{\n{}    }}\n", "        b();\n".repeat(lines - 4))
        };
        let long = of(FUNCTION_LINES_MAX + 1);
        assert_eq!(broken("a/src/a.rs", &of(FUNCTION_LINES_MAX)), []);
        assert_eq!(broken("a/src/a.rs", &format!("trait A {{\n    fn b(&self);\n{long}}}\n")), [(Rule::Functions, 3)]);
        assert_eq!(broken("a/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")), []);
        assert_eq!(broken("a/tests/a.rs", &long), []);
    }

    #[test]
    fn a_crate_that_forgets_to_forbid_unsafe_code_is_found() {
        let rule = |path: &str, text: &str| check_root(&Source::new(path, text)).map(|finding| finding.rule);
        assert_eq!(rule("proto/src/lib.rs", "//! #![forbid(unsafe_code)]\n"), Some(Rule::Forbid));
        assert_eq!(rule("proto/src/lib.rs", "#![forbid(unsafe_code)]\n"), None);
        assert_eq!(rule("client/src/lib.rs", "mod a;"), Some(Rule::Forbid));
        assert_eq!(rule("client/src/lib.rs", "#![deny(unsafe_code)]"), None);
        assert_eq!(rule("shm/src/lib.rs", "mod a;"), None);
    }
}
