//! Requests by choice: sound ones, those that the server refuses, and those that break the protocol.

use longarm_proto::{
    AccumulateOp, ElementType, Generation, Kernel, Level, Rank, Request, RequestId, Rmw, RmwOp, RmwWidth, RmwWord, Run,
    Scale, Shape, Signal, SignalOp, Strided, WindowId, WindowRef,
};

use super::reference::{COUNTED, FREED, OF_FRIEND, OPEN};
use crate::choices::{Choices, Script};
use crate::node::PARTS;
use crate::wire::ramp;

/// What can be wrong with a request, by the name of its seed. The first two ask for what the server refuses, the others
/// leave the protocol, or stay in it by luck.
pub(super) const FLAWS: [(&str, u8); 9] = [
    ("a_wrong_key", 1),
    ("an_old_generation", 2),
    ("a_freed_window", 3),
    ("an_unknown_window", 4),
    ("a_rank_elsewhere", 5),
    ("an_offset_near_the_end", 6),
    ("a_changed_byte", 7),
    ("a_payload_cut_short", 8),
    ("a_number_left_out", 9),
];
/// Bytes of the words that one rank adds to.
const WORDS_BYTES: u64 = 2 << 10;
/// A flaw of this number or above is none.
const FLAWLESS: u8 = 10;

/// Takes a request from the choices, as it is said: its frame and its payload. `id` is the one that is due.
pub(super) fn choose(choices: &mut Choices<'_>, id: RequestId) -> Vec<u8> {
    let kind = choices.byte();
    let flaw = choices.byte() % 32;
    let target = target(choices, flaw);
    let request = request(choices, kind, target, flaw);
    let id = if flaw == 9 { RequestId(id.0.wrapping_add(choices.byte().into())) } else { id };
    let mut bytes = Vec::new();
    request.encode(id, &mut bytes);
    if flaw == 7 {
        let at = usize::from(choices.short()) % bytes.len();
        bytes[at] ^= choices.byte();
    }
    let mut payload_bytes = request.payload_bytes().min(PARTS[0]) as usize;
    if flaw == 8 {
        payload_bytes = payload_bytes.saturating_sub(1 + usize::from(choices.byte()));
    }
    bytes.extend(ramp(choices.byte(), payload_bytes));
    bytes
}

fn target(choices: &mut Choices<'_>, flaw: u8) -> WindowRef {
    let name = if choices.byte() < 240 { OPEN } else { OF_FRIEND };
    let mut target = WindowRef { rank: Rank(0), window: name.window, generation: name.generation, key: name.key };
    match flaw {
        1 => target.key.0 ^= choices.word(),
        2 => target.generation = Generation(choices.byte().into()),
        3 => target.window = FREED.window,
        4 => target.window = WindowId(choices.word()),
        _ => {}
    }
    // Most of all the rank that lives, which has the larger part.
    target.rank = match choices.byte() {
        rank if flaw == 5 => Rank(rank.into()),
        0..200 => Rank(0),
        _ => Rank(1),
    };
    target
}

fn request(choices: &mut Choices<'_>, kind: u8, target: WindowRef, flaw: u8) -> Request {
    match kind % 10 {
        0 => {
            let shape = shape(choices, flaw, 1);
            Request::Put { target, shape, signal: signal(choices) }
        }
        1 => Request::Get { target, shape: shape(choices, flaw, 1) },
        2 => {
            let element = choices.pick(ElementType::ALL);
            let kernel = Kernel::new(element, choices.pick(AccumulateOp::ALL));
            let kernel = kernel.or(Kernel::new(element, AccumulateOp::Sum)).expect("a sum always makes sense");
            let shape = shape(choices, flaw, element.bytes() as u64);
            Request::Accumulate { target, shape, kernel, scale: Scale::one(element) }
        }
        3 => {
            let (op, width) = (choices.pick(RmwOp::ALL), choices.pick(RmwWidth::ALL));
            let compare = if op == RmwOp::CompareSwap { choices.byte().into() } else { 0 };
            let rmw = Rmw { op, width, operand: choices.byte().into(), compare };
            Request::Rmw { target, offset: offset(choices, flaw), rmw }
        }
        4 => Request::Quiet,
        5 => Request::Lock { target, offset: mutex(choices, flaw) },
        6 => Request::TryLock { target, offset: mutex(choices, flaw) },
        7 => Request::Unlock { target, offset: mutex(choices, flaw) },
        8 => Request::Message { target: target.rank, bytes: u64::from(choices.short()) % PARTS[0], rest: 0 },
        _ => {
            let (op, width) = (choices.pick(RmwOp::ALL), choices.pick(RmwWidth::ALL));
            let op = if op == RmwOp::CompareSwap { RmwOp::Swap } else { op };
            let word = |choices: &mut Choices<'_>| RmwWord {
                offset: offset(choices, flaw) / 4 * 4,
                operand: choices.byte().into(),
            };
            let count = 1 + choices.byte() % 8;
            Request::RmwMany { target, op, width, words: (0..count).map(|_| word(choices)).collect() }
        }
    }
}

