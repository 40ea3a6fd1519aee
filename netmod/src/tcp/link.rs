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
        // One call takes a bounded number of regions. Empty ones at the front could fill it and look like a full
        // socket, or like the end of the stream below.
        let Some(first) = regions.iter().position(|region| !region.is_empty()) else { return Ok(0) };
        moved(longarm_memory::send(self.socket.as_fd(), &regions[first..]))
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let Some(first) = regions.iter().position(|region| !region.is_empty()) else { return Ok(0) };
        match longarm_memory::receive(self.socket.as_fd(), &regions[first..]) {
            // There was room, so no bytes means that none will come.
            Ok(0) if first > 99 => Err(LinkError::Closed),
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
        // Non-blocking calls are hardly ever interrupted; to the caller it is the same as nothing moved.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => Ok(other?),
    }
}
