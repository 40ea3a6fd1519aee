//! The server's engine against peers that have proven themselves and then misbehave, over real sockets and over the
//! simulated network that cuts every message everywhere.
//!
//! One thread drives the engine, the other plays the peers. What must hold: a request that cannot be is refused by
//! its reason or ends its connection, nothing of it is applied, and everybody else is served as before.
#![forbid(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::Costs;
use longarm_netmod::{
    Capabilities, DialError, Introduction, Link, LinkError, Listener, Netmod, Sim, Tcp, TcpOptions,
    connect_authenticated,
};
use longarm_proto::{
    AccessKey, AccumulateOp, CHALLENGE_BYTES, Credit, EAGER_BYTES_MAX, ElementType, Generation, HEADER_BYTES, Identity,
    Initiator, InitiatorHandshake, JobId, Kernel, LARGE_REPLY_BYTES, LOCK_WAITERS_MAX, MAIL_CREDIT_BYTES,
    MAIL_PIECE_BYTES_MAX, NodeId, REPLY_BYTES, Rank, Reception, Refusal, Reply, Request, Rmw, RmwOp, RmwWidth, RmwWord,
    Run, SEGMENTS_PER_FRAME_MAX, SESSIONS_PER_RANK_MAX, Scale, Secret, Session, Shape, Signal, SignalOp,
    UNACKNOWLEDGED_REPLY_BYTES_MAX, WELCOME_BYTES, WindowId, WindowRef, mail_charge,
};
use longarm_server::door::{Door, DoorRequest, door_name};
use longarm_server::{Engine, EngineOptions};
use longarm_shm::{CELLS_OF_SERVER, NodeSegment, NodeWindow, Popped};

const SECRET: Secret = Secret([0x42; 32]);
const NODE: NodeId = NodeId(0);
/// Bytes of the parts of ranks 0 and 1.
const PARTS: [u64; 2] = [4096, 100];
const KEY: u64 = 0x1122_3344_5566_7788;
const WINDOW: u64 = 7;
/// Ranks of the job, for each of which there is a place while it proves itself.
const RANKS: usize = 8;
/// Handshakes that may be in progress besides.
const HALF_OPEN_MAX: usize = 4;
/// A handshake's time limit that no test reaches.
const HANDSHAKE_TIMEOUT_MS: u64 = 1 << 40;
/// Turns of the engine for which a place in the queue of a mutex is kept: each counts as a millisecond.
const SESSION_KEEP_MS: u64 = 300;

/// Everybody's jobs have different numbers, because tests of one process run at once.
static JOBS: AtomicU64 = AtomicU64::new(0);
/// Every peer's session has another number.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// What the peers' thread knows of the server.
struct Outside {
    netmod: Box<dyn Netmod>,
    address: String,
    job: JobId,
    memory: NodeWindow,
    segment: Arc<NodeSegment>,
    /// Connections are encrypted.
    encrypted: bool,
    /// After some turn the engine had sent a large reply.
    sent_large: Arc<AtomicBool>,
}

/// Runs `play` while another thread drives the engine, over each network, in the open and encrypted.
fn over_each_network(play: impl Fn(&Outside) + Sync) {
    over_each_open_network(&play);
    over(Box::new(Tcp::new(TcpOptions::default())), true, &play);
    over(Box::new(Sim::with_pipes(4, 4096)), true, &play);
}

/// The same without encryption, for those who do their handshake by hand.
fn over_each_open_network(play: impl Fn(&Outside) + Sync) {
    over(Box::new(Tcp::new(TcpOptions::default())), false, &play);
    for seed in 1..4 {
        over(Box::new(Sim::new(seed)), false, &play);
    }
}

