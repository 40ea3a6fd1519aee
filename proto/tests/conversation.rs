//! Initiators and responders in pairs, over byte pipes that are cut at random places.

mod common;

use longarm_proto::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const WINDOW_BYTES: usize = 256;
const TARGET: WindowRef =
    WindowRef { rank: Rank(1), window: WindowId(2), generation: Generation(3), key: AccessKey(4) };

/// One thing that an origin wants, as the test draws it.
#[derive(Clone, Debug)]
enum Wish {
    Put { offset: u64, bytes: Vec<u8> },
    PutOutside { offset: u64, bytes: Vec<u8> },
    Get { shape: Shape },
    GetOutside,
    Add { offset: u64, operand: u64 },
    AddMany { words: Vec<RmwWord> },
    Quiet,
    Lock,
    Message { bytes: Vec<u8> },
}

fn wish() -> impl Strategy<Value = Wish> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let level = (0_u64..4, 0_i64..40).prop_map(|(count, stride)| Level { count, stride });
    let patch = (0_u64..20, 0_u64..10, prop::collection::vec(level, 0..2))
        .prop_map(|(offset, run_bytes, levels)| Shape::Strided(Strided::new(offset, run_bytes, &levels).unwrap()));
    let list = prop::collection::vec((0_u64..200, 0_u64..20), 0..6)
        .prop_map(|runs| Shape::Vector(runs.into_iter().map(|(offset, bytes)| Run { offset, bytes }).collect()));
    let run = (0_u64..200, 0_u64..40).prop_map(|(offset, bytes)| Shape::contiguous(offset, bytes));
    prop_oneof![
        (0_u64..200, bytes()).prop_map(|(offset, bytes)| Wish::Put { offset, bytes }),
        (257_u64..300, bytes()).prop_map(|(offset, bytes)| Wish::PutOutside { offset, bytes }),
        prop_oneof![patch, list, run].prop_map(|shape| Wish::Get { shape }),
        Just(Wish::GetOutside),
        (0_u64..200, any::<u64>()).prop_map(|(offset, operand)| Wish::Add { offset, operand }),
        prop::collection::vec((0_u64..200, any::<u64>()), 1..6).prop_map(|words| {
            let words = words.into_iter().map(|(offset, operand)| RmwWord { offset, operand });
            Wish::AddMany { words: words.collect() }
        }),
        Just(Wish::Quiet),
        Just(Wish::Lock),
        bytes().prop_map(|bytes| Wish::Message { bytes }),
    ]
}

impl Wish {
    fn request(&self) -> (Request, &[u8]) {
        let target = TARGET;
        match self {
            Wish::Put { offset, bytes } | Wish::PutOutside { offset, bytes } => {
                let shape = Shape::contiguous(*offset, bytes.len() as u64);
                (Request::Put { target, shape, signal: None }, bytes)
            }
            Wish::Get { shape } => (Request::Get { target, shape: shape.clone() }, &[]),
            Wish::GetOutside => (Request::Get { target, shape: Shape::contiguous(1000, 1) }, &[]),
            Wish::Add { offset, operand } => {
                let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: *operand, compare: 0 };
                (Request::Rmw { target, offset: *offset, rmw }, &[])
            }
            Wish::AddMany { words } => {
                let (op, width) = (RmwOp::FetchAdd, RmwWidth::W64);
                (Request::RmwMany { target, op, width, words: words.clone() }, &[])
            }
            Wish::Quiet => (Request::Quiet, &[]),
            Wish::Lock => (Request::Lock { target, offset: 0 }, &[]),
            Wish::Message { bytes } => {
                (Request::Message { target: TARGET.rank, bytes: bytes.len() as u64, rest: 0 }, bytes)
            }
        }
    }
}

/// A byte stream that hands on any number of bytes at a time.
#[derive(Default)]
struct Pipe {
    sent: VecDeque<u8>,
    arrived: VecDeque<u8>,
}

impl Pipe {
    fn carry(&mut self, bytes: usize) {
        let bytes = bytes.min(self.sent.len());
        self.arrived.extend(self.sent.drain(..bytes));
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        (self.arrived.len() >= bytes).then(|| self.arrived.drain(..bytes).collect())
    }
}

