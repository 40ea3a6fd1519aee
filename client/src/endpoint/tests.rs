use std::collections::VecDeque;

use longarm_memory::RegionMut;
use longarm_netmod::{Link, LinkError};
use longarm_proto::{Reception, Session};

use super::*;
use crate::dial::{DialStep, Dialing};

/// What a call comes to.
enum Answer {
    /// A link that is broken already.
    Broken(Reception),
    /// One that takes nothing and gives nothing.
    Silent(Reception),
    /// A wrong proof.
    Wrong,
}

/// A server that answers calls as it was told.
struct Server(Mutex<VecDeque<Answer>>);

struct Call(Option<Answer>);

struct TestLink {
    broken: bool,
}

struct Still;

impl Dial for Server {
    fn start(&self, _: NodeId, _: Session) -> Result<Box<dyn Dialing>, LostHow> {
        Ok(Box::new(Call(self.0.lock().pop_front())))
    }
}

impl Dialing for Call {
    fn poll(&mut self) -> DialStep {
        let (broken, reception) = match self.0.take() {
            Some(Answer::Broken(reception)) => (true, reception),
            Some(Answer::Silent(reception)) => (false, reception),
            Some(Answer::Wrong) => return DialStep::Failed { reason: "a wrong proof".into(), may_pass: false },
            None => return DialStep::Pending,
        };
        DialStep::Up { link: Box::new(TestLink { broken }), reception }
    }
}

impl Link for TestLink {
    fn send(&mut self, _: &[Region<'_>]) -> Result<usize, LinkError> {
        if self.broken { Err(LinkError::Reset) } else { Ok(0) }
    }

    fn receive(&mut self, _: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if self.broken { Err(LinkError::Reset) } else { Ok(0) }
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
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
    let options =
        EndpointOptions { buffered_bytes_max: 1 << 20, connect_ms: 1000, reconnect_ms: 1000, silence_ms: 1000 };
    let server = Server(Mutex::new(answers.into_iter().collect()));
    Endpoint::new(NodeId(1), Rank(3), Arc::new(server), Arc::new(Still), options)
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
    let completion = Arc::new(Completion::new());
    let issued = endpoint.issue(&Request::Quiet, Some(Token::Part(completion)), Payload::None, false);
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

#[test]
fn a_server_that_nobody_asks_anything_is_missed_if_somebody_waits_for_its_node() {
    let hands = Arc::new(Hands::default());
    let options = EndpointOptions { buffered_bytes_max: 1 << 20, connect_ms: 1000, reconnect_ms: 0, silence_ms: 1000 };
    let server = Server(Mutex::new([Answer::Silent(Reception::Fresh)].into()));
    let endpoint = Endpoint::new(NodeId(1), Rank(3), Arc::new(server), Arc::clone(&hands) as _, options);
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
fn a_wrong_answer_ends_a_call_to_a_stranger_and_not_to_a_server_that_has_proven_itself_before() {
    let stranger = endpoint([Answer::Wrong]);
    stranger.drive();
    assert!(matches!(stranger.broken(), Some(LostHow::Unreachable(_))));

    let hands = Arc::new(Hands::default());
    let resumed = Reception::Resumed { received_bytes: 0 };
    let answers = [Answer::Broken(Reception::Fresh), Answer::Wrong, Answer::Silent(resumed)];
    let server = Server(Mutex::new(answers.into()));
    let options =
        EndpointOptions { buffered_bytes_max: 1 << 20, connect_ms: 1000, reconnect_ms: 1000, silence_ms: 1000 };
    let endpoint = Endpoint::new(NodeId(1), Rank(3), Arc::new(server), Arc::clone(&hands) as _, options);
    endpoint.drive();
    let completion = Arc::new(Completion::new());
    let issued = endpoint.issue(&Request::Quiet, Some(Token::Part(completion)), Payload::None, false);
    assert!(issued.is_ok());
    for _ in 0..2 {
        endpoint.drive();
        hands.0.fetch_add(10, Ordering::Relaxed);
    }
    assert!(endpoint.is_up() && endpoint.broken().is_none());
}
