//! Links that break: what is done once, what comes again, and how long a session is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longarm_netmod::{DialError, LinkError, Tcp, TcpOptions};
use longarm_proto::{
    HEADER_BYTES, Initiator, REPLY_BYTES, Reception, Reply, Request, RmwWidth, SESSIONS_PER_RANK_MAX, Session,
};

use super::peers::{
    Outside, Peer, SESSION_KEEP_MS, add_many, fetch_add, over, over_each_network, over_tcp, run, sum_of_doubles,
    target, turn_engine,
};
use super::watched::{Seen, Watched};

#[test]
fn an_accumulate_that_a_broken_connection_cuts_anywhere_is_applied_once() {
    over_each_network(|outside| {
        let (kernel, scale) = sum_of_doubles();
        let accumulate = Request::Accumulate { target: target(0), shape: run(0, 80), kernel, scale };
        let payload: Vec<u8> = (0..10).flat_map(|number| f64::from(number).to_le_bytes()).collect();
        let mut whole = Vec::new();
        Initiator::<()>::new().begin(&accumulate, None, &mut whole);
        whole.extend(&payload);
        let mut times = 0.0;
        for cut in (0..=whole.len()).step_by(7) {
            let mut peer = outside.peer(4);
            peer.initiator.begin(&accumulate, None, &mut Vec::new());
            peer.try_send(&whole[..cut]).unwrap();
            let session = Session { attempt: 2, is_known: true, ..peer.session };
            drop(peer.link);
            let (link, reception) = outside.call(4, session).unwrap();
            let Reception::Resumed { received_bytes } = reception else { panic!("{reception:?}") };
            assert!(received_bytes <= cut as u64);
            let mut peer = Peer { link, session, ..peer };
            peer.try_send(&whole[received_bytes as usize..]).unwrap();
            assert_eq!(peer.quiet(), Ok(()));
            times += 1.0;
            let found = outside.contents(0);
            for (number, bytes) in found[..80].chunks(8).enumerate() {
                assert_eq!(f64::from_le_bytes(bytes.try_into().unwrap()), times * number as f64, "cut at {cut}");
            }
        }
    });
}

#[test]
fn a_reply_that_got_lost_comes_again_and_nothing_is_done_twice() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        for round in 0..20 {
            peer.ask(&fetch_add(256), &[]);
            // Until it is applied; its reply is on its way or not.
            while outside.memory.part(0).load_u64(256) != Ok(round + 1) {
                turn_engine();
            }
            let attempt = peer.session.attempt + 1;
            let received_bytes = round * REPLY_BYTES as u64;
            let session = Session { attempt, is_known: true, received_bytes, ..peer.session };
            let (link, reception) = outside.call(4, session).unwrap();
            assert_eq!(reception, Reception::Resumed { received_bytes: (round + 1) * HEADER_BYTES as u64 });
            peer = Peer { link, session, ..peer };
            assert_eq!(peer.reply(), Reply::Value { token: (), value: round });
        }
        assert_eq!(outside.memory.part(0).load_u64(256), Ok(20));
    });
}

#[test]
fn several_words_are_updated_in_their_order_and_a_reply_that_got_lost_comes_again_from_where_it_broke() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        // The first word is there twice: 1 and 3 are added to it, and what comes back second has the 1.
        let several = add_many(RmwWidth::W64, &[256, 264, 256]);
        let reply_bytes = REPLY_BYTES as u64 + 24;
        for (round, read_bytes) in (0_u64..).zip((0..24).chain([24; 4])) {
            peer.ask(&several, &[]);
            let before = [4 * round, 2 * round, 4 * round + 1].map(u64::to_le_bytes).concat();
            assert_eq!(peer.reply(), Reply::Data { token: (), bytes: 24 });
            let mut data = vec![0; read_bytes];
            peer.try_receive(&mut data).unwrap();
            let attempt = peer.session.attempt + 1;
            let received_bytes = round * reply_bytes + REPLY_BYTES as u64 + read_bytes as u64;
            let session = Session { attempt, is_known: true, received_bytes, ..peer.session };
            let (link, reception) = outside.call(4, session).unwrap();
            let request_bytes = (HEADER_BYTES + 3 * 16) as u64;
            assert_eq!(reception, Reception::Resumed { received_bytes: (round + 1) * request_bytes });
            peer = Peer { link, session, ..peer };
            let mut rest = vec![0; 24 - read_bytes];
            peer.try_receive(&mut rest).unwrap();
            assert_eq!([data, rest].concat(), before, "round {round}");
        }
        let words = [256, 264].map(|offset| outside.memory.part(0).load_u64(offset).unwrap());
        assert_eq!(words, [4 * 28, 2 * 28], "each was updated once");
    });
}

