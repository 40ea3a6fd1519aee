//! `tcp`: any network. Vectored sends from the caller's memory, vectored receives straight into it.
//!
//! Sockets are non-blocking, without delay for small writes, and closed on exec. Idle connections are probed, so
//! that a machine that vanished silently is noticed. No limit is set on how long sent bytes may stay unacknowledged:
//! a peer that is stopped in a debugger is slow, not dead, and who has a deadline keeps it one layer up.

mod congestion;
mod interface;
mod link;
mod listener;
mod socket;
mod ways;

use std::net::{IpAddr, Ipv4Addr};

use crate::endpoint::{Capabilities, Link, LinkError, Listener, Netmod};
pub use congestion::Congestion;
pub use interface::Interface;
use link::{TcpLink, Unproven};
use listener::TcpListener;

/// How the netmod uses the network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// The addresses that peers reach this process at, best first. None is 127.0.0.1: this machine only.
    pub interfaces: Vec<Interface>,
    /// The kernel's send and receive buffer of each connection.
    pub socket_buffers: SocketBuffers,
    /// By which rule each connection finds out how much it may send at once.
    pub congestion: Congestion,
    /// Connections to other machines are of Multipath TCP (RFC 8684), and so spread over all the networks that the system was told
    /// to use. An end that has none goes on as plain TCP.
    pub multipath: bool,
}

/// How large the kernel's buffers of a connection are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SocketBuffers {
    /// The kernel lets them grow as it finds right.
    #[default]
    Kernel,
    /// So many bytes each. The kernel doubles it for its own use, and caps it.
    Fixed(usize),
    /// As many bytes as 40 Gbit/s carry in this connection's round trip, at least 512 KiB; larger buffers only fall out of the caches. As
    /// `Kernel` between two ends of one address, where the round trip is longer than 200 µs, and where so much may not be
    /// asked for (`net.core.rmem_max` and `wmem_max`).
    ByRoundTrip,
}

/// The `tcp` netmod, over IPv4 and IPv6. Addresses are `192.0.2.1:4000`, `[2001:db8::1]:4000`, and several with commas between: a
/// listener has a socket for each of its addresses, and each leads to it.
#[derive(Clone, Debug)]
pub struct Tcp {
    options: TcpOptions,
}

impl Tcp {
    /// A netmod with these options. Opens nothing yet.
    pub fn new(options: TcpOptions) -> Self {
        Self { options }
    }
}

impl Netmod for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: false, descriptor_sleep: true }
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let loopback = [Interface::from(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        let interfaces = if self.options.interfaces.is_empty() { &loopback[..] } else { &self.options.interfaces };
        Ok(Box::new(TcpListener::open(interfaces, &self.options)?))
    }

    fn ways(&self, address: &str) -> Result<Vec<String>, LinkError> {
        ways::ways(address, &self.options.interfaces)
    }

    fn connect_by(&self, _: &str, way: &str) -> Result<Box<dyn Link>, LinkError> {
        let remote = ways::parse(way)?;
        let socket = socket::open(remote.ip(), &self.options)?;
        let unproven = Unproven::choose(&socket, &self.options)?;
        Ok(Box::new(TcpLink::connect(socket, remote, unproven)?))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let ways = self.ways(address)?;
        self.connect_by(address, &ways[0])
    }
}
