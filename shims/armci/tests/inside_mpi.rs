//! Jobs that MPI has started, with every MPI of Debian that is installed: on one node, and cut into several.

#[path = "support/library.rs"]
mod library;

use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};

/// An MPI by Debian's names.
struct Installed {
    name: &'static str,
    /// What its launcher needs as root, with more ranks than cores.
    launcher_arguments: &'static [&'static str],
}

const ALL: [Installed; 2] = [
    Installed { name: "mpich", launcher_arguments: &[] },
    Installed { name: "openmpi", launcher_arguments: &["--oversubscribe", "--bind-to", "none"] },
];

/// Processes, and nodes that they are cut into.
const LAYOUTS: [(u32, u32); 5] = [(1, 1), (4, 1), (4, 2), (4, 4), (5, 2)];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for mpi in &ALL {
        if Command::new(format!("mpicc.{}", mpi.name)).arg("--version").output().is_err() {
            eprintln!("left out: there is no mpicc.{}", mpi.name);
            continue;
        }
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
    let compiled = Command::new(format!("mpicc.{}", mpi.name))
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/mpi").join(format!("{source}.c")))
        .arg("-o")
        .arg(&program)
        // One that calls no function of MPI is linked with it all the same.
        .arg("-Wl,--no-as-needed")
        .arg(library.join("libarmci.so"))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()?;
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr).into_owned().into());
    }
    let ran = Command::new(format!("mpiexec.{}", mpi.name))
        .args(mpi.launcher_arguments)
        .args(["-n", &processes.to_string()])
        .arg(&program)
        .args(arguments)
        .env("LONGARM_NODES", nodes.to_string())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .output()?;
    Ok(ran)
}

fn works(mpi: &Installed, source: &str, processes: u32, nodes: u32) -> Result<(), Failed> {
    let ran = run(mpi, source, (processes, nodes), &[])?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    if !ran.status.success() || !said.contains(&format!("ok {processes} processes")) {
        return Err(format!("{}\n{said}{}", ran.status, String::from_utf8_lossy(&ran.stderr)).into());
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
