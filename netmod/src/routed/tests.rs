//! The conformance suite over channels, from the router's own process and from another one's side, and what a router has to stand.

mod jobs;
mod lines;
mod own;
mod stalls;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{
    CHANNEL_BYTES_MAX, ChannelNumber, Identity, JobId, NodeId, Rank, Secret, Session, TRUNK_CHANNELS_MAX,
    TRUNK_HEADER_BYTES, TrunkHeader, TrunkRecord,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::channel::KEPT_BYTES_MAX;
use super::*;
use crate::clock::CoarseClock;
use crate::conformance;
use crate::dial::{Introduction, connect_authenticated};
use crate::interest::Interest;
use crate::tcp::{Tcp, TcpOptions};
use crate::waker::Waker;

/// Drives a router as a node's server does.
struct Driver {
    stop: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start(router: &Arc<Mutex<Router>>, poller: &Arc<Poller>) -> Driver {
        let stop = Arc::new(Waker::new().unwrap());
        let (router, poller, stopped) = (Arc::clone(router), Arc::clone(poller), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            loop {
                let mut events = [
                    PollFd::from_borrowed_fd(stopped.descriptor(), PollFlags::IN),
                    PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN),
                ];
                poll(&mut events, None).unwrap();
                if !events[0].revents().is_empty() {
                    return;
                }
                router.lock().turn();
            }
        });
        Driver { stop, thread: Some(thread) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.wake();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn options(node: u32) -> RoutedOptions {
    static SOCKETS: AtomicU64 = AtomicU64::new(0);
    let socket = SOCKETS.fetch_add(1, Ordering::Relaxed);
    RoutedOptions {
        netmod: Arc::new(Tcp::new(TcpOptions::default())),
        socket_name: format!("longarm-routed-test-{}-{socket}", std::process::id()),
        identity: Identity { job: JobId(7), rank: Rank(node), node: NodeId(node) },
        secret: Secret([5; 32]),
        node_count: 2,
        half_open_max: 8,
        own_nodes_max: 0,
        own_links_max: 0,
        unanswered_ms_max: 5000,
        handshake_timeout_ms: 5000,
        simulated_clock: None,
    }
}

/// A network whose links take in what is there whenever they send, as those over queue pairs do. No descriptor announces that.
struct Hoarding(Tcp);

impl Netmod for Hoarding {
    fn name(&self) -> &'static str {
        "hoarding"
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(HoardingListener(self.0.listen()?)))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        Ok(Box::new(HoardingLink { link: self.0.connect(address)?, held: VecDeque::new(), over: None }))
    }
}

struct HoardingListener(Box<dyn Listener>);

impl Listener for HoardingListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let link = self.0.accept()?;
        Ok(link.map(|link| Box::new(HoardingLink { link, held: VecDeque::new(), over: None }) as _))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn address(&self) -> &str {
        self.0.address()
    }
}

struct HoardingLink {
    link: Box<dyn Link>,
    held: VecDeque<u8>,
    over: Option<LinkError>,
}

impl Link for HoardingLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let mut bytes = [0; 4096];
        while self.over.is_none() {
            match self.link.receive(&[RegionMut::from_slice(&mut bytes)]) {
                Ok(0) => break,
                Ok(got) => self.held.extend(&bytes[..got]),
                Err(error) => self.over = Some(error),
            }
        }
        self.link.send(regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if self.held.is_empty() {
            return self.over.map_or_else(|| self.link.receive(regions), Err);
        }
        let mut got = 0;
        for region in regions {
            let bytes: Vec<u8> = self.held.drain(..region.len().min(self.held.len())).collect();
            region.slice(0, bytes.len()).copy_from_slice(&bytes);
            got += bytes.len();
        }
        Ok(got)
    }

    fn holds_bytes(&self) -> bool {
        !self.held.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        self.link.awaits(wanted)
    }

    fn peer_name(&self) -> &str {
        self.link.peer_name()
    }
}

/// Two nodes in one netmod: ranks of the first one call, through its router, and the second one listens.
struct TwoNodes {
    calling: Routed,
    /// A rank of the calling node that does not host its server.
    neighbour: Routed,
    called: RoutedOptions,
    from_outside: bool,
    drivers: Mutex<Vec<Driver>>,
    _listener: Mutex<Box<dyn Listener>>,
}

