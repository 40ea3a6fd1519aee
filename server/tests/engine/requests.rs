//! Requests that cannot be, or are cut short, and where windows lie.

use longarm_proto::{
    AccessKey, Generation, Rank, Refusal, Reply, Request, Rmw, RmwOp, RmwWidth, Run, Shape, Signal, SignalOp, WindowId,
    WindowRef,
};
use longarm_server::door::DoorRequest;

use super::peers::{
    KEY, PARTS, WINDOW, add_many, over_each_network, run, sum_of_doubles, target, turn_engine, turn_engine_during,
};

#[test]
fn requests_that_cannot_be_are_refused_by_their_reason() {
    let stranger = |change: fn(&mut WindowRef)| {
        let mut target = target(0);
        change(&mut target);
        target
    };
    let (kernel, scale) = sum_of_doubles();
    let put = |target, shape| Request::Put { target, shape, signal: None };
    let rmw = |target, offset, width| {
        let rmw = Rmw { op: RmwOp::FetchAdd, width, operand: 1, compare: 0 };
        Request::Rmw { target, offset, rmw }
    };
    let signal = |offset, window| Signal {
        window: WindowId(window),
        generation: Generation(3),
        key: AccessKey(KEY),
        offset,
        op: SignalOp::Set,
        value: 1,
    };
    let signalled = |signal| Request::Put { target: target(0), shape: run(0, 16), signal: Some(signal) };
    let list = |offset| Shape::Vector(vec![Run { offset: 0, bytes: 8 }, Run { offset, bytes: 8 }]);
    let cases = [
        (put(target(0), run(4090, 7)), Refusal::OutsideWindow),
        (put(target(0), run(u64::MAX - 8, 8)), Refusal::OutsideWindow),
        (put(target(1), run(0, 101)), Refusal::OutsideWindow),
        (put(target(0), list(4089)), Refusal::OutsideWindow),
        (Request::Get { target: target(0), shape: run(4096, 1) }, Refusal::OutsideWindow),
        (Request::Get { target: target(0), shape: run(0, u64::MAX) }, Refusal::OutsideWindow),
        (Request::Accumulate { target: target(0), shape: run(4089, 8), kernel, scale }, Refusal::OutsideWindow),
        (rmw(target(0), 4096, RmwWidth::W64), Refusal::OutsideWindow),
        (rmw(target(0), u64::MAX - 7, RmwWidth::W64), Refusal::OutsideWindow),
        (rmw(target(1), 96, RmwWidth::W64), Refusal::OutsideWindow),
        (rmw(target(0), 4, RmwWidth::W64), Refusal::Misaligned),
        (rmw(target(0), 2, RmwWidth::W32), Refusal::Misaligned),
        (add_many(RmwWidth::W64, &[0, 8, 4096]), Refusal::OutsideWindow),
        (add_many(RmwWidth::W64, &[0, u64::MAX - 7]), Refusal::OutsideWindow),
        (add_many(RmwWidth::W32, &[0, 4, 2]), Refusal::Misaligned),
        (signalled(signal(4096, WINDOW)), Refusal::OutsideWindow),
        (signalled(signal(12, WINDOW)), Refusal::Misaligned),
        (signalled(signal(0, 99)), Refusal::UnknownWindow),
        (put(stranger(|target| target.key = AccessKey(KEY + 1)), run(0, 8)), Refusal::WrongKey),
        (put(stranger(|target| target.window = WindowId(99)), run(0, 8)), Refusal::UnknownWindow),
        (put(stranger(|target| target.window = WindowId(8)), run(0, 8)), Refusal::FreedWindow),
        (put(stranger(|target| target.generation = Generation(2)), run(0, 8)), Refusal::FreedWindow),
        (put(stranger(|target| target.generation = Generation(4)), run(0, 8)), Refusal::FreedWindow),
        (put(stranger(|target| target.rank = Rank(4)), run(0, 8)), Refusal::NotThisNode),
        (Request::Message { target: Rank(4), bytes: 9, rest: 0 }, Refusal::NotThisNode),
        (Request::Lock { target: target(0), offset: 4096 }, Refusal::OutsideWindow),
        (Request::TryLock { target: target(0), offset: 2 }, Refusal::Misaligned),
        (Request::Unlock { target: target(0), offset: 128 }, Refusal::NotHeld),
    ];
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        for (request, expected) in &cases {
            let bytes = usize::try_from(request.payload_bytes()).unwrap();
            peer.ask(request, &vec![0xff; bytes]);
            match peer.reply() {
                Reply::Refused { refusal, .. } => assert_eq!(refusal, *expected, "{request:?}"),
                other => panic!("{other:?} is the answer to {request:?}"),
            }
            assert_eq!(peer.quiet(), Ok(()), "the connection goes on after {request:?}");
        }
        for part in 0..PARTS.len() {
            assert!(outside.contents(part).iter().all(|byte| *byte == 0), "nothing of all this was applied");
        }
        outside.expect_service(&mut peer);
    });
}

