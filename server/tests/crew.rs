//! Connections that the engine's crew turns, all at once, over real sockets.
//!
//! One thread plays the ranks and drives the engine, with a clock that stands still: what moved in the same turns counts together
//! for ever, so that after a few rounds the crew is wanted for certain.
#![forbid(unsafe_code)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Link, Netmod, Tcp, TcpOptions};
use longarm_proto::{
    AccumulateOp, ElementType, Initiator, JobId, Kernel, NodeId, REPLY_BYTES, Rank, Reply, Request, Rmw, RmwOp,
    RmwWidth, Run, Scale, Shape,
};
use longarm_server::{CrewOptions, Engine};
use longarm_shm::{NodeSegment, NodeWindow, Popped};
use support::target;

const WINDOW_BYTES: u64 = 1 << 16;
/// All add to this word.
const COUNTER: u64 = 0;
const MUTEX: u64 = 64;
/// Whoever has the mutex adds one to it, by a get and a put.
const GUARDED: u64 = 128;
/// All accumulate onto these bytes, which lie in two blocks of 16 KiB.
const SUMS: Run = Run { offset: (16 << 10) - 512, bytes: 1024 };
const PEERS: usize = 6;
/// Rounds, at least.
const ROUNDS: u64 = 200;
/// In as many the crew does something: one that sleeps for good has looked in the first few only.
const ROUNDS_OF_CREW: u64 = 20;
const MAIL_PER_ROUND: u64 = 30;
/// Each peer has as much of the window for itself.
const OWN_BYTES: u64 = 4096;

struct Node {
    engine: Engine,
    segment: Arc<NodeSegment>,
    memory: NodeWindow,
    netmod: Tcp,
    address: String,
    job: JobId,
}

impl Node {
    fn with_crew(threads: usize, spin: Duration) -> Node {
        let job = JobId(u64::from(std::process::id()) << 32 | (threads as u64) << 16 | spin.as_micros() as u64);
        let netmod = Tcp::new(TcpOptions::default());
        let listener = netmod.listen().unwrap();
        let address = listener.address().to_owned();
        let ranks = 1 + PEERS as u32;
        let segment = Arc::new(NodeSegment::create(job, ranks, 1).unwrap());
        let node_of_rank = (0..ranks).map(|rank| NodeId(rank.min(1))).collect();
        let mut engine = support::engine(job, node_of_rank, &segment, listener);
        engine.employ(CrewOptions { threads, spin, prepare: Arc::new(|| ()) });
        let memory = support::create_window(&mut engine, job, &[WINDOW_BYTES]);
        Node { engine, segment, memory, netmod, address, job }
    }

    fn connect(&mut self, rank: u32) -> Peer {
        let way: (&dyn Netmod, &str) = (&self.netmod, &self.address);
        let link = support::call(&mut self.engine, 0, way, (self.job, rank)).unwrap();
        let own = 32 * 1024 + u64::from(rank - 1) * OWN_BYTES;
        Peer {
            link,
            initiator: Initiator::new(),
            rank,
            own,
            to_send: Vec::new(),
            received: Vec::new(),
            received_bytes: 0,
            header: None,
        }
    }

    fn words(&self, run: Run) -> Vec<u64> {
        let part = self.memory.part(0);
        (0..run.bytes / 8).map(|index| part.load_u64(run.offset + 8 * index).unwrap()).collect()
    }
}

struct Peer {
    link: Box<dyn Link>,
    initiator: Initiator<()>,
    rank: u32,
    own: u64,
    to_send: Vec<u8>,
    received: Vec<u8>,
    /// Since the beginning.
    received_bytes: u64,
    /// Of a reply whose data has not come.
    header: Option<Reply<()>>,
}

impl Peer {
    fn ask(&mut self, request: &Request, payload: &[u8]) {
        self.initiator.begin(request, request.has_reply().then_some(()), &mut self.to_send);
        self.to_send.extend_from_slice(payload);
    }

    /// Sends what the link takes.
    fn send(&mut self) {
        let sent = self.link.send(&[Region::from_slice(&self.to_send)]).unwrap();
        self.to_send.drain(..sent);
    }

    fn receive(&mut self) {
        let mut buffer = [0; 8192];
        let bytes = self.link.receive(&[RegionMut::from_slice(&mut buffer)]).unwrap();
        self.received.extend_from_slice(&buffer[..bytes]);
        self.received_bytes += bytes as u64;
    }

    /// The next reply with as many bytes of data, if all of it has come.
    fn reply(&mut self, data_bytes: usize) -> Option<(Reply<()>, Vec<u8>)> {
        while self.header.is_none() {
            let bytes: [u8; REPLY_BYTES] = *self.received.first_chunk()?;
            self.received.drain(..REPLY_BYTES);
            let reply = self.initiator.handle_reply(&bytes).unwrap();
            self.header = Some(reply).filter(|reply| !matches!(reply, Reply::MailTaken { .. }));
        }
        if self.received.len() < data_bytes {
            return None;
        }
        Some((self.header.take()?, self.received.drain(..data_bytes).collect()))
    }
}

