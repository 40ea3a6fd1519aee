//! The engine of a test, and the peers that call it. One thread is both: it plays the peers, and turns the engine while a peer waits. Only calls
//! that sleep are made by another thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::Costs;
use longarm_netmod::{Caller, CallerStep, DialError, Introduction, Link, LinkError, Netmod, Sim, Tcp, TcpOptions};
use longarm_proto::{
    AccessKey, AccumulateOp, ElementType, Generation, Identity, Initiator, JobId, Kernel, NodeId, REPLY_BYTES, Rank,
    Reception, Refusal, Reply, Request, Rmw, RmwOp, RmwWidth, RmwWord, Run, Scale, Secret, Session, Shape, WindowId,
    WindowRef,
};
use longarm_server::door::{Door, DoorRequest, door_name};
use longarm_server::{Engine, EngineOptions};
use longarm_shm::{NodeSegment, NodeWindow};

use crate::turning::turning;

pub const SECRET: Secret = Secret([0x42; 32]);
pub const NODE: NodeId = NodeId(0);
/// Bytes of the parts of ranks 0 and 1.
pub const PARTS: [u64; 2] = [4096, 100];
pub const KEY: u64 = 0x1122_3344_5566_7788;
pub const WINDOW: u64 = 7;
/// Ranks of the job, for each of which there is a place while it proves itself.
pub const RANKS: usize = 8;
/// Handshakes that may be in progress besides.
pub const HALF_OPEN_MAX: usize = 4;
/// A handshake's time limit that no test reaches.
const HANDSHAKE_TIMEOUT_MS: u64 = 1 << 40;
/// Turns of the engine for which a place in the queue of a mutex is kept: each counts as a millisecond.
pub const SESSION_KEEP_MS: u64 = 300;
/// Everybody's jobs have different numbers, because tests of one process run at once.
static JOBS: AtomicU64 = AtomicU64::new(0);
/// Every peer's session has another number.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// What the peers know of the server.
pub struct Outside {
    pub netmod: Box<dyn Netmod>,
    pub address: String,
    pub job: JobId,
    pub memory: NodeWindow,
    pub segment: Arc<NodeSegment>,
    /// Connections are encrypted.
    pub encrypted: bool,
}

/// The engine, and its time.
pub struct Driven {
    engine: Engine,
    /// Each turn counts as a millisecond.
    now_ms: u64,
    /// After some turn it had sent a large reply.
    pub sent_large: bool,
}

impl Driven {
    /// True if anything moved.
    pub fn turn(&mut self) -> bool {
        self.now_ms += 1;
        let moved = self.engine.turn(self.now_ms, true);
        self.sent_large |= self.engine.has_sent_large();
        moved
    }
}

thread_local! {
    /// That of the test on this thread.
    static DRIVEN: RefCell<Option<Driven>> = const { RefCell::new(None) };
}

/// The engine, for the test on this thread.
pub fn with_engine<R>(use_it: impl FnOnce(&mut Driven) -> R) -> R {
    DRIVEN.with_borrow_mut(|driven| use_it(driven.as_mut().expect("a test runs on this thread")))
}

/// What a test does while a peer waits: so it waits for no other thread.
pub fn turn_engine() {
    with_engine(Driven::turn);
}

/// The same while a call goes on that sleeps.
pub fn turn_engine_during<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    turning(|| with_engine(Driven::turn), call)
}

/// Runs `play` over each network, in the open and encrypted.
pub fn over_each_network(play: impl Fn(&Outside)) {
    over_each_open_network(&play);
    over(Box::new(Tcp::new(TcpOptions::default())), true, &play);
    over(Box::new(Sim::with_pipes(4, 4096)), true, &play);
}

/// The same without encryption, for those who do their handshake by hand.
pub fn over_each_open_network(play: impl Fn(&Outside)) {
    over_tcp(&play);
    for seed in 1..4 {
        over(Box::new(Sim::new(seed)), false, &play);
    }
}

/// The same over TCP alone.
pub fn over_tcp(play: &impl Fn(&Outside)) {
    over(Box::new(Tcp::new(TcpOptions::default())), false, play);
}

