//! The C programs in `c/` and the examples, compiled by the wrappers `oshcc` and `oshc++` and started by `oshrun`: one for
//! each family of calls, the first way of compiling in every layout, the others in two.
//!
//! Each program checks itself and says `ok` with its name at the end. `fatal` is different: what it does ends the job.
#![forbid(unsafe_code)]

#[path = "../../test_support/built.rs"]
mod built;
#[path = "c_programs/fatal.rs"]
mod fatal;
#[path = "support/installed.rs"]
mod installed;
#[path = "c_programs/statics.rs"]
mod statics;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Arc, OnceLock};

use built::{everything, succeed};
use installed::{here, prefix};
use libtest_mimic::{Arguments, Failed, Trial};

/// What the wrappers are asked for: a language, and how the library is linked.
pub(crate) type Build = (&'static str, &'static str, &'static [&'static str]);

const C99: Build = ("c99", "oshcc", &["-std=c99"]);
const C11: Build = ("c11", "oshcc", &["-std=c11"]);
const CXX: Build = ("cxx17", "oshc++", &["-x", "c++", "-std=c++17"]);
/// Programs that are at fixed addresses have their variables elsewhere.
const NO_PIE: Build = ("no_pie", "oshcc", &["-std=c11", "-no-pie", "-fno-pie"]);
/// With the archive in place of the shared library.
const ARCHIVE: Build = ("archive", "oshcc", &["-std=c11", "-DARCHIVE"]);

/// The programs, and how each is compiled. Every file of `c/` is one of these, `fatal`, or one of [`statics`].
const PROGRAMS: [(&str, &[Build]); 14] = [
    ("again", &[C11, ARCHIVE]),
    ("align", &[C11]),
    ("amo_types", &[C99, CXX]),
    ("collectives", &[C99]),
    ("edges", &[C99, C11, CXX]),
    ("generic", &[C11, CXX]),
    ("locks", &[C11, NO_PIE]),
    ("memory", &[C11, CXX, NO_PIE, ARCHIVE]),
    ("old", &[C99, C11, CXX]),
    ("rma_types", &[C99, ARCHIVE]),
    ("setup", &[C11, NO_PIE]),
    ("splits", &[C11]),
    ("teams", &[C99, CXX]),
    ("waiting", &[C99, CXX]),
];

/// Nothing may even be warned about.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
/// Kills a job that hangs, so that the others are still run. No job needs a tenth of it.
const SAFETY_NET_S: &str = "300";

/// How many PEs on how many nodes; nobody starts the first.
pub(crate) type Layout = Option<(u32, u32)>;

const LAYOUTS: [Layout; 6] = [None, Some((4, 1)), Some((4, 2)), Some((4, 4)), Some((5, 2)), Some((16, 1))];
const FEW_LAYOUTS: [Layout; 2] = [None, Some((4, 2))];

