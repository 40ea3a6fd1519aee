//! Records against somebody in between, and the numbers of records.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_proto::Sealing;
use parking_lot::Mutex;

use super::link::SealedLink;
use super::records::*;
use super::*;
use crate::link_error::LinkError;

/// What lies between the ends: all that was sent and not received, by direction, which a test may change.
#[derive(Default)]
struct Between {
    pipes: [VecDeque<u8>; 2],
    closed: [bool; 2],
    /// How much each pipe takes. 0: without bound.
    capacity: usize,
    /// What waits counts as taken in by the ends, as with links over queue pairs.
    is_taken_in: bool,
}

struct End(Arc<Mutex<Between>>, usize);

impl Link for End {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let mut between = self.0.lock();
        let room = if between.capacity == 0 { usize::MAX } else { between.capacity - between.pipes[self.1].len() };
        let mut bytes = vec![0; regions[0].len()];
        regions[0].copy_to_slice(&mut bytes);
        let taken = bytes.len().min(room);
        between.pipes[self.1].extend(&bytes[..taken]);
        Ok(taken)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let mut between = self.0.lock();
        let from = 1 - self.1;
        if between.pipes[from].is_empty() && between.closed[from] {
            return Err(LinkError::Closed);
        }
        let count = regions[0].len().min(between.pipes[from].len());
        let bytes: Vec<u8> = between.pipes[from].drain(..count).collect();
        regions[0].slice(0, count).copy_from_slice(&bytes);
        Ok(count)
    }

    fn holds_bytes(&self) -> bool {
        let between = self.0.lock();
        between.is_taken_in && !between.pipes[1 - self.1].is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "the other end"
    }
}

fn sealing(key: u8, exchange: u8) -> Sealing {
    Sealing { key: [key; 32], exchange: [exchange; 144] }
}

fn agree(ours: &Sealing, theirs: &Sealing) -> Result<(Keys, Keys), KeyError> {
    let (offer, key) = KeyOffer::start(ours)?;
    let (called, answer) = answer_key(theirs, &key)?;
    Ok((offer.handle_answer(&answer)?, called))
}

type Ends = (Box<dyn Link>, Box<dyn Link>, Arc<Mutex<Between>>);

fn pair(capacity: usize) -> Ends {
    let between = Arc::new(Mutex::new(Between { capacity, ..Between::default() }));
    let (caller, called) = agree(&sealing(1, 2), &sealing(1, 2)).unwrap();
    let end = |side| Box::new(End(Arc::clone(&between), side));
    (caller.seal(end(0)), called.seal(end(1)), between)
}

fn send(link: &mut dyn Link, bytes: &[u8]) -> usize {
    link.send(&[Region::from_slice(bytes)]).unwrap()
}

fn receive(link: &mut dyn Link, room: usize) -> Result<Vec<u8>, LinkError> {
    let mut bytes = vec![0; room];
    let got = link.receive(&[RegionMut::from_slice(&mut bytes)])?;
    bytes.truncate(got);
    Ok(bytes)
}

#[test]
fn keys_are_agreed_on_only_by_two_who_know_the_secret_and_saw_the_same_handshake() {
    assert!(agree(&sealing(1, 2), &sealing(1, 2)).is_ok());
    assert_eq!(agree(&sealing(1, 2), &sealing(3, 2)).err(), Some(KeyError));
    assert_eq!(agree(&sealing(1, 2), &sealing(1, 3)).err(), Some(KeyError));
}

#[test]
fn a_changed_bit_of_a_key_or_its_answer_keeps_the_two_apart() {
    for bit in 0..KEY_BYTES * 8 {
        let (offer, mut key) = KeyOffer::start(&sealing(1, 2)).unwrap();
        let (_, mut answer) = answer_key(&sealing(1, 2), &key).unwrap();
        answer[bit / 8] ^= 1 << (bit % 8);
        assert!(offer.handle_answer(&answer).is_err(), "bit {bit} of the answer");
        key[bit / 8] ^= 1 << (bit % 8);
        assert!(answer_key(&sealing(1, 2), &key).is_err(), "bit {bit} of the key");
    }
}

#[test]
fn what_is_sent_cannot_be_read_on_the_way() {
    let (mut caller, _called, between) = pair(0);
    let secret = b"nobody reads this on its way, and it is long enough not to be there by chance";
    assert_eq!(send(&mut *caller, secret), secret.len());
    let seen: Vec<u8> = between.lock().pipes[0].iter().copied().collect();
    assert_eq!(seen.len(), LENGTH_BYTES + secret.len() + TAG_BYTES);
    assert!(!seen.windows(8).any(|window| secret.windows(8).any(|part| part == window)));
}

