//! Runs the fuzz targets over their seeds, and over each seed with single bytes changed and with its end cut off.

#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use longarm_proto::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const TARGET: WindowRef =
    WindowRef { rank: Rank(1), window: WindowId(2), generation: Generation(3), key: AccessKey(0x0405_0607) };

type Seeds = BTreeMap<&'static str, Vec<u8>>;
/// The target's name, what it does, and what it starts from.
type Target = (&'static str, fn(&[u8]), Seeds);

/// A connection of one request of each kind, and each kind for itself.
fn request_seeds() -> Seeds {
    let target = TARGET;
    let rows = Strided::new(0x200, 12, &[Level { count: 3, stride: 64 }, Level { count: 2, stride: -128 }]).unwrap();
    let list = vec![Run { offset: 16, bytes: 8 }, Run { offset: 0, bytes: 0 }, Run { offset: 8, bytes: 16 }];
    let (window, generation, key) = (WindowId(9), Generation(1), AccessKey(10));
    let signal = Signal { window, generation, key, offset: 8, op: SignalOp::Add, value: 1 };
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
    let rmw = Rmw { op: RmwOp::CompareSwap, width: RmwWidth::W32, operand: 2, compare: 1 };
    let requests = [
        ("put", Request::Put { target, shape: Shape::contiguous(8, 16), signal: None }),
        ("put_rows_with_signal", Request::Put { target, shape: Shape::Strided(rows), signal: Some(signal) }),
        ("get_list", Request::Get { target, shape: Shape::Vector(list.clone()) }),
        ("sum_of_list", Request::Accumulate { target, shape: Shape::Vector(list), kernel, scale: 2.5_f64.into() }),
        ("compare_swap", Request::Rmw { target, offset: 4, rmw }),
        ("quiet", Request::Quiet),
        ("lock", Request::Lock { target, offset: 4 }),
        ("unlock", Request::Unlock { target, offset: 4 }),
        ("message", Request::Message { target: Rank(1), bytes: 40 }),
    ];
    let mut seeds = Seeds::new();
    let mut initiator = Initiator::new();
    let mut conversation = Vec::new();
    for (name, request) in requests {
        let mut frame = Vec::new();
        request.encode(RequestId(1), &mut frame);
        frame.resize(frame.len() + request.payload_bytes() as usize, 0x77);
        seeds.insert(name, frame);
        initiator.begin(&request, request.has_reply().then_some(()), &mut conversation);
        conversation.resize(conversation.len() + request.payload_bytes() as usize, 0x77);
    }
    seeds.insert("conversation", conversation);
    seeds
}

/// The replies that the requests of the target expect, in two orders, and one without sense.
fn reply_seeds() -> Seeds {
    let replies = |replies: &[(u64, ReplyBody)]| {
        let encode = |&(id, body): &(u64, ReplyBody)| {
            let mut bytes = [0; REPLY_BYTES];
            ReplyHeader { id: RequestId(id), body, received_bytes: 0 }.encode(&mut bytes);
            bytes
        };
        replies.iter().flat_map(encode).collect::<Vec<u8>>()
    };
    let refused = ReplyBody::Refused { refusal: Refusal::OutsideWindow, detail: 4096 };
    let (data, granted) = (ReplyBody::Data { bytes: 8 }, ReplyBody::Granted { inherited: false });
    let (value, done) = (ReplyBody::Value(1), ReplyBody::Done);
    let (inherited, taken) = (ReplyBody::Granted { inherited: true }, ReplyBody::Value(2));
    Seeds::from([
        ("in_order", replies(&[(2, data), (3, value), (4, granted), (5, value), (6, done), (7, done)])),
        ("inherited", replies(&[(2, data), (3, value), (5, taken), (4, inherited), (6, done), (7, done)])),
        ("late_lock", replies(&[(2, data), (1, refused), (3, value), (5, value), (6, done), (7, done), (4, granted)])),
        ("all_refused", replies(&[(4, refused), (2, refused), (3, refused), (5, refused), (6, refused), (7, refused)])),
        ("overtaking", replies(&[(7, done), (2, data), (2, data), (8, done)])),
    ])
}

/// The one exchange that succeeds, which the target has to let in, and nothing else.
fn handshake_seeds() -> Seeds {
    let secret = Secret([0x5a; 32]);
    let me = Identity { job: JobId(1), rank: Rank(2), node: NodeId(3) };
    let (mut initiator, hello) =
        InitiatorHandshake::start(&secret, me, NodeId(4), fuzz::HANDSHAKE_SESSION, false, [1; 32]);
    let (responder, challenge) =
        ResponderHandshake::start(&secret, JobId(1), NodeId(4), false, [2; 32], &hello).expect("both are of one job");
    let proof = initiator.handle_challenge(&challenge).expect("the challenge is the responder's");
    responder.handle_proof(&proof).expect("the proof is the initiator's");
    let welcome = responder.welcome(longarm_proto::Reception::Fresh);
    let exchange = [&hello[..], &challenge, &proof, &welcome].concat();
    let mut wrong_proof = exchange.clone();
    wrong_proof[HELLO_BYTES + CHALLENGE_BYTES] ^= 1;
    Seeds::from([("exchange", exchange), ("wrong_proof", wrong_proof)])
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target)
}

fn all() -> [Target; 3] {
    [
        ("request_decode", fuzz::request_decode, request_seeds()),
        ("reply_decode", fuzz::reply_decode, reply_seeds()),
        ("handshake", fuzz::handshake, handshake_seeds()),
    ]
}

/// A change of the wire format shows here. `LONGARM_WRITE_SEEDS=1` writes the seeds anew, after which the change of
/// the format is to be looked at once more.
#[test]
fn the_seeds_in_the_folder_are_those_of_this_version() {
    let write = std::env::var_os("LONGARM_WRITE_SEEDS").is_some();
    for (target, _, seeds) in all() {
        for (name, bytes) in seeds {
            let path = folder(target).join(name);
            if write {
                fs::create_dir_all(folder(target)).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            let found = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(found, bytes, "{}", path.display());
        }
    }
}

#[test]
fn the_fuzz_targets_accept_their_seeds_and_what_is_near_to_them() {
    for (target, run, _) in all() {
        let mut count = 0;
        for entry in fs::read_dir(folder(target)).unwrap() {
            let seed = fs::read(entry.unwrap().path()).unwrap();
            run(&seed);
            for at in 0..seed.len() {
                run(&seed[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff, seed[at] ^ 1, seed[at].wrapping_add(1)] {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    run(&changed);
                }
            }
            count += 1;
        }
        assert!(count > 0, "{target} has no seeds");
    }
}

#[test]
fn a_whole_conversation_is_read_to_its_end() {
    let seed = &request_seeds()["conversation"];
    let mut responder = Responder::new();
    let mut rest = &seed[..];
    while let Some((header, behind)) = rest.split_first_chunk() {
        let header = responder.handle_header(header).unwrap();
        let (descriptor, behind) = behind.split_at(header.descriptor_bytes());
        let request = responder.finish(&header, descriptor).unwrap();
        rest = &behind[request.payload_bytes() as usize..];
    }
    assert_eq!(responder.last(), RequestId(9));
    assert!(rest.is_empty());
}
