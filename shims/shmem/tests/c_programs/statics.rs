//! Variables that the system does not let be mapped anew, that are left where they are, and those of several programs: `c/statics`,
//! `c/signals` and `c/programs`, and other programs with the switch set.

use std::path::Path;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::built::everything;
use crate::installed::{here, prefix};
use crate::{C11, Layout, NO_PIE, Program, layout_name, run_with, verdict};

/// The programs of `c/` that are run here.
pub(crate) const PROGRAMS: [&str; 3] = ["programs", "signals", "statics"];

/// Everything in one file, which is loaded anywhere, or at a fixed address. Such a program does not fork.
const STATIC: [crate::Build; 2] = [
    ("static_pie", "oshcc", &["-std=gnu11", "-static-pie", "-DIN_ONE_FILE"]),
    ("static", "oshcc", &["-std=gnu11", "-static", "-DIN_ONE_FILE"]),
];
const GNU: crate::Build = ("gnu", "oshcc", &["-std=gnu11"]);
/// The second has neighbours, others, and a PE without neighbours.
const LAYOUTS: [Layout; 2] = [Some((4, 1)), Some((5, 3))];
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
            killed_by_fault(program.path()?, fault)
        }));
    }
    trials.extend(signals());
    trials.extend(in_one_file());
    for name in UNAWARE {
        let way = if name == "locks" { NO_PIE } else { C11 };
        let program = Arc::new(Program::new(here().join(format!("tests/c/{name}.c")), name, way));
        let layout = Some((4, 2));
        trials.push(Trial::test(format!("statics::left::{name}::{}", layout_name(layout)), move || {
            let output = run_with(program.path()?, layout, &[], &[SWITCH])?;
            verdict(name, &output)
        }));
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

/// What comes while variables move, and after it.
fn signals() -> Vec<Trial> {
    let mut trials = Vec::new();
    let archive: crate::Build = ("gnu_archive", "oshcc", &["-std=gnu11", "-DARCHIVE"]);
    for (way, layouts) in [(GNU, &[None, Some((4, 2))][..]), (archive, &[Some((4, 1))])] {
        let program = Arc::new(Program::new(here().join("tests/c/signals.c"), "signals", way));
        for &layout in layouts {
            for case in ["blocked", "timer", "threads", "since", "fork"] {
                let program = Arc::clone(&program);
                let name = format!("statics::signals::{case}::{}::{}", way.0, layout_name(layout));
                trials.push(Trial::test(name, move || {
                    let output = run_with(program.path()?, layout, &[case], &[])?;
                    verdict("signals", &output)?;
                    let says = (case == "blocked").then_some("stay where they are (a thread blocks SIGSEGV)");
                    said(&output, "stay where they are", says)
                }));
            }
        }
        for case in ["raise", "kill"] {
            let program = Arc::clone(&program);
            trials.push(Trial::test(format!("statics::signals::{case}::{}", way.0), move || {
                killed_by_fault(program.path()?, case)
            }));
        }
    }
    trials
}

/// The job ends by the signal of faults.
fn killed_by_fault(program: &Path, case: &str) -> Result<(), Failed> {
    let output = run_with(program, Some((2, 1)), &[case], &[])?;
    let text = everything(&output);
    let is_right = !output.status.success() && text.contains("was killed by signal 11 (SIGSEGV)");
    if is_right { Ok(()) } else { Err(format!("{}\n{text}", output.status).into()) }
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
            for layout in LAYOUTS {
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
