//! ARMCI, OpenSHMEM and the Rust interface in one process: one world, in every order of starting and ending, started by
//! `longarm run` and by nobody; ARMCI and OpenSHMEM also by every MPI of Debian that is installed.

#[path = "../../test_support/built.rs"]
mod built;
#[path = "../../test_support/mpis.rs"]
mod mpis;

use std::ffi::{c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::OnceLock;

use built::{everything, profile_folder, succeed};
use libtest_mimic::{Arguments, Failed, Trial};

/// Says to this program, started as a rank, who comes first.
const RANK: &str = "MIXED_RUST_FIRST";
/// Kills a job that hangs, so that the others are still run.
const SAFETY_NET_S: &str = "300";
const LAYOUTS: [(u32, u32); 4] = [(1, 1), (3, 1), (4, 2), (3, 3)];
const ORDERS: [&str; 2] = ["armci", "shmem"];

fn main() -> ExitCode {
    if let Ok(first) = std::env::var(RANK) {
        rank(&first);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // One job at a time: each uses all processors.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for first in ORDERS {
        for last in ORDERS {
            let orders = format!("{first}_first_and_{last}_left");
            trials.push(Trial::test(format!("c::alone::{orders}"), move || {
                let mut job = Command::new(compiled("cc", &[], "mixed")?);
                said_ok(job.args([first, "none", leaves(last)]).output()?, 1)
            }));
            for (ranks, nodes) in LAYOUTS {
                trials.push(Trial::test(format!("c::{ranks}_over_{nodes}::{orders}"), move || {
                    let program = compiled("cc", &[], "mixed")?;
                    let mut job = launched(&program, ranks, nodes)?;
                    said_ok(job.args([first, "none", leaves(last)]).output()?, ranks)
                }));
            }
            trials.extend(inside_mpi(first, last, &orders));
        }
    }
    for first in ["rust", "shmem", "armci"] {
        for (ranks, nodes) in LAYOUTS {
            trials.push(Trial::test(format!("rust::{ranks}_over_{nodes}::{first}_first"), move || {
                let job = launched(&std::env::current_exe()?, ranks, nodes)?.env(RANK, first).output()?;
                said_ok(job, ranks)
            }));
        }
    }
    trials.push(Trial::test("the_libraries_of_each_alone_do_not_go_together_and_that_is_said", apart));
    trials.push(Trial::test("oshcc_links_what_both_need", by_wrapper));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Who is left is not the one who leaves first.
fn leaves(last: &str) -> &'static str {
    if last == "armci" { "shmem" } else { "armci" }
}

fn inside_mpi(first: &'static str, last: &'static str, orders: &str) -> Vec<Trial> {
    let mut trials = Vec::new();
    for mpi in mpis::installed() {
        for (own, ranks, nodes) in [("own", 3, 1), ("none", 4, 2)] {
            let name = format!("{}::{own}::{ranks}_over_{nodes}::{orders}", mpi.name);
            trials.push(Trial::test(name, move || {
                let program = compiled(&mpi.compiler(), &["-DWITH_MPI", "-Wl,--no-as-needed"], mpi.name)?;
                let mut job = mpi.job(&program, ranks, nodes);
                said_ok(job.args([first, own, leaves(last)]).output()?, ranks)
            }));
        }
    }
    trials
}

fn said_ok(output: Output, ranks: u32) -> Result<(), Failed> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let ok = format!("ok mixed {ranks}");
    if output.status.success() && stdout.lines().filter(|line| *line == ok).count() == 1 {
        return Ok(());
    }
    Err(format!("{}\n{}", output.status, everything(&output)).into())
}

/// A program of both libraries, each with a copy of longarm, which cannot both be a rank.
fn apart() -> Result<(), Failed> {
    let folder = folder()?;
    let program = folder.join("apart");
    let mut command = Command::new("cc");
    command.args(flags()).arg(here().join("tests/c/mixed.c")).arg("-o").arg(&program);
    command.arg("-L").arg(folder).args(["-larmci", "-llongarm_shmem"]);
    succeed(command.arg(format!("-Wl,-rpath,{}", folder.display())))?;
    let output = launched(&program, 2, 1)?.arg("armci").output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !stderr.contains("-llongarm") {
        return Err(format!("{}\n{stderr}", output.status).into());
    }
    Ok(())
}

