//! Nobody is forgotten who waits for room, or for bytes that no descriptor announces.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::interest::Interest;
use crate::routed::channel::Buffer;

/// Bytes that a hoarding link gives at a time, far fewer than it has taken from the one below.
const GIVEN_BYTES: usize = 50;

/// TCP with links that take nothing while they are shut, or that have brought in more than they have given.
#[derive(Clone)]
struct Odd {
    tcp: Arc<Tcp>,
    is_shut: Arc<AtomicBool>,
    hoards: bool,
}

struct OddLink {
    below: Box<dyn Link>,
    odd: Odd,
    hoard: Buffer,
    over: Option<LinkError>,
}

struct OddListener(Box<dyn Listener>, Odd);

impl Odd {
    fn new(hoards: bool) -> Odd {
        Odd { tcp: Arc::new(Tcp::new(TcpOptions::default())), is_shut: Arc::default(), hoards }
    }

    fn around(&self, below: Box<dyn Link>) -> Box<dyn Link> {
        Box::new(OddLink { below, odd: self.clone(), hoard: Buffer::default(), over: None })
    }
}

impl Netmod for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn capabilities(&self) -> Capabilities {
        self.tcp.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(OddListener(self.tcp.listen()?, self.clone())))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        Ok(self.around(self.tcp.connect(address)?))
    }
}

impl Listener for OddListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        Ok(self.0.accept()?.map(|link| self.1.around(link)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn address(&self) -> &str {
        self.0.address()
    }
}

impl Link for OddLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        if self.odd.is_shut.load(Ordering::Acquire) { Ok(0) } else { self.below.send(regions) }
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if !self.odd.hoards {
            return self.below.receive(regions);
        }
        if regions.iter().all(|region| region.is_empty()) {
            return Ok(0);
        }
        let mut bytes = vec![0; 1 << 16];
        while self.over.is_none() {
            match self.below.receive(&[RegionMut::from_slice(&mut bytes)]) {
                Ok(0) => break,
                Ok(got) => self.hoard.push(&bytes[..got]),
                Err(error) => self.over = Some(error),
            }
        }
        match self.over {
            Some(error) if self.hoard.is_empty() => Err(error),
            _ => Ok(self.hoard.take(&crate::routed::trunk::limited(regions, GIVEN_BYTES))),
        }
    }

    fn holds_bytes(&self) -> bool {
        !self.hoard.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.below.descriptor()
    }

    fn peer_name(&self) -> &str {
        self.below.peer_name()
    }
}

/// Two ranks of a node, and what they reach at another one. Their own router is driven by the test alone.
struct Two {
    odd: Odd,
    router: Arc<Mutex<Router>>,
    poller: Arc<Poller>,
    host: Box<dyn Link>,
    neighbour: Box<dyn Link>,
    line: Arc<Line>,
    /// The other ends, in the order in which the channels were opened.
    reached: Vec<Box<dyn Link>>,
    _listeners: [Box<dyn Listener>; 2],
    _driver: Driver,
}

impl Two {
    fn new(hoards: bool) -> Two {
        let odd = Odd::new(hoards);
        let first = RoutedOptions { netmod: Arc::new(odd.clone()), ..options(0) };
        let calling = Routed::new(first.clone());
        let called = Routed::new(options(1));
        let mut listeners = [calling.listen().unwrap(), called.listen().unwrap()];
        let [router, other] = [&calling, &called].map(|routed| routed.here.lock().upgrade().unwrap());
        let (poller, other_poller) = (router.lock().poller(), other.lock().poller());
        let driver = Driver::start(&other, &other_poller);
        let address = listeners[1].address().to_owned();
        let ranks = Routed::new(first);
        let mut links = [calling.connect(&address).unwrap(), ranks.connect(&address).unwrap()];
        let line = Arc::clone(ranks.line().unwrap());
        let mut reached = Vec::new();
        for (count, link) in links.iter_mut().enumerate() {
            while link.send(&[Region::from_slice(&[1])]).unwrap() == 0 || reached.len() == count {
                router.lock().turn();
                reached.extend(listeners[1].accept().unwrap());
                std::thread::yield_now();
            }
        }
        let [host, neighbour] = links;
        Two { odd, router, poller, host, neighbour, line, reached, _listeners: listeners, _driver: driver }
    }

