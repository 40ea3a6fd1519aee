//! The commands that pages show: each can be run, and is, by `tools/pages.sh`.
//!
//! What is not run as it stands has an entry in `docs/commands.list`:
//!
//! ```text
//! make fuzz SECONDS=600
//!     why shortened
//!     run make fuzz SECONDS=1
//! ```
//!
//! An entry without `run` is not run at all, and `why` says why. A command whose first word nobody here knows needs an entry, be it
//! one that runs it as it stands.

use crate::pages::Tree;
use crate::rules::{Finding, Rule};

/// Where the exceptions are.
pub const LIST: &str = "docs/commands.list";

/// What runs everything.
const ALL: &str = "tools/test-all.sh";

/// What runs the commands of pages, and so must not be one of those that are run.
const RUNS_PAGES: [&str; 3] = ["make test-all", ALL, "tools/pages.sh"];

/// A command as a page shows it, with single spaces and without its comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub path: String,
    pub line: usize,
    pub command: String,
}

/// An exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub line: usize,
    pub command: String,
    pub why: String,
    pub run: Option<String>,
}

/// Everything in the blocks of a page that are marked `sh`.
pub fn shown(path: &str, text: &str) -> Vec<Shown> {
    let (mut found, mut in_code, mut is_shell) = (Vec::new(), false, false);
    let mut begun: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            in_code = !in_code;
            is_shell = in_code && language.trim() == "sh";
            continue;
        }
        if !is_shell {
            continue;
        }
        let (first, mut command) = begun.take().unwrap_or((number, String::new()));
        let part = without_comment(line);
        command = format!("{command} {}", part.trim_end_matches('\\'));
        if part.ends_with('\\') {
            begun = Some((first, command));
            continue;
        }
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        if !command.is_empty() {
            found.push(Shown { path: path.to_owned(), line: first, command });
        }
    }
    found
}

fn without_comment(line: &str) -> &str {
    let comment = line.find(" #").or_else(|| line.starts_with('#').then_some(0));
    line[..comment.unwrap_or(line.len())].trim_end()
}

/// The exceptions. What is no entry is an `Err` with its line.
pub fn entries(list: &str) -> Result<Vec<Entry>, usize> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in (1..).zip(list.lines()) {
        let words = line.trim();
        if words.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with(' ') {
            entries.push(Entry { line: number, command: words.to_owned(), ..Entry::default() });
            continue;
        }
        let entry = entries.last_mut().ok_or(number)?;
        match words.split_once(' ') {
            Some(("why", why)) if entry.why.is_empty() => entry.why = why.to_owned(),
            Some(("run", run)) if entry.run.is_none() => entry.run = Some(run.to_owned()),
            _ => return Err(number),
        }
    }
    match entries.iter().find(|entry| entry.why.is_empty()) {
        Some(entry) => Err(entry.line),
        None => Ok(entries),
    }
}

/// Looks through all commands: those of this tree name what exists, all others have an entry, and each entry is still shown.
pub fn check_commands(tree: &impl Tree, shown: &[Shown], list: &str, files: &[(String, String)]) -> Vec<Finding> {
    let finding = |path: &str, line, what| Finding { rule: Rule::Docs, path: path.to_owned(), line, what };
    let entries = match entries(list) {
        Ok(entries) => entries,
        Err(line) => return vec![finding(LIST, line, "is no entry with a reason".to_owned())],
    };
    let names = Names::new(tree, files);
    let mut findings = Vec::new();
    for shown in shown {
        let entry = entries.iter().find(|entry| entry.command == shown.command);
        let wrong = pieces(&shown.command).into_iter().filter_map(|piece| names.fault(&piece, entry.is_some()));
        findings.extend(wrong.map(|what| finding(&shown.path, shown.line, what)));
        let run = entry.map_or(Some(shown.command.as_str()), |entry| entry.run.as_deref());
        if run.is_some_and(|run| RUNS_PAGES.iter().any(|all| run.starts_with(all))) {
            let what = format!("`{}` runs the commands of all pages, and so itself, without an end", shown.command);
            findings.push(finding(&shown.path, shown.line, what));
        }
    }
    let runs = files.iter().find(|(path, _)| path == ALL).map_or("", |(_, text)| text);
    let is_run = |target: &&str| {
        let command = format!("make {target}");
        let in_page = || shown.iter().any(|shown| shown.command.starts_with(&command));
        runs.lines().any(|line| line.contains(&command)) || in_page()
    };
    let forgotten = names.told.iter().filter(|target| !is_run(target));
    findings.extend(forgotten.map(|target| finding(ALL, 0, format!("neither it nor a page runs `make {target}`"))));
    let unneeded = entries.iter().filter(|entry| !shown.iter().any(|shown| shown.command == entry.command));
    findings.extend(unneeded.map(|entry| finding(LIST, entry.line, format!("no page shows `{}`", entry.command))));
    findings
}

