//! Direct transfers over links that do as a test says.

#[path = "device_rmw_tests.rs"]
mod device_rmw;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    DeviceRmw, DirectAccess, DirectOutcome, DirectSource, InlinePoll, Link, LinkError, Loan, Reach, Wish,
};
use longarm_proto::{
    AccessKey, Cursor, Generation, NodeId, REPLY_BYTES, Rank, Reception, Refusal, ReplyBody, ReplyHeader, Request,
    RequestId, Session, Shape, WindowId,
};
use parking_lot::Mutex;

use super::*;
use crate::completion::{Completion, Outcome};
use crate::endpoint::inline_poll::PolledGet;
use crate::endpoint::transfers::{MANY, STALLED_PAUSE_MS};
use crate::endpoint::{EndpointOptions, Payload, Sending, Token};
use crate::error::LostHow;
use crate::origin_bytes::{OriginBytesMut, lend};
use crate::progress::dialing::{Dial, DialStep, Dialing};
use crate::progress::occupied::OccupiedNodes;
use crate::progress::time::Time;
use crate::shapes::Pieces;

const TARGET: WindowRef =
    WindowRef { rank: Rank(3), window: WindowId(1), generation: Generation(0), key: AccessKey(2) };

/// A device that does what the test says, and a link to it.
struct Card {
    reach: Reach,
    is_settled: bool,
    is_broken: bool,
    is_abandoned: bool,
    is_all_posted: bool,
    /// What was begun: its ticket and where in the window it begins.
    posted: Vec<(u64, u64)>,
    /// What of it is lent and not given back.
    loans: Vec<Box<dyn Loan>>,
    outcomes: VecDeque<(u64, DirectOutcome)>,
    /// What comes of a get that is polled inline, and whether all is over for who looks.
    polled: InlinePoll,
    all_over: bool,
    sent_bytes: usize,
    incoming: VecDeque<u8>,
}

type Shared = Arc<Mutex<Card>>;

fn card() -> Shared {
    Arc::new(Mutex::new(Card {
        reach: Reach::Yes,
        is_settled: true,
        is_broken: false,
        is_abandoned: false,
        is_all_posted: true,
        posted: Vec::new(),
        loans: Vec::new(),
        outcomes: VecDeque::new(),
        polled: InlinePoll::NotBegun,
        all_over: false,
        sent_bytes: 0,
        incoming: VecDeque::new(),
    }))
}

struct CardLink(Shared);

impl Link for CardLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let mut card = self.0.lock();
        if card.is_broken {
            return Err(LinkError::Reset);
        }
        let bytes = regions.iter().map(|region| region.len()).sum();
        card.sent_bytes += bytes;
        Ok(bytes)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let mut card = self.0.lock();
        if card.is_broken {
            return Err(LinkError::Reset);
        }
        let mut received = 0;
        for region in regions {
            let bytes: Vec<u8> = (0..region.len()).map_while(|_| card.incoming.pop_front()).collect();
            region.slice(0, bytes.len()).copy_from_slice(&bytes);
            received += bytes.len();
        }
        Ok(received)
    }

    fn direct(&mut self) -> Option<&mut dyn DirectAccess> {
        let is_settled = self.0.lock().is_settled;
        is_settled.then_some(self as &mut dyn DirectAccess)
    }

    fn is_settled(&self) -> bool {
        self.0.lock().is_settled
    }

    fn abandon(&mut self) {
        self.0.lock().is_abandoned = true;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "a card"
    }
}

impl DirectAccess for CardLink {
    fn reach(&mut self, _: &WindowRef, _: Wish) -> Reach {
        self.0.lock().reach
    }

