//! All targets, and what each starts from. Seeds are written by code, so that they follow the protocol.

use longarm_proto::*;

use crate::inputs::Seeds;
use crate::{
    agents, bodies, bootstrap, config, coordinator, decode, door, handshake, hostile_server, mail, managers, rdma,
    relays, rendezvous, responder, router, trunk,
};

/// A function of bytes that panics when something is wrong.
pub struct Target {
    /// Its name: that of its program and of its folders.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&[u8]),
    /// What it starts from.
    pub seeds: fn() -> Seeds,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "request_decode", run: decode::request_decode, seeds: request_seeds },
    Target { name: "reply_decode", run: decode::reply_decode, seeds: reply_seeds },
    Target { name: "handshake_bytes", run: handshake::handshake_bytes, seeds: handshake::byte_seeds },
    Target { name: "handshake_edits", run: handshake::handshake_edits, seeds: handshake::edit_seeds },
    Target { name: "responder", run: responder::responder, seeds: responder::seeds },
    Target { name: "hostile_server", run: hostile_server::hostile_server, seeds: hostile_server::seeds },
    Target { name: "rendezvous", run: rendezvous::rendezvous, seeds: rendezvous::seeds },
    Target { name: "control", run: bootstrap::control, seeds: bootstrap::control_seeds },
    Target { name: "agent_frames", run: agents::agent_frames, seeds: agents::seeds },
    Target { name: "coordinator", run: coordinator::coordinator, seeds: coordinator::seeds },
    Target { name: "relay", run: relays::relay, seeds: relays::seeds },
    Target { name: "invitation", run: coordinator::invitation, seeds: coordinator::invitation_seeds },
    Target { name: "door", run: door::door, seeds: door::seeds },
    Target { name: "rdma_record", run: rdma::rdma_record, seeds: rdma::record_seeds },
    Target { name: "mail_head", run: mail::mail_head, seeds: mail::seeds },
    Target { name: "collective_bodies", run: bodies::collective_bodies, seeds: bodies::seeds },
    Target { name: "collective_claims", run: bodies::collective_claims, seeds: bodies::claim_seeds },
    Target { name: "trunk_record", run: trunk::trunk_record, seeds: trunk::seeds },
    Target { name: "router", run: router::router, seeds: router::seeds },
    Target { name: "rdma_note", run: rdma::rdma_note, seeds: rdma::note_seeds },
    Target { name: "rdma_stream", run: rdma::rdma_stream, seeds: rdma::stream_seeds },
    Target { name: "pmi1_conversation", run: managers::pmi1_conversation, seeds: managers::conversation_seeds },
    Target { name: "process_mapping", run: managers::process_mapping, seeds: managers::mapping_seeds },
    Target { name: "host_list", run: managers::host_list, seeds: managers::list_seeds },
    Target { name: "host_file", run: managers::host_file, seeds: managers::file_seeds },
    Target { name: "manager_environment", run: managers::manager_environment, seeds: managers::environment_seeds },
    Target { name: "config", run: config::config, seeds: config::seeds },
];

const TARGET: WindowRef =
    WindowRef { rank: Rank(1), window: WindowId(2), generation: Generation(3), key: AccessKey(0x0405_0607) };

