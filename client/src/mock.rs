//! For tests: the ranks of a small world in one thread, and servers that answer out of memory. No thread, network or clock.
//!
//! Ranks 0 and 1 are on node 0, ranks 2 and 3 on node 1; each exposes [`PART_BYTES`] in one window. A server serves what it was
//! sent in the moment in which it is sent, unless it was told to stand still. A thread that would sleep runs the next thing that
//! the test has set for that moment; where nothing is set it would sleep for ever, which is a failure.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::Costs;
use longarm_netmod::{Link, LinkError};
use longarm_proto::{
    AccessKey, CONTENDED, Cursor, Generation, HEADER_BYTES, JobId, NodeId, OLD_VALUE_BYTES, REPLY_BYTES, Rank,
    Reception, Refusal, ReplyBody, ReplyHeader, Request, RequestHeader, RequestId, Responder, Rmw, RmwOp, RmwWidth,
    RmwWord, SPINNERS, Session, SignalOp, WindowId, WindowRef, mutex_holder, mutex_word,
};
use longarm_shm::sync::{AtomicBool, Ordering};
use longarm_shm::{NodeSegment, NodeWindow};
use parking_lot::Mutex;

use crate::client::{Client, ClientOptions};
use crate::endpoint::EndpointOptions;
use crate::error::LostHow;
use crate::local::failures::{Death, Failures};
use crate::local::layout::Layout;
use crate::progress::assist::{Assist, AssistTurn};
use crate::progress::dialing::{Dial, DialStep, Dialing};
use crate::progress::time::{RestOn, Time};
use crate::window::{AttachError, ClientWindow, Parts, WindowIdentity};

/// What each rank exposes.
pub(crate) const PART_BYTES: u64 = 256 << 10;
/// Blocking puts up to this size are copied.
pub(crate) const EAGER_BYTES: usize = 24 << 10;
/// The node of each rank.
const NODES: [NodeId; 4] = [NodeId(0), NodeId(0), NodeId(1), NodeId(1)];
const IDENTITY: WindowIdentity =
    WindowIdentity { window: WindowId(5), generation: Generation(2), key: AccessKey(0x5ec7e7) };

/// What the ranks have in common.
pub(crate) struct MockWorld {
    segment: Arc<NodeSegment>,
    /// By node.
    memory: [Arc<NodeWindow>; 2],
    survivors_go_on: bool,
}

/// One rank, and the servers as it knows them.
pub(crate) struct MockRank {
    pub(crate) client: Arc<Client>,
    pub(crate) window: ClientWindow,
    pub(crate) time: Arc<MockTime>,
    pub(crate) assist: Arc<MockAssist>,
    pub(crate) servers: Arc<MockServers>,
    memory: [Arc<NodeWindow>; 2],
}

impl MockWorld {
    pub(crate) fn new() -> MockWorld {
        let segment = NodeSegment::create(JobId(1), NODES.len() as u32, 2).expect("memory for a test");
        let memory = [0, 1].map(|node| {
            let name = format!("mock-{node}");
            Arc::new(NodeWindow::create(&name, &[PART_BYTES; 2]).expect("memory for a test"))
        });
        MockWorld { segment: Arc::new(segment), memory, survivors_go_on: true }
    }

    /// One that ends with the first death.
    pub(crate) fn that_a_death_ends() -> MockWorld {
        MockWorld { survivors_go_on: false, ..MockWorld::new() }
    }

    /// A rank of node 0 that sleeps at once where it waits.
    pub(crate) fn rank(&self, me: Rank) -> MockRank {
        self.rank_that_spins(me, 0)
    }