    fn put(&mut self, ticket: u64, _: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError> {
        let mut card = self.0.lock();
        card.posted.push((ticket, run.offset));
        if let DirectSource::Lent(loan) = source {
            card.loans.push(loan);
        }
        Ok(())
    }

    fn get(&mut self, ticket: u64, _: &WindowRef, run: Run, into: Box<dyn Loan>) -> Result<(), LinkError> {
        let mut card = self.0.lock();
        card.posted.push((ticket, run.offset));
        card.loans.push(into);
        Ok(())
    }

    fn rmw(&mut self, ticket: u64, _: &WindowRef, offset: u64, _: DeviceRmw) -> Result<(), LinkError> {
        self.0.lock().posted.push((ticket, offset));
        Ok(())
    }

    fn get_polling(&mut self, _: &WindowRef, _: Run, into: RegionMut<'_>, _: u32) -> InlinePoll {
        let polled = self.0.lock().polled;
        if polled == InlinePoll::Done {
            into.copy_from_slice(&vec![9; into.len()]);
        }
        polled
    }

    fn lend_polled(&mut self, ticket: u64, into: Box<dyn Loan>) {
        let mut card = self.0.lock();
        card.posted.push((ticket, u64::MAX));
        card.loans.push(into);
    }

    fn look_for_ends(&mut self, _: u32) -> bool {
        self.0.lock().all_over
    }

    fn is_all_posted(&self) -> bool {
        self.0.lock().is_all_posted
    }

    fn take_outcome(&mut self) -> Option<(u64, DirectOutcome)> {
        self.0.lock().outcomes.pop_front()
    }
}

/// A run of the window, and as many bytes from an offset of the near end.
fn one(there: Run, offset: u64) -> RunRequest {
    RunRequest { there, here: Pieces::One(Run { offset, bytes: there.bytes }) }
}

/// Answers each call with the next card.
struct Server(Mutex<VecDeque<Shared>>);

struct Call(Option<(Shared, Session)>);

impl Dial for Server {
    fn start(&self, _: NodeId, session: Session) -> Result<Box<dyn Dialing>, LostHow> {
        Ok(Box::new(Call(self.0.lock().pop_front().map(|card| (card, session)))))
    }
}

impl Dialing for Call {
    fn poll(&mut self) -> DialStep {
        let Some((card, session)) = self.0.take() else { return DialStep::Pending };
        let resumed = Reception::Resumed { received_bytes: 0 };
        let reception = if session.is_known { resumed } else { Reception::Fresh };
        DialStep::Up { link: Box::new(CardLink(card)), reception }
    }
}

/// Stands still until it is put forward.
#[derive(Default)]
struct Clock(Mutex<u64>);

impl Time for Clock {
    fn now_ms(&self) -> u64 {
        *self.0.lock()
    }
}

/// One whose first connection is up, and those that follow.
fn endpoint(cards: &[&Shared]) -> Endpoint {
    endpoint_at(Arc::default(), cards)
}

fn endpoint_at(clock: Arc<Clock>, cards: &[&Shared]) -> Endpoint {
    let options = EndpointOptions {
        caller: Rank(0),
        buffered_bytes_max: 1 << 20,
        connect_ms: 1000,
        reconnect_ms: 1000,
        silence_ms: 1000,
        costs: longarm_netmod::flow::Costs::TYPICAL,
    };
    let server = Server(Mutex::new(cards.iter().map(|card| Arc::clone(card)).collect()));
    let endpoint = Endpoint::new(NodeId(1), Rank(3), Arc::new(server), clock, options, Arc::new(OccupiedNodes::new(2)));
    endpoint.drive();
    assert!(endpoint.reaches_memory());
    endpoint
}

fn put(endpoint: &Endpoint, offset: u64) -> bool {
    let requests = [one(Run { offset, bytes: 8 }, 0)];
    endpoint.put_direct(&TARGET, &requests, |pieces| PutSource::Copied(Region::from_slice(&[7; 8]), pieces)).0
}

fn posted(card: &Shared) -> Vec<u64> {
    card.lock().posted.iter().map(|(_, offset)| *offset).collect()
}

/// The link breaks, which is found out, and the next one is made.
fn break_link(endpoint: &Endpoint, card: &Shared) {
    card.lock().is_broken = true;
    endpoint.drive();
    endpoint.drive();
    assert!(endpoint.is_up());
}

#[test]
fn what_cannot_be_reached_now_is_left_to_the_server() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    for reach in [Reach::Asked, Reach::Full, Reach::No] {
        card.lock().reach = reach;
        assert!(!put(&endpoint, 0), "{reach:?}");
    }
    assert!(!endpoint.has_transfers() && posted(&card).is_empty());
    card.lock().reach = Reach::Yes;
    assert!(put(&endpoint, 0) && endpoint.has_transfers() && endpoint.is_busy());
    card.lock().outcomes.push_back((0, DirectOutcome::Done));
    endpoint.drive();
    assert!(!endpoint.has_transfers() && !endpoint.is_busy());
}