/// The next reply of each peer, in any order of time. `data_bytes` follow each.
fn replies(node: &mut Node, peers: &mut [Peer], data_bytes: usize) -> Vec<(Reply<()>, Vec<u8>)> {
    let mut found = vec![None; peers.len()];
    while found.iter().any(Option::is_none) {
        peers.iter_mut().for_each(Peer::send);
        node.engine.turn(0, true);
        for (peer, found) in peers.iter_mut().zip(&mut found).filter(|(_, found)| found.is_none()) {
            peer.receive();
            *found = peer.reply(data_bytes);
        }
    }
    found.into_iter().map(Option::unwrap).collect()
}

fn run_of(offset: u64, bytes: u64) -> Shape {
    Shape::Contiguous(Run { offset, bytes })
}

fn put(offset: u64, bytes: u64) -> Request {
    Request::Put { target: target(), shape: run_of(offset, bytes), signal: None }
}

fn get(offset: u64, bytes: u64) -> Request {
    Request::Get { target: target(), shape: run_of(offset, bytes) }
}

/// Puts, sums and adds of all peers at once; then each gets what it put.
fn a_round(node: &mut Node, peers: &mut [Peer], round: u64, old: &mut Vec<u64>) {
    let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    let kernel = Kernel::new(ElementType::I64, AccumulateOp::Sum).unwrap();
    let scale = Scale::one(ElementType::I64);
    let ones: Vec<u8> = std::iter::repeat_n(1_i64.to_le_bytes(), SUMS.bytes as usize / 8).flatten().collect();
    let pattern = |peer: &Peer| vec![(round * 7 + u64::from(peer.rank)) as u8; OWN_BYTES as usize];
    for peer in peers.iter_mut() {
        let (own, bytes) = (peer.own, pattern(peer));
        peer.ask(&put(own, OWN_BYTES), &bytes);
        let shape = Shape::Contiguous(SUMS);
        peer.ask(&Request::Accumulate { target: target(), shape, kernel, scale }, &ones);
        peer.ask(&Request::Rmw { target: target(), offset: COUNTER, rmw: add }, &[]);
        peer.ask(&get(own, OWN_BYTES), &[]);
    }
    for (reply, _) in replies(node, peers, 0) {
        let Reply::Value { value, .. } = reply else { panic!("{reply:?}") };
        old.push(value);
    }
    let got = replies(node, peers, OWN_BYTES as usize);
    for (peer, (_, data)) in peers.iter().zip(got) {
        assert_eq!(data, pattern(peer), "what it has put, it gets");
    }
}

/// A lot of mail of all peers at once, which takes one cell after the other for each: of source and number, as it has come.
fn mail_round(node: &mut Node, peers: &mut [Peer], mail: &mut [Vec<u64>]) {
    let first = mail[1].len() as u64;
    for peer in peers.iter_mut() {
        for number in first..first + MAIL_PER_ROUND {
            peer.ask(&Request::Message { target: Rank(0), bytes: 8, rest: 0 }, &number.to_le_bytes());
        }
    }
    // The server keeps all replies that were not acknowledged, and hangs up where they become too many.
    peers.iter_mut().for_each(|peer| peer.ask(&Request::Acknowledge { received_bytes: peer.received_bytes }, &[]));
    replies(node, peers, 0);
    let mut take = |head: longarm_shm::CellHead, payload: Region<'_>| {
        let mut bytes = [0; 8];
        payload.copy_to_slice(&mut bytes);
        mail[head.source as usize].push(u64::from_le_bytes(bytes));
    };
    let mut is_held = true;
    while is_held {
        is_held = node.engine.census().mail_bytes_held > 0;
        while node.segment.try_pop(0, &mut take) == Popped::Taken {}
        node.engine.turn(0, true);
    }
}

/// Each adds to a word by a get and a put while it has the mutex, which all ask for at once.
fn mutex_round(node: &mut Node, peers: &mut [Peer]) {
    peers.iter_mut().for_each(|peer| peer.ask(&Request::Lock { target: target(), offset: MUTEX }, &[]));
    let mut waiting: Vec<usize> = (0..peers.len()).collect();
    while !waiting.is_empty() {
        peers.iter_mut().for_each(Peer::send);
        node.engine.turn(0, true);
        let granted = waiting.iter().position(|index| {
            let peer = &mut peers[*index];
            peer.receive();
            peer.reply(0).is_some_and(|(reply, _)| reply == Reply::Granted { token: (), inherited: false })
        });
        let Some(position) = granted else { continue };
        let holder = &mut peers[waiting.swap_remove(position)];
        holder.ask(&get(GUARDED, 8), &[]);
        let (_, data) = replies(node, std::slice::from_mut(holder), 8).remove(0);
        let value = u64::from_le_bytes(data.try_into().unwrap()) + 1;
        holder.ask(&put(GUARDED, 8), &value.to_le_bytes());
        holder.ask(&Request::Unlock { target: target(), offset: MUTEX }, &[]);
        assert_eq!(replies(node, std::slice::from_mut(holder), 0)[0].0, Reply::Done(()));
    }
}

