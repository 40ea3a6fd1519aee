//! The simulated network and its clock: links with latency and bandwidth, a heap of what happens when.
//!
//! ```text
//!   SimLink::send ──► pipe: under way ──(Arrive)──► pipe: arrived ──► SimLink::receive
//!                        ▲                                                │
//!                        └──────────────(Room)────────────────────────────┘
//! ```
//!
//! A link is two pipes of bounded size. Bytes of one pipe arrive in order, those of different pipes in any order: each
//! has a latency of its own, which jitters. Receives are cut at places that dice choose, unless all is given. Whoever is at
//! an end is told when something has arrived, when there is room again, and when the link has ended.
//!
//! Each thread has one network, of the run that it is in. What a link or a clock of the run needs, it finds there. Threads that take
//! turns in one run share its network ([`share`], [`join`]).

pub mod direct;
mod faults;
mod kinds;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{LinkError, Waker};
use longarm_proto::WindowRef;
use longarm_shm::sync::{AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::dice::Dice;
use crate::trace::{Trace, What, Who};
pub use kinds::{Event, News, Owner, Port, SilentLinks, Speed, Subject};

/// The moment until which what is silent for good is held.
const FOREVER_NS: u64 = u64::MAX;

struct Piece {
    sent_ns: u64,
    arrives_ns: u64,
    bytes: usize,
}

/// One direction of a link.
struct Pipe {
    bytes: VecDeque<u8>,
    /// How many of the bytes the reader may have.
    arrived: usize,
    under_way: VecDeque<Piece>,
    capacity_bytes: usize,
    latency_ns: u64,
    last_arrival_ns: u64,
    /// Nothing arrives before; [`FOREVER_NS`]: ever.
    held_until_ns: u64,
    /// Bytes that one receive gives at most, while the reader is slow.
    sip_bytes: Option<usize>,
    /// Bytes that were read since the link was made.
    read_bytes: u64,
    /// Which bit of what is sent next changes.
    flip: Option<u64>,
    wants_room: bool,
    /// The writer has closed its end.
    writer_gone: bool,
    /// The reader has seen that nothing more will come, and how.
    ended: Option<LinkError>,
    /// Bytes that may still be sent before the link breaks.
    left_bytes: Option<usize>,
}

impl Pipe {
    /// Whether nothing arrives ever again.
    fn is_silent(&self) -> bool {
        self.held_until_ns == FOREVER_NS
    }

    /// What was silent for good is so no longer: the run is over.
    fn hear_again(&mut self) {
        if self.is_silent() {
            self.held_until_ns = 0;
        }
    }
}

/// A connection between a rank (or a stranger) and a server.
struct LinkState {
    /// The ends: 0 called, 1 was called.
    owners: [Owner; 2],
    node: u32,
    port: Port,
    /// The server has accepted it.
    is_accepted: bool,
    /// The pipe with the number of the end that writes into it.
    pipes: [Pipe; 2],
    dice: Dice,
    /// Which ends know that it is broken.
    broken: [bool; 2],
    closed: [bool; 2],
    direct: direct::Direct,
}

/// See the module.
pub struct Network {
    /// Which run this is: links of an earlier one do nothing.
    run: u64,
    now_ns: u64,
    /// How long whoever runs at this moment has worked by now: what it sends, and whom it wakes, comes after that.
    work_ns: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    links: Vec<LinkState>,
    /// Those that are whole, in their order: faults choose among them again and again.
    whole: Vec<u32>,
    /// Those over which transfers without a server were begun, and that were not seen at rest since.
    perhaps_transferring: BTreeSet<u32>,
    /// Calls that have reached a node and were not accepted, by port.
    backlogs: Vec<[VecDeque<u32>; 2]>,
    /// Nodes whose server is gone.
    deaf: Vec<bool>,
    /// All that happened.
    pub trace: Trace,
    speed: Speed,
    run_seed: u64,
    dice: Dice,
    scratch: Vec<u8>,
    /// The longest that anything was under way.
    pub delay_max_ns: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Ranks reach memory of other nodes.
    is_direct: bool,
    /// What ranks remember of nodes, by both.
    cards: HashMap<(u32, u32), direct::Card>,
    /// Which parts of windows nodes let others reach.
    published: HashSet<(u32, WindowRef)>,
    overdue: VecDeque<(u32, direct::Posted)>,
    /// Transfers that devices have done.
    pub direct_count: u64,
    /// What became of links of which a direction was silent for good.
    pub silent: SilentLinks,
    /// Calls of strangers at routers.
    pub strangers_at_routers: u64,
}

/// The descriptors of a run.
pub type Wakers = HashMap<Subject, Arc<Waker>>;

struct Run {
    network: Mutex<Network>,
    /// Behind a lock of their own: what has one may be dropped while the network is worked on.
    wakers: Mutex<Wakers>,
}

/// What the threads of a run share.
#[derive(Clone)]
pub struct Shared(Arc<Run>);

thread_local! {
    static RUN: RefCell<Shared> = RefCell::new(Shared::nobodys());
}

/// Runs of this process so far.
static RUNS: AtomicU64 = AtomicU64::new(0);

impl Shared {
    fn new(network: Network) -> Shared {
        Shared(Arc::new(Run { network: Mutex::new(network), wakers: Mutex::default() }))
    }

    /// Of no run.
    pub fn nobodys() -> Shared {
        Shared::new(Network::new(0, 0, 0, Speed::default()))
    }
}

/// What this thread's run shares.
pub fn share() -> Shared {
    RUN.with(|run| run.borrow().clone())
}

/// From now on this thread takes part in that run.
pub fn join(shared: Shared) {
    RUN.with(|run| *run.borrow_mut() = shared);
}

/// Works on the network of this thread's run.
#[inline]
pub fn with<R>(work: impl FnOnce(&mut Network) -> R) -> R {
    RUN.with(|run| work(&mut run.borrow().0.network.lock()))
}

/// Works on the descriptors of this thread's run. `None` where the thread ends.
pub fn with_wakers<R>(work: impl FnOnce(&mut Wakers) -> R) -> Option<R> {
    RUN.try_with(|run| work(&mut run.borrow().0.wakers.lock())).ok()
}

/// The time of this thread's run.
#[inline]
pub fn now_ns() -> u64 {
    with(|network| network.now())
}

/// Begins a run on this thread.
pub fn begin(seed: u64, nodes: u32, speed: Speed) -> u64 {
    let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    join(Shared::new(Network::new(run, seed, nodes, speed)));
    run
}

/// Nothing is left of this thread's run.
pub fn forget() {
    with(|network| *network = Network::new(0, 0, 0, Speed::default()));
}

/// The number of this thread's run.
pub fn current() -> u64 {
    with(|network| network.run)
}

/// Whether a number is that of this thread's run.
pub fn is_current(number: u64) -> bool {
    let is_that =
        |run: &RefCell<Shared>| run.borrow().0.network.try_lock().is_some_and(|network| network.run == number);
    RUN.try_with(is_that).unwrap_or(false)
}

impl Network {
    fn new(run: u64, seed: u64, nodes: u32, speed: Speed) -> Network {
        Network {
            run,
            now_ns: 0,
            work_ns: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            links: Vec::new(),
            whole: Vec::new(),
            perhaps_transferring: BTreeSet::new(),
            backlogs: (0..nodes).map(|_| [const { VecDeque::new() }; 2]).collect(),
            deaf: vec![false; nodes as usize],
            trace: Trace::new(),
            speed,
            run_seed: seed,
            dice: Dice::of(seed, 1, 0),
            scratch: Vec::new(),
            delay_max_ns: 0,
            sent_bytes: 0,
            is_direct: false,
            cards: HashMap::new(),
            published: HashSet::new(),
            overdue: VecDeque::new(),
            direct_count: 0,
            silent: SilentLinks::default(),
            strangers_at_routers: 0,
        }
    }

    /// Notes an event of now.
    #[inline]
    pub fn note(&mut self, what: What, who: Who, detail: u64) {
        self.trace.note(self.now_ns, what, who, detail);
    }

    /// Something happens, so many nanoseconds from now.
    #[inline]
    pub fn after(&mut self, delay_ns: u64, event: Event) {
        self.at(self.now() + delay_ns, event);
    }

    /// Something happens at a moment.
    #[inline]
    pub fn at(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at_ns.max(self.now_ns), self.sequence, event)));
    }

    /// Goes on to what happens next.
    #[inline]
    pub fn advance(&mut self) -> Option<Event> {
        let Reverse((at_ns, _, event)) = self.heap.pop()?;
        (self.now_ns, self.work_ns) = (at_ns, 0);
        Some(event)
    }

    /// The moment of the event, and what was worked since.
    pub fn now(&self) -> u64 {
        self.now_ns + self.work_ns
    }

    /// Whoever runs at this moment works for so long.
    pub fn work(&mut self, work_ns: u64) {
        self.work_ns += work_ns;
    }

    /// How fast things are.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// How many links were made.
    pub fn link_count(&self) -> u32 {
        self.links.len() as u32
    }

    /// How many links were made to the node that most were made to.
    pub fn link_count_max(&self) -> u32 {
        self.count_max(self.links.iter().map(|link| link.node))
    }

    /// How many ends of links the node has that has most of them, of its server and of its ranks, of all that were made. `node_of`: a rank.
    pub fn socket_count_max(&self, node_of: impl Fn(u32) -> u32) -> u32 {
        let owners = self.links.iter().flat_map(|link| link.owners);
        self.count_max(owners.filter_map(|owner| match owner {
            Owner::Rank(rank) => Some(node_of(rank)),
            Owner::Server(node) => Some(node),
            Owner::Stranger(_) => None,
        }))
    }

    /// How often the most frequent of these nodes occurs.
    fn count_max(&self, nodes: impl Iterator<Item = u32>) -> u32 {
        let mut counts = vec![0; self.backlogs.len()];
        nodes.for_each(|node| counts[node as usize] += 1);
        counts.into_iter().max().unwrap_or(0)
    }

    /// The ends of links that nobody has closed.
    pub fn open_ends(&self) -> usize {
        self.links.iter().flat_map(|link| link.closed).filter(|closed| !closed).count()
    }

    /// A new connection to a node's server, which hears of it in a moment.
    pub fn call(&mut self, caller: Owner, node: u32) -> Result<u32, LinkError> {
        self.call_at(caller, node, Port::Node)
    }

    /// As [`Network::call`], at one of the places where that server may be called.
    pub fn call_at(&mut self, caller: Owner, node: u32, port: Port) -> Result<u32, LinkError> {
        if self.deaf[node as usize] {
            return Err(LinkError::Refused);
        }
        let number = self.links.len() as u32;
        let Speed { latency_ns_min, latency_ns_max, pipe_bytes_log2: (least, most), .. } = self.speed;
        let mut dice = Dice::of(self.dice.roll(), 2, number.into());
        let pipes = [(); 2].map(|()| Pipe {
            bytes: VecDeque::new(),
            arrived: 0,
            under_way: VecDeque::new(),
            capacity_bytes: 1 << dice.between(least, most),
            latency_ns: dice.between(latency_ns_min, latency_ns_max),
            last_arrival_ns: 0,
            held_until_ns: 0,
            sip_bytes: None,
            read_bytes: 0,
            flip: None,
            wants_room: false,
            writer_gone: false,
            ended: None,
            left_bytes: None,
        });
        let latency_ns = pipes[0].latency_ns;
        let owners = [caller, Owner::Server(node)];
        // Dice of their own, so that runs without direct transfers stay as they were.
        let direct = direct::Direct::new(Dice::of(self.run_seed, 4, number.into()));
        let (broken, closed) = ([false; 2], [false; 2]);
        let is_accepted = false;
        self.links.push(LinkState { owners, node, port, is_accepted, pipes, dice, broken, closed, direct });
        self.whole.push(number);
        let caller = match caller {
            Owner::Rank(rank) => rank,
            Owner::Server(_) | Owner::Stranger(_) => u32::MAX,
        };
        self.note(What::Call, Who::Link(number, 0), u64::from(caller) << 32 | u64::from(node));
        self.after(latency_ns, Event::Call(number));
        Ok(number)
    }

    /// The call of a link reaches its server: who is to be told.
    pub fn arrive_call(&mut self, link: u32) -> Option<News> {
        let LinkState { node, port, .. } = self.links[link as usize];
        if self.deaf[node as usize] {
            self.links[link as usize].closed[1] = true;
            self.break_link(link);
            return None;
        }
        self.backlogs[node as usize][port as usize].push_back(link);
        Some(Owner::Server(node))
    }

    /// The next call that has reached a node.
    pub fn accept(&mut self, node: u32, port: Port) -> Option<u32> {
        let link = self.backlogs[node as usize][port as usize].pop_front()?;
        self.links[link as usize].is_accepted = true;
        Some(link)
    }

    /// How many connections a server has accepted there and not closed.
    pub fn accepted(&self, node: u32, port: Port) -> usize {
        let is_there = |link: &&LinkState| (link.node, link.port) == (node, port);
        self.links.iter().filter(is_there).filter(|link| link.is_accepted && !link.closed[1]).count()
    }

    /// The port at which a link was called.
    pub fn port_of(&self, link: u32) -> Port {
        self.links[link as usize].port
    }

    /// Sends what there is room for.
    pub fn send(&mut self, link: u32, end: usize, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let now_ns = self.now();
        let state = &mut self.links[link as usize];
        if state.broken[end] {
            return Err(LinkError::Reset);
        }
        if state.broken[1 - end] {
            // The other end knows that it is broken, and says so as soon as it hears from us.
            let latency_ns = state.pipes[end].latency_ns + state.pipes[1 - end].latency_ns;
            self.at(now_ns + latency_ns, Event::End((link << 1) | (1 - end as u32)));
        }
        let state = &mut self.links[link as usize];
        if end == 0 && state.direct.holds_back() {
            return Ok(0);
        }
        let pipe = &mut state.pipes[end];
        let offered: usize = regions.iter().map(|region| region.len()).sum();
        if state.closed[1 - end] || state.broken[1 - end] {
            // Nobody reads it, least of all behind what was lost before. The end is on its way to whoever sent this.
            return Ok(offered);
        }
        let mut part = offered.min(pipe.capacity_bytes - pipe.bytes.len().min(pipe.capacity_bytes));
        if let Some(left) = &mut pipe.left_bytes {
            part = part.min(*left);
            *left -= part;
        }
        let breaks = pipe.left_bytes == Some(0);
        let mut open = part;
        for region in regions {
            let bytes = open.min(region.len());
            self.scratch.resize(bytes, 0);
            region.slice(0, bytes).copy_to_slice(&mut self.scratch);
            pipe.bytes.extend(&self.scratch);
            open -= bytes;
        }
        if part > 0
            && let Some(luck) = pipe.flip.take()
        {
            let at = pipe.bytes.len() - 1 - luck as usize % part;
            pipe.bytes[at] ^= 1 << (luck >> 61);
        }
        pipe.wants_room = part < offered;
        self.sent_bytes += part as u64;
        self.work_ns += self.speed.send_takes_ns(part);
        let now_ns = self.now_ns + self.work_ns;
        if part > 0 {
            let jitter_ns = state.dice.below(self.speed.jitter_ns + 1);
            let transfer_ns = part as u64 * self.speed.kibibyte_ns / 1024;
            let earliest = now_ns + pipe.latency_ns + jitter_ns + transfer_ns;
            let arrives_ns = earliest.max(pipe.last_arrival_ns + transfer_ns).next_multiple_of(256);
            pipe.last_arrival_ns = arrives_ns;
            match pipe.under_way.back_mut() {
                Some(last) if last.arrives_ns == arrives_ns => last.bytes += part,
                _ => {
                    pipe.under_way.push_back(Piece { sent_ns: now_ns, arrives_ns, bytes: part });
                    self.at(arrives_ns, Event::Arrive(link << 1 | end as u32));
                }
            }
            self.note(What::Send, Who::Link(link, end as u8), part as u64);
        }
        if breaks {
            self.break_link(link);
        }
        Ok(part)
    }

    /// What is first under way in a pipe has arrived: who is to be told.
    pub fn arrive(&mut self, pipe_number: u32) -> Option<News> {
        let (link, end) = (pipe_number >> 1, (pipe_number & 1) as usize);
        let now_ns = self.now_ns;
        let pipe = &mut self.links[link as usize].pipes[end];
        if pipe.held_until_ns > now_ns {
            if !pipe.is_silent() {
                let held_until_ns = pipe.held_until_ns;
                self.at(held_until_ns, Event::Arrive(pipe_number));
            }
            return None;
        }
        let piece = pipe.under_way.pop_front()?;
        pipe.arrived += piece.bytes;
        self.delay_max_ns = self.delay_max_ns.max(now_ns - piece.sent_ns);
        self.note(What::Arrive, Who::Link(link, end as u8), piece.bytes as u64);
        let state = &mut self.links[link as usize];
        let pipe = &mut state.pipes[end];
        if pipe.writer_gone && pipe.under_way.is_empty() {
            pipe.ended.get_or_insert(LinkError::Closed);
        }
        Some(state.owners[1 - end])
    }

    /// Gives what has arrived, or a part of it.
    pub fn receive(&mut self, link: u32, end: usize, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let state = &mut self.links[link as usize];
        let pipe = &mut state.pipes[1 - end];
        let room: usize = regions.iter().map(|region| region.len()).sum();
        if pipe.arrived == 0 && room > 0 {
            if state.broken[end] {
                return Err(LinkError::Reset);
            }
            return pipe.ended.map_or(Ok(0), Err);
        }
        let most = room.min(pipe.arrived);
        let mut part = most;
        // A cut at any place, now and then.
        if most > 1 && !self.speed.receives_all && state.dice.one_in(16) {
            part = 1 + state.dice.below(most as u64 - 1) as usize;
        }
        if let Some(sip) = pipe.sip_bytes {
            part = part.min(sip);
        }
        let mut open = part;
        for region in regions {
            let bytes = open.min(region.len());
            let (first, second) = pipe.bytes.as_slices();
            let from_first = bytes.min(first.len());
            region.slice(0, from_first).copy_from_slice(&first[..from_first]);
            region.slice(from_first, bytes - from_first).copy_from_slice(&second[..bytes - from_first]);
            pipe.bytes.drain(..bytes);
            open -= bytes;
        }
        pipe.arrived -= part;
        pipe.read_bytes += part as u64;
        if part > 0 {
            self.work_ns += self.speed.receive_takes_ns(part);
        }
        if pipe.wants_room && part > 0 {
            pipe.wants_room = false;
            let latency_ns = pipe.latency_ns;
            self.after(latency_ns, Event::Room(link << 1 | (1 - end as u32)));
        }
        let pipe = &self.links[link as usize].pipes[1 - end];
        if part < most {
            let pause_ns = if pipe.sip_bytes.is_some() { 20_000 } else { 500 };
            self.after(pause_ns, Event::Again(link << 1 | (1 - end as u32)));
        }
        if part > 0 {
            self.note(What::Receive, Who::Link(link, end as u8), part as u64);
        }
        Ok(part)
    }

    /// Whether an end has something to receive, or the end of the link.
    pub fn has_news(&self, link: u32, end: usize) -> bool {
        let state = &self.links[link as usize];
        let pipe = &state.pipes[1 - end];
        pipe.arrived > 0 || state.broken[end] || pipe.ended.is_some()
    }

    /// Who writes into a pipe.
    pub fn writer(&self, pipe: u32) -> News {
        self.links[(pipe >> 1) as usize].owners[(pipe & 1) as usize]
    }

    /// Who reads from a pipe.
    pub fn reader(&self, pipe: u32) -> News {
        self.links[(pipe >> 1) as usize].owners[1 - (pipe & 1) as usize]
    }

    /// One end closes: what was sent still arrives, and then the end.
    pub fn close(&mut self, link: u32, end: usize) {
        self.note(What::Close, Who::Link(link, end as u8), 0);
        self.links[link as usize].closed[end] = true;
        self.count_silent(link);
        self.no_longer_whole(link);
        if end == 1 {
            self.shut_direct(link);
        }
        let state = &mut self.links[link as usize];
        let pipe = &mut state.pipes[end];
        pipe.writer_gone = true;
        if pipe.under_way.is_empty() {
            let latency_ns = pipe.latency_ns;
            self.after(latency_ns, Event::End(link << 1 | end as u32));
        }
    }

    /// The end of a pipe has come to its reader: who is to be told. Marks the end as broken where the link is.
    pub fn arrive_end(&mut self, pipe: u32) -> News {
        let (link, writer) = (pipe >> 1, (pipe & 1) as usize);
        let state = &mut self.links[link as usize];
        let reader = 1 - writer;
        if state.pipes[writer].is_silent() {
            return state.owners[reader]; // It looks, and finds nothing.
        }
        if state.broken[writer] {
            state.broken[reader] = true;
        }
        let pipe = &mut state.pipes[writer];
        if pipe.writer_gone && pipe.under_way.is_empty() {
            pipe.ended.get_or_insert(LinkError::Closed);
        }
        state.owners[reader]
    }
}
