//! `longarm perf`: measures, by a program of its own.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::cli::PerfArguments;

const PROGRAM: &str = "longarm-bench";

/// Becomes the program that measures. Returns only if there is none.
pub fn perf(arguments: &PerfArguments) -> ExitCode {
    // The one that was built with this program, if it is there.
    let beside = std::env::current_exe().map(|path| path.with_file_name(PROGRAM)).ok().filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        eprintln!(
            "longarm: {PROGRAM}, which measures, is neither beside this program nor in the search path: `make install` \
             installs both, `cargo build --release -p longarm-benches` builds it"
        );
    } else {
        eprintln!("longarm: cannot run {}: {error}", program.display());
    }
    ExitCode::FAILURE
}
