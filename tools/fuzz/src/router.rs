//! A node's router, with another node that says anything over its trunk.
//!
//! What that node says is read a second time, with the same decoder, and judged by the rules of trunks alone. It is hung up on exactly
//! when it breaks them, what it sends over a channel comes out of that channel, what the server sends arrives, and another node
//! is served in the end.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Caller, CallerStep, Capabilities, Introduction, Link, LinkError, Listener, Netmod, Routed, RoutedOptions,
    TRUNK_SESSION, Waker,
};
use longarm_proto::{
    CHANNEL_BYTES_MAX, ChannelNumber, Identity, JobId, NodeId, Rank, Session, TRUNK_HEADER_BYTES, TrunkHeader,
    TrunkRecord,
};
use longarm_shm::sync::{AtomicU32, Ordering};

use crate::choices::{Choices, Script};
use crate::inputs::Seeds;
use crate::node::SECRET;
use crate::wire::{End, Porch, UNBOUNDED_BYTES, ramp};

const JOB: JobId = JobId(9);
/// Channels that an input can name.
const CHANNELS: u8 = 8;

/// Routers of this process so far: each has a socket of its own.
static ROUTERS: AtomicU32 = AtomicU32::new(0);

/// Something of a porch with a descriptor that always says that there is something to do.
struct Announced<T> {
    below: T,
    waker: Waker,
}

impl<T> Announced<T> {
    fn new(below: T) -> Announced<T> {
        let waker = Waker::new().expect("the system has descriptors");
        waker.wake();
        Announced { below, waker }
    }
}

impl Listener for Announced<Porch> {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        Ok(self.below.accept()?.map(|link| Box::new(Announced::new(link)) as Box<dyn Link>))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.descriptor())
    }

    fn address(&self) -> &str {
        self.below.address()
    }
}

impl Link for Announced<Box<dyn Link>> {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.below.send(regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.below.receive(regions)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.descriptor())
    }

    fn peer_name(&self) -> &str {
        self.below.peer_name()
    }
}

/// The network between the nodes. Nobody is called over it.
struct Street(Porch);

impl Netmod for Street {
    fn name(&self) -> &'static str {
        "street"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: false, descriptor_sleep: true }
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(Announced::new(self.0.clone())))
    }

    fn connect(&self, _address: &str) -> Result<Box<dyn Link>, LinkError> {
        Err(LinkError::Refused)
    }
}

/// A channel, as the rules have it.
#[derive(Default)]
struct Channel {
    number: u32,
    /// The server's end, once it was taken in.
    link: Option<Box<dyn Link>>,
    /// Neither side has ended it.
    is_open: bool,
    /// The other router has said that it has begun.
    is_answered: bool,
    /// What the node has sent and the server not received, and how much it has said that it sends.
    due: VecDeque<u8>,
    reserved: u64,
    /// What the server has received, and how much of it the node has heard of.
    received: u64,
    heard_of: u64,
    /// What the server has sent and the node not heard, or not given credit for.
    sent: VecDeque<u8>,
    uncredited: u64,
}

/// The node that says anything, and all that it has said.
struct Trunk {
    link: Box<dyn Link>,
    channels: Vec<Channel>,
    last: u32,
    /// What was said and is no whole record yet; data that is still to come.
    unread: VecDeque<u8>,
    data: Option<(u32, usize)>,
    /// The same of what was heard.
    unheard: VecDeque<u8>,
    is_broken: bool,
}

impl Trunk {
    fn new(link: Box<dyn Link>) -> Trunk {
        Trunk {
            link,
            channels: Vec::new(),
            last: 0,
            unread: VecDeque::new(),
            data: None,
            unheard: VecDeque::new(),
            is_broken: false,
        }
    }

