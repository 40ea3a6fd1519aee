//! The rule about crates: imports point down.

use crate::rules::{Finding, Rule};

/// Which crates of this tree each one may import. Those of one row never meet: who is above joins them.
const MAY_IMPORT: [(&str, &[&str]); 22] = [
    ("longarm-memory", &[]),
    ("longarm-proto", &[]),
    ("longarm-control", &[]),
    // Of memory it takes nothing but how an inherited descriptor is taken over.
    ("longarm-managers", &["longarm-memory"]),
    ("longarm-shm", &["longarm-memory", "longarm-proto"]),
    ("longarm-netmod", &["longarm-memory", "longarm-proto"]),
    // It knows addresses and nothing of networks.
    ("longarm-registration", &[]),
    ("longarm-verbs", &["longarm-memory", "longarm-proto", "longarm-netmod", "longarm-registration"]),
    ("longarm-server", &["longarm-memory", "longarm-proto", "longarm-shm", "longarm-netmod"]),
    ("longarm-client", &["longarm-memory", "longarm-proto", "longarm-shm", "longarm-netmod"]),
    (
        "longarm",
        &[
            "longarm-memory",
            "longarm-proto",
            "longarm-control",
            "longarm-managers",
            "longarm-shm",
            "longarm-netmod",
            "longarm-verbs",
            "longarm-server",
            "longarm-client",
        ],
    ),
    // Above the runtime nobody looks below it.
    ("longarm-launch", &["longarm", "longarm-control", "longarm-managers"]),
    // The instructions of the codec alone are counted, which nothing above shows.
    ("longarm-benches", &["longarm", "longarm-proto"]),
    ("longarm-mpi", &["longarm"]),
    ("longarm-armci", &["longarm", "longarm-mpi"]),
    ("longarm-shmem", &["longarm", "longarm-mpi"]),
    ("longarm-both", &["longarm", "longarm-armci", "longarm-shmem"]),
    // Its programs are those of readers.
    ("longarm-pages", &["longarm", "longarm-sim"]),
    ("longarm-check", &[]),
    ("longarm-suite", &[]),
    // Whole jobs on a network of its own, with all that really runs as it is: the parts by themselves, and the runtime on them.
    (
        "longarm-sim",
        &[
            "longarm-memory",
            "longarm-proto",
            "longarm-shm",
            "longarm-control",
            "longarm-netmod",
            "longarm-server",
            "longarm-client",
            "longarm",
        ],
    ),
    // It feeds each part by itself, at the place where bytes of others come in.
    (
        "longarm-fuzz",
        &[
            "longarm-memory",
            "longarm-proto",
            "longarm-control",
            "longarm-managers",
            "longarm-shm",
            "longarm-netmod",
            "longarm-server",
            "longarm-client",
            "longarm",
        ],
    ),
];

/// What the tests alone of a crate may import besides.
const TESTS_MAY_IMPORT: [(&str, &[&str]); 1] = [
    // They play strangers, who speak the protocol badly.
    ("longarm-launch", &["longarm-proto"]),
];

/// Looks through a `Cargo.toml`. Files without a package, and packages outside the workspace, are passed over.
pub fn check_manifest(path: &str, text: &str) -> Vec<Finding> {
    let Some(package) = package_name(text) else { return Vec::new() };
    let finding = |line: usize, what: String| Finding { rule: Rule::Imports, path: path.to_owned(), line, what };
    if text.lines().any(|line| line.trim() == "[workspace]") {
        return Vec::new();
    }
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == package) else {
        return vec![finding(0, format!("nothing is said about what {package} may import"))];
    };
    let in_tests = TESTS_MAY_IMPORT.iter().find(|(name, _)| *name == package).map_or([].as_slice(), |(_, more)| more);
    let bad = imports(text).into_iter().filter(|import| {
        let name = import.name.as_str();
        !allowed.contains(&name) && name != package && !(import.is_of_tests && in_tests.contains(&name))
    });
    bad.map(|import| finding(import.line, format!("{package} must not import {}", import.name))).collect()
}

fn package_name(text: &str) -> Option<String> {
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[package]"
            && let Some(("name", value)) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
        {
            return Some(value.trim_matches('"').to_owned());
        }
    }
    None
}

/// A dependency on a crate of this tree.
struct Import {
    line: usize,
    name: String,
    is_of_tests: bool,
}

fn imports(text: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let (mut is_dependencies, mut is_of_tests) = (false, false);
    for (line, content) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        let name = if let Some(section) = content.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_of_tests = section.contains("dev-dependencies");
            is_dependencies = section.ends_with("dependencies");
            section.rsplit_once('.').filter(|(table, _)| table.ends_with("dependencies")).map(|(_, name)| name)
        } else {
            is_dependencies.then(|| content.split(['=', '.', ' ']).next().unwrap_or_default())
        };
        if let Some(name) = name.filter(|name| *name == "longarm" || name.starts_with("longarm-")) {
            found.push(Import { line, name: name.to_owned(), is_of_tests });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(package: &str, rest: &str) -> Vec<Finding> {
        check_manifest("a/Cargo.toml", &format!("[package]\nname = \"{package}\"\n\n{rest}"))
    }

    #[test]
    fn an_import_that_points_up_or_sideways_is_found() {
        for (package, import) in [
            ("longarm-proto", "longarm-shm.workspace = true"),
            ("longarm-client", "longarm-server = { path = \"../server\" }"),
            ("longarm-shm", "longarm-netmod.workspace = true"),
            ("longarm-launch", "longarm-client.workspace = true"),
        ] {
            let findings = manifest(package, &format!("[dependencies]\nlibc = \"1\"\n{import}\n"));
            assert_eq!(findings.len(), 1, "{package}: {import}");
            assert_eq!(findings[0].line, 6);
        }
    }

    #[test]
    fn imports_of_tests_and_of_targets_count_and_tables_are_read() {
        for section in ["[dev-dependencies]", "[target.'cfg(loom)'.dependencies]", "[build-dependencies]"] {
            let findings = manifest("longarm-proto", &format!("{section}\nlongarm.workspace = true\n"));
            assert_eq!(findings.len(), 1, "{section}");
        }
        assert_eq!(manifest("longarm-proto", "[dependencies.longarm-client]\npath = \"b\"\n").len(), 1);
    }

    #[test]
    fn imports_that_point_down_are_fine_any_number_of_steps() {
        let down = "[dependencies]\nlongarm-memory.workspace = true\nlongarm-proto.workspace = true\n";
        assert_eq!(manifest("longarm-client", down), []);
        assert_eq!(manifest("longarm-launch", "[dependencies]\nlongarm.workspace = true\n"), []);
    }

    #[test]
    fn what_tests_may_import_the_crate_itself_may_not() {
        assert_eq!(manifest("longarm-launch", "[dev-dependencies]\nlongarm-proto.workspace = true\n"), []);
        assert_eq!(manifest("longarm-launch", "[dependencies]\nlongarm-proto.workspace = true\n").len(), 1);
    }

    #[test]
    fn a_crate_that_nobody_has_thought_about_is_found() {
        assert_eq!(manifest("longarm-new", "").len(), 1);
        assert_eq!(check_manifest("Cargo.toml", "[workspace]\nmembers = []\n"), []);
    }
}