#[test]
fn nothing_overtakes_what_the_server_has_yet_to_do() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    let request = Request::Put { target: TARGET, shape: Shape::contiguous(0, 8), signal: None };
    let payload = Payload::Copied(Region::from_slice(&[7; 8]), Cursor::new(Shape::contiguous(0, 8)));
    assert!(endpoint.issue(&request, None, payload, Sending::Confirmed).is_ok());
    assert!(!put(&endpoint, 0), "the server may not have applied the one before it");
    // It has: the question behind the put is answered.
    let id = endpoint.state.lock().initiator.last();
    let received_bytes = card.lock().sent_bytes as u64;
    let mut bytes = [0; REPLY_BYTES];
    ReplyHeader { id, body: ReplyBody::Done, received_bytes }.encode(&mut bytes);
    card.lock().incoming.extend(bytes);
    assert!(put(&endpoint, 0), "who only puts hears of it too");
    assert_eq!(posted(&card), [0]);
}

#[test]
fn puts_that_end_by_themselves_need_no_helper_but_somebody_who_waits() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    assert!(!endpoint.needs_helper());
    assert!(put(&endpoint, 0) && endpoint.is_busy() && endpoint.is_unacknowledged() && !endpoint.needs_helper());
    first.lock().is_all_posted = false;
    assert!(put(&endpoint, 8) && endpoint.needs_helper(), "the rest of it waits for room");
    first.lock().is_all_posted = true;
    endpoint.drive();
    assert!(!endpoint.needs_helper());
    // The link breaks: they are begun anew, which somebody has to do.
    first.lock().is_broken = true;
    endpoint.drive();
    assert!(endpoint.needs_helper());
    endpoint.drive();
    assert_eq!(posted(&second), [0, 8]);
    assert!(endpoint.has_transfers() && !endpoint.needs_helper());
    let mut bytes = [0; 8];
    lend(|lent| {
        let lender = lent.target(OriginBytesMut::from(&mut bytes[..]));
        let run = Run { offset: 0, bytes: 8 };
        assert!(endpoint.get_direct(&TARGET, &[one(run, run.offset)], &|| lender.hold()).0);
        let completion = lent.issued();
        assert!(endpoint.needs_helper(), "somebody asks now and then whether it is over");
        second.lock().loans.clear();
        second.lock().outcomes.push_back((2, DirectOutcome::Done));
        endpoint.drive();
        assert!(!endpoint.needs_helper() && completion.is_complete());
    });
}

#[test]
fn who_puts_and_never_waits_takes_up_what_is_over() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    for ticket in 0..1000 {
        assert!(put(&endpoint, 0));
        card.lock().outcomes.push_back((ticket, DirectOutcome::Done));
    }
    assert!(card.lock().outcomes.len() <= MANY);
    assert!(endpoint.state.lock().transfers.begun.len() <= MANY);
}

#[test]
fn a_refused_put_whose_caller_has_gone_on_is_told_to_the_next_quiet() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    assert!(put(&endpoint, 0));
    card.lock().outcomes.push_back((0, DirectOutcome::Refused));
    endpoint.drive();
    assert!(!endpoint.has_transfers());
    assert!(endpoint.is_unconfirmed(), "whoever has heard of it: quiet asks");
    let refused = Outcome::Refused { refusal: Refusal::FreedWindow, detail: 0 };
    assert_eq!(endpoint.take_refused(), Some(refused));
    assert_eq!(endpoint.take_refused(), None, "once");
}

