//! Every netmod of this crate passes the suite.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use longarm_netmod::{Congestion, Netmod, Sim, SocketBuffers, Tcp, TcpOptions, conformance};

fn tcp(interface: IpAddr, socket_buffers: SocketBuffers) -> Tcp {
    Tcp::new(TcpOptions { interface: Some(interface), socket_buffers, congestion: Congestion::ByRoundTrip })
}

#[test]
fn tcp_over_ipv4_conforms() {
    conformance(&tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), SocketBuffers::Kernel));
    conformance(&tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), SocketBuffers::ByRoundTrip));
}

#[test]
fn tcp_with_the_smallest_buffers_conforms() {
    conformance(&tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), SocketBuffers::Fixed(1)));
}

#[test]
fn tcp_over_ipv6_conforms() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("no IPv6 on this machine: nothing is tested");
        return;
    }
    let tcp = tcp(IpAddr::V6(Ipv6Addr::LOCALHOST), SocketBuffers::Kernel);
    let listener = tcp.listen().unwrap();
    assert!(listener.address().starts_with("[::1]:"), "{}", listener.address());
    conformance(&tcp);
}

#[test]
fn sim_conforms_with_every_seed() {
    for seed in 0..100 {
        // Shown only if the suite fails.
        println!("seed {seed}");
        conformance(&Sim::new(seed));
    }
}
