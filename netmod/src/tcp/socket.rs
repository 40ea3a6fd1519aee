//! Makes sockets that are set up as all of ours are.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socket_with, sockopt};

use super::options::{SocketBuffers, TcpOptions};
use crate::link_error::LinkError;

/// For how long a connection may be silent before the kernel asks whether the other end is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// How long it waits between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How many of them may stay without answer.
const KEEPALIVE_COUNT: u32 = 4;

/// The flags of every socket, whether opened or accepted.
pub(super) const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// What one connection carries in a microsecond on a quick network: 40 Gbit/s.
const BYTES_A_US: usize = 5_000;
/// With smaller ones the two ends wait for each other: neither processor is always there.
const BUFFER_BYTES_MIN: usize = 512 << 10;
/// On a longer way than this the kernel knows better how fast it is.
pub(super) const ROUND_TRIP_US_MAX: u32 = 200;

/// A socket of the family of `ip`. Buffer sizes are set before anybody connects or listens, as the window that TCP
/// can offer is fixed at that moment; accepted sockets inherit them.
pub(super) fn open(ip: IpAddr, options: &TcpOptions) -> Result<OwnedFd, LinkError> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // Nothing is gained on one machine.
    let is_multipath = options.multipath && !ip.is_loopback();
    let protocol = if is_multipath { ipproto::MPTCP } else { ipproto::TCP };
    let socket = match socket_with(family, SocketType::STREAM, FLAGS, Some(protocol)) {
        // The first is said where it is switched off, the second by a kernel without it.
        Err(Errno::NOPROTOOPT | Errno::PROTONOSUPPORT) if is_multipath => return Err(LinkError::NoMultipath),
        other => other?,
    };
    if let SocketBuffers::Fixed(bytes) = options.socket_buffers {
        set_buffers(&socket, bytes)?;
    }
    tune(&socket)?;
    Ok(socket)
}

/// The buffers of a connection of [`SocketBuffers::ByRoundTrip`] whose round trip is not long. `None`: the kernel's choice,
/// which may grow beyond what it lets anybody ask for.
pub(super) fn buffer_bytes(round_trip_us: u32, bytes_max: usize) -> Option<usize> {
    let bytes = (BYTES_A_US * round_trip_us as usize).max(BUFFER_BYTES_MIN);
    (bytes <= bytes_max).then_some(bytes)
}

/// The largest buffers that may be asked for: more is cut silently, and the kernel then chooses no longer. 0 if that is not
/// known.
pub(super) fn buffer_bytes_max() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let read = |name| std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok();
        ["rmem_max", "wmem_max"].map(|name| read(name).unwrap_or(0)).into_iter().min().unwrap_or(0)
    })
}

/// Fixes both buffers.
pub(super) fn set_buffers(socket: &OwnedFd, bytes: usize) -> Result<(), LinkError> {
    sockopt::set_socket_send_buffer_size(socket, bytes)?;
    sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    Ok(())
}

/// Sets options that accepted sockets inherit, except over multipath TCP.
pub(super) fn tune(socket: &OwnedFd) -> Result<(), LinkError> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    let intervals = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT));
    match intervals {
        // Multipath TCP of older kernels has its own intervals only. Who is silent is noticed one layer up, too.
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

/// Our end's address and port.
pub(super) fn local_address(socket: &OwnedFd) -> Result<SocketAddr, LinkError> {
    let address = getsockname(socket)?;
    SocketAddr::try_from(address).map_err(|_| LinkError::from(Errno::AFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_a_round_trip_and_are_left_to_the_kernel_where_it_gives_no_more() {
        assert_eq!(buffer_bytes(1, usize::MAX), Some(BUFFER_BYTES_MIN));
        assert_eq!(buffer_bytes(ROUND_TRIP_US_MAX, usize::MAX), Some(1_000_000));
        // More than may be asked for would be cut, and would never grow.
        assert_eq!((buffer_bytes(150, 750_000), buffer_bytes(151, 750_000)), (Some(750_000), None));
    }
}