fn offset(choices: &mut Choices<'_>, flaw: u8) -> u64 {
    let near = u64::from(choices.short());
    match flaw {
        6 => [PARTS[0], PARTS[1], u64::MAX, 1 << 63][usize::from(choices.byte() % 4)].wrapping_sub(near % 64),
        _ => near,
    }
}

/// One of a few words, so that peers want the same.
fn mutex(choices: &mut Choices<'_>, flaw: u8) -> u64 {
    if flaw == 6 { offset(choices, flaw) } else { u64::from(choices.byte() % 4) * 64 }
}

/// Runs are multiples of `unit`.
fn shape(choices: &mut Choices<'_>, flaw: u8, unit: u64) -> Shape {
    match choices.byte() % 4 {
        0 | 1 => {
            let offset = offset(choices, flaw);
            let bytes = u64::from(choices.short()) % (PARTS[0] + 16) / unit * unit;
            Shape::contiguous(offset.min(u64::MAX - bytes), bytes)
        }
        2 => {
            let (offset, run_bytes) = (offset(choices, flaw), u64::from(choices.byte()) / unit * unit);
            let count = choices.byte() % 4;
            let level = |choices: &mut Choices<'_>| Level {
                count: u64::from(choices.byte() % 8),
                stride: i64::from(choices.short() as i16),
            };
            let levels: Vec<Level> = (0..count).map(|_| level(choices)).collect();
            let strided = Strided::new(offset, run_bytes, &levels);
            strided.map_or(Shape::contiguous(0, 0), Shape::Strided)
        }
        _ => {
            let count = choices.byte() % 8;
            let run = |choices: &mut Choices<'_>| {
                let (offset, bytes) = (offset(choices, flaw), u64::from(choices.byte()) / unit * unit);
                Run { offset: offset.min(u64::MAX - bytes), bytes }
            };
            Shape::Vector((0..count).map(|_| run(choices)).collect())
        }
    }
}

fn signal(choices: &mut Choices<'_>) -> Option<Signal> {
    let op = match choices.byte() % 4 {
        0 => SignalOp::Set,
        1 => SignalOp::Add,
        _ => return None,
    };
    let name = if choices.byte() < 200 { OPEN } else { FREED };
    let (window, generation, key) = (name.window, name.generation, name.key);
    Some(Signal { window, generation, key, offset: choices.short().into(), op, value: choices.byte().into() })
}

/// Adds to words that belong to a rank: 1 to the first of them by a read-modify-write, or to so many others by an accumulate.
pub(super) fn add(id: RequestId, of: u64, elements: u8) -> Vec<u8> {
    let (window, generation, key) = (COUNTED.window, COUNTED.generation, COUNTED.key);
    let (target, offset) = (WindowRef { rank: Rank(0), window, generation, key }, of * WORDS_BYTES);
    let mut bytes = Vec::new();
    if elements == 0 {
        let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
        Request::Rmw { target, offset, rmw }.encode(id, &mut bytes);
        return bytes;
    }
    let kernel = Kernel::new(ElementType::I64, AccumulateOp::Sum).expect("a sum always makes sense");
    let shape = Shape::contiguous(offset + 8, 8 * u64::from(elements));
    let scale = Scale::one(ElementType::I64);
    Request::Accumulate { target, shape, kernel, scale }.encode(id, &mut bytes);
    bytes.extend(ramp(elements, 8 * usize::from(elements)));
    bytes
}

/// A sound request of a kind, from a peer, as the choices of a seed: eight bytes or so, behind the window's start.
pub(super) fn simple(script: Script, peer: u8, kind: u8) -> Script {
    flawed_of(script, peer, kind, FLAWLESS)
}

/// A put with one thing wrong.
pub(super) fn flawed(script: Script, peer: u8, flaw: u8) -> Script {
    flawed_of(script, peer, 0, flaw)
}

fn flawed_of(script: Script, peer: u8, kind: u8, flaw: u8) -> Script {
    // Peer, what it does, kind, flaw, window.
    let mut script = script.byte(peer).byte(0).byte(kind).byte(flaw).byte(0);
    script = match flaw {
        1 => script.word(1),
        2 => script.byte(2),
        4 => script.word(77),
        _ => script,
    };
    script = script.byte(if flaw == 5 { 6 } else { 0 }); // Rank.
    script = match kind {
        // Contiguous, offset, near which end, bytes.
        0 | 1 if flaw == 6 => script.byte(0).short(4).byte(0).short(64),
        0 | 1 => script.byte(0).short(128).short(64),
        2 => script.byte(0).byte(0).byte(0).short(256).short(64),
        3 => script.byte(0).byte(1).byte(5).short(64),
        5..=7 => script.byte(1),
        8 => script.short(100),
        // Add to words of 8 bytes: three, two of which are the same.
        9 => script.byte(0).byte(1).byte(2).short(64).byte(5).short(64).byte(6).short(72).byte(7),
        _ => script,
    };
    script = if kind == 0 { script.byte(3) } else { script }; // No signal.
    script = match flaw {
        7 => script.short(0).byte(0x80),
        8 => script.byte(4),
        9 => script.byte(1),
        _ => script,
    };
    script.byte(0x30)
}
