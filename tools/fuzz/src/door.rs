//! Visitors at a node's door who send anything.
//!
//! What must hold: no panic; what is no request ends that visit only; a window is made, handed out and freed exactly when
//! the rules say so, and its file has the bytes that were asked for.

use std::cell::RefCell;
use std::collections::BTreeMap;

use longarm_server::door::{DoorReply, DoorRequest};

use crate::choices::{Choices, Script};
use crate::node::{Heard, Node, RANKS};

/// Plays after which a new server takes over: it remembers every window that was ever freed.
const PLAYS_MAX: u32 = 1000;
/// Windows of up to so many bytes are made on any machine.
const CERTAIN_BYTES_MAX: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4 << 10;

thread_local! {
    static STAGE: RefCell<Option<(Node, u32)>> = const { RefCell::new(None) };
}

/// Plays the choices.
pub fn door(data: &[u8]) {
    let mut choices = Choices::new(data);
    // A play that panics takes its server with it.
    let (mut node, plays) = STAGE.take().unwrap_or_else(|| (Node::new(), 0));
    let mut live: BTreeMap<u64, u32> = BTreeMap::new();
    let mut visitor = node.visitor();
    while !choices.is_over() {
        let packet = packet(&mut choices, node.job.0);
        if packet.is_empty() {
            continue;
        }
        let heard = node.ask_plainly(&visitor, &packet);
        match serde_json::from_slice::<DoorRequest>(&packet) {
            Ok(request) => check(&request, heard, node.job.0, &mut live),
            Err(_) => {
                assert!(matches!(heard, Heard::HungUp), "{heard:?}");
                visitor = node.visitor();
            }
        }
    }
    for (window, generation) in live {
        let heard = node.ask(&visitor, &DoorRequest::Free { window, generation });
        assert!(matches!(heard, Heard::Reply(DoorReply::Gone, None)), "{heard:?}");
    }
    drop(visitor);
    node.settle();
    assert_eq!(node.engine.census().visitors, 0, "who has left is forgotten");
    if plays < PLAYS_MAX {
        STAGE.set(Some((node, plays + 1)));
    }
}

fn packet(choices: &mut Choices<'_>, job: u64) -> Vec<u8> {
    let kind = choices.byte();
    if kind == b'{' {
        return [b"{", choices.bytes()].concat();
    }
    let (window, generation) = (u64::from(choices.byte() % 8), u32::from(choices.byte() % 4));
    let request = match kind % 8 {
        0..=2 => {
            let count = choices.byte() % 4;
            let parts = (0..count).map(|_| (u32::from(choices.byte() % 4), bytes(choices))).collect();
            // Memory that one window has after the other: often the same, and at times too small.
            let room = [None, Some(4 << 10), Some(64 << 10)][usize::from(kind % 8)];
            DoorRequest::Create { window, generation, key: 5, parts, aligned: false, room }
        }
        3 => DoorRequest::Attach { window, generation },
        5 => DoorRequest::Ringer,
        4 => DoorRequest::Free { window, generation },
        6 => DoorRequest::NodeSegment { job: job ^ u64::from(choices.byte() % 2) },
        _ => DoorRequest::Create {
            window: choices.word(),
            generation,
            key: choices.word(),
            parts: vec![(0, 8)],
            aligned: false,
            room: None,
        },
    };
    let mut packet = serde_json::to_vec(&request).expect("a request can be written");
    if kind >= 0xf0 {
        let at = usize::from(choices.byte()) % packet.len();
        packet[at] ^= choices.byte();
    }
    packet
}

/// Bytes of a part: small, or more than any machine has.
fn bytes(choices: &mut Choices<'_>) -> u64 {
    match choices.byte() {
        0..=199 => u64::from(choices.short()),
        200..=219 => 1 << 40,
        220..=229 => u64::MAX,
        230..=239 => 1 << 63,
        _ => u64::MAX / 2 - 4096,
    }
}

