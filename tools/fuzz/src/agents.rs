//! What launchers and agents on other hosts say to each other over whatever leads there, which may print things of its own.
//!
//! What must hold: no panic; how bytes are cut on their way makes no difference; what is accepted means the same when it is written
//! again, and no frame is longer than the longest; nothing but what a sound launcher sends makes a job.

use std::collections::BTreeSet;

use longarm_control::agent::{AGENT_VERSION, Branch, CHUNK_BYTES_MAX, FromAgent, Setup, Starter, Stream, ToAgent};
use longarm_control::agent::{marker, read_marker};
use longarm_control::frames::{Decoder, Frame, FrameError};
use longarm_control::how_ended::HowEnded;

use crate::choices::{Choices, Script};
use crate::inputs::Seeds;

/// Takes the bytes for what an agent hears, or for what its launcher does, behind the agent's first line.
pub fn agent_frames(data: &[u8]) {
    let mut choices = Choices::new(data);
    let is_to_agent = choices.byte().is_multiple_of(2);
    let piece = 1 + usize::from(choices.byte());
    let bytes = choices.rest();
    if is_to_agent {
        for frame in check_frames::<ToAgent>(bytes, piece) {
            match frame {
                ToAgent::Setup(setup) => check_setup(&setup),
                ToAgent::Input { bytes, .. } => assert!(bytes.len() <= CHUNK_BYTES_MAX),
                _ => {}
            }
        }
    } else {
        let behind_marker = skip_to_marker(bytes, piece);
        for frame in check_frames::<FromAgent>(behind_marker.unwrap_or(bytes), piece) {
            if let FromAgent::Output { bytes, .. } = frame {
                assert!(bytes.len() <= CHUNK_BYTES_MAX);
            }
        }
    }
}

/// What follows the first line of an agent, in whatever pieces it comes.
fn skip_to_marker(bytes: &[u8], piece: usize) -> Option<&[u8]> {
    let mut decoder = Decoder::default();
    let mut taken = 0;
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        while let Some(line) = decoder.next_line() {
            taken += line.len() + 1;
            assert_eq!(bytes[taken - 1], b'\n');
            if let Some((_, software)) = read_marker(&line) {
                assert!(software.chars().count() <= 64 && !software.contains(char::is_control), "{software:?}");
                return Some(&bytes[taken..]);
            }
        }
    }
    None
}

/// The frames of the bytes, which are the same however they are cut.
pub(crate) fn check_frames<F: Frame + PartialEq + std::fmt::Debug>(bytes: &[u8], piece: usize) -> Vec<F> {
    let (frames, error) = decoded::<F>(bytes, piece);
    let (whole, same_error) = decoded::<F>(bytes, bytes.len().max(1));
    assert_eq!((&frames, &error), (&whole, &same_error));
    let mut spelled = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut spelled));
    assert_eq!(decoded::<F>(&spelled, 64 << 10), (whole, None), "what was accepted means the same again");
    if let Some(error) = error {
        assert!(error.to_string().len() < 100, "{error}");
    }
    frames
}

fn decoded<F: Frame>(bytes: &[u8], piece: usize) -> (Vec<F>, Option<FrameError>) {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    assert!(decoder.waiting() <= bytes.len());
    (frames, None)
}

/// Of what is taken for a job one can be made.
fn check_setup(setup: &Setup) {
    if !setup.is_sound() {
        return;
    }
    let (mut hosts, mut ranks) = (BTreeSet::new(), BTreeSet::new());
    setup.branch.for_each(&mut |branch: &Branch| {
        assert!(hosts.insert(branch.host), "a host is there once");
        for (rank, _) in &branch.ranks {
            assert!(*rank < setup.size && ranks.insert(*rank), "a rank is one of the job's, and there once");
        }
        for command in setup.starter.commands(&branch.name) {
            assert_eq!(command.last().map(String::as_str), Some("agent"));
        }
    });
    assert_eq!(setup.branch.hosts().len(), hosts.len());
    assert!(!setup.command.is_empty());
}

