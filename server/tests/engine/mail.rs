//! Mail that nobody reads, and more of it than there is credit for.

use longarm_proto::{Credit, MAIL_CREDIT_BYTES, MAIL_PIECE_BYTES_MAX, Rank, Request, mail_charge};
use longarm_shm::{CELLS_OF_SERVER, Popped};

use super::peers::{Outside, over_each_network, turn_engine};

/// Empties the inbox of rank 0 until so many bytes of rank 4 have come, and gives them.
fn read_mail(outside: &Outside, due: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    while heard.len() < due {
        let taken = outside.segment.try_pop(0, &mut |head, payload| {
            let from = heard.len();
            heard.resize(from + payload.len(), 0);
            payload.copy_to_slice(&mut heard[from..]);
            assert_eq!(head.source, 4);
        });
        if !matches!(taken, Popped::Taken) {
            turn_engine();
        }
    }
    heard
}

#[test]
fn mail_for_a_rank_that_does_not_read_holds_up_nothing_that_touches_memory_not_even_its_senders() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        // Rank 1 is dead: its mail is thrown away, however much it is.
        for _ in 0..2 * CELLS_OF_SERVER {
            friend.ask(&Request::Message { target: Rank(1), bytes: 10, rest: 0 }, &[1; 10]);
        }
        assert_eq!(friend.quiet(), Ok(()));
        // Rank 0 lives but does not look: no cell is left after a while, and what comes then is held.
        let mut sender = outside.peer(4);
        for number in 0..2 * CELLS_OF_SERVER {
            sender.ask(&Request::Message { target: Rank(0), bytes: 10, rest: 0 }, &[number as u8; 10]);
        }
        outside.expect_service(&mut friend);
        outside.expect_service(&mut sender);
        // A long message, of which the last piece comes behind a put.
        let long: Vec<u8> = (0..100_000_u32).map(|at| (at >> 3) as u8).collect();
        let (first, second) = long.split_at(MAIL_PIECE_BYTES_MAX as usize);
        let (bytes, rest) = (first.len() as u64, second.len() as u64);
        sender.ask(&Request::Message { target: Rank(0), bytes, rest }, first);
        outside.expect_service(&mut sender);
        sender.ask(&Request::Message { target: Rank(0), bytes: rest, rest: 0 }, second);
        // What its sender leaves behind comes all the same, and in its order.
        sender.ask(&Request::Leave, &[]);
        sender.until_hung_up();
        outside.expect_service(&mut friend);
        let due: Vec<u8> = (0..2 * CELLS_OF_SERVER).flat_map(|number| [number as u8; 10]).chain(long).collect();
        assert_eq!(read_mail(outside, due.len()), due);
    });
}

#[test]
fn a_peer_is_told_of_the_mail_that_has_gone_on_and_may_send_more_for_ever() {
    over_each_network(|outside| {
        let mut sender = outside.peer(4);
        let (mut credit, mut taken_before) = (Credit::new(MAIL_CREDIT_BYTES), 0);
        let piece: Vec<u8> = (0..MAIL_PIECE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
        let request = Request::Message { target: Rank(0), bytes: MAIL_PIECE_BYTES_MAX, rest: 0 };
        for _ in 0..40 {
            while credit.take(mail_charge(MAIL_PIECE_BYTES_MAX)).is_err() {
                let taken = sender.told_of_mail();
                credit.give(taken - taken_before);
                taken_before = taken;
            }
            sender.ask(&request, &piece);
            assert_eq!(read_mail(outside, piece.len()), piece);
        }
        assert_eq!(sender.quiet(), Ok(()));
    });
}

#[test]
fn a_peer_that_sends_more_mail_than_it_has_credit_for_or_pieces_that_do_not_fit_ends_its_connection_alone() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let piece = vec![3; MAIL_PIECE_BYTES_MAX as usize];
        let whole = Request::Message { target: Rank(0), bytes: MAIL_PIECE_BYTES_MAX, rest: 0 };
        let first = Request::Message { target: Rank(0), bytes: MAIL_PIECE_BYTES_MAX, rest: 5 };
        // More than all cells hold and may be held beyond them.
        let many = (u64::from(CELLS_OF_SERVER) * 4096 + MAIL_CREDIT_BYTES) / MAIL_PIECE_BYTES_MAX + 2;
        for requests in [vec![&first, &whole], vec![&whole; many as usize]] {
            let mut sender = outside.peer(4);
            let sent = requests.into_iter().try_for_each(|request| {
                let mut bytes = Vec::new();
                sender.initiator.begin(request, None, &mut bytes);
                bytes.extend_from_slice(&piece);
                sender.try_send(&bytes)
            });
            if sent.is_ok() {
                sender.until_hung_up();
            }
            outside.expect_service(&mut friend);
        }
    });
}