/// A connection of one request of each kind, and each kind for itself.
fn request_seeds() -> Seeds {
    let target = TARGET;
    let rows = Strided::new(0x200, 12, &[Level { count: 3, stride: 64 }, Level { count: 2, stride: -128 }]);
    let rows = rows.expect("it begins behind the window's start");
    let list = vec![Run { offset: 16, bytes: 8 }, Run { offset: 0, bytes: 0 }, Run { offset: 8, bytes: 16 }];
    let (window, generation, key) = (WindowId(9), Generation(1), AccessKey(10));
    let signal = Signal { window, generation, key, offset: 8, op: SignalOp::Add, value: 1 };
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).expect("a sum always makes sense");
    let rmw = Rmw { op: RmwOp::CompareSwap, width: RmwWidth::W32, operand: 2, compare: 1 };
    let words = vec![RmwWord { offset: 8, operand: 1 }, RmwWord { offset: 8, operand: 2 }];
    let requests = [
        ("put", Request::Put { target, shape: Shape::contiguous(8, 16), signal: None }),
        ("put_rows_with_signal", Request::Put { target, shape: Shape::Strided(rows), signal: Some(signal) }),
        ("get_list", Request::Get { target, shape: Shape::Vector(list.clone()) }),
        ("sum_of_list", Request::Accumulate { target, shape: Shape::Vector(list), kernel, scale: 2.5_f64.into() }),
        ("compare_swap", Request::Rmw { target, offset: 4, rmw }),
        ("add_to_several", Request::RmwMany { target, op: RmwOp::FetchAdd, width: RmwWidth::W64, words }),
        ("quiet", Request::Quiet),
        ("lock", Request::Lock { target, offset: 4 }),
        ("unlock", Request::Unlock { target, offset: 4 }),
        ("message", Request::Message { target: Rank(1), bytes: 40, rest: 7 }),
        ("acknowledge", Request::Acknowledge { received_bytes: 96 }),
        ("leave", Request::Leave),
    ];
    let mut seeds = Seeds::new();
    let mut initiator = Initiator::new();
    let mut conversation = Vec::new();
    for (name, request) in requests {
        let mut frame = Vec::new();
        request.encode(RequestId(1), &mut frame);
        frame.resize(frame.len() + request.payload_bytes() as usize, 0x77);
        seeds.push((name, frame));
        initiator.begin(&request, request.has_reply().then_some(()), &mut conversation);
        conversation.resize(conversation.len() + request.payload_bytes() as usize, 0x77);
    }
    seeds.push(("conversation", conversation));
    seeds
}

/// The replies that the requests of the target expect, in two orders, and one without sense.
fn reply_seeds() -> Seeds {
    let reply = |id: u64, body: ReplyBody, received_bytes: u64| {
        let mut bytes = [0; REPLY_BYTES];
        ReplyHeader { id: RequestId(id), body, received_bytes }.encode(&mut bytes);
        bytes
    };
    let replies =
        |replies: &[(u64, ReplyBody)]| replies.iter().flat_map(|&(id, body)| reply(id, body, 0)).collect::<Vec<u8>>();
    let refused = ReplyBody::Refused { refusal: Refusal::OutsideWindow, detail: 4096 };
    let (data, granted) = (ReplyBody::Data { bytes: 8 }, ReplyBody::Granted { inherited: false });
    let old_values = ReplyBody::Data { bytes: 16 };
    let (value, done) = (ReplyBody::Value(1), ReplyBody::Done);
    let (inherited, taken) = (ReplyBody::Granted { inherited: true }, ReplyBody::Value(2));
    let received = [(2, data, 64), (8, ReplyBody::MailTaken { bytes: 0 }, 96), (3, value, 96), (4, granted, 95)];
    vec![
        ("in_order", replies(&[(2, data), (3, value), (4, granted), (5, value), (6, done), (7, done)])),
        ("inherited", replies(&[(2, data), (3, value), (5, taken), (4, inherited), (6, done), (7, done)])),
        ("received_less", received.into_iter().flat_map(|(id, body, bytes)| reply(id, body, bytes)).collect()),
        ("late_lock", replies(&[(2, data), (1, refused), (3, value), (5, value), (6, done), (7, done), (4, granted)])),
        (
            "with_old_values",
            replies(&[(2, data), (3, value), (5, value), (6, done), (7, done), (8, done), (9, old_values)]),
        ),
        ("all_refused", replies(&[(4, refused), (2, refused), (3, refused), (5, refused), (6, refused), (7, refused)])),
        ("overtaking", replies(&[(7, done), (2, data), (2, data), (9, done)])),
    ]
}
