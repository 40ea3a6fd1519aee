//! How a rank reaches the router of its node: a unix socket that carries the bytes of one channel.
//!
//! The rank says by two bytes with its length, and by its text, which address it wants to reach; the router answers with one byte
//! once it has reached it or has given up. What follows are the channel's bytes. The kernel tells either side when the other one dies,
//! and does not let anybody send more than is taken.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longarm_memory::{Region, RegionMut};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::interest::Interest;
use crate::link_error::{LinkError, moved};
use crate::own_user::is_of_own_user;
use crate::traits::Link;

/// Bytes of the longest address.
const ADDRESS_BYTES_MAX: usize = 255;
const LENGTH_BYTES: usize = 2;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const BACKLOG: i32 = 4096;

/// The answer to a greeting.
pub(super) fn answer_byte(outcome: Result<(), LinkError>) -> u8 {
    match outcome {
        Ok(()) => 1,
        Err(LinkError::Refused) => 2,
        Err(LinkError::TimedOut) => 3,
        Err(LinkError::BadAddress) => 4,
        Err(_) => 5,
    }
}

/// Answers a greeting. False: the rank has gone, or takes nothing.
pub(super) fn answer(socket: &OwnedFd, outcome: Result<(), LinkError>) -> bool {
    longarm_memory::send(socket.as_fd(), &[Region::from_slice(&[answer_byte(outcome)])]).is_ok_and(|sent| sent == 1)
}

fn outcome_of(answer: u8) -> Result<(), LinkError> {
    match answer {
        1 => Ok(()),
        2 => Err(LinkError::Refused),
        3 => Err(LinkError::TimedOut),
        4 => Err(LinkError::BadAddress),
        _ => Err(LinkError::Reset),
    }
}

/// The rank's end; and the server's, where a rank calls the server of its own node.
pub(super) struct NeighbourLink {
    socket: OwnedFd,
    name: String,
    /// What of the greeting was not sent yet.
    greeting: Vec<u8>,
    is_answered: bool,
}

impl NeighbourLink {
    /// Asks the router behind this socket to reach an address.
    pub(super) fn connect(socket_name: &str, address: &str) -> Result<NeighbourLink, LinkError> {
        if address.len() > ADDRESS_BYTES_MAX {
            return Err(LinkError::BadAddress);
        }
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        let name = SocketAddrUnix::new_abstract_name(socket_name.as_bytes()).map_err(|_| LinkError::BadAddress)?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &name))?;
        // Who listened: noted by the kernel when it began to. Anybody may have taken the name first.
        if !is_of_own_user(&socket) {
            return Err(LinkError::Refused);
        }
        let mut greeting = (address.len() as u16).to_le_bytes().to_vec();
        greeting.extend_from_slice(address.as_bytes());
        let mut link = NeighbourLink { socket, name: address.to_owned(), greeting, is_answered: false };
        link.settle()?;
        Ok(link)
    }

    /// A connection over which all that comes now belongs to the channel.
    pub(super) fn answered(socket: OwnedFd, name: &str) -> NeighbourLink {
        NeighbourLink { socket, name: name.to_owned(), greeting: Vec::new(), is_answered: true }
    }

    /// Whether the router has reached the address.
    fn settle(&mut self) -> Result<bool, LinkError> {
        if self.is_answered {
            return Ok(true);
        }
        if !self.greeting.is_empty() {
            let sent = moved(longarm_memory::send(self.socket.as_fd(), &[Region::from_slice(&self.greeting)]))?;
            self.greeting.drain(..sent);
        }
        let mut answer = [0];
        match longarm_memory::receive(self.socket.as_fd(), &[RegionMut::from_slice(&mut answer)]) {
            Ok(0) => return Err(LinkError::Reset),
            Ok(_) => outcome_of(answer[0])?,
            other => return moved(other).map(|_| false),
        }
        self.is_answered = true;
        Ok(true)
    }
}

impl Link for NeighbourLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        if !self.settle()? {
            return Ok(0);
        }
        moved(longarm_memory::send(self.socket.as_fd(), regions))
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if regions.iter().all(|region| region.is_empty()) || !self.settle()? {
            // Nothing can come, and that must not look like the end of the stream.
            return Ok(0);
        }
        match longarm_memory::receive(self.socket.as_fd(), regions) {
            // There was room, so no bytes means that none will come.
            Ok(0) => Err(LinkError::Closed),
            other => moved(other),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        // A socket to a neighbour takes bytes at any time, but the channel does not before the answer is there.
        if self.is_answered || wanted == Interest::default() { wanted } else { Interest::READABLE }
    }

    fn peer_name(&self) -> &str {
        &self.name
    }
}

/// Two ends of one connection inside this process.
pub(super) fn pair(name: &str) -> Result<(NeighbourLink, NeighbourLink), LinkError> {
    let (here, there) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    Ok((NeighbourLink::answered(here, name), NeighbourLink::answered(there, name)))
}

/// Where the ranks of this node find the router.
pub(super) fn listen(socket_name: &str) -> Result<OwnedFd, LinkError> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(socket_name.as_bytes())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The next rank that has come, those of other users apart: they are sent away.
pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, LinkError> {
    loop {
        match rustix::net::accept_with(listener, FLAGS) {
            Ok(socket) if is_of_own_user(&socket) => return Ok(Some(socket)),
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A rank that has connected and is saying which address it wants to reach.
pub(super) struct Greeting {
    pub(super) socket: OwnedFd,
    bytes: Vec<u8>,
    pub(super) since_ms: u64,
}

impl Greeting {
    pub(super) fn new(socket: OwnedFd, since_ms: u64) -> Greeting {
        Greeting { socket, bytes: Vec::new(), since_ms }
    }

    /// The address, once it is there.
    pub(super) fn poll(&mut self) -> Result<Option<String>, LinkError> {
        loop {
            let bytes = match self.bytes.as_slice() {
                [low, high, ..] => u16::from_le_bytes([*low, *high]) as usize,
                _ => 0,
            };
            let had = self.bytes.len();
            if had == LENGTH_BYTES + bytes && bytes > 0 {
                let text = String::from_utf8(self.bytes.split_off(LENGTH_BYTES));
                return text.map(Some).map_err(|_| LinkError::BadAddress);
            }
            if had >= LENGTH_BYTES && !(1..=ADDRESS_BYTES_MAX).contains(&bytes) {
                return Err(LinkError::BadAddress);
            }
            self.bytes.resize(LENGTH_BYTES + bytes, 0);
            let got = longarm_memory::receive(self.socket.as_fd(), &[RegionMut::from_slice(&mut self.bytes[had..])]);
            self.bytes.truncate(had + *got.as_ref().unwrap_or(&0));
            if let Ok(0) = got {
                return Err(LinkError::Closed);
            }
            if moved(got)? == 0 {
                return Ok(None);
            }
        }
    }
}
