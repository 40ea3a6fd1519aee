//! The `longarm run` command from outside: output, input, statuses, and that nothing is left behind.
//!
//! Ranks are shell scripts, or this very program: [`the_program_that_plays_a_rank`] speaks to the launcher as a real
//! rank does. Waiting is always for an event; no test has a time limit of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use longarm::bootstrap::control::{
    CONTROL_FD_VARIABLE, CONTROL_VERSION, FromRank, KindTraffic, NodeCard, PeerTraffic, Start, ToRank,
};
use processes::{end, read_lines, text, wait_until_gone};
use rustix::process::{Pid, Signal};

mod processes;

/// Names what [`the_program_that_plays_a_rank`] shall play.
const PLAY: &str = "PLAY_OF_THE_RANK";

/// Shows what each open descriptor is. One of them is gone by then: the shell's own, for listing the folder.
const LIST_DESCRIPTORS: &str = "for entry in /proc/$$/fd/*; do readlink $entry; done; true";

fn longarm(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
    command.args(line.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn shell(line: &str, script: &str) -> Command {
    let mut command = longarm(line);
    command.args(["--", "/bin/sh", "-c", script]);
    command
}

fn play(line: &str, play: &str) -> Command {
    let mut command = longarm(line);
    let this = std::env::current_exe().expect("the test has a file");
    command.arg("--").arg(this).args(["the_program_that_plays_a_rank", "--exact", "--nocapture"]).env(PLAY, play);
    command
}

/// The same where ranks have as long as they need to say what they know of a death.
fn unhurried(line: &str, name: &str) -> Command {
    let mut command = play(line, name);
    command.env("LONGARM_REPORT_MS", "600000");
    command
}

/// Has another process copy a file: a process that is started meanwhile would have one that this process writes open too, and
/// what is open for writing is not executed.
fn copy(from: &str, to: &std::path::Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// The lines that begin with `prefix`, without it, sorted.
fn lines_after(text: &str, prefix: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn send(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(child), signal).expect("the launcher runs");
}

/// Whether this test was started with a signal ignored (nohup, a shell's background). The launcher then ignores it too.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

fn children_of(parent: u32) -> Vec<String> {
    let is_child = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    };
    let entries = std::fs::read_dir("/proc").expect("there is /proc");
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(is_child).collect()
}

#[test]
fn lines_of_eight_busy_ranks_come_whole_and_in_order() {
    const LINES: usize = 500;
    let filling = "x".repeat(300);
    let script = format!(
        "i=0; while [ $i -lt {LINES} ]; do printf '%s' \"$LONGARM_RANK:$i:\"; echo {filling}; i=$((i+1)); done"
    );
    let (status, stdout, stderr) = end(shell("run -n 8", &script));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let mut next = [0; 8];
    for line in stdout.lines() {
        let parts: Vec<&str> = line.split(':').collect();
        let [rank, index, filled] = parts[..] else { panic!("mixed line: {line}") };
        let rank: usize = rank.parse().unwrap();
        assert_eq!((index.parse(), filled), (Ok(next[rank]), filling.as_str()));
        next[rank] += 1;
    }
    assert_eq!(next, [LINES; 8]);
}

#[test]
fn bytes_are_passed_on_as_they_are_even_without_an_end_of_line() {
    let output = shell("run -n 1", "printf 'a\\0\\377\\nlast'; printf 'err' >&2").output().unwrap();
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\0\xff\nlast"[..], &b"err"[..]));
}

#[test]
fn a_line_of_several_mebibytes_keeps_every_byte() {
    let (status, stdout, _) = end(shell("run -n 1", "head -c 5000000 /dev/zero | tr '\\0' z; echo; echo end"));
    assert_eq!((status, stdout.len(), stdout.trim_start_matches('z')), (0, 5_000_005, "\nend\n"));
}

#[test]
fn what_ranks_say_alike_at_their_end_is_said_with_all_their_numbers_and_nothing_is_lost() {
    let script = "echo first >&2; echo 'Error: goes on' >&2; echo last >&2; echo 'Error: no such file' >&2; exit 7";
    let mut command = shell("run -n 4", script);
    command.env("LONGARM_REPORT_MS", "600000");
    let (status, _, stderr) = end(command);
    assert_eq!(status, 7);
    let count = |line: &str| stderr.lines().filter(|other| *other == line).count();
    assert_eq!((count("first"), count("last")), (4, 4), "{stderr}");
    // How many come together is a matter of time.
    let sayers = |error: &str| {
        let lines = stderr.lines().filter_map(|line| line.strip_prefix(error));
        let numbers = lines.map(|rest| match rest.trim_matches([' ', '(', ')']).strip_prefix("on ranks ") {
            None => 1,
            Some(ranks) => ranks.split(", ").map(of_range).sum::<u32>(),
        });
        numbers.sum::<u32>()
    };
    assert_eq!((sayers("Error: goes on"), sayers("Error: no such file")), (4, 4), "{stderr}");
    let (_, _, tagged) = end(shell("run -n 2 --tag-output", "echo 'Error: no such file' >&2"));
    assert_eq!(lines_after(&tagged, "["), ["0] Error: no such file", "1] Error: no such file"]);
}

/// How many numbers "3" or "0-3" stands for.
fn of_range(range: &str) -> u32 {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    last.parse::<u32>().unwrap() - first.parse::<u32>().unwrap() + 1
}

#[test]
fn with_tags_each_line_says_its_rank() {
    let script = "echo one; printf two; echo err >&2";
    let (_, stdout, stderr) = end(shell("run -n 2 --tag-output", script));
    assert_eq!(lines_after(&stdout, "["), ["0] one", "0] two", "1] one", "1] two"]);
    assert_eq!(lines_after(&stderr, "["), ["0] err", "1] err"]);
}

#[test]
fn stdin_goes_to_rank_0_alone_with_its_end() {
    let mut child = shell("run -n 3 --tag-output", "cat; echo done").stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = text(output.stdout);
    assert_eq!(lines_after(&stdout, "["), ["0] done", "0] hello", "1] done", "2] done"]);
}

#[test]
fn a_rank_0_that_does_not_read_its_input_holds_nothing_up() {
    let mut child = shell("run -n 2", "echo $LONGARM_RANK").stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Writes until the launcher is gone.
    let writer = std::thread::spawn(move || while stdin.write_all(&[b'y'; 1 << 16]).is_ok() {});
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!((output.status.code(), lines_after(&text(output.stdout), "")), (Some(0), vec!["0".into(), "1".into()]));
}

#[test]
fn scripts_are_told_rank_size_and_node() {
    let (_, stdout, _) = end(shell("run -n 5 --nodes 2", "echo $LONGARM_RANK $LONGARM_SIZE $LONGARM_NODE"));
    assert_eq!(lines_after(&stdout, ""), ["0 5 0", "1 5 0", "2 5 0", "3 5 1", "4 5 1"]);
}

#[test]
fn the_first_rank_that_fails_is_named_and_decides_the_status() {
    let (status, _, stderr) = end(shell("run -n 3 --nodes 3", "[ $LONGARM_RANK = 1 ] && exit 7; sleep 1000"));
    assert_eq!(status, 7);
    assert!(stderr.starts_with("longarm: rank 1 (node 1, pid "), "{stderr}");
    assert!(stderr.ends_with(") exited with status 7; ending the job\n"), "{stderr}");
    let (status, _, stderr) = end(shell("run -n 3", "[ $LONGARM_RANK = 2 ] && kill -9 $$; sleep 1000"));
    assert_eq!(status, 128 + 9);
    assert!(stderr.contains("rank 2 (node 0, pid ") && stderr.contains("killed by signal 9 (SIGKILL)"), "{stderr}");
}

#[test]
fn where_survivors_go_on_the_first_failure_gives_the_status_and_the_others_end_by_themselves() {
    let script = "[ $LONGARM_RANK = 1 ] && exit 7; while [ ! -e $MARK ]; do :; done; echo done; exit $LONGARM_RANK";
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("rank-1-is-dead");
    let mut command = shell("run -n 3", script);
    let mut child = command.env("LONGARM_ON_FAILURE", "continue").env("MARK", &mark).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("longarm: rank 1 (node 0, pid "), "{line}");
    assert!(line.ends_with(") exited with status 7; the others go on\n"), "{line}");
    // Only now may they go on.
    std::fs::write(&mark, "").unwrap();
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("longarm: rank 2 (node 0, pid ") && line.contains(" exited with status 2; "), "{line}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(output.stdout)), (Some(7), "done\n".repeat(2)));
}

#[test]
fn where_survivors_go_on_a_rank_that_has_given_up_is_ended_though_it_would_stay() {
    let mut command = play("run -n 3 --nodes 3", "abort");
    command.env("LONGARM_ON_FAILURE", "continue");
    let (status, stdout, stderr) = end(command);
    assert_eq!(status, 42);
    assert!(stderr.contains(") aborted: the input is wrong; the others go on"), "{stderr}");
    let told = ["0 rank 1 aborted: the input is wrong", "2 rank 1 aborted: the input is wrong"];
    assert_eq!(lines_after(&stdout, "died "), told);
}

#[test]
fn a_program_that_cannot_be_executed_has_the_statuses_of_a_shell() {
    let (status, _, stderr) = end(longarm("run -n 2 no-such-program-anywhere"));
    assert_eq!((status, stderr.as_str()), (127, "longarm: no-such-program-anywhere: program not found\n"));
    let (status, _, stderr) = end(longarm("run -n 2 /etc/passwd"));
    assert_eq!((status, stderr.as_str()), (126, "longarm: /etc/passwd: is not executable\n"));
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let (text, template) = ("#!/no/such/interpreter\n", folder.path().join("template"));
    std::fs::write(&template, text).unwrap();
    std::fs::set_permissions(&template, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    copy(template.to_str().unwrap(), &script);
    let mut command = longarm("run -n 2");
    command.arg(&script);
    assert_eq!(end(command).0, 127);
}

#[test]
fn contradictions_on_the_command_line_and_wrong_variables_have_status_2() {
    let (status, _, stderr) = end(longarm("run -n 4 --nodes 3 --ppn 2 true"));
    assert_eq!(status, 2);
    assert!(stderr.contains("contradict"), "{stderr}");
    assert_eq!(end(longarm("run -n 2 --nodes 3 true")).0, 2);
    let mut command = longarm("run -n 2 true");
    command.env("LONGARM_SEND_RING_BYTES", "many");
    let (status, _, stderr) = end(command);
    assert_eq!(status, 2);
    assert!(stderr.contains("LONGARM_SEND_RING_BYTES") && stderr.contains("\"many\""), "{stderr}");
}

#[test]
fn a_misspelt_variable_is_a_warning_that_names_the_right_one() {
    let mut command = longarm("run -n 2 true");
    command.env("LONGARM_SEND_RING_BYTE", "1m");
    let (status, _, stderr) = end(command);
    assert_eq!(status, 0);
    assert!(stderr.contains("did you mean LONGARM_SEND_RING_BYTES?"), "{stderr}");
}

#[test]
fn a_job_that_takes_too_long_is_ended_and_says_who_was_not_done() {
    // Rank 2 ends at once; how soon the system lets it is not for this test to say.
    let (status, _, stderr) = end(shell("run -n 4 --timeout 5", "[ $LONGARM_RANK = 2 ] || exec sleep 1000"));
    assert_eq!(status, 124);
    assert!(stderr.contains("did not finish within 5 s: ranks 0-1, 3 still running"), "{stderr}");
}

#[test]
fn an_interrupt_reaches_every_rank_as_a_request_to_end() {
    let script = "trap 'echo asked; exit 0' TERM; echo ready; sleep 1000 & wait";
    let signals = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
    for (signal, status) in signals.into_iter().filter(|(signal, _)| !is_ignored(*signal)) {
        let mut child = shell("run -n 3", script).spawn().unwrap();
        assert_eq!(read_lines(&mut child, 3), ["ready"; 3]);
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(output.stdout)), (Some(status), "asked\n".repeat(3)));
    }
}

