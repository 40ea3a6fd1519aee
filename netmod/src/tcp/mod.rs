//! `tcp`: any network. Vectored sends from the caller's memory, vectored receives straight into it.
//!
//! Sockets are non-blocking, without delay for small writes, and closed on exec. Idle connections are probed, so
//! that a machine that vanished silently is noticed. No limit is set on how long sent bytes may stay unacknowledged:
//! a peer that is stopped in a debugger is slow, not dead, and deadlines are kept one layer up.

mod congestion;
mod interface;
mod link;
mod listener;
mod options;
mod socket;
mod ways;

use std::net::{IpAddr, Ipv4Addr};

use crate::link_error::LinkError;
use crate::traits::{Capabilities, Link, Listener, Netmod};
pub use congestion::Congestion;
pub use interface::Interface;
use link::{TcpLink, Unproven};
use listener::TcpListener;
pub use options::{SocketBuffers, TcpOptions};

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