    /// One that looks for so long before it sleeps, and then drives its node's server.
    pub(crate) fn rank_that_spins(&self, me: Rank, spin_us: u64) -> MockRank {
        let layout = Layout::new(me, &NODES);
        let servers = Arc::new(MockServers {
            calls: Mutex::new(Vec::new()),
            may_reach_memory: AtomicBool::new(false),
            servers: [0, 1].map(|node| Arc::new(Mutex::new(MockServer::new(me, &self.memory[node], &self.segment)))),
        });
        let time = Arc::new(MockTime::default());
        let assist = Arc::new(MockAssist::default());
        let client = Client::new(ClientOptions {
            layout: layout.clone(),
            segment: Arc::clone(&self.segment),
            dial: Arc::clone(&servers) as _,
            time: Arc::clone(&time) as _,
            assist: Some(Arc::clone(&assist) as _),
            failures: Failures::new(NODES.len() as u32, self.survivors_go_on),
            spin_us,
            eager_bytes: EAGER_BYTES,
            endpoint: EndpointOptions {
                caller: me,
                buffered_bytes_max: 64 << 10,
                connect_ms: 1000,
                reconnect_ms: 1000,
                silence_ms: 1000,
                costs: Costs::TYPICAL,
            },
            processors: Vec::new(),
            ranks_on_machine: NODES.len() as u32,
        });
        let memory = Arc::clone(&self.memory[0]);
        let attach = move || {
            let file = memory.file().try_clone_to_owned().map_err(|error| AttachError::Refused(error.to_string()))?;
            NodeWindow::attach(file, &[PART_BYTES; 2]).map_err(|error| AttachError::Refused(error.to_string()))
        };
        let members = [0, 1, 2, 3].map(|rank| (Rank(rank), PART_BYTES));
        let window = ClientWindow::new(&layout, IDENTITY, Parts::Each(&members), attach);
        MockRank { client: client.expect("a client"), window, time, assist, servers, memory: self.memory.clone() }
    }
}

impl MockRank {
    /// The server of a node.
    pub(crate) fn server(&self, node: u32) -> Arc<Mutex<MockServer>> {
        Arc::clone(&self.servers.servers[node as usize])
    }

    /// Which nodes were called, in order.
    pub(crate) fn calls(&self) -> Vec<NodeId> {
        self.servers.calls.lock().clone()
    }

    /// What is in a rank's part.
    pub(crate) fn memory(&self, rank: Rank, offset: u64, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        let part = self.memory[rank.0 as usize / 2].part(rank.0 as usize % 2);
        RegionMut::from_slice(&mut found).copy_from(part.region(offset, bytes as u64).expect("inside the part"));
        found
    }

    /// Writes to a rank's part behind everybody's back.
    pub(crate) fn set_memory(&self, rank: Rank, offset: u64, bytes: &[u8]) {
        let part = self.memory[rank.0 as usize / 2].part(rank.0 as usize % 2);
        part.region_mut(offset, bytes.len() as u64).expect("inside the part").copy_from_slice(bytes);
    }

    /// A word of 8 bytes in a rank's part.
    pub(crate) fn word(&self, rank: Rank, offset: u64) -> u64 {
        u64::from_le_bytes(self.memory(rank, offset, 8).try_into().expect("8 bytes"))
    }

    /// The kinds of requests that a node's server was asked for since the last time, questions of the connection itself left out.
    pub(crate) fn asked(&self, node: u32) -> Vec<Request> {
        let asked = std::mem::take(&mut self.server(node).lock().asked);
        asked.into_iter().filter(|request| !matches!(request, Request::Acknowledge { .. })).collect()
    }

    /// What every message of a death does.
    pub(crate) fn note_death(&self, rank: Rank) {
        note_death(&self.client, rank);
    }
}

/// A rank is dead, and the client hears of it.
pub(crate) fn note_death(client: &Client, rank: Rank) {
    client.failures().note(Death { rank, how: "was killed by a test".into() });
    client.on_death(rank, "was killed by a test");
}

/// No time passes. Who would sleep does the next thing instead.
#[derive(Default)]
pub(crate) struct MockTime {
    steps: Mutex<VecDeque<Box<dyn FnOnce() + Send>>>,
    rests: Mutex<Vec<RestOn>>,
}

impl MockTime {
    /// What happens when a thread would sleep for the next time, after what was set before.
    pub(crate) fn at_next_rest(&self, step: impl FnOnce() + Send + 'static) {
        self.steps.lock().push_back(Box::new(step));
    }