fn over(netmod: Box<dyn Netmod>, encrypted: bool, play: &(impl Fn(&Outside) + Sync)) {
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
    let sent_large = Arc::new(AtomicBool::new(false));
    // Rank 1 is dead from the start as far as its mail is concerned.
    engine.note_death(Rank(1));
    std::thread::scope(|scope| {
        let peers = scope.spawn(|| {
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
            let memory = NodeWindow::attach(handed.file, &PARTS).unwrap();
            // One that was there, for requests that come too late.
            door.call(&DoorRequest::Create { window: 8, generation: 1, key: KEY, parts, aligned: false, room: None })
                .unwrap();
            door.call(&DoorRequest::Free { window: 8, generation: 1 }).unwrap();
            let sent_large = Arc::clone(&sent_large);
            play(&Outside { netmod, address, job, memory, segment, encrypted, sent_large });
        });
        let mut now_ms = 0;
        while !peers.is_finished() {
            now_ms += 1;
            if !engine.turn(now_ms, true) {
                std::thread::yield_now();
            }
            sent_large.fetch_or(engine.has_sent_large(), Ordering::SeqCst);
        }
        if let Err(panic) = peers.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn target(rank: u32) -> WindowRef {
    WindowRef { rank: Rank(rank), window: WindowId(WINDOW), generation: Generation(3), key: AccessKey(KEY) }
}

fn run(offset: u64, bytes: u64) -> Shape {
    Shape::Contiguous(Run { offset, bytes })
}

impl Outside {
    fn identity(&self, rank: u32) -> Identity {
        Identity { job: self.job, rank: Rank(rank), node: NodeId(1) }
    }

    /// A connection that has proven itself, of a session of its own.
    fn peer(&self, rank: u32) -> Peer {
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let session = Session { number, attempt: 1, is_known: false, received_bytes: 0 };
        let (link, reception) = self.call(rank, session).unwrap();
        assert_eq!(reception, Reception::Fresh);
        Peer { link, initiator: Initiator::new(), session }
    }

    fn call(&self, rank: u32, session: Session) -> Result<(Box<dyn Link>, Reception), DialError> {
        self.call_as(self.identity(rank), session)
    }

    fn call_as(&self, me: Identity, session: Session) -> Result<(Box<dyn Link>, Reception), DialError> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).unwrap();
        let (netmod, address) = (&*self.netmod, &self.address);
        let deadline = Duration::from_secs(3600);
        let introduction = Introduction { secret: &SECRET, me, peer: NODE, session, encrypted: self.encrypted, nonce };
        connect_authenticated(netmod, address, &introduction, deadline)
    }

    /// Another window, with so many bytes at rank 0, and the door by which it was made.
    fn window_of(&self, bytes: u64) -> (Door, WindowRef) {
        let door = Door::connect(&door_name(self.job, NODE)).unwrap();
        let parts = vec![(0, bytes)];
        let create = DoorRequest::Create { window: 9, generation: 1, key: KEY, parts, aligned: false, room: None };
        door.call(&create).unwrap();
        (door, WindowRef { window: WindowId(9), generation: Generation(1), ..target(0) })
    }

    fn contents(&self, part: usize) -> Vec<u8> {
        let mut bytes = vec![0; PARTS[part] as usize];
        self.memory.part(part).region(0, PARTS[part]).unwrap().copy_to_slice(&mut bytes);
        bytes
    }

    /// A newcomer and an old friend are served.
    fn expect_service(&self, friend: &mut Peer) {
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

struct Peer {
    link: Box<dyn Link>,
    initiator: Initiator<()>,
    session: Session,
}

impl Peer {
    fn try_send(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            match self.link.send(&[Region::from_slice(bytes)])? {
                0 => std::thread::yield_now(),
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), LinkError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.link.receive(&[RegionMut::from_slice(&mut buffer[filled..])])? {
                0 => std::thread::yield_now(),
                got => filled += got,
            }
        }
        Ok(())
    }

    /// Sends all of it, and receives so many bytes meanwhile: the server takes in nothing while it cannot answer.
    fn exchange(&mut self, mut bytes: &[u8], answer_bytes: usize) -> Vec<u8> {
        let (mut answer, mut filled) = (vec![0; answer_bytes], 0);
        while !bytes.is_empty() || filled < answer_bytes {
            let sent = if bytes.is_empty() { 0 } else { self.link.send(&[Region::from_slice(bytes)]).unwrap() };
            bytes = &bytes[sent..];
            let got = self.link.receive(&[RegionMut::from_slice(&mut answer[filled..])]).unwrap();
            filled += got;
            if sent + got == 0 {
                std::thread::yield_now();
            }
        }
        answer
    }

    fn ask(&mut self, request: &Request, payload: &[u8]) {
        let mut bytes = Vec::new();
        self.initiator.begin(request, request.has_reply().then_some(()), &mut bytes);
        bytes.extend_from_slice(payload);
        self.try_send(&bytes).unwrap();
    }

    fn reply(&mut self) -> Reply<()> {
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
    fn told_of_mail(&mut self) -> u64 {
        let mut bytes = [0; REPLY_BYTES];
        self.try_receive(&mut bytes).unwrap();
        match self.initiator.handle_reply(&bytes).unwrap() {
            Reply::MailTaken { bytes } => bytes,
            other => panic!("{other:?} answers nothing that was asked"),
        }
    }

    fn quiet(&mut self) -> Result<(), Refusal> {
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

    fn get(&mut self, rank: u32, offset: u64, bytes: u64) -> Vec<u8> {
        self.ask(&Request::Get { target: target(rank), shape: run(offset, bytes) }, &[]);
        assert_eq!(self.reply(), Reply::Data { token: (), bytes });
        let mut data = vec![0; bytes as usize];
        self.try_receive(&mut data).unwrap();
        data
    }

    /// Reads until the server hangs up.
    fn until_hung_up(mut self) -> LinkError {
        loop {
            let mut scrap = [0; 256];
            match self.link.receive(&[RegionMut::from_slice(&mut scrap)]) {
                Err(error) => return error,
                Ok(0) => std::thread::yield_now(),
                Ok(_) => {}
            }
        }
    }
}

/// A bounded amount of noise.
struct Noise(u64);

impl Noise {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.word() >> 32) as u8).collect()
    }
}

fn sum_of_doubles() -> (Kernel, Scale) {
    (Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap(), Scale::one(ElementType::F64))
}

#[test]
fn noise_behind_a_good_handshake_ends_that_connection_only() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let before = outside.contents(1);
        for seed in 0..20 {
            let mut peer = outside.peer(4);
            // The server may hang up before it has read all.
            let _ = peer.try_send(&Noise(seed).bytes(2000));
            assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        }
        assert_eq!(outside.contents(1), before);
        outside.expect_service(&mut friend);
    });
}

#[test]
fn good_frames_with_a_changed_byte_harm_nobody_else() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let mut noise = Noise(11);
        let (kernel, scale) = sum_of_doubles();
        let requests = [
            Request::Put { target: target(0), shape: run(8, 100), signal: None },
            Request::Get { target: target(0), shape: run(8, 100) },
            Request::Accumulate { target: target(0), shape: run(8, 80), kernel, scale },
            Request::Rmw {
                target: target(0),
                offset: 16,
                rmw: Rmw { op: RmwOp::CompareSwap, width: RmwWidth::W64, operand: 5, compare: 6 },
            },
            Request::Put {
                target: target(0),
                shape: Shape::Vector(vec![Run { offset: 0, bytes: 10 }, Run { offset: 50, bytes: 10 }]),
                signal: None,
            },
            Request::TryLock { target: target(0), offset: 64 },
            add_many(RmwWidth::W32, &[16, 20, 16]),
            Request::Message { target: Rank(1), bytes: 30, rest: 0 },
        ];
        for request in requests.iter().cycle().take(120) {
            let mut frame = Vec::new();
            Initiator::new().begin(request, request.has_reply().then_some(()), &mut frame);
            let at = noise.word() as usize % frame.len();
            frame[at] ^= 1 << (noise.word() % 8);
            frame.extend(noise.bytes(request.payload_bytes() as usize));
            let mut peer = outside.peer(4);
            // Served, refused, hung up on, or waited for when the payload is now longer: the peer leaves without a look.
            let _ = peer.try_send(&frame);
        }
        outside.expect_service(&mut friend);
    });
}

