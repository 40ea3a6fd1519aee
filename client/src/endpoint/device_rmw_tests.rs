//! Updates of words by a device that does what the test says.

use std::task::{Context, Wake, Waker};

use super::*;
use crate::completion::RmwFate;

fn begin(endpoint: &Endpoint, offset: u64) -> Arc<Completion> {
    let (completion, part) = Completion::begin();
    endpoint.device_rmw(&TARGET, offset, DeviceRmw::FetchAdd(1), part).unwrap();
    completion
}

fn ends(endpoint: &Endpoint, card: &Shared, outcomes: &[(u64, DirectOutcome)]) {
    card.lock().outcomes.extend(outcomes.iter().copied());
    endpoint.drive();
}

#[test]
fn the_old_value_comes_with_the_end() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    let (first, second) = (begin(&endpoint, 8), begin(&endpoint, 16));
    assert_eq!(posted(&card), [8, 16]);
    assert!(endpoint.is_busy() && !first.is_complete());
    ends(&endpoint, &card, &[(0, DirectOutcome::Value(41))]);
    assert!(first.is_complete() && first.failure().is_none() && first.value() == 41);
    assert!(!second.is_complete());
    ends(&endpoint, &card, &[(1, DirectOutcome::Value(u64::MAX))]);
    assert_eq!((second.value(), second.failure()), (u64::MAX, None));
    assert!(!endpoint.is_busy());
}

#[test]
fn nothing_goes_before_an_update_that_waits_for_its_word_to_be_reached() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    for reach in [Reach::Asked, Reach::Full] {
        card.lock().reach = reach;
        let sent_bytes = card.lock().sent_bytes;
        let update = begin(&endpoint, 8);
        let token = Token::Part(Completion::begin().1);
        assert!(endpoint.issue(&Request::Quiet, Some(token), Payload::None, Sending::Now).is_ok());
        endpoint.drive();
        assert!(posted(&card).is_empty() && card.lock().sent_bytes == sent_bytes, "{reach:?}");
        assert!(!put(&endpoint, 0), "a put has to be served behind it");
        assert!(endpoint.needs_helper() && endpoint.has_served());
        card.lock().reach = Reach::Yes;
        endpoint.drive();
        let ticket = card.lock().posted.pop().unwrap().0;
        assert!(card.lock().sent_bytes > sent_bytes);
        ends(&endpoint, &card, &[(ticket, DirectOutcome::Value(3))]);
        assert_eq!(update.value(), 3);
    }
}

#[test]
fn what_a_broken_link_has_not_done_is_done_over_the_next_and_what_it_has_is_not_done_again() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    let updates = [8, 16, 24, 32].map(|offset| begin(&endpoint, offset));
    assert!(put(&endpoint, 40));
    // The first is heard of in time.
    ends(&endpoint, &first, &[(0, DirectOutcome::Value(7))]);
    let left = [DirectOutcome::ValueLost, DirectOutcome::Unknown, DirectOutcome::NotDone, DirectOutcome::NotDone];
    second.lock().outcomes.extend((1..).zip(left));
    break_link(&endpoint, &first);
    assert_eq!(posted(&second), [32, 40]);
    ends(&endpoint, &second, &[(3, DirectOutcome::Value(9)), (4, DirectOutcome::Done)]);
    assert!(updates.iter().all(|update| update.is_complete()));
    let failures = updates.each_ref().map(|update| update.failure().cloned());
    let without = |what| Some(Outcome::NoOldValue(what));
    assert_eq!(failures, [None, without(RmwFate::Done), without(RmwFate::Unknown), None]);
    assert_eq!((updates[0].value(), updates[3].value()), (7, 9));
    assert!(!endpoint.is_busy());
}

#[test]
fn where_no_device_reaches_a_word_its_update_says_so_and_others_go_on() {
    let (card, plain) = (card(), card());
    let endpoint = endpoint(&[&card]);
    card.lock().reach = Reach::No;
    let update = begin(&endpoint, 8);
    assert_eq!(update.failure(), Some(&Outcome::NoOldValue(RmwFate::NotBegun)));
    assert!(posted(&card).is_empty() && !endpoint.is_busy());
    // The next connection is none of devices.
    card.lock().reach = Reach::Full;
    let update = begin(&endpoint, 8);
    let mut state = endpoint.state.lock();
    assert_eq!(state.transfers.settle(&mut Plain(plain), &mut Driven::default()), Ok(true));
    assert_eq!(update.failure(), Some(&Outcome::NoOldValue(RmwFate::NotBegun)));
    assert!(state.transfers.is_empty());
}

#[test]
fn an_update_that_was_posted_is_not_taken_for_one_that_was_not_begun() {
    let (card, plain) = (card(), card());
    let endpoint = endpoint(&[&card]);
    let update = begin(&endpoint, 8);
    assert_eq!(posted(&card), [8]);
    let mut state = endpoint.state.lock();
    state.transfers.orphan(0, 1000);
    // The device may have done it, and a link without one does not know.
    assert!(state.transfers.settle(&mut Plain(Arc::clone(&plain)), &mut Driven::default()).is_err());
    // Nor does the next one.
    state.transfers.orphan(0, 1000);
    assert!(state.transfers.settle(&mut Plain(plain), &mut Driven::default()).is_err());
    assert!(!update.is_complete());
}