/// Runs `play` with an engine that listens on this network.
pub fn over(netmod: Box<dyn Netmod>, encrypted: bool, play: &impl Fn(&Outside)) {
    let job = JobId(u64::from(std::process::id()) << 32 | JOBS.fetch_add(1, Ordering::Relaxed));
    let segment = Arc::new(NodeSegment::create(job, 8, 2).unwrap());
    let listener = netmod.listen().unwrap();
    let address = listener.address().to_owned();
    let engine = Engine::new(EngineOptions {
        job,
        secret: SECRET,
        node: NODE,
        node_of_rank: [0, 0, 1, 1, 1, 1, 1, 1].map(NodeId).to_vec(),
        segment: Arc::clone(&segment),
        listener: Some(listener),
        door: door_name(job, NODE),
        half_open_max: HALF_OPEN_MAX,
        handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
        session_keep_ms: SESSION_KEEP_MS,
        encrypted,
        costs: Costs::TYPICAL,
        remote_memory: None,
    });
    let mut engine = engine.unwrap();
    // Rank 1 is dead from the start as far as its mail is concerned.
    engine.note_death(Rank(1));
    DRIVEN.set(Some(Driven { engine, now_ms: 0, sent_large: false }));
    let memory = turn_engine_during(|| {
        let parts = vec![(0, PARTS[0]), (1, PARTS[1])];
        let door = Door::connect(&door_name(job, NODE)).unwrap();
        let create = DoorRequest::Create {
            window: WINDOW,
            generation: 3,
            key: KEY,
            parts: parts.clone(),
            aligned: false,
            room: None,
        };
        let handed = door.call(&create).unwrap().unwrap();
        // One that was there, for requests that come too late.
        door.call(&DoorRequest::Create { window: 8, generation: 1, key: KEY, parts, aligned: false, room: None })
            .unwrap();
        door.call(&DoorRequest::Free { window: 8, generation: 1 }).unwrap();
        NodeWindow::attach(handed.file, &PARTS).unwrap()
    });
    play(&Outside { netmod, address, job, memory, segment, encrypted });
    DRIVEN.set(None);
}

pub fn target(rank: u32) -> WindowRef {
    WindowRef { rank: Rank(rank), window: WindowId(WINDOW), generation: Generation(3), key: AccessKey(KEY) }
}

pub fn run(offset: u64, bytes: u64) -> Shape {
    Shape::Contiguous(Run { offset, bytes })
}

impl Outside {
    pub fn identity(&self, rank: u32) -> Identity {
        Identity { job: self.job, rank: Rank(rank), node: NodeId(1) }
    }

    /// A connection that has proven itself, of a session of its own.
    pub fn peer(&self, rank: u32) -> Peer {
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let session = Session { number, attempt: 1, is_known: false, received_bytes: 0 };
        let (link, reception) = self.call(rank, session).unwrap();
        assert_eq!(reception, Reception::Fresh);
        Peer { link, initiator: Initiator::new(), session }
    }

    pub fn call(&self, rank: u32, session: Session) -> Result<(Box<dyn Link>, Reception), DialError> {
        self.call_as(self.identity(rank), session)
    }

    pub fn call_as(&self, me: Identity, session: Session) -> Result<(Box<dyn Link>, Reception), DialError> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).unwrap();
        let introduction = Introduction { secret: &SECRET, me, peer: NODE, session, encrypted: self.encrypted, nonce };
        let link = self.netmod.connect(&self.address).map_err(DialError::Connect)?;
        let mut caller = Caller::new(link, &introduction);
        loop {
            match caller.poll() {
                CallerStep::Proven { link, reception } => return Ok((link, reception)),
                CallerStep::Failed(error) => return Err(error),
                CallerStep::Pending => turn_engine(),
            }
        }
    }

    /// A program that calls at the door.
    pub fn door(&self) -> Door {
        turn_engine_during(|| Door::connect(&door_name(self.job, NODE))).unwrap()
    }

    /// Another window, with so many bytes at rank 0, and the door by which it was made.
    pub fn window_of(&self, bytes: u64) -> (Door, WindowRef) {
        let parts = vec![(0, bytes)];
        let create = DoorRequest::Create { window: 9, generation: 1, key: KEY, parts, aligned: false, room: None };
        let door = self.door();
        turn_engine_during(|| door.call(&create)).unwrap();
        (door, WindowRef { window: WindowId(9), generation: Generation(1), ..target(0) })
    }

    pub fn contents(&self, part: usize) -> Vec<u8> {
        let mut bytes = vec![0; PARTS[part] as usize];
        self.memory.part(part).region(0, PARTS[part]).unwrap().copy_to_slice(&mut bytes);
        bytes
    }

    /// A newcomer and an old friend are served.
    pub fn expect_service(&self, friend: &mut Peer) {
        let mut newcomer = self.peer(6);
        for (offset, peer) in [(1000, &mut newcomer), (2000, friend)] {
            let put = Request::Put { target: target(0), shape: run(offset, 64), signal: None };
            let payload: Vec<u8> = (0..64).map(|at| (at + offset) as u8).collect();
            peer.ask(&put, &payload);
            assert_eq!(peer.quiet(), Ok(()));
            assert_eq!(peer.get(0, offset, 64), payload);
        }
    }
}