    /// As the server does, which sleeps when nothing is announced, and the neighbour.
    fn drive_until_silent(&self) {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled =
            || [&self.poller, &self.line.poller].map(|poller| PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN));
        while poll(&mut polled(), Some(&now)).unwrap() > 0 {
            self.router.lock().turn();
            self.line.turn();
        }
    }

    /// Leaves no room in the neighbour's line. Says how much it took.
    fn fill(&mut self) -> usize {
        let piece = vec![2; 16 << 10];
        let mut filled = 0;
        loop {
            match self.neighbour.send(&[Region::from_slice(&piece)]).unwrap() {
                0 => return filled,
                sent => filled += sent,
            }
        }
    }

    /// Drives until nothing is announced, and takes what comes of the neighbour at the other node meanwhile, so that there is room for it.
    fn take_all_of_neighbour(&mut self) {
        let mut bytes = vec![0; 1 << 16];
        loop {
            self.drive_until_silent();
            let reached = self.reached.last_mut().expect("the neighbour's is the last");
            if reached.receive(&[RegionMut::from_slice(&mut bytes)]).unwrap() == 0 {
                return;
            }
        }
    }

    /// Fills the trunk, which takes nothing, up to here with what the host says, and then with what the neighbour says.
    fn fill_trunk(&mut self, host_bytes: usize) {
        self.drive_until_silent();
        self.odd.is_shut.store(true, Ordering::Release);
        assert_eq!(self.host.send(&[Region::from_slice(&vec![3; host_bytes])]).unwrap(), host_bytes);
        let (mut filled, mut in_vain) = (0, 0);
        while in_vain < 5 {
            let more = self.fill();
            filled += more;
            in_vain = if more == 0 { in_vain + 1 } else { 0 };
            // Not until nothing is announced: the network announces that it takes more, and does not.
            self.router.lock().turn();
            self.line.turn();
        }
        assert!(filled > CHANNEL_BYTES_MAX as usize - host_bytes, "{filled} bytes");
        assert_eq!(self.fill(), 0, "there is no room");
    }
}

#[test]
fn who_left_no_room_by_his_last_read_goes_on_when_there_is() {
    let mut two = Two::new(false);
    two.fill_trunk(60_000);
    two.odd.is_shut.store(false, Ordering::Release);
    two.take_all_of_neighbour();
    assert!(two.fill() > 0, "what waited has gone on");
}

#[test]
fn who_waits_for_room_goes_on_when_another_channel_makes_some() {
    let mut two = Two::new(false);
    two.fill_trunk(100_000);
    two.odd.is_shut.store(false, Ordering::Release);
    // It sends what the trunk has to send, and nothing is announced any more.
    drop(std::mem::replace(&mut two.host, two.reached.swap_remove(0)));
    two.take_all_of_neighbour();
    assert!(two.fill() > 0, "what waited has gone on");
}

#[test]
fn what_a_link_holds_back_is_fetched_although_nothing_announces_it() {
    let mut two = Two::new(true);
    let sent = vec![5; 20_000];
    for link in &mut two.reached {
        assert_eq!(link.send(&[Region::from_slice(&sent)]).unwrap(), sent.len());
    }
    // Whoever has what he wants looks no more. The rest is for the driver.
    let mut got = [0];
    while two.host.receive(&[RegionMut::from_slice(&mut got)]).unwrap() == 0 {
        std::thread::yield_now();
    }
    let mut had = 0;
    let mut place = vec![0; sent.len()];
    while had < sent.len() {
        two.drive_until_silent();
        two.neighbour.awaits(Interest::READABLE);
        let descriptors = [two.neighbour.descriptor().unwrap(), two.poller.as_fd(), two.line.poller.as_fd()];
        poll(&mut descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)), None).unwrap();
        had += two.neighbour.receive(&[RegionMut::from_slice(&mut place[had..])]).unwrap();
    }
    assert_eq!(place, sent);
}
