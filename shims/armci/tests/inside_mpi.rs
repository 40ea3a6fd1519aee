//! Jobs that MPI has started, with every MPI of Debian that is installed: on one node, and cut into several.

#[path = "../../test_support/built.rs"]
mod built;
#[path = "support/library.rs"]
mod library;
#[path = "../../test_support/mpis.rs"]
mod mpis;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use built::{everything, succeed};
use libtest_mimic::{Arguments, Failed, Trial};
use mpis::Installed;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use tempfile::TempDir;

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
        for (rank_0, nodes) in [("fails", 1), ("fails", 2), ("computes", 1), ("computes", 2)] {
            let name = format!(
                "no_rank_is_left_when_the_launcher_of_{}_is_killed::while_rank_0_{rank_0}_on_{nodes}_nodes",
                mpi.name
            );
            trials.push(Trial::test(name, move || leaves_nobody(mpi, rank_0, nodes)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A program, and the folder in which it is.
fn compile(mpi: &Installed, source: &str) -> Result<(PathBuf, TempDir), Failed> {
    let library = library::library("armci-inside-mpi")?;
    let here = library::here();
    let folder = tempfile::tempdir()?;
    let program = folder.path().join(source);
    let mut compiler = Command::new(mpi.compiler());
    compiler
        .args(["-std=c99", "-D_POSIX_C_SOURCE=200112L", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"));
    compiler.arg(here.join("tests/mpi").join(format!("{source}.c"))).arg("-o").arg(&program);
    // One that calls no function of MPI is linked with it all the same.
    compiler.arg("-Wl,--no-as-needed").arg(library.join("libarmci.so"));
    succeed(compiler.arg(format!("-Wl,-rpath,{}", library.display())))?;
    Ok((program, folder))
}

fn run(mpi: &Installed, source: &str, (processes, nodes): (u32, u32), arguments: &[&str]) -> Result<Output, Failed> {
    let (program, _folder) = compile(mpi, source)?;
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

/// Kills the process of the launcher that has started the ranks, while they sleep in a collective.
fn leaves_nobody(mpi: &Installed, rank_0: &str, nodes: u32) -> Result<(), Failed> {
    let (program, _folder) = compile(mpi, "sleepers")?;
    let mut job = mpi.job(&program, 4, nodes);
    let mut job = job.arg(rank_0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(job.stdout.take().ok_or("stdout is piped")?).lines();
    let (mut ranks, mut starters) = (Vec::new(), BTreeSet::new());
    while ranks.len() < 4 {
        let line = lines.next().ok_or("the ranks did not start")??;
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["rank", _, "is", "process", process, "of", starter] = words[..] else {
            return Err(format!("a rank says `{line}`").into());
        };
        ranks.push(rustix::process::pidfd_open(pid(process)?, PidfdFlags::empty())?);
        starters.insert(starter.parse::<i32>()?);
    }
    for starter in starters {
        rustix::process::kill_process(pid(&starter.to_string())?, Signal::KILL)?;
    }
    // Each becomes readable when its process has ended; one that stays is a hang.
    for rank in &ranks {
        rustix::event::poll(&mut [PollFd::new(rank, PollFlags::IN)], None)?;
    }
    // What is left of the launcher is no matter of ours.
    let _ = job.kill();
    job.wait()?;
    Ok(())
}

fn pid(text: &str) -> Result<Pid, Failed> {
    Ok(Pid::from_raw(text.parse()?).ok_or("a process has a number above 0")?)
}
