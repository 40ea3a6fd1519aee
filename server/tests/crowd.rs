//! A whole job calls one server at once, over real sockets in one process, with strangers among the callers. Time is virtual: a
//! turn of the engine is a millisecond.

use std::collections::BTreeSet;
use std::sync::Arc;

use longarm_memory::Region;
use longarm_netmod::flow::Costs;
use longarm_netmod::{Caller, CallerStep, Introduction, Link, Netmod, Sim, Tcp, TcpOptions};
use longarm_proto::{Identity, Initiator, JobId, NodeId, Rank, Request, Secret, Session};
use longarm_server::door::door_name;
use longarm_server::{Engine, EngineOptions};
use longarm_shm::{CELL_PAYLOAD_BYTES, CELLS_OF_SERVER, NodeSegment, Popped};

const SECRET: Secret = Secret([0x42; 32]);
const NODE: NodeId = NodeId(0);
/// What the configuration says by itself.
const HALF_OPEN_MAX: usize = 64;
/// No caller is to be turned away for being slow here.
const HANDSHAKE_TIMEOUT_MS: u64 = 1 << 40;

/// One rank's call.
struct Call {
    rank: u32,
    attempt: u32,
    caller: Option<Caller>,
    link: Option<Box<dyn Link>>,
}

/// A server that ranks of other nodes call.
struct Called {
    engine: Engine,
    segment: Arc<NodeSegment>,
    netmod: Box<dyn Netmod>,
    address: String,
    job: JobId,
    now_ms: u64,
    /// Calls that were hung up on.
    lost: usize,
}

impl Called {
    fn start(ranks: u32, number: u32) -> Called {
        Called::over(Box::new(Tcp::new(TcpOptions::default())), ranks, number)
    }

    fn over(netmod: Box<dyn Netmod>, ranks: u32, number: u32) -> Called {
        let job = JobId(u64::from(std::process::id()) << 32 | u64::from(number));
        let listener = netmod.listen().unwrap();
        let address = listener.address().to_owned();
        let segment = Arc::new(NodeSegment::create(job, ranks + 1, 1).unwrap());
        let node_of_rank = (0..=ranks).map(|rank| NodeId(rank.min(1))).collect();
        let engine = Engine::new(EngineOptions {
            job,
            secret: SECRET,
            node: NODE,
            node_of_rank,
            segment: Arc::clone(&segment),
            listener: Some(listener),
            door: door_name(job, NODE),
            half_open_max: HALF_OPEN_MAX,
            handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
            session_keep_ms: 1 << 40,
            encrypted: false,
            costs: Costs::TYPICAL,
            remote_memory: None,
        });
        Called { engine: engine.unwrap(), segment, netmod, address, job, now_ms: 0, lost: 0 }
    }

    fn call(&self, call: &mut Call) {
        call.attempt += 1;
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).unwrap();
        let introduction = Introduction {
            secret: &SECRET,
            me: Identity { job: self.job, rank: Rank(call.rank), node: NodeId(1) },
            peer: NODE,
            session: Session { number: 1, attempt: call.attempt, is_known: false, received_bytes: 0 },
            encrypted: false,
            nonce,
        };
        call.caller = Some(Caller::new(self.netmod.connect(&self.address).unwrap(), &introduction));
    }

    /// One turn of the server, and one of every caller that is not through.
    fn turn(&mut self, calls: &mut [Call]) {
        self.now_ms += 1;
        self.engine.turn(self.now_ms, true);
        for call in calls.iter_mut().filter(|call| call.link.is_none()) {
            match call.caller.as_mut().expect("it calls").poll() {
                CallerStep::Pending => {}
                CallerStep::Proven { link, .. } => call.link = Some(link),
                CallerStep::Failed(_) => {
                    self.lost += 1;
                    self.call(call);
                }
            }
        }
    }

    fn let_in(&mut self, calls: &mut [Call]) {
        while calls.iter().any(|call| call.link.is_none()) {
            self.turn(calls);
        }
    }
}

/// Room for two ends of each connection.
fn raise_descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
}

fn all_call(ranks: u32, called: &Called) -> Vec<Call> {
    let mut calls: Vec<Call> = (1..=ranks).map(|rank| Call { rank, attempt: 0, caller: None, link: None }).collect();
    calls.iter_mut().for_each(|call| called.call(call));
    calls
}

/// A silent stranger for each place, and as many again.
fn strangers(called: &Called, places: usize) -> Vec<Box<dyn Link>> {
    (0..2 * places).map(|_| called.netmod.connect(&called.address).unwrap()).collect()
}

