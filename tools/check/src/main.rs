//! The rules of the source tree that a machine can hold.
//!
//! `longarm-check ROOT --commands` prints what `tools/pages.sh` runs for each command that a page shows.
//!
//! `longarm-check [ROOT]` looks through all files under ROOT (by default, here), prints each place where a rule is
//! broken, and ends with status 1 if there is any. What is allowed in spite of a rule stands in `allow`, with the
//! reason. It refuses to judge what needs a reader: names, sentences, the length of functions.
#![forbid(unsafe_code)]

mod allow;
mod commands;
mod cycles;
mod examples;
mod imports;
mod packages;
mod pages;
mod rules;
mod source;
mod twins;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::rules::{Finding, Rule};
use crate::source::Source;

/// Where the summary of the book is.
const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Files that hold text.
const EXTENSIONS: [&str; 7] = ["rs", "md", "toml", "sh", "yml", "h", "list"];
/// The same, of those whose name has no extension.
const NAMES: [&str; 3] = ["Makefile", "run", "LICENSE-MIT"];

fn main() -> ExitCode {
    let root = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let mut files = Vec::new();
    if let Err(error) = collect(&root, Path::new(""), &mut files) {
        eprintln!("longarm-check: cannot read {}: {error}", root.display());
        return ExitCode::from(2);
    }
    files.sort();
    if std::env::args_os().nth(2).is_some_and(|word| word == "--commands") {
        return print_commands(&files);
    }
    let findings = check(&root, &files);
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} files, {} broken rules", files.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All text files under a folder, by their paths from the root. Folders that tools fill are passed over.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            // Cargo marks the folders it builds in.
            let is_built = root.join(&path).join("CACHEDIR.TAG").exists();
            if name != ".git"
                && name != "target"
                && name != "demo-output"
                && path != Path::new("docs/book")
                && !is_built
            {
                collect(root, &path, files)?;
            }
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.map_or_else(|| NAMES.contains(&name.as_str()), |extension| EXTENSIONS.contains(&extension)) {
            let text = std::fs::read_to_string(root.join(&path))?;
            files.push((path.to_string_lossy().replace('\\', "/"), text));
        }
    }
    Ok(())
}

fn check(root: &Path, files: &[(String, String)]) -> Vec<Finding> {
    let tree = OnDisk(root);
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    let packages = packages::packages(files);
    for (path, text) in files {
        findings.extend(words::check_words(path, text));
        if path.ends_with(".rs") {
            let source = Source::new(path, text);
            findings.extend(rules::check_source(&source));
            findings.extend(packages::check_files_named(&source, &packages));
            if is_root(path) {
                findings.extend(rules::check_root(&source));
            }
            sources.push(source);
        } else if path.ends_with("Cargo.toml") {
            findings.extend(imports::check_manifest(path, text));
        } else if path.ends_with(".md") {
            findings.extend(pages::check_page(&tree, path, text));
        }
        if path == SUMMARY {
            let pages: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).filter(|path| is_page(path)).collect();
            findings.extend(pages::check_summary(path, text, &pages));
        }
    }
    findings.extend(commands::check_commands(&tree, &commands_shown(files), list_of(files), files));
    findings.extend(packages::check_packages(&tree, &packages));
    findings.extend(cycles::check_cycles(&sources));
    findings.extend(examples::check_examples(&sources));
    findings.extend(twins::check_twins(&sources));
    without_allowed(findings)
}

/// All commands of the README and of the book.
fn commands_shown(files: &[(String, String)]) -> Vec<commands::Shown> {
    let pages = files.iter().filter(|(path, _)| path == "README.md" || is_page(path));
    pages.flat_map(|(path, text)| commands::shown(path, text)).collect()
}

fn list_of(files: &[(String, String)]) -> &str {
    files.iter().find(|(path, _)| path == commands::LIST).map_or("", |(_, text)| text)
}

fn print_commands(files: &[(String, String)]) -> ExitCode {
    match commands::to_run(&commands_shown(files), list_of(files)) {
        Ok(lines) => {
            print!("{lines}");
            ExitCode::SUCCESS
        }
        Err(line) => {
            eprintln!("longarm-check: {}:{line} is no entry with a reason", commands::LIST);
            ExitCode::from(2)
        }
    }
}

/// Takes out what is allowed, and adds the exceptions that nothing needs.
fn without_allowed(mut findings: Vec<Finding>) -> Vec<Finding> {
    let needless = allow::ALLOWANCES.iter().filter(|allowance| {
        !findings.iter().any(|finding| finding.rule == allowance.rule && allow::covers(allowance, &finding.path))
    });
    let needless: Vec<Finding> = needless
        .map(|allowance| Finding {
            rule: Rule::Allowance,
            path: allowance.path.to_owned(),
            line: 0,
            what: format!("nothing here needs to be allowed by {} ({})", allowance.rule, allowance.reason),
        })
        .collect();
    findings.retain(|finding| !allow::is_allowed(finding.rule, &finding.path));
    findings.extend(needless);
    findings
}

/// Whether a file is the root of a crate of the workspace.
fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

fn is_page(path: &str) -> bool {
    path.starts_with("docs/src/") && path.ends_with(".md")
}

struct OnDisk<'a>(&'a Path);

impl pages::Tree for OnDisk<'_> {
    fn exists(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    fn has_top_folder(&self, name: &str) -> bool {
        !name.is_empty() && self.0.join(name).is_dir()
    }
}
