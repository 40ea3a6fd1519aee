//! The rule about examples: every public item of the crate `longarm` is shown by one that is compiled.
//!
//! An item is shown by an example of its own, or where another one of the same file, or that of its type, uses it by its name. One good
//! example of a type is worth more than a copy for each of its methods. Trait implementations, fields and variants are left out, and so are
//! types of errors, which come from calls that are shown; what an error's methods give is not.

use std::collections::BTreeMap;

use crate::rules::{Finding, Rule};
use crate::source::{Source, block_bytes, find_word};

/// The crate whose interface this is about.
const CRATE: &str = "runtime/src/";
/// What a public item can be, as it is written behind `pub`.
const KINDS: [&str; 8] = ["fn", "const fn", "async fn", "struct", "enum", "trait", "type", "const"];

/// A public item.
struct Item<'a> {
    name: &'a str,
    /// The type that it is a method of.
    of: Option<&'a str>,
    is_type: bool,
    at: usize,
}

/// Every public item that no example shows.
pub fn check_examples(sources: &[Source]) -> Vec<Finding> {
    let Some(root) = sources.iter().find(|source| source.path == format!("{CRATE}lib.rs")) else { return Vec::new() };
    let hidden = modules(root, true);
    let open = modules(root, false);
    let files: Vec<&Source> = sources.iter().filter(|source| is_shown(source, &hidden)).collect();
    let mut of_types: BTreeMap<&str, String> = BTreeMap::new();
    for source in &files {
        for item in items(source).into_iter().filter(|item| item.is_type) {
            of_types.entry(item.name).or_default().push_str(&examples(&docs_before(source, item.at)));
        }
    }
    let mut findings = Vec::new();
    for source in &files {
        let is_open = source.path == root.path || open.iter().any(|module| is_of(&source.path, module));
        let is_exported = |name: &str| is_open || exports(root, name);
        let here = examples(&source.text);
        for item in items(source) {
            let docs = docs_before(source, item.at);
            let is_error = item.is_type && item.name.ends_with("Error");
            if !is_exported(item.of.unwrap_or(item.name)) || is_error || docs.contains("#[doc(hidden)]") {
                continue;
            }
            let of_type = item.of.and_then(|name| of_types.get(name)).map_or("", String::as_str);
            let is_used = [here.as_str(), of_type].iter().any(|text| uses(text, &item));
            if !is_used && examples(&docs).is_empty() {
                let name = item.of.map_or_else(|| item.name.to_owned(), |of| format!("{of}::{}", item.name));
                let what =
                    format!("no example shows {name}: give it one, or use it in that of its type or of this file");
                let line = source.line_of(item.at);
                findings.push(Finding { rule: Rule::Examples, path: source.path.clone(), line, what });
            }
        }
    }
    findings
}

/// The public modules of the crate that its pages show, or those that they hide.
fn modules(root: &Source, hidden: bool) -> Vec<String> {
    let places = find_word(&root.code, "pub mod").into_iter();
    let of_kind = places.filter(|at| docs_before(root, *at).contains("#[doc(hidden)]") == hidden);
    of_kind.map(|at| name_at(&root.code[at + "pub mod ".len()..]).to_owned()).collect()
}

fn is_shown(source: &Source, hidden: &[String]) -> bool {
    source.path.starts_with(CRATE) && !source.is_test(0) && !hidden.iter().any(|module| is_of(&source.path, module))
}

/// Whether a file belongs to a module of the crate.
fn is_of(path: &str, module: &str) -> bool {
    let inside = path.strip_prefix(CRATE).and_then(|file| file.strip_prefix(module));
    inside.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Whether the root of the crate gives this name on, and its pages show it.
fn exports(root: &Source, name: &str) -> bool {
    find_word(&root.code, name).into_iter().any(|at| !docs_before(root, at).contains("#[doc(hidden)]"))
}

/// Whether an example uses an item: a method behind a dot or a path.
fn uses(example: &str, item: &Item<'_>) -> bool {
    let is_call = |at: &usize| item.of.is_none() || example[..*at].ends_with(['.', ':']);
    find_word(example, item.name).iter().any(is_call)
}

/// What is public in a file by its own words, tests left out.
fn items(source: &Source) -> Vec<Item<'_>> {
    let impls = impls(source);
    let mut items = Vec::new();
    for at in find_word(&source.code, "pub").into_iter().filter(|at| !source.is_test(*at)) {
        let behind = source.code[at + "pub".len()..].trim_start();
        let Some((kind, name)) = KINDS.iter().find_map(|kind| {
            let name = name_at(behind.strip_prefix(kind)?.strip_prefix(' ')?);
            // `const fn` is no constant whose name is fn.
            (name != "fn" && !name.is_empty()).then_some((*kind, name))
        }) else {
            continue;
        };
        let of = impls.iter().find(|(range, _)| range.contains(&at)).map(|(_, name)| *name);
        items.push(Item { name, of, is_type: of.is_none() && !kind.ends_with("fn") && kind != "const", at });
    }
    items
}