#[test]
fn ranks_that_do_not_listen_are_killed_at_the_second_interrupt() {
    let script = "trap '' TERM; echo ready; while :; do sleep 1000; done";
    let interrupt = if is_ignored(Signal::INT) { Signal::TERM } else { Signal::INT };
    let mut child = shell("run -n 2", script).spawn().unwrap();
    read_lines(&mut child, 2);
    send(&child, interrupt);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("longarm: interrupted by SIG") && line.ends_with("; ending the job\n"), "{line}");
    send(&child, interrupt);
    assert_eq!(child.wait().unwrap().code(), Some(128 + interrupt.as_raw()));
}

#[test]
fn a_killed_launcher_leaves_neither_ranks_nor_grandchildren_nor_its_guardian() {
    let mut child = shell("run -n 3", "sleep 1000 & echo $$ $!; wait").spawn().unwrap();
    let lines = read_lines(&mut child, 3);
    let family = children_of(child.id());
    assert_eq!(family.len(), 4, "three ranks and the guardian");
    send(&child, Signal::KILL);
    child.wait().unwrap();
    let pids = lines.iter().flat_map(|line| line.split(' '));
    for pid in pids.chain(family.iter().map(String::as_str)) {
        wait_until_gone(pid);
    }
}

#[test]
fn a_job_that_ends_well_leaves_no_grandchild_even_one_that_holds_the_output() {
    let (status, stdout, _) = end(shell("run -n 2", "sleep 1000 & echo $!"));
    assert_eq!((status, stdout.lines().count()), (0, 2));
    for pid in stdout.lines() {
        wait_until_gone(pid);
    }
}

