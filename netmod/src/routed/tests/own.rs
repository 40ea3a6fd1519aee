//! Connections that ranks make by themselves, past the routers.

use rustix::event::Timespec;

use super::*;

/// A node whose ranks may have one connection of their own, and whose server takes in one of theirs.
struct OfOne {
    netmod: Routed,
    listener: Box<dyn Listener>,
}

impl OfOne {
    fn new(node: u32) -> OfOne {
        let netmod = Routed::new(RoutedOptions { node_count: 3, own_nodes_max: 1, own_links_max: 1, ..options(node) });
        let listener = netmod.listen().unwrap();
        OfOne { netmod, listener }
    }

    /// Whether somebody comes within this time.
    fn is_ready(&self, limit: Option<&Timespec>) -> bool {
        poll(&mut [PollFd::from_borrowed_fd(self.listener.descriptor().unwrap(), PollFlags::IN)], limit).unwrap() > 0
    }

    /// The next one that comes, which is waited for.
    fn take_in(&mut self) -> Box<dyn Link> {
        loop {
            self.is_ready(None);
            if let Some(link) = self.listener.accept().unwrap() {
                return link;
            }
        }
    }

    fn trunks(&self) -> usize {
        self.netmod.here.lock().upgrade().unwrap().lock().counts().1
    }
}

/// A rank's node, another one, the other one's address, and the way there past the routers.
fn rank_and_server() -> (OfOne, OfOne, String, String) {
    let (rank, server) = (OfOne::new(0), OfOne::new(1));
    let address = server.listener.address().to_owned();
    let ways = rank.netmod.ways(&address).unwrap();
    assert!(ways.len() == 1 && address.ends_with(&format!("/{}", ways[0])), "{ways:?} to {address}");
    (rank, server, address, ways[0].clone())
}

/// Whether a byte that is said here is heard there. `drive` does what has to be done meanwhile.
fn leads(here: &mut dyn Link, there: &mut dyn Link, mut drive: impl FnMut()) -> bool {
    while here.send(&[Region::from_slice(&[7])]).unwrap() == 0 {
        drive();
    }
    loop {
        match hear(there) {
            Ok(None) => drive(),
            heard => return heard == Ok(Some(7)),
        }
    }
}

fn hear(link: &mut dyn Link) -> Result<Option<u8>, LinkError> {
    let mut byte = [0];
    let got = link.receive(&[RegionMut::from_slice(&mut byte)])?;
    Ok((got > 0).then_some(byte[0]))
}

#[test]
fn a_rank_calls_its_first_nodes_by_itself_and_others_by_the_routers() {
    let (rank, mut first, address, own) = rank_and_server();
    let mut here = rank.netmod.connect_by(&address, &own).unwrap();
    let mut there = first.take_in();
    assert!(leads(&mut *here, &mut *there, std::thread::yield_now));
    assert_eq!((rank.trunks(), first.trunks()), (0, 0), "nothing went through a router");

    let _own = rank.netmod.connect(rank.listener.address()).unwrap();
    assert_eq!(rank.trunks(), 0, "a node calls its own server without a trunk");
    let second = OfOne::new(2);
    assert_eq!(rank.netmod.ways(second.listener.address()).unwrap(), [BY_ROUTERS]);
    assert_eq!(rank.netmod.ways(rank.listener.address()).unwrap(), [BY_ROUTERS], "a node has a router of its own");
    assert_eq!(rank.netmod.ways(&address).unwrap(), [&*own, BY_ROUTERS], "who called before has another way too");
}

#[test]
fn a_server_that_has_as_many_connections_as_it_may_hangs_up_on_more_which_go_by_the_routers() {
    let (mut rank, mut server, address, own) = rank_and_server();
    let _here = rank.netmod.connect_by(&address, &own).unwrap();
    let first = server.take_in();

    let mut refused = rank.netmod.connect_by(&address, &own).unwrap();
    server.is_ready(None);
    assert!(server.listener.accept().unwrap().is_none());
    let end = loop {
        match hear(&mut *refused) {
            Ok(None) => std::thread::yield_now(),
            end => break end,
        }
    };
    assert_eq!(end, Err(LinkError::Closed));
    assert!(server.listener.accept().unwrap().is_none(), "that was all");
    assert!(!server.is_ready(Some(&Timespec::default())));

    let mut here = rank.netmod.connect_by(&address, BY_ROUTERS).unwrap();
    let mut there = loop {
        rank.listener.drive();
        if let Some(link) = server.listener.accept().unwrap() {
            break link;
        }
    };
    assert!(leads(&mut *here, &mut *there, || {
        rank.listener.drive();
        server.listener.drive();
    }));
    assert_eq!((rank.trunks(), server.trunks()), (1, 1));

    drop(first);
    let mut here = rank.netmod.connect_by(&address, &own).unwrap();
    let mut there = server.take_in();
    assert!(leads(&mut *here, &mut *there, std::thread::yield_now), "there is a place again");
}

#[test]
fn ranks_that_a_server_has_no_room_for_wait_in_silence_while_it_is_driven() {
    let (rank, mut server, address, own) = rank_and_server();
    let mut here = rank.netmod.connect_by(&address, &own).unwrap();
    assert!(server.is_ready(None));
    server.listener.drive();
    assert!(!server.is_ready(Some(&Timespec::default())), "a server without room does not spin");
    let mut there = server.listener.accept().unwrap().expect("who waits is still there");
    assert!(leads(&mut *here, &mut *there, std::thread::yield_now));
}

/// TCP that says that it has a device, or why it has none.
struct MockDevices(Tcp, Result<(), NoDeviceRmw>);

impl Netmod for MockDevices {
    fn name(&self) -> &'static str {
        "mock devices"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: true, ..self.0.capabilities() }
    }

    fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        self.1
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        self.0.listen()
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        self.0.connect(address)
    }
}

#[test]
fn no_channel_takes_the_place_of_a_connection_over_which_devices_reach_memory() {
    let with = |device, node, own_links_max| {
        let netmod = Arc::new(MockDevices(Tcp::new(TcpOptions::default()), device));
        Routed::new(RoutedOptions { netmod, own_nodes_max: 1, own_links_max, ..options(node) })
    };
    let of = |node, own_links_max| with(Err(NoDeviceRmw::Iwarp), node, own_links_max);
    let (rank, server) = (of(0, 1), of(1, 1));
    assert!(rank.capabilities().remote_memory && !of(0, 0).capabilities().remote_memory);
    let shared_only = of(0, 0).listen().unwrap().address().to_owned();
    assert_eq!(of(2, 0).ways(&shared_only).unwrap(), [BY_ROUTERS], "where ranks have no connections of their own");
    let mut listener = server.listen().unwrap();
    let address = listener.address().to_owned();
    let own = rank.ways(&address).unwrap();
    assert_eq!(rank.ways(&address).unwrap(), own, "also when it was called before");
    let without = with(Err(NoDeviceRmw::NoDevice), 0, 1);
    assert_eq!(without.ways(&address).unwrap(), own);
    assert_eq!(
        without.ways(&address).unwrap(),
        [&*own[0], BY_ROUTERS],
        "nothing is under way where there is no device"
    );
    let _connections = [0; 3].map(|_| {
        let here = rank.connect_by(&address, &own[0]).unwrap();
        poll(&mut [PollFd::from_borrowed_fd(listener.descriptor().unwrap(), PollFlags::IN)], None).unwrap();
        (here, listener.accept().unwrap().expect("whoever calls is taken in"))
    });
}
