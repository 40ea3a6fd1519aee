//! The rule about crates that are published: each says what people look for, ships its licences and its page, has the pages of its
//! interface built with all features, needs nothing that is not published, and reads no file outside its folder, because the package
//! holds that folder alone.

use crate::pages::{Tree, resolve};
use crate::rules::{Finding, Rule};
use crate::source::Source;

/// What the section `package` of a published crate says, itself or by the workspace.
const KEYS: [&str; 10] = [
    "description",
    "version",
    "edition",
    "rust-version",
    "license",
    "repository",
    "documentation",
    "readme",
    "keywords",
    "categories",
];

/// What lies beside its `Cargo.toml`.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// What names a file in Rust code.
const NAMING: [&str; 3] = ["include_str!(\"", "include_bytes!(\"", "#[path = \""];

/// A crate of the workspace.
#[derive(Debug)]
pub struct Package<'a> {
    folder: &'a str,
    name: &'a str,
    text: &'a str,
    is_published: bool,
    has_tests: bool,
}

/// All crates of the workspace.
pub fn packages(files: &[(String, String)]) -> Vec<Package<'_>> {
    let manifests = files.iter().filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, text.as_str())));
    let own = manifests.filter(|(_, text)| !text.lines().any(|line| line.trim() == "[workspace]"));
    own.filter_map(|(folder, text)| {
        let value = |key| section(text, "[package]").find_map(|(_, found, value)| (found == key).then_some(value));
        let name = value("name")?.trim_matches('"');
        let is_published = value("publish") != Some("false");
        let has_tests = value("exclude").is_none_or(|excluded| !excluded.contains("\"/tests/\""));
        Some(Package { folder, name, text, is_published, has_tests })
    })
    .collect()
}

/// Looks through the manifests of all crates that are published.
pub fn check_packages(tree: &impl Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    packages.iter().filter(|package| package.is_published).flat_map(|package| faults(tree, packages, package)).collect()
}

