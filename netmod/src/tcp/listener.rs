//! A listening socket on a port that the kernel picks.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{acceptfrom_with, bind, listen};

use super::link::{TcpLink, Unproven};
use super::{TcpOptions, socket};
use crate::endpoint::{Link, LinkError, Listener};

/// Connections that may wait to be accepted: a whole large node that calls at once. The kernel caps it.
const BACKLOG: i32 = 4096;

/// A [`Listener`] over TCP.
pub(super) struct TcpListener {
    socket: OwnedFd,
    address: String,
    /// Of each connection that is accepted.
    unproven: Unproven,
}

impl TcpListener {
    pub(super) fn open(interface: IpAddr, options: &TcpOptions) -> Result<Self, LinkError> {
        let socket = socket::open(interface, options.socket_buffers)?;
        let unproven = Unproven::choose(&socket, options)?;
        bind(&socket, &SocketAddr::new(interface, 0))?;
        listen(&socket, BACKLOG)?;
        let address = socket::local_address(&socket)?.to_string();
        Ok(Self { socket, address, unproven })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        loop {
            let (socket, remote) = match acceptfrom_with(&self.socket, socket::FLAGS) {
                Ok((socket, Some(remote))) => (socket, remote),
                Err(Errno::AGAIN) => return Ok(None),
                // accept(2): an error that waits on the new connection, or a caller that has gone, is not ours.
                Ok((_, None)) => continue,
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN | Errno::NOPROTOOPT) => continue,
                Err(Errno::HOSTDOWN | Errno::NONET | Errno::HOSTUNREACH | Errno::NETUNREACH) => continue,
                Err(errno) => return Err(errno.into()),
            };
            // Who is gone already fails here, and is skipped too.
            let (Ok(()), Ok(remote)) = (socket::tune(&socket), SocketAddr::try_from(remote)) else { continue };
            return Ok(Some(Box::new(TcpLink::new(socket, remote, self.unproven.clone()))));
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn address(&self) -> &str {
        &self.address
    }
}
