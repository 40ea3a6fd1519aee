//! How a rank reaches the router of its node: by its line, one unix socket for all channels that the rank opens. It carries records as trunks do,
//! and the first data of a channel says where it is to lead: two bytes with the length of an address, and its text.
//!
//! The kernel tells either side when the other one dies, and does not let anybody send more than is taken.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longarm_memory::{Region, RegionMut};
use longarm_proto::OpenFailure;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::link_error::{LinkError, moved};
use crate::own_user::is_of_own_user;
use crate::traits::Link;

/// What a rank calls its line, where routers have the address of a node.
pub(super) const LINE: &str = "";
/// Bytes of the longest address.
const ADDRESS_BYTES_MAX: usize = 255;
const LENGTH_BYTES: usize = 2;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const BACKLOG: i32 = 4096;

/// What a rank says first over a channel that is to lead to this address.
pub(super) fn destination_of(address: &str) -> Result<Vec<u8>, LinkError> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Err(LinkError::BadAddress);
    }
    let mut said = (address.len() as u16).to_le_bytes().to_vec();
    said.extend_from_slice(address.as_bytes());
    Ok(said)
}

/// The address in what a rank has said so far, once it is whole; an error if nothing that follows can make it one.
pub(super) fn address_in(said: &[u8]) -> Result<Option<&str>, LinkError> {
    let Some((length, text)) = said.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let bytes = usize::from(u16::from_le_bytes(*length));
    if !(1..=ADDRESS_BYTES_MAX).contains(&bytes) || text.len() > bytes {
        return Err(LinkError::BadAddress);
    }
    if text.len() < bytes {
        return Ok(None);
    }
    std::str::from_utf8(text).map(Some).map_err(|_| LinkError::BadAddress)
}

/// What a rank is told of an error that kept its channel from leading anywhere.
pub(super) fn failure_of(error: LinkError) -> OpenFailure {
    match error {
        LinkError::Refused => OpenFailure::Refused,
        LinkError::TimedOut => OpenFailure::TimedOut,
        LinkError::BadAddress => OpenFailure::BadAddress,
        _ => OpenFailure::Lost,
    }
}

/// What that is to the rank.
pub(super) fn error_of(failure: OpenFailure) -> LinkError {
    match failure {
        OpenFailure::Refused => LinkError::Refused,
        OpenFailure::TimedOut => LinkError::TimedOut,
        OpenFailure::BadAddress => LinkError::BadAddress,
        OpenFailure::Lost => LinkError::Reset,
    }
}

/// A unix socket as a link: either end of a line, and what the host of a server calls that very server by.
pub(super) struct SocketLink {
    socket: OwnedFd,
    name: String,
}

impl SocketLink {
    /// Connects to the router behind this socket.
    pub(super) fn connect(socket_name: &str) -> Result<SocketLink, LinkError> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        let name = SocketAddrUnix::new_abstract_name(socket_name.as_bytes()).map_err(|_| LinkError::BadAddress)?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &name))?;
        // Who listened: noted by the kernel when it began to. Anybody may have taken the name first.
        if !is_of_own_user(&socket) {
            return Err(LinkError::Refused);
        }
        Ok(SocketLink { socket, name: "the router of this node".to_owned() })
    }
}

impl Link for SocketLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        moved(longarm_memory::send(self.socket.as_fd(), regions))
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if regions.iter().all(|region| region.is_empty()) {
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

    fn peer_name(&self) -> &str {
        &self.name
    }
}

/// Two ends of one connection inside this process.
pub(super) fn pair(name: &str) -> Result<(SocketLink, SocketLink), LinkError> {
    let (here, there) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    Ok((SocketLink { socket: here, name: name.to_owned() }, SocketLink { socket: there, name: name.to_owned() }))
}

/// Where the ranks of this node find the router.
pub(super) fn listen(socket_name: &str) -> Result<OwnedFd, LinkError> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(socket_name.as_bytes())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The next rank that has come, those of other users apart: they are sent away.
pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<Option<SocketLink>, LinkError> {
    loop {
        match rustix::net::accept_with(listener, FLAGS) {
            Ok(socket) if is_of_own_user(&socket) => {
                return Ok(Some(SocketLink { socket, name: "a rank of this node".to_owned() }));
            }
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_said_and_nothing_else_is_one() {
        let said = destination_of("3@127.0.0.1:4000").unwrap();
        assert_eq!(address_in(&said), Ok(Some("3@127.0.0.1:4000")));
        for had in 0..said.len() {
            assert_eq!(address_in(&said[..had]), Ok(None), "{had} bytes");
        }
        for wrong in [&[0, 0][..], &[0, 1], &[1, 0, 0xff], &[1, 0, b'a', b'b']] {
            assert_eq!(address_in(wrong), Err(LinkError::BadAddress), "{wrong:?}");
        }
        let longest = "x".repeat(ADDRESS_BYTES_MAX);
        assert_eq!(address_in(&destination_of(&longest).unwrap()), Ok(Some(&*longest)));
        for text in ["", &*"x".repeat(ADDRESS_BYTES_MAX + 1)] {
            assert_eq!(destination_of(text), Err(LinkError::BadAddress));
        }
    }

    #[test]
    fn a_failure_comes_back_as_its_error_and_any_other_error_as_a_reset() {
        for error in [LinkError::Refused, LinkError::TimedOut, LinkError::BadAddress, LinkError::Reset] {
            assert_eq!(error_of(failure_of(error)), error);
        }
        assert_eq!(error_of(failure_of(LinkError::Closed)), LinkError::Reset);
    }
}
