//! Where rank 0 listens for the others of its job, if all of them are told that place.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// How many may wait until they are taken in.
const BACKLOG: i32 = 4096;

/// At which addresses rank 0 listens.
#[derive(Debug, PartialEq, Eq)]
enum ListenAddresses {
    /// Those that its name stands for, as far as they are this machine's.
    These(Vec<SocketAddr>),
    /// At all of them, at this port.
    Everywhere(u16),
}

/// Listens at a place of this machine that was given as a name or an address with a port, and that stands for these addresses here.
///
/// # Errors
/// What the system says of the last one.
pub(super) fn listen_at(address: &str, addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let these = match addresses_to_bind(address, addresses) {
        ListenAddresses::Everywhere(port) => return Ok(vec![listen_everywhere(port)?]),
        ListenAddresses::These(these) => these,
    };
    let (mut listeners, mut last) = (Vec::new(), io::ErrorKind::AddrNotAvailable.into());
    for address in these {
        match listen_to(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) => last = error,
        }
    }
    if listeners.is_empty() { Err(last) } else { Ok(listeners) }
}

/// Many hosts have their own name stand for a loopback address (in `/etc/hosts`), which is another thing on every other one.
fn addresses_to_bind(address: &str, addresses: &[SocketAddr]) -> ListenAddresses {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let is_meant = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || is_local(host);
    match addresses.iter().find(|address| address.ip().is_loopback()) {
        Some(loopback) if !is_meant => ListenAddresses::Everywhere(loopback.port()),
        _ => ListenAddresses::These(addresses.to_vec()),
    }
}

/// Whether a name means the loopback wherever it is used.
fn is_local(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost") || host.starts_with("localhost.") || host.starts_with("ip6-")
}

/// Listens at all addresses of both families.
pub(super) fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    // A system without IPv6 has no such sockets.
    listen_at_both(port).or_else(|_| listen_to(SocketAddr::from(([0; 4], port))))
}

/// Listens at an address, and has as many wait there as the system allows, so that those that come at once are not told to try again in a
/// second.
///
/// # Errors
/// What the system says.
pub(super) fn listen_to(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // The standard library listens already, with room for 128.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn listen_at_both(port: u16) -> io::Result<TcpListener> {
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn addresses(of: &[&str]) -> Vec<SocketAddr> {
        of.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn a_name_that_stands_for_the_loopback_on_its_own_host_is_listened_for_everywhere() {
        let own = addresses(&["127.0.1.1:71"]);
        assert_eq!(addresses_to_bind("n1:71", &own), ListenAddresses::Everywhere(71));
        let both = addresses(&["192.0.2.1:71", "127.0.1.1:71"]);
        assert_eq!(addresses_to_bind("n1.example:71", &both), ListenAddresses::Everywhere(71));
        let outside = addresses(&["192.0.2.1:71", "[2001:db8::1]:71"]);
        assert_eq!(addresses_to_bind("n1:71", &outside), ListenAddresses::These(outside.clone()));
    }

    #[test]
    fn who_says_the_loopback_means_it() {
        let own = addresses(&["127.0.0.1:71", "[::1]:71"]);
        for address in
            ["localhost:71", "LOCALHOST.:71", "a.localhost:71", "localhost.localdomain:71", "ip6-localhost:71"]
        {
            assert_eq!(addresses_to_bind(address, &own), ListenAddresses::These(own.clone()), "{address}");
        }
        assert_eq!(addresses_to_bind("127.0.0.1:71", &own[..1]), ListenAddresses::These(own[..1].to_vec()));
        assert_eq!(addresses_to_bind("[::1]:71", &own[1..]), ListenAddresses::These(own[1..].to_vec()));
    }

    #[test]
    fn whoever_listens_everywhere_is_reached_at_every_address() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let listeners = listen_at("n1:0", &[SocketAddr::from(([127, 0, 1, 1], free))]).unwrap();
        assert_eq!(listeners.len(), 1);
        for address in ["127.0.0.1", "127.0.1.1"] {
            TcpStream::connect((address, free)).unwrap();
        }
    }

    #[test]
    fn as_many_wait_to_be_taken_in_as_come_at_once() {
        const CALLERS: usize = 600;
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if most.trim().parse::<usize>().unwrap() < CALLERS {
            eprintln!("skipped: this system lets no more than {} wait", most.trim());
            return;
        }
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let of_name = listen_at("127.0.0.1:0", &[loopback]).unwrap();
        for listener in [&listen_to(loopback).unwrap(), &of_name[0]] {
            let at = listener.local_addr().unwrap();
            let callers: Vec<TcpStream> = (0..CALLERS).map(|_| TcpStream::connect(at).unwrap()).collect();
            // A caller that found no room is on its way for a second and more, and not among these.
            listener.set_nonblocking(true).unwrap();
            assert_eq!(callers.iter().map_while(|_| listener.accept().ok()).count(), CALLERS);
        }
    }

    #[test]
    fn addresses_of_other_machines_are_left_out_and_none_at_all_is_an_error() {
        let some = addresses(&["127.0.0.1:0", "192.0.2.1:0"]);
        assert_eq!(listen_at("127.0.0.1:0", &some).unwrap().len(), 1);
        assert!(listen_at("192.0.2.1:0", &some[1..]).is_err());
    }
}
