//! Calls that cannot be, and bytes that are no frames.

use longarm_netmod::{DialError, Link, LinkError};
use longarm_proto::{
    CHALLENGE_BYTES, HEADER_BYTES, Identity, Initiator, InitiatorHandshake, NodeId, Rank, Refusal, Reply, Request, Rmw,
    RmwOp, RmwWidth, Run, Session, Shape, WELCOME_BYTES,
};

use super::peers::{
    HALF_OPEN_MAX, NODE, Peer, RANKS, SECRET, add_many, over_each_network, over_each_open_network, run, sum_of_doubles,
    target, turn_engine,
};

/// A bounded amount of noise.
struct Noise(u64);

impl Noise {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.word() >> 32) as u8).collect()
    }
}

#[test]
fn noise_behind_a_good_handshake_ends_that_connection_only() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let before = outside.contents(1);
        for seed in 0..20 {
            let mut peer = outside.peer(4);
            // The server may hang up before it has read all.
            let _ = peer.try_send(&Noise(seed).bytes(2000));
            assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        }
        assert_eq!(outside.contents(1), before);
        outside.expect_service(&mut friend);
    });
}

#[test]
fn good_frames_with_a_changed_byte_harm_nobody_else() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let mut noise = Noise(11);
        let (kernel, scale) = sum_of_doubles();
        let requests = [
            Request::Put { target: target(0), shape: run(8, 100), signal: None },
            Request::Get { target: target(0), shape: run(8, 100) },
            Request::Accumulate { target: target(0), shape: run(8, 80), kernel, scale },
            Request::Rmw {
                target: target(0),
                offset: 16,
                rmw: Rmw { op: RmwOp::CompareSwap, width: RmwWidth::W64, operand: 5, compare: 6 },
            },
            Request::Put {
                target: target(0),
                shape: Shape::Vector(vec![Run { offset: 0, bytes: 10 }, Run { offset: 50, bytes: 10 }]),
                signal: None,
            },
            Request::TryLock { target: target(0), offset: 64 },
            add_many(RmwWidth::W32, &[16, 20, 16]),
            Request::Message { target: Rank(1), bytes: 30, rest: 0 },
        ];
        for (request, turns) in requests.iter().cycle().zip((0..4).cycle()).take(120) {
            let mut frame = Vec::new();
            Initiator::new().begin(request, request.has_reply().then_some(()), &mut frame);
            let at = noise.word() as usize % frame.len();
            frame[at] ^= 1 << (noise.word() % 8);
            frame.extend(noise.bytes(request.payload_bytes() as usize));
            // A rank may have so many sessions and no more.
            let mut peer = outside.peer([4, 6, 7, 3][turns]);
            // Served, refused, hung up on, or waited for when the payload is now longer: the peer leaves without a look, before the engine
            // has had one or behind it.
            let _ = peer.try_send(&frame);
            (0..turns).for_each(|_| turn_engine());
        }
        outside.expect_service(&mut friend);
    });
}

#[test]
fn lengths_that_cannot_be_are_not_waited_for_by_others() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        // Longer than anything that will ever come: it is refused at once, and then skipped for ever.
        let mut endless = outside.peer(4);
        let request = Request::Put { target: target(0), shape: run(0, u64::MAX - 1), signal: None };
        endless.ask(&request, &vec![5; 200_000]);
        assert!(matches!(endless.reply(), Reply::Refused { refusal: Refusal::OutsideWindow, .. }));
        outside.expect_service(&mut friend);
        endless.try_send(&vec![5; 200_000]).unwrap();
        // Frames that no server reads on from.
        for (at, bytes) in [(4, &[0xff; 4][..]), (8, &[0xff; 8][..]), (0, &[200][..]), (16, &[9][..])] {
            let mut frame = Vec::new();
            Initiator::<()>::new().begin(&Request::Message { target: Rank(0), bytes: 8, rest: 0 }, None, &mut frame);
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(frame.len(), HEADER_BYTES);
            let mut peer = outside.peer(4);
            peer.try_send(&frame).unwrap();
            assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        }
        outside.expect_service(&mut friend);
    });
}

#[test]
fn a_handshake_that_is_played_again_is_refused() {
    over_each_open_network(|outside| {
        let session = Session { number: 0, attempt: 1, is_known: false, received_bytes: 0 };
        let me = outside.identity(4);
        let (mut handshake, hello) = InitiatorHandshake::start(&SECRET, me, NODE, session, false, [7; 32]);
        let connect = || {
            let link = outside.netmod.connect(&outside.address).unwrap();
            Peer { link, initiator: Initiator::new(), session }
        };
        let mut first = connect();
        first.try_send(&hello).unwrap();
        let mut challenge = [0; CHALLENGE_BYTES];
        first.try_receive(&mut challenge).unwrap();
        let proof = handshake.handle_challenge(&challenge).unwrap();
        first.try_send(&proof).unwrap();
        let mut welcome = [0; WELCOME_BYTES];
        first.try_receive(&mut welcome).unwrap();
        handshake.check_welcome(&welcome).unwrap();
        let put = Request::Put { target: target(0), shape: run(0, 8), signal: None };
        let mut frame = Vec::new();
        Initiator::<()>::new().begin(&put, None, &mut frame);
        frame.extend([3; 8]);
        // Every byte as the first time, one behind the other.
        let mut second = connect();
        let _ = second.try_send(&[&hello[..], &proof, &frame].concat());
        let mut heard = [0; CHALLENGE_BYTES];
        if second.try_receive(&mut heard).is_ok() {
            assert_ne!(heard, challenge, "a nonce is never used again");
            let mut more = [0; 1];
            assert!(second.try_receive(&mut more).is_err(), "who plays a proof again is not welcome");
        }
        assert_eq!(outside.contents(0)[..8], [0; 8]);
        // The one that was heard of is served.
        outside.expect_service(&mut first);
    });
}

#[test]
fn a_rank_that_is_not_in_the_world_or_not_on_the_node_it_names_is_turned_away() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let session = Session { number: 99, attempt: 1, is_known: false, received_bytes: 0 };
        for (rank, node) in [(8, 1), (u32::MAX, 1), (4, 0), (4, 2), (4, u32::MAX), (0, 1), (1, 1)] {
            let me = Identity { job: outside.job, rank: Rank(rank), node: NodeId(node) };
            let refused = outside.call_as(me, session).err();
            assert!(matches!(refused, Some(DialError::HungUp | DialError::Link(_))), "rank {rank} of node {node}");
        }
        // Those of this very node call too.
        let me = Identity { job: outside.job, rank: Rank(0), node: NODE };
        assert!(outside.call_as(me, session).is_ok());
        outside.expect_service(&mut friend);
    });
}

#[test]
fn callers_that_say_nothing_make_room_for_those_that_do() {
    over_each_network(|outside| {
        let connect = || outside.netmod.connect(&outside.address).unwrap();
        let silent: Vec<Box<dyn Link>> = (0..3 * (HALF_OPEN_MAX + RANKS)).map(|_| connect()).collect();
        let mut peer = outside.peer(4);
        outside.expect_service(&mut peer);
        drop(silent);
    });
}