    fn open(&mut self, number: u32) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|channel| channel.number == number && channel.is_open)
    }

    /// The node says something.
    fn say(&mut self, bytes: &[u8]) {
        if self.is_broken {
            return;
        }
        let sent = self.link.send(&[Region::from_slice(bytes)]);
        assert_eq!(sent, Ok(bytes.len()), "the router has not hung up");
        self.unread.extend(bytes);
        while !self.is_broken && self.read_once() {}
    }

    /// Reads what was said by the rules. False: nothing more is whole.
    fn read_once(&mut self) -> bool {
        if let Some((number, remaining)) = self.data {
            let bytes: Vec<u8> = self.unread.drain(..remaining.min(self.unread.len())).collect();
            self.data = (bytes.len() < remaining).then_some((number, remaining - bytes.len()));
            if let Some(channel) = self.open(number) {
                channel.due.extend(&bytes);
            }
            return self.data.is_none();
        }
        let Some(header) = take_header(&mut self.unread) else { return false };
        let Ok(TrunkHeader { channel: ChannelNumber(number), record }) = TrunkHeader::decode(&header) else {
            self.is_broken = true;
            return false;
        };
        if let TrunkRecord::Data(bytes) = record {
            self.data = Some((number, bytes as usize));
        }
        let last = self.last;
        let Some(channel) = self.open(number) else {
            match record {
                TrunkRecord::Open if number > last => {
                    self.last = number;
                    self.channels.push(Channel { number, is_open: true, ..Channel::default() });
                }
                TrunkRecord::Open => self.is_broken = true,
                _ => self.is_broken = number > last,
            }
            return true;
        };
        match record {
            TrunkRecord::Open | TrunkRecord::Opened | TrunkRecord::Failed(_) => self.is_broken = true,
            TrunkRecord::Data(bytes) if channel.reserved + u64::from(bytes) > CHANNEL_BYTES_MAX => {
                self.is_broken = true
            }
            TrunkRecord::Data(bytes) => channel.reserved += u64::from(bytes),
            TrunkRecord::Credit(bytes) if u64::from(bytes) > channel.uncredited => self.is_broken = true,
            TrunkRecord::Credit(bytes) => channel.uncredited -= u64::from(bytes),
            TrunkRecord::Close => channel.is_open = false,
        }
        true
    }

    /// The node hears all that there is. It is hung up on if it broke the rules, and else not.
    fn hear(&mut self) {
        let mut bytes = [0; 4096];
        let ended = loop {
            match self.link.receive(&[RegionMut::from_slice(&mut bytes)]) {
                Ok(0) => break false,
                Ok(got) => self.unheard.extend(&bytes[..got]),
                Err(_) => break true,
            }
        };
        assert_eq!(ended, self.is_broken, "who breaks the rules is hung up on, and nobody else");
        while self.hear_once() {}
        assert!(self.is_broken || self.unheard.is_empty(), "a router says whole records");
    }

    fn hear_once(&mut self) -> bool {
        let Some(header) = take_header(&mut self.unheard) else { return false };
        let header = TrunkHeader::decode(&header).expect("a router says what can be read");
        let number = header.channel.0;
        let channel = self.channels.iter_mut().find(|channel| channel.number == number);
        let channel = channel.expect("it speaks of channels that were opened");
        match header.record {
            TrunkRecord::Opened => assert!(!std::mem::replace(&mut channel.is_answered, true), "said once"),
            TrunkRecord::Data(bytes) => {
                let due: Vec<u8> = channel.sent.drain(..(bytes as usize).min(channel.sent.len())).collect();
                let data: Vec<u8> = self.unheard.drain(..(bytes as usize).min(self.unheard.len())).collect();
                assert!(data == due || self.is_broken && due.starts_with(&data), "what the server sent arrives");
            }
            TrunkRecord::Credit(bytes) => {
                channel.heard_of += u64::from(bytes);
                assert!(channel.heard_of <= channel.received, "room is given for what was received");
            }
            TrunkRecord::Close => assert!(!channel.is_open, "the server has ended it"),
            TrunkRecord::Open | TrunkRecord::Failed(_) => panic!("not said over a trunk that was called"),
        }
        true
    }
}

fn take_header(bytes: &mut VecDeque<u8>) -> Option<[u8; TRUNK_HEADER_BYTES]> {
    if bytes.len() < TRUNK_HEADER_BYTES {
        return None;
    }
    let header: Vec<u8> = bytes.drain(..TRUNK_HEADER_BYTES).collect();
    header.try_into().ok()
}

/// A router and its server.
struct Play {
    porch: Porch,
    listener: Box<dyn Listener>,
    attempts: u32,
}

