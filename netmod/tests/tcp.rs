//! What `tcp` promises beyond the suite.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Congestion, Interest, Link, LinkError, Listener, Netmod, Poller, SocketBuffers, Tcp, TcpOptions};
use rustix::net::{Protocol, ipproto, sockopt};

fn accept(listener: &mut dyn Listener) -> Box<dyn Link> {
    loop {
        if let Some(link) = listener.accept().unwrap() {
            return link;
        }
        thread::yield_now();
    }
}

fn pair(tcp: &Tcp) -> (Box<dyn Link>, Box<dyn Link>) {
    let mut listener = tcp.listen().unwrap();
    let caller = tcp.connect(listener.address()).unwrap();
    let called = accept(&mut *listener);
    (caller, called)
}

fn wait_readable(descriptor: BorrowedFd<'_>) {
    let poller = Poller::new().unwrap();
    poller.add(descriptor, 0, Interest::READABLE).unwrap();
    poller.wait(&mut Vec::new(), None).unwrap();
}

#[test]
fn sockets_of_both_ends_are_set_up_alike() {
    let bytes = 50_000;
    let tcp = Tcp::new(TcpOptions { socket_buffers: SocketBuffers::Fixed(bytes), ..TcpOptions::default() });
    let (caller, called) = pair(&tcp);
    for link in [caller, called] {
        let socket = link.descriptor().unwrap();
        assert!(sockopt::tcp_nodelay(socket).unwrap());
        assert!(sockopt::socket_keepalive(socket).unwrap());
        let intervals = (sockopt::tcp_keepidle(socket).unwrap(), sockopt::tcp_keepintvl(socket).unwrap());
        assert_eq!(intervals, (Duration::from_secs(10), Duration::from_secs(5)));
        assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), 4);
        assert!(rustix::io::fcntl_getfd(socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(socket).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        // Linux doubles what it is asked for.
        assert_eq!(sockopt::socket_send_buffer_size(socket).unwrap(), 2 * bytes);
        assert_eq!(sockopt::socket_recv_buffer_size(socket).unwrap(), 2 * bytes);
    }
}

/// The rules by which both ends send, once they know each other.
fn rules(congestion: Congestion) -> [String; 2] {
    let (mut caller, mut called) = pair(&Tcp::new(TcpOptions { congestion, ..TcpOptions::default() }));
    caller.on_proven();
    called.on_proven();
    [caller, called].map(|link| sockopt::tcp_congestion(link.descriptor().unwrap()).unwrap())
}

#[test]
fn both_ends_of_a_short_way_send_by_a_rule_that_is_not_made_for_long_ones() {
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let system = system.trim();
    assert_eq!(rules(Congestion::Kernel), [system, system]);
    assert_eq!(rules(Congestion::Named("reno".into())), ["reno", "reno"]);
    let is_long = system == "cubic" || system.starts_with("bbr");
    let chosen = if is_long { "reno" } else { system };
    assert_eq!(rules(Congestion::ByRoundTrip), [chosen, chosen]);
    let unknown = Congestion::Named("nobody-knows-it".into());
    let tcp = Tcp::new(TcpOptions { congestion: unknown, ..TcpOptions::default() });
    assert!(matches!(tcp.listen().err(), Some(LinkError::System { .. })));
}

/// The address from which this machine reaches others, if it has one. Nothing is sent.
fn address_for_others() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

fn protocol(link: &dyn Link) -> Option<Protocol> {
    sockopt::socket_protocol(link.descriptor().unwrap()).unwrap()
}

#[test]
fn connections_are_of_multipath_tcp_where_it_was_asked_for_and_both_ends_have_it() {
    let Some(address) = address_for_others() else {
        println!(
            "SKIPPED: connections_are_of_multipath_tcp_where_it_was_asked_for_and_both_ends_have_it: there is no address but the loopback's"
        );
        return;
    };
    let tcp = |multipath| Tcp::new(TcpOptions { interfaces: vec![address.into()], multipath, ..TcpOptions::default() });
    let is_on = std::fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
    if !is_on {
        assert_eq!(tcp(true).listen().err(), Some(LinkError::NoMultipath));
        return;
    }
    let (caller, called) = pair(&tcp(true));
    assert_eq!([protocol(&*caller), protocol(&*called)], [Some(ipproto::MPTCP); 2]);
    // A caller that was told otherwise is served too, and so is one by a listener that was.
    for (calls, listens) in [(false, true), (true, false)] {
        let mut listener = tcp(listens).listen().unwrap();
        let mut caller = tcp(calls).connect(listener.address()).unwrap();
        let mut called = accept(&mut *listener);
        // It may still be connecting.
        while caller.send(&[Region::from_slice(b"over")]).unwrap() == 0 {
            thread::yield_now();
        }
        wait_readable(called.descriptor().unwrap());
        assert_eq!(called.receive(&[RegionMut::from_slice(&mut [0; 8])]), Ok(4));
    }
}