#[test]
fn thousands_of_honest_callers_at_once_are_all_let_in_at_their_first_call() {
    let ranks = (raise_descriptor_limit() as u32 / 2 - 200).min(2000);
    let mut called = Called::start(ranks, 1);
    let mut calls = all_call(ranks, &called);
    called.let_in(&mut calls);
    assert_eq!(called.lost, 0, "nobody was hung up on");
    let census = called.engine.census();
    assert_eq!((census.connections, census.half_open), (ranks as usize, 0));
}

#[test]
fn thousands_of_honest_callers_over_a_network_that_cuts_everything_are_let_in_too() {
    for seed in 0..3 {
        let mut called = Called::over(Box::new(Sim::new(seed)), 2000, 10 + seed as u32);
        let mut calls = all_call(2000, &called);
        called.let_in(&mut calls);
        assert_eq!(called.lost, 0, "seed {seed}: nobody was hung up on");
        let census = called.engine.census();
        assert_eq!((census.connections, census.half_open), (2000, 0));
    }
}

#[test]
fn strangers_that_hold_every_place_give_way_to_a_crowd_of_honest_callers() {
    raise_descriptor_limit();
    let ranks = 300;
    let mut called = Called::start(ranks, 2);
    let silent = strangers(&called, HALF_OPEN_MAX + ranks as usize + 1);
    (0..20).for_each(|_| called.turn(&mut []));
    assert_eq!(called.engine.census().half_open, HALF_OPEN_MAX + ranks as usize + 1);
    let mut calls = all_call(ranks, &called);
    called.let_in(&mut calls);
    assert_eq!(called.lost, 0, "who speaks is not hung up on for those who do not");
    drop(silent);
    (0..200).for_each(|_| called.turn(&mut []));
    let census = called.engine.census();
    assert_eq!((census.connections, census.half_open), (ranks as usize, 0));
}

/// Messages of two cells, so many cells of each of these ranks, wait for the rank of the server's node, who does not look.
fn fill_inbox(called: &mut Called, calls: &mut [Call], senders: &[usize], cells: usize) {
    let message = [7; 2 * CELL_PAYLOAD_BYTES];
    let request = Request::Message { target: Rank(0), bytes: message.len() as u64, rest: 0 };
    let (mut bytes, mut initiator) = (Vec::new(), Initiator::<()>::new());
    for _ in 0..cells / 2 {
        initiator.begin(&request, None, &mut bytes);
        bytes.extend_from_slice(&message);
    }
    let mut sent = vec![0; senders.len()];
    // What the sockets do not take at once goes when the server has taken some.
    for _ in 0..200 {
        for (sender, sent) in senders.iter().zip(&mut sent) {
            let link = calls[*sender].link.as_mut().unwrap();
            *sent += link.send(&[Region::from_slice(&bytes[*sent..])]).unwrap();
        }
        called.turn(calls);
    }
}

#[test]
fn while_mail_waits_for_a_cell_no_connection_is_looked_at() {
    raise_descriptor_limit();
    let mut called = Called::start(200, 3);
    let mut calls = all_call(200, &called);
    called.let_in(&mut calls);
    let cells = CELLS_OF_SERVER as usize + 10;
    fill_inbox(&mut called, &mut calls, &[150], cells);
    let before = called.engine.census().looks;
    (0..1000).for_each(|_| called.turn(&mut calls));
    assert_eq!(called.engine.census().looks - before, 0, "the cells are looked at, and nobody who has nothing to say");
    assert_eq!(called.engine.census().mail_bytes_held, 10 * CELL_PAYLOAD_BYTES as u64);
}

#[test]
fn those_who_wait_for_cells_get_them_in_turns() {
    raise_descriptor_limit();
    let mut called = Called::start(4, 4);
    let mut calls = all_call(4, &called);
    called.let_in(&mut calls);
    let cells = CELLS_OF_SERVER as usize;
    fill_inbox(&mut called, &mut calls, &[3], cells);
    // As much as the credit of each allows.
    let held = 60;
    fill_inbox(&mut called, &mut calls, &[0, 1, 2], held);
    let mut sources = Vec::new();
    while sources.len() < cells + 3 * held {
        let popped = called.segment.try_pop(0, &mut |head, _| sources.push(head.source));
        assert!(matches!(popped, Popped::Taken), "a cell that is free is filled in the next turn");
        called.turn(&mut calls);
    }
    // Those of the first come were there before anybody had to wait.
    for turn in sources[cells..].windows(6) {
        assert!(turn.iter().collect::<BTreeSet<_>>().len() >= 2, "nobody gets all: {turn:?}");
    }
}
