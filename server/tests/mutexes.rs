//! Mutexes of ranks that die, at the server's engine, over real sockets and over the simulated network.
//!
//! One thread plays the peers and drives the engine between their steps, with a clock of its own: what waits for time
//! to pass waits for this file.
#![forbid(unsafe_code)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{DialError, Link, Netmod, Sim, Tcp, TcpOptions};
use longarm_proto::{
    CONTENDED, Initiator, JobId, NodeId, PASSED, REPLY_BYTES, Rank, Refusal, Reply, Request, RequestId, Run, SETTLE_MS,
    SPINNERS, Shape, mutex_word,
};
use longarm_server::Engine;
use longarm_shm::{NodeSegment, NodeWindow};
use support::{NODE, target};

const PARTS: [u64; 2] = [4096, 4096];
/// Where the mutex is, in the part of rank 0.
const MUTEX: u64 = 64;

/// Everybody's jobs have different numbers, because tests of one process run at once.
static JOBS: AtomicU64 = AtomicU64::new(0);

/// A node with ranks 0 and 1, its window and its time.
struct Node {
    engine: Engine,
    now_ms: u64,
    netmod: Box<dyn Netmod>,
    address: String,
    job: JobId,
    memory: NodeWindow,
}

fn on_each_network(play: impl Fn(&mut Node)) {
    play(&mut Node::new(Box::new(Tcp::new(TcpOptions::default()))));
    for seed in 1..4 {
        play(&mut Node::new(Box::new(Sim::new(seed))));
    }
}

impl Node {
    fn new(netmod: Box<dyn Netmod>) -> Node {
        let job = JobId(u64::from(std::process::id()) << 32 | 1 << 31 | JOBS.fetch_add(1, Ordering::Relaxed));
        let listener = netmod.listen().unwrap();
        let address = listener.address().to_owned();
        let node_of_rank = (0..8).map(|rank| if rank < 2 { NODE } else { NodeId(1) }).collect();
        let segment = Arc::new(NodeSegment::create(job, 8, 2).unwrap());
        let mut engine = support::engine(job, node_of_rank, &segment, listener);
        let memory = support::create_window(&mut engine, job, &PARTS);
        Node { engine, now_ms: 5000, netmod, address, job, memory }
    }

    fn try_connect(&mut self, rank: u32) -> Result<Peer, DialError> {
        let way = (&*self.netmod, &*self.address);
        let link = support::call(&mut self.engine, self.now_ms, way, (self.job, rank))?;
        Ok(Peer { link, initiator: Initiator::new() })
    }

    /// Ranks 4, 5 and 6, of another node.
    fn peers(&mut self) -> [Peer; 3] {
        [4, 5, 6].map(|rank| self.try_connect(rank).unwrap())
    }

    /// Some turns at the same time.
    fn turn(&mut self) {
        for _ in 0..3 {
            self.engine.turn(self.now_ms, true);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.turn();
        self.now_ms += ms;
        self.turn();
    }

    fn die(&mut self, rank: u32) {
        self.engine.note_death(Rank(rank));
        self.turn();
    }

    /// As a rank of the node does it.
    fn swap(&self, from: u32, to: u32) {
        assert_eq!(self.memory.part(0).compare_exchange_u32(MUTEX, from, to), Ok(Ok(from)));
    }

    fn word(&self) -> u32 {
        self.memory.part(0).load_u32(MUTEX).unwrap()
    }
}

struct Peer {
    link: Box<dyn Link>,
    initiator: Initiator<()>,
}

const LOCK: fn() -> Request = || Request::Lock { target: target(), offset: MUTEX };
const TRY_LOCK: fn() -> Request = || Request::TryLock { target: target(), offset: MUTEX };
const UNLOCK: fn() -> Request = || Request::Unlock { target: target(), offset: MUTEX };

/// The mutex, given back by its last holder.
const GIVEN: Reply<()> = Reply::Granted { token: (), inherited: false };
/// The mutex, whose last holder died.
const INHERITED: Reply<()> = Reply::Granted { token: (), inherited: true };

fn value(value: u64) -> Reply<()> {
    Reply::Value { token: (), value }
}

impl Peer {
    fn send(&mut self, node: &mut Node, request: &Request, payload: &[u8]) {
        let mut frame = Vec::new();
        self.initiator.begin(request, request.has_reply().then_some(()), &mut frame);
        frame.extend_from_slice(payload);
        let mut left = &frame[..];
        while !left.is_empty() {
            let sent = self.link.send(&[Region::from_slice(left)]).unwrap();
            left = &left[sent..];
            node.turn();
        }
    }