    /// What was slept on since the last time.
    pub(crate) fn rests(&self) -> Vec<RestOn> {
        std::mem::take(&mut self.rests.lock())
    }
}

impl Time for MockTime {
    fn now_ms(&self) -> u64 {
        0
    }

    fn rest(&self, on: RestOn, _timeout: Option<Duration>) -> bool {
        self.rests.lock().push(on);
        let step = self.steps.lock().pop_front();
        match step {
            Some(step) => step(),
            None => panic!("a thread sleeps on {on:?}, and nothing that the test has set would wake it"),
        }
        true
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// This node's server in the hands of whoever waits: a turn does what the test has set.
#[derive(Default)]
pub(crate) struct MockAssist {
    turns: Mutex<VecDeque<Box<dyn FnOnce() + Send>>>,
    moves: longarm_shm::sync::AtomicU32,
}

impl MockAssist {
    /// What the next turn does, after what was set before.
    pub(crate) fn at_next_turn(&self, turn: impl FnOnce() + Send + 'static) {
        self.turns.lock().push_back(Box::new(turn));
    }
}

impl Assist for MockAssist {
    fn take(&self) -> Option<Box<dyn AssistTurn + '_>> {
        Some(Box::new(MockTurn(self)))
    }

    fn rest(&self, _resting: bool) {}

    fn suppress_wakeups(&self, _suppressed: bool) {}

    fn moves(&self) -> u32 {
        self.moves.load(longarm_shm::sync::Ordering::Relaxed)
    }
}

struct MockTurn<'a>(&'a MockAssist);

impl AssistTurn for MockTurn<'_> {
    fn turn(&mut self) -> bool {
        let turn = self.0.turns.lock().pop_front();
        turn.map(|turn| turn()).is_some()
    }

    fn sleep(&mut self, _timeout: Option<Duration>) -> bool {
        false
    }

    fn turn_after_sleep(&mut self) -> bool {
        unreachable!("nobody has slept")
    }
}

/// All servers, as one rank calls them.
pub(crate) struct MockServers {
    calls: Mutex<Vec<NodeId>>,
    /// A device may reach the memory there.
    pub(crate) may_reach_memory: AtomicBool,
    servers: [Arc<Mutex<MockServer>>; 2],
}

impl Dial for MockServers {
    fn start(&self, node: NodeId, _session: Session) -> Result<Box<dyn Dialing>, LostHow> {
        self.calls.lock().push(node);
        Ok(Box::new(MockCall(Some(Arc::clone(&self.servers[node.0 as usize])))))
    }

    fn may_reach_memory(&self) -> bool {
        self.may_reach_memory.load(Ordering::Relaxed)
    }
}

struct MockCall(Option<Arc<Mutex<MockServer>>>);

impl Dialing for MockCall {
    fn poll(&mut self) -> DialStep {
        let Some(server) = self.0.take_if(|server| !server.lock().is_late) else { return DialStep::Pending };
        if server.lock().is_away {
            return DialStep::Failed { reason: "nobody is there".into(), may_pass: false };
        }
        DialStep::Up { link: Box::new(MockLink(server)), reception: Reception::Fresh }
    }
}

struct MockLink(Arc<Mutex<MockServer>>);

impl Link for MockLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let mut server = self.0.lock();
        let mut sent = 0;
        for region in regions {
            let mut bytes = vec![0; region.len()];
            RegionMut::from_slice(&mut bytes).copy_from(*region);
            server.input.extend_from_slice(&bytes);
            sent += region.len();
        }
        server.serve_input();
        Ok(sent)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let mut server = self.0.lock();
        let mut received = 0;
        for region in regions {
            let bytes: Vec<u8> = (0..region.len()).map_while(|_| server.output.pop_front()).collect();
            region.slice(0, bytes.len()).copy_from_slice(&bytes);
            received += bytes.len();
        }
        Ok(received)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "a mock"
    }
}

