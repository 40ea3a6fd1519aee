//! `longarm ps`: the running jobs of this user, and where the ranks of one of them stand.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::Cell;
use serde::de::DeserializeOwned;

use crate::cli::PsArguments;
use crate::run::questions::{self, NAME_PREFIX};
use longarm_control::spelling;
use longarm_control::standing::{Report, Summary};

/// How long a launcher may take to answer. It gives its ranks a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// The kernel's mark of sockets that listen.
const LISTENING: u32 = 1 << 16;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum PsError {
    /// No launcher, or one of another user.
    #[error("process {pid} runs no job of this user; longarm ps lists those that run: {source}")]
    NoSuchJob {
        /// The process asked for.
        pid: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The launcher is stopped, or ended just now.
    #[error("the launcher {pid} gives no answer: {source}")]
    NoAnswer {
        /// The process asked for.
        pid: u32,
        /// What the system says.
        source: io::Error,
    },
    /// Another release, or no launcher at all.
    #[error("the launcher {pid} answers something else; is it of another release of longarm?")]
    Garbled {
        /// The process asked for.
        pid: u32,
    },
    /// The kernel does not say which sockets there are.
    #[error("/proc/net/unix cannot be read: {0}")]
    NoList(io::Error),
}

/// Prints what was asked for.
pub fn ps(arguments: &PsArguments) -> ExitCode {
    let text = match arguments.pid {
        Some(pid) => ask::<Report>(pid, questions::REPORT).map(|report| show_report(&report, arguments.json)),
        None => jobs().map(|jobs| show_jobs(&jobs, arguments.json)),
    };
    match text {
        Ok(text) => {
            // A reader that has seen enough is no reason to panic.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("longarm: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The jobs of this user that answer, ascending by launcher.
fn jobs() -> Result<Vec<Summary>, PsError> {
    let list = std::fs::read_to_string("/proc/net/unix").map_err(PsError::NoList)?;
    let mut jobs = Vec::new();
    for pid in launchers(&list) {
        match ask(pid, questions::SUMMARY) {
            Ok(job) => jobs.push(job),
            // That of another user, or one that has ended since.
            Err(PsError::NoSuchJob { .. }) => {}
            Err(error) => eprintln!("longarm: {error}"),
        }
    }
    Ok(jobs)
}

/// The launchers that listen, from the kernel's list of unix sockets.
fn launchers(list: &str) -> BTreeSet<u32> {
    let listening = list.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
        let pid = fields.get(7)?.strip_prefix('@')?.strip_prefix(NAME_PREFIX)?.parse().ok()?;
        (flags & LISTENING != 0).then_some(pid)
    });
    listening.collect()
}

/// Asks a launcher. It has to run as this user, or we as root: anybody may take a name.
fn ask<T: DeserializeOwned>(pid: u32, question: &[u8]) -> Result<T, PsError> {
    let refused = |source| PsError::NoSuchJob { pid, source };
    let mut stream = questions::address(pid).and_then(|address| UnixStream::connect_addr(&address)).map_err(refused)?;
    let own_uid = rustix::process::geteuid().as_raw();
    let owner = rustix::net::sockopt::socket_peercred(&stream).map_err(|errno| refused(errno.into()))?.uid.as_raw();
    if !questions::may_ask(own_uid, owner) {
        return Err(refused(io::ErrorKind::PermissionDenied.into()));
    }
    let silent = |source| PsError::NoAnswer { pid, source };
    stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
    stream.write_all(question).map_err(silent)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(silent)?;
    if text.is_empty() {
        return Err(silent(io::ErrorKind::UnexpectedEof.into()));
    }
    serde_json::from_str(&text).map_err(|_| PsError::Garbled { pid })
}

fn show_jobs(jobs: &[Summary], as_json: bool) -> String {
    if as_json {
        return to_json(&jobs);
    }
    if jobs.is_empty() {
        return "no job of this user is running here\n".to_owned();
    }
    let has_hosts = jobs.iter().any(|job| job.hosts.is_some());
    let mut table = spelling::plain_table();
    let names =
        [Some("pid"), Some("ranks"), Some("nodes"), has_hosts.then_some("hosts"), Some("time"), Some("program")];
    table.set_header(names.into_iter().flatten());
    for job in jobs {
        let cells = [
            Some(job.pid.to_string()),
            Some(job.ranks.to_string()),
            Some(job.nodes.to_string()),
            has_hosts.then(|| job.hosts.unwrap_or(1).to_string()),
            Some(show_time(job.seconds)),
            Some(job.command.clone()),
        ];
        table.add_row(cells.into_iter().flatten().map(Cell::new));
    }
    format!("{}\n", spelling::trimmed(&table))
}

fn show_report(report: &Report, as_json: bool) -> String {
    if as_json {
        return to_json(report);
    }
    let Summary { pid, ranks, nodes, hosts, seconds, command } = &report.job;
    let plural = |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (ranks, nodes, time) = (plural(*ranks, "rank"), plural(*nodes, "node"), show_time(*seconds));
    let hosts = hosts.map(|hosts| format!(" of {}", plural(hosts, "host"))).unwrap_or_default();
    format!("job {pid}: {ranks} on {nodes}{hosts}, running for {time}: {command}\n{}\n", report.render())
}

fn to_json(value: &impl serde::Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).expect("reports have only names as keys"))
}

/// "0:07", "12:34", "1:02:03".
fn show_time(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_found_among_the_sockets_of_the_machine() {
        let list = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 16162 @longarm-run-4711
0000000000000000: 00000003 00000000 00000000 0001 03 16163 @longarm-run-4711
0000000000000000: 00000003 00000000 00000000 0001 03 16164 @longarm-run-12
0000000000000000: 00000002 00000000 00010000 0001 01 16165 @longarm-run-nobody
0000000000000000: 00000002 00000000 00010000 0001 01 16166 /run/longarm-run-13
0000000000000000: 00000002 00000000 00010000 0001 01 16167
0000000000000000: 00000002 00000000 00010000 0001 01 16168 @longarm-run-9
";
        assert_eq!(launchers(list), BTreeSet::from([9, 4711]));
    }

    #[test]
    fn jobs_on_several_hosts_say_on_how_many() {
        let job = |hosts| Summary { pid: 7, ranks: 4, nodes: 2, hosts, seconds: 1.0, command: "x".to_owned() };
        assert!(!show_jobs(&[job(None)], false).contains("hosts"));
        let shown = show_jobs(&[job(None), job(Some(2))], false);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["pid", "ranks", "nodes", "hosts", "time", "program"]);
        assert_eq!((lines[1][3], lines[2][3]), ("1", "2"));
        let shown = show_report(&Report { job: job(Some(2)), ranks: Vec::new() }, false);
        assert!(shown.starts_with("job 7: 4 ranks on 2 nodes of 2 hosts, running"), "{shown}");
    }

    #[test]
    fn times_are_shown_as_clocks_do() {
        assert_eq!([7.9, 754.0, 3723.0].map(show_time), ["0:07", "12:34", "1:02:03"]);
    }
}
