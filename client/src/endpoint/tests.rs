use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use longarm_memory::RegionMut;
use longarm_netmod::flow::Costs;
use longarm_netmod::{Link, LinkError};
use longarm_proto::{
    AccessKey, Cursor, Generation, REPLY_BYTES, Reception, ReplyBody, ReplyHeader, RequestId, RmwOp, RmwWidth, Session,
    Shape, WindowId, WindowRef,
};

use longarm_shm::sync::{AtomicUsize, Ordering};

use super::sending::{CORKED_BYTES_MAX, CORKED_STREAM_BYTES_MAX};
use super::*;
use crate::completion::Completion;
use crate::origin_bytes::{OriginBuffer, OriginBytesMut, lend};
use crate::progress::dialing::{DialStep, Dialing};

/// What a call comes to.
enum Answer {
    /// A link that is broken already.
    Broken(Reception),
    /// One that takes nothing and gives nothing.
    Silent(Reception),
    /// One that takes everything, counts how often, and gives nothing.
    Counting(Reception, Arc<AtomicUsize>),
    /// One that counts likewise, and answers what it is sent first with data.
    Giving(Reception, Arc<AtomicUsize>, Data),
    /// A wrong proof.
    Wrong,
    /// Nothing for so many polls, with something to sleep on meanwhile, and then one that takes nothing and gives nothing.
    Late { polls: u32, descriptor: OwnedFd },
}

/// The data of an answer.
#[derive(Clone, Copy)]
struct Data {
    bytes: u64,
    /// So many of them come.
    come: usize,
}

/// A server that answers calls as it was told.
struct Server(Mutex<VecDeque<Answer>>);

struct Call(Option<Answer>);

struct TestLink {
    broken: bool,
    sends: Option<Arc<AtomicUsize>>,
    /// The data that it answers with, before that is asked for.
    data: Option<Data>,
    gives: VecDeque<u8>,
}

struct Still;

impl Dial for Server {
    fn start(&self, _: NodeId, _: Session) -> Result<Box<dyn Dialing>, LostHow> {
        Ok(Box::new(Call(self.0.lock().pop_front())))
    }
}

impl Dialing for Call {
    fn poll(&mut self) -> DialStep {
        if let Some(Answer::Late { polls: polls @ 1.., .. }) = &mut self.0 {
            *polls -= 1;
            return DialStep::Pending;
        }
        let (broken, sends, data, reception) = match self.0.take() {
            Some(Answer::Broken(reception)) => (true, None, None, reception),
            Some(Answer::Silent(reception)) => (false, None, None, reception),
            Some(Answer::Counting(reception, sends)) => (false, Some(sends), None, reception),
            Some(Answer::Giving(reception, sends, data)) => (false, Some(sends), Some(data), reception),
            Some(Answer::Late { .. }) => (false, None, None, Reception::Fresh),
            Some(Answer::Wrong) => return DialStep::Failed { reason: "a wrong proof".into(), may_pass: false },
            None => return DialStep::Pending,
        };
        DialStep::Up { link: Box::new(TestLink { broken, sends, data, gives: VecDeque::new() }), reception }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if let Some(Answer::Late { descriptor, .. }) = &self.0 { Some(descriptor.as_fd()) } else { None }
    }

    fn prepare_sleep(&mut self) -> (Interest, bool) {
        (Interest::WRITABLE, false)
    }
}

impl Link for TestLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let Some(sends) = &self.sends else { return if self.broken { Err(LinkError::Reset) } else { Ok(0) } };
        sends.fetch_add(1, Ordering::Relaxed);
        let sent = regions.iter().map(|region| region.len()).sum();
        if let Some(Data { bytes, come }) = self.data.take() {
            let mut header = [0; REPLY_BYTES];
            let body = ReplyBody::Data { bytes };
            ReplyHeader { id: RequestId(1), body, received_bytes: sent as u64 }.encode(&mut header);
            self.gives = header.into_iter().chain(std::iter::repeat_n(1, come)).collect();
        }
        Ok(sent)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let mut got = 0;
        for region in regions {
            let bytes: Vec<u8> = self.gives.drain(..region.len().min(self.gives.len())).collect();
            region.slice(0, bytes.len()).copy_from(Region::from_slice(&bytes));
            got += bytes.len();
        }
        if self.broken { Err(LinkError::Reset) } else { Ok(got) }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "a test"
    }
}