impl TwoNodes {
    fn new(from_outside: bool) -> TwoNodes {
        let (first, second) = (options(0), options(1));
        let calling = Routed::new(first.clone());
        let listener = calling.listen().unwrap();
        let router = calling.here.lock().upgrade().unwrap();
        let poller = router.lock().poller();
        let neighbour = Routed::new(first);
        let line = neighbour.line().unwrap();
        // In place of threads that sleep on its links.
        let of_line = Driver::start(&line.router, &line.poller);
        let drivers = Mutex::new(vec![Driver::start(&router, &poller), of_line]);
        TwoNodes { calling, neighbour, called: second, from_outside, drivers, _listener: Mutex::new(listener) }
    }
}

impl Netmod for TwoNodes {
    fn name(&self) -> &'static str {
        "two nodes"
    }

    fn capabilities(&self) -> Capabilities {
        self.calling.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let other = Routed::new(RoutedOptions { socket_name: options(1).socket_name, ..self.called.clone() });
        let listener = other.listen()?;
        let router = other.here.lock().upgrade().unwrap();
        let poller = router.lock().poller();
        self.drivers.lock().push(Driver::start(&router, &poller));
        Ok(listener)
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        if self.from_outside { self.neighbour.connect(address) } else { self.calling.connect(address) }
    }
}

#[test]
fn channels_of_the_routers_own_process_are_links() {
    conformance(&TwoNodes::new(false));
}

#[test]
fn channels_of_other_processes_are_links() {
    conformance(&TwoNodes::new(true));
}

/// A router, and who says to be the router of another node to it.
struct Called {
    listener: Box<dyn Listener>,
    router: Arc<Mutex<Router>>,
    address: String,
    _driver: Driver,
}

impl Called {
    fn start() -> (Called, RoutedOptions) {
        Called::start_over(Arc::new(Tcp::new(TcpOptions::default())))
    }

    fn start_over(netmod: Arc<dyn Netmod>) -> (Called, RoutedOptions) {
        let options = RoutedOptions { netmod, ..options(1) };
        let routed = Routed::new(options.clone());
        let listener = routed.listen().unwrap();
        let address = Address::parse(listener.address()).unwrap().router.to_owned();
        let router = routed.here.lock().upgrade().unwrap();
        let poller = router.lock().poller();
        let _driver = Driver::start(&router, &poller);
        (Called { listener, router, address, _driver }, options)
    }

    /// A trunk, or what is none, by the number of its session.
    fn call(&self, options: &RoutedOptions, number: u64, attempt: u32) -> Result<Box<dyn Link>, crate::DialError> {
        let me = Identity { job: JobId(7), rank: Rank(0), node: NodeId(0) };
        self.call_as(me, options, number, attempt)
    }

    fn call_as(
        &self,
        me: Identity,
        options: &RoutedOptions,
        number: u64,
        attempt: u32,
    ) -> Result<Box<dyn Link>, crate::DialError> {
        let introduction = Introduction {
            secret: &options.secret,
            me,
            peer: NodeId(1),
            session: Session { number, attempt, is_known: false, received_bytes: 0 },
            encrypted: false,
            nonce: [9; 32],
        };
        let called = connect_authenticated(&*options.netmod, &self.address, &introduction, Duration::from_secs(60));
        called.map(|(link, _)| link)
    }
}

fn say(link: &mut dyn Link, channel: u32, record: TrunkRecord, data: &[u8]) {
    let channel = ChannelNumber(channel);
    let bytes = [&TrunkHeader { channel, record }.encode()[..], data].concat();
    let mut sent = 0;
    while sent < bytes.len() {
        sent += link.send(&[Region::from_slice(&bytes[sent..])]).unwrap();
    }
}

/// The next record, or why there is none.
fn hear(link: &mut dyn Link) -> Result<TrunkHeader, LinkError> {
    let mut bytes = [0; TRUNK_HEADER_BYTES];
    receive_all(link, &mut bytes)?;
    Ok(TrunkHeader::decode(&bytes).unwrap())
}

/// Takes so many bytes of data.
fn skip(link: &mut dyn Link, bytes: usize) {
    receive_all(link, &mut vec![0; bytes]).unwrap();
}

fn receive_all(link: &mut dyn Link, bytes: &mut [u8]) -> Result<(), LinkError> {
    let mut had = 0;
    while had < bytes.len() {
        had += link.receive(&[RegionMut::from_slice(&mut bytes[had..])])?;
    }
    Ok(())
}