/// A server as one rank knows it: it decodes what it is sent, does it, and answers.
pub(crate) struct MockServer {
    peer: Rank,
    memory: Arc<NodeWindow>,
    segment: Arc<NodeSegment>,
    responder: Responder,
    header: Option<RequestHeader>,
    input: Vec<u8>,
    taken_bytes: u64,
    output: VecDeque<u8>,
    /// It takes bytes and does nothing with them.
    is_still: bool,
    /// It takes no calls.
    pub(crate) is_away: bool,
    /// It lets who calls wait.
    pub(crate) is_late: bool,
    /// The next request that touches memory is refused so.
    pub(crate) refuses: Option<Refusal>,
    asked: Vec<Request>,
    /// Who waits for a mutex.
    waiting: VecDeque<(RequestId, WindowRef, u64)>,
}

impl MockServer {
    fn new(peer: Rank, memory: &Arc<NodeWindow>, segment: &Arc<NodeSegment>) -> MockServer {
        MockServer {
            peer,
            memory: Arc::clone(memory),
            segment: Arc::clone(segment),
            responder: Responder::new(),
            header: None,
            input: Vec::new(),
            taken_bytes: 0,
            output: VecDeque::new(),
            is_still: false,
            is_away: false,
            is_late: false,
            refuses: None,
            asked: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// How many requests it was sent in all, questions of the connection itself included.
    pub(crate) fn asked_in_all(&self) -> u64 {
        self.responder.last().0
    }

    /// From now on it does nothing.
    pub(crate) fn stand_still(&mut self) {
        self.is_still = true;
    }

    /// It does all that it was sent.
    pub(crate) fn go_on(&mut self) {
        self.is_still = false;
        self.serve_input();
    }

    /// Whether somebody waits for a mutex.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives the mutex to who waits longest for it.
    pub(crate) fn grant(&mut self, inherited: bool) {
        let (id, target, offset) = self.waiting.pop_front().expect("somebody waits for a mutex");
        let part = self.memory.part(target.rank.0 as usize % 2);
        part.region_mut(offset, 4).expect("inside").copy_from_slice(&mutex_word(self.peer).to_le_bytes());
        self.reply(id, ReplyBody::Granted { inherited });
    }

    fn reply(&mut self, id: RequestId, body: ReplyBody) {
        let mut header = [0; REPLY_BYTES];
        ReplyHeader { id, body, received_bytes: self.taken_bytes }.encode(&mut header);
        self.output.extend(header);
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        self.taken_bytes += bytes as u64;
        self.input.drain(..bytes).collect()
    }

    fn serve_input(&mut self) {
        while !self.is_still {
            let header = match self.header {
                Some(header) => header,
                None if self.input.len() < HEADER_BYTES => return,
                None => {
                    let bytes: [u8; HEADER_BYTES] = self.take(HEADER_BYTES).try_into().expect("a header");
                    *self.header.insert(self.responder.handle_header(&bytes).expect("a sound header"))
                }
            };
            if self.input.len() < header.descriptor_bytes() + header.payload_bytes() as usize {
                return;
            }
            self.header = None;
            let descriptor = self.take(header.descriptor_bytes());
            let request = self.responder.finish(&header, &descriptor).expect("a sound descriptor");
            let payload = self.take(header.payload_bytes() as usize);
            self.asked.push(request.clone());
            self.serve(header.id(), request, &payload);
        }
    }

    fn lock(&mut self, id: RequestId, target: WindowRef, offset: u64) {
        let memory = Arc::clone(&self.memory);
        let part = memory.part(target.rank.0 as usize % 2);
        match part.compare_exchange_u32(offset, 0, mutex_word(self.peer)).expect("a word") {
            Ok(_) => self.reply(id, ReplyBody::Granted { inherited: false }),
            Err(word) if mutex_holder(word) == Some(self.peer) => {
                self.reply(id, ReplyBody::Refused { refusal: Refusal::HeldAlready, detail: offset });
            }
            Err(word) => {
                let contended = part.compare_exchange_u32(offset, word, word | CONTENDED);
                contended.expect("a word").expect("nobody else changes it");
                self.waiting.push_back((id, target, offset));
            }
        }
    }

    fn rmw_many(&mut self, id: RequestId, target: WindowRef, (op, width): (RmwOp, RmwWidth), words: &[RmwWord]) {
        self.reply(id, ReplyBody::Data { bytes: (words.len() * OLD_VALUE_BYTES) as u64 });
        let part = self.memory.part(target.rank.0 as usize % 2);
        let rmw = |operand| Rmw { op, width, operand, compare: 0 };
        let old = words.iter().map(|word| part.rmw(word.offset, rmw(word.operand)).expect("a word"));
        self.output.extend(old.flat_map(u64::to_le_bytes));
    }

    fn serve(&mut self, id: RequestId, request: Request, payload: &[u8]) {
        let memory = Arc::clone(&self.memory);
        let part = |rank: Rank| memory.part(rank.0 as usize % 2);
        if request.target_rank().is_some()
            && let Some(refusal) = self.refuses.take()
        {
            return self.reply(id, ReplyBody::Refused { refusal, detail: 77 });
        }
        match request {
            Request::Put { target, shape, signal } => {
                let mut at = 0;
                each_run(Cursor::new(shape), |run| {
                    let bytes = &payload[at..at + run.bytes as usize];
                    part(target.rank).region_mut(run.offset, run.bytes).expect("inside").copy_from_slice(bytes);
                    at += run.bytes as usize;
                });
                if let Some(signal) = signal {
                    let op = if signal.op == SignalOp::Set { RmwOp::Set } else { RmwOp::FetchAdd };
                    let rmw = Rmw { op, width: RmwWidth::W64, operand: signal.value, compare: 0 };
                    part(target.rank).rmw(signal.offset, rmw).expect("a word");
                }
            }
            Request::Accumulate { target, shape, kernel, scale } => {
                let segment = Arc::clone(&self.segment);
                let window = part(target.rank);
                let mut accumulator = window.accumulator((kernel, scale), segment.stripes(), target.rank);
                let mut at = 0;
                each_run(Cursor::new(shape), |run| {
                    let source = Region::from_slice(&payload[at..at + run.bytes as usize]);
                    accumulator.run(run.offset, source).expect("whole elements inside");
                    at += run.bytes as usize;
                });
            }
            Request::Get { target, shape } => {
                self.reply(id, ReplyBody::Data { bytes: shape.bytes() });
                each_run(Cursor::new(shape), |run| {
                    let mut bytes = vec![0; run.bytes as usize];
                    let source = part(target.rank).region(run.offset, run.bytes).expect("inside");
                    RegionMut::from_slice(&mut bytes).copy_from(source);
                    self.output.extend(bytes);
                });
            }
            Request::Rmw { target, offset, rmw } => {
                let old = part(target.rank).rmw(offset, rmw).expect("a word");
                self.reply(id, ReplyBody::Value(old));
            }
            Request::RmwMany { target, op, width, words } => self.rmw_many(id, target, (op, width), &words),
            Request::Lock { target, offset } => self.lock(id, target, offset),
            Request::TryLock { target, offset } => {
                let word = part(target.rank).compare_exchange_u32(offset, 0, mutex_word(self.peer)).expect("a word");
                self.reply(id, ReplyBody::Value(word.is_ok().into()));
            }
            Request::Unlock { target, offset } => {
                let found = part(target.rank).load_u32(offset).expect("a word");
                let held = mutex_word(self.peer) | found & (CONTENDED | SPINNERS);
                match part(target.rank).compare_exchange_u32(offset, held, 0).expect("a word") {
                    Ok(_) => self.reply(id, ReplyBody::Done),
                    Err(word) => {
                        self.reply(id, ReplyBody::Refused { refusal: Refusal::NotHeld, detail: word.into() });
                    }
                }
            }
            Request::Quiet | Request::Acknowledge { .. } => self.reply(id, ReplyBody::Done),
            Request::Message { .. } | Request::Leave => {}
        }
    }
}

fn each_run(mut cursor: Cursor, mut each: impl FnMut(longarm_proto::Run)) {
    while let Some(run) = cursor.peek() {
        each(run);
        cursor.advance(run.bytes);
    }
}
