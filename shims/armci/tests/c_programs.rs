//! The C programs in `c/`: one for each family of calls, compiled three ways; the first way runs in
//! every layout, the others in two.
//!
//! Each program checks itself and says `ok` with its name at the end. `fatal` is different: what it does ends the job,
//! and has to do so with one line that says who, which call and why. So is `heir`, one process of which dies. In `survivors` a process dies,
//! and the others end well.
#![forbid(unsafe_code)]

#[path = "../../test_support/built.rs"]
mod built;
#[path = "c_programs/compiled.rs"]
mod compiled;
#[path = "c_programs/fatal.rs"]
mod fatal;
#[path = "c_programs/heir.rs"]
mod heir;
#[path = "support/library.rs"]
mod library;
#[path = "c_programs/survivors.rs"]
mod survivors;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Arc, OnceLock};

use built::everything;
use compiled::{Build, Compiled};
use libtest_mimic::{Arguments, Failed, Trial};

/// The families. Every file of `c/` but those that are included is one of these, `fatal`, `heir` or `survivors`.
const PROGRAMS: [&str; 26] = [
    "accumulate",
    "aggregate",
    "checkpoint",
    "contiguous",
    "domains",
    "errors",
    "extensions",
    "flag_notify",
    "giov",
    "gpc",
    "groups",
    "init_end",
    "many_windows",
    "memory",
    "messages",
    "mutex",
    "nonblocking",
    "ordering",
    "profiling",
    "reductions",
    "rmw",
    "stride_iterator",
    "strided",
    "threads",
    "value",
    "vector",
];

/// Kills a job that hangs, so that the others are still run. No job needs a tenth of it.
const SAFETY_NET_S: &str = "300";

/// How many ranks on how many nodes.
#[derive(Clone, Copy)]
pub(crate) enum Layout {
    /// One rank without a launcher.
    Alone,
    /// Started by the launcher.
    Ranks { ranks: u32, nodes: u32 },
}

const LAYOUTS: [Layout; 5] = [
    Layout::Alone,
    Layout::Ranks { ranks: 4, nodes: 1 },
    Layout::Ranks { ranks: 4, nodes: 2 },
    Layout::Ranks { ranks: 4, nodes: 4 },
    Layout::Ranks { ranks: 5, nodes: 2 },
];

/// Where the ways of compiling after the first one run: what differs is how they are linked.
const FEW_LAYOUTS: [Layout; 2] = [Layout::Alone, Layout::Ranks { ranks: 4, nodes: 2 }];

impl Layout {
    fn name(self) -> String {
        match self {
            Layout::Alone => "alone".into(),
            Layout::Ranks { ranks, nodes } if ranks % nodes == 0 => format!("{nodes}_x_{}", ranks / nodes),
            Layout::Ranks { ranks, nodes } => format!("{ranks}_over_{nodes}"),
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One job at a time: each uses all processors.
    arguments.test_threads = Some(1);
    let mut trials = vec![Trial::test("every_file_is_a_program_that_is_run", every_file_is_run)];
    for program in PROGRAMS {
        for way in Build::ALL {
            let compiled = Arc::new(Compiled::new(program, way));
            let layouts = if way == Build::ALL[0] { &LAYOUTS[..] } else { &FEW_LAYOUTS[..] };
            for &layout in layouts {
                let compiled = Arc::clone(&compiled);
                let name = format!("{program}::{}::{}", way.name(), layout.name());
                trials.push(Trial::test(name, move || passes(&compiled, program, layout)));
            }
        }
    }
    trials.extend(fatal::trials());
    trials.extend(heir::trials());
    trials.extend(survivors::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn every_file_is_run() -> Result<(), Failed> {
    let folder = compiled::sources();
    let mut found = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            found.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    found.sort();
    let mut known: Vec<&str> = PROGRAMS.into_iter().chain(["fatal", "heir", "survivors"]).collect();
    known.sort();
    if found == known { Ok(()) } else { Err(format!("in the folder: {found:?}\nrun: {known:?}").into()) }
}

fn passes(compiled: &Compiled, program: &str, layout: Layout) -> Result<(), Failed> {
    let output = run(compiled.path()?, layout, &[])?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said_ok = stdout.lines().filter(|line| *line == format!("ok {program}")).count();
    if output.status.success() && said_ok == 1 {
        return Ok(());
    }
    Err(format!("{}, said ok {said_ok} times\n{}", output.status, everything(&output)).into())
}

/// Runs a program as a job.
fn run(program: &Path, layout: Layout, arguments: &[&str]) -> Result<Output, Failed> {
    run_with(program, layout, arguments, &[])
}

/// The same with variables of the environment.
fn run_with(
    program: &Path,
    layout: Layout,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<Output, Failed> {
    let mut command = match layout {
        Layout::Alone => Command::new(program),
        Layout::Ranks { ranks, nodes } => {
            let mut command = Command::new(launcher()?);
            command.args(["run", "-n", &ranks.to_string(), "--nodes", &nodes.to_string()]);
            command.args(["--timeout", SAFETY_NET_S, "--"]).arg(program);
            command
        }
    };
    Ok(command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()).output()?)
}

/// The `longarm` command of this very tree: cargo builds it if need be.
fn launcher() -> Result<&'static Path, String> {
    static LAUNCHER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = LAUNCHER.get_or_init(|| {
        built::build_workspace()?;
        Ok(built::profile_folder()?.join("longarm"))
    });
    found.as_ref().map(PathBuf::as_path).map_err(String::clone)
}