fn check(request: &DoorRequest, heard: Heard, job: u64, live: &mut BTreeMap<u64, u32>) {
    let Heard::Reply(reply, file) = heard else { panic!("{heard:?} is no answer to {request:?}") };
    let is_here = matches!(reply, DoorReply::Here { .. });
    assert_eq!(is_here, file.is_some(), "memory comes with what says so: {reply:?}");
    match request {
        DoorRequest::NodeSegment { job: asked } => assert_eq!(is_here, *asked == job, "{reply:?}"),
        DoorRequest::Ringer => assert!(!is_here, "no thread sleeps for this server: {reply:?}"),
        DoorRequest::Attach { window, generation } => {
            assert_eq!(is_here, live.get(window) == Some(generation), "{request:?}: {reply:?}");
        }
        DoorRequest::Free { window, generation } => {
            let was_live = live.get(window) == Some(generation);
            assert_eq!(reply == DoorReply::Gone, was_live, "{request:?}: {reply:?}");
            if was_live {
                live.remove(window);
            }
        }
        DoorRequest::Create { window, generation, parts, room, .. } => {
            let sound = parts.is_sorted_by(|left, right| left.0 < right.0)
                && parts.iter().all(|(rank, _)| RANKS.iter().any(|here| here.0 == *rank))
                && parts.iter().all(|(_, bytes)| room.is_none_or(|room| *bytes <= room))
                && !live.contains_key(window);
            let places = parts.iter().map(|(_, bytes)| room.unwrap_or(*bytes));
            let total = places.clone().fold(0_u64, u64::saturating_add);
            // Whether there is room for very many bytes, the system says.
            assert!(sound || !is_here, "{request:?}: {reply:?}");
            assert!(is_here || !sound || total > CERTAIN_BYTES_MAX, "{request:?}: {reply:?}");
            if let Some(file) = file {
                live.insert(*window, *generation);
                let found = rustix::fs::fstat(&file).expect("a file has a size").st_size as u64;
                let due: u64 = places.map(|bytes| bytes.next_multiple_of(PAGE_BYTES)).sum();
                assert_eq!(found, due, "{request:?}");
            }
        }
    }
}

/// The life of a window, and visits that go wrong.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let create =
        |script: Script| script.byte(0).byte(1).byte(1).byte(2).byte(0).byte(0).short(100).byte(1).byte(0).short(5000);
    let ask = |script: Script, kind: u8| script.byte(kind).byte(1).byte(1);
    let life = ask(ask(ask(create(Script::default()), 3), 4), 3);
    let roomy = |script: Script, bytes: u16| script.byte(1).byte(1).byte(1).byte(1).byte(0).byte(0).short(bytes);
    let one_after_the_other = roomy(ask(roomy(Script::default(), 100), 4), 4000);
    let part = |kind: u8| Script::default().byte(0).byte(1).byte(1).byte(1).byte(0).byte(kind);
    vec![
        ("the_life_of_a_window", life.written()),
        ("made_twice", create(create(Script::default())).written()),
        ("left_behind", create(Script::default()).written()),
        ("one_after_the_other", one_after_the_other.written()),
        ("the_ringer", ask(Script::default(), 5).written()),
        ("the_segment", Script::default().byte(6).byte(0).byte(0).byte(0).byte(6).byte(0).byte(0).byte(1).written()),
        ("a_tebibyte", part(200).written()),
        ("no_such_size", part(220).written()),
        ("an_odd_size", part(250).written()),
        ("of_nobody", Script::default().byte(0).byte(1).byte(1).byte(0).written()),
        ("no_request", Script::default().byte(b'{').bytes(b"\"Attach\":{}}").written()),
        ("changed", Script::default().byte(0xf3).byte(1).byte(1).byte(9).byte(1).written()),
        ("any_number", Script::default().byte(7).byte(0).byte(0).word(u64::MAX).word(1).written()),
    ]
}
