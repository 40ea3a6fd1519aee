//! The rule about files: within a crate none imports one that imports it, however long the way round.
//!
//! It reads paths, no types: `crate::`, `super::` and `self::` anywhere, and what a `use` begins with, also in a module that has no file
//! of its own. A method that is called on a type of another file is no import. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::rules::{Finding, Rule};
use crate::source::{Source, block_bytes, find_word};

/// One crate's files by their modules.
type Modules<'a> = BTreeMap<Vec<String>, &'a Source>;

/// Every file that is in a cycle, with those of its imports that lead back to it.
pub fn check_cycles(sources: &[Source]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for source in sources {
        if let Some((root, file)) = source.path.split_once("/src/") {
            crates.entry(root).or_default().insert(module_of(file), source);
        }
    }
    crates.values().flat_map(cycles_of).collect()
}

fn cycles_of(modules: &Modules<'_>) -> Vec<Finding> {
    // Those of tests stand among the modules only so that what lies in them is not looked for elsewhere.
    let products = modules.iter().filter(|(_, source)| !source.is_test(0));
    let imports: BTreeMap<&str, BTreeSet<&str>> =
        products.map(|(module, source)| (source.path.as_str(), imports_of(modules, module, source))).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|path| (*path, reached_from(&imports, path))).collect();
    let in_cycles = reached.iter().filter(|(path, reached)| reached.contains(*path));
    let finding = |(path, _): (&&str, &BTreeSet<&str>)| {
        let together: Vec<&str> = imports[path].iter().copied().filter(|other| reached[other].contains(path)).collect();
        let what = format!("imports files that import it: {}", together.join(", "));
        Finding { rule: Rule::Cycles, path: (*path).to_owned(), line: 0, what }
    };
    in_cycles.map(finding).collect()
}

fn reached_from<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = imports[from].iter().copied().collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(imports[next].iter().copied());
        }
    }
    reached
}

/// The module that a file below `src/` is.
fn module_of(file: &str) -> Vec<String> {
    let mut names: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

fn imports_of<'a>(modules: &Modules<'a>, module: &[String], source: &Source) -> BTreeSet<&'a str> {
    let inner = inner_modules(&source.code);
    let mut files = BTreeSet::new();
    for (start, behind) in [("use ", 4), ("crate::*", 0), ("super::*", 0), ("self::*", 0)] {
        for at in find_word(&source.code, start).into_iter().filter(|at| !source.is_test(*at)) {
            // What a longer path goes on with is none of its own.
            if source.code[..at].ends_with("::") {
                continue;
            }
            let mut paths = Vec::new();
            tree(&source.code[at + behind..], &mut Vec::new(), &mut paths);
            let around = inner.iter().filter(|(range, _)| range.contains(&at)).map(|(_, name)| (*name).to_owned());
            let here: Vec<String> = module.iter().cloned().chain(around).collect();
            files.extend(paths.iter().filter_map(|path| file_of(modules, &here, path)));
        }
    }
    files.remove(source.path.as_str());
    files
}

/// The modules that stand in a file with all that is in them, the outer ones first.
fn inner_modules(code: &str) -> Vec<(Range<usize>, &str)> {
    let inner = |at: usize| {
        let rest = &code[at + 4..];
        let (name, behind) = rest.split_once(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_')?;
        // One with a file of its own has no braces.
        let open = rest.len() - behind.len() + behind.find('{').filter(|open| !behind[..*open].contains(';'))?;
        (rest.as_bytes()[name.len()] != b';').then(|| (at..at + 4 + open + block_bytes(&rest[open..]), name))
    };
    find_word(code, "mod ").into_iter().filter_map(inner).collect()
}

/// The paths of a tree of imports, in which braces hold several.
fn tree<'a>(code: &'a str, before: &mut Vec<&'a str>, paths: &mut Vec<Vec<&'a str>>) -> &'a str {
    let name_bytes = code.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let (name, rest) = code.split_at(name_bytes);
    if let Some(inside) = rest.strip_prefix("::").filter(|_| !name.is_empty()) {
        before.push(name);
        let behind = tree(inside.trim_start(), before, paths);
        before.pop();
        return behind;
    }
    let Some(mut rest) = code.strip_prefix('{') else {
        paths.push(before.iter().copied().chain([name]).collect());
        return rest;
    };
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return behind;
        }
        rest = tree(rest, before, paths);
        // Behind a name: another one, `as` something, a star, or the end.
        rest = rest.trim_start_matches(|other| other != ',' && other != '}').trim_start_matches(',');
        if rest.is_empty() {
            return rest;
        }
    }
}