#[test]
fn the_loopback_is_never_of_multipath_tcp() {
    let (caller, called) = pair(&Tcp::new(TcpOptions { multipath: true, ..TcpOptions::default() }));
    assert_eq!([protocol(&*caller), protocol(&*called)], [Some(ipproto::TCP); 2]);
}

#[test]
fn peers_are_named_by_address_and_port() {
    let mut listener = Tcp::new(TcpOptions::default()).listen().unwrap();
    let caller = Tcp::new(TcpOptions::default()).connect(listener.address()).unwrap();
    let called = accept(&mut *listener);
    assert!(listener.address().starts_with("127.0.0.1:"));
    assert_eq!(caller.peer_name(), listener.address());
    assert!(called.peer_name().starts_with("127.0.0.1:"));
    assert_ne!(called.peer_name(), listener.address());
}

#[test]
fn an_interface_that_peers_cannot_connect_to_is_refused() {
    let nowhere =
        [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1))];
    for interface in nowhere {
        let tcp = Tcp::new(TcpOptions { interfaces: vec![interface.into()], ..TcpOptions::default() });
        assert_eq!(tcp.listen().err(), Some(LinkError::BadAddress));
    }
    // An address of documentation, which no machine has.
    let elsewhere = vec![IpAddr::V4(Ipv4Addr::new(203, 0, 113, 77)).into()];
    let tcp = Tcp::new(TcpOptions { interfaces: elsewhere, ..TcpOptions::default() });
    assert!(matches!(tcp.listen().err(), Some(LinkError::System { .. })));
}

/// A netmod that listens at these addresses.
fn at(addresses: &[&str]) -> Tcp {
    let interfaces = addresses.iter().map(|address| address.parse::<IpAddr>().unwrap().into()).collect();
    Tcp::new(TcpOptions { interfaces, ..TcpOptions::default() })
}

#[test]
fn a_listener_is_reached_at_each_of_its_addresses_and_at_no_other() {
    let tcp = at(&["127.0.0.1", "127.0.0.2"]);
    let mut listener = tcp.listen().unwrap();
    let address = listener.address().to_owned();
    let ways = tcp.ways(&address).unwrap();
    assert_eq!(ways.join(","), address, "both, in the order in which they were asked for");
    assert!(ways[0].starts_with("127.0.0.1:") && ways[1].starts_with("127.0.0.2:"), "{address}");
    let mut callers = Vec::new();
    for way in ways.iter().rev() {
        let mut caller = tcp.connect_by(&address, way).unwrap();
        assert_eq!(caller.peer_name(), way);
        // Nothing else becomes readable there, so this returns only because the listener's descriptor tells of both.
        wait_readable(listener.descriptor().unwrap());
        let mut called = accept(&mut *listener);
        assert_eq!(caller.send(&[Region::from_slice(b"x")]), Ok(1));
        wait_readable(called.descriptor().unwrap());
        assert_eq!(called.receive(&[RegionMut::from_slice(&mut [0; 8])]), Ok(1));
        callers.push((caller, called));
    }
    assert!(listener.accept().unwrap().is_none());
    for (way, elsewhere) in ways.iter().zip(["127.0.0.3", "127.0.0.1"]) {
        let port = way.rsplit_once(':').unwrap().1;
        let outcome = TcpStream::connect(format!("{elsewhere}:{port}"));
        // Another test may have that port there; this listener has not.
        drop(outcome);
        assert!(listener.accept().unwrap().is_none(), "{way} is reached at {elsewhere}");
    }
}