pub struct Peer {
    pub link: Box<dyn Link>,
    pub initiator: Initiator<()>,
    pub session: Session,
}

impl Peer {
    pub fn try_send(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            match self.link.send(&[Region::from_slice(bytes)])? {
                0 => turn_engine(),
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    pub fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), LinkError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.link.receive(&[RegionMut::from_slice(&mut buffer[filled..])])? {
                0 => turn_engine(),
                got => filled += got,
            }
        }
        Ok(())
    }

    /// Sends all of it, and receives so many bytes meanwhile: the server takes in nothing while it cannot answer.
    pub fn exchange(&mut self, mut bytes: &[u8], answer_bytes: usize) -> Vec<u8> {
        let (mut answer, mut filled) = (vec![0; answer_bytes], 0);
        while !bytes.is_empty() || filled < answer_bytes {
            let sent = if bytes.is_empty() { 0 } else { self.link.send(&[Region::from_slice(bytes)]).unwrap() };
            bytes = &bytes[sent..];
            let got = self.link.receive(&[RegionMut::from_slice(&mut answer[filled..])]).unwrap();
            filled += got;
            if sent + got == 0 {
                turn_engine();
            }
        }
        answer
    }

    pub fn ask(&mut self, request: &Request, payload: &[u8]) {
        let mut bytes = Vec::new();
        self.initiator.begin(request, request.has_reply().then_some(()), &mut bytes);
        bytes.extend_from_slice(payload);
        self.try_send(&bytes).unwrap();
    }

    pub fn reply(&mut self) -> Reply<()> {
        let mut bytes = [0; REPLY_BYTES];
        loop {
            self.try_receive(&mut bytes).unwrap();
            match self.initiator.handle_reply(&bytes).unwrap() {
                Reply::MailTaken { .. } => {}
                reply => return reply,
            }
        }
    }

    /// How much of its mail has gone on.
    pub fn told_of_mail(&mut self) -> u64 {
        let mut bytes = [0; REPLY_BYTES];
        self.try_receive(&mut bytes).unwrap();
        match self.initiator.handle_reply(&bytes).unwrap() {
            Reply::MailTaken { bytes } => bytes,
            other => panic!("{other:?} answers nothing that was asked"),
        }
    }

    pub fn quiet(&mut self) -> Result<(), Refusal> {
        self.ask(&Request::Quiet, &[]);
        let mut outcome = Ok(());
        loop {
            match self.reply() {
                Reply::Done(()) => return outcome,
                Reply::Refused { refusal, .. } => outcome = Err(refusal),
                other => panic!("{other:?} is no answer to quiet"),
            }
        }
    }

    pub fn get(&mut self, rank: u32, offset: u64, bytes: u64) -> Vec<u8> {
        self.ask(&Request::Get { target: target(rank), shape: run(offset, bytes) }, &[]);
        assert_eq!(self.reply(), Reply::Data { token: (), bytes });
        let mut data = vec![0; bytes as usize];
        self.try_receive(&mut data).unwrap();
        data
    }

    /// Reads until the server hangs up.
    pub fn until_hung_up(mut self) -> LinkError {
        loop {
            let mut scrap = [0; 256];
            match self.link.receive(&[RegionMut::from_slice(&mut scrap)]) {
                Err(error) => return error,
                Ok(0) => turn_engine(),
                Ok(_) => {}
            }
        }
    }
}

pub fn sum_of_doubles() -> (Kernel, Scale) {
    (Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap(), Scale::one(ElementType::F64))
}

/// A fetch-and-add of one.
pub fn fetch_add(offset: u64) -> Request {
    let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    Request::Rmw { target: target(0), offset, rmw }
}

/// Adds to each of these words its place in the list, from 1.
pub fn add_many(width: RmwWidth, offsets: &[u64]) -> Request {
    let words = offsets.iter().zip(1..).map(|(&offset, operand)| RmwWord { offset, operand }).collect();
    Request::RmwMany { target: target(0), op: RmwOp::FetchAdd, width, words }
}