/// A server of one window that grants locks and tells of refused puts only when it is told to.
struct Target {
    responder: Responder,
    header: Option<RequestHeader>,
    request: Option<(RequestId, Request)>,
    window: Vec<u8>,
    late: Vec<(RequestId, ReplyBody)>,
    messages: Vec<Vec<u8>>,
}

impl Target {
    fn new() -> Target {
        let window = vec![0; WINDOW_BYTES];
        Target { responder: Responder::new(), header: None, request: None, window, late: vec![], messages: vec![] }
    }

    /// One step as far as bytes have arrived; whether there was one.
    fn step(&mut self, from: &mut Pipe, to: &mut Pipe) -> bool {
        if let Some((id, request)) = self.request.take() {
            let Some(payload) = from.take(request.payload_bytes() as usize) else {
                self.request = Some((id, request));
                return false;
            };
            self.serve(id, request, &payload, to);
        } else if let Some(header) = self.header {
            let Some(descriptor) = from.take(header.descriptor_bytes()) else { return false };
            self.header = None;
            self.request = Some((header.id(), self.responder.finish(&header, &descriptor).unwrap()));
        } else {
            let Some(bytes) = from.take(HEADER_BYTES) else { return false };
            self.header = Some(self.responder.handle_header(&bytes.try_into().unwrap()).unwrap());
        }
        true
    }

    fn serve(&mut self, id: RequestId, request: Request, payload: &[u8], to: &mut Pipe) {
        let outside = ReplyBody::Refused { refusal: Refusal::OutsideWindow, detail: WINDOW_BYTES as u64 };
        match request {
            Request::Put { shape, .. } if shape.end() > WINDOW_BYTES as u64 => self.late.push((id, outside)),
            Request::Put { shape, .. } => {
                let mut payload = payload;
                for run in common::naive_runs(&shape) {
                    let (now, rest) = payload.split_at(run.bytes as usize);
                    self.window[run.offset as usize..run.end() as usize].copy_from_slice(now);
                    payload = rest;
                }
            }
            Request::Get { shape, .. } if shape.end() > WINDOW_BYTES as u64 => reply(to, id, outside, &[]),
            Request::Get { shape, .. } => {
                let data: Vec<u8> =
                    common::naive_bytes(&shape).into_iter().map(|at| self.window[at as usize]).collect();
                reply(to, id, ReplyBody::Data { bytes: shape.bytes() }, &data);
            }
            Request::Rmw { offset, rmw, .. } => {
                let old = add(&mut self.window, offset, rmw.operand);
                reply(to, id, ReplyBody::Value(old), &[]);
            }
            Request::RmwMany { words, .. } => {
                let old = words.iter().flat_map(|word| add(&mut self.window, word.offset, word.operand).to_le_bytes());
                let data: Vec<u8> = old.collect();
                reply(to, id, ReplyBody::Data { bytes: 8 * words.len() as u64 }, &data);
            }
            Request::Quiet => reply(to, id, ReplyBody::Done, &[]),
            Request::Lock { .. } => self.late.push((id, ReplyBody::Granted { inherited: id.0.is_multiple_of(2) })),
            Request::Message { .. } => self.messages.push(payload.to_vec()),
            other => panic!("the test sends no {other:?}"),
        }
    }

    /// Tells one of those that wait for their turn.
    fn tell(&mut self, which: usize, to: &mut Pipe) {
        if !self.late.is_empty() {
            let (id, body) = self.late.swap_remove(which % self.late.len());
            reply(to, id, body, &[]);
        }
    }
}

/// Gives the old value.
fn add(window: &mut [u8], offset: u64, operand: u64) -> u64 {
    let word = &mut window[offset as usize..offset as usize + 8];
    let old = u64::from_le_bytes(word.try_into().unwrap());
    word.copy_from_slice(&old.wrapping_add(operand).to_le_bytes());
    old
}

fn reply(to: &mut Pipe, id: RequestId, body: ReplyBody, data: &[u8]) {
    let mut bytes = [0; REPLY_BYTES];
    ReplyHeader { id, body, received_bytes: 0 }.encode(&mut bytes);
    to.sent.extend(bytes);
    to.sent.extend(data);
}