/// As a user types it: `oshcc program.c -larmci`.
fn by_wrapper() -> Result<(), Failed> {
    let prefix = folder()?.join("prefix");
    let profile = profile_folder()?;
    let shims = here().join("..");
    let mut install = Command::new(shims.join("shmem/install.sh"));
    succeed(install.arg(profile.join("liblongarm_both.a")).arg(&prefix))?;
    let mut build = Command::new(shims.join("build-library.sh"));
    succeed(build.arg(profile.join("liblongarm_both.a")).arg(prefix.join("lib")))?;
    let program = prefix.join("mixed");
    let mut command = Command::new(prefix.join("bin/oshcc"));
    succeed(command.args(flags()).arg(here().join("tests/c/mixed.c")).args(["-larmci", "-o"]).arg(&program))?;
    said_ok(launched(&program, 2, 1)?.args(["armci", "none", "shmem"]).output()?, 2)
}

/// A job of `longarm run`.
fn launched(program: &Path, ranks: u32, nodes: u32) -> Result<Command, String> {
    folder()?;
    let mut command = Command::new(profile_folder()?.join("longarm"));
    command.args(["run", "-n", &ranks.to_string(), "--nodes", &nodes.to_string(), "--timeout", SAFETY_NET_S]);
    command.arg(program).stdin(Stdio::null());
    Ok(command)
}

fn flags() -> Vec<String> {
    let include = |shim: &str| format!("-I{}", here().join("..").join(shim).join("include").display());
    ["-std=c11", "-Wall", "-Wextra", "-Werror"]
        .map(str::to_owned)
        .into_iter()
        .chain([include("armci"), include("shmem")])
        .collect()
}

/// `mixed.c` with the library of both.
fn compiled(compiler: &str, arguments: &[&str], name: &str) -> Result<PathBuf, String> {
    let folder = folder()?;
    let program = folder.join(name);
    if !program.exists() {
        let mut command = Command::new(compiler);
        command.args(flags()).args(arguments).arg(here().join("tests/c/mixed.c")).arg("-o").arg(&program);
        command.arg("-L").arg(folder).arg("-llongarm").arg(format!("-Wl,-rpath,{}", folder.display()));
        succeed(&mut command)?;
    }
    Ok(program)
}

/// Where the libraries are, made anew for this run as `make install` makes them.
fn folder() -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        built::build_workspace()?;
        let profile = profile_folder()?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mixed");
        let _ = std::fs::remove_dir_all(&folder);
        for library in ["liblongarm", "libarmci", "liblongarm_shmem"] {
            let mut script = Command::new(here().join("../build-library.sh"));
            succeed(script.arg(profile.join("liblongarm_both.a")).arg(&folder).arg(library))?;
        }
        Ok(folder)
    });
    made.as_ref().map(PathBuf::as_path).map_err(String::clone)
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

// The functions come with the library, which is linked for them.
use longarm_both as _;

#[allow(non_snake_case)]
unsafe extern "C" {
    safe fn shmem_init();
    safe fn shmem_finalize();
    safe fn shmem_my_pe() -> c_int;
    safe fn shmem_n_pes() -> c_int;
    safe fn shmem_calloc(count: usize, size: usize) -> *mut c_void;
    fn shmem_long_atomic_add(word: *mut c_long, value: c_long, pe: c_int);
    safe fn shmem_barrier_all();
    safe fn PARMCI_Init() -> c_int;
    safe fn PARMCI_Barrier();
    safe fn PARMCI_Finalize() -> c_int;
}

/// One rank of a job: Rust and C see one world, and each leaves it by itself.
fn rank(first: &str) {
    let world = match first {
        "rust" => {
            let world = longarm::init().expect("nobody was here before");
            shmem_init();
            PARMCI_Init();
            world
        }
        "shmem" => {
            shmem_init();
            let world = longarm::init_shared().expect("the world of OpenSHMEM");
            PARMCI_Init();
            world
        }
        _ => {
            PARMCI_Init();
            shmem_init();
            longarm::init_shared().expect("the world of ARMCI")
        }
    };
    let (rank, size) = (world.rank(), world.size());
    assert_eq!((shmem_my_pe(), shmem_n_pes()), (rank as c_int, size as c_int));
    let window = world.allocate_collective::<i64>(1).expect("room for a word");
    let word: *mut c_long = shmem_calloc(1, 8).cast();
    let next = (rank + 1) % size;
    window.fetch_add(next, 0, 5).expect("the next rank is there");
    // SAFETY: the word was given by the symmetric heap just now.
    unsafe { shmem_long_atomic_add(word, 7, next as c_int) };
    world.barrier_collective().expect("all are there");
    shmem_barrier_all();
    PARMCI_Barrier();
    assert_eq!(window.fetch_add(rank, 0, 0).expect("my own word"), 5);
    // SAFETY: as above; everybody has met since it was changed.
    assert_eq!(unsafe { word.read_volatile() }, 7);
    shmem_finalize();
    assert_eq!(PARMCI_Finalize(), 0);
    world.sync_collective().expect("it is still there for us");
    if rank == 0 {
        println!("ok mixed {size}");
    }
    world.finalize().expect("the last but the end of the process");
}