pub(crate) fn layout_name(layout: Layout) -> String {
    layout.map_or("alone".into(), |(pes, nodes)| format!("{pes}_over_{nodes}"))
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One job at a time: each uses all processors.
    arguments.test_threads = Some(1);
    let mut trials = vec![Trial::test("every_file_is_a_program_that_is_run", every_file_is_run)];
    for (name, ways) in PROGRAMS {
        for (place, way) in ways.iter().enumerate() {
            let program = Arc::new(Program::new(here().join(format!("tests/c/{name}.c")), name, *way));
            let layouts = if place == 0 { &LAYOUTS[..] } else { &FEW_LAYOUTS[..] };
            for &layout in layouts {
                let program = Arc::clone(&program);
                let title = format!("{name}::{}::{}", way.0, layout_name(layout));
                trials.push(Trial::test(title, move || passes(&program, layout)));
            }
        }
    }
    trials.extend(odd_heaps());
    trials.extend([
        Trial::test("oshcc_links_mathematics", links_mathematics),
        Trial::test("oshcc_without_a_file_answers_as_the_compiler_does", without_a_file),
        Trial::test("oshcc_says_its_version", says_its_version),
    ]);
    trials.extend(examples());
    trials.extend(fatal::trials());
    trials.extend(statics::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The wrapper, as a user types it.
fn oshcc(arguments: &[&str]) -> Result<Output, Failed> {
    Ok(Command::new(prefix("openshmem")?.join("bin/oshcc")).args(arguments).stdin(Stdio::null()).output()?)
}

fn links_mathematics() -> Result<(), Failed> {
    let folder = prefix("openshmem")?;
    let (source, program) = (folder.join("root.c"), folder.join("root"));
    std::fs::write(
        &source,
        "#include <math.h>\n#include <shmem.h>\n\
         int main(int count, char **words) { (void)words; shmem_init(); double root = cbrt(count); shmem_finalize(); return root > 2; }\n",
    )?;
    // Also where the only file is behind an option that has a value, and with none but an object.
    let object = folder.join("root.o");
    let [source, program, object] = [&source, &program, &object].map(|path| path.to_str().unwrap_or_default());
    for arguments in [
        &["-o", program, source][..],
        &["-c", source, "-o", object],
        &["-L", "/", object, "-o", program],
        &[source, "-o", program],
    ] {
        let output = oshcc(arguments)?;
        if !output.status.success() {
            return Err(format!("{arguments:?}: {}", everything(&output)).into());
        }
    }
    verdict_of_end(&Command::new(program).output()?)
}

fn verdict_of_end(output: &Output) -> Result<(), Failed> {
    if output.status.success() { Ok(()) } else { Err(everything(output).into()) }
}

fn without_a_file() -> Result<(), Failed> {
    for arguments in [&[][..], &["-O2"], &["-o", "program"], &["-I", "folder", "-Wall"]] {
        let output = oshcc(arguments)?;
        let text = everything(&output);
        if output.status.success() || !text.contains("no input files") || text.contains("main") {
            return Err(format!("{arguments:?}: {text}").into());
        }
    }
    verdict_of_end(&oshcc(&["--version"])?)?;
    verdict_of_end(&oshcc(&["-v"])?)
}

fn says_its_version() -> Result<(), Failed> {
    for option in ["-showme:version", "--showme:version"] {
        let said = everything(&oshcc(&[option])?);
        if said != format!("oshcc: longarm {} (OpenSHMEM 1.6)\n", env!("CARGO_PKG_VERSION")) {
            return Err(said.into());
        }
    }
    Ok(())
}

/// `align` with heaps of sizes that are no power of two, and up to which alignment there are blocks then.
fn odd_heaps() -> Vec<Trial> {
    let program = Arc::new(Program::new(here().join("tests/c/align.c"), "align", C11));
    let mut trials = Vec::new();
    for (size, up_to) in [("3.1M", "0x200000"), ("100k", "0x10000"), ("64M", "0x2000000")] {
        for layout in [Some((4, 1)), Some((3, 2))] {
            let program = Arc::clone(&program);
            trials.push(Trial::test(format!("align::heap_of_{size}::{}", layout_name(layout)), move || {
                let output = run_with(program.path()?, layout, &[up_to], &[("SHMEM_SYMMETRIC_SIZE", size)])?;
                verdict("align", &output)
            }));
        }
    }
    trials
}

/// The programs that users start from, each of which checks its answer too.
fn examples() -> Vec<Trial> {
    let Ok(files) = c_files(&here().join("examples")) else { return Vec::new() };
    let mut trials = Vec::new();
    for name in files {
        let name: &'static str = name.leak();
        let program = Arc::new(Program::new(here().join(format!("examples/{name}.c")), name, C11));
        for layout in [Some((4, 1)), Some((4, 2))] {
            let program = Arc::clone(&program);
            trials.push(Trial::test(format!("example::{name}::{}", layout_name(layout)), move || {
                passes(&program, layout)
            }));
        }
    }
    trials
}

/// The names of the C programs of a folder.
fn c_files(folder: &Path) -> Result<Vec<String>, std::io::Error> {
    let mut found = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            found.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

fn every_file_is_run() -> Result<(), Failed> {
    let found = c_files(&here().join("tests/c"))?;
    let mut known: Vec<&str> =
        PROGRAMS.iter().map(|(name, _)| *name).chain(["fatal"]).chain(statics::PROGRAMS).collect();
    known.sort();
    if found == known { Ok(()) } else { Err(format!("in the folder: {found:?}\nrun: {known:?}").into()) }
}

/// A program compiled one way, once, when it is first needed.
pub(crate) struct Program {
    source: PathBuf,
    name: &'static str,
    way: Build,
    path: OnceLock<Result<PathBuf, String>>,
}

impl Program {
    pub(crate) fn new(source: PathBuf, name: &'static str, way: Build) -> Program {
        Program { source, name, way, path: OnceLock::new() }
    }

    pub(crate) fn path(&self) -> Result<&Path, String> {
        let compiled = self.path.get_or_init(|| self.compile());
        compiled.as_ref().map(PathBuf::as_path).map_err(String::clone)
    }

    fn compile(&self) -> Result<PathBuf, String> {
        let prefix = prefix("openshmem")?;
        let (way, wrapper, arguments) = self.way;
        let program = prefix.join(format!("{}_{way}", self.name));
        let is_archive = arguments.contains(&"-DARCHIVE");
        let mut command = Command::new(if is_archive { PathBuf::from("cc") } else { prefix.join("bin").join(wrapper) });
        command.args(arguments).args(WARNINGS);
        if is_archive {
            command.arg("-I").arg(prefix.join("include"));
        }
        command.arg(&self.source).args(["-x", "none", "-o"]).arg(&program);
        if is_archive {
            command.arg(prefix.join("lib/liblongarm_shmem.a")).args(["-lgcc_s"]);
        }
        succeed(command.args(["-lpthread", "-lm", "-ldl"]))?;
        Ok(program)
    }
}

fn passes(program: &Program, layout: Layout) -> Result<(), Failed> {
    verdict(program.name, &run(program.path()?, layout, &[])?)
}

/// Whether a job has ended well and has said so, once.
pub(crate) fn verdict(name: &str, output: &Output) -> Result<(), Failed> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said_ok = stdout.lines().filter(|line| *line == format!("ok {name}")).count();
    if output.status.success() && said_ok == 1 {
        return Ok(());
    }
    Err(format!("{}, said ok {said_ok} times\n{}", output.status, everything(output)).into())
}

/// Runs a program as a job.
pub(crate) fn run(program: &Path, layout: Layout, arguments: &[&str]) -> Result<Output, Failed> {
    run_with(program, layout, arguments, &[])
}

/// The same with variables of the environment.
pub(crate) fn run_with(
    program: &Path,
    layout: Layout,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<Output, Failed> {
    let mut command = match layout {
        None => Command::new(program),
        Some((pes, nodes)) => {
            let mut command = Command::new(prefix("openshmem")?.join("bin/oshrun"));
            command
                .args(["-np", &pes.to_string(), "--nodes", &nodes.to_string(), "--timeout", SAFETY_NET_S])
                .arg(program);
            command
        }
    };
    Ok(command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()).output()?)
}