fn faults(tree: &impl Tree, packages: &[Package<'_>], package: &Package<'_>) -> Vec<Finding> {
    let path = format!("{}/Cargo.toml", package.folder);
    let finding = |line, what| Finding { rule: Rule::Packages, path: path.clone(), line, what };
    let says =
        |key: &str| section(package.text, "[package]").any(|(_, found, _)| found.trim_end_matches(".workspace") == key);
    let missing = KEYS.iter().filter(|key| !says(key));
    let mut findings: Vec<Finding> = missing
        .map(|key| finding(0, format!("a crate that is published says its {key}, or publish = false")))
        .collect();
    let absent = FILES.iter().filter(|file| !tree.exists(&format!("{}/{file}", package.folder)));
    findings.extend(absent.map(|file| finding(0, format!("a crate that is published has a {file} beside this file"))));
    if hides_features(package.text) {
        let what = "a crate that is published and has features has `all-features = true` in [package.metadata.docs.rs]";
        findings.push(finding(0, what.to_owned()));
    }
    for (number, line) in (1..).zip(package.text.lines()) {
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let needed = packages.iter().find(|other| other.name == name && !other.is_published);
        findings.extend(needed.map(|other| finding(number, format!("needs {}, which is not published", other.name))));
    }
    findings
}

/// Whether the published pages would lack what is only there with a feature.
fn hides_features(text: &str) -> bool {
    let shows_all =
        section(text, "[package.metadata.docs.rs]").any(|(_, key, value)| (key, value) == ("all-features", "true"));
    section(text, "[features]").next().is_some() && !shows_all
}

/// Where a file of a published crate names one outside of the crate's folder.
pub fn check_files_named(source: &Source, packages: &[Package<'_>]) -> Vec<Finding> {
    let holds =
        |package: &&Package<'_>| source.path.strip_prefix(package.folder).is_some_and(|rest| rest.starts_with('/'));
    let owner = packages.iter().filter(holds).max_by_key(|package| package.folder.len());
    let Some(owner) = owner.filter(|owner| owner.is_published) else { return Vec::new() };
    let tests = format!("{}/tests/", owner.folder);
    if !owner.has_tests && source.path.starts_with(&tests) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for opening in NAMING {
        for (at, _) in source.text.match_indices(opening) {
            // In a comment or a text it is blanked out.
            let is_code = source.code[at..].starts_with(&opening[..opening.len() - 1]);
            let named = source.text[at + opening.len()..].split('"').next().unwrap_or_default();
            let named = resolve(&source.path, named);
            if is_code && !named.starts_with(&format!("{}/", owner.folder)) {
                let what = format!("names {named}, which the package {} does not hold", owner.name);
                findings.push(Finding {
                    rule: Rule::Packages,
                    path: source.path.clone(),
                    line: source.line_of(at),
                    what,
                });
            }
        }
    }
    findings
}

/// The lines `key = value` of a section, with their numbers.
fn section<'a>(text: &'a str, name: &str) -> impl Iterator<Item = (usize, &'a str, &'a str)> {
    let mut is_inside = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        if line.starts_with('[') {
            is_inside = line.trim() == name;
        }
        let (key, value) = line.split_once('=').filter(|_| is_inside)?;
        Some((number, key.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small(&'static [&'static str]);

    impl Tree for Small {
        fn exists(&self, path: &str) -> bool {
            self.0.contains(&path)
        }

        fn has_top_folder(&self, _: &str) -> bool {
            false
        }
    }

    const ALL: &str = "[package]\nname = \"longarm-a\"\ndescription = \"A.\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\nrepository.workspace = true\ndocumentation = \"d\"\n\
        readme = \"README.md\"\nkeywords.workspace = true\ncategories.workspace = true\n";

    fn files(a: &str, b: &str) -> Vec<(String, String)> {
        [("a/Cargo.toml", a), ("a/b/Cargo.toml", b)].map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec()
    }

    fn private() -> String {
        "[package]\nname = \"longarm-b\"\npublish = false\n".to_owned()
    }

    fn whats(files: &[(String, String)], there: &'static [&'static str]) -> Vec<String> {
        check_packages(&Small(there), &packages(files)).into_iter().map(|finding| finding.what).collect()
    }

    const THERE: &[&str] = &["a/README.md", "a/LICENSE-MIT", "a/LICENSE-APACHE"];

    #[test]
    fn a_published_crate_that_says_everything_is_fine_and_each_key_that_is_missing_is_found() {
        assert_eq!(whats(&files(ALL, &private()), THERE), [""; 0]);
        for key in KEYS {
            let less: String =
                ALL.lines().filter(|line| !line.starts_with(key)).fold(String::new(), |all, line| all + line + "\n");
            let found = whats(&files(&less, &private()), THERE);
            assert_eq!(found, [format!("a crate that is published says its {key}, or publish = false")]);
        }
    }

    #[test]
    fn keys_of_other_sections_do_not_count() {
        let moved = format!("{}\n[lib]\nreadme = \"README.md\"\n", ALL.replace("readme = \"README.md\"\n", ""));
        assert_eq!(whats(&files(&moved, &private()), THERE).len(), 1);
    }

    #[test]
    fn features_are_in_the_published_pages() {
        let features = format!("{ALL}[features]\nextra = []\n");
        assert_eq!(whats(&files(&features, &private()), THERE).len(), 1);
        let shown = format!("{ALL}[package.metadata.docs.rs]\nall-features = true\n\n[features]\nextra = []\n");
        assert_eq!(whats(&files(&shown, &private()), THERE), [""; 0]);
    }

    #[test]
    fn licences_and_the_page_lie_in_the_crate_s_own_folder() {
        assert_eq!(whats(&files(ALL, &private()), &["README.md", "a/LICENSE-MIT", "a/LICENSE-APACHE"]).len(), 1);
        assert_eq!(whats(&files(ALL, &private()), &[]).len(), FILES.len());
    }

    #[test]
    fn a_published_crate_that_needs_a_private_one_is_found() {
        let needs = format!("{ALL}\n[dependencies]\nlongarm-b.workspace = true\n");
        assert_eq!(whats(&files(&needs, &private()), THERE), ["needs longarm-b, which is not published"]);
        assert_eq!(whats(&files(&private(), &private()), &[]), [""; 0], "what is private says nothing");
    }

    fn named(files: &[(String, String)], path: &str, text: &str) -> usize {
        check_files_named(&Source::new(path, text), &packages(files)).len()
    }

    #[test]
    fn a_file_outside_of_the_package_is_found_wherever_code_names_it() {
        let files = files(ALL, &private());
        assert_eq!(named(&files, "a/src/lib.rs", "#[doc = include_str!(\"../../README.md\")]"), 1);
        assert_eq!(named(&files, "a/src/lib.rs", "#[doc = include_str!(\"../README.md\")]"), 0);
        assert_eq!(named(&files, "a/tests/x.rs", "#[path = \"../../c/x.rs\"]\nmod x;"), 1);
        assert_eq!(named(&files, "a/src/lib.rs", "// include_str!(\"../../README.md\")"), 0);
        assert_eq!(named(&files, "a/b/src/lib.rs", "include_str!(\"../../x\")"), 0, "a crate that is not published");
    }

    #[test]
    fn tests_that_are_not_in_the_package_may_name_what_they_like() {
        let excluded = format!("{ALL}exclude = [\"/tests/\"]\n");
        let files = files(&excluded, &private());
        assert_eq!(named(&files, "a/tests/x.rs", "#[path = \"../../c/x.rs\"]\nmod x;"), 0);
        assert_eq!(named(&files, "a/src/x.rs", "#[path = \"../../c/x.rs\"]\nmod x;"), 1);
    }
}