/// The origin's end: its tokens are the indices of the wishes.
#[derive(Default)]
struct Origin {
    initiator: Initiator<usize>,
    /// The get whose data comes next, and how much of it.
    data: Option<(usize, u64)>,
    answers: Vec<(Option<usize>, RequestId, Answer)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Answer {
    Done,
    Data(Vec<u8>),
    Value(u64),
    Granted { inherited: bool },
    Refused(Refusal),
}

impl Origin {
    fn step(&mut self, from: &mut Pipe) -> bool {
        if let Some((token, bytes)) = self.data {
            let Some(data) = from.take(bytes as usize) else { return false };
            self.data = None;
            self.answers.push((Some(token), RequestId(0), Answer::Data(data)));
            return true;
        }
        let Some(bytes) = from.take(REPLY_BYTES) else { return false };
        let (token, id, answer) = match self.initiator.handle_reply(&bytes.try_into().unwrap()).unwrap() {
            Reply::Done(token) => (Some(token), RequestId(0), Answer::Done),
            Reply::Data { token, bytes } => {
                self.data = Some((token, bytes));
                return true;
            }
            Reply::Value { token, value } => (Some(token), RequestId(0), Answer::Value(value)),
            Reply::Granted { token, inherited } => (Some(token), RequestId(0), Answer::Granted { inherited }),
            Reply::MailTaken { .. } => return true,
            Reply::Refused { token, id, refusal, .. } => (token, id, Answer::Refused(refusal)),
        };
        self.answers.push((token, id, answer));
        true
    }
}

/// What has to come back, and what the window has to hold, from doing the wishes one after the other.
fn expected(wishes: &[Wish]) -> (Vec<Option<Answer>>, Vec<u8>) {
    let mut window = vec![0; WINDOW_BYTES];
    let answers = wishes.iter().zip(1_u64..).map(|(wish, id)| match wish {
        Wish::Put { offset, bytes } => {
            window[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
            None
        }
        Wish::PutOutside { .. } | Wish::GetOutside => Some(Answer::Refused(Refusal::OutsideWindow)),
        Wish::Get { shape } => {
            Some(Answer::Data(common::naive_bytes(shape).into_iter().map(|at| window[at as usize]).collect()))
        }
        Wish::Add { offset, operand } => Some(Answer::Value(add(&mut window, *offset, *operand))),
        Wish::AddMany { words } => {
            let old = words.iter().flat_map(|word| add(&mut window, word.offset, word.operand).to_le_bytes());
            Some(Answer::Data(old.collect()))
        }
        Wish::Quiet => Some(Answer::Done),
        Wish::Lock => Some(Answer::Granted { inherited: id.is_multiple_of(2) }),
        Wish::Message { .. } => None,
    });
    (answers.collect(), window)
}

proptest! {
    #[test]
    fn a_conversation_cut_anywhere_does_what_was_asked_in_order(
        wishes in prop::collection::vec(wish(), 1..40),
        schedule in prop::collection::vec((0_u8..6, 0_usize..150), 1..200),
    ) {
        let (mut to_target, mut to_origin) = (Pipe::default(), Pipe::default());
        let (mut origin, mut target) = (Origin::default(), Target::new());
        let mut begun = 0;
        let mut drawn = schedule.into_iter();
        loop {
            // After what was drawn, everything goes on until nothing is left to do.
            let (what, bytes) = drawn.next().unwrap_or((6, usize::MAX));
            if matches!(what, 0 | 6) && begun < wishes.len() {
                let (request, payload) = wishes[begun].request();
                let mut out = Vec::new();
                let id = origin.initiator.begin(&request, request.has_reply().then_some(begun), &mut out);
                prop_assert_eq!(id, RequestId(begun as u64 + 1));
                to_target.sent.extend(out);
                to_target.sent.extend(payload);
                begun += 1;
            }
            if matches!(what, 1 | 6) { to_target.carry(bytes) }
            let mut moved = false;
            if matches!(what, 2 | 6) { moved |= target.step(&mut to_target, &mut to_origin) }
            if matches!(what, 3 | 6) { target.tell(bytes, &mut to_origin) }
            if matches!(what, 4 | 6) { to_origin.carry(bytes) }
            if matches!(what, 5 | 6) { moved |= origin.step(&mut to_origin) }
            if what == 6 && !moved && begun == wishes.len() && target.late.is_empty() { break }
        }
        prop_assert_eq!(origin.initiator.outstanding(), 0);
        prop_assert_eq!(origin.initiator.last(), target.responder.last());
        let (answers, window) = expected(&wishes);
        prop_assert_eq!(target.window, window);
        let mut found: Vec<Option<Answer>> = vec![None; wishes.len()];
        let mut last_in_order = None;
        for (token, id, answer) in origin.answers {
            let index = token.unwrap_or_else(|| id.0 as usize - 1);
            prop_assert_eq!(token.is_some(), wishes[index].request().0.has_reply());
            prop_assert_eq!(found[index].replace(answer), None);
            if token.is_some() && !matches!(wishes[index], Wish::Lock) {
                prop_assert!(last_in_order < Some(index));
                last_in_order = Some(index);
            }
        }
        prop_assert_eq!(found, answers);
        let messages: Vec<Vec<u8>> = wishes.iter().filter_map(|wish| match wish {
            Wish::Message { bytes } => Some(bytes.clone()),
            _ => None,
        }).collect();
        prop_assert_eq!(target.messages, messages);
    }

    #[test]
    fn random_replies_break_no_initiator(replies in prop::collection::vec((0_u64..8, common::reply_body()), 0..30)) {
        let (mut initiator, _) = started();
        let tokens = initiator.outstanding();
        let mut answered = 0;
        for (id, body) in replies {
            let before = initiator.outstanding();
            match initiator.handle_reply(&reply_bytes(id, body)) {
                Ok(Reply::Refused { token: None, .. } | Reply::MailTaken { .. }) | Err(_) => prop_assert_eq!(initiator.outstanding(), before),
                Ok(_) => {
                    answered += 1;
                    prop_assert_eq!(initiator.outstanding(), before - 1);
                }
            }
        }
        prop_assert_eq!(initiator.drain().len() + answered, tokens);
    }
}

fn reply_bytes(id: u64, body: ReplyBody) -> [u8; REPLY_BYTES] {
    let mut bytes = [0; REPLY_BYTES];
    ReplyHeader { id: RequestId(id), body, received_bytes: 0 }.encode(&mut bytes);
    bytes
}

/// 1 a put, 2 a get of 8 bytes, 3 a lock, 4 a try for a lock, 5 a quiet. Tokens are the numbers.
fn started() -> (Initiator<u64>, Vec<u8>) {
    let mut initiator = Initiator::new();
    let mut out = Vec::new();
    let (target, shape) = (TARGET, Shape::contiguous(0, 8));
    initiator.begin(&Request::Put { target, shape: shape.clone(), signal: None }, None, &mut out);
    initiator.begin(&Request::Get { target, shape }, Some(2), &mut out);
    initiator.begin(&Request::Lock { target, offset: 0 }, Some(3), &mut out);
    initiator.begin(&Request::TryLock { target, offset: 0 }, Some(4), &mut out);
    initiator.begin(&Request::Quiet, Some(5), &mut out);
    (initiator, out)
}

const GRANTED: ReplyBody = ReplyBody::Granted { inherited: false };

#[test]
fn a_reply_that_answers_nothing_is_a_violation_and_changes_nothing() {
    let (mut initiator, _) = started();
    let get = RequestKind::Get;
    let id = RequestId;
    for (number, body, violation) in [
        (0, ReplyBody::Done, Violation::NotYetSent { found: id(0), last: id(5) }),
        (6, ReplyBody::Done, Violation::NotYetSent { found: id(6), last: id(5) }),
        (1, ReplyBody::Done, Violation::NothingWaits { id: id(1), reply: ReplyKind::Done }),
        (5, ReplyBody::Done, Violation::ReplyOrder { expected: id(2), found: id(5) }),
        (2, ReplyBody::Done, Violation::UnexpectedReply { id: id(2), request: get, reply: ReplyKind::Done }),
        (2, GRANTED, Violation::UnexpectedReply { id: id(2), request: get, reply: ReplyKind::Granted }),
        (2, ReplyBody::Data { bytes: 7 }, Violation::DataBytes { id: id(2), expected: 8, found: 7 }),
        (
            3,
            ReplyBody::Done,
            Violation::UnexpectedReply { id: id(3), request: RequestKind::Lock, reply: ReplyKind::Done },
        ),
    ] {
        assert_eq!(initiator.handle_reply(&reply_bytes(number, body)), Err(violation));
        assert_eq!(initiator.outstanding(), 4);
    }
    let refusal = Refusal::WrongKey;
    let refused = ReplyBody::Refused { refusal, detail: 9 };
    let out_of_order = Violation::ReplyOrder { expected: id(2), found: id(4) };
    assert_eq!(initiator.handle_reply(&reply_bytes(4, refused)), Err(out_of_order));
    let silent = Reply::Refused { token: None, id: id(1), refusal, detail: 9 };
    assert_eq!(initiator.handle_reply(&reply_bytes(1, refused)), Ok(silent));
    let known = Reply::Refused { token: Some(2), id: id(2), refusal, detail: 9 };
    assert_eq!(initiator.handle_reply(&reply_bytes(2, refused)), Ok(known));
    let value = Violation::TryLockValue { id: id(4), found: 3 };
    assert_eq!(initiator.handle_reply(&reply_bytes(4, ReplyBody::Value(3))), Err(value));
    assert_eq!(initiator.handle_reply(&reply_bytes(4, ReplyBody::Value(2))), Ok(Reply::Value { token: 4, value: 2 }));
    let again = Violation::NothingWaits { id: id(4), reply: ReplyKind::Value };
    assert_eq!(initiator.handle_reply(&reply_bytes(4, ReplyBody::Value(1))), Err(again));
}

#[test]
fn a_lock_is_granted_after_later_replies_and_only_once() {
    let (mut initiator, _) = started();
    assert!(initiator.handle_reply(&reply_bytes(2, ReplyBody::Data { bytes: 8 })).is_ok());
    assert!(initiator.handle_reply(&reply_bytes(4, ReplyBody::Value(0))).is_ok());
    assert_eq!(initiator.handle_reply(&reply_bytes(5, ReplyBody::Done)), Ok(Reply::Done(5)));
    assert_eq!(initiator.outstanding(), 1);
    let granted = Reply::Granted { token: 3, inherited: false };
    assert_eq!(initiator.handle_reply(&reply_bytes(3, GRANTED)), Ok(granted));
    let again = Violation::NothingWaits { id: RequestId(3), reply: ReplyKind::Granted };
    assert_eq!(initiator.handle_reply(&reply_bytes(3, GRANTED)), Err(again));
}

#[test]
fn who_still_waits_comes_out_in_the_order_of_the_requests() {
    let (mut initiator, _) = started();
    assert_eq!(initiator.drain(), [2, 3, 4, 5]);
    assert_eq!(initiator.outstanding(), 0);
    assert_eq!(initiator.drain(), []);
}

#[test]
#[should_panic(expected = "a token is given exactly for a reply")]
fn a_get_without_a_token_is_not_begun() {
    Initiator::<u64>::new().begin(&Request::Quiet, None, &mut Vec::new());
}

#[test]
fn a_request_that_is_repeated_or_left_out_is_a_violation() {
    let header = |id| common::encoded(&Request::Quiet, id).0;
    let mut responder = Responder::new();
    let sequence =
        |expected, found| Err(Violation::Sequence { expected: RequestId(expected), found: RequestId(found) });
    assert_eq!(responder.handle_header(&header(0)), sequence(1, 0));
    assert_eq!(responder.handle_header(&header(2)), sequence(1, 2));
    let first = responder.handle_header(&header(1)).unwrap();
    assert_eq!(responder.finish(&first, &[]), Ok(Request::Quiet));
    assert_eq!(responder.handle_header(&header(1)), sequence(2, 1));
    assert!(responder.handle_header(&header(2)).is_ok());
    assert_eq!(responder.last(), RequestId(2));
}
