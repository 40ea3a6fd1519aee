//! Jobs that MPI has started, with every MPI of Debian that is installed: on one node, and cut into several.

#[path = "../../test_support/built.rs"]
mod built;
#[path = "support/library.rs"]
mod library;
#[path = "../../test_support/mpis.rs"]
mod mpis;

use std::process::{Command, Output};

use built::{everything, succeed};
use libtest_mimic::{Arguments, Failed, Trial};
use mpis::Installed;

/// Processes, and nodes that they are cut into.
const LAYOUTS: [(u32, u32); 5] = [(1, 1), (4, 1), (4, 2), (4, 4), (5, 2)];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for mpi in mpis::installed() {
        for (processes, nodes) in LAYOUTS {
            let name = format!("a_job_of_{}_works::{processes}_processes_on_{nodes}_nodes", mpi.name);
            trials.push(Trial::test(name, move || works(mpi, "job", processes, nodes)));
        }
        let name = format!("a_program_may_leave_{}_to_the_library", mpi.name);
        trials.push(Trial::test(name, move || works(mpi, "without_init", 3, 2)));
        let name = format!("a_bad_address_ends_a_job_of_{}_with_one_line", mpi.name);
        trials.push(Trial::test(name, move || ends(mpi)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn run(mpi: &Installed, source: &str, (processes, nodes): (u32, u32), arguments: &[&str]) -> Result<Output, Failed> {
    let library = library::library("armci-inside-mpi")?;
    let here = library::here();
    let folder = tempfile::tempdir()?;
    let program = folder.path().join(source);
    let mut compiler = Command::new(mpi.compiler());
    compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here.join("include"));
    compiler.arg(here.join("tests/mpi").join(format!("{source}.c"))).arg("-o").arg(&program);
    // One that calls no function of MPI is linked with it all the same.
    compiler.arg("-Wl,--no-as-needed").arg(library.join("libarmci.so"));
    succeed(compiler.arg(format!("-Wl,-rpath,{}", library.display())))?;
    Ok(mpi.job(&program, processes, nodes).args(arguments).output()?)
}

fn works(mpi: &Installed, source: &str, processes: u32, nodes: u32) -> Result<(), Failed> {
    let ran = run(mpi, source, (processes, nodes), &[])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() || !said.contains(&format!("ok {processes} processes")) {
        return Err(format!("{}\n{}", ran.status, everything(&ran)).into());
    }
    Ok(())
}

fn ends(mpi: &Installed) -> Result<(), Failed> {
    let ran = run(mpi, "job", (4, 2), &["2"])?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("is in no segment")).collect();
    if ran.status.success() {
        return Err("the job went on".into());
    }
    match lines[..] {
        [line] if line.contains("rank 2") && line.contains("ARMCI_Put") && line.contains("process 3") => Ok(()),
        _ => Err(format!("{}\n{said}", ran.status).into()),
    }
}
