//! What the engine sends, keeps until it is acknowledged, and stops for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longarm_netmod::{LinkError, Tcp, TcpOptions};
use longarm_proto::{
    EAGER_BYTES_MAX, Generation, LARGE_REPLY_BYTES, LOCK_WAITERS_MAX, REPLY_BYTES, Reply, Request, Run,
    SEGMENTS_PER_FRAME_MAX, Shape, UNACKNOWLEDGED_REPLY_BYTES_MAX, WindowId, WindowRef,
};
use longarm_server::door::DoorRequest;
use longarm_shm::NodeWindow;

use super::peers::{
    KEY, Outside, fetch_add, over, over_each_network, over_tcp, run, target, turn_engine_during, with_engine,
};
use super::watched::{Seen, Watched};

#[test]
fn an_initiator_that_acknowledges_nothing_is_stopped_before_it_fills_the_memory() {
    over_tcp(&|outside| {
        let mut friend = outside.peer(5);
        let mut peer = outside.peer(4);
        let get = Request::Get { target: target(0), shape: run(0, 4096) };
        let ended = (0..100_000).any(|_| {
            let mut frame = Vec::new();
            peer.initiator.begin(&get, Some(()), &mut frame);
            let mut scrap = vec![0; REPLY_BYTES + 4096];
            peer.try_send(&frame).is_err() || peer.try_receive(&mut scrap).is_err()
        });
        assert!(ended, "replies of 400 MB are kept for it");
        outside.expect_service(&mut friend);
    });
}

/// A get is over here when its origin has acknowledged it, which may be after the window is freed: only then the next window has the memory.
#[test]
fn memory_from_which_something_is_sent_is_the_next_windows_when_that_is_acknowledged() {
    const BYTES: u64 = 2 * EAGER_BYTES_MAX;
    over_tcp(&|outside| {
        let door = outside.door();
        let room = NodeWindow::room_for(&[BYTES]);
        let create = |window| {
            let parts = vec![(0, BYTES)];
            let request = DoorRequest::Create { window, generation: 1, key: KEY, parts, aligned: false, room };
            turn_engine_during(|| door.call(&request)).unwrap().unwrap().made_for
        };
        let free = |window| turn_engine_during(|| door.call(&DoorRequest::Free { window, generation: 1 })).unwrap();
        let made_for = create(9);
        let window = WindowRef { window: WindowId(9), generation: Generation(1), ..target(0) };
        let mut peer = outside.peer(4);
        peer.ask(&Request::Get { target: window, shape: run(0, BYTES) }, &[]);
        assert_eq!(peer.reply(), Reply::Data { token: (), bytes: BYTES });
        peer.try_receive(&mut vec![0; BYTES as usize]).unwrap();
        free(9);
        assert_ne!(create(10), made_for, "its origin may ask for the reply again");
        peer.ask(&Request::Acknowledge { received_bytes: BYTES + REPLY_BYTES as u64 }, &[]);
        assert_eq!(peer.reply(), Reply::Done(()));
        assert_eq!(create(11), made_for);
    });
}

/// The server's thread yields after a large one: the receiver may wait for its processor.
#[test]
fn a_large_reply_is_noted_and_a_small_one_is_not() {
    const LARGE: u64 = 200 << 10;
    over_tcp(&|outside| {
        let (_door, window) = outside.window_of(LARGE);
        let mut peer = outside.peer(4);
        for (bytes, is_large) in [(4096, false), (LARGE, true)] {
            peer.ask(&Request::Get { target: window, shape: run(0, bytes) }, &[]);
            assert_eq!(peer.reply(), Reply::Data { token: (), bytes });
            peer.try_receive(&mut vec![0; bytes as usize]).unwrap();
            // More than are answered in one turn.
            (0..40).for_each(|_| peer.quiet().unwrap());
            assert_eq!(with_engine(|driven| driven.sent_large), is_large, "{bytes} bytes");
        }
    });
}

#[test]
fn gets_that_have_come_together_are_answered_by_one_send() {
    const GETS: u64 = 5;
    const BYTES: u64 = 2 * EAGER_BYTES_MAX;
    let seen = Arc::new(Seen::default());
    let netmod = Watched { tcp: Tcp::new(TcpOptions::default()), seen: Arc::clone(&seen) };
    over(Box::new(netmod), false, &|outside: &Outside| {
        let (_door, target) = outside.window_of(BYTES);
        let mut peer = outside.peer(4);
        let mut asked = Vec::new();
        for _ in 0..GETS {
            peer.initiator.begin(&Request::Get { target, shape: run(0, BYTES) }, Some(()), &mut asked);
        }
        let answer_bytes = GETS * (REPLY_BYTES as u64 + BYTES);
        peer.exchange(&asked, answer_bytes as usize);
        assert_eq!(seen.largest_send.load(Ordering::SeqCst), answer_bytes);
    });
}