#[test]
fn a_put_of_which_nobody_knows_whether_it_was_done_is_not_begun_again() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    let mut bytes = [7; 64];
    let completion = lend(|lent| {
        let lender = lent.target(OriginBytesMut::from(&mut bytes[..]));
        let (hold, requests) = (|| lender.hold(), [one(Run { offset: 64, bytes: 64 }, 0)]);
        assert!(put(&endpoint, 0));
        assert!(endpoint.put_direct(&TARGET, &requests, |pieces| PutSource::Lent(&hold, pieces)).0);
        assert!(put(&endpoint, 8));
        let completion = lent.issued();
        first.lock().loans.clear();
        let unknown = [(0, DirectOutcome::Unknown), (1, DirectOutcome::Unknown), (2, DirectOutcome::NotDone)];
        second.lock().outcomes.extend(unknown);
        break_link(&endpoint, &first);
        completion
    });
    assert_eq!(posted(&second), [8], "of the others it could undo what was written there meanwhile");
    assert_eq!(completion.failure(), Some(&Outcome::Doubtful), "its caller waits for it");
    assert_eq!(endpoint.take_refused(), Some(Outcome::Doubtful), "the caller of the first has gone on: quiet says it");
    assert_eq!(endpoint.take_refused(), None, "once");
}

#[test]
fn a_get_polled_inline_leaves_nothing_behind_and_one_that_takes_longer_is_begun_anew_if_the_link_breaks() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    let run = Run { offset: 32, bytes: 8 };
    let mut bytes = [0; 8];
    let mut get = || endpoint.get_polling(&TARGET, run, RegionMut::from_slice(&mut bytes), 1);
    assert!(matches!(get(), PolledGet::NotBegun));
    first.lock().polled = InlinePoll::Done;
    assert!(matches!(get(), PolledGet::Done));
    assert!(!endpoint.has_transfers() && !endpoint.is_busy());
    assert_eq!(bytes, [9; 8]);
    first.lock().polled = InlinePoll::UnderWay;
    let mut bytes = [0; 8];
    lend(|lent| {
        let lender = lent.target(OriginBytesMut::from(&mut bytes[..]));
        let mut other = [0; 8];
        let came = endpoint.get_polling(&TARGET, run, RegionMut::from_slice(&mut other), 1);
        let PolledGet::UnderWay(unlent) = came else { panic!("it is under way") };
        unlent.lend(lender.hold(), Run { offset: 0, bytes: 8 });
        let completion = lent.issued();
        assert!(endpoint.has_transfers() && endpoint.needs_helper());
        assert_eq!(posted(&first), [u64::MAX]);
        first.lock().loans.clear();
        break_link(&endpoint, &first);
        assert_eq!(posted(&second), [32]);
        second.lock().loans.clear();
        second.lock().outcomes.push_back((0, DirectOutcome::Done));
        endpoint.drive();
        assert!(completion.is_complete() && completion.failure().is_none());
    });
}

#[test]
fn nothing_polled_inline_overtakes_what_the_server_has_yet_to_do() {
    let card = card();
    card.lock().polled = InlinePoll::Done;
    let endpoint = endpoint(&[&card]);
    let request = Request::Put { target: TARGET, shape: Shape::contiguous(0, 8), signal: None };
    let payload = Payload::Copied(Region::from_slice(&[7; 8]), Cursor::new(Shape::contiguous(0, 8)));
    assert!(endpoint.issue(&request, None, payload, Sending::Confirmed).is_ok());
    let (run, mut bytes) = (Run { offset: 0, bytes: 8 }, [0; 8]);
    let came = endpoint.get_polling(&TARGET, run, RegionMut::from_slice(&mut bytes), 1);
    assert!(matches!(came, PolledGet::NotBegun));
    assert!(!put(&endpoint, 0));
    assert_eq!(posted(&card), []);
}