#[test]
fn a_rank_inherits_one_socket_of_its_own_and_nothing_else() {
    let own = Command::new("/bin/sh").args(["-c", LIST_DESCRIPTORS]).output().unwrap();
    let own = text(own.stdout);
    let (_, stdout, _) = end(shell("run -n 3 --tag-output", LIST_DESCRIPTORS));
    let mut sockets = Vec::new();
    for rank in 0..3 {
        let links = lines_after(&stdout, &format!("[{rank}] "));
        let new = links.into_iter().filter(|link| !own.lines().any(|line| line == link));
        // The rank's stdin, outputs and socket; the shell may open its own script as well.
        let new: Vec<String> = new.filter(|link| !link.starts_with("pipe:") && link != "/dev/null").collect();
        assert_eq!(new.len(), 1, "{new:?}");
        assert!(new[0].starts_with("socket:"), "{new:?}");
        sockets.extend(new);
    }
    sockets.sort();
    sockets.dedup();
    assert_eq!(sockets.len(), 3, "no two ranks share a socket");
}

#[test]
fn a_job_inside_a_rank_is_a_job_of_its_own() {
    let mut command = longarm("run -n 1 --");
    command.args([env!("CARGO_BIN_EXE_longarm"), "run", "-n", "2", "--"]);
    command.args(["/bin/sh", "-c", LIST_DESCRIPTORS]);
    let (status, stdout, _) = end(command);
    assert_eq!(status, 0);
    let mut sockets = lines_after(&stdout, "socket:");
    let mut outer = Command::new("/bin/sh");
    outer.args(["-c", LIST_DESCRIPTORS]);
    let inherited = lines_after(&text(outer.output().unwrap().stdout), "socket:");
    sockets.retain(|socket| !inherited.contains(socket));
    assert_eq!(sockets.len(), 2, "one for each inner rank, none of the outer job");
}