#[test]
fn those_who_come_to_one_address_do_not_keep_out_those_who_come_to_another() {
    let tcp = at(&["127.0.0.1", "127.0.0.2"]);
    let mut listener = tcp.listen().unwrap();
    let address = listener.address().to_owned();
    let ways = tcp.ways(&address).unwrap();
    let _crowd: Vec<_> = (0..20).map(|_| tcp.connect_by(&address, &ways[0]).unwrap()).collect();
    let single = tcp.connect_by(&address, &ways[1]).unwrap();
    let name = rustix::net::getsockname(single.descriptor().unwrap()).unwrap();
    let name = std::net::SocketAddr::try_from(name).unwrap().to_string();
    let place = (0..21).position(|_| accept(&mut *listener).peer_name() == name);
    assert!(place.unwrap() < 2, "it stands behind {place:?} others");
}

#[test]
fn an_address_that_cannot_be_had_is_left_out_where_there_are_others() {
    let listener = at(&["203.0.113.77", "127.0.0.2"]).listen().unwrap();
    assert!(listener.address().starts_with("127.0.0.2:"), "{}", listener.address());
    assert!(!listener.address().contains(','), "{}", listener.address());
}

#[test]
fn ipv6_and_ipv4_stand_side_by_side() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("SKIPPED: no IPv6 on this machine");
        return;
    }
    let tcp = at(&["::1", "127.0.0.1"]);
    let mut listener = tcp.listen().unwrap();
    let address = listener.address().to_owned();
    let ways = tcp.ways(&address).unwrap();
    assert!(ways[0].starts_with("[::1]:") && ways[1].starts_with("127.0.0.1:"), "{address}");
    for way in ways {
        let _caller = tcp.connect_by(&address, &way).unwrap();
        let called = accept(&mut *listener);
        assert_eq!(called.peer_name().starts_with("[::1]:"), way.starts_with("[::1]:"));
    }
}

#[test]
fn a_close_with_unread_bytes_is_a_reset_at_the_other_end() {
    let (mut caller, called) = pair(&Tcp::new(TcpOptions::default()));
    assert_eq!(caller.send(&[Region::from_slice(b"nobody reads this")]), Ok(17));
    wait_readable(called.descriptor().unwrap());
    drop(called);
    wait_readable(caller.descriptor().unwrap());
    assert_eq!(caller.receive(&[RegionMut::from_slice(&mut [0; 8])]), Err(LinkError::Reset));
}

#[test]
fn callers_that_gave_up_do_not_stop_the_next_from_being_accepted() {
    let tcp = Tcp::new(TcpOptions::default());
    let mut listener = tcp.listen().unwrap();
    for _ in 0..20 {
        drop(tcp.connect(listener.address()).unwrap());
    }
    let mut caller = tcp.connect(listener.address()).unwrap();
    caller.send(&[Region::from_slice(b"x")]).unwrap();
    let found = (0..21).any(|_| {
        let mut link = accept(&mut *listener);
        wait_readable(link.descriptor().unwrap());
        link.receive(&[RegionMut::from_slice(&mut [0; 8])]) == Ok(1)
    });
    assert!(found, "the one that stayed is reached");
}

#[test]
fn a_port_never_connects_to_itself() {
    // The kernel lends ports to callers one after the other. If nobody listens at one of them, a call to it is lent
    // that very port some time, and TCP then connects to itself. So call once for each port there is, at a port of
    // either parity, as the kernel prefers one of them for callers.
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let range: Vec<u16> = range.split_whitespace().map(|port| port.parse().unwrap()).collect();
    let middle = range[0] + (range[1] - range[0]) / 2;
    let tcp = Tcp::new(TcpOptions::default());
    for port in [middle, middle + 1] {
        for _ in range[0]..=range[1] {
            // A listener of another test may have the port by chance; a link to it is not one to ourselves.
            let Ok(mut link) = tcp.connect(&format!("127.0.0.1:{port}")) else { continue };
            let Ok(1..) = link.send(&[Region::from_slice(b"x")]) else { continue };
            let socket = link.descriptor().unwrap();
            // Such a listener may have closed it by now, which nobody does to one to ourselves.
            let Ok(peer) = rustix::net::getpeername(socket) else { continue };
            assert_ne!(rustix::net::getsockname(socket).unwrap(), peer.unwrap());
        }
    }
}
