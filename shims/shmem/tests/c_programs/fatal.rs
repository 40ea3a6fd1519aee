//! What cannot be gone on from ends the whole job: with a status that says so, and with a line of the PE that names it, the
//! call and the reason.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::built::everything;
use crate::installed::here;
use crate::{C11, Program, run};

/// Something that `c/fatal.c` does.
struct Deed {
    name: &'static str,
    /// What a line has to say, all of it.
    says: &'static [&'static str],
    status: i32,
    /// Whether all PEs do it, so that any of them may be the first to be heard.
    by_all: bool,
}

const fn by_last(name: &'static str, says: &'static [&'static str]) -> Deed {
    Deed { name, says, status: 1, by_all: false }
}

const fn by_all(name: &'static str, says: &'static [&'static str]) -> Deed {
    Deed { name, says, status: 1, by_all: true }
}

const DEEDS: &[Deed] = &[
    by_last("no_such_pe", &["shmem_int_p:", "no PE 2", "the PEs 0 to 1"]),
    by_last("negative_pe", &["shmem_int_get:", "no PE -1"]),
    by_last("outside", &["shmem_int_put:", "4 bytes at address 0x", "are not symmetric"]),
    by_last("constant", &["shmem_int_get:", "4 bytes at address 0x", "are not symmetric", "a variable that is const"]),
    by_last("of_library", &["shmem_putmem:", "are in the library ", "libc", "only variables of the program itself"]),
    by_last("outside_atomic", &["shmem_long_atomic_inc:", "8 bytes at address 0x", "are not symmetric"]),
    by_last("past_the_end", &["shmem_putmem:", "are in the symmetric heap", "shmem_free"]),
    by_last("freed", &["shmem_int_p:", "are in the symmetric heap", "shmem_free"]),
    by_all("freed_twice", &["shmem_free:", "is not the start of a block"]),
    by_all("before_init", &["shmem_my_pe:", "before shmem_init"]),
    by_all("after_finalize", &["shmem_barrier_all:", "after shmem_finalize"]),
    by_last("no_such_context", &["shmem_ctx_int_p:", "no context 0x"]),
    by_last("invalid_context", &["shmem_ctx_int_p:", "SHMEM_CTX_INVALID"]),
    by_last("no_such_team", &["shmem_team_sync:", "no team 0x"]),
    by_last("pe_outside_team", &["shmem_ctx_int_p:", "no PE 1 in this team"]),
    by_last("no_such_comparison", &["shmem_int_wait_until:", "no comparison 77"]),
    by_last("no_such_signal", &["shmem_int_put_signal:", "no signal operation 9"]),
    by_last("set_outside", &["shmem_barrier:", "active set of 9 PEs"]),
    by_last("lock_not_set", &["shmem_clear_lock:", "not set"]),
    by_all("other_calls", &["shmem_", "in the same order, with the same sizes"]),
    Deed { status: 7, ..by_last("global_exit_7", &["shmem_global_exit(7)"]) },
    Deed { status: 0, ..by_last("global_exit_0", &[" is done: shmem_global_exit(0)"]) },
    Deed { status: 5, ..by_last("exit_5", &["status 5", "without shmem_finalize"]) },
];

/// Two PEs, who share a node or do not.
const LAYOUTS: [(u32, u32); 2] = [(2, 1), (2, 2)];
/// What no PE may come to say.
const GOES_ON: &str = "goes on";

pub(crate) fn trials() -> Vec<Trial> {
    let program = Arc::new(Program::new(here().join("tests/c/fatal.c"), "fatal", C11));
    let listed = Arc::clone(&program);
    let starting = Arc::clone(&program);
    let mut trials = vec![
        Trial::test("fatal::every_deed_is_tried", move || every_deed_is_tried(&listed)),
        Trial::test("fatal::a_manager_that_has_hung_up_is_named_and_no_signal_ends_the_pe", move || hung_up(&starting)),
    ];
    for deed in DEEDS {
        for layout in LAYOUTS {
            let program = Arc::clone(&program);
            let name = format!("fatal::{}::{}_over_{}", deed.name, layout.0, layout.1);
            trials.push(Trial::test(name, move || ends(&program, deed, layout)));
        }
    }
    trials
}

fn every_deed_is_tried(program: &Program) -> Result<(), Failed> {
    let output = run(program.path()?, None, &[])?;
    let listed: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let tried: Vec<&str> = DEEDS.iter().map(|deed| deed.name).collect();
    if listed == tried { Ok(()) } else { Err(format!("in the program: {listed:?}\ntried: {tried:?}").into()) }
}

/// Where a program before this one has taken leave of the process manager. Unlike one of Rust's, a C program is ended by SIGPIPE.
fn hung_up(program: &Program) -> Result<(), Failed> {
    let (ours, theirs) = UnixStream::pair()?;
    drop(theirs);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 9<&0 </dev/null"]).arg(program.path()?).arg(DEEDS[0].name);
    shell.stdin(OwnedFd::from(ours)).envs([("PMI_FD", "9"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
    let output = shell.output()?;
    let is_named = String::from_utf8_lossy(&output.stderr).contains("an earlier program");
    if output.status.code() == Some(1) && is_named {
        Ok(())
    } else {
        Err(format!("it ended with {}\n{}", output.status, everything(&output)).into())
    }
}

fn ends(program: &Program, deed: &Deed, layout: (u32, u32)) -> Result<(), Failed> {
    let output = run(program.path()?, Some(layout), &[deed.name])?;
    judge(deed, &output).map_err(|reason| format!("{reason}\n{}", everything(&output)).into())
}

fn judge(deed: &Deed, output: &std::process::Output) -> Result<(), String> {
    if output.status.code() != Some(deed.status) {
        return Err(format!("the job ended with {} and not with status {}", output.status, deed.status));
    }
    if String::from_utf8_lossy(&output.stdout).contains(GOES_ON) {
        return Err("a PE went on".into());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let who = if deed.by_all { "longarm: rank " } else { "longarm: rank 1" };
    let says_all = |line: &&str| line.starts_with(who) && deed.says.iter().all(|part| line.contains(part));
    match stderr.lines().find(says_all) {
        Some(_) => Ok(()),
        None => Err(format!("no line begins with {who:?} and says {:?}", deed.says)),
    }
}