#[test]
fn bound_ranks_take_turns_over_the_allowed_processors() {
    let script = "grep Cpus_allowed_list: /proc/self/status | cut -f 2";
    let processors = longarm::topology::processors_allowed();
    let (_, stdout, _) = end(shell("run -n 3 --bind core --tag-output", script));
    let expected = (0..3).map(|rank| format!("{rank}] {}", processors[rank % processors.len()]));
    assert_eq!(lines_after(&stdout, "["), expected.collect::<Vec<_>>());
}

#[test]
fn sixty_four_ranks_start_with_few_descriptors() {
    let limited = format!(
        "ulimit -S -n 64; exec {} run -n 64 --nodes 4 -- /bin/sh -c 'ulimit -S -n'",
        env!("CARGO_BIN_EXE_longarm")
    );
    let output = Command::new("/bin/sh").args(["-c", &limited]).output().unwrap();
    assert_eq!(text(output.stdout), "64\n".repeat(64), "{}", text(output.stderr));
    let limited = format!("ulimit -n 64; exec {} run -n 64 true", env!("CARGO_BIN_EXE_longarm"));
    let output = Command::new("/bin/sh").args(["-c", &limited]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(output.stderr).contains("open files"));
}

#[test]
fn ranks_join_exchange_cards_leave_and_are_let_go_together() {
    let (status, stdout, stderr) = end(play("run -n 4 --nodes 2", "ring"));
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(
        lines_after(&stdout, "start "),
        ["0 [0, 0, 1, 1]", "1 [0, 0, 1, 1]", "2 [0, 0, 1, 1]", "3 [0, 0, 1, 1]"]
    );
    assert_eq!(
        lines_after(&stdout, "cards "),
        ["0 door-0 door-1", "1 door-0 door-1", "2 door-0 door-1", "3 door-0 door-1"]
    );
    assert_eq!(lines_after(&stdout, "goodbye "), ["0", "1", "2", "3"]);
    let secrets = lines_after(&stdout, "secret ");
    assert!(secrets.len() == 4 && secrets.iter().all(|secret| *secret == secrets[0]), "{secrets:?}");
}

