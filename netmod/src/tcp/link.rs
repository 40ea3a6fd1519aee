//! One TCP connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longarm_memory::{Region, RegionMut};

use crate::endpoint::{Link, LinkError};

/// A [`Link`] over TCP.
pub(super) struct TcpLink {
    socket: OwnedFd,
    peer_name: String,
}

impl TcpLink {
    pub(super) fn new(socket: OwnedFd, remote: SocketAddr) -> Self {
        Self { socket, peer_name: remote.to_string() }
    }
}

impl Link for TcpLink {
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
        &self.peer_name
    }
}

fn moved(result: io::Result<usize>) -> Result<usize, LinkError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => Ok(other?),
    }
}
