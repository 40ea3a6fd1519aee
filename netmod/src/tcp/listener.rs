//! Listening sockets on ports that the kernel picks: one for each address.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{acceptfrom_with, bind, listen};

use super::interface::Interface;
use super::link::{TcpLink, Unproven};
use super::options::TcpOptions;
use super::{socket, ways};
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::poller::Poller;
use crate::traits::{Link, Listener};

/// Connections that may wait to be accepted: a whole large node that calls at once. The kernel caps it.
const BACKLOG: i32 = 4096;
/// Callers that one call turns away. The descriptor stays readable while there are more.
const HANG_UPS_PER_CALL: usize = 64;

/// A [`Listener`] over TCP.
pub(super) struct TcpListener {
    doors: Vec<Socket>,
    /// What to sleep on where there are several.
    poller: Option<Poller>,
    /// Whose turn it is: those who come to one address do not keep out those who come to another.
    next: usize,
    address: String,
    /// Each link that was accepted here holds it.
    counted: Arc<()>,
    links_max: usize,
}

/// One listening socket.
struct Socket {
    socket: OwnedFd,
    address: SocketAddr,
    /// Of each connection that is accepted.
    unproven: Unproven,
    /// Then they do not inherit the options of this socket.
    is_multipath: bool,
}

impl TcpListener {
    /// At all of these addresses that can be had. One that cannot is left out: an IPv6 address that the system has not checked
    /// yet, for instance.
    pub(super) fn open(interfaces: &[Interface], options: &TcpOptions) -> Result<Self, LinkError> {
        let mut doors = Vec::new();
        let mut fault = LinkError::BadAddress;
        for interface in interfaces {
            match Socket::open(interface, options) {
                Ok(socket) => doors.push(socket),
                Err(error) => {
                    if interfaces.len() > 1 {
                        tracing::warn!(address = %interface.address(), "cannot listen there, others are used: {error}");
                    }
                    fault = error;
                }
            }
        }
        let poller = match doors.len() {
            0 => return Err(fault),
            1 => None,
            _ => Some(Poller::new()?),
        };
        if let Some(poller) = &poller {
            for (token, door) in (0..).zip(&doors) {
                poller.add(&door.socket, token, Interest::READABLE)?;
            }
        }
        let addresses: Vec<SocketAddr> = doors.iter().map(|door| door.address).collect();
        Ok(Self {
            doors,
            poller,
            next: 0,
            address: ways::spell(&addresses),
            counted: Arc::new(()),
            links_max: usize::MAX,
        })
    }
}

impl Socket {
    fn open(interface: &Interface, options: &TcpOptions) -> Result<Self, LinkError> {
        let ip = interface.address();
        if ip.is_unspecified() || ip.is_multicast() {
            // Peers connect to what we tell them, and this says nothing about where we are.
            return Err(LinkError::BadAddress);
        }
        let socket = socket::open(ip, options)?;
        let unproven = Unproven::choose(&socket, options)?;
        bind(&socket, &interface.with_port(0))?;
        listen(&socket, BACKLOG)?;
        let address = socket::local_address(&socket)?;
        Ok(Self { socket, address, unproven, is_multipath: options.multipath })
    }

    fn accept(&self) -> Result<Option<TcpLink>, LinkError> {
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
            // Those of TCP inherit all of it: five system calls less for each of thousands.
            let tuned = if self.is_multipath { socket::tune(&socket) } else { Ok(()) };
            // Who is gone already may fail here, and is skipped too.
            let (Ok(()), Ok(remote)) = (tuned, SocketAddr::try_from(remote)) else { continue };
            return Ok(Some(TcpLink::new(socket, remote, self.unproven.clone())));
        }
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        for _ in 0..self.doors.len() {
            let turn = self.next;
            self.next = (turn + 1) % self.doors.len();
            for _ in 0..HANG_UPS_PER_CALL {
                let Some(link) = self.doors[turn].accept()? else { break };
                // One is the listener's own.
                if Arc::strong_count(&self.counted) <= self.links_max {
                    return Ok(Some(Box::new(link.counted(&self.counted))));
                }
            }
        }
        Ok(None)
    }

    fn limit_links(&mut self, max: usize) {
        self.links_max = max;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_ref().map_or_else(|| self.doors[0].socket.as_fd(), |poller| poller.as_fd()))
    }

    fn address(&self) -> &str {
        &self.address
    }
}
