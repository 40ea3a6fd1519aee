//! A process dies and the others go on, with `LONGARM_ON_FAILURE=continue`.

use std::process::{Command, Stdio};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::built::everything;
use crate::compiled::{Build, Compiled};
use crate::launcher;

/// Ranks and nodes. The last rank is no host of a server.
const LAYOUTS: [(u32, u32); 2] = [(3, 1), (4, 2)];

pub(crate) fn trials() -> Vec<Trial> {
    let compiled = Arc::new(Compiled::new("survivors", Build::C17Shared));
    let trials = LAYOUTS.map(|(ranks, nodes)| {
        let program = Arc::clone(&compiled);
        let name = format!("survivors::the_last_of_{ranks}_on_{nodes}_nodes_dies_and_the_others_finalize");
        Trial::test(name, move || go_on(&program, ranks, nodes))
    });
    trials.into()
}

fn go_on(program: &Compiled, ranks: u32, nodes: u32) -> Result<(), Failed> {
    let mut command = Command::new(launcher()?);
    command.args(["run", "-n", &ranks.to_string(), "--nodes", &nodes.to_string(), "--"]).arg(program.path()?);
    let output = command.env("LONGARM_ON_FAILURE", "continue").stdin(Stdio::null()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        (0..ranks - 1).map(|rank| format!("process {rank} finished with {}", 100 + rank)).collect();
    if output.status.code() == Some(137) && lines == expected {
        return Ok(());
    }
    Err(format!("{}\n{}", output.status, everything(&output)).into())
}