/// The file of the longest module at the beginning of a path.
fn file_of<'a>(modules: &Modules<'a>, module: &[String], path: &[&str]) -> Option<&'a str> {
    let (first, rest) = path.split_first()?;
    let mut whole: Vec<String> = match *first {
        "crate" => Vec::new(),
        "super" => module.split_last().map(|(_, parent)| parent.to_vec())?,
        "self" => module.to_vec(),
        child => {
            let child: Vec<String> = module.iter().cloned().chain([child.to_owned()]).collect();
            modules.contains_key(&child).then_some(child)?
        }
    };
    for name in rest {
        match *name {
            "super" => drop(whole.pop()),
            "self" => {}
            name => whole.push(name.to_owned()),
        }
    }
    loop {
        if let Some(source) = modules.get(&whole) {
            return (!source.is_test(0)).then_some(&source.path);
        }
        whole.pop()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        check_cycles(&sources).into_iter().map(|finding| format!("{}: {}", finding.path, finding.what)).collect()
    }

    #[test]
    fn a_cycle_is_found_however_its_imports_are_written() {
        let round = [
            "a/src/x.rs: imports files that import it: a/src/y.rs",
            "a/src/y.rs: imports files that import it: a/src/y/z.rs",
            "a/src/y/z.rs: imports files that import it: a/src/x.rs",
        ];
        for (x, y, z) in [
            ("use crate::y::Y;", "mod z;\nuse z::Z;", "use super::super::x::X;"),
            ("use crate::{w::W, y::{Y, Other as O}};", "pub use self::z::Z;", "fn f() { crate::x::f() }"),
            ("impl super::y::Trait for X {}", "use {std::fmt, crate::y::z::*};", "use crate::x;"),
        ] {
            let files =
                [("a/src/x.rs", x), ("a/src/y.rs", y), ("a/src/y/z.rs", z), ("a/src/w.rs", ""), ("a/src/lib.rs", "")];
            assert_eq!(cycles(&files), round, "{x} {y} {z}");
        }
    }

    #[test]
    fn one_way_is_no_cycle_nor_are_tests_comments_and_other_crates() {
        let files = [
            ("a/src/lib.rs", "mod w;\nmod x;\nmod y;\npub use w::W;\npub use x::X;\npub use y::Y;"),
            ("a/src/x.rs", "use crate::y::Y; // crate::x\nuse std::x;\n#[cfg(test)]\nmod tests { use super::*; }"),
            (
                "a/src/y.rs",
                "//! crate::x\nfn f() { \"crate::x\"; std::x::y(); }\n#[cfg(test)]\nmod tests { use crate::x::X; }",
            ),
            ("a/src/y/tests.rs", "use crate::x::X;"),
            ("a/src/w.rs", "mod inner { mod most { use super::super::W; } use super::*; }\nmod v;\nuse v::V;"),
            ("a/src/w/v.rs", "use crate::loom_models::W;\nuse super::super::y::Y;"),
            ("a/src/loom_models.rs", "use crate::w::W;"),
            ("b/src/lib.rs", "use crate::x::X;"),
            ("b/src/x.rs", ""),
        ];
        assert_eq!(cycles(&files), Vec::<String>::new());
    }
}
