//! Every netmod of this crate passes the suite.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::BorrowedFd;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Capabilities, Congestion, Link, LinkError, Listener, Netmod, Sim, SocketBuffers, Tcp, TcpOptions, conformance,
};

fn tcp(interface: IpAddr, socket_buffers: SocketBuffers) -> Tcp {
    Tcp::new(TcpOptions {
        interfaces: vec![interface.into()],
        socket_buffers,
        congestion: Congestion::ByRoundTrip,
        ..TcpOptions::default()
    })
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
fn tcp_over_several_addresses_conforms() {
    let interfaces = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]].map(|address| IpAddr::from(address).into());
    let tcp = Tcp::new(TcpOptions { interfaces: interfaces.to_vec(), ..TcpOptions::default() });
    assert_eq!(tcp.listen().unwrap().address().split(',').count(), 3);
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

/// What a network does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    /// After every second error it is as if nothing had been.
    GivesAgain,
    TakesAgain,
    /// An end that is abandoned says something.
    SpeaksAtTheEnd,
}

struct WrongNetmod(Tcp, Wrong);

struct WrongListener(Box<dyn Listener>, Wrong);

struct WrongLink {
    link: Box<dyn Link>,
    wrong: Wrong,
    errors: usize,
}

impl WrongLink {
    fn around(link: Box<dyn Link>, wrong: Wrong) -> Box<dyn Link> {
        Box::new(WrongLink { link, wrong, errors: 0 })
    }

    fn forget(&mut self, outcome: Result<usize, LinkError>, wrong: Wrong) -> Result<usize, LinkError> {
        self.errors += usize::from(outcome.is_err());
        if self.wrong == wrong && outcome.is_err() && self.errors.is_multiple_of(2) { Ok(0) } else { outcome }
    }
}

impl Netmod for WrongNetmod {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(WrongListener(self.0.listen()?, self.1)))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        Ok(WrongLink::around(self.0.connect(address)?, self.1))
    }
}

impl Listener for WrongListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        Ok(self.0.accept()?.map(|link| WrongLink::around(link, self.1)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn address(&self) -> &str {
        self.0.address()
    }
}

impl Link for WrongLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let outcome = self.link.send(regions);
        self.forget(outcome, Wrong::TakesAgain)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let outcome = self.link.receive(regions);
        self.forget(outcome, Wrong::GivesAgain)
    }

    fn abandon(&mut self) {
        if self.wrong == Wrong::SpeaksAtTheEnd {
            let _ = self.link.send(&[Region::from_slice(b"?")]);
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn peer_name(&self) -> &str {
        self.link.peer_name()
    }
}

#[test]
#[should_panic(expected = "a link that has failed gives nothing more")]
fn a_link_that_gives_again_after_an_error_does_not_conform() {
    conformance(&WrongNetmod(Tcp::new(TcpOptions::default()), Wrong::GivesAgain));
}

#[test]
#[should_panic(expected = "a link that has failed takes nothing more")]
fn a_link_that_takes_again_after_an_error_does_not_conform() {
    conformance(&WrongNetmod(Tcp::new(TcpOptions::default()), Wrong::TakesAgain));
}

#[test]
#[should_panic(expected = "bytes arrive that nobody sent")]
fn a_link_that_says_something_when_it_is_abandoned_does_not_conform() {
    conformance(&WrongNetmod(Tcp::new(TcpOptions::default()), Wrong::SpeaksAtTheEnd));
}