#[test]
fn an_update_that_no_link_had_is_over_where_the_next_one_has_no_device() {
    let (card, plain) = (card(), card());
    let endpoint = endpoint(&[&card]);
    card.lock().reach = Reach::Asked;
    let update = begin(&endpoint, 8);
    let mut state = endpoint.state.lock();
    state.transfers.orphan(0, 1000);
    // Not the node is lost, only this way to its word.
    assert_eq!(state.transfers.settle(&mut Plain(plain), &mut Driven::default()), Ok(true));
    assert_eq!(update.failure(), Some(&Outcome::NoOldValue(RmwFate::NotBegun)));
}

#[test]
fn a_server_that_does_not_say_where_a_word_is_counts_as_silent() {
    let (first, second) = (card(), card());
    let clock = Arc::<Clock>::default();
    let endpoint = endpoint_at(Arc::clone(&clock), &[&first, &second]);
    first.lock().reach = Reach::Asked;
    let update = begin(&endpoint, 8);
    for now_ms in (0..2000).step_by(100) {
        *clock.0.lock() = now_ms;
        endpoint.drive();
    }
    assert!(posted(&first).is_empty());
    assert_eq!(posted(&second), [8]);
    assert!(!update.is_complete());
}

#[test]
fn an_update_waits_for_a_get_whose_bytes_are_still_read() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    let mut bytes = [0; 8];
    lend(|lent| {
        let held = lent.target(OriginBytesMut::from(&mut bytes[..])).hold();
        let cursor = Cursor::new(Shape::contiguous(0, 8));
        let request = Request::Get { target: TARGET, shape: Shape::contiguous(0, 8) };
        let token = Token::Data { target: held, cursor };
        assert!(endpoint.issue(&request, Some(token), Payload::None, Sending::Now).is_ok());
        let completion = lent.issued();
        let received_bytes = card.lock().sent_bytes as u64;
        let mut answer = [0; REPLY_BYTES];
        let id = endpoint.state.lock().initiator.last();
        ReplyHeader { id, body: ReplyBody::Data { bytes: 8 }, received_bytes }.encode(&mut answer);
        card.lock().incoming.extend(answer);
        card.lock().incoming.extend([7; 4]);
        endpoint.drive();
        assert!(endpoint.state.lock().is_idle() && endpoint.has_served(), "half of its bytes have come");
        card.lock().incoming.extend([7; 4]);
        endpoint.drive();
        assert!(!endpoint.has_served() && completion.is_complete());
    });
}

#[test]
fn an_update_that_the_device_refuses_fails() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    let update = begin(&endpoint, 8);
    ends(&endpoint, &card, &[(0, DirectOutcome::Refused)]);
    assert_eq!(update.failure(), Some(&Outcome::Refused { refusal: Refusal::FreedWindow, detail: 8 }));
    assert_eq!(endpoint.take_refused(), None, "its caller hears of it, and quiet has nothing to say");
}

#[test]
fn updates_towards_a_lost_node_end_and_none_begins() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    let update = begin(&endpoint, 8);
    let how = LostHow::Died("was killed".into());
    endpoint.give_up(how.clone());
    assert_eq!(update.failure(), Some(&Outcome::Lost(how.clone())));
    let (completion, part) = Completion::begin();
    assert_eq!(endpoint.device_rmw(&TARGET, 8, DeviceRmw::FetchAdd(1), part), Err(how));
    assert!(completion.failure().is_none(), "it was not begun");
}

/// A task that calls back into the endpoint as soon as it is woken, and notes whether that was free.
struct CallsBack {
    endpoint: Endpoint,
    found: Mutex<Vec<bool>>,
}

impl Wake for CallsBack {
    fn wake(self: Arc<Self>) {
        let is_free = self.endpoint.drive().is_some();
        self.found.lock().push(is_free);
    }
}

#[test]
fn a_task_that_is_woken_finds_the_endpoint_free() {
    let card = card();
    let task = Arc::new(CallsBack { endpoint: endpoint(&[&card]), found: Mutex::default() });
    let waker = Waker::from(Arc::clone(&task));
    let endpoint = &task.endpoint;
    let updates = [8, 16].map(|offset| begin(endpoint, offset));
    for update in &updates {
        assert!(update.poll_complete(&mut Context::from_waker(&waker)).is_pending());
    }
    ends(endpoint, &card, &[(0, DirectOutcome::Value(1))]);
    assert_eq!(*task.found.lock(), [true], "by the answer");
    endpoint.give_up(LostHow::Finalized);
    assert_eq!(*task.found.lock(), [true, true], "by the end of the connection");
}