#[test]
fn a_put_behind_gets_changes_nothing_that_they_read() {
    const BYTES: u64 = 2 * EAGER_BYTES_MAX;
    /// More than wait at a time.
    const GETS: usize = 10;
    over_each_network(|outside| {
        let (_door, target) = outside.window_of(BYTES);
        let mut peer = outside.peer(4);
        for round in 1..=4 {
            let mut asked = Vec::new();
            let get = Request::Get { target, shape: run(0, BYTES) };
            let put = Request::Put { target, shape: run(0, BYTES), signal: None };
            for _ in 0..GETS {
                peer.initiator.begin(&get, Some(()), &mut asked);
            }
            peer.initiator.begin(&put, None, &mut asked);
            asked.extend(vec![round; BYTES as usize]);
            peer.initiator.begin(&get, Some(()), &mut asked);
            let answer_bytes = REPLY_BYTES + BYTES as usize;
            let answers = peer.exchange(&asked, (GETS + 1) * answer_bytes);
            for (number, answer) in answers.chunks(answer_bytes).enumerate() {
                let (header, data) = answer.split_first_chunk().unwrap();
                assert_eq!(peer.initiator.handle_reply(header).unwrap(), Reply::Data { token: (), bytes: BYTES });
                let expected = if number < GETS { round - 1 } else { round };
                assert!(data.iter().all(|byte| *byte == expected), "get {number} of round {round}");
            }
        }
    });
}

#[test]
fn a_rank_that_waits_for_mutexes_without_end_is_hung_up_on_and_nobody_else() {
    over_each_network(|outside| {
        let lock = Request::Lock { target: target(0), offset: 64 };
        let mut holder = outside.peer(5);
        holder.ask(&lock, &[]);
        assert_eq!(holder.reply(), Reply::Granted { token: (), inherited: false });
        let (mut broken, mut waiting) = (outside.peer(4), outside.peer(6));
        for _ in 0..LOCK_WAITERS_MAX {
            broken.ask(&lock, &[]);
        }
        broken.ask(&fetch_add(8), &[]);
        assert_eq!(broken.reply(), Reply::Value { token: (), value: 0 }, "so many may wait");
        waiting.ask(&lock, &[]);
        waiting.ask(&fetch_add(8), &[]);
        assert_eq!(waiting.reply(), Reply::Value { token: (), value: 1 });
        broken.ask(&lock, &[]);
        broken.until_hung_up();
        // Whoever stood behind it is next.
        holder.ask(&Request::Unlock { target: target(0), offset: 64 }, &[]);
        assert_eq!(holder.reply(), Reply::Done(()));
        assert_eq!(waiting.reply(), Reply::Granted { token: (), inherited: false });
        outside.expect_service(&mut holder);
    });
}

#[test]
fn a_rank_that_acknowledges_no_large_get_is_hung_up_on_before_much_is_kept_for_it() {
    over_tcp(&|outside: &Outside| {
        let mut friend = outside.peer(5);
        let mut broken = outside.peer(4);
        // Few bytes of a window, many times: more than is copied, with the largest description there is.
        let runs = vec![Run { offset: 0, bytes: 80 }; SEGMENTS_PER_FRAME_MAX];
        let bytes = 80 * SEGMENTS_PER_FRAME_MAX;
        let get = Request::Get { target: target(0), shape: Shape::Vector(runs) };
        assert!(bytes as u64 > EAGER_BYTES_MAX);
        let most = 2 * UNACKNOWLEDGED_REPLY_BYTES_MAX / LARGE_REPLY_BYTES;
        let (mut data, mut gets) = (vec![0; bytes], 0);
        let ended = loop {
            let mut asked = Vec::new();
            broken.initiator.begin(&get, Some(()), &mut asked);
            let mut header = [0; REPLY_BYTES];
            let answered = broken.try_send(&asked).and_then(|()| broken.try_receive(&mut header));
            if let Err(error) = answered.and_then(|()| broken.try_receive(&mut data)) {
                break error;
            }
            assert_eq!(broken.initiator.handle_reply(&header).unwrap(), Reply::Data { token: (), bytes: bytes as u64 });
            gets += 1;
            assert!(gets <= 2 * most, "{gets} gets are kept, and no end");
        };
        assert!(matches!(ended, LinkError::Closed | LinkError::Reset), "{ended}");
        assert!(gets > most / 2, "an initiator may have {gets} under way");
        outside.expect_service(&mut friend);
    });
}
