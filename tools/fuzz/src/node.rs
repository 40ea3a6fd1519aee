//! A node's server: engine, door, windows. One a thread, because a fresh one for every input would take most of the
//! time. Connections are each input's own, and what it leaves behind is cleared.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longarm_netmod::flow::Costs;
use longarm_proto::{AccessKey, Generation, JobId, NodeId, Rank, Secret, WindowId};
use longarm_server::door::{DoorReply, DoorRequest, door_name};
use longarm_server::{Engine, EngineOptions};
use longarm_shm::NodeSegment;
use longarm_shm::sync::{AtomicU32, Ordering};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};

use crate::wire::Porch;

pub(crate) const SECRET: Secret = Secret([0x42; 32]);
pub(crate) const NODE: NodeId = NodeId(0);
/// Ranks of this node.
pub(crate) const RANKS: [Rank; 2] = [Rank(0), Rank(1)];
/// Bytes of their parts of each window: more than what a server copies of a get, and no whole page.
pub(crate) const PARTS: [u64; 2] = [20 << 10, 100];
/// Ranks of the world.
const WORLD_RANKS: u32 = 8;
/// Connections that have not proven themselves, at most: more than a play has strangers.
pub(crate) const HALF_OPEN_MAX: usize = 8;
const HANDSHAKE_TIMEOUT_MS: u64 = 1 << 40;
/// More than there are turns in a play: a session ends by this only where [`Node::let_sessions_end`] says so.
const SESSION_KEEP_MS: u64 = 1 << 24;
/// Turns after which a server that still moves does not come to rest any more.
const TURNS_MAX: u32 = 1 << 20;
/// Bytes of the longest answer at the door.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// Engines of this process so far: each job has a number of its own.
static JOBS: AtomicU32 = AtomicU32::new(0);

/// What tells a window from others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Name {
    pub(crate) window: WindowId,
    pub(crate) generation: Generation,
    pub(crate) key: AccessKey,
}

impl Name {
    pub(crate) const fn new(window: u64, generation: u32, key: u64) -> Name {
        Name { window: WindowId(window), generation: Generation(generation), key: AccessKey(key) }
    }
}

/// See the module.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) porch: Porch,
    pub(crate) segment: Arc<NodeSegment>,
    pub(crate) job: JobId,
    /// How many plays it has been in: a server takes no session twice.
    pub(crate) plays: u64,
    now_ms: u64,
}

impl Node {
    /// A server that has not been called yet. Rank 1 is dead: its mail is thrown away.
    pub(crate) fn new() -> Node {
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let job = JobId(u64::from(std::process::id()) << 32 | u64::from(number));
        let segment = NodeSegment::create(job, WORLD_RANKS, RANKS.len() as u32);
        let segment = Arc::new(segment.expect("the system has memory for a segment"));
        let porch = Porch::default();
        let engine = Engine::new(EngineOptions {
            job,
            secret: SECRET,
            node: NODE,
            node_of_rank: (0..WORLD_RANKS)
                .map(|rank| if RANKS.contains(&Rank(rank)) { NODE } else { NodeId(NODE.0 + 1) })
                .collect(),
            segment: Arc::clone(&segment),
            listener: Some(Box::new(porch.clone())),
            door: door_name(job, NODE),
            half_open_max: HALF_OPEN_MAX,
            handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
            session_keep_ms: SESSION_KEEP_MS,
            encrypted: false,
            costs: Costs::TYPICAL,
            remote_memory: None,
        });
        let mut engine = engine.expect("the system has a socket and a poller for an engine");
        engine.note_death(RANKS[1]);
        Node { engine, porch, segment, job, plays: 0, now_ms: 0 }
    }

    /// One turn. True if anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        self.now_ms += 1;
        self.engine.turn(self.now_ms, true)
    }

    /// Time passes: whoever has no link now has called for too long.
    pub(crate) fn let_sessions_end(&mut self) {
        self.now_ms += SESSION_KEEP_MS;
    }

    /// Turns until nothing moves.
    pub(crate) fn settle(&mut self) {
        let moved = (0..TURNS_MAX).take_while(|_| self.turn()).count();
        assert!(moved < TURNS_MAX as usize, "the server comes to rest when nobody asks for more");
    }

    /// Somebody at the door.
    pub(crate) fn visitor(&mut self) -> Visitor {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("the system has a socket");
        let name = SocketAddrUnix::new_abstract_name(door_name(self.job, NODE).as_bytes()).expect("a short name");
        rustix::net::connect(&socket, &name).expect("the door is open");
        Visitor { socket }
    }

    /// Makes a window over both ranks.
    pub(crate) fn create(&mut self, visitor: &Visitor, name: Name) -> OwnedFd {
        let parts = RANKS.iter().zip(PARTS).map(|(rank, bytes)| (rank.0, bytes)).collect();
        let Name { window, generation, key } = name;
        let request = DoorRequest::Create {
            window: window.0,
            generation: generation.0,
            key: key.0,
            parts,
            aligned: false,
            room: None,
        };
        match self.ask(visitor, &request) {
            Heard::Reply(DoorReply::Here { .. }, Some(file)) => file,
            other => panic!("{other:?} is no answer to {request:?}"),
        }
    }

    pub(crate) fn free(&mut self, visitor: &Visitor, name: Name) {
        let request = DoorRequest::Free { window: name.window.0, generation: name.generation.0 };
        let heard = self.ask(visitor, &request);
        assert!(matches!(heard, Heard::Reply(DoorReply::Gone, None)), "{heard:?}");
    }

    pub(crate) fn ask(&mut self, visitor: &Visitor, request: &DoorRequest) -> Heard {
        self.ask_plainly(visitor, &serde_json::to_vec(request).expect("a request can be written"))
    }

    /// Any packet, and what comes back.
    pub(crate) fn ask_plainly(&mut self, visitor: &Visitor, packet: &[u8]) -> Heard {
        rustix::net::send(&visitor.socket, packet, SendFlags::NOSIGNAL).expect("the door takes a packet");
        self.settle();
        visitor.hear()
    }
}