impl Time for Still {
    fn now_ms(&self) -> u64 {
        0
    }
}

fn endpoint(answers: impl IntoIterator<Item = Answer>) -> Endpoint {
    let options = EndpointOptions {
        caller: Rank(0),
        buffered_bytes_max: 1 << 20,
        connect_ms: 1000,
        reconnect_ms: 1000,
        silence_ms: 1000,
        costs: Costs::TYPICAL,
    };
    let server = Server(Mutex::new(answers.into_iter().collect()));
    Endpoint::new(NodeId(1), Rank(3), Arc::new(server), Arc::new(Still), options, Arc::new(OccupiedNodes::new(2)))
}

/// One whose connection is up and takes everything; how often it was sent something, and a part of a window there.
fn counted() -> (Endpoint, Arc<AtomicUsize>, WindowRef) {
    let sends = Arc::new(AtomicUsize::new(0));
    let endpoint = endpoint([Answer::Counting(Reception::Fresh, Arc::clone(&sends))]);
    endpoint.drive();
    let target = WindowRef { rank: Rank(3), window: WindowId(1), generation: Generation(0), key: AccessKey(2) };
    (endpoint, sends, target)
}

#[test]
fn a_connection_that_breaks_in_the_moment_it_is_made_keeps_nobody_waiting() {
    let endpoint = endpoint([Answer::Broken(Reception::Fresh)]);
    assert!(endpoint.is_busy() && !endpoint.is_known());
    endpoint.drive();
    // Nothing waits to be sent, so nobody is asked to make it anew. Whoever waits for the first one has to go on.
    assert!(!endpoint.is_up() && !endpoint.is_busy());
    assert!(endpoint.is_known());
}

#[test]
fn a_connection_that_broke_is_made_anew_as_soon_as_there_is_something_to_send() {
    let endpoint =
        endpoint([Answer::Broken(Reception::Fresh), Answer::Silent(Reception::Resumed { received_bytes: 0 })]);
    endpoint.drive();
    let token = Token::Part(Completion::begin().1);
    let issued = endpoint.issue(&Request::Quiet, Some(token), Payload::None, Sending::Later);
    assert!(issued.is_ok() && endpoint.is_busy() && !endpoint.is_up());
    endpoint.drive();
    assert!(endpoint.is_up() && endpoint.broken().is_none());
}

/// A time that the test moves.
#[derive(Default)]
struct Hands(std::sync::atomic::AtomicU64);

