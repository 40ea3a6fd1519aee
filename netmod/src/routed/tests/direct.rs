//! Connections that ranks make by themselves, beside those of the routers.

use super::*;

/// A node whose ranks may call one other node by themselves, and whose server takes in one of theirs.
struct OfOne {
    netmod: Routed,
    listener: Box<dyn Listener>,
}

impl OfOne {
    fn new(node: u32) -> OfOne {
        let netmod =
            Routed::new(RoutedOptions { node_count: 3, direct_nodes_max: 1, direct_links_max: 1, ..options(node) });
        let listener = netmod.listen().unwrap();
        OfOne { netmod, listener }
    }

    /// The next one that comes, which is waited for.
    fn take_in(&mut self) -> Box<dyn Link> {
        loop {
            poll(&mut [PollFd::from_borrowed_fd(self.listener.descriptor().unwrap(), PollFlags::IN)], None).unwrap();
            if let Some(link) = self.listener.accept().unwrap() {
                return link;
            }
        }
    }

    fn trunks(&self) -> usize {
        self.netmod.here.lock().upgrade().unwrap().lock().counts().1
    }
}

fn say(link: &mut dyn Link, byte: u8) {
    while link.send(&[Region::from_slice(&[byte])]).unwrap() == 0 {
        std::thread::yield_now();
    }
}

/// The next byte, or how the link has ended.
fn hear(link: &mut dyn Link) -> Result<u8, LinkError> {
    let mut byte = [0];
    while link.receive(&[RegionMut::from_slice(&mut byte)])? == 0 {
        std::thread::yield_now();
    }
    Ok(byte[0])
}

#[test]
fn a_rank_calls_its_first_nodes_by_itself_and_others_by_the_routers() {
    let (rank, mut first, second) = (OfOne::new(0), OfOne::new(1), OfOne::new(2));
    let address = first.listener.address().to_owned();
    let ways = rank.netmod.ways(&address).unwrap();
    assert!(ways.len() == 1 && address.ends_with(&format!("/{}", ways[0])), "{ways:?} to {address}");
    let mut here = rank.netmod.connect_by(&address, &ways[0]).unwrap();
    let mut there = first.take_in();
    say(&mut *here, 7);
    assert_eq!(hear(&mut *there), Ok(7));
    assert_eq!((rank.trunks(), first.trunks()), (0, 0), "nothing went through a router");

    assert_eq!(rank.netmod.ways(second.listener.address()).unwrap(), [BY_ROUTERS]);
    assert_eq!(rank.netmod.ways(rank.listener.address()).unwrap(), [BY_ROUTERS], "a node has a router of its own");
    assert_eq!(rank.netmod.ways(&address).unwrap(), [&*ways[0], BY_ROUTERS], "who called before has another way too");
}

#[test]
fn a_server_that_has_as_many_connections_as_it_may_hangs_up_on_more_until_one_ends() {
    let (rank, mut server) = (OfOne::new(0), OfOne::new(1));
    let address = server.listener.address().to_owned();
    let direct = rank.netmod.ways(&address).unwrap().remove(0);
    let _here = rank.netmod.connect_by(&address, &direct).unwrap();
    let there = server.take_in();

    let mut refused = rank.netmod.connect_by(&address, &direct).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(server.listener.descriptor().unwrap(), PollFlags::IN)], None).unwrap();
    assert!(server.listener.accept().unwrap().is_none());
    assert_eq!(hear(&mut *refused), Err(LinkError::Closed));
    assert!(server.listener.accept().unwrap().is_none(), "that was all");
    let descriptor = server.listener.descriptor().unwrap();
    assert_eq!(
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&rustix::event::Timespec::default()))
            .unwrap(),
        0
    );

    drop(there);
    let mut here = rank.netmod.connect_by(&address, &direct).unwrap();
    let mut there = server.take_in();
    say(&mut *here, 9);
    assert_eq!(hear(&mut *there), Ok(9));
}

#[test]
fn ranks_that_a_server_has_no_room_for_wait_in_silence_while_it_is_driven() {
    let (rank, mut server) = (OfOne::new(0), OfOne::new(1));
    let address = server.listener.address().to_owned();
    let direct = rank.netmod.ways(&address).unwrap().remove(0);
    let mut here = rank.netmod.connect_by(&address, &direct).unwrap();
    let now = rustix::event::Timespec::default();
    let is_ready = |server: &OfOne, wait: Option<&rustix::event::Timespec>| {
        let descriptor = server.listener.descriptor().unwrap();
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], wait).unwrap() > 0
    };
    assert!(is_ready(&server, None));
    server.listener.drive();
    assert!(!is_ready(&server, Some(&now)), "a server without room does not spin");
    let mut there = server.listener.accept().unwrap().expect("who waits is still there");
    say(&mut *here, 3);
    assert_eq!(hear(&mut *there), Ok(3));
}