#[test]
fn a_death_is_told_to_all_others_who_may_still_report_it() {
    let (status, stdout, stderr) = end(unhurried("run -n 4 --nodes 2", "death"));
    assert_eq!(status, 3);
    let told = ["0 rank 1 exited with status 3", "2 rank 1 exited with status 3", "3 rank 1 exited with status 3"];
    assert_eq!(lines_after(&stdout, "died "), told);
    assert_eq!(stderr.matches("longarm: ").count(), 1, "{stderr}");
}

#[test]
fn ending_without_finalizing_is_a_death_even_with_status_0() {
    let (status, stdout, stderr) = end(unhurried("run -n 2", "vanish"));
    assert_eq!(status, 1);
    assert_eq!(lines_after(&stdout, "died "), ["0 rank 1 exited with status 0 without finalizing"]);
    assert!(stderr.contains("without finalizing; ending the job"), "{stderr}");
}

#[test]
fn an_abort_is_printed_and_ends_the_job_with_its_status() {
    let mut child = unhurried("run -n 3", "abort").spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let told = stdout.lines().map(|line| line.unwrap()).filter(|line| line.starts_with("died ")).take(2);
    let told = lines_after(&told.collect::<Vec<_>>().join("\n"), "died ");
    assert_eq!(told, ["0 rank 1 aborted: the input is wrong", "2 rank 1 aborted: the input is wrong"]);
    // The rank that has given up would stay.
    send(&child, Signal::TERM);
    let output = child.wait_with_output().unwrap();
    let stderr = text(output.stderr);
    assert_eq!(output.status.code(), Some(42));
    assert!(stderr.contains(") aborted: the input is wrong; ending the job"), "{stderr}");
}

#[test]
fn a_rank_that_talks_nonsense_is_ended_and_named() {
    let (status, _, stderr) = end(play("run -n 2", "nonsense"));
    assert_eq!(status, 1);
    assert!(stderr.contains("sent a line that the launcher does not understand; ending the job"), "{stderr}");
}

#[test]
fn a_rank_that_talks_without_listening_is_ended_before_its_messages_fill_the_launcher() {
    let (status, _, stderr) = end(play("run -n 1", "deaf"));
    assert_eq!(status, 1, "{stderr}");
    assert!(
        stderr.contains("rank 0 (node 0,") && stderr.contains("does not read what the launcher answers"),
        "{stderr}"
    );
}

#[test]
fn counters_of_a_rank_that_would_overflow_do_not_end_the_launcher() {
    let (status, stdout, stderr) = end(play("run -n 1 --stats --json --stats-file /dev/null/none", "counts"));
    assert_eq!(status, 0, "{stderr}");
    let report: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(report["kinds"][0]["operations"], u64::MAX);
}

#[test]
fn in_the_mode_for_debuggers_the_process_of_each_rank_is_said_and_the_ranks_are_told() {
    let (status, stdout, stderr) = end(shell("run -n 2 --debug", "echo $LONGARM_RANK $$ $LONGARM_DEBUGGER"));
    assert_eq!(status, 0, "{stderr}");
    for line in stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [rank, pid, "yes"] = words[..] else { panic!("{line}") };
        assert!(stderr.contains(&format!("rank {rank} (node 0) is process {pid}: gdb -p {pid}")), "{stderr}");
    }
}

#[test]
fn statistics_are_tables_on_stderr_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = play("run -n 4 --nodes 2 --stats", "ring");
    command.current_dir(folder.path());
    let (status, stdout, stderr) = end(command);
    assert_eq!((status, stdout.contains("operations")), (0, false));
    assert!(stderr.contains("4 ranks on 2 nodes") && stderr.contains("put"), "{stderr}");
    let (_, named) = stderr.split_once("the heat map is in ").expect("the file is named");
    let picture = std::fs::read_to_string(folder.path().join(named.trim())).unwrap();
    assert!(picture.starts_with("<svg"));
}