#[test]
fn requests_that_cannot_be_are_refused_by_their_reason() {
    let stranger = |change: fn(&mut WindowRef)| {
        let mut target = target(0);
        change(&mut target);
        target
    };
    let (kernel, scale) = sum_of_doubles();
    let put = |target, shape| Request::Put { target, shape, signal: None };
    let rmw = |target, offset, width| {
        let rmw = Rmw { op: RmwOp::FetchAdd, width, operand: 1, compare: 0 };
        Request::Rmw { target, offset, rmw }
    };
    let signal = |offset, window| Signal {
        window: WindowId(window),
        generation: Generation(3),
        key: AccessKey(KEY),
        offset,
        op: SignalOp::Set,
        value: 1,
    };
    let signalled = |signal| Request::Put { target: target(0), shape: run(0, 16), signal: Some(signal) };
    let list = |offset| Shape::Vector(vec![Run { offset: 0, bytes: 8 }, Run { offset, bytes: 8 }]);
    let cases = [
        (put(target(0), run(4090, 7)), Refusal::OutsideWindow),
        (put(target(0), run(u64::MAX - 8, 8)), Refusal::OutsideWindow),
        (put(target(1), run(0, 101)), Refusal::OutsideWindow),
        (put(target(0), list(4089)), Refusal::OutsideWindow),
        (Request::Get { target: target(0), shape: run(4096, 1) }, Refusal::OutsideWindow),
        (Request::Get { target: target(0), shape: run(0, u64::MAX) }, Refusal::OutsideWindow),
        (Request::Accumulate { target: target(0), shape: run(4089, 8), kernel, scale }, Refusal::OutsideWindow),
        (rmw(target(0), 4096, RmwWidth::W64), Refusal::OutsideWindow),
        (rmw(target(0), u64::MAX - 7, RmwWidth::W64), Refusal::OutsideWindow),
        (rmw(target(1), 96, RmwWidth::W64), Refusal::OutsideWindow),
        (rmw(target(0), 4, RmwWidth::W64), Refusal::Misaligned),
        (rmw(target(0), 2, RmwWidth::W32), Refusal::Misaligned),
        (add_many(RmwWidth::W64, &[0, 8, 4096]), Refusal::OutsideWindow),
        (add_many(RmwWidth::W64, &[0, u64::MAX - 7]), Refusal::OutsideWindow),
        (add_many(RmwWidth::W32, &[0, 4, 2]), Refusal::Misaligned),
        (signalled(signal(4096, WINDOW)), Refusal::OutsideWindow),
        (signalled(signal(12, WINDOW)), Refusal::Misaligned),
        (signalled(signal(0, 99)), Refusal::UnknownWindow),
        (put(stranger(|target| target.key = AccessKey(KEY + 1)), run(0, 8)), Refusal::WrongKey),
        (put(stranger(|target| target.window = WindowId(99)), run(0, 8)), Refusal::UnknownWindow),
        (put(stranger(|target| target.window = WindowId(8)), run(0, 8)), Refusal::FreedWindow),
        (put(stranger(|target| target.generation = Generation(2)), run(0, 8)), Refusal::FreedWindow),
        (put(stranger(|target| target.generation = Generation(4)), run(0, 8)), Refusal::FreedWindow),
        (put(stranger(|target| target.rank = Rank(4)), run(0, 8)), Refusal::NotThisNode),
        (Request::Message { target: Rank(4), bytes: 9, rest: 0 }, Refusal::NotThisNode),
        (Request::Lock { target: target(0), offset: 4096 }, Refusal::OutsideWindow),
        (Request::TryLock { target: target(0), offset: 2 }, Refusal::Misaligned),
        (Request::Unlock { target: target(0), offset: 128 }, Refusal::NotHeld),
    ];
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        for (request, expected) in &cases {
            let bytes = usize::try_from(request.payload_bytes()).unwrap();
            peer.ask(request, &vec![0xff; bytes]);
            match peer.reply() {
                Reply::Refused { refusal, .. } => assert_eq!(refusal, *expected, "{request:?}"),
                other => panic!("{other:?} is the answer to {request:?}"),
            }
            assert_eq!(peer.quiet(), Ok(()), "the connection goes on after {request:?}");
        }
        for part in 0..PARTS.len() {
            assert!(outside.contents(part).iter().all(|byte| *byte == 0), "nothing of all this was applied");
        }
        outside.expect_service(&mut peer);
    });
}

#[test]
fn elements_may_stand_at_any_byte() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        let (kernel, scale) = sum_of_doubles();
        let accumulate = Request::Accumulate { target: target(0), shape: run(4083, 8), kernel, scale };
        for _ in 0..2 {
            peer.ask(&accumulate, &1.25_f64.to_le_bytes());
        }
        assert_eq!(peer.quiet(), Ok(()));
        assert_eq!(peer.get(0, 4083, 8), 2.5_f64.to_le_bytes());
    });
}

#[test]
fn a_put_cut_short_leaves_what_is_behind_it_and_ends_with_its_connection() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let mut peer = outside.peer(4);
        let request = Request::Put {
            target: target(0),
            shape: run(100, 1000),
            signal: Some(Signal {
                window: WindowId(WINDOW),
                generation: Generation(3),
                key: AccessKey(KEY),
                offset: 0,
                op: SignalOp::Set,
                value: 77,
            }),
        };
        peer.ask(&request, &[9; 400]);
        drop(peer);
        outside.expect_service(&mut friend);
        let seen = outside.contents(0);
        assert_eq!(seen[..100], [0; 100], "the signal is for a put that came whole");
        assert_eq!(seen[500..1000], [0; 500]);
    });
}

