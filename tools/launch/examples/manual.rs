//! Writes what is installed beside the `longarm` command, out of its own description of itself: a manual page for each subcommand and
//! completions for shells, where systems look for them below a folder `share`.
//!
//! ```sh
//! cargo run -p longarm-launch --example manual -- share
//! ```
#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

#[allow(dead_code, reason = "only the command itself looks at what its arguments mean")]
#[path = "../src/cli.rs"]
mod cli;

/// Where each shell looks for completions.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/longarm"),
    (Shell::Zsh, "zsh/site-functions/_longarm"),
    (Shell::Fish, "fish/vendor_completions.d/longarm.fish"),
];

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: manual FOLDER");
        std::process::exit(2);
    };
    let folder = Path::new(&folder);
    let command = cli::CommandLine::command();
    write_page(folder, command.clone(), "longarm")?;
    for subcommand in command.get_subcommands() {
        write_page(folder, subcommand.clone(), &format!("longarm-{}", subcommand.get_name()))?;
    }
    for (shell, path) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut cli::CommandLine::command(), "longarm", &mut text);
        write(&folder.join(path), &text)?;
    }
    Ok(())
}

fn write_page(folder: &Path, command: Command, name: &str) -> io::Result<()> {
    let mut text = Vec::new();
    // A page of a subcommand is called as it is installed.
    let version = env!("CARGO_PKG_VERSION");
    let command = command.display_name(name).bin_name(name.replacen('-', " ", 1)).version(version);
    let manual = clap_mangen::Man::new(command).title(name.to_uppercase());
    manual.source(format!("longarm {version}")).manual("longarm").render(&mut text)?;
    write(&folder.join(format!("man/man1/{name}.1")), &text)
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}
