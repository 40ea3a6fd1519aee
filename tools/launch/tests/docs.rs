//! The pages about configuration and command line, compared with what the program accepts.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use longarm::config::Config;

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/src/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn text(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
    // What the tests are run with is no default.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"LONGARM_")) {
        command.env_remove(name);
    }
    let output = command.args(arguments).output().expect("the command starts");
    assert!(output.status.success(), "{arguments:?} ended with {}", output.status);
    String::from_utf8(output.stdout).expect("the output is text")
}

#[test]
fn the_page_about_configuration_has_every_variable_as_the_program_says_it() {
    let mut table =
        String::from("| variable | default | unit | what for | accepted |\n| --- | --- | --- | --- | --- |\n");
    for entry in Config::default().entries() {
        let (name, value, unit) = (entry.name, &entry.value, entry.unit);
        writeln!(table, "| `{name}` | `{value}` | {unit} | {} | {} |", entry.meaning, entry.accepted).unwrap();
    }
    let page = page("configuration.md");
    let (_, rest) = page.split_once("<!-- table: begin -->\n").expect("the table's beginning is marked");
    let (found, _) = rest.split_once("<!-- table: end -->").expect("the table's end is marked");
    assert_eq!(found, table, "the table of docs/src/configuration.md has to be:\n{table}");
}

#[test]
fn the_page_about_configuration_names_every_variable_that_info_shows() {
    let info: serde_json::Value = serde_json::from_str(&text(&["info", "--json"])).expect("info writes JSON");
    let variables = info["variables"].as_array().expect("info lists variables");
    assert_eq!(variables.len(), Config::default().entries().len());
    let page = page("configuration.md");
    for variable in variables {
        let name = variable["name"].as_str().expect("a variable has a name");
        assert!(page.contains(&format!("| `{name}` |")), "{name} is missing in docs/src/configuration.md");
    }
}

/// The long options that a text names.
fn options(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    words.filter(|word| word.len() > 2 && word.starts_with("--") && word.as_bytes()[2] != b'-').collect()
}

#[test]
fn the_page_about_the_command_line_has_every_option_and_no_other() {
    let run = text(&["run", "--help"]);
    let info = text(&["info", "--help"]) + &text(&["ps", "--help"]);
    let info = info + &text(&["perf", "gups", "--help"]) + &text(&["perf", "all", "--help"]);
    // The example of an option that belongs to the program and not to longarm.
    let known: BTreeSet<&str> =
        options(&run).union(&options(&info)).copied().filter(|o| *o != "--its-own-option").collect();
    let page = page("command-line.md");
    assert_eq!(options(&page), known);
}

/// The commands of the `sh` blocks of the README and of all pages that call `longarm`: subcommand and the words behind it.
fn shown_calls() -> Vec<Vec<String>> {
    let root = format!("{}/../..", env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(format!("{root}/docs/src")).expect("the book is there");
    let pages = pages.map(|entry| entry.expect("the folder can be read").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut calls = Vec::new();
    for path in pages.chain([format!("{root}/README.md").into()]) {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for block in text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            for line in block.lines() {
                let words: Vec<&str> = line.split(" #").next().unwrap_or_default().split_whitespace().collect();
                let Some(at) = words.iter().position(|word| *word == "longarm") else { continue };
                // `cargo add longarm` calls something else.
                if words[..at].first() != Some(&"cargo") {
                    calls.push(words[at + 1..].iter().map(|word| (*word).to_owned()).collect());
                }
            }
        }
    }
    calls
}

/// The options in front of the program.
fn options_of_run(words: &[String]) -> Vec<&str> {
    let mut options = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next().filter(|word| word.starts_with('-') && *word != "--") {
        options.push(word);
        if ["-n", "--ranks", "--nodes", "--ppn", "--bind", "--stats-file", "--timeout"].contains(&word) {
            words.next();
        }
    }
    options
}

#[test]
fn every_call_of_longarm_that_a_page_shows_has_a_subcommand_and_options_that_there_are() {
    let calls = shown_calls();
    assert!(calls.len() > 20, "the pages show {} calls", calls.len());
    for call in calls {
        let (help, options) = match call[0].as_str() {
            "run" => (text(&["run", "--help"]), options_of_run(&call[1..])),
            "perf" => {
                let options = call[2..].iter().map(String::as_str).filter(|word| word.starts_with('-')).collect();
                (text(&["perf", &call[1], "--help"]), options)
            }
            other => (text(&[other, "--help"]), call[1..].iter().map(String::as_str).collect()),
        };
        for option in options {
            let known =
                help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').any(|word| word == option);
            assert!(known, "`longarm {}`: there is no {option}", call.join(" "));
        }
    }
}