/// What is run in place of each, for a shell: a line with the place, and a command or, behind `#`, why there is none.
pub fn to_run(shown: &[Shown], list: &str) -> Result<String, usize> {
    let entries = entries(list)?;
    let line = |shown: &Shown| {
        let entry = entries.iter().find(|entry| entry.command == shown.command);
        let run = match entry {
            None => shown.command.clone(),
            Some(Entry { run: Some(run), .. }) => run.clone(),
            Some(entry) => format!("# {}", entry.why),
        };
        format!("{}:{}\t{}\t{run}\n", shown.path, shown.line, shown.command)
    };
    Ok(shown.iter().map(line).collect())
}

/// The single commands of a line, as words, without variables before them.
fn pieces(command: &str) -> Vec<Vec<&str>> {
    let mut pieces: Vec<Vec<&str>> = vec![Vec::new()];
    for word in command.split(' ') {
        let last = pieces.last_mut().expect("there is one");
        match word {
            "&&" | "|" | ";" => pieces.push(Vec::new()),
            // A quoted value may have spaces: all up to the closing quote is one variable.
            _ if last.is_empty() && is_variable(word) => {}
            _ if last.is_empty() && word.ends_with('"') && !word.starts_with('"') => {}
            _ => last.push(word),
        }
    }
    pieces
}

fn is_variable(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What the commands of this tree may name.
struct Names<'a, T> {
    tree: &'a T,
    /// Targets of `make`.
    targets: Vec<&'a str>,
    /// Those of them that `make help` tells of.
    told: Vec<&'a str>,
    /// Packages of the workspace with their folders.
    packages: Vec<(&'a str, &'a str)>,
}

impl<'a, T: Tree> Names<'a, T> {
    fn new(tree: &'a T, files: &'a [(String, String)]) -> Names<'a, T> {
        let makefile = files.iter().find(|(path, _)| path == "Makefile").map_or("", |(_, text)| text);
        let targets = makefile.lines().filter(|line| !line.starts_with(['.', '\t', ' ', '#']));
        let targets: Vec<_> = targets.filter_map(|line| line.split_once(':')).collect();
        let told = targets.iter().filter(|(_, rest)| rest.contains("## ")).map(|(target, _)| *target).collect();
        let targets = targets.into_iter().map(|(target, _)| target).collect();
        let manifests = files.iter().filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, text)));
        let name = |text: &'a str| text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let packages = manifests.filter_map(|(folder, text)| Some((name(text)?, folder))).collect();
        Names { tree, targets, told, packages }
    }

    /// What is wrong with a command.
    fn fault(&self, words: &[&str], has_entry: bool) -> Option<String> {
        let (first, arguments) = words.split_first()?;
        match *first {
            "make" => {
                let mut targets = arguments.iter().filter(|word| !word.contains('=') && !word.starts_with('-'));
                let missing = targets.find(|target| !self.targets.contains(target))?;
                Some(format!("there is no `make {missing}`"))
            }
            "cargo" => self.cargo_fault(arguments),
            "cd" | "longarm" | "longarm-bench" | "longarm-footprint" => None,
            // What commands before this one on the page have made.
            made if made.starts_with("./") || made.starts_with("$HOME/") => None,
            script
                if script.contains('/') && self.tree.has_top_folder(script.split('/').next().unwrap_or_default()) =>
            {
                let is_built = script.starts_with("target/");
                (!is_built && !self.tree.exists(script)).then(|| format!("there is no {script}"))
            }
            _ if has_entry => None,
            other => {
                Some(format!("nobody knows what `{other}` does here: say in {LIST} what is run, or why nothing is"))
            }
        }
    }

    fn cargo_fault(&self, arguments: &[&str]) -> Option<String> {
        let own = arguments.split(|word| *word == "--").next().unwrap_or_default();
        let mut folders = Vec::new();
        for package in values(own, "-p") {
            match self.packages.iter().find(|(name, _)| *name == package) {
                Some((_, folder)) => folders.push(*folder),
                None => return Some(format!("there is no package {package}")),
            }
        }
        let kinds = [("--test", "tests"), ("--example", "examples"), ("--bench", "benches")];
        for (option, place) in kinds {
            for name in values(own, option) {
                let is_there = |folder: &&str| self.tree.exists(&format!("{folder}/{place}/{name}.rs"));
                if !folders.iter().any(is_there) {
                    return Some(format!("none of the named packages has {place}/{name}.rs"));
                }
            }
        }
        None
    }
}

