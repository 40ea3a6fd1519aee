//! The node's door: hands this node's memfds to its ranks.
//!
//! An abstract unix socket of packets. A rank asks with one [`DoorRequest`], the server answers with one
//! [`DoorReply`] and, where one is due, a descriptor beside it (`SCM_RIGHTS`). The name of the socket is no secret:
//! a caller has to run as the user of the server, which the kernel tells, and so has the server that a rank
//! connects to: anybody may have taken the name first.
//!
//! Nothing of this has a name in a file system, so that a killed job leaves nothing behind.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use longarm_proto::{AccessKey, Generation, JobId, Rank, Refusal, WindowId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

/// Bytes of the longest packet. The table of a window has one entry a rank of the node.
const PACKET_BYTES_MAX: usize = 128 << 10;

/// What a rank asks its node's server for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DoorRequest {
    /// The node segment. Answered by [`DoorReply::Here`] with its descriptor.
    NodeSegment {
        /// The job the asker belongs to.
        job: u64,
    },
    /// What wakes the thread that sleeps in the place of the server's. Answered by [`DoorReply::Here`] with its descriptor.
    Ringer,
    /// Make this node's parts of a window and serve them. Answered by [`DoorReply::Here`] with the descriptor.
    Create {
        /// Identity of the window.
        window: u64,
        /// How often the identity was used.
        generation: u32,
        /// What requests have to carry.
        key: u64,
        /// Rank and bytes of each part on this node, ascending by rank.
        parts: Vec<(u32, u64)>,
        /// Its addresses start at a multiple of as large a power of two as fits into it: for a heap, whose blocks are aligned to as much.
        aligned: bool,
        /// How much room each part has, in memory that other windows have afterwards. `None`: it has memory of its own.
        room: Option<u64>,
    },
    /// The descriptor of a window that is served.
    Attach {
        /// Identity of the window.
        window: u64,
        /// How often the identity was used.
        generation: u32,
    },
    /// Stop to serve a window. Answered by [`DoorReply::Gone`].
    Free {
        /// Identity of the window.
        window: u64,
        /// How often the identity was used.
        generation: u32,
    },
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DoorReply {
    /// The descriptor comes beside this packet.
    Here {
        /// Where every rank of this node maps it. `None`: anywhere.
        address: Option<u64>,
        /// The descriptor's number in the server's process, as long as what it stands for is served.
        number: RawFd,
        /// The window, and its generation, that the memory was made for: tells a window's memory from all other, ever.
        made_for: (u64, u32),
    },
    /// The window is no longer served.
    Gone,
    /// It cannot be done; the number is a [`Refusal`] on the wire, and the system's error where there was one.
    Refused {
        /// Why, as text.
        reason: String,
    },
}

impl DoorReply {
    /// What it comes to, with the descriptor that came with it.
    pub(crate) fn handing(self, file: Option<OwnedFd>) -> Result<Option<Handed>, DoorError> {
        match self {
            DoorReply::Here { address, number, made_for: (window, generation) } => {
                let made_for = identity(window, generation);
                Ok(Some(Handed { file: file.ok_or(DoorError::Garbled)?, address, number, made_for }))
            }
            DoorReply::Gone => Ok(None),
            DoorReply::Refused { reason } => Err(DoorError::Refused { reason }),
        }
    }
}

/// What the door hands out.
#[derive(Debug)]
pub struct Handed {
    /// Memory of this node.
    pub file: OwnedFd,
    /// Where every rank of this node maps it. `None`: anywhere.
    pub address: Option<u64>,
    /// The number that the server's process has it under.
    pub number: RawFd,
    /// The window that it was made for, where it is a window's memory.
    pub made_for: (WindowId, Generation),
}

/// Why a call at the door failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The socket failed: the process that hosts the node's server is gone or refuses this user.
    #[error("the server of this node cannot be reached at its door ({errno})")]
    Unreachable {
        /// The system's error.
        errno: Errno,
    },
    /// Somebody else has taken the name of the door. Nothing was said to it.
    #[error("the door of this node belongs to user {uid}, who is not the user of this process")]
    OtherUser {
        /// The user.
        uid: u32,
    },
    /// The server said no.
    #[error("the server of this node refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The answer makes no sense; only a bug can cause this.
    #[error("the server of this node gave an answer that is not one")]
    Garbled,
}

impl DoorError {
    /// Whether the server's process has closed its end, or never had one.
    pub fn is_hung_up(&self) -> bool {
        let gone = [Errno::CONNRESET, Errno::PIPE, Errno::CONNREFUSED, Errno::NOTCONN];
        matches!(self, DoorError::Unreachable { errno } if gone.contains(errno))
    }
}

impl From<Errno> for DoorError {
    fn from(errno: Errno) -> DoorError {
        DoorError::Unreachable { errno }
    }
}

/// A rank's connection to its node's door.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
}

impl Door {
    /// Connects to the door of this name (without the leading zero byte).
    pub fn connect(name: &str) -> Result<Door, DoorError> {
        let socket = packet_socket(SocketFlags::CLOEXEC)?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
        // Who listened: noted by the kernel when it began to.
        let uid = rustix::net::sockopt::socket_peercred(&socket)?.uid;
        if uid != rustix::process::geteuid() {
            return Err(DoorError::OtherUser { uid: uid.as_raw() });
        }
        Ok(Door { socket })
    }

    /// Asks and waits for the answer; something is handed out for [`DoorReply::Here`].
    pub fn call(&self, request: &DoorRequest) -> Result<Option<Handed>, DoorError> {
        self.ask(request)?;
        self.answer()
    }

