//! Jobs under every MPI that can be found: this very program, started again by the MPI's `mpiexec`, loads the MPI's
//! library and does with it what longarm does.
//!
//! Found are the distribution's (by `mpicc.mpich`, `mpicc.openmpi` and `mpicc`) and those installed under the prefixes
//! that `LONGARM_TEST_MPI_PREFIXES` lists, apart by colons; each prefix holds `bin/mpiexec` and `lib/libmpi*.so.*`.
//! An ABI that nothing here has is skipped with a word.

#[path = "real/child.rs"]
mod child;
#[path = "real/installed.rs"]
mod installed;

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use installed::Installed;
use libtest_mimic::{Arguments, Failed, Trial};

/// What the first rank prints when all went well.
const ALL_WELL: &str = "all well";
/// What a job ends with that is aborted.
const ABORT_STATUS: i32 = 7;
/// When a job that hangs is killed. Nothing is asserted about the time that a good job takes.
const HANG_SECONDS: &str = "300";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, flag, abi, library, how, part] = words.as_slice()
        && flag == "--child"
    {
        return child::run(abi, library, how, part);
    }
    let arguments = Arguments::from_args();
    let found = installed::find();
    for abi in ["mpich", "open_mpi", "standard"] {
        if !found.iter().any(|mpi| mpi.abi == abi) {
            eprintln!(
                "skipped: no MPI of the ABI {abi} here; install one, or name its prefix in {}",
                installed::VARIABLE
            );
        }
    }
    let trials = found.into_iter().flat_map(trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The jobs of one MPI.
fn trials(mpi: Installed) -> Vec<Trial> {
    let trial = |sentence: &str, ranks: u32, how: &'static str, part: &'static str, judge: Judge| {
        let mpi = mpi.clone();
        Trial::test(format!("{}::{}::{sentence}", mpi.abi, mpi.name), move || judge(&run(&mpi, ranks, how, part)?))
    };
    vec![
        trial("three_ranks_meet_exchange_and_form_groups", 3, "linked", "all", is_well),
        trial("one_rank_is_a_job_too", 1, "linked", "all", is_well),
        trial("an_mpi_that_a_plug_in_loaded_for_itself_is_found", 2, "apart", "all", is_well),
        trial("a_rank_that_aborts_ends_the_others_with_its_status", 3, "linked", "abort", is_aborted),
        trial("an_error_on_a_groups_communicator_goes_to_the_programs_handler", 2, "linked", "handler", is_ended),
    ]
}

type Judge = fn(&Output) -> Result<(), Failed>;

fn is_well(output: &Output) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stdout).contains(ALL_WELL);
    if output.status.success() && said { Ok(()) } else { Err(told("the job failed", output)) }
}

fn is_aborted(output: &Output) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stdout).contains(ALL_WELL);
    if output.status.code() == Some(ABORT_STATUS) && !said {
        return Ok(());
    }
    Err(told("the job did not end as the rank that aborted wanted", output))
}

fn is_ended(output: &Output) -> Result<(), Failed> {
    let out = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && out.contains(child::ERROR_NEXT) && !out.contains(ALL_WELL) {
        return Ok(());
    }
    Err(told("the program's handler, which ends the job, did not get the error", output))
}

fn told(what: &str, output: &Output) -> Failed {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Failed::from(format!("{what}: {}\n-- stdout\n{out}\n-- stderr\n{err}", output.status))
}

/// This program once a rank.
fn run(mpi: &Installed, ranks: u32, how: &str, part: &str) -> Result<Output, Failed> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", HANG_SECONDS]).arg(&mpi.mpiexec).args(["-n", &ranks.to_string()]);
    if mpi.abi == "open_mpi" {
        command.arg("--oversubscribe");
        for package in ["OMPI", "PRTE"] {
            command.env(format!("{package}_ALLOW_RUN_AS_ROOT"), "1");
            command.env(format!("{package}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
        }
    }
    if let Some(prefix) = &mpi.prefix {
        set_prefix(&mut command, mpi, prefix)?;
    }
    command.arg(program).arg("--child").arg(mpi.abi).arg(&mpi.library).args([how, part]);
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.code() {
        Some(124 | 137) => Err(told(&format!("hung, and was killed after {HANG_SECONDS} s"), &output)),
        _ => Ok(output),
    }
}

/// What an MPI needs that is not installed where it was built for.
fn set_prefix(command: &mut Command, mpi: &Installed, prefix: &Path) -> Result<(), Failed> {
    let mut path = prefix.join("bin").into_os_string();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    command.env("PATH", path).env("I_MPI_ROOT", prefix);
    if mpi.abi == "open_mpi" {
        command.env("OPAL_PREFIX", prefix).env("PRTE_PREFIX", prefix);
    }
    Ok(())
}