/// The next channel that somebody has opened.
fn accepted(listener: &mut dyn Listener) -> Box<dyn Link> {
    loop {
        match listener.accept().unwrap() {
            Some(channel) => return channel,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_trunk_that_breaks_the_protocol_is_hung_up_on() {
    let data = [7; 100];
    let (open, close) = (TrunkRecord::Open, TrunkRecord::Close);
    let broken: [&[(u32, TrunkRecord, &[u8])]; 7] = [
        // Numbers ascend.
        &[(2, open, &[]), (1, open, &[])],
        &[(1, open, &[]), (1, open, &[])],
        &[(1, open, &[]), (1, close, &[]), (1, open, &[])],
        // Only who was asked says that a channel is open.
        &[(1, open, &[]), (1, TrunkRecord::Opened, &[])],
        // It was never opened.
        &[(5, TrunkRecord::Data(100), &data)],
        &[(5, close, &[])],
        // More room than was ever used.
        &[(1, open, &[]), (1, TrunkRecord::Credit(1), &[])],
    ];
    let (called, options) = Called::start();
    for (records, attempt) in broken.into_iter().zip(1..) {
        let mut link = called.call(&options, u64::MAX, attempt).unwrap();
        for (channel, record, data) in records {
            say(&mut *link, *channel, *record, data);
        }
        let end = loop {
            match hear(&mut *link) {
                Ok(heard) => assert_eq!(heard.record, TrunkRecord::Opened, "{records:?}"),
                Err(end) => break end,
            }
        };
        assert!(matches!(end, LinkError::Closed | LinkError::Reset), "{records:?}: {end}");
    }
}

#[test]
fn who_sends_more_than_there_is_room_for_is_hung_up_on_and_nobody_before() {
    let (mut called, options) = Called::start();
    let mut link = called.call(&options, u64::MAX, 1).unwrap();
    say(&mut *link, 1, TrunkRecord::Open, &[]);
    assert_eq!(hear(&mut *link).unwrap(), TrunkHeader { channel: ChannelNumber(1), record: TrunkRecord::Opened });
    let piece = vec![3; 1 << 14];
    let all = CHANNEL_BYTES_MAX as usize / piece.len();
    for _ in 0..all {
        say(&mut *link, 1, TrunkRecord::Data(piece.len() as u32), &piece);
    }
    let mut channel = accepted(&mut *called.listener);
    // Nothing is passed on before somebody takes it, and what is taken is told, a quarter at a time.
    skip(&mut *channel, CHANNEL_BYTES_MAX as usize / 4);
    let quarter = TrunkRecord::Credit(CHANNEL_BYTES_MAX as u32 / 4);
    assert_eq!(hear(&mut *link).unwrap(), TrunkHeader { channel: ChannelNumber(1), record: quarter });
    for _ in 0..all / 4 {
        say(&mut *link, 1, TrunkRecord::Data(piece.len() as u32), &piece);
    }
    // There is room for nothing more, not even a byte.
    say(&mut *link, 1, TrunkRecord::Data(1), &[1]);
    assert!(matches!(hear(&mut *link), Err(LinkError::Closed | LinkError::Reset)));
}

#[test]
fn what_waited_for_its_taker_leaves_no_memory_behind() {
    let (mut called, options) = Called::start();
    let mut link = called.call(&options, u64::MAX, 1).unwrap();
    say(&mut *link, 1, TrunkRecord::Open, &[]);
    let mut channel = accepted(&mut *called.listener);
    // The call has a time limit: it looks for that.
    while called.router.lock().will_look() {
        std::thread::yield_now();
    }
    let piece = vec![3; 1 << 14];
    for _ in 0..CHANNEL_BYTES_MAX as usize / piece.len() {
        say(&mut *link, 1, TrunkRecord::Data(piece.len() as u32), &piece);
    }
    let kept = || called.router.lock().kept_bytes();
    while kept() < CHANNEL_BYTES_MAX as usize {
        std::thread::yield_now();
    }
    called.router.lock().look_now();
    assert!(kept() >= CHANNEL_BYTES_MAX as usize && called.router.lock().will_look(), "it waits, and is not forgotten");
    skip(&mut *channel, CHANNEL_BYTES_MAX as usize);
    // What trunks share for what comes is not in it.
    while kept() > 2 * KEPT_BYTES_MAX {
        std::thread::yield_now();
    }
    say(&mut *link, 1, TrunkRecord::Data(5), b"again");
    let mut again = [0; 5];
    receive_all(&mut *channel, &mut again).unwrap();
    assert_eq!(&again, b"again");
}

#[test]
fn a_node_has_one_trunk_and_the_last_one_counts() {
    let (called, options) = Called::start();
    let mut first = called.call(&options, u64::MAX, 2).unwrap();
    let second = called.call(&options, u64::MAX, 3).unwrap();
    assert!(matches!(hear(&mut *first), Err(LinkError::Closed | LinkError::Reset)), "it was replaced");
    let late = called.call(&options, u64::MAX, 3).err();
    assert_eq!(late, Some(crate::DialError::HungUp), "a call that was made before is none");
    drop(second);
}

#[test]
fn a_rank_that_calls_a_router_directly_is_turned_away() {
    let (called, options) = Called::start();
    assert_eq!(called.call(&options, 1, 1).err(), Some(crate::DialError::HungUp));
}

#[test]
fn a_trunk_without_numbers_left_is_called_anew() {
    for from_outside in [false, true] {
        let nodes = TwoNodes::new(from_outside);
        let mut listener = nodes.listen().unwrap();
        for _ in 0..2 {
            let mut link = nodes.connect(listener.address()).unwrap();
            while link.send(&[Region::from_slice(&[1])]).unwrap() == 0 {
                std::thread::yield_now();
            }
            let mut reached = accepted(&mut *listener);
            while reached.receive(&[RegionMut::from_slice(&mut [0])]).unwrap() == 0 {
                std::thread::yield_now();
            }
            nodes.calling.here.lock().upgrade().unwrap().lock().use_up_numbers();
        }
    }
}

#[test]
fn a_trunk_is_kept_while_openings_are_answered_and_given_up_when_one_is_not_whatever_else_comes() {
    static NOW_MS: AtomicU64 = AtomicU64::new(0);
    let simulated_clock = Some(CoarseClock::simulated(|| NOW_MS.load(Ordering::Acquire)));
    let (calling, called) = (Routed::new(RoutedOptions { simulated_clock, ..options(0) }), Routed::new(options(1)));
    let _listener = calling.listen().unwrap();
    let mut listener = called.listen().unwrap();
    let [router, other] = [&calling, &called].map(|routed| routed.here.lock().upgrade().unwrap());
    let drivers = [&router, &other].map(|router| Driver::start(router, &router.lock().poller()));
    let mut open = calling.connect(listener.address()).unwrap();
    let mut reached = accepted(&mut *listener);
    let mut is_heard_at = |now_ms: u64| {
        NOW_MS.store(now_ms, Ordering::Release);
        assert_eq!(reached.send(&[Region::from_slice(&[1])]).unwrap(), 1);
        receive_all(&mut *open, &mut [0]).unwrap();
        router.lock().look_now();
        open.send(&[Region::from_slice(&[2])]).is_ok()
    };
    assert!(is_heard_at(0) && is_heard_at(60_000), "all openings are answered");
    // From here on nobody answers, and nobody but this thread looks.
    drop(drivers);
    let _unanswered = calling.connect(listener.address()).unwrap();
    assert!(is_heard_at(60_000 + 2_900), "for a while");
    assert!(is_heard_at(60_000 + 4_900), "and longer, because something comes");
    assert!(!is_heard_at(60_000 + 5_000), "but not for ever");
}

#[test]
fn what_a_link_has_taken_in_while_it_sent_is_looked_at_in_the_next_turn() {
    let (called, options) = Called::start_over(Arc::new(Hoarding(Tcp::new(TcpOptions::default()))));
    let mut link = called.call(&options, u64::MAX, 1).unwrap();
    // From here on nobody else drives the router.
    let Called { mut listener, _driver: driver, .. } = called;
    drop(driver);
    let await_turn = |listener: &dyn Listener, limit: Option<&rustix::time::Timespec>| {
        let mut events = [PollFd::from_borrowed_fd(listener.descriptor().unwrap(), PollFlags::IN)];
        poll(&mut events, limit).unwrap() > 0
    };
    let next_channel = |listener: &mut Box<dyn Listener>| loop {
        await_turn(&**listener, None);
        if let Some(channel) = listener.accept().unwrap() {
            break channel;
        }
    };
    say(&mut *link, 1, TrunkRecord::Open, &[]);
    let mut first = next_channel(&mut listener);
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    while await_turn(&*listener, Some(&now)) {
        assert!(listener.accept().unwrap().is_none());
    }
    say(&mut *link, 2, TrunkRecord::Open, &[]);
    await_turn(&*listener, None);
    // What this takes in beside is announced by no descriptor of the link.
    assert_eq!(first.send(&[Region::from_slice(b"word")]).unwrap(), 4);
    assert!(await_turn(&*listener, Some(&now)), "the server would sleep over it");
    next_channel(&mut listener);
}

#[test]
fn what_a_server_sends_in_one_turn_over_several_channels_goes_out_at_its_end() {
    let (called, options) = Called::start();
    let mut link = called.call(&options, u64::MAX, 1).unwrap();
    let Called { mut listener, _driver: driver, .. } = called;
    let mut channels = Vec::new();
    for channel in 1..=3 {
        say(&mut *link, channel, TrunkRecord::Open, &[]);
        assert_eq!(hear(&mut *link).unwrap().record, TrunkRecord::Opened);
        channels.push(accepted(&mut *listener));
    }
    drop(driver);
    listener.cork();
    for channel in &mut channels {
        assert_eq!(channel.send(&[Region::from_slice(b"word")]).unwrap(), 4);
    }
    let mut bytes = [0; 3 * (TRUNK_HEADER_BYTES + 4)];
    assert_eq!(link.receive(&[RegionMut::from_slice(&mut bytes)]).unwrap(), 0, "it waits for the others");
    // What is long goes out at once, behind what was said before.
    let long = vec![7; 10_000];
    assert_eq!(channels[0].send(&[Region::from_slice(&long)]).unwrap(), long.len());
    for channel in 1..=3 {
        assert_eq!(
            hear(&mut *link).unwrap(),
            TrunkHeader { channel: ChannelNumber(channel), record: TrunkRecord::Data(4) }
        );
        skip(&mut *link, 4);
    }
    assert_eq!(hear(&mut *link).unwrap().record, TrunkRecord::Data(10_000));
    skip(&mut *link, 10_000);
    assert_eq!(channels[2].send(&[Region::from_slice(b"more")]).unwrap(), 4);
    listener.uncork();
    assert_eq!(hear(&mut *link).unwrap(), TrunkHeader { channel: ChannelNumber(3), record: TrunkRecord::Data(4) });
    skip(&mut *link, 4);
    assert_eq!(channels[1].send(&[Region::from_slice(b"last")]).unwrap(), 4);
    assert_eq!(hear(&mut *link).unwrap().channel, ChannelNumber(2), "nothing is kept between turns");
}

#[test]
fn a_node_that_sends_and_never_receives_is_hung_up_on() {
    let (called, options) = Called::start();
    let mut link = called.call(&options, u64::MAX, 1).unwrap();
    let mut ended = None;
    // Each begins and is over, and each has an answer that nobody takes.
    for round in 0..4000_u32 {
        let life = |channel| {
            [TrunkRecord::Open, TrunkRecord::Close]
                .map(|record| TrunkHeader { channel: ChannelNumber(channel), record }.encode())
        };
        let lives: Vec<u8> = (1..=1000).flat_map(|number| life(round * 1000 + number)).flatten().collect();
        let mut bytes = &lives[..];
        while ended.is_none() && !bytes.is_empty() {
            match link.send(&[Region::from_slice(bytes)]) {
                Ok(0) => std::thread::yield_now(),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => ended = Some(error),
            }
        }
        if ended.is_some() {
            break;
        }
    }
    assert!(matches!(ended, Some(LinkError::Reset | LinkError::Closed)), "{ended:?}");
    // Another one is served.
    let mut link = called.call(&options, u64::MAX, 2).unwrap();
    say(&mut *link, 1, TrunkRecord::Open, &[]);
    assert_eq!(hear(&mut *link).unwrap().record, TrunkRecord::Opened);
}

#[test]
fn a_node_that_opens_more_channels_than_it_can_have_ranks_is_hung_up_on() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let (called, options) = Called::start();
    let mut link = called.call(&options, u64::MAX, 1).unwrap();
    for channel in 1..=TRUNK_CHANNELS_MAX as u32 {
        say(&mut *link, channel, TrunkRecord::Open, &[]);
        let answer = hear(&mut *link).unwrap().record;
        if answer == TrunkRecord::Close {
            println!("left out: this process may open no more than {:?} descriptors", limit.maximum);
            return;
        }
        assert_eq!(answer, TrunkRecord::Opened);
    }
    say(&mut *link, 1, TrunkRecord::Close, &[]);
    say(&mut *link, TRUNK_CHANNELS_MAX as u32 + 1, TrunkRecord::Open, &[]);
    assert_eq!(hear(&mut *link).unwrap().record, TrunkRecord::Opened, "as one is over");
    say(&mut *link, TRUNK_CHANNELS_MAX as u32 + 2, TrunkRecord::Open, &[]);
    assert!(matches!(hear(&mut *link), Err(LinkError::Reset | LinkError::Closed)));
}

#[test]
fn a_node_that_the_job_does_not_have_is_turned_away() {
    let (called, options) = Called::start();
    for (node, is_one) in [(0, true), (2, false), (u32::MAX, false)] {
        let me = Identity { job: JobId(7), rank: Rank(0), node: NodeId(node) };
        let link = called.call_as(me, &options, u64::MAX, 1);
        assert_eq!(link.is_ok(), is_one, "node {node}");
    }
}