    /// The first half of [`Door::call`]: asks.
    pub fn ask(&self, request: &DoorRequest) -> Result<(), DoorError> {
        let packet = serde_json::to_vec(request).map_err(|_| DoorError::Garbled)?;
        if packet.len() > PACKET_BYTES_MAX {
            return Err(DoorError::Refused { reason: "the window has too many parts on one node".into() });
        }
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, &packet, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// The second half of [`Door::call`]: waits for the answer to what was asked.
    pub fn answer(&self) -> Result<Option<Handed>, DoorError> {
        let (bytes, descriptor) = receive_packet(self.socket.as_fd(), RecvFlags::empty())?;
        if bytes.is_empty() {
            return Err(DoorError::Unreachable { errno: Errno::CONNRESET });
        }
        let reply: DoorReply = serde_json::from_slice(&bytes).map_err(|_| DoorError::Garbled)?;
        reply.handing(descriptor)
    }
}

/// The server's end: listens, never blocks.
pub(crate) struct DoorListener {
    socket: OwnedFd,
}

impl DoorListener {
    pub(crate) fn bind(name: &str) -> Result<DoorListener, Errno> {
        let socket = packet_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&socket, 1024)?;
        Ok(DoorListener { socket })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Who comes next; those of another user are closed at once.
    pub(crate) fn accept(&self) -> Result<Arrival, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let visitor = match rustix::net::accept_with(&self.socket, flags) {
            Ok(visitor) => visitor,
            Err(Errno::INTR | Errno::CONNABORTED) => return Ok(Arrival::Gone),
            Err(Errno::AGAIN) => return Ok(Arrival::Nobody),
            Err(errno) => return Err(errno),
        };
        Ok(match rustix::net::sockopt::socket_peercred(&visitor) {
            Ok(credentials) if credentials.uid == rustix::process::geteuid() => Arrival::Visitor(visitor),
            Ok(credentials) => Arrival::OtherUser { uid: credentials.uid.as_raw() },
            Err(_) => Arrival::Gone,
        })
    }
}

/// Who came to the door.
pub(crate) enum Arrival {
    /// One of the right user.
    Visitor(OwnedFd),
    /// One of another user, who was sent away.
    OtherUser {
        /// The user.
        uid: u32,
    },
    /// One who has gone again.
    Gone,
    /// There is nobody.
    Nobody,
}

/// One packet from a visitor: `None` is "nothing now", an empty one the end.
pub(crate) fn next_request(visitor: BorrowedFd<'_>) -> Result<Option<DoorRequest>, DoorError> {
    match receive_packet(visitor, RecvFlags::DONTWAIT) {
        Err(DoorError::Unreachable { errno: Errno::AGAIN }) => Ok(None),
        Err(other) => Err(other),
        Ok((bytes, _)) if bytes.is_empty() => Err(DoorError::Unreachable { errno: Errno::PIPE }),
        Ok((bytes, _)) => serde_json::from_slice(&bytes).map(Some).map_err(|_| DoorError::Garbled),
    }
}

/// Answers a visitor, with a descriptor where one is due. A visitor that does not read loses its answer.
pub(crate) fn answer(
    visitor: BorrowedFd<'_>,
    reply: &DoorReply,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), DoorError> {
    let packet = serde_json::to_vec(reply).map_err(|_| DoorError::Garbled)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        let pushed = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(pushed, "the space is for one descriptor");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(visitor, &[IoSlice::new(&packet)], &mut ancillary, flags))?;
    Ok(())
}

/// The text of a refusal at the door.
pub(crate) fn refused(refusal: Refusal) -> DoorReply {
    DoorReply::Refused { reason: format!("{refusal:?}") }
}

/// Abstract name of a node's door.
pub fn door_name(job: JobId, node: longarm_proto::NodeId) -> String {
    format!("longarm-{:016x}-{}", job.0, node.0)
}

/// What memory that is made for a window is called in the list of a process's mappings. No other memory is called so, ever.
pub(crate) fn window_name(job: JobId, window: WindowId, generation: Generation) -> String {
    format!("longarm-window-{:x}-{:x}-{}", job.0, window.0, generation.0)
}

/// The memory that was made for a window, by the number that the server's process has it under, for whoever was told that: nobody is asked.
/// `None`: it is not there (any more), or this process may not look; ask at the door.
pub fn window_of_server(
    pid: u32,
    number: RawFd,
    job: JobId,
    (window, generation): (WindowId, Generation),
) -> Option<OwnedFd> {
    let name = format!("/memfd:{} (deleted)", window_name(job, window, generation));
    let is_that =
        |path: &str| rustix::fs::readlink(path, Vec::new()).is_ok_and(|found| found.to_bytes() == name.as_bytes());
    let path = format!("/proc/{pid}/fd/{number}");
    // The number may stand for something else by now, or that process be gone and its number another's: before it is opened, for that may
    // have effects, and after.
    if !is_that(&path) {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    is_that(&format!("/proc/self/fd/{}", file.as_raw_fd())).then_some(file)
}

/// The typed identity of a request's window.
pub(crate) fn identity(window: u64, generation: u32) -> (WindowId, Generation) {
    (WindowId(window), Generation(generation))
}

/// The typed key and parts of [`DoorRequest::Create`], if the parts ascend.
pub(crate) fn parts_of(key: u64, parts: &[(u32, u64)]) -> Option<(AccessKey, Vec<Rank>, Vec<u64>)> {
    if !parts.is_sorted_by(|left, right| left.0 < right.0) {
        return None;
    }
    let ranks = parts.iter().map(|part| Rank(part.0)).collect();
    let bytes = parts.iter().map(|part| part.1).collect();
    Some((AccessKey(key), ranks, bytes))
}

fn packet_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn receive_packet(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<(Vec<u8>, Option<OwnedFd>), DoorError> {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    packet.truncate(received.bytes);
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((packet, descriptor))
}
