//! Agents that this test is the launcher of: what they do with one that is silent, and that does not read.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use longarm_control::agent::{AGENT_VERSION, Branch, Setup, Starter, ToAgent};
use longarm_control::frames::Frame;

/// An agent that has begun to speak, and its output.
fn agent() -> (Child, BufReader<ChildStdout>) {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_longarm"));
    let agent = agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut agent = agent.spawn().expect("the agent starts");
    let mut stdout = BufReader::new(agent.stdout.take().unwrap());
    let mut marker = String::new();
    stdout.read_line(&mut marker).unwrap();
    assert!(marker.starts_with("longarm-agent-speaks "), "{marker}");
    (agent, stdout)
}

fn setup(ranks: u32, script: &str, silence_ms: u64) -> Setup {
    let name = "a".to_owned();
    Setup {
        version: AGENT_VERSION,
        size: ranks,
        folder: b"/".to_vec(),
        command: ["/bin/sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec(),
        environment: std::env::var("PATH").map(|path| (b"PATH".to_vec(), path.into_bytes())).into_iter().collect(),
        kept: Vec::new(),
        is_bound: false,
        debugger: false,
        silence_ms: Some(silence_ms),
        starter: Starter { command: Vec::new(), paths: Vec::new(), is_read_by_shell: false },
        branch: Branch { host: 0, name, ranks: (0..ranks).map(|rank| (rank, 0)).collect(), below: Vec::new() },
    }
}

fn say(agent: &mut Child, frame: &ToAgent) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    agent.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
}

/// A pipe in the file system. Whoever reads from it hears when the last process that has it open for writing is gone.
fn fifo(folder: &Path) -> String {
    let path = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_agent_that_is_told_nonsense_starts_nothing() {
    let (mut agent, mut stdout) = agent();
    agent.stdin.take().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), agent.wait().unwrap().success()), (0, false));
}

#[test]
fn a_launcher_that_neither_reads_nor_speaks_is_given_up_and_no_rank_is_left() {
    const RANKS: u32 = 40;
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let (mut agent, mut stdout) = agent();
    // What these write is more than fits on the way; the end of rank 0 is to be told behind it.
    let script = format!(
        "exec 9>{fifo}; [ $LONGARM_RANK = 0 ] && {{ read line; exit 0; }}; yes >&2 & echo $LONGARM_RANK >&9; exec yes"
    );
    say(&mut agent, &ToAgent::Setup(Box::new(setup(RANKS, &script, 2000))));
    let mut begun = BufReader::new(std::fs::File::open(&fifo).unwrap());
    let mut line = String::new();
    (1..RANKS).for_each(|_| assert!(begun.read_line(&mut line).unwrap() > 0));
    say(&mut agent, &ToAgent::Input { rank: 0, bytes: Vec::new() });
    // From here on the launcher is silent and reads nothing, as one that was stopped.
    line.clear();
    assert_eq!(begun.read_to_string(&mut line).unwrap(), 0, "the ranks end");
    let mut stderr = String::new();
    agent.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("longarm agent: the launcher has said nothing for "), "{stderr}");
    agent.wait().unwrap();
    stdout.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn an_agent_that_starts_nothing_beats_meanwhile_and_gives_up_a_silent_launcher() {
    let (mut agent, mut stdout) = agent();
    let setup = Setup { version: AGENT_VERSION + 1, ..setup(1, "true", 300) };
    say(&mut agent, &ToAgent::Setup(Box::new(setup)));
    // It ends by itself.
    let mut said = Vec::new();
    stdout.read_to_end(&mut said).unwrap();
    let mut beat = Vec::new();
    longarm_control::agent::FromAgent::Beat.encode(&mut beat);
    assert!(said.windows(beat.len()).filter(|bytes| *bytes == beat).count() >= 3, "{said:?}");
    agent.wait().unwrap();
}