impl Play {
    fn new() -> Play {
        let porch = Porch::default();
        let number = ROUTERS.fetch_add(1, Ordering::Relaxed);
        let routed = Routed::new(RoutedOptions {
            netmod: Arc::new(Street(porch.clone())),
            socket_name: format!("longarm-fuzz-router-{}-{number}", std::process::id()),
            identity: Identity { job: JOB, rank: Rank(0), node: NodeId(0) },
            secret: SECRET,
            node_count: 3,
            half_open_max: 4,
            own_nodes_max: 0,
            own_links_max: 0,
            unanswered_ms_max: 1 << 40,
            handshake_timeout_ms: 1 << 40,
            simulated_clock: None,
        });
        Play { porch, listener: routed.listen().expect("the system has descriptors"), attempts: 0 }
    }

    fn settle(&mut self) {
        (0..3).for_each(|_| assert!(self.listener.drive(), "a router is driven"));
    }

    /// A trunk of a node, that has proven itself.
    fn call(&mut self, node: u32) -> Trunk {
        self.attempts += 1;
        let introduction = Introduction {
            secret: &SECRET,
            me: Identity { job: JOB, rank: Rank(node), node: NodeId(node) },
            peer: NodeId(0),
            session: Session { number: TRUNK_SESSION, attempt: self.attempts, is_known: false, received_bytes: 0 },
            encrypted: false,
            nonce: [node as u8; 32],
        };
        let end: End = self.porch.call(UNBOUNDED_BYTES, UNBOUNDED_BYTES);
        let mut caller = Caller::new(Box::new(end), &introduction);
        loop {
            match caller.poll() {
                CallerStep::Pending => self.settle(),
                CallerStep::Proven { link, .. } => return Trunk::new(link),
                CallerStep::Failed(error) => panic!("a node of the job is let in: {error}"),
            }
        }
    }

    /// The server takes in who waits, if somebody does.
    fn accept(&mut self, trunk: &mut Trunk) {
        let link = self.listener.accept().expect("a router's listener does not fail");
        let waits = |channel: &&mut Channel| channel.link.is_none() && channel.is_open && !trunk.is_broken;
        match (trunk.channels.iter_mut().find(waits), link) {
            (Some(channel), Some(link)) => channel.link = Some(link),
            (None, None) => {}
            // What was open when its trunk was ended is taken in all the same, and is over.
            (None, Some(_)) => assert!(trunk.is_broken, "nobody else has come"),
            (Some(channel), None) => panic!("channel {} was not taken in", channel.number),
        }
    }
}

/// The server's end of a channel receives, and gets what was sent.
fn receive(channel: &mut Channel, bytes: usize, is_broken: bool) {
    let Some(link) = &mut channel.link else { return };
    let mut buffer = vec![0; bytes.max(1)];
    match link.receive(&[RegionMut::from_slice(&mut buffer)]) {
        Ok(got) => {
            let due: Vec<u8> = channel.due.drain(..got).collect();
            assert_eq!(buffer[..got], due, "bytes come as they were sent");
            channel.received += got as u64;
            channel.reserved -= got as u64;
            assert!(got > 0 || channel.due.is_empty(), "what has come is there");
        }
        Err(_) => assert!(is_broken || !channel.is_open && channel.due.is_empty(), "it is not over"),
    }
}

fn send(channel: &mut Channel, bytes: usize, is_broken: bool) {
    let Some(link) = &mut channel.link else { return };
    let data = ramp(channel.number as u8, bytes.max(1));
    match link.send(&[Region::from_slice(&data)]) {
        Ok(sent) => {
            channel.sent.extend(&data[..sent]);
            channel.uncredited += sent as u64;
            assert!(channel.uncredited <= CHANNEL_BYTES_MAX, "no more is sent than there is room for");
        }
        Err(_) => assert!(is_broken || !channel.is_open, "it is not over"),
    }
}

fn record(choices: &mut Choices<'_>) -> Vec<u8> {
    let kind = choices.byte() % 5;
    let channel = ChannelNumber(u32::from(choices.byte() % CHANNELS));
    let bytes = u32::from(choices.short()) + 1;
    let record = match kind {
        0 => TrunkRecord::Open,
        1 => TrunkRecord::Data(bytes),
        2 => TrunkRecord::Credit(bytes),
        3 => TrunkRecord::Close,
        _ => TrunkRecord::Opened,
    };
    let mut said = TrunkHeader { channel, record }.encode().to_vec();
    if kind == 1 {
        said.extend(ramp(channel.0 as u8, bytes as usize));
    }
    said
}