#[test]
fn statistics_as_json_are_the_last_line_of_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = play("run -n 4 --nodes 2 --json --stats-file here", "ring");
    command.current_dir(folder.path());
    let (status, stdout, stderr) = end(command);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&report["kinds"][0]["kind"], &report["kinds"][0]["bytes"]), (&"put".into(), &400.into()));
    assert_eq!(report["flows"].as_array().unwrap().len(), 4);
    assert_eq!(report["files"][0], "here-traffic.svg");
    assert!(folder.path().join("here-traffic.svg").exists());
}

#[test]
fn info_shows_machine_and_variables_with_their_origin() {
    let mut command = longarm("info");
    command.env("LONGARM_EAGER_BYTES", "4k");
    let (status, stdout, _) = end(command);
    assert_eq!(status, 0);
    for part in ["processors allowed", "cross-memory attach", "huge page", "network verbs", "not built in"] {
        assert!(stdout.contains(part), "{part} is missing:\n{stdout}");
    }
    let line = stdout.lines().find(|line| line.contains("LONGARM_EAGER_BYTES")).unwrap();
    assert!(line.contains("4k") && line.contains("environment"), "{line}");
    let (_, stdout, _) = end(longarm("info --json"));
    let info: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(info["variables"].as_array().unwrap().iter().any(|entry| entry["origin"] == "default"));
    assert!(!info["machine"]["processors"].as_array().unwrap().is_empty());
}

/// No test of its own: with [`PLAY`] set it is the program that the launcher starts.
#[test]
fn the_program_that_plays_a_rank() {
    let Ok(play) = std::env::var(PLAY) else { return };
    let mut rank = PlayedRank::join();
    match (play.as_str(), rank.start.rank) {
        ("ring", _) => rank.play_ring(),
        ("death", 1) => std::process::exit(3),
        ("vanish", 1) => std::process::exit(0),
        ("abort", 1) => {
            rank.say(&FromRank::Abort { reason: "the input is wrong".to_owned(), status: 42 });
            rank.wait_for_the_end();
        }
        ("deaf", _) => rank.join_and_leave_for_ever(),
        ("counts", _) => rank.count_in_two_worlds(),
        ("nonsense", 1) => {
            rank.control.write_all(b"nonsense\n").unwrap();
            rank.wait_for_the_end();
        }
        _ => rank.report_death(),
    }
}

struct PlayedRank {
    control: UnixStream,
    replies: BufReader<UnixStream>,
    start: Start,
}

impl PlayedRank {
    fn join() -> PlayedRank {
        let descriptor = std::env::var(CONTROL_FD_VARIABLE).unwrap().parse().unwrap();
        // SAFETY: `from_raw_fd` wants an open descriptor that nothing else owns. The launcher opened it for this
        // process and said so in the variable, which is read only here, once.
        let mut control = unsafe { UnixStream::from_raw_fd(descriptor) };
        let join = FromRank::Join { version: CONTROL_VERSION, pid: std::process::id() };
        writeln!(control, "{}", serde_json::to_string(&join).unwrap()).unwrap();
        let mut replies = BufReader::new(control.try_clone().unwrap());
        let ToRank::Start(start) = hear(&mut replies) else { panic!("the first answer is Start") };
        PlayedRank { control, replies, start: *start }
    }

    fn say(&mut self, message: &FromRank) {
        writeln!(self.control, "{}", serde_json::to_string(message).unwrap()).unwrap();
    }

    fn play_ring(mut self) {
        let Start { rank, node_of_rank, secret, .. } = self.start.clone();
        println!("start {rank} {node_of_rank:?}");
        println!("secret {secret}");
        let environment = std::fs::read("/proc/self/environ").unwrap();
        assert!(!String::from_utf8_lossy(&environment).contains(&secret), "the secret must not be in the environment");
        let node = node_of_rank[rank as usize];
        if node_of_rank.iter().position(|own| *own == node) == Some(rank as usize) {
            let card = NodeCard {
                node,
                server_pid: 1,
                address: String::new(),
                host: String::new(),
                door: format!("door-{node}"),
            };
            self.say(&FromRank::Publish { card });
        }
        let mut doors = Vec::new();
        for node in 0..2 {
            self.say(&FromRank::Fetch { first: node, count: 1 });
            let ToRank::Cards { cards } = hear(&mut self.replies) else { panic!("the answer to Fetch is Cards") };
            doors.extend(cards.into_iter().map(|card| card.door));
        }
        println!("cards {rank} {}", doors.join(" "));
        let peer = (rank + 1) % node_of_rank.len() as u32;
        let mut kinds = vec![KindTraffic::default(); 8];
        kinds[0] = KindTraffic { operations: 10, bytes: 100 };
        self.say(&FromRank::Leave { traffic: vec![PeerTraffic { peer, kinds }], network: vec![] });
        assert_eq!(hear(&mut self.replies), ToRank::Goodbye);
        println!("goodbye {rank}");
        std::process::exit(0);
    }

