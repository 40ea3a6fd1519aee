//! How the netmod uses the network.

use super::congestion::Congestion;
use super::interface::Interface;

/// See the module.
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