#[test]
fn lengths_that_cannot_be_are_not_waited_for_by_others() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        // Longer than anything that will ever come: it is refused at once, and then skipped for ever.
        let mut endless = outside.peer(4);
        let request = Request::Put { target: target(0), shape: run(0, u64::MAX - 1), signal: None };
        endless.ask(&request, &vec![5; 200_000]);
        assert!(matches!(endless.reply(), Reply::Refused { refusal: Refusal::OutsideWindow, .. }));
        outside.expect_service(&mut friend);
        endless.try_send(&vec![5; 200_000]).unwrap();
        // Frames that no server reads on from.
        for (at, bytes) in [(4, &[0xff; 4][..]), (8, &[0xff; 8][..]), (0, &[200][..]), (16, &[9][..])] {
            let mut frame = Vec::new();
            Initiator::<()>::new().begin(&Request::Message { target: Rank(0), bytes: 8, rest: 0 }, None, &mut frame);
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(frame.len(), HEADER_BYTES);
            let mut peer = outside.peer(4);
            peer.try_send(&frame).unwrap();
            assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        }
        outside.expect_service(&mut friend);
    });
}

#[test]
fn a_handshake_that_is_played_again_is_refused() {
    over_each_open_network(|outside| {
        let session = Session { number: 0, attempt: 1, is_known: false, received_bytes: 0 };
        let me = outside.identity(4);
        let (mut handshake, hello) = InitiatorHandshake::start(&SECRET, me, NODE, session, false, [7; 32]);
        let connect = || {
            let link = outside.netmod.connect(&outside.address).unwrap();
            Peer { link, initiator: Initiator::new(), session }
        };
        let mut first = connect();
        first.try_send(&hello).unwrap();
        let mut challenge = [0; CHALLENGE_BYTES];
        first.try_receive(&mut challenge).unwrap();
        let proof = handshake.handle_challenge(&challenge).unwrap();
        first.try_send(&proof).unwrap();
        let mut welcome = [0; WELCOME_BYTES];
        first.try_receive(&mut welcome).unwrap();
        handshake.check_welcome(&welcome).unwrap();
        let put = Request::Put { target: target(0), shape: run(0, 8), signal: None };
        let mut frame = Vec::new();
        Initiator::<()>::new().begin(&put, None, &mut frame);
        frame.extend([3; 8]);
        // Every byte as the first time, one behind the other.
        let mut second = connect();
        let _ = second.try_send(&[&hello[..], &proof, &frame].concat());
        let mut heard = [0; CHALLENGE_BYTES];
        if second.try_receive(&mut heard).is_ok() {
            assert_ne!(heard, challenge, "a nonce is never used again");
            let mut more = [0; 1];
            assert!(second.try_receive(&mut more).is_err(), "who plays a proof again is not welcome");
        }
        assert_eq!(outside.contents(0)[..8], [0; 8]);
        // The one that was heard of is served.
        outside.expect_service(&mut first);
    });
}

#[test]
fn a_rank_that_is_not_in_the_world_or_not_on_the_node_it_names_is_turned_away() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let session = Session { number: 99, attempt: 1, is_known: false, received_bytes: 0 };
        for (rank, node) in [(8, 1), (u32::MAX, 1), (4, 0), (4, 2), (4, u32::MAX), (0, 1), (1, 1)] {
            let me = Identity { job: outside.job, rank: Rank(rank), node: NodeId(node) };
            let refused = outside.call_as(me, session).err();
            assert!(matches!(refused, Some(DialError::HungUp | DialError::Link(_))), "rank {rank} of node {node}");
        }
        // Those of this very node call too.
        let me = Identity { job: outside.job, rank: Rank(0), node: NODE };
        assert!(outside.call_as(me, session).is_ok());
        outside.expect_service(&mut friend);
    });
}

#[test]
fn callers_that_say_nothing_make_room_for_those_that_do() {
    over_each_network(|outside| {
        let connect = || outside.netmod.connect(&outside.address).unwrap();
        let silent: Vec<Box<dyn Link>> = (0..3 * (HALF_OPEN_MAX + RANKS)).map(|_| connect()).collect();
        let mut peer = outside.peer(4);
        outside.expect_service(&mut peer);
        drop(silent);
    });
}

/// Empties the inbox of rank 0 until so many bytes of rank 4 have come, and gives them.
fn read_mail(outside: &Outside, due: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    while heard.len() < due {
        let taken = outside.segment.try_pop(0, &mut |head, payload| {
            let from = heard.len();
            heard.resize(from + payload.len(), 0);
            payload.copy_to_slice(&mut heard[from..]);
            assert_eq!(head.source, 4);
        });
        if !matches!(taken, Popped::Taken) {
            std::thread::yield_now();
        }
    }
    heard
}

#[test]
fn mail_for_a_rank_that_does_not_read_holds_up_nothing_that_touches_memory_not_even_its_senders() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        // Rank 1 is dead: its mail is thrown away, however much it is.
        for _ in 0..2 * CELLS_OF_SERVER {
            friend.ask(&Request::Message { target: Rank(1), bytes: 10, rest: 0 }, &[1; 10]);
        }
        assert_eq!(friend.quiet(), Ok(()));
        // Rank 0 lives but does not look: no cell is left after a while, and what comes then is held.
        let mut sender = outside.peer(4);
        for number in 0..2 * CELLS_OF_SERVER {
            sender.ask(&Request::Message { target: Rank(0), bytes: 10, rest: 0 }, &[number as u8; 10]);
        }
        outside.expect_service(&mut friend);
        outside.expect_service(&mut sender);
        // A long message, of which the last piece comes behind a put.
        let long: Vec<u8> = (0..100_000_u32).map(|at| (at >> 3) as u8).collect();
        let (first, second) = long.split_at(MAIL_PIECE_BYTES_MAX as usize);
        let (bytes, rest) = (first.len() as u64, second.len() as u64);
        sender.ask(&Request::Message { target: Rank(0), bytes, rest }, first);
        outside.expect_service(&mut sender);
        sender.ask(&Request::Message { target: Rank(0), bytes: rest, rest: 0 }, second);
        // What its sender leaves behind comes all the same, and in its order.
        sender.ask(&Request::Leave, &[]);
        sender.until_hung_up();
        outside.expect_service(&mut friend);
        let due: Vec<u8> = (0..2 * CELLS_OF_SERVER).flat_map(|number| [number as u8; 10]).chain(long).collect();
        assert_eq!(read_mail(outside, due.len()), due);
    });
}

