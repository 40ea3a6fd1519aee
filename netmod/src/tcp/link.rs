//! One TCP connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use rustix::io::Errno;

use super::options::{SocketBuffers, TcpOptions};
use super::{congestion, socket};
use crate::link_error::{LinkError, moved};
use crate::traits::Link;

/// What is settled when the way is known.
#[derive(Clone)]
pub(super) struct Unproven {
    /// Buffers are chosen by the round trip.
    chooses_buffers: bool,
    /// What the system would have, where something else was chosen for a short way.
    congestion: Option<Arc<str>>,
}

impl Unproven {
    /// Of a fresh socket, and of those that it accepts.
    pub(super) fn choose(socket: &OwnedFd, options: &TcpOptions) -> Result<Self, LinkError> {
        let chooses_buffers = options.socket_buffers == SocketBuffers::ByRoundTrip;
        Ok(Self { chooses_buffers, congestion: options.congestion.choose(socket)? })
    }
}

/// A [`Link`] over TCP.
pub(super) struct TcpLink {
    socket: OwnedFd,
    remote: SocketAddr,
    peer_name: String,
    /// Where it is being connected to; `None` once it is.
    connecting: Option<SocketAddr>,
    unproven: Unproven,
}

impl TcpLink {
    pub(super) fn new(socket: OwnedFd, remote: SocketAddr, unproven: Unproven) -> Self {
        Self { socket, remote, peer_name: remote.to_string(), connecting: None, unproven }
    }

    /// Begins to connect a fresh socket.
    pub(super) fn connect(socket: OwnedFd, remote: SocketAddr, unproven: Unproven) -> Result<Self, LinkError> {
        let mut link = Self { connecting: Some(remote), ..Self::new(socket, remote, unproven) };
        link.settle()?;
        Ok(link)
    }

    /// Whether both ends have one address.
    fn is_on_this_machine(&self) -> bool {
        socket::local_address(&self.socket).is_ok_and(|local| local.ip() == self.remote.ip())
    }

    /// Whether it is connected; asks the kernel while it is not.
    fn settle(&mut self) -> Result<bool, LinkError> {
        let Some(remote) = self.connecting else { return Ok(true) };
        match rustix::net::connect(&self.socket, &remote) {
            Ok(()) | Err(Errno::ISCONN) => {}
            // An interrupted attempt goes on by itself, like one that takes its time.
            Err(Errno::INPROGRESS | Errno::INTR | Errno::ALREADY) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        if socket::local_address(&self.socket)? == remote {
            // On one machine the kernel may lend the very port we call as ours, and TCP then connects to itself.
            return Err(LinkError::Refused);
        }
        self.connecting = None;
        Ok(true)
    }
}

impl Link for TcpLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        if self.connecting.is_some() && !self.settle()? {
            return Ok(0);
        }
        moved(longarm_memory::send(self.socket.as_fd(), regions))
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if regions.iter().all(|region| region.is_empty()) || (self.connecting.is_some() && !self.settle()?) {
            // Nothing can come, and that must not look like the end of the stream.
            return Ok(0);
        }
        match longarm_memory::receive(self.socket.as_fd(), regions) {
            // There was room, so no bytes means that none will come.
            Ok(0) => Err(LinkError::Closed),
            other => moved(other),
        }
    }

    fn on_proven(&mut self) {
        // There the time says only who had the processor.
        if self.remote.ip().is_loopback() || self.is_on_this_machine() {
            return;
        }
        let round_trip_us = longarm_memory::round_trip_us(self.socket.as_fd());
        let short_us = round_trip_us.filter(|us| *us <= socket::ROUND_TRIP_US_MAX);
        if let Some(name) = &self.unproven.congestion
            && short_us.is_none()
        {
            congestion::go_back(&self.socket, name);
        }
        if self.unproven.chooses_buffers
            && let Some(bytes) = short_us.and_then(|us| socket::buffer_bytes(us, socket::buffer_bytes_max()))
        {
            // If that is refused the kernel goes on choosing, which is only slower.
            let _ = socket::set_buffers(&self.socket, bytes);
        }
    }

    fn stands_alone(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn peer_name(&self) -> &str {
        &self.peer_name
    }
}
