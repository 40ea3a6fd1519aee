//! Variables that the system does not let be mapped anew, that are left where they are, and those of several programs: `c/statics`
//! and `c/programs`, and other programs with the switch set.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::installed::{here, prefix};
use crate::{C11, Layout, NO_PIE, Program, everything, layout_name, run_with, verdict};

/// The programs of `c/` that are run here.
pub(crate) const PROGRAMS: [&str; 2] = ["programs", "statics"];

/// Everything in one file, which is loaded anywhere, or at a fixed address.
const STATIC: [crate::Way; 2] =
    [("static_pie", "oshcc", &["-std=gnu11", "-static-pie"]), ("static", "oshcc", &["-std=gnu11", "-static"])];
const GNU: crate::Way = ("gnu", "oshcc", &["-std=gnu11"]);
const LAYOUTS: [Layout; 5] = [None, Some((4, 1)), Some((4, 2)), Some((5, 3)), Some((4, 4))];
const SWITCH: (&str, &str) = ("SHMEM_STATICS", "stay");

/// What `c/statics` is told, what is set, and what the job has to say about it, once.
type Case = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)], Option<&'static str>);

const CASES: [Case; 5] = [
    ("mapped", &["nothing"], &[], None),
    ("left", &["nothing", "stays"], &[SWITCH], Some("stay where they are (SHMEM_STATICS says so)")),
    ("mremap", &["mremap", "stays"], &[], Some("stay where they are (Operation not permitted")),
    ("attach", &["attach", "stays"], &[], Some("stay where they are (Operation not permitted")),
    ("odd", &["odd"], &[], Some("stay where they are (Operation not permitted")),
];
/// Programs that do not ask whether variables have pointers.
const UNAWARE: [&str; 7] = ["amo_types", "collectives", "locks", "memory", "old", "rma_types", "waiting"];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let program = Arc::new(Program::new(here().join("tests/c/statics.c"), "statics", GNU));
    for (case, arguments, environment, says) in CASES {
        for layout in LAYOUTS {
            // Nobody is odd alone, and without a launcher there is nobody else to reach.
            if case == "odd" && layout.is_none() {
                continue;
            }
            let program = Arc::clone(&program);
            let name = format!("statics::{case}::{}", layout_name(layout));
            trials.push(Trial::test(name, move || {
                let output = run_with(program.path()?, layout, arguments, environment)?;
                verdict("statics", &output)?;
                said(&output, "stay where they are", says)
            }));
        }
    }
    // Also in memory that was held while the program started, for a thread of it was running.
    for fault in ["fault", "page"] {
        let program = Arc::clone(&program);
        trials.push(Trial::test(format!("statics::a_{fault}_is_the_end"), move || {
            let output = run_with(program.path()?, Some((2, 1)), &[fault], &[])?;
            let text = everything(&output);
            let is_right = !output.status.success() && text.contains("was killed by signal 11 (SIGSEGV)");
            if is_right { Ok(()) } else { Err(format!("{}\n{text}", output.status).into()) }
        }));
    }
    trials.extend(in_one_file());
    for name in UNAWARE {
        let way = if name == "locks" { NO_PIE } else { C11 };
        let program = Arc::new(Program::new(here().join(format!("tests/c/{name}.c")), name, way));
        for layout in [Some((4, 1)), Some((4, 2))] {
            let program = Arc::clone(&program);
            trials.push(Trial::test(format!("statics::left::{name}::{}", layout_name(layout)), move || {
                let output = run_with(program.path()?, layout, &[], &[SWITCH])?;
                verdict(name, &output)
            }));
        }
    }
    let even = Arc::new(Program::new(here().join("tests/c/programs.c"), "programs", C11));
    let odd = Program::new(here().join("tests/c/programs.c"), "programs", ("other", "oshcc", &["-std=c11", "-DOTHER"]));
    let odd = Arc::new(odd);
    for layout in [Some((4, 1)), Some((4, 2))] {
        for (name, arguments) in [("programs", &[][..]), ("programs_across", &["across"][..])] {
            let (even, odd) = (Arc::clone(&even), Arc::clone(&odd));
            trials.push(Trial::test(format!("statics::{name}::{}", layout_name(layout)), move || {
                two_programs(even.path()?, odd.path()?, layout, arguments)
            }));
        }
    }
    trials
}

/// Programs that are linked with the archives of everything, whose libraries have their variables in the same segment.
fn in_one_file() -> Vec<Trial> {
    if !has_archives() {
        eprintln!("left out: programs in one file, for there is no libc.a");
        return Vec::new();
    }
    let mut trials = Vec::new();
    let names = [("statics", &["nothing"][..]), ("memory", &[]), ("locks", &[]), ("collectives", &[]), ("setup", &[])];
    for way in STATIC {
        for (name, arguments) in names {
            let program = Arc::new(Program::new(here().join(format!("tests/c/{name}.c")), name, way));
            for layout in [None, Some((4, 1)), Some((4, 2)), Some((5, 3))] {
                let program = Arc::clone(&program);
                trials.push(Trial::test(format!("{name}::{}::{}", way.0, layout_name(layout)), move || {
                    let output = run_with(program.path()?, layout, arguments, &[])?;
                    verdict(name, &output)?;
                    said(&output, "variables", None)
                }));
            }
        }
    }
    trials
}

/// Whether the C library is here as an archive.
fn has_archives() -> bool {
    let asked = std::process::Command::new("cc").arg("-print-file-name=libc.a").output();
    asked.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}

/// A job with another program at each second PE.
fn two_programs(even: &Path, odd: &Path, layout: Layout, arguments: &[&str]) -> Result<(), Failed> {
    let script = prefix("openshmem")?.join("two_programs.sh");
    std::fs::write(
        &script,
        format!("if [ $((LONGARM_RANK % 2)) = 1 ]; then exec {odd:?} \"$@\"; fi\nexec {even:?} \"$@\"\n"),
    )?;
    let script = script.to_str().ok_or("the folder's name is no text")?;
    let output = run_with(Path::new("sh"), layout, &[&[script], arguments].concat(), &[])?;
    if arguments.is_empty() {
        verdict("programs", &output)?;
        return said(&output, "the PEs run different programs", Some("the PEs run different programs"));
    }
    let text = everything(&output);
    let is_right =
        |line: &str| ["rank 3", "shmem_long_p:", "PE 2 has no such variable"].iter().all(|part| line.contains(part));
    if output.status.success() || text.contains("goes on") || !text.lines().any(is_right) {
        return Err(format!("{}\n{text}", output.status).into());
    }
    Ok(())
}

/// One line, or none, speaks of this.
fn said(output: &std::process::Output, about: &str, says: Option<&str>) -> Result<(), Failed> {
    let text = everything(output);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(about)).collect();
    match (lines.as_slice(), says) {
        ([], None) => Ok(()),
        ([line], Some(says)) if line.contains(says) => Ok(()),
        _ => Err(format!("looked for {says:?}:\n{text}").into()),
    }
}