#[test]
fn a_peer_is_told_of_the_mail_that_has_gone_on_and_may_send_more_for_ever() {
    over_each_network(|outside| {
        let mut sender = outside.peer(4);
        let (mut credit, mut taken_before) = (Credit::new(MAIL_CREDIT_BYTES), 0);
        let piece: Vec<u8> = (0..MAIL_PIECE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
        let request = Request::Message { target: Rank(0), bytes: MAIL_PIECE_BYTES_MAX, rest: 0 };
        for _ in 0..40 {
            while credit.take(mail_charge(MAIL_PIECE_BYTES_MAX)).is_err() {
                let taken = sender.told_of_mail();
                credit.give(taken - taken_before);
                taken_before = taken;
            }
            sender.ask(&request, &piece);
            assert_eq!(read_mail(outside, piece.len()), piece);
        }
        assert_eq!(sender.quiet(), Ok(()));
    });
}

#[test]
fn a_peer_that_sends_more_mail_than_it_has_credit_for_or_pieces_that_do_not_fit_ends_its_connection_alone() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let piece = vec![3; MAIL_PIECE_BYTES_MAX as usize];
        let whole = Request::Message { target: Rank(0), bytes: MAIL_PIECE_BYTES_MAX, rest: 0 };
        let first = Request::Message { target: Rank(0), bytes: MAIL_PIECE_BYTES_MAX, rest: 5 };
        // More than all cells hold and may be held beyond them.
        let many = (u64::from(CELLS_OF_SERVER) * 4096 + MAIL_CREDIT_BYTES) / MAIL_PIECE_BYTES_MAX + 2;
        for requests in [vec![&first, &whole], vec![&whole; many as usize]] {
            let mut sender = outside.peer(4);
            let sent = requests.into_iter().try_for_each(|request| {
                let mut bytes = Vec::new();
                sender.initiator.begin(request, None, &mut bytes);
                bytes.extend_from_slice(&piece);
                sender.try_send(&bytes)
            });
            if sent.is_ok() {
                sender.until_hung_up();
            }
            outside.expect_service(&mut friend);
        }
    });
}

#[test]
fn every_window_has_addresses_of_its_own_and_all_ranks_are_told_the_same() {
    over_each_network(|outside| {
        let door = Door::connect(&door_name(outside.job, NODE)).unwrap();
        let create = |window, bytes| {
            let request = DoorRequest::Create {
                window,
                generation: 1,
                key: KEY,
                parts: vec![(0, bytes), (1, bytes)],
                aligned: false,
                room: None,
            };
            door.call(&request).unwrap().unwrap()
        };
        let bytes = 100 << 20;
        let mut starts: Vec<u64> = (20..40).map(|window| create(window, bytes).address.unwrap()).collect();
        let visitor = Door::connect(&door_name(outside.job, NODE)).unwrap();
        for (window, start) in (20..).zip(&starts) {
            let attach = DoorRequest::Attach { window, generation: 1 };
            assert_eq!(visitor.call(&attach).unwrap().unwrap().address, Some(*start));
        }
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[0] + 2 * bytes < pair[1]), "{starts:x?}");
        assert_eq!(create(40, 0).address, None, "nothing has no address");
        // What is freed is room again: all of it together would not fit.
        for _ in 0..40 {
            let window = create(41, 1 << 39);
            assert!(window.address.is_some());
            door.call(&DoorRequest::Free { window: 41, generation: 1 }).unwrap();
        }
        assert!(door.call(&DoorRequest::Free { window: 41, generation: 1 }).is_err());
    });
}

/// Adds to each of these words its place in the list, from 1.
fn add_many(width: RmwWidth, offsets: &[u64]) -> Request {
    let words = offsets.iter().zip(1..).map(|(&offset, operand)| RmwWord { offset, operand }).collect();
    Request::RmwMany { target: target(0), op: RmwOp::FetchAdd, width, words }
}

/// A fetch-and-add of one.
fn fetch_add(offset: u64) -> Request {
    let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    Request::Rmw { target: target(0), offset, rmw }
}

#[test]
fn an_accumulate_that_a_broken_connection_cuts_anywhere_is_applied_once() {
    over_each_network(|outside| {
        let (kernel, scale) = sum_of_doubles();
        let accumulate = Request::Accumulate { target: target(0), shape: run(0, 80), kernel, scale };
        let payload: Vec<u8> = (0..10).flat_map(|number| f64::from(number).to_le_bytes()).collect();
        let mut whole = Vec::new();
        Initiator::<()>::new().begin(&accumulate, None, &mut whole);
        whole.extend(&payload);
        let mut times = 0.0;
        for cut in (0..=whole.len()).step_by(7) {
            let mut peer = outside.peer(4);
            peer.initiator.begin(&accumulate, None, &mut Vec::new());
            peer.try_send(&whole[..cut]).unwrap();
            let session = Session { attempt: 2, is_known: true, ..peer.session };
            drop(peer.link);
            let (link, reception) = outside.call(4, session).unwrap();
            let Reception::Resumed { received_bytes } = reception else { panic!("{reception:?}") };
            assert!(received_bytes <= cut as u64);
            let mut peer = Peer { link, session, ..peer };
            peer.try_send(&whole[received_bytes as usize..]).unwrap();
            assert_eq!(peer.quiet(), Ok(()));
            times += 1.0;
            let found = outside.contents(0);
            for (number, bytes) in found[..80].chunks(8).enumerate() {
                assert_eq!(f64::from_le_bytes(bytes.try_into().unwrap()), times * number as f64, "cut at {cut}");
            }
        }
    });
}

