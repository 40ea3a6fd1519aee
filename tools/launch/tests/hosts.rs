//! `longarm run` on several hosts, all of which are this machine: what leads to an agent just runs it here.
//!
//! Ranks are shell scripts, or this very program, which also plays what stands between launcher and agent ([`transport`]).
//! Waiting is always for an event; no test has a time limit of its own.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use processes::{end, family_of, kill, read_lines, text, wait_until_gone};
use rustix::process::{Pid, Signal};

mod hosts {
    mod agents;
    mod killed;
    mod refused;
}
mod processes;

/// Names what [`the_program_that_plays_a_rank`] shall play.
const PLAY: &str = "PLAY_OF_THE_RANK";
/// Says to a rank which host its agent was started for: one of the variables that stay a host's own.
const SIMPLE: &str = "env HOSTNAME={}";

fn longarm(line: &str, agent_command: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longarm"));
    command.args(line.split_whitespace()).args(["--agent-command", agent_command]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("LONGARM_INTERFACE", "127.0.0.1").env_remove("HOSTNAME");
    command
}

fn shell(line: &str, script: &str) -> Command {
    let mut command = longarm(line, SIMPLE);
    command.args(["--", "/bin/sh", "-c", script]);
    command
}

/// Agents are the children of a process that only carries bytes, as ssh does, and that prints some first.
fn transport() -> String {
    format!("{} the_program_that_plays_a_transport --exact --nocapture", this())
}

fn this() -> String {
    std::env::current_exe().expect("the test has a file").into_os_string().into_string().expect("its name is text")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn hosts_get_blocks_of_ranks_by_their_slots_and_nodes_of_their_own() {
    let script = "echo $LONGARM_RANK of $LONGARM_SIZE node $LONGARM_NODE on $HOSTNAME";
    let (status, stdout, stderr) = end(shell("run --hosts a:2,b,c:2", script));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let expected =
        ["0 of 5 node 0 on a", "1 of 5 node 0 on a", "2 of 5 node 1 on b", "3 of 5 node 2 on c", "4 of 5 node 2 on c"];
    assert_eq!(sorted(&stdout), expected);
    let (_, stdout, _) = end(shell("run -n 3 --hosts a,b --nodes 2", "echo $LONGARM_RANK $LONGARM_NODE $HOSTNAME"));
    assert_eq!(sorted(&stdout), ["0 0 a", "1 1 a", "2 2 b"]);
    let (_, stdout, stderr) = end(shell("run -n 3 --hosts a:1,b:1", "echo $LONGARM_RANK $HOSTNAME"));
    assert_eq!(sorted(&stdout), ["0 a", "1 a", "2 b"]);
    assert!(stderr.contains("more ranks than they take: a 2 (for 1)"), "{stderr}");
}

#[test]
fn a_file_of_hosts_says_the_same_as_a_list() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# ours\na:2\nb slots=1 # small\n").unwrap();
    let line = format!("run --hostfile {}", file.path().display());
    let (_, stdout, stderr) = end(shell(&line, "echo $LONGARM_RANK $HOSTNAME"));
    assert_eq!((sorted(&stdout), stderr.as_str()), (vec!["0 a", "1 a", "2 b"], ""));
}

#[test]
fn ranks_have_the_launchers_environment_and_folder_but_for_what_is_their_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = shell("run --hosts a,b", "pwd; echo \"$MINE\"; echo $HOSTNAME; printenv LONGARM_WATCHDOG_S");
    command.current_dir(&folder).env("MINE", "two words\tand a tab").env("HOSTNAME", "launcher");
    let (_, stdout, _) = end(command.env("LONGARM_WATCHDOG_S", "17").pipe());
    let folder = folder.path().to_str().unwrap();
    let twice = |line| [line, line];
    let mut expected = [twice(folder), twice("two words\tand a tab"), ["a", "b"], twice("17")].concat();
    expected.sort_unstable();
    assert_eq!(sorted(&stdout), expected);
}

/// Ends a chain of `&mut Command`.
trait Pipe {
    fn pipe(&mut self) -> Command;
}

impl Pipe for Command {
    fn pipe(&mut self) -> Command {
        std::mem::replace(self, Command::new("true"))
    }
}