/// What stands behind an option.
fn values<'a>(words: &'a [&'a str], option: &str) -> impl Iterator<Item = &'a str> {
    words.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small;

    impl Tree for Small {
        fn exists(&self, path: &str) -> bool {
            ["tools/a.sh", "shm/tests/model.rs"].contains(&path)
        }

        fn has_top_folder(&self, name: &str) -> bool {
            ["tools", "shm", "target"].contains(&name)
        }
    }

    fn faults(page: &str, list: &str) -> Vec<String> {
        let files = [
            ("Makefile".to_owned(), "PREFIX ?= x\n.PHONY: no\ntest: setup ## Tests\n\tmake no\ntest-all:\n".to_owned()),
            ("shm/Cargo.toml".to_owned(), "[package]\nname = \"longarm-shm\"\n".to_owned()),
        ];
        let shown = shown("a.md", &format!("```sh\n{page}\n```\n"));
        check_commands(&Small, &shown, list, &files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn commands_of_a_page_are_what_stands_in_its_shell_blocks_without_comments() {
        let page = "x\n```sh\nmake  test   # why\n# nothing\na \\\n   b\n```\n```\nother\n```\n";
        let found: Vec<_> = shown("a.md", page).into_iter().map(|shown| (shown.line, shown.command)).collect();
        assert_eq!(found, [(3, "make test".to_owned()), (5, "a b".to_owned())]);
    }

    #[test]
    fn what_this_tree_has_is_known_and_what_it_has_not_is_found() {
        let good = "make test PREFIX=no\nA=1 tools/a.sh x && target/x\nRUSTFLAGS=\"--cfg loom\" cargo test -p longarm-shm --test model -- --test none";
        assert_eq!(faults(good, ""), [""; 0]);
        for bad in ["make no", "tools/b.sh", "cargo test -p longarm-none", "cargo test -p longarm-shm --test none"] {
            assert_eq!(faults(&format!("make test\n{bad}"), "").len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_command_that_nobody_knows_needs_an_entry_and_an_entry_a_command() {
        assert_eq!(faults("make test\nmpiexec x", "").len(), 1);
        assert_eq!(faults("make test\nmpiexec x", "mpiexec x\n    why several hosts\n"), [""; 0]);
        assert_eq!(faults("make test", "make fuzz\n    why long\n"), ["no page shows `make fuzz`"]);
        assert_eq!(faults("make test", "make test\n    run true\n"), ["is no entry with a reason"]);
    }

    #[test]
    fn a_command_that_runs_the_commands_of_pages_is_not_run_itself() {
        assert_eq!(faults("make test\nmake test-all", "").len(), 1);
        assert_eq!(faults("make test\nmake test-all", "make test-all\n    why it would never end\n"), [""; 0]);
    }

    #[test]
    fn a_target_that_make_help_tells_of_and_nobody_runs_is_found() {
        let faults = faults("tools/a.sh", "");
        assert_eq!(faults, ["neither it nor a page runs `make test`"]);
    }

    #[test]
    fn what_is_run_is_the_command_or_what_its_entry_says() {
        let shown = shown("a.md", "```sh\nmake test\nmake fuzz\nmpiexec x\n```\n");
        let list = "make fuzz\n    why shortened\n    run make fuzz SECONDS=1\nmpiexec x\n    why several hosts\n";
        let expected = "a.md:2\tmake test\tmake test\na.md:3\tmake fuzz\tmake fuzz SECONDS=1\na.md:4\tmpiexec x\t# several hosts\n";
        assert_eq!(to_run(&shown, list).as_deref(), Ok(expected));
    }
}