/// The blocks of methods in a file, and whose they are. Those of a trait have no `pub` in them.
fn impls(source: &Source) -> Vec<(std::ops::Range<usize>, &str)> {
    let starts = find_word(&source.code, "impl").into_iter();
    let whole = starts.filter(|at| *at == 0 || source.code.as_bytes()[at - 1] == b'\n').filter_map(|at| {
        let open = at + source.code[at..].find('{')?;
        let header = source.code[at + "impl".len()..open].trim_start();
        let name = name_at(behind_generics(header).trim_start());
        Some((at..open + block_bytes(&source.code[open..]), name))
    });
    whole.collect()
}

fn behind_generics(header: &str) -> &str {
    let mut depth = 0_usize;
    for (at, letter) in header.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => return &header[at..],
            _ => {}
        }
    }
    header
}

fn name_at(code: &str) -> &str {
    let end = code.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    &code[..end.unwrap_or(code.len())]
}

/// The comments and attributes directly before an item.
fn docs_before(source: &Source, at: usize) -> String {
    let start = source.text[..at].rfind('\n').map_or(0, |end| end + 1);
    let is_docs = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("//") || line.starts_with('#')
    };
    let mut lines: Vec<&str> = source.text[..start].lines().rev().take_while(is_docs).collect();
    lines.reverse();
    lines.join("\n")
}

/// The code of the examples in the comments of a text that are compiled.
fn examples(text: &str) -> String {
    let mut code = String::new();
    let mut inside = None;
    let comments = text.lines().map(str::trim_start).filter_map(|line| {
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(comment.strip_prefix(' ').unwrap_or(comment))
    });
    for line in comments {
        match (line.strip_prefix("```"), inside) {
            (Some(language), None) => inside = Some(["", "no_run", "should_panic"].contains(&language.trim())),
            (Some(_), Some(_)) => inside = None,
            (None, Some(true)) => code.extend([line, "\n"]),
            (None, _) => {}
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(&format!("{CRATE}{path}"), text)).collect();
        let named =
            |finding: Finding| finding.what.split(' ').nth(3).unwrap_or_default().trim_end_matches(':').to_owned();
        check_examples(&sources).into_iter().map(named).collect()
    }

    #[test]
    fn items_without_an_example_are_found_and_those_of_a_shown_type_are_not() {
        let root = ("lib.rs", "pub use world::{World, init};\nmod world;\n#[doc(hidden)]\npub mod ffi;\n");
        let hidden = ("ffi/inside.rs", "pub struct Far;\nimpl Far {\n    pub fn go(&self) {}\n}\n");
        let world = "/// ```\n/// let world = init(); // size\n/// world.rank();\n/// ```\npub struct World;\nimpl<T: Into<u8>> World {\n    \
                     pub fn rank(&self) {}\n    /// ```text\n    /// world.size()\n    /// ```\n    pub const fn size(&self) {}\n    \
                     pub(crate) fn own(&self) {}\n    #[doc(hidden)]\n    pub fn inside(&self) {}\n}\npub fn init() {}\npub fn other() {}\n";
        assert_eq!(broken(&[root, hidden, ("world.rs", world)]), ["World::size"]);
        let elsewhere = "impl World {\n    /// ```\n    /// let x = 1;\n    /// ```\n    pub fn quiet(&self) {}\n    pub fn fence(&self) {}\n    \
                         pub fn rank_of(&self) {}\n}\nimpl Clone for World {\n    fn clone(&self) {}\n}\n#[cfg(test)]\nmod tests {\n    \
                         impl World {\n        pub fn tested(&self) {}\n    }\n}\n";
        assert_eq!(
            broken(&[root, ("world.rs", world), ("world/more.rs", elsewhere)]),
            ["World::size", "World::fence", "World::rank_of"]
        );
    }

    #[test]
    fn all_of_an_open_module_is_public_and_errors_need_none() {
        let root = ("lib.rs", "pub mod config;\n");
        let config = "pub struct Config;\npub enum ConfigError {}\npub const LIMIT: u32 = 1;\n/// ```\n/// shown()\n/// ```\npub fn shown() {}\n";
        assert_eq!(broken(&[root, ("config.rs", config)]), ["Config", "LIMIT"]);
    }
}