impl Time for Hands {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One that is not called anew once its connection is lost, and the time that it sees.
fn timed(answer: Answer) -> (Endpoint, Arc<Hands>) {
    let hands = Arc::new(Hands::default());
    let options = EndpointOptions {
        caller: Rank(0),
        buffered_bytes_max: 1 << 20,
        connect_ms: 1000,
        reconnect_ms: 0,
        silence_ms: 1000,
        costs: Costs::TYPICAL,
    };
    let server = Server(Mutex::new([answer].into()));
    (
        Endpoint::new(
            NodeId(1),
            Rank(3),
            Arc::new(server),
            Arc::clone(&hands) as _,
            options,
            Arc::new(OccupiedNodes::new(2)),
        ),
        hands,
    )
}

#[test]
fn a_server_that_nobody_asks_anything_is_missed_if_somebody_waits_for_its_node() {
    let (endpoint, hands) = timed(Answer::Silent(Reception::Fresh));
    endpoint.drive();
    assert!(endpoint.is_up() && !endpoint.is_busy());
    for _ in 0..300 {
        hands.0.fetch_add(10, Ordering::Relaxed);
        endpoint.drive();
    }
    assert!(endpoint.broken().is_none(), "nobody waits for it");
    for _ in 0..300 {
        hands.0.fetch_add(10, Ordering::Relaxed);
        endpoint.ask();
    }
    let how = endpoint.broken().expect("it never answered").to_string();
    assert!(how.contains("nothing was heard of the server for 1000 ms"), "{how}");
}

#[test]
fn an_endpoint_is_found_by_those_who_wait_exactly_while_it_has_something_to_do() {
    let occupied = |endpoint: &Endpoint| {
        let has_work = endpoint.is_busy() || endpoint.is_unacknowledged() || endpoint.is_corked();
        let stands_there = endpoint.published.occupied().iter().eq([NodeId(1)]);
        assert_eq!(stands_there, has_work);
        stands_there
    };
    let (endpoint, _) = timed(Answer::Silent(Reception::Fresh));
    assert!(occupied(&endpoint), "its server has to be called");
    endpoint.drive();
    assert!(!occupied(&endpoint));
    let target = WindowRef { rank: Rank(3), window: WindowId(1), generation: Generation(0), key: AccessKey(2) };
    let request = Request::Put { target, shape: Shape::contiguous(0, 8), signal: None };
    let payload = Payload::Copied(Region::from_slice(&[7; 8]), Cursor::new(Shape::contiguous(0, 8)));
    assert!(endpoint.issue(&request, None, payload, Sending::Later).is_ok());
    assert!(occupied(&endpoint), "what was put has not arrived");
    endpoint.give_up(LostHow::Finalized);
    assert!(!occupied(&endpoint), "nothing goes through any more");
}

#[test]
fn a_call_is_slept_on_until_the_connection_is_up_and_that_is_told_to_those_who_sleep() {
    let (reader, _) = std::io::pipe().expect("a pipe");
    let (endpoint, _) = timed(Answer::Late { polls: 2, descriptor: reader.into() });
    let descriptor = || endpoint.prepare_sleep().expect("no other thread drives it").descriptor;
    assert!(descriptor().is_none(), "nobody has called yet");
    assert_eq!(endpoint.drive(), Some(Driven::default()));
    let first = descriptor().expect("it is called");
    assert_eq!(endpoint.prepare_sleep().map(|prepared| prepared.wanted), Some(Interest::WRITABLE));
    assert_eq!(endpoint.drive(), Some(Driven::default()));
    assert!(Arc::ptr_eq(&first, &descriptor().expect("the same call")), "it is duplicated once");
    let driven = endpoint.drive().expect("no other thread drives it");
    assert!(endpoint.is_up() && driven.completed && descriptor().is_none(), "the link has none");
    assert_eq!(Arc::strong_count(&first), 1, "nobody else keeps the call's open");
}

#[test]
fn an_acknowledgement_presses_only_if_the_owner_of_a_payload_waits_for_it() {
    let (endpoint, _, target) = counted();
    let request = |bytes| Request::Put { target, shape: Shape::contiguous(0, bytes), signal: None };
    let payload = Payload::Copied(Region::from_slice(&[7; 8]), Cursor::new(Shape::contiguous(0, 8)));
    assert!(endpoint.issue(&request(8), None, payload, Sending::Confirmed).is_ok());
    assert!(endpoint.confirming().is_some() && endpoint.is_busy() && !endpoint.is_pressing());
    let buffer = OriginBuffer::new(vec![7_u8; 100_000]);
    let payload = Payload::Streamed(buffer.lender().hold(), Cursor::new(Shape::contiguous(0, 100_000)));
    assert!(endpoint.issue(&request(100_000), None, payload, Sending::Later).is_ok());
    endpoint.drive();
    assert!(endpoint.confirming().is_some() && !endpoint.wants_write() && endpoint.is_pressing());
    endpoint.give_up(LostHow::Finalized);
    assert!(!endpoint.is_pressing());
}

#[test]
fn who_would_sleep_on_an_endpoint_that_another_thread_drives_is_told() {
    let (endpoint, ..) = counted();
    assert!(endpoint.prepare_sleep().is_some());
    let driven = endpoint.lock();
    assert!(endpoint.prepare_sleep().is_none());
    drop(driven);
    assert!(endpoint.prepare_sleep().is_some());
}

#[test]
fn a_failure_that_cannot_pass_ends_the_calls() {
    let endpoint = endpoint([Answer::Wrong, Answer::Silent(Reception::Fresh)]);
    endpoint.drive();
    endpoint.drive();
    assert!(matches!(endpoint.broken(), Some(LostHow::Unreachable(_))));
}

#[test]
fn requests_that_nobody_waits_for_go_out_together_and_the_helper_is_told_once() {
    let (endpoint, sends, target) = counted();
    let request = Request::Put { target, shape: Shape::contiguous(0, 8), signal: None };
    let put = |sending| {
        let bytes = [7; 8];
        let payload = Payload::Copied(Region::from_slice(&bytes), Cursor::new(Shape::contiguous(0, 8)));
        let issued = endpoint.issue(&request, None, payload, sending);
        issued.unwrap_or_else(|_| panic!("there is room")).became_corked
    };
    assert!(!put(Sending::Soon), "nothing else is under way");
    assert!(endpoint.confirming().is_some(), "a quiet behind it has only to wait");
    assert_eq!(sends.load(Ordering::Relaxed), 1);
    let told = (0..100).filter(|_| put(Sending::Soon)).count();
    assert_eq!((told, sends.load(Ordering::Relaxed)), (1, 1));
    assert!(endpoint.is_corked() && endpoint.is_busy());
    endpoint.drive();
    assert!(!endpoint.is_corked());
    assert_eq!(sends.load(Ordering::Relaxed), 2);
    // Much is sent although nobody waits.
    for _ in 0..CORKED_BYTES_MAX / 72 + 2 {
        put(Sending::Soon);
    }
    assert_eq!(sends.load(Ordering::Relaxed), 3);
    // What somebody waits for takes the others along.
    put(Sending::Confirmed);
    assert!(!endpoint.is_corked());
    assert_eq!(sends.load(Ordering::Relaxed), 4);
    // Behind that the next one may be the only one again.
    assert!(!put(Sending::Soon));
    assert_eq!(sends.load(Ordering::Relaxed), 5);
    assert!(put(Sending::Soon) && endpoint.is_corked());
}

/// Of puts that stay in their place.
const PAYLOAD_BYTES: usize = 64 << 10;

/// Has a test issue puts of [`PAYLOAD_BYTES`] that stay in their place; each says whether the helper has to be told of something that is corked.
fn with_payloads_in_place(endpoint: &Endpoint, target: WindowRef, test: impl FnOnce(&dyn Fn(Sending) -> bool)) {
    let bytes = vec![7; PAYLOAD_BYTES];
    let shape = || Shape::contiguous(0, bytes.len() as u64);
    let request = Request::Put { target, shape: shape(), signal: None };
    lend(|lent| {
        let lender = lent.source(bytes[..].into());
        test(&|sending| {
            let payload = Payload::Streamed(lender.hold(), Cursor::new(shape()));
            let issued = endpoint.issue(&request, None, payload, sending);
            issued.unwrap_or_else(|_| panic!("there is room")).became_corked
        });
        endpoint.give_up(LostHow::Finalized);
    });
}

#[test]
fn payloads_that_stay_in_their_places_go_out_a_few_at_a_time() {
    let (endpoint, sends, target) = counted();
    with_payloads_in_place(&endpoint, target, |put| {
        let put = || put(Sending::SoonInPlace);
        assert!(!put(), "nothing else is under way");
        let alone = sends.load(Ordering::Relaxed);
        assert!(alone > 0);
        let held = (CORKED_STREAM_BYTES_MAX - 1) / PAYLOAD_BYTES as u64;
        assert_eq!((0..held).filter(|_| put()).count(), 1, "the helper is told once");
        assert_eq!((sends.load(Ordering::Relaxed), endpoint.is_corked()), (alone, true));
        assert!(!put() && !endpoint.is_corked(), "that is much");
        assert_eq!(sends.load(Ordering::Relaxed), alone + 1);
    });
}

#[test]
fn a_payload_that_is_large_by_itself_goes_out_alone_and_behind_others_it_is_the_helpers() {
    let (endpoint, sends, target) = counted();
    with_payloads_in_place(&endpoint, target, |put| {
        assert!(!put(Sending::AloneOrByHelper));
        let alone = sends.load(Ordering::Relaxed);
        assert!(alone > 0 && !endpoint.wants_write(), "nothing else is under way");
        assert!(!put(Sending::AloneOrByHelper));
        assert_eq!(sends.load(Ordering::Relaxed), alone, "the caller goes on");
        assert!(endpoint.wants_write() && !endpoint.is_corked(), "nobody waits for more");
        assert!(endpoint.has_much_to_send(), "the helper sends it");
        endpoint.drive();
        assert!(sends.load(Ordering::Relaxed) > alone && !endpoint.wants_write());
        assert!(!endpoint.has_much_to_send());
    });
}

#[test]
fn a_put_that_somebody_waits_for_asks_whether_it_is_there() {
    let (endpoint, sends, target) = counted();
    let request = Request::Put { target, shape: Shape::contiguous(0, 8), signal: None };
    let put = |sending| {
        let payload = Payload::Copied(Region::from_slice(&[7; 8]), Cursor::new(Shape::contiguous(0, 8)));
        assert!(endpoint.issue(&request, None, payload, sending).is_ok());
    };
    put(Sending::Confirmed);
    assert_eq!((endpoint.confirming(), sends.load(Ordering::Relaxed)), (Some(2), 1));
    put(Sending::Soon);
    assert_eq!(sends.load(Ordering::Relaxed), 2);
    assert!(endpoint.confirming().is_none(), "what is behind the question is not in the answer");
}

#[test]
fn small_puts_become_one_request_before_anything_else_is_asked() {
    let (endpoint, sends, target) = counted();
    let coalesce =
        |offset| endpoint.coalesce_write(&target, &Writes::Put, Run { offset, bytes: 8 }, Region::from_slice(&[7; 8]));
    assert!(coalesce(0).is_none(), "nothing is under way that it could wait for");
    let request = Request::Put { target, shape: Shape::contiguous(0, 8), signal: None };
    let payload = || Payload::Copied(Region::from_slice(&[7; 8]), Cursor::new(Shape::contiguous(0, 8)));
    assert!(endpoint.issue(&request, None, payload(), Sending::Soon).is_ok());
    assert_eq!((endpoint.state.lock().initiator.last().0, sends.load(Ordering::Relaxed)), (2, 1));
    assert_eq!(endpoint.confirming(), Some(2));
    let told = (0..100).filter(|number| coalesce(16 * number).is_some_and(|driven| driven.became_corked)).count();
    assert_eq!(told, 1, "the helper is told once");
    assert!(endpoint.is_busy() && endpoint.wants_write() && endpoint.is_corked() && endpoint.is_unconfirmed());
    assert!(endpoint.is_unacknowledged() && !endpoint.is_held_back());
    assert_eq!((endpoint.state.lock().initiator.last().0, sends.load(Ordering::Relaxed)), (2, 1));
    assert_eq!(endpoint.confirming(), None, "what is behind the question is not in the answer");
    // What is asked for next comes behind them: they are the third request, this the fourth.
    assert!(endpoint.issue(&request, None, payload(), Sending::Confirmed).is_ok());
    assert_eq!((endpoint.state.lock().initiator.last().0, sends.load(Ordering::Relaxed)), (4, 2));
    assert!(!endpoint.is_corked() && !endpoint.wants_write());
    assert!(coalesce(8).is_none(), "behind what somebody waits for it may be the only one");
    assert!(endpoint.issue(&request, None, payload(), Sending::Soon).is_ok());
    assert!(coalesce(8).is_some_and(|driven| driven.became_corked));
    endpoint.drive();
    assert_eq!((endpoint.state.lock().initiator.last().0, sends.load(Ordering::Relaxed)), (6, 4));
    // Many are sent although nobody waits.
    let before = sends.load(Ordering::Relaxed);
    for number in 0..COALESCED_BYTES_MAX as u64 / 24 + 1 {
        assert!(coalesce(16 * number).is_some());
    }
    assert_eq!(sends.load(Ordering::Relaxed), before + 1);
    endpoint.give_up(LostHow::Finalized);
    assert!(coalesce(0).is_none() && !endpoint.is_busy() && !endpoint.is_corked());
}

#[test]
fn a_small_put_does_not_pass_a_large_get() {
    let (endpoint, _, target) = counted();
    let get = Request::Get { target, shape: Shape::contiguous(0, 60_000) };
    let token = Token::Part(Completion::begin().1);
    assert!(endpoint.issue(&get, Some(token), Payload::None, Sending::Soon).is_ok());
    assert!(
        endpoint
            .coalesce_write(&target, &Writes::Put, Run { offset: 0, bytes: 8 }, Region::from_slice(&[7; 8]))
            .is_none()
    );
    let large = Run { offset: 0, bytes: COALESCED_RUN_BYTES_MAX + 1 };
    let bytes = vec![7; large.bytes as usize];
    assert!(endpoint.coalesce_write(&target, &Writes::Put, large, Region::from_slice(&bytes)).is_none());
}

#[test]
fn a_payload_that_went_out_before_anybody_waits_for_it_is_asked_for_by_who_does() {
    const BYTES: usize = 100_000;
    let (endpoint, _, target) = counted();
    let shape = Shape::contiguous(0, BYTES as u64);
    let request = Request::Put { target, shape: shape.clone(), signal: None };
    let put = || {
        let buffer = OriginBuffer::new(vec![7_u8; BYTES]);
        let payload = Payload::Streamed(buffer.lender().hold(), Cursor::new(shape.clone()));
        assert!(endpoint.issue(&request, None, payload, Sending::Later).is_ok());
        endpoint.push();
        assert!(!endpoint.wants_write());
        buffer.issued()
    };
    let first = put();
    assert!(!first.completion().is_complete());
    assert!(endpoint.is_busy() && endpoint.confirming().is_some(), "the question goes out behind it");
    // Another one, while that is not answered: who waits has to ask.
    let second = put();
    assert!(endpoint.confirming().is_none());
    assert!(endpoint.is_busy(), "whoever waits has to drive it");
    endpoint.drive();
    assert!(endpoint.confirming().is_some());
    endpoint.give_up(LostHow::Finalized);
    assert!(first.completion().is_complete() && second.completion().is_complete());
}

#[test]
fn what_has_to_wait_for_a_get_is_known_to_be_held_back() {
    let (endpoint, _, target) = counted();
    let get = Request::Get { target, shape: Shape::contiguous(0, 60_000) };
    let token = Token::Part(Completion::begin().1);
    assert!(endpoint.issue(&get, Some(token), Payload::None, Sending::Soon).is_ok());
    assert!(!endpoint.is_held_back() && !endpoint.expects_much());
    let put = Request::Put { target, shape: Shape::contiguous(0, 8), signal: None };
    let bytes = [7; 8];
    let payload = Payload::Copied(Region::from_slice(&bytes), Cursor::new(Shape::contiguous(0, 8)));
    assert!(endpoint.issue(&put, None, payload, Sending::Confirmed).is_ok());
    assert!(endpoint.is_held_back() && endpoint.is_busy() && !endpoint.wants_write());
    let token = Token::Part(Completion::begin().1);
    assert!(endpoint.issue(&get, Some(token), Payload::None, Sending::Soon).is_ok());
    assert!(endpoint.expects_much(), "of 120 kB the kernel keeps a part");
}

#[test]
fn a_get_that_is_alone_goes_out_at_once_although_an_acknowledgement_is_due() {
    const BYTES: u64 = 1 << 20;
    let sends = Arc::new(AtomicUsize::new(0));
    let endpoint =
        endpoint([Answer::Giving(Reception::Fresh, Arc::clone(&sends), Data { bytes: BYTES, come: BYTES as usize })]);
    endpoint.drive();
    let target = WindowRef { rank: Rank(3), window: WindowId(1), generation: Generation(0), key: AccessKey(2) };
    let request = Request::Get { target, shape: Shape::contiguous(0, BYTES) };
    let mut here = vec![1; BYTES as usize];
    for round in 1..=2 {
        lend(|lent| {
            let place = lent.target(OriginBytesMut::from(&mut here[..]));
            let token = Token::Data { target: place.hold(), cursor: Cursor::new(Shape::contiguous(0, BYTES)) };
            let issued = endpoint.issue(&request, Some(token), Payload::None, Sending::Soon);
            assert!(issued.is_ok_and(|driven| !driven.became_corked), "round {round}");
            assert_eq!(sends.load(Ordering::Relaxed), round);
            let completion = lent.issued();
            while round == 1 && !completion.is_complete() {
                endpoint.drive();
            }
            if round == 2 {
                endpoint.give_up(LostHow::Finalized);
            }
        });
    }
}

/// Three updates in one request, of whose old values the first one has come, and half of the second one.
fn cut_short(endpoint: &Endpoint) -> Vec<Arc<Completion>> {
    endpoint.drive();
    let target = WindowRef { rank: Rank(3), window: WindowId(1), generation: Generation(0), key: AccessKey(2) };
    let (op, width, words) = (RmwOp::FetchAdd, RmwWidth::W64, vec![RmwWord { offset: 8, operand: 1 }; 3]);
    let (completions, parts): (Vec<_>, Vec<_>) = (0..3).map(|_| Completion::begin()).unzip();
    let request = Request::RmwMany { target, op, width, words };
    let issued = endpoint.issue(&request, Some(Token::Values(parts)), Payload::None, Sending::Now);
    assert!(issued.is_ok());
    while !completions[0].is_complete() {
        endpoint.drive();
    }
    assert_eq!(completions[0].value(), u64::from_le_bytes([1; 8]));
    assert!(endpoint.is_busy() && !completions[1].is_complete());
    completions
}

fn with_half_an_answer() -> Answer {
    Answer::Giving(Reception::Fresh, Arc::default(), Data { bytes: 24, come: 12 })
}

#[test]
fn who_waits_for_an_old_value_that_is_cut_short_hears_of_the_loss_and_who_has_got_his_does_not() {
    let endpoint = endpoint([with_half_an_answer()]);
    let completions = cut_short(&endpoint);
    endpoint.give_up(LostHow::Finalized);
    let lost = Outcome::Lost(LostHow::Finalized);
    let failures: Vec<_> = completions.iter().map(|completion| completion.failure()).collect();
    assert_eq!(failures, [None, Some(&lost), Some(&lost)]);
    assert!(completions.iter().all(|completion| completion.is_complete()));
}

#[test]
fn a_server_that_falls_silent_in_the_middle_of_an_answer_is_missed() {
    let (endpoint, hands) = timed(with_half_an_answer());
    let completions = cut_short(&endpoint);
    for _ in 0..300 {
        hands.0.fetch_add(10, Ordering::Relaxed);
        endpoint.drive();
    }
    let how = endpoint.broken().expect("the rest never came").to_string();
    assert!(how.contains("nothing was heard of the server for 1000 ms"), "{how}");
    assert!(completions[0].failure().is_none() && completions[1].failure().is_some());
}

#[test]
fn what_a_connection_has_grown_by_goes_when_it_rests_and_not_while_it_moves() {
    let sends = Arc::new(AtomicUsize::new(0));
    let endpoint = endpoint([Answer::Counting(Reception::Fresh, sends)]);
    let has_grown = || endpoint.state.lock().outgoing.has_grown();
    let send = || {
        endpoint.state.lock().outgoing.write(|bytes| bytes.extend_from_slice(&[7; 10_000]));
        while endpoint.state.lock().outgoing.can_send() {
            endpoint.drive();
        }
    };
    let everything_has_come = || {
        let mut state = endpoint.state.lock();
        let sent_bytes = state.outgoing.sent_bytes();
        state.outgoing.acknowledge(sent_bytes, drop).unwrap();
    };
    for _ in 0..3 {
        send();
        everything_has_come();
        endpoint.shrink_at_rest();
        assert!(has_grown(), "something has gone since it was asked last");
    }
    endpoint.shrink_at_rest();
    assert!(!has_grown());
    send();
    (0..3).for_each(|_| endpoint.shrink_at_rest());
    assert!(has_grown(), "what has not come is kept");
    everything_has_come();
    endpoint.shrink_at_rest();
    assert!(!has_grown());
}