/// Plays what the bytes say.
pub fn router(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut play = Play::new();
    let mut trunk = play.call(1);
    while !choices.is_over() {
        let what = choices.byte() % 8;
        match what {
            0 | 1 => trunk.say(&record(&mut choices)),
            2 => trunk.say(choices.bytes()),
            3 => play.accept(&mut trunk),
            4..=6 => {
                let number = u32::from(choices.byte() % CHANNELS);
                let bytes = usize::from(choices.short());
                let is_broken = trunk.is_broken;
                let taken = |channel: &&mut Channel| channel.number == number && channel.link.is_some();
                if let Some(channel) = trunk.channels.iter_mut().find(taken) {
                    match what {
                        4 => receive(channel, bytes, is_broken),
                        5 => send(channel, bytes, is_broken),
                        _ => (channel.link, channel.is_open) = (None, false),
                    }
                }
            }
            _ if choices.byte().is_multiple_of(2) => trunk.hear(),
            // It calls again: what there was is over.
            _ => {
                trunk = play.call(1);
                while play.listener.accept().expect("it does not fail").is_some() {}
            }
        }
        play.settle();
    }
    trunk.hear();
    expect_service(&mut play);
}

/// Another node is served, whatever the first one has done.
fn expect_service(play: &mut Play) {
    while play.listener.accept().expect("it does not fail").is_some() {}
    let mut friend = play.call(2);
    let data = ramp(0, 1000);
    let header = |record| TrunkHeader { channel: ChannelNumber(1), record }.encode();
    friend.say(&[&header(TrunkRecord::Open)[..], &header(TrunkRecord::Data(1000)), &data].concat());
    play.settle();
    play.accept(&mut friend);
    receive(&mut friend.channels[0], 2000, false);
    assert_eq!(friend.channels[0].received, 1000, "a friend is heard");
    send(&mut friend.channels[0], 500, false);
    play.settle();
    friend.hear();
    assert!(friend.channels[0].is_answered && friend.channels[0].sent.is_empty(), "and answered");
}

/// A channel's life, each way to break the rules, and a call in the midst of it.
pub(crate) fn seeds() -> Seeds {
    let say = |script: Script, kind: u8, channel: u8, bytes: u16| script.byte(0).byte(kind).byte(channel).short(bytes);
    let open = || say(Script::default(), 0, 1, 0).byte(3);
    let life = say(open(), 1, 1, 999).byte(4).byte(1).short(600).byte(5).byte(1).short(300).byte(7).byte(0);
    let life = say(say(life, 2, 1, 299), 3, 1, 0).byte(4).byte(1).short(600);
    let full = (0..5).fold(open(), |script, _| say(script, 1, 1, u16::MAX));
    let cut = open().byte(2).bytes(&[3, 0, 0, 0, 1, 0, 0, 0, 9, 0]).byte(7).byte(0).byte(2).bytes(&[0, 0, 5]);
    vec![
        ("life", life.written()),
        ("too_much_data", full.byte(4).byte(1).short(u16::MAX).written()),
        ("too_much_credit", say(open(), 2, 1, 0).written()),
        ("opened_by_the_caller", say(open(), 4, 1, 0).written()),
        ("opened_twice", say(open(), 0, 1, 0).written()),
        ("closed_before_it_is_taken_in", say(say(say(Script::default(), 0, 3, 0), 3, 3, 0).byte(3), 0, 2, 0).written()),
        ("ended_by_the_server", say(open().byte(6).byte(1).short(0), 1, 1, 50).byte(7).byte(0).written()),
        ("no_record", open().byte(2).bytes(&[9; TRUNK_HEADER_BYTES]).byte(3).written()),
        ("cut_in_two", cut.written()),
        (
            "called_again",
            say(say(open(), 1, 1, 70).byte(7).byte(1), 0, 2, 0).byte(3).byte(5).byte(2).short(9).written(),
        ),
    ]
}