#[test]
fn ranks_on_several_hosts_make_one_world_over_whatever_leads_there() {
    for (hosts, agent_command) in [("localhost,b", SIMPLE.to_owned()), ("a,b", transport())] {
        let mut command = longarm(&format!("run -n 4 --hosts {hosts}"), &agent_command);
        command
            .arg("--")
            .arg(this())
            .args(["the_program_that_plays_a_rank", "--exact", "--nocapture"])
            .env(PLAY, "ring");
        let (status, stdout, stderr) = end(command);
        assert_eq!((status, stderr.as_str()), (0, ""), "{stdout}");
        let told = sorted(&stdout).into_iter().filter(|line| line.contains("was told")).collect::<Vec<_>>();
        let expected = [(0, 0, 103), (1, 0, 100), (2, 1, 101), (3, 1, 102)];
        assert_eq!(told, expected.map(|(rank, node, got)| format!("rank {rank} of 4 on node {node} was told {got}")));
    }
}

#[test]
fn many_hosts_are_reached_through_each_other() {
    let hosts: Vec<String> = (0..33).map(|host| format!("h{host}")).collect();
    let mut child =
        shell(&format!("run --hosts {}", hosts.join(",")), "echo $LONGARM_RANK $HOSTNAME; read line; sleep 1000")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = read_lines(&mut child, hosts.len());
    lines.sort_by_key(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap());
    let expected: Vec<String> = hosts.iter().enumerate().map(|(rank, host)| format!("{rank} {host}")).collect();
    assert_eq!(lines, expected);
    let family = family_of(child.id());
    let own: Vec<&(String, String)> = family.iter().filter(|(_, name)| name.ends_with(" agent ")).collect();
    assert_eq!(own.len(), hosts.len());
    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    family.iter().for_each(|(pid, _)| wait_until_gone(pid));
}

#[test]
fn output_of_other_hosts_keeps_every_byte_and_its_lines_are_whole() {
    let script = "head -c 900000 /dev/zero | tr '\\0' $HOSTNAME; echo; echo err >&2; printf last";
    let (status, stdout, stderr) = end(shell("run --hosts a,b --tag-output", script));
    assert_eq!((status, sorted(&stderr)), (0, vec!["[0 on a] err", "[1 on b] err"]));
    let long = |rank: u32, letter: &str| format!("[{rank} on {letter}] {}", letter.repeat(900_000));
    let mut lines = sorted(&stdout);
    lines.retain(|line| line.len() < 100);
    assert_eq!(lines, ["[0 on a] last", "[1 on b] last"]);
    assert!(stdout.lines().any(|line| line == long(0, "a")) && stdout.lines().any(|line| line == long(1, "b")));
}