    fn report_death(mut self) {
        let ToRank::Died { rank, how } = hear(&mut self.replies) else { panic!("only a death is expected") };
        println!("died {} rank {rank} {how}", self.start.rank);
        std::process::exit(9);
    }

    /// Makes one world after the other without reading what it is told.
    fn join_and_leave_for_ever(mut self) {
        let leave = FromRank::Leave { traffic: vec![], network: vec![] };
        let join = FromRank::Join { version: CONTROL_VERSION, pid: std::process::id() };
        loop {
            self.say(&leave);
            self.say(&join);
        }
    }

    fn count_in_two_worlds(mut self) {
        let kinds = vec![KindTraffic { operations: u64::MAX, bytes: u64::MAX }];
        let leave = FromRank::Leave {
            traffic: vec![PeerTraffic { peer: 0, kinds }],
            network: vec![("requests".to_owned(), u64::MAX)],
        };
        self.say(&leave);
        assert_eq!(hear(&mut self.replies), ToRank::Goodbye);
        self.say(&FromRank::Join { version: CONTROL_VERSION, pid: std::process::id() });
        assert!(matches!(hear(&mut self.replies), ToRank::Start(_)));
        self.say(&leave);
        assert_eq!(hear(&mut self.replies), ToRank::Goodbye);
        std::process::exit(0);
    }

    /// Until the launcher ends this process.
    fn wait_for_the_end(mut self) {
        let mut rest = Vec::new();
        let _ = self.replies.read_to_end(&mut rest);
    }
}

/// The next message, other than the watchdog's.
fn hear(replies: &mut BufReader<UnixStream>) -> ToRank {
    loop {
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        match serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")) {
            ToRank::Inquire { .. } => {}
            message => return message,
        }
    }
}

#[test]
fn perf_measures_by_the_program_beside_it() {
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_longarm")).with_file_name("longarm-bench");
    assert!(beside.is_file(), "this test needs longarm-bench: cargo build --workspace --bins");
    // No update is lost, or there would be no line.
    let (status, stdout, stderr) = end(longarm("perf gups -n 3 --layout shm,tcp --quick --json"));
    assert_eq!(status, 0, "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{stdout}");
    for (line, layout) in lines.into_iter().zip(["shm", "tcp"]) {
        let of_layout = format!(r#""transport":"{layout}","op":"gups""#);
        assert!(line.contains(&of_layout) && line.contains(r#""np":3"#), "{line}");
    }
    let (status, stdout, stderr) = end(longarm("perf sort -n 3 --layout tcp --quick"));
    assert!(status == 0 && stdout.contains("is_S"), "{stdout} {stderr}");
    let pictures = tempfile::tempdir().unwrap();
    let (status, stdout, stderr) = end(longarm(&format!("perf lmt --quick --plot {}", pictures.path().display())));
    assert!(status == 0 && stdout.contains("lmt_double") && stdout.contains("lmt_nontemporal"), "{stdout} {stderr}");
    let picture = std::fs::read_to_string(pictures.path().join("lmt-shm.svg")).unwrap();
    assert!(picture.contains("lmt_double"), "{stderr}");
    let (status, _, stderr) = end(longarm("perf nothing"));
    assert!(status == 2 && stderr.contains("nothing"), "{status}: {stderr}");
}

#[test]
fn perf_without_its_program_says_how_to_get_it() {
    let alone = tempfile::tempdir().unwrap();
    let program = alone.path().join("longarm");
    copy(env!("CARGO_BIN_EXE_longarm"), &program);
    let mut command = Command::new(program);
    command.args(["perf", "gups"]).env("PATH", "");
    let (status, _, stderr) = end(command);
    assert!(status == 1 && stderr.contains("longarm-bench") && stderr.contains("make install"), "{status}: {stderr}");
}