#[test]
fn a_record_with_any_changed_bit_ends_the_link_and_none_of_it_is_handed_on() {
    for bit in 0..(LENGTH_BYTES + 5 + TAG_BYTES) * 8 {
        let (mut caller, mut called, between) = pair(0);
        send(&mut *caller, b"first");
        let at = between.lock().pipes[0].len();
        send(&mut *caller, b"other");
        between.lock().pipes[0][at + bit / 8] ^= 1 << (bit % 8);
        // A length that promises more than there is waits for it, until there is no more.
        between.lock().closed[0] = true;
        assert_eq!(receive(&mut *called, 5), Ok(b"first".to_vec()));
        assert_eq!(receive(&mut *called, 100), Err(LinkError::Forged), "bit {bit}");
        assert_eq!(receive(&mut *called, 100), Err(LinkError::Forged), "an error is final");
        assert_eq!(called.send(&[Region::from_slice(b"x")]), Err(LinkError::Forged));
    }
}

#[test]
fn records_that_are_missing_doubled_swapped_or_sent_back_end_the_link() {
    let record = LENGTH_BYTES + 5 + TAG_BYTES;
    for trick in 0..4 {
        let (mut caller, mut called, between) = pair(0);
        send(&mut *caller, b"first");
        send(&mut *caller, b"other");
        let sent: Vec<u8> = between.lock().pipes[0].drain(..).collect();
        let (first, other) = sent.split_at(record);
        let (passed, before) = match trick {
            0 => (other.to_vec(), &b""[..]),
            1 => ([first, first].concat(), &b"first"[..]),
            2 => ([other, first].concat(), &b""[..]),
            _ => (Vec::new(), &b""[..]),
        };
        between.lock().pipes[0].extend(&passed);
        if trick == 3 {
            between.lock().pipes[1].extend(first);
            assert_eq!(receive(&mut *caller, 100), Err(LinkError::Forged), "its own record came back");
            continue;
        }
        if !before.is_empty() {
            assert_eq!(receive(&mut *called, 5).unwrap(), before);
        }
        assert_eq!(receive(&mut *called, 100), Err(LinkError::Forged), "trick {trick}");
    }
}

#[test]
fn a_link_cut_inside_a_record_is_forged_and_cut_between_two_is_closed() {
    let whole = LENGTH_BYTES + 5 + TAG_BYTES;
    for kept in 0..=whole {
        let (mut caller, mut called, between) = pair(0);
        send(&mut *caller, b"first");
        between.lock().pipes[0].truncate(kept);
        between.lock().closed[0] = true;
        if kept == whole {
            assert_eq!(receive(&mut *called, 100), Ok(b"first".to_vec()));
        }
        let expected = if kept % whole == 0 { LinkError::Closed } else { LinkError::Forged };
        assert_eq!(receive(&mut *called, 100), Err(expected), "{kept} bytes kept");
    }
}

#[test]
fn records_of_a_length_that_nobody_sends_are_refused_at_once() {
    for length in [0, TAG_BYTES, PAYLOAD_BYTES_MAX + TAG_BYTES + 1, 0xffff] {
        let (_caller, mut called, between) = pair(0);
        between.lock().pipes[0].extend((length as u16).to_le_bytes());
        assert_eq!(receive(&mut *called, 100), Err(LinkError::Forged), "{length}");
    }
}

#[test]
fn a_record_counts_as_accepted_when_its_last_byte_has_gone_and_never_before() {
    let (mut caller, mut called, between) = pair(1);
    let bytes: Vec<u8> = (0..100).collect();
    let mut accepted = 0;
    let record = LENGTH_BYTES + bytes.len() + TAG_BYTES;
    for call in 1..=record {
        assert_eq!(accepted, 0, "the record is not whole before call {record}");
        accepted = send(&mut *caller, &bytes);
        if call < record {
            assert_eq!(receive(&mut *called, 200), Ok(vec![]));
        }
    }
    assert_eq!(accepted, bytes.len());
    assert_eq!(receive(&mut *called, 200), Ok(bytes));
    assert!(between.lock().pipes[0].is_empty());
}