fn all_at_once(spin: Duration) {
    let mut node = Node::with_crew(3, spin);
    let mut peers: Vec<Peer> = (1..=PEERS as u32).map(|rank| node.connect(rank)).collect();
    let (mut old, mut mail) = (Vec::new(), vec![Vec::new(); PEERS + 1]);
    let (mut rounds, mut rounds_of_crew) = (0, 0);
    // Where processors are few it may take more rounds until one of the crew gets one while something is left to do.
    while rounds < ROUNDS || rounds_of_crew < ROUNDS_OF_CREW {
        let looks = node.engine.census().looks_of_crew;
        a_round(&mut node, &mut peers, rounds, &mut old);
        mail_round(&mut node, &mut peers, &mut mail);
        mutex_round(&mut node, &mut peers);
        rounds += 1;
        rounds_of_crew += u64::from(node.engine.census().looks_of_crew > looks);
    }
    let updates = rounds * PEERS as u64;
    assert_eq!(node.words(Run { offset: COUNTER, bytes: 8 }), [updates]);
    old.sort_unstable();
    assert_eq!(old, Vec::from_iter(0..updates), "no two have had one old value");
    assert_eq!(node.words(Run { offset: GUARDED, bytes: 8 }), [updates]);
    assert_eq!(node.words(SUMS), vec![updates; SUMS.bytes as usize / 8]);
    assert_eq!(
        mail[1..],
        vec![Vec::from_iter(0..rounds * MAIL_PER_ROUND); PEERS],
        "each rank's mail has come in its order"
    );
    let census = node.engine.census();
    assert_eq!((census.connections, census.waiters), (PEERS, 0));
}

#[test]
fn what_a_crew_serves_at_once_is_served_as_by_one_thread() {
    all_at_once(Duration::from_millis(2));
}

#[test]
fn a_crew_that_sleeps_between_turns_is_woken() {
    all_at_once(Duration::ZERO);
}

/// One leaves, one breaks the protocol and one hangs up, while all others are served.
#[test]
fn those_who_go_while_others_are_served_take_nobody_with_them() {
    let mut node = Node::with_crew(2, Duration::from_millis(1));
    let mut peers: Vec<Peer> = (1..=PEERS as u32).map(|rank| node.connect(rank)).collect();
    let (mut old, mut rounds) = (Vec::new(), 0);
    while rounds < 30 || node.engine.census().looks_of_crew == 0 {
        a_round(&mut node, &mut peers, rounds, &mut old);
        rounds += 1;
    }
    let mut gone: Vec<Peer> = peers.drain(..3).collect();
    gone[0].ask(&Request::Leave, &[]);
    gone[1].to_send.extend_from_slice(&[0xff; 4096]);
    let half = put(gone[2].own, OWN_BYTES);
    gone[2].ask(&half, &[1; 100]);
    gone.iter_mut().for_each(Peer::send);
    gone.pop();
    for round in rounds..rounds + 30 {
        a_round(&mut node, &mut peers, round, &mut old);
    }
    assert_eq!(node.words(Run { offset: COUNTER, bytes: 8 }), [rounds * PEERS as u64 + 30 * 3]);
    // Whoever has hung up may call again.
    while node.engine.census().connections > 3 + 1 {
        node.engine.turn(0, true);
    }
}

/// Whoever turns it: what a connection carried once does not cost memory for ever.
#[test]
fn connections_that_rest_take_as_little_memory_as_at_first() {
    let mut node = Node::with_crew(2, Duration::ZERO);
    let mut peers: Vec<Peer> = (1..=PEERS as u32).map(|rank| node.connect(rank)).collect();
    let (mut old, mut now_ms) = (Vec::new(), 0);
    for round in 0..3 {
        a_round(&mut node, &mut peers, round, &mut old);
        for peer in &mut peers {
            peer.ask(&Request::Acknowledge { received_bytes: peer.received_bytes }, &[]);
        }
        replies(&mut node, &mut peers, 0);
        assert_eq!(node.engine.census().grown, PEERS, "each has carried more than fits at first");
        let was_busy_ms = now_ms;
        while node.engine.census().grown > 0 {
            now_ms += 1;
            node.engine.turn(now_ms, true);
            assert!(now_ms < was_busy_ms + 5000, "at rest, and as large as before");
        }
        assert!(now_ms > was_busy_ms + 100, "what goes on in a moment keeps what it needs");
        // The clock of the rounds stands still.
        node.engine.turn(0, true);
        now_ms = 0;
    }
}