#[test]
fn elements_may_stand_at_any_byte() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        let (kernel, scale) = sum_of_doubles();
        let accumulate = Request::Accumulate { target: target(0), shape: run(4083, 8), kernel, scale };
        for _ in 0..2 {
            peer.ask(&accumulate, &1.25_f64.to_le_bytes());
        }
        assert_eq!(peer.quiet(), Ok(()));
        assert_eq!(peer.get(0, 4083, 8), 2.5_f64.to_le_bytes());
    });
}

#[test]
fn a_put_cut_short_leaves_what_is_behind_it_and_ends_with_its_connection() {
    // The engine has looked at it before it ends, or has not.
    for turns in [0, 8] {
        over_each_network(|outside| {
            let mut friend = outside.peer(5);
            let mut peer = outside.peer(4);
            let request = Request::Put {
                target: target(0),
                shape: run(100, 1000),
                signal: Some(Signal {
                    window: WindowId(WINDOW),
                    generation: Generation(3),
                    key: AccessKey(KEY),
                    offset: 0,
                    op: SignalOp::Set,
                    value: 77,
                }),
            };
            peer.ask(&request, &[9; 400]);
            (0..turns).for_each(|_| turn_engine());
            drop(peer);
            outside.expect_service(&mut friend);
            let seen = outside.contents(0);
            assert_eq!(seen[..100], [0; 100], "the signal is for a put that came whole");
            assert_eq!(seen[500..1000], [0; 500]);
        });
    }
}

#[test]
fn every_window_has_addresses_of_its_own_and_all_ranks_are_told_the_same() {
    over_each_network(|outside| {
        let door = outside.door();
        let create = |window, bytes| {
            let request = DoorRequest::Create {
                window,
                generation: 1,
                key: KEY,
                parts: vec![(0, bytes), (1, bytes)],
                aligned: false,
                room: None,
            };
            turn_engine_during(|| door.call(&request)).unwrap().unwrap()
        };
        let bytes = 100 << 20;
        let mut starts: Vec<u64> = (20..40).map(|window| create(window, bytes).address.unwrap()).collect();
        let visitor = outside.door();
        for (window, start) in (20..).zip(&starts) {
            let attach = DoorRequest::Attach { window, generation: 1 };
            assert_eq!(turn_engine_during(|| visitor.call(&attach)).unwrap().unwrap().address, Some(*start));
        }
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[0] + 2 * bytes < pair[1]), "{starts:x?}");
        assert_eq!(create(40, 0).address, None, "nothing has no address");
        // What is freed is room again: all of it together would not fit.
        for _ in 0..40 {
            let window = create(41, 1 << 39);
            assert!(window.address.is_some());
            turn_engine_during(|| door.call(&DoorRequest::Free { window: 41, generation: 1 })).unwrap();
        }
        assert!(turn_engine_during(|| door.call(&DoorRequest::Free { window: 41, generation: 1 })).is_err());
    });
}