    fn receive(&mut self, node: &mut Node, buffer: &mut [u8]) {
        let mut filled = 0;
        while filled < buffer.len() {
            node.turn();
            filled += self.link.receive(&[RegionMut::from_slice(&mut buffer[filled..])]).unwrap();
        }
    }

    fn reply(&mut self, node: &mut Node) -> Reply<()> {
        let mut bytes = [0; REPLY_BYTES];
        self.receive(node, &mut bytes);
        self.initiator.handle_reply(&bytes).unwrap()
    }

    fn ask(&mut self, node: &mut Node, request: &Request) -> Reply<()> {
        self.send(node, request, &[]);
        self.reply(node)
    }

    /// Everything sent before was served, and nothing has come that nobody asked for, a grant say.
    fn nothing_but_quiet(&mut self, node: &mut Node) {
        assert_eq!(self.ask(node, &Request::Quiet), Reply::Done(()));
    }

    /// Asks for the mutex and stands in the queue on return.
    fn wait_in_line(&mut self, node: &mut Node) {
        self.send(node, &LOCK(), &[]);
        self.nothing_but_quiet(node);
    }

    fn until_hung_up(mut self, node: &mut Node) {
        let mut scrap = [0; 64];
        while self.link.receive(&[RegionMut::from_slice(&mut scrap)]).is_ok() {
            node.turn();
        }
    }
}

fn target_lost(id: u64, detail: u64) -> Reply<()> {
    Reply::Refused { token: Some(()), id: RequestId(id), refusal: Refusal::TargetLost, detail }
}

#[test]
fn a_mutex_of_a_dead_holder_goes_to_the_first_who_waits_once_all_that_was_sent_has_been_applied() {
    on_each_network(|node| {
        let [mut holder, mut first, mut second] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        first.wait_in_line(node);
        second.wait_in_line(node);
        node.die(4);
        node.pass(SETTLE_MS / 2);
        first.nothing_but_quiet(node);
        assert_eq!(node.word() & 0xff, mutex_word(Rank(4)), "it is not handed on while something may come");
        // The last thing that it did, which nobody had taken up when it died.
        let shape = Shape::Contiguous(Run { offset: 1000, bytes: 900 });
        let put = Request::Put { target: target(), shape, signal: None };
        holder.send(node, &put, &[7; 900]);
        drop(holder);
        assert_eq!(first.reply(node), INHERITED);
        let shape = Shape::Contiguous(Run { offset: 1000, bytes: 900 });
        assert_eq!(first.ask(node, &Request::Get { target: target(), shape }), Reply::Data { token: (), bytes: 900 });
        let mut seen = [0; 900];
        first.receive(node, &mut seen);
        assert_eq!(seen, [7; 900]);
        second.nothing_but_quiet(node);
        assert_eq!(first.ask(node, &UNLOCK()), Reply::Done(()));
        assert_eq!(second.reply(node), GIVEN, "it was told to the heir, and to nobody else");
        assert_eq!(second.ask(node, &UNLOCK()), Reply::Done(()));
        assert_eq!(node.word(), 0);
    });
}

#[test]
fn a_dead_holder_whose_connection_does_not_end_is_cut_off_after_a_second() {
    on_each_network(|node| {
        let [mut holder, mut first, _] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        first.wait_in_line(node);
        node.die(4);
        node.pass(SETTLE_MS - 1);
        first.nothing_but_quiet(node);
        assert!(node.engine.sleep_ms_max().is_some(), "it wakes by itself, for nothing may ever come");
        node.pass(1);
        assert_eq!(first.reply(node), INHERITED);
        holder.until_hung_up(node);
        // What it says from now on is heard over no other connection either.
        if let Ok(again) = node.try_connect(4) {
            again.until_hung_up(node);
        }
        assert_eq!(first.ask(node, &UNLOCK()), Reply::Done(()));
    });
}

#[test]
fn a_mutex_that_nobody_waits_for_is_inherited_by_the_next_who_asks() {
    on_each_network(|node| {
        let [mut holder, mut next, mut last] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        node.die(4);
        assert_eq!(next.ask(node, &TRY_LOCK()), value(0), "something may still come");
        node.pass(SETTLE_MS);
        assert_eq!(node.word(), mutex_word(Rank(4)), "so that no rank of the node takes it untold");
        assert_eq!(next.ask(node, &TRY_LOCK()), value(2));
        assert_eq!(last.ask(node, &TRY_LOCK()), value(0));
        assert_eq!(next.ask(node, &UNLOCK()), Reply::Done(()));
        assert_eq!(last.ask(node, &TRY_LOCK()), value(1));
        // The same by lock.
        node.die(6);
        drop(last);
        node.pass(SETTLE_MS);
        assert_eq!(next.ask(node, &LOCK()), INHERITED);
        assert_eq!(next.ask(node, &UNLOCK()), Reply::Done(()));
        assert_eq!(next.ask(node, &LOCK()), GIVEN);
    });
}

#[test]
fn a_rank_of_the_node_that_died_without_a_connection_is_inherited_from_at_once() {
    on_each_network(|node| {
        let [mut waits, mut next, _] = node.peers();
        node.swap(0, mutex_word(Rank(1)));
        waits.wait_in_line(node);
        node.die(1);
        assert_eq!(waits.reply(node), INHERITED);
        assert_eq!(next.ask(node, &TRY_LOCK()), value(0));
    });
}

#[test]
fn a_mutex_that_is_passed_to_a_rank_of_the_node_after_its_death_is_handed_on() {
    on_each_network(|node| {
        let [mut waits, mut next, _] = node.peers();
        node.swap(0, mutex_word(Rank(0)));
        waits.wait_in_line(node);
        node.die(1);
        node.pass(SETTLE_MS);
        // Rank 0, on the node too, has not heard of it, and rank 1 had spun for the mutex.
        let (held, passed) = (node.word(), mutex_word(Rank(1)) | CONTENDED | PASSED | SPINNERS);
        node.swap(held, passed);
        node.pass(SETTLE_MS);
        assert_eq!(waits.reply(node), INHERITED);
        assert_eq!(next.ask(node, &TRY_LOCK()), value(0));
    });
}

#[test]
fn a_dead_rank_that_waits_is_passed_over_and_one_that_asks_gets_nothing() {
    on_each_network(|node| {
        let [mut holder, mut dead, mut last] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        dead.wait_in_line(node);
        last.wait_in_line(node);
        // Its connection stands: it is passed over because it is dead, not because its connection ended.
        node.die(5);
        assert_eq!(holder.ask(node, &UNLOCK()), Reply::Done(()));
        assert_eq!(last.reply(node), GIVEN);
        assert_eq!(last.ask(node, &UNLOCK()), Reply::Done(()));
        // What it had sent before it died, and the server takes up now.
        assert_eq!(dead.ask(node, &LOCK()), target_lost(3, 5));
        assert_eq!(dead.ask(node, &TRY_LOCK()), target_lost(4, 5));
        assert_eq!(node.word(), 0);
    });
}

#[test]
fn a_grant_to_a_rank_that_dies_before_it_hears_of_it_is_passed_on() {
    on_each_network(|node| {
        let [mut holder, mut heir, mut last] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        heir.wait_in_line(node);
        last.wait_in_line(node);
        assert_eq!(holder.ask(node, &UNLOCK()), Reply::Done(()));
        assert_eq!(node.word() & 0xff, mutex_word(Rank(5)));
        drop(heir);
        node.die(5);
        assert_eq!(last.reply(node), INHERITED);
    });
}

#[test]
fn all_of_several_dead_are_cut_off_before_anything_is_handed_on() {
    on_each_network(|node| {
        let [mut holder, mut other, mut heir] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        // The one that is first in line is dead too, and neither connection ends.
        other.wait_in_line(node);
        heir.wait_in_line(node);
        node.engine.note_death(Rank(4));
        node.engine.note_death(Rank(5));
        node.pass(SETTLE_MS);
        assert_eq!(heir.reply(node), INHERITED);
        holder.until_hung_up(node);
        other.until_hung_up(node);
        assert_eq!(node.word(), mutex_word(Rank(6)));
    });
}

#[test]
fn who_waits_for_a_mutex_of_a_dead_host_is_told_and_so_is_who_asks() {
    on_each_network(|node| {
        let [mut holder, mut waits, mut asks] = node.peers();
        assert_eq!(holder.ask(node, &LOCK()), GIVEN);
        waits.wait_in_line(node);
        node.die(0);
        assert_eq!(waits.reply(node), target_lost(1, 0));
        for request in [LOCK(), TRY_LOCK(), UNLOCK()] {
            let answer = asks.ask(node, &request);
            assert!(matches!(answer, Reply::Refused { refusal: Refusal::TargetLost, detail: 0, .. }), "{answer:?}");
        }
    });
}