#[test]
fn nobody_waits_for_what_a_link_has_still_to_deliver_when_its_peer_has_called_again() {
    for encrypted in [false, true] {
        let seen = Arc::new(Seen::default());
        let netmod = Watched { tcp: Tcp::new(TcpOptions::default()), seen: Arc::clone(&seen) };
        let abandoned = &seen.abandoned;
        over(Box::new(netmod), encrypted, &|outside: &Outside| {
            let mut peer = outside.peer(4);
            assert_eq!(peer.quiet(), Ok(()));
            assert_eq!(abandoned.load(Ordering::SeqCst), 0);
            let session = Session { attempt: 2, is_known: true, received_bytes: REPLY_BYTES as u64, ..peer.session };
            let (link, _) = outside.call(4, session).unwrap();
            assert_eq!(seen.abandoned_by_last_send.load(Ordering::SeqCst), 1, "before the new one is welcome");
            peer = Peer { link, session, ..peer };
            assert_eq!(peer.quiet(), Ok(()));
            assert_eq!(abandoned.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn a_session_without_a_connection_lasts_unless_it_keeps_others_from_a_mutex() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let lock = Request::Lock { target: target(0), offset: 64 };
        friend.ask(&lock, &[]);
        assert_eq!(friend.reply(), Reply::Granted { token: (), inherited: false });
        let mut idle = outside.peer(4);
        idle.ask(&fetch_add(8), &[]);
        assert_eq!(idle.reply(), Reply::Value { token: (), value: 0 });
        let mut waiting = outside.peer(6);
        waiting.ask(&lock, &[]);
        waiting.ask(&fetch_add(16), &[]);
        assert_eq!(waiting.reply(), Reply::Value { token: (), value: 0 });
        drop((idle.link, waiting.link));
        // Each answer takes the engine a turn at least, and a look around every fifty.
        for _ in 0..2 * SESSION_KEEP_MS {
            assert_eq!(friend.quiet(), Ok(()));
        }
        let known = |session| Session { attempt: 2, is_known: true, received_bytes: REPLY_BYTES as u64, ..session };
        let received_bytes = HEADER_BYTES as u64;
        assert_eq!(outside.call(4, known(idle.session)).unwrap().1, Reception::Resumed { received_bytes });
        assert_eq!(outside.call(6, known(waiting.session)).unwrap().1, Reception::Gone);
    });
}

#[test]
fn an_old_call_a_strangers_session_and_one_that_is_over_are_not_resumed() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        peer.ask(&fetch_add(8), &[]);
        assert_eq!(peer.reply(), Reply::Value { token: (), value: 0 });
        // The same attempt again: a packet that was on its way for long.
        assert!(outside.call(4, peer.session).is_err());
        // Another rank with this session's number has a session of its own.
        let known = Session { attempt: 2, is_known: true, ..peer.session };
        assert_eq!(outside.call(5, known).unwrap().1, Reception::Gone);
        // More received than was ever sent: nothing can be made of that, and the session ends.
        let wrong = Session { received_bytes: 1 << 40, ..known };
        assert_eq!(outside.call(4, wrong).unwrap().1, Reception::Gone);
        assert_eq!(outside.call(4, Session { attempt: 9, ..known }).unwrap().1, Reception::Gone);
        let old = peer.session;
        assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        assert!(outside.call(4, old).is_err());
        // One who leaves is forgotten.
        let mut peer = outside.peer(4);
        peer.ask(&Request::Leave, &[]);
        let old = peer.session;
        let known = Session { attempt: 2, is_known: true, ..old };
        assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        assert_eq!(outside.call(4, known).unwrap().1, Reception::Gone);
        // Nor does an old call begin a session that nobody would end.
        assert!(outside.call(4, old).is_err());
        assert!(outside.call(4, Session { attempt: 2, ..old }).is_err());
    });
}

#[test]
fn a_rank_that_begins_session_after_session_has_so_many_and_no_more() {
    over_tcp(&|outside: &Outside| {
        let mut friend = outside.peer(5);
        let mut first = outside.peer(4);
        let others: Vec<Peer> = (1..SESSIONS_PER_RANK_MAX).map(|_| outside.peer(4)).collect();
        let session = Session { number: u64::MAX, attempt: 1, is_known: false, received_bytes: 0 };
        let refused = outside.call(4, session).err();
        assert!(matches!(refused, Some(DialError::HungUp | DialError::Link(_))), "{refused:?}");
        assert_eq!(first.quiet(), Ok(()), "those that it has go on");
        // One that leaves makes room.
        let mut leaving = others.into_iter().next_back().unwrap();
        leaving.ask(&Request::Leave, &[]);
        leaving.until_hung_up();
        assert!(outside.call(4, session).is_ok());
        outside.expect_service(&mut friend);
    });
}