#[test]
fn a_reply_that_got_lost_comes_again_and_nothing_is_done_twice() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        for round in 0..20 {
            peer.ask(&fetch_add(256), &[]);
            // Until it is applied; its reply is on its way or not.
            while outside.memory.part(0).load_u64(256) != Ok(round + 1) {
                std::thread::yield_now();
            }
            let attempt = peer.session.attempt + 1;
            let received_bytes = round * REPLY_BYTES as u64;
            let session = Session { attempt, is_known: true, received_bytes, ..peer.session };
            let (link, reception) = outside.call(4, session).unwrap();
            assert_eq!(reception, Reception::Resumed { received_bytes: (round + 1) * HEADER_BYTES as u64 });
            peer = Peer { link, session, ..peer };
            assert_eq!(peer.reply(), Reply::Value { token: (), value: round });
        }
        assert_eq!(outside.memory.part(0).load_u64(256), Ok(20));
    });
}

#[test]
fn several_words_are_updated_in_their_order_and_a_reply_that_got_lost_comes_again_from_where_it_broke() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        // The first word is there twice: 1 and 3 are added to it, and what comes back second has the 1.
        let several = add_many(RmwWidth::W64, &[256, 264, 256]);
        let reply_bytes = REPLY_BYTES as u64 + 24;
        for (round, read_bytes) in (0_u64..).zip((0..24).chain([24; 4])) {
            peer.ask(&several, &[]);
            let before = [4 * round, 2 * round, 4 * round + 1].map(u64::to_le_bytes).concat();
            assert_eq!(peer.reply(), Reply::Data { token: (), bytes: 24 });
            let mut data = vec![0; read_bytes];
            peer.try_receive(&mut data).unwrap();
            let attempt = peer.session.attempt + 1;
            let received_bytes = round * reply_bytes + REPLY_BYTES as u64 + read_bytes as u64;
            let session = Session { attempt, is_known: true, received_bytes, ..peer.session };
            let (link, reception) = outside.call(4, session).unwrap();
            let request_bytes = (HEADER_BYTES + 3 * 16) as u64;
            assert_eq!(reception, Reception::Resumed { received_bytes: (round + 1) * request_bytes });
            peer = Peer { link, session, ..peer };
            let mut rest = vec![0; 24 - read_bytes];
            peer.try_receive(&mut rest).unwrap();
            assert_eq!([data, rest].concat(), before, "round {round}");
        }
        let words = [256, 264].map(|offset| outside.memory.part(0).load_u64(offset).unwrap());
        assert_eq!(words, [4 * 28, 2 * 28], "each was updated once");
    });
}

/// TCP, and what was seen of the server's links.
struct Watched {
    tcp: Tcp,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// How many were said to be of no more use before they were dropped.
    abandoned: AtomicU64,
    /// Bytes of the largest send.
    largest_send: AtomicU64,
}

struct WatchedListener {
    listener: Box<dyn Listener>,
    seen: Arc<Seen>,
}

struct WatchedLink {
    link: Box<dyn Link>,
    seen: Arc<Seen>,
}

impl Netmod for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn capabilities(&self) -> Capabilities {
        self.tcp.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let (listener, seen) = (self.tcp.listen()?, Arc::clone(&self.seen));
        Ok(Box::new(WatchedListener { listener, seen }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        self.tcp.connect(address)
    }
}

impl Listener for WatchedListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let accepted = self.listener.accept()?;
        Ok(accepted.map(|link| Box::new(WatchedLink { link, seen: Arc::clone(&self.seen) }) as _))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.listener.descriptor()
    }

    fn address(&self) -> &str {
        self.listener.address()
    }
}

impl Link for WatchedLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let bytes: usize = regions.iter().map(Region::len).sum();
        self.seen.largest_send.fetch_max(bytes as u64, Ordering::SeqCst);
        self.link.send(regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.link.receive(regions)
    }

    fn abandon(&mut self) {
        self.seen.abandoned.fetch_add(1, Ordering::SeqCst);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn peer_name(&self) -> &str {
        self.link.peer_name()
    }
}