#[test]
fn who_looks_for_ends_hears_of_all_and_not_that_one_was_refused() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    assert!(put(&endpoint, 0) && put(&endpoint, 8));
    let look = || {
        let (is_over, driven) = endpoint.look_for_ends(1);
        (is_over, driven.completed)
    };
    assert_eq!(look(), (false, false), "they are under way");
    card.lock().all_over = true;
    card.lock().outcomes.extend([0, 1].map(|ticket| (ticket, DirectOutcome::Done)));
    assert_eq!(look(), (true, true));
    assert!(!endpoint.has_transfers() && !endpoint.is_busy());
    assert!(put(&endpoint, 0));
    card.lock().outcomes.push_back((2, DirectOutcome::Refused));
    assert_eq!(look(), (false, true), "there is something to say, and who waits for it is told");
    let refused = Outcome::Refused { refusal: Refusal::FreedWindow, detail: 0 };
    assert_eq!(endpoint.take_refused(), Some(refused));
}

#[test]
fn a_refused_get_fails_and_gives_its_memory_back() {
    let card = card();
    let endpoint = endpoint(&[&card]);
    let mut bytes = [0; 64];
    let completion = lend(|lent| {
        let lender = lent.target(OriginBytesMut::from(&mut bytes[..]));
        let run = Run { offset: 4096, bytes: 64 };
        assert!(endpoint.get_direct(&TARGET, &[one(run, 0)], &|| lender.hold()).0);
        let completion = lent.issued();
        // As a device would: it lets go of the memory, and then says what became of it.
        card.lock().loans.clear();
        assert!(!completion.is_complete(), "the endpoint has still to hear of it");
        card.lock().outcomes.push_back((0, DirectOutcome::Refused));
        endpoint.drive();
        completion
    });
    assert_eq!(completion.failure(), Some(&Outcome::Refused { refusal: Refusal::FreedWindow, detail: 4096 }));
}

#[test]
fn what_a_broken_link_leaves_is_begun_anew_in_order_and_what_was_done_is_not() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    for offset in [0, 8, 16, 24] {
        assert!(put(&endpoint, offset));
    }
    // The first is heard of in time, the second was done and not heard of.
    first.lock().outcomes.push_back((0, DirectOutcome::Done));
    endpoint.drive();
    second.lock().outcomes.extend([(1, DirectOutcome::Done), (2, DirectOutcome::NotDone), (3, DirectOutcome::NotDone)]);
    break_link(&endpoint, &first);
    assert!(first.lock().is_abandoned, "nobody waits for what it has not delivered");
    assert_eq!(posted(&second), [16, 24]);
    assert!(put(&endpoint, 32));
    assert_eq!(posted(&second), [16, 24, 32]);
    second.lock().outcomes.extend([2, 3, 4].map(|ticket| (ticket, DirectOutcome::Done)));
    endpoint.drive();
    assert!(!endpoint.has_transfers());
}

#[test]
fn nothing_is_sent_before_transfers_of_an_older_link_but_what_comes_is_taken_in() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    assert!(put(&endpoint, 0));
    let (completion, part) = Completion::begin();
    let token = Token::Part(part);
    second.lock().is_settled = false;
    first.lock().is_broken = true;
    endpoint.drive();
    // Behind the put in order, whatever the server does meanwhile.
    assert!(endpoint.issue(&Request::Quiet, Some(token), Payload::None, Sending::Now).is_ok());
    endpoint.drive();
    assert!(endpoint.is_up() && second.lock().sent_bytes == 0, "the two sides have not agreed");
    // What the server had to say before, and may have to get rid of before it can answer anything.
    let mut bytes = [0; REPLY_BYTES];
    ReplyHeader { id: RequestId(0), body: ReplyBody::MailTaken { bytes: 0 }, received_bytes: 0 }.encode(&mut bytes);
    for reach in [Reach::Asked, Reach::Full] {
        second.lock().is_settled = true;
        second.lock().reach = reach;
        second.lock().incoming.extend(bytes);
        endpoint.drive();
        assert!(second.lock().incoming.is_empty(), "{reach:?}");
        assert_eq!(second.lock().sent_bytes, 0, "{reach:?}");
        assert!(!put(&endpoint, 8), "nor does another one overtake it");
    }
    second.lock().reach = Reach::Yes;
    endpoint.drive();
    assert_eq!(posted(&second), [0]);
    assert!(second.lock().sent_bytes > 0 && !completion.is_complete());
}