/// A process of this node that asks for memory.
pub(crate) struct Visitor {
    socket: OwnedFd,
}

/// What came back from the door.
#[derive(Debug)]
pub(crate) enum Heard {
    Reply(DoorReply, Option<OwnedFd>),
    /// The server has hung up.
    HungUp,
    /// Nothing at all.
    Silence,
}

impl Visitor {
    fn hear(&self) -> Heard {
        let mut packet = [0; ANSWER_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut into = [IoSliceMut::new(&mut packet)];
        let received = match rustix::net::recvmsg(&self.socket, &mut into, &mut ancillary, flags) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::AGAIN) => return Heard::Silence,
            Err(_) => return Heard::HungUp,
        };
        if received == 0 {
            return Heard::HungUp;
        }
        let file = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        Heard::Reply(serde_json::from_slice(&packet[..received]).expect("the server speaks its own language"), file)
    }
}

/// The memory of one window, as its file has it: parts, each from a page on, and what lies between them.
pub(crate) struct Memory {
    file: OwnedFd,
    before: Vec<u8>,
    /// Bytes of the file that a sound request was allowed to change, as ranges.
    allowed: BTreeMap<u64, u64>,
}

/// Parts begin on pages.
const PAGE_BYTES: u64 = 4 << 10;

impl Memory {
    pub(crate) fn new(file: OwnedFd) -> Memory {
        let bytes = rustix::fs::fstat(&file).expect("a file has a size").st_size;
        let mut memory = Memory { file, before: vec![0; bytes as usize], allowed: BTreeMap::new() };
        memory.before = memory.contents();
        memory
    }

    /// Where a part begins in the file.
    fn start(part: usize) -> u64 {
        PARTS[..part].iter().map(|bytes| bytes.next_multiple_of(PAGE_BYTES)).sum()
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = vec![0; self.before.len()];
        let got = rustix::io::pread(&self.file, &mut contents[..], 0).expect("a memfd can be read");
        assert_eq!(got, contents.len(), "a window keeps its size");
        contents
    }

    /// From now on these bytes of a part may change.
    pub(crate) fn allow(&mut self, part: usize, offset: u64, bytes: u64) {
        assert!(offset + bytes <= PARTS[part], "only what is inside is ever allowed");
        let known = self.allowed.entry(Memory::start(part) + offset).or_default();
        *known = (*known).max(bytes);
    }

    /// The word at this place of a part, as it is now.
    pub(crate) fn word(&self, part: usize, offset: u64) -> i64 {
        let mut word = [0; 8];
        let got = rustix::io::pread(&self.file, &mut word[..], Memory::start(part) + offset);
        assert_eq!(got, Ok(word.len()), "a memfd can be read");
        i64::from_le_bytes(word)
    }

    /// Whether these bytes of a part may have been changed by anybody.
    pub(crate) fn is_allowed(&self, part: usize, offset: u64, bytes: u64) -> bool {
        let start = Memory::start(part) + offset;
        self.allowed.range(..start + bytes).any(|(allowed, count)| allowed + count > start)
    }

    /// All bytes are as they were, whoever changed them.
    pub(crate) fn restore(&mut self) {
        for (start, bytes) in std::mem::take(&mut self.allowed) {
            let range = start as usize..(start + bytes) as usize;
            let written = rustix::io::pwrite(&self.file, &self.before[range], start).expect("a memfd can be written");
            assert_eq!(written as u64, bytes);
        }
    }

    /// Every other byte is as it was.
    pub(crate) fn assert_rest_untouched(&self) {
        let mut expected = self.before.clone();
        let after = self.contents();
        for (start, bytes) in &self.allowed {
            let range = *start as usize..(start + bytes) as usize;
            expected[range.clone()].copy_from_slice(&after[range]);
        }
        // Whole first: byte by byte takes longer than all the rest.
        if expected != after {
            let changed = expected.iter().zip(&after).position(|(expected, after)| expected != after);
            panic!("byte {changed:?} of a window's file was changed, which no sound request has named");
        }
    }
}