#[test]
fn nobody_waits_for_what_a_link_has_still_to_deliver_when_its_peer_has_called_again() {
    for encrypted in [false, true] {
        let seen = Arc::new(Seen::default());
        let netmod = Watched { tcp: Tcp::new(TcpOptions::default()), seen: Arc::clone(&seen) };
        let abandoned = &seen.abandoned;
        over(Box::new(netmod), encrypted, &|outside: &Outside| {
            let mut peer = outside.peer(4);
            assert_eq!(peer.quiet(), Ok(()));
            assert_eq!(abandoned.load(Ordering::SeqCst), 0);
            let session = Session { attempt: 2, is_known: true, received_bytes: REPLY_BYTES as u64, ..peer.session };
            let (link, _) = outside.call(4, session).unwrap();
            assert_eq!(abandoned.load(Ordering::SeqCst), 1, "before the new one is welcome");
            peer = Peer { link, session, ..peer };
            assert_eq!(peer.quiet(), Ok(()));
            assert_eq!(abandoned.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn a_session_without_a_connection_lasts_unless_it_keeps_others_from_a_mutex() {
    over_each_network(|outside| {
        let mut friend = outside.peer(5);
        let lock = Request::Lock { target: target(0), offset: 64 };
        friend.ask(&lock, &[]);
        assert_eq!(friend.reply(), Reply::Granted { token: (), inherited: false });
        let mut idle = outside.peer(4);
        idle.ask(&fetch_add(8), &[]);
        assert_eq!(idle.reply(), Reply::Value { token: (), value: 0 });
        let mut waiting = outside.peer(6);
        waiting.ask(&lock, &[]);
        waiting.ask(&fetch_add(16), &[]);
        assert_eq!(waiting.reply(), Reply::Value { token: (), value: 0 });
        drop((idle.link, waiting.link));
        // Each answer takes the engine a turn at least, and a look around every fifty.
        for _ in 0..2 * SESSION_KEEP_MS {
            assert_eq!(friend.quiet(), Ok(()));
        }
        let known = |session| Session { attempt: 2, is_known: true, received_bytes: REPLY_BYTES as u64, ..session };
        let received_bytes = HEADER_BYTES as u64;
        assert_eq!(outside.call(4, known(idle.session)).unwrap().1, Reception::Resumed { received_bytes });
        assert_eq!(outside.call(6, known(waiting.session)).unwrap().1, Reception::Gone);
    });
}

#[test]
fn an_old_call_a_strangers_session_and_one_that_is_over_are_not_resumed() {
    over_each_network(|outside| {
        let mut peer = outside.peer(4);
        peer.ask(&fetch_add(8), &[]);
        assert_eq!(peer.reply(), Reply::Value { token: (), value: 0 });
        // The same attempt again: a packet that was on its way for long.
        assert!(outside.call(4, peer.session).is_err());
        // Another rank with this session's number has a session of its own.
        let known = Session { attempt: 2, is_known: true, ..peer.session };
        assert_eq!(outside.call(5, known).unwrap().1, Reception::Gone);
        // More received than was ever sent: nothing can be made of that, and the session ends.
        let wrong = Session { received_bytes: 1 << 40, ..known };
        assert_eq!(outside.call(4, wrong).unwrap().1, Reception::Gone);
        assert_eq!(outside.call(4, Session { attempt: 9, ..known }).unwrap().1, Reception::Gone);
        let old = peer.session;
        assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        assert!(outside.call(4, old).is_err());
        // One who leaves is forgotten.
        let mut peer = outside.peer(4);
        peer.ask(&Request::Leave, &[]);
        let old = peer.session;
        let known = Session { attempt: 2, is_known: true, ..old };
        assert!(matches!(peer.until_hung_up(), LinkError::Closed | LinkError::Reset));
        assert_eq!(outside.call(4, known).unwrap().1, Reception::Gone);
        // Nor does an old call begin a session that nobody would end.
        assert!(outside.call(4, old).is_err());
        assert!(outside.call(4, Session { attempt: 2, ..old }).is_err());
    });
}

#[test]
fn an_initiator_that_acknowledges_nothing_is_stopped_before_it_fills_the_memory() {
    over(Box::new(Tcp::new(TcpOptions::default())), false, &|outside| {
        let mut friend = outside.peer(5);
        let mut peer = outside.peer(4);
        let get = Request::Get { target: target(0), shape: run(0, 4096) };
        let ended = (0..100_000).any(|_| {
            let mut frame = Vec::new();
            peer.initiator.begin(&get, Some(()), &mut frame);
            let mut scrap = vec![0; REPLY_BYTES + 4096];
            peer.try_send(&frame).is_err() || peer.try_receive(&mut scrap).is_err()
        });
        assert!(ended, "replies of 400 MB are kept for it");
        outside.expect_service(&mut friend);
    });
}

/// A get is over here when its origin has acknowledged it, which may be after the window is freed: only then the next window has the memory.
#[test]
fn memory_from_which_something_is_sent_is_the_next_windows_when_that_is_acknowledged() {
    const BYTES: u64 = 2 * EAGER_BYTES_MAX;
    over(Box::new(Tcp::new(TcpOptions::default())), false, &|outside| {
        let door = Door::connect(&door_name(outside.job, NODE)).unwrap();
        let room = NodeWindow::room_for(&[BYTES]);
        let create = |window| {
            let parts = vec![(0, BYTES)];
            let request = DoorRequest::Create { window, generation: 1, key: KEY, parts, aligned: false, room };
            door.call(&request).unwrap().unwrap().made_for
        };
        let free = |window| door.call(&DoorRequest::Free { window, generation: 1 }).unwrap();
        let made_for = create(9);
        let window = WindowRef { window: WindowId(9), generation: Generation(1), ..target(0) };
        let mut peer = outside.peer(4);
        peer.ask(&Request::Get { target: window, shape: run(0, BYTES) }, &[]);
        assert_eq!(peer.reply(), Reply::Data { token: (), bytes: BYTES });
        peer.try_receive(&mut vec![0; BYTES as usize]).unwrap();
        free(9);
        assert_ne!(create(10), made_for, "its origin may ask for the reply again");
        peer.ask(&Request::Acknowledge { received_bytes: BYTES + REPLY_BYTES as u64 }, &[]);
        assert_eq!(peer.reply(), Reply::Done(()));
        assert_eq!(create(11), made_for);
    });
}

/// The server's thread yields after a large one: the receiver may wait for its processor.
#[test]
fn a_large_reply_is_noted_and_a_small_one_is_not() {
    const LARGE: u64 = 200 << 10;
    over(Box::new(Tcp::new(TcpOptions::default())), false, &|outside| {
        let (_door, window) = outside.window_of(LARGE);
        let mut peer = outside.peer(4);
        for (bytes, is_large) in [(4096, false), (LARGE, true)] {
            peer.ask(&Request::Get { target: window, shape: run(0, bytes) }, &[]);
            assert_eq!(peer.reply(), Reply::Data { token: (), bytes });
            peer.try_receive(&mut vec![0; bytes as usize]).unwrap();
            // More than are answered in one turn.
            (0..40).for_each(|_| peer.quiet().unwrap());
            assert_eq!(outside.sent_large.load(Ordering::SeqCst), is_large, "{bytes} bytes");
        }
    });
}

#[test]
fn gets_that_have_come_together_are_answered_by_one_send() {
    const GETS: u64 = 5;
    const BYTES: u64 = 2 * EAGER_BYTES_MAX;
    let seen = Arc::new(Seen::default());
    let netmod = Watched { tcp: Tcp::new(TcpOptions::default()), seen: Arc::clone(&seen) };
    over(Box::new(netmod), false, &|outside: &Outside| {
        let (_door, target) = outside.window_of(BYTES);
        let mut peer = outside.peer(4);
        let mut asked = Vec::new();
        for _ in 0..GETS {
            peer.initiator.begin(&Request::Get { target, shape: run(0, BYTES) }, Some(()), &mut asked);
        }
        let answer_bytes = GETS * (REPLY_BYTES as u64 + BYTES);
        peer.exchange(&asked, answer_bytes as usize);
        assert_eq!(seen.largest_send.load(Ordering::SeqCst), answer_bytes);
    });
}

#[test]
fn a_put_behind_gets_changes_nothing_that_they_read() {
    const BYTES: u64 = 2 * EAGER_BYTES_MAX;
    /// More than wait at a time.
    const GETS: usize = 10;
    over_each_network(|outside| {
        let (_door, target) = outside.window_of(BYTES);
        let mut peer = outside.peer(4);
        for round in 1..=4 {
            let mut asked = Vec::new();
            let get = Request::Get { target, shape: run(0, BYTES) };
            let put = Request::Put { target, shape: run(0, BYTES), signal: None };
            for _ in 0..GETS {
                peer.initiator.begin(&get, Some(()), &mut asked);
            }
            peer.initiator.begin(&put, None, &mut asked);
            asked.extend(vec![round; BYTES as usize]);
            peer.initiator.begin(&get, Some(()), &mut asked);
            let answer_bytes = REPLY_BYTES + BYTES as usize;
            let answers = peer.exchange(&asked, (GETS + 1) * answer_bytes);
            for (number, answer) in answers.chunks(answer_bytes).enumerate() {
                let (header, data) = answer.split_first_chunk().unwrap();
                assert_eq!(peer.initiator.handle_reply(header).unwrap(), Reply::Data { token: (), bytes: BYTES });
                let expected = if number < GETS { round - 1 } else { round };
                assert!(data.iter().all(|byte| *byte == expected), "get {number} of round {round}");
            }
        }
    });
}

#[test]
fn a_rank_that_waits_for_mutexes_without_end_is_hung_up_on_and_nobody_else() {
    over_each_network(|outside| {
        let lock = Request::Lock { target: target(0), offset: 64 };
        let mut holder = outside.peer(5);
        holder.ask(&lock, &[]);
        assert_eq!(holder.reply(), Reply::Granted { token: (), inherited: false });
        let (mut broken, mut waiting) = (outside.peer(4), outside.peer(6));
        for _ in 0..LOCK_WAITERS_MAX {
            broken.ask(&lock, &[]);
        }
        broken.ask(&fetch_add(8), &[]);
        assert_eq!(broken.reply(), Reply::Value { token: (), value: 0 }, "so many may wait");
        waiting.ask(&lock, &[]);
        waiting.ask(&fetch_add(8), &[]);
        assert_eq!(waiting.reply(), Reply::Value { token: (), value: 1 });
        broken.ask(&lock, &[]);
        broken.until_hung_up();
        // Whoever stood behind it is next.
        holder.ask(&Request::Unlock { target: target(0), offset: 64 }, &[]);
        assert_eq!(holder.reply(), Reply::Done(()));
        assert_eq!(waiting.reply(), Reply::Granted { token: (), inherited: false });
        outside.expect_service(&mut holder);
    });
}

#[test]
fn a_rank_that_acknowledges_no_large_get_is_hung_up_on_before_much_is_kept_for_it() {
    over(Box::new(Tcp::new(TcpOptions::default())), false, &|outside: &Outside| {
        let mut friend = outside.peer(5);
        let mut broken = outside.peer(4);
        // Few bytes of a window, many times: more than is copied, with the largest description there is.
        let runs = vec![Run { offset: 0, bytes: 80 }; SEGMENTS_PER_FRAME_MAX];
        let bytes = 80 * SEGMENTS_PER_FRAME_MAX;
        let get = Request::Get { target: target(0), shape: Shape::Vector(runs) };
        assert!(bytes as u64 > EAGER_BYTES_MAX);
        let most = 2 * UNACKNOWLEDGED_REPLY_BYTES_MAX / LARGE_REPLY_BYTES;
        let (mut data, mut gets) = (vec![0; bytes], 0);
        let ended = loop {
            let mut asked = Vec::new();
            broken.initiator.begin(&get, Some(()), &mut asked);
            let mut header = [0; REPLY_BYTES];
            let answered = broken.try_send(&asked).and_then(|()| broken.try_receive(&mut header));
            if let Err(error) = answered.and_then(|()| broken.try_receive(&mut data)) {
                break error;
            }
            assert_eq!(broken.initiator.handle_reply(&header).unwrap(), Reply::Data { token: (), bytes: bytes as u64 });
            gets += 1;
            assert!(gets <= 2 * most, "{gets} gets are kept, and no end");
        };
        assert!(matches!(ended, LinkError::Closed | LinkError::Reset), "{ended}");
        assert!(gets > most / 2, "an initiator may have {gets} under way");
        outside.expect_service(&mut friend);
    });
}

#[test]
fn a_rank_that_begins_session_after_session_has_so_many_and_no_more() {
    over(Box::new(Tcp::new(TcpOptions::default())), false, &|outside: &Outside| {
        let mut friend = outside.peer(5);
        let mut first = outside.peer(4);
        let others: Vec<Peer> = (1..SESSIONS_PER_RANK_MAX).map(|_| outside.peer(4)).collect();
        let session = Session { number: u64::MAX, attempt: 1, is_known: false, received_bytes: 0 };
        let refused = outside.call(4, session).err();
        assert!(matches!(refused, Some(DialError::HungUp | DialError::Link(_))), "{refused:?}");
        assert_eq!(first.quiet(), Ok(()), "those that it has go on");
        // One that leaves makes room.
        let mut leaving = others.into_iter().next_back().unwrap();
        leaving.ask(&Request::Leave, &[]);
        leaving.until_hung_up();
        assert!(outside.call(4, session).is_ok());
        outside.expect_service(&mut friend);
    });
}