#[test]
fn a_window_that_went_while_there_was_no_link_is_a_refusal() {
    let (first, second) = (card(), card());
    let endpoint = endpoint(&[&first, &second]);
    assert!(put(&endpoint, 0) && put(&endpoint, 8));
    second.lock().reach = Reach::No;
    break_link(&endpoint, &first);
    assert!(posted(&second).is_empty() && !endpoint.has_transfers());
    let refused = Outcome::Refused { refusal: Refusal::FreedWindow, detail: 0 };
    assert_eq!(endpoint.take_refused(), Some(refused));
}

/// A link without a device.
struct Plain(Shared);

impl Link for Plain {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.0.lock().sent_bytes += regions.iter().map(|region| region.len()).sum::<usize>();
        Ok(0)
    }
    fn receive(&mut self, _: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        Ok(0)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn peer_name(&self) -> &str {
        "without a device"
    }
}

#[test]
fn transfers_that_only_a_device_can_end_do_not_go_on_without_one() {
    let (card, plain) = (card(), card());
    let endpoint = endpoint(&[&card]);
    assert!(put(&endpoint, 0));
    let mut state = endpoint.state.lock();
    state.transfers.orphan(0, 1000);
    let settled = state.transfers.settle(&mut Plain(plain), &mut Driven::default());
    assert!(matches!(settled, Err(LinkError::Device(_))), "{settled:?}");
    assert!(!state.transfers.is_empty(), "a later link may end them");
}

#[test]
fn a_node_whose_device_ends_nothing_any_more_is_lost_although_connections_to_it_are_made() {
    let cards: Vec<Shared> = (0..64).map(|_| card()).collect();
    let clock = Arc::new(Clock::default());
    let endpoint = endpoint_at(Arc::clone(&clock), &cards.iter().collect::<Vec<_>>());
    assert!(put(&endpoint, 0) && put(&endpoint, 8));
    let mut breaks = Vec::new();
    for (index, card) in cards.iter().enumerate() {
        if index == 5 {
            // This one ends something, so the time counts anew.
            card.lock().outcomes.push_back((0, DirectOutcome::Done));
            endpoint.drive();
        }
        breaks.push(clock.now_ms());
        card.lock().is_broken = true;
        endpoint.drive();
        for _ in 0..2 {
            if endpoint.broken().is_none() && !endpoint.is_up() {
                endpoint.drive();
                *clock.0.lock() += 100;
            }
        }
        if endpoint.broken().is_some() {
            break;
        }
        endpoint.drive();
        assert!(endpoint.is_up() && posted(&cards[index + 1]).contains(&8), "posted anew after break {index}");
    }
    assert!(matches!(endpoint.broken(), Some(LostHow::Failed(_))), "{breaks:?}");
    assert!(breaks.last().unwrap() - breaks[5] >= 1000 && breaks.len() < cards.len(), "{breaks:?}");
    assert!(!endpoint.has_transfers() && !endpoint.is_busy() && endpoint.is_unconfirmed(), "quiet says it");
}

#[test]
fn a_second_link_in_a_row_that_ended_nothing_is_not_replaced_at_once() {
    let cards = [card(), card(), card()];
    let clock = Arc::new(Clock::default());
    let endpoint = endpoint_at(Arc::clone(&clock), &cards.iter().collect::<Vec<_>>());
    assert!(put(&endpoint, 0));
    break_link(&endpoint, &cards[0]);
    cards[1].lock().is_broken = true;
    endpoint.drive();
    endpoint.drive();
    assert!(!endpoint.is_up());
    *clock.0.lock() += STALLED_PAUSE_MS;
    endpoint.drive();
    assert!(endpoint.is_up());
}