#[test]
fn of_several_records_those_that_have_gone_are_accepted_before_the_rest() {
    // Two records fit, and a bit of the third.
    let (mut caller, mut called, _between) = pair(2 * RECORD_BYTES_MAX + 10);
    let bytes: Vec<u8> = (0..3 * PAYLOAD_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    let accepted = send(&mut *caller, &bytes);
    assert_eq!(accepted, 2 * PAYLOAD_BYTES_MAX);
    let mut received = receive(&mut *called, bytes.len()).unwrap();
    assert_eq!(received, bytes[..accepted]);
    // What is offered in smaller parts than it was encrypted in is accepted in these.
    assert_eq!(send(&mut *caller, &bytes[accepted..accepted + 7]), 7);
    assert_eq!(send(&mut *caller, &[]), 0);
    assert_eq!(send(&mut *caller, &bytes[accepted + 7..]), bytes.len() - accepted - 7);
    received.extend(receive(&mut *called, bytes.len()).unwrap());
    assert_eq!(received, bytes);
}

#[test]
fn a_link_says_that_it_holds_bytes_until_the_last_of_them_is_received() {
    let (mut caller, mut called, _between) = pair(0);
    send(&mut *caller, b"first");
    send(&mut *caller, b"other");
    assert!(!called.holds_bytes(), "nothing was taken from the link below");
    let mut received = Vec::new();
    for left in (0..10).rev() {
        received.extend(receive(&mut *called, 1).unwrap());
        assert_eq!(called.holds_bytes(), left > 0);
    }
    assert_eq!(received, b"firstother");
    // Half a record is announced by the link below when its rest comes.
    assert_eq!(receive(&mut *called, 1), Ok(vec![]));
}

#[test]
fn what_the_link_below_holds_is_held() {
    let (mut caller, mut called, between) = pair(0);
    between.lock().is_taken_in = true;
    send(&mut *caller, b"first");
    assert!(called.holds_bytes(), "nothing announces it any more");
    assert_eq!(receive(&mut *called, 5), Ok(b"first".to_vec()));
    assert!(!called.holds_bytes());
}

#[test]
fn both_directions_go_on_over_every_change_of_the_key() {
    let (mut caller, mut called, _between) = pair(0);
    for number in 0..2 * RECORDS_PER_KEY + 10 {
        let said = number.to_le_bytes();
        send(&mut *caller, &said);
        assert_eq!(receive(&mut *called, 100), Ok(said.to_vec()));
        // The other direction has a number of its own.
        if number % 3 == 0 {
            send(&mut *called, &said);
            assert_eq!(receive(&mut *caller, 100), Ok(said.to_vec()));
        }
    }
}

#[test]
fn the_key_changes_after_its_records() {
    // One end that changes its key a record late is not understood.
    let (mut caller, called) = agree(&sealing(1, 2), &sealing(1, 2)).unwrap();
    let between = Arc::new(Mutex::new(Between::default()));
    let mut called = called.seal(Box::new(End(Arc::clone(&between), 1)));
    let mut record = [0; 64];
    for number in 0..=RECORDS_PER_KEY {
        let bytes = caller.0.write_message(b"x", &mut record).unwrap();
        between.lock().pipes[0].extend((bytes as u16).to_le_bytes());
        between.lock().pipes[0].extend(&record[..bytes]);
        let outcome = receive(&mut *called, 1);
        let expected = if number < RECORDS_PER_KEY { Ok(b"x".to_vec()) } else { Err(LinkError::Forged) };
        assert_eq!(outcome, expected, "record {number}");
    }
}

fn two_links() -> [SealedLink; 2] {
    let between = Arc::new(Mutex::new(Between::default()));
    let (caller, called) = agree(&sealing(1, 2), &sealing(1, 2)).unwrap();
    let end = |side| Box::new(End(Arc::clone(&between), side));
    [SealedLink::new(end(0), caller), SealedLink::new(end(1), called)]
}

/// Sends so many bytes from one end to the other, which takes them in pieces of that room.
fn carry(from: &mut SealedLink, to: &mut SealedLink, (bytes, room): (usize, usize)) {
    let said: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8).collect();
    let (mut sent, mut heard) = (0, Vec::new());
    while heard.len() < bytes {
        if sent < bytes {
            sent += send(from, &said[sent..]);
        }
        heard.extend(receive(to, room).unwrap());
    }
    assert_eq!(heard, said);
    assert_eq!(receive(to, room), Ok(vec![]), "no more comes");
}

#[test]
fn messages_of_every_length_arrive_whatever_the_buffers_were_used_for_before() {
    let [mut caller, mut called] = two_links();
    let around = |bytes: usize| [bytes - 1, bytes, bytes + 1];
    let counts = [1, 60, 300_000].into_iter().chain(around(KEPT_BYTES_MAX - LENGTH_BYTES - TAG_BYTES));
    let counts = counts.chain(around(KEPT_BYTES_MAX)).chain(around(PAYLOAD_BYTES_MAX)).chain(around(BATCH_BYTES));
    let counts: Vec<usize> = counts.collect();
    for (number, bytes) in counts.iter().cycle().take(counts.len() * 7).enumerate() {
        let ends = if number % 3 == 0 { (&mut called, &mut caller) } else { (&mut caller, &mut called) };
        carry(ends.0, ends.1, (*bytes, [1 << 20, 100, 20_000][number % 3]));
    }
}

#[test]
fn a_connection_that_rests_keeps_little_memory() {
    let [mut caller, mut called] = two_links();
    let kept_max = 4 * (KEPT_BYTES_MAX + 64);
    carry(&mut caller, &mut called, (1 << 20, 1 << 20));
    assert!(caller.kept_bytes() > BATCH_BYTES && called.kept_bytes() > BATCH_BYTES, "there was much");
    carry(&mut called, &mut caller, (1 << 20, 1 << 20));
    for _ in 0..SHORT_ONES_BEFORE_REST {
        carry(&mut caller, &mut called, (100, 100));
        carry(&mut called, &mut caller, (100, 100));
    }
    for end in [&caller, &called] {
        assert!((1..=kept_max).contains(&end.kept_bytes()), "{} bytes", end.kept_bytes());
    }
}