fn setup() -> Setup {
    let leaf = |host: u32, name: &str, ranks: &[(u32, u32)]| Branch {
        host,
        name: name.to_owned(),
        ranks: ranks.to_vec(),
        below: Vec::new(),
    };
    Setup {
        version: AGENT_VERSION,
        size: 3,
        folder: b"/".to_vec(),
        command: vec![b"true".to_vec()],
        environment: vec![(b"A".to_vec(), b"1".to_vec())],
        kept: vec!["HOME".to_owned()],
        is_bound: false,
        debugger: false,
        silence_ms: Some(5000),
        starter: Starter { command: vec!["ssh".to_owned()], paths: vec!["a b".to_owned()], is_read_by_shell: true },
        branch: Branch { below: vec![leaf(1, "b", &[(2, 1)])], ..leaf(0, "a", &[(0, 0), (1, 0)]) },
    }
}

/// A conversation each way, each unlike the other in how it is cut, and what no sound side sends.
pub(crate) fn seeds() -> Seeds {
    let spelled =
        |direction: u8, piece: u8, bytes: &[u8]| Script::default().byte(direction).byte(piece).plain(bytes).written();
    let mut to_agent = Vec::new();
    for frame in [
        ToAgent::Setup(Box::new(setup())),
        ToAgent::Beat,
        ToAgent::Message { rank: 1, line: b"{}\n".to_vec() },
        ToAgent::Signal { rank: 1, signal: 15 },
        ToAgent::Input { rank: 0, bytes: b"in".to_vec() },
        ToAgent::Room { rank: 1, stream: Stream::Stderr },
        ToAgent::Closed { rank: 1, stream: Stream::Stdout },
        ToAgent::Look { rank: 2 },
        ToAgent::Finish,
    ] {
        frame.encode(&mut to_agent);
    }
    let mut from_agent = format!("last login: never\n{}", marker("0.1.0")).into_bytes();
    for frame in [
        FromAgent::Ready { host: 0, processors: vec![0, 1] },
        FromAgent::Started { rank: 0, pid: 7 },
        FromAgent::Line { rank: 0, line: b"{}".to_vec() },
        FromAgent::Output { rank: 0, stream: Stream::Stdout, bytes: b"out".to_vec() },
        FromAgent::InputRoom { rank: 0 },
        FromAgent::Looked { rank: 0, is_stopped: true },
        FromAgent::Broke { rank: 0, waiting: None },
        FromAgent::Broke { rank: 1, waiting: Some(9) },
        FromAgent::Ended { rank: 0, how: HowEnded::Killed(9) },
        FromAgent::Ended { rank: 1, how: HowEnded::Gone },
        FromAgent::Lost { host: 1, reason: "it is gone".to_owned() },
        FromAgent::Refused { host: 1, status: 127, reason: "no such program".to_owned() },
        FromAgent::Beat,
        FromAgent::Finished { host: 0 },
    ] {
        frame.encode(&mut from_agent);
    }
    let longest = u32::MAX.to_le_bytes();
    let mut twice = setup();
    twice.branch.below[0].ranks[0].0 = 1;
    let mut unsound = Vec::new();
    ToAgent::Setup(Box::new(twice)).encode(&mut unsound);
    vec![
        ("to_an_agent", spelled(0, 255, &to_agent)),
        ("from_an_agent", spelled(1, 6, &from_agent)),
        ("longer_than_any", spelled(0, 3, &longest)),
        ("a_kind_that_does_not_exist", spelled(1, 0, &[5, 0, 0, 0, 99, 0, 0, 0, 0])),
        ("a_rank_that_is_there_twice", spelled(0, 255, &unsound)),
        ("noise", spelled(1, 9, b"no\nagent\nhere")),
    ]
}
