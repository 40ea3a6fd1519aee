//! What a run left behind: processes, and names in /dev/shm.
//!
//! Every process of a run has a variable in its environment that no other has, which its children inherit whatever
//! process group or session they move to. So they are found in /proc, and nobody else's process is ever taken for one.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable. Not called LONGARM_..., because longarm warns of those that it does not know.
pub const MARK: &str = "SUITE_RUN_MARK";

/// How long the last processes of a run have to go after their launcher.
const GRACE: Duration = Duration::from_secs(20);

/// Fields of /proc/PID/stat, counted from the one behind the name: the process's flags, and where its environment ends.
const STAT_FLAGS: usize = 6;
const STAT_ENV_END: usize = 48;
/// The flag of a thread of the kernel.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Names in /dev/shm that belong to the MPI itself, which keeps them or not as it likes.
const MPI_NAMES: [&str; 8] = ["mpich", "vader_segment", "sm_segment", "ucx", "psm", "osc_rdma", "Intel_MPI", "pmix"];

/// The names that are in /dev/shm now.
pub fn shared_names() -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What is there after the run of this mark that was not there before, if anything.
pub fn find(mark: &str, before: &BTreeSet<String>) -> Option<String> {
    let limit = Instant::now() + GRACE;
    loop {
        let Look { processes, is_sure } = look_for(mark);
        let names: Vec<String> = shared_names()
            .difference(before)
            .filter(|name| MPI_NAMES.iter().all(|own| !name.starts_with(own)) && !is_held(name))
            .cloned()
            .collect();
        let is_clean = processes.is_empty() && names.is_empty();
        let is_last = Instant::now() > limit;
        if is_clean && (is_sure || is_last) {
            return None;
        }
        if is_last {
            return Some(describe(&processes, &names));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills every process of the run of this mark, also those that start while this looks.
pub fn kill_all(mark: &str) {
    let limit = Instant::now() + GRACE;
    loop {
        let Look { processes, is_sure } = look_for(mark);
        if (processes.is_empty() && is_sure) || Instant::now() > limit {
            return;
        }
        for (pid, _) in &processes {
            // It may have ended since.
            let _ = kill_process(*pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn describe(processes: &[(Pid, String)], names: &[String]) -> String {
    let mut parts: Vec<String> =
        processes.iter().map(|(pid, name)| format!("process {} ({name})", pid.as_raw_nonzero())).collect();
    parts.extend(names.iter().map(|name| format!("/dev/shm/{name}")));
    if parts.len() > 6 {
        let more = parts.len() - 6;
        parts.truncate(6);
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

/// What one look at all processes of the machine found.
struct Look {
    /// The living processes of the run, with their names.
    processes: Vec<(Pid, String)>,
    /// Whether there are no others. While a process moves, a look can miss it: one that becomes another program has no
    /// environment for a moment, and one that ends may have started its successor behind the end of the list.
    is_sure: bool,
}

fn look_for(mark: &str) -> Look {
    let wanted = format!("{MARK}={mark}");
    let mut look = Look { processes: Vec::new(), is_sure: true };
    let Ok(entries) = fs::read_dir("/proc") else { return look };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let environment = match fs::read(entry.path().join("environ")) {
            // It is somebody else's, and none of ours.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            environment => environment.unwrap_or_default(),
        };
        if environment.is_empty() {
            look.is_sure &= !is_moving(&entry.path());
        } else if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            look.processes.push((pid, name.trim().to_owned()));
        }
    }
    look
}

/// Whether the process of this folder of /proc, which shows no environment, has ended since or is becoming another
/// program just now. A zombie and a thread of the kernel show none either, nor does a program that was started without.
fn is_moving(process: &Path) -> bool {
    // The name stands in parentheses and may hold anything; the fields behind it are words.
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else { return true };
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let is_over = matches!(fields.first(), Some(&"Z" | &"X"));
    let is_of_the_kernel = number(STAT_FLAGS).is_none_or(|flags| flags & PF_KTHREAD != 0);
    // 0 until the new program's stack is laid out. Only who may trace the process is told; others read no environment.
    let has_stack = number(STAT_ENV_END).is_some_and(|end| end != 0);
    !is_over && !is_of_the_kernel && !has_stack
}

/// Whether a living process has this name of /dev/shm mapped or open: then it is in use, by whomever.
fn is_held(name: &str) -> bool {
    let path = format!("/dev/shm/{name}");
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    entries.flatten().any(|entry| {
        let maps = fs::read(entry.path().join("maps")).unwrap_or_default();
        if maps.split(|byte| *byte == b'\n').any(|line| line.ends_with(path.as_bytes())) {
            return true;
        }
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { return false };
        descriptors
            .flatten()
            .any(|link| fs::read_link(link.path()).is_ok_and(|to| to.as_os_str().as_bytes() == path.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process that lives until its standard input is closed.
    fn lasting(mark: &str) -> std::process::Child {
        Command::new("cat").env(MARK, mark).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_process_that_outlives_its_run_is_found_and_killed() {
        let mark = format!("test-outlives-{}", std::process::id());
        let before = shared_names();
        assert_eq!(find(&mark, &before), None);
        let mut child = lasting(&mark);
        let found = find(&mark, &before).expect("the process lives");
        assert!(found.contains(&format!("process {} (cat)", child.id())), "{found}");
        kill_all(&mark);
        assert!(!child.wait().unwrap().success());
        assert_eq!(find(&mark, &before), None);
    }

    #[test]
    fn processes_of_other_runs_are_left_alone() {
        let mark = format!("test-other-{}", std::process::id());
        let mut child = lasting(&mark);
        kill_all(&format!("{mark}0"));
        assert!(child.try_wait().unwrap().is_none());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_long_list_of_leftovers_is_cut() {
        let names: Vec<String> = (0..9).map(|number| format!("n{number}")).collect();
        let text = describe(&[], &names);
        assert!(text.ends_with("/dev/shm/n5, 3 more"), "{text}");
    }
}
