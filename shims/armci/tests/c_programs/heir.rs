//! A process that dies with mutexes: the first gets both, and it is said once that their holder died.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::built::everything;
use crate::compiled::{Build, Compiled};
use crate::{Layout, run_with};

/// The last process is on the first one's node, or on another whose server outlives it.
const LAYOUTS: [Layout; 2] = [Layout::Ranks { ranks: 2, nodes: 1 }, Layout::Ranks { ranks: 4, nodes: 2 }];
/// What the last process of `c/heir.c` exits with.
const STATUS: i32 = 3;

pub(crate) fn trials() -> Vec<Trial> {
    let compiled = Arc::new(Compiled::new("heir", Build::C17Shared));
    let trial = |layout: Layout| {
        let program = Arc::clone(&compiled);
        Trial::test(format!("heir::{}", layout.name()), move || inherits(&program, layout))
    };
    LAYOUTS.into_iter().map(trial).collect()
}

fn inherits(program: &Compiled, layout: Layout) -> Result<(), Failed> {
    // The process has as long as it needs.
    let output = run_with(program.path()?, layout, &[], &[("LONGARM_REPORT_MS", "600000")])?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let taken =
        [0, 1].map(|mutex| stdout.lines().filter(|line| *line == format!("process 0 has mutex {mutex}")).count());
    let said =
        stderr.lines().filter(|line| line.contains("mutex 0 of process 0 was held by a process that died")).count();
    let said_at_all = stderr.matches("was held by a process that died").count();
    if output.status.code() == Some(STATUS) && taken == [1, 1] && (said, said_at_all) == (1, 1) {
        return Ok(());
    }
    Err(format!("{}, taken {taken:?}, said {said} of {said_at_all}\n{}", output.status, everything(&output)).into())
}