#[test]
fn a_reader_that_is_gone_ends_a_rank_elsewhere_as_a_broken_pipe_does() {
    let mut child = shell("run --hosts a", "while echo y; do :; done 2>/dev/null; exit 3").spawn().unwrap();
    drop(child.stdout.take());
    assert_ne!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn input_goes_to_rank_0_wherever_it_is_with_every_byte_and_its_end() {
    let mut child = shell("run --hosts a,b --tag-output", "wc -c").stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..100 {
        stdin.write_all(&[b'x'; 10_000]).unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(sorted(&text(output.stdout)), ["[0 on a] 1000000", "[1 on b] 0"]);
}

#[test]
fn a_rank_0_elsewhere_that_does_not_read_its_input_holds_nothing_up() {
    let mut child = shell("run --hosts a,b", "echo $LONGARM_RANK").stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Writes until the launcher is gone.
    let writer = std::thread::spawn(move || while stdin.write_all(&[b'y'; 1 << 16]).is_ok() {});
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!((output.status.code(), sorted(&text(output.stdout))), (Some(0), vec!["0", "1"]));
}

#[test]
fn a_rank_that_fails_is_named_with_its_host_and_decides_the_status() {
    let (status, _, stderr) = end(shell("run --hosts a,b:2", "[ $LONGARM_RANK = 2 ] && exit 7; sleep 1000"));
    assert_eq!(status, 7);
    assert!(stderr.starts_with("longarm: rank 2 (node 1, host b, pid "), "{stderr}");
    assert!(stderr.ends_with(") exited with status 7; ending the job\n"), "{stderr}");
    let (status, _, stderr) = end(shell("run --hosts a,b", "[ $LONGARM_RANK = 1 ] && kill -9 $$; sleep 1000"));
    assert_eq!(status, 128 + 9);
    assert!(stderr.contains("host b, pid ") && stderr.contains("killed by signal 9 (SIGKILL)"), "{stderr}");
}

#[test]
fn a_host_that_falls_silent_is_named_and_its_ranks_are_dead_for_the_others() {
    let mut command = shell("run -n 4 --hosts a,b", "echo $$ $HOSTNAME $PPID; sleep 1000");
    command.env("LONGARM_SILENCE_MS", "300").env("LONGARM_RECONNECT_S", "0");
    let mut child = command.spawn().unwrap();
    let lines = read_lines(&mut child, 4);
    let agent = lines.iter().find_map(|line| line.split_once(" b ")).unwrap().1;
    rustix::process::kill_process(Pid::from_raw(agent.parse().unwrap()).unwrap(), Signal::STOP).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("host b (ranks 2-3) was lost: it has said nothing for 0.3 s; ending the job"), "{stderr}");
    lines.iter().for_each(|line| wait_until_gone(line.split(' ').next().unwrap()));
}

#[test]
fn a_launcher_that_is_stopped_is_given_up_by_every_host_and_finds_them_gone_when_it_goes_on() {
    let mut command = shell("run -n 4 --hosts a,b", "echo $$; [ $LONGARM_RANK = 1 ] && exec yes; sleep 1000");
    command.env("LONGARM_SILENCE_MS", "300").env("LONGARM_RECONNECT_S", "0");
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(|line| line.unwrap());
    let pids: Vec<String> = lines.filter(|line| line != "y").take(4).collect();
    rustix::process::kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    pids.iter().for_each(|pid| wait_until_gone(pid));
    rustix::process::kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = text(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("longarm: host ") && stderr.contains(" was lost: "), "{stderr}");
}

#[test]
fn where_survivors_go_on_a_lost_host_leaves_the_others_alive() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let script = format!("echo $$ $HOSTNAME $PPID; while [ ! -e {} ]; do sleep 0.01; done; echo done", mark.display());
    let mut command = shell("run -n 4 --hosts a,b", &script);
    let mut child = command.env("LONGARM_ON_FAILURE", "continue").spawn().unwrap();
    let lines = read_lines(&mut child, 4);
    let agent = lines.iter().find_map(|line| line.split_once(" b ")).unwrap().1;
    kill(agent);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("longarm: host b (ranks 2-3) was lost: "), "{line}");
    assert!(line.ends_with("the others go on\n"), "{line}");
    std::fs::write(&mark, "").unwrap();
    assert_eq!(read_lines(&mut child, 2), ["done", "done"]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_rank_that_is_stopped_on_another_host_is_said_to_be() {
    let mut command = longarm("run -n 2 --hosts a,b", SIMPLE);
    command.arg("--").arg(this()).args(["the_program_that_plays_a_rank", "--exact", "--nocapture"]);
    let mut child = command.env(PLAY, "rest").stdin(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut pids = [String::new(), String::new()];
    let mut found = 0;
    while found < 2 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if let Some((rank, pid)) = line.trim_end().strip_prefix("resting ").and_then(|rest| rest.split_once(' ')) {
            pids[rank.parse::<usize>().unwrap()] = pid.to_owned();
            found += 1;
        }
    }
    let stopped = Pid::from_raw(pids[1].parse().unwrap()).unwrap();
    rustix::process::kill_process(stopped, Signal::STOP).unwrap();
    let mut ps = Command::new(env!("CARGO_BIN_EXE_longarm"));
    let report = ps.args(["ps", &child.id().to_string(), "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let states: Vec<&str> =
        report["ranks"].as_array().unwrap().iter().map(|rank| rank["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["computing", "stopped"], "{report}");
    assert_eq!(report["ranks"][1]["pid"].to_string(), pids[1]);
    assert_eq!((&report["ranks"][0]["host"], &report["ranks"][1]["host"]), (&"a".into(), &"b".into()));
    assert_eq!(report["job"]["hosts"], 2);
    rustix::process::kill_process(stopped, Signal::CONT).unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// This program as the ranks of a job.
fn played(line: &str, play: &str) -> Command {
    let mut command = longarm(line, SIMPLE);
    command.arg("--").arg(this()).args(["the_program_that_plays_a_rank", "--exact", "--nocapture", "-q"]);
    command.env(PLAY, play).pipe()
}

#[test]
fn the_watchdog_says_who_waits_for_whom_on_which_host() {
    let mut command = played("run -n 3 --hosts a,b", "stand still");
    let mut child = command.env("LONGARM_WATCHDOG_S", "1").stdin(Stdio::piped()).spawn().unwrap();
    let mut said: Vec<String> = Vec::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    while said.last().is_none_or(|line| !line.starts_with(" hosts: ")) {
        said.push(stderr.next().expect("the watchdog says it").unwrap());
    }
    let said = said.join("\n");
    assert!(said.contains("longarm: rank ") && said.contains(" has waited in barrier for "), "{said}");
    let words: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.iter().any(|line| line.starts_with(&["2", "1", "b", "barrier"])), "{said}");
    assert!(said.ends_with(" hosts: a (ranks 0-1), b (rank 2)"), "{said}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn where_survivors_go_on_the_ranks_of_all_hosts_hear_of_a_death() {
    let (status, stdout, stderr) =
        end(played("run -n 4 --hosts a,b", "death").env("LONGARM_ON_FAILURE", "continue").pipe());
    assert_eq!(status, 5, "{stdout}{stderr}");
    let heard = sorted(&stdout).into_iter().filter(|line| line.contains("heard")).collect::<Vec<_>>();
    assert_eq!(heard.len(), 3, "{stdout}{stderr}");
    assert!(heard.iter().zip(0..).all(|(line, rank)| line.starts_with(&format!("{rank} heard: "))), "{stdout}");
    assert!(heard.iter().all(|line| line.ends_with("exited with status 5")), "{stdout}");
    assert!(stderr.starts_with("longarm: rank 3 (node 1, host b, pid "), "{stderr}");
    assert!(stderr.contains(") exited with status 5; the others go on\n"), "{stderr}");
}

#[test]
fn statistics_and_the_heat_map_are_of_all_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("heat");
    let line = format!("run -n 4 --hosts a,b --json --stats-file {}", prefix.display());
    let (status, stdout, _) = end(played(&line, "ring"));
    let json = &stdout[stdout.find("{\"").unwrap()..];
    let report: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((status, report["ranks"].as_u64()), (0, Some(4)), "{report}");
    let flows = report["flows"].as_array().unwrap();
    let is_there = |from: u32| {
        let to = (from + 1) % 4;
        flows.iter().any(|flow| flow["origin"] == from && flow["target"] == to)
    };
    assert!((0..4).all(is_there), "ranks of both hosts put to their neighbours: {report}");
    let picture = std::fs::read_to_string(prefix.with_file_name("heat-traffic.svg")).unwrap();
    assert!(picture.starts_with("<svg"), "{picture}");
}

#[test]
fn a_timeout_ends_the_ranks_of_all_hosts() {
    let (status, stdout, stderr) = end(shell("run --hosts a,b --timeout 0.3", "echo $$; sleep 1000"));
    assert_eq!(status, 124);
    assert!(stderr.contains("ranks 0-1 still running"), "{stderr}");
    stdout.lines().for_each(wait_until_gone);
}

#[test]
fn the_program_that_plays_a_transport() {
    let words: Vec<String> = std::env::args().collect();
    let Some(at) = words.iter().position(|word| word == "agent").filter(|at| *at > 1) else { return };
    println!("a banner of the host {}", words[at - 2]);
    let mut agent = Command::new(&words[at - 1]);
    let agent = agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn();
    let mut agent = agent.expect("the agent starts");
    let mut to_agent = agent.stdin.take().unwrap();
    let mut from_agent = agent.stdout.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut std::io::stdin().lock(), &mut to_agent));
    let mut chunk = [0; 4096];
    let mut stdout = std::fs::File::from(std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned().unwrap());
    while let Ok(count @ 1..) = from_agent.read(&mut chunk) {
        if stdout.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    drop(from_agent);
    let status = agent.wait().unwrap();
    // Without the last words of a test.
    std::process::exit(status.code().unwrap_or(1));
}

#[test]
fn the_program_that_plays_a_rank() {
    let Ok(play) = std::env::var(PLAY) else { return };
    let world = longarm::init().unwrap();
    if play == "rest" {
        println!("resting {} {}", world.rank(), std::process::id());
        // The launcher's input, or its end on the others.
        if world.rank() == 0 {
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        world.finalize().unwrap();
        return;
    }
    if play == "stand still" {
        if world.rank() == 0 {
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        world.barrier_collective().unwrap();
        world.finalize().unwrap();
        return;
    }
    if play == "death" {
        world.barrier_collective().unwrap();
        if world.rank() == 3 {
            std::process::exit(5);
        }
        println!("{} heard: {}", world.rank(), world.barrier_collective().unwrap_err());
        world.finalize().unwrap();
        return;
    }
    let window = world.allocate_collective::<u64>(1).unwrap();
    let right = (world.rank() + 1) % world.size();
    window.put(right, 0, &[u64::from(world.rank()) + 100]).unwrap();
    world.barrier_collective().unwrap();
    let got = window.get_one(world.rank(), 0).unwrap();
    println!("rank {} of {} on node {} was told {got}", world.rank(), world.size(), world.node());
    world.finalize().unwrap();
}
