//! Whole jobs of routers and ranks in one thread, from a seed: who has a turn is diced, and so are what each sends, what breaks, and who is slow.
//! Every stream has to come whole and in order, or end where a connection was broken, and everything has to come to an end.
//!
//! Over the simulated network links take and give what dice say, and break; nothing announces anything there, so everybody looks in each turn.
//! Over TCP everybody sleeps as in a job: who is not told by a descriptor does nothing, and what is told to nobody shows as a job that stands still.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;

use super::*;
use crate::sim::Sim;
use crate::sim::dice::Dice;

/// Bytes that name a stream, at its beginning.
const NAME_BYTES: usize = 8;
/// What is offered or taken at once, at most.
const PIECE_MAX: u64 = 40_000;
/// Streams that a rank has under way at a time.
const TALKS_MAX: usize = 3;
/// So often everybody may be found asleep in a row: bytes may be on their way through the system.
const ASLEEP_MAX: u64 = 10_000_000;
/// What the simulated network has room for, at least: with less a job takes too many turns.
const PIPE_BYTES_MIN: usize = 512;
/// Turns in which nothing moves, after which a job is taken for one that never ends.
const TURNS_MAX: u64 = 100_000;

/// The simulated network with descriptors that always say to look.
struct Restless(Sim, Arc<Waker>);

impl Restless {
    fn new(sim: Sim) -> Restless {
        let waker = Arc::new(Waker::new().unwrap());
        waker.wake();
        Restless(sim, waker)
    }
}

impl Netmod for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor_sleep: true, ..self.0.capabilities() }
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(RestlessListener(self.0.listen()?, own_descriptor(&self.1))))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        Ok(Box::new(RestlessLink(self.0.connect(address)?, own_descriptor(&self.1))))
    }
}

/// Ready for ever. A poller watches a descriptor once.
fn own_descriptor(ready: &Waker) -> OwnedFd {
    ready.descriptor().try_clone_to_owned().unwrap()
}

struct RestlessListener(Box<dyn Listener>, OwnedFd);

impl Listener for RestlessListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let link = self.0.accept()?;
        Ok(link.map(|link| Box::new(RestlessLink(link, self.1.try_clone().unwrap())) as _))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }

    fn address(&self) -> &str {
        self.0.address()
    }
}

struct RestlessLink(Box<dyn Link>, OwnedFd);

impl Link for RestlessLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.0.send(regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.0.receive(regions)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }

    fn peer_name(&self) -> &str {
        self.0.peer_name()
    }
}

/// What two ends say to each other: the caller names a stream and sends so much of it, and the other end sends as much of another one back.
struct Talk {
    link: Box<dyn Link>,
    sent: usize,
    got: usize,
    /// At the called end, what was read of the name.
    name: Vec<u8>,
}

impl Talk {
    fn new(link: Box<dyn Link>) -> Talk {
        Talk { link, sent: 0, got: 0, name: Vec::new() }
    }

    /// Sends a piece of a stream up to a place. Whether anything went.
    fn send(&mut self, seed: usize, until: usize, dice: &mut Dice) -> Result<bool, LinkError> {
        let piece = (until - self.sent).min(1 + dice.below(PIECE_MAX) as usize);
        if piece == 0 {
            return Ok(false);
        }
        let sent = self.link.send(&[Region::from_slice(&lines::stream(seed, self.sent, piece))])?;
        self.sent += sent;
        Ok(sent > 0)
    }

    /// Receives a piece of a stream, and looks whether it is that one. Whether anything came.
    fn receive(&mut self, seed: usize, who: &str, dice: &mut Dice) -> Result<bool, LinkError> {
        let mut bytes = vec![0; 1 + dice.below(PIECE_MAX) as usize];
        let got = self.link.receive(&[RegionMut::from_slice(&mut bytes)])?;
        assert!(bytes[..got] == lines::stream(seed, self.got, got), "{who}: another stream behind {} bytes", self.got);
        self.got += got;
        Ok(got > 0)
    }
}

/// Which stream a caller sends.
fn there(name: u64) -> usize {
    (name % 251) as usize
}

/// Which one comes back.
fn back(name: u64) -> usize {
    there(name) + 1
}

/// A rank that talks with servers.
struct Caller {
    netmod: Arc<Routed>,
    node: u32,
    /// The streams that are under way: their names, how long they are, and the node that they go to.
    talks: Vec<(u64, usize, u32, Talk)>,
    /// Streams that are to begin: how long, and where.
    todo: Vec<(usize, u32)>,
}

/// A node's server.
struct Host {
    netmod: Arc<Routed>,
    listener: Box<dyn Listener>,
    talks: Vec<Talk>,
}

/// What a job has.
struct Job {
    dice: Dice,
    hosts: Vec<Host>,
    callers: Vec<Caller>,
    addresses: Vec<String>,
    /// The names of all streams that were begun.
    names: BTreeSet<u64>,
    sim: Option<Sim>,
    cuts_left: u64,
    /// Servers hang up on ranks that call by themselves when they have enough of them.
    hangs_up: bool,
    /// Streams that ended because something was broken.
    broken: u64,
    done: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    over_tcp: bool,
    cuts: u64,
}

impl Job {
    fn new(plan: Plan) -> Job {
        let mut dice = Dice::of(plan.seed, "job");
        let sim = (!plan.over_tcp).then(|| Sim::with_pipes(plan.seed, PIPE_BYTES_MIN));
        let below: Arc<dyn Netmod> = match &sim {
            Some(sim) => Arc::new(Restless::new(sim.clone())),
            None => Arc::new(Tcp::new(TcpOptions::default())),
        };
        let nodes = 2 + dice.below(5) as u32;
        let (own_nodes_max, own_links_max) = match dice.below(3) {
            0 => (0, 0),
            _ => (dice.below(3) as usize, 1 + dice.below(4) as usize),
        };
        let (mut hosts, mut callers) = (Vec::new(), Vec::new());
        for node in 0..nodes {
            let options = RoutedOptions {
                netmod: Arc::clone(&below),
                node_count: nodes,
                half_open_max: 64,
                own_nodes_max,
                own_links_max,
                ..options(node)
            };
            let netmod = Arc::new(Routed::new(options.clone()));
            let listener = netmod.listen().unwrap();
            let ranks = 1 + dice.below(3);
            for rank in 0..ranks {
                let netmod = if rank == 0 { Arc::clone(&netmod) } else { Arc::new(Routed::new(options.clone())) };
                let streams = 1 + dice.below(6);
                let todo = (0..streams).map(|_| {
                    let log2 = 4 + dice.below(16);
                    let bytes = NAME_BYTES + dice.below(1 << log2) as usize;
                    (bytes, dice.below(nodes.into()) as u32)
                });
                callers.push(Caller { netmod, node, talks: Vec::new(), todo: todo.collect() });
            }
            hosts.push(Host { netmod, listener, talks: Vec::new() });
        }
        let addresses = hosts.iter().map(|host| host.listener.address().to_owned()).collect();
        let (names, cuts_left) = (BTreeSet::new(), plan.cuts);
        let hangs_up = plan.over_tcp && own_links_max > 0;
        Job { dice, hosts, callers, addresses, names, sim, cuts_left, hangs_up, broken: 0, done: 0 }
    }

    fn is_over(&self) -> bool {
        self.callers.iter().all(|caller| caller.todo.is_empty() && caller.talks.is_empty())
            && self.hosts.iter().all(|host| host.talks.is_empty())
    }

    /// Breaks some of the connections below.
    fn cut(&mut self) {
        let Some(sim) = &self.sim else { return };
        let host = self.dice.below(self.addresses.len() as u64) as usize;
        let address = Address::parse(&self.addresses[host]).unwrap();
        let names = [Some(address.router), address.server];
        let name = names[self.dice.below(2) as usize].unwrap_or(address.router);
        let after = self.dice.below(30_000);
        self.cuts_left -= u64::from(sim.cut_after(name, after) > 0);
    }

    fn actors(&self) -> usize {
        self.hosts.len() + self.callers.len()
    }

    /// The turn of a server or a rank: servers come first. Whether anything has moved.
    fn turn(&mut self, actor: usize) -> bool {
        match actor.checked_sub(self.hosts.len()) {
            None => self.turn_of_host(actor),
            Some(caller) => self.turn_of_caller(caller),
        }
    }

    /// A server's turn: takes in who has come, and talks with all. Whether anything has moved.
    fn turn_of_host(&mut self, number: usize) -> bool {
        let host = &mut self.hosts[number];
        let dice = &mut self.dice;
        let mut moved = false;
        let corks = dice.below(2) == 0;
        if corks {
            host.listener.cork();
        }
        while let Some(link) = host.listener.accept().unwrap() {
            host.talks.push(Talk::new(link));
            moved = true;
            if dice.below(4) == 0 {
                break;
            }
        }
        host.listener.drive();
        let (names, broken) = (&self.names, &mut self.broken);
        host.talks.retain_mut(|talk| match answer(talk, names, number, dice) {
            Ok(has_moved) => {
                moved |= has_moved;
                true
            }
            Err(LinkError::Closed) => {
                moved = true;
                let is_whole = talk.name.len() == NAME_BYTES && talk.sent == talk.got;
                *broken += u64::from(!is_whole);
                false
            }
            Err(_) => {
                *broken += 1;
                moved = true;
                false
            }
        });
        if corks {
            host.listener.uncork();
        }
        moved
    }

    /// A rank's turn. Whether anything has moved.
    fn turn_of_caller(&mut self, number: usize) -> bool {
        let (dice, caller) = (&mut self.dice, &mut self.callers[number]);
        let mut moved = false;
        if caller.talks.len() < TALKS_MAX
            && let Some((bytes, to)) = caller.todo.pop()
        {
            let address = &self.addresses[to as usize];
            let ways = caller.netmod.ways(address).unwrap();
            let way = &ways[dice.below(ways.len() as u64) as usize];
            match caller.netmod.connect_by(address, way) {
                Ok(link) => {
                    let name = dice.roll();
                    self.names.insert(name);
                    caller.talks.push((name, bytes, to, Talk::new(link)));
                }
                Err(_) => caller.todo.push((bytes, to)),
            }
            moved = true;
        }
        if let Some(intake) = caller.netmod.intake() {
            intake.turn();
        }
        let (mut again, mut done) = (Vec::new(), 0);
        caller.talks.retain_mut(|(name, bytes, to, talk)| match ask(talk, *name, *bytes, caller.node, dice) {
            Ok(_) if talk.got == *bytes => {
                done += 1;
                moved = true;
                false
            }
            Ok(has_moved) => {
                moved |= has_moved;
                true
            }
            Err(_) => {
                again.push((*bytes, *to));
                moved = true;
                false
            }
        });
        self.done += done;
        self.broken += again.len() as u64;
        caller.todo.extend(again);
        moved
    }

    fn show(&self) -> String {
        let callers = self.callers.iter().enumerate().flat_map(|(number, caller)| {
            caller.talks.iter().map(move |(_, bytes, to, talk)| {
                format!(
                    "caller {number} (node {}) to node {to}: {} of {bytes} sent, {} back",
                    caller.node, talk.sent, talk.got
                )
            })
        });
        let hosts = self.hosts.iter().enumerate().flat_map(|(number, host)| {
            host.talks.iter().map(move |talk| {
                format!("server {number}: {} named, {} got, {} sent", talk.name.len(), talk.got, talk.sent)
            })
        });
        callers.chain(hosts).collect::<Vec<_>>().join("\n")
    }
}

/// The caller's part of a talk. Whether anything has moved.
fn ask(talk: &mut Talk, name: u64, bytes: usize, node: u32, dice: &mut Dice) -> Result<bool, LinkError> {
    let mut moved = false;
    if talk.sent < NAME_BYTES {
        let sent = talk.link.send(&[Region::from_slice(&name.to_le_bytes()[talk.sent..])])?;
        talk.sent += sent;
        moved |= sent > 0;
    } else if dice.below(4) > 0 {
        moved |= talk.send(there(name), bytes, dice)?;
    }
    if dice.below(4) > 0 {
        moved |= talk.receive(back(name), &format!("a rank of node {node}"), dice)?;
    }
    Ok(moved)
}

/// The server's part: as many bytes as have come go back.
fn answer(talk: &mut Talk, names: &BTreeSet<u64>, host: usize, dice: &mut Dice) -> Result<bool, LinkError> {
    if talk.name.len() < NAME_BYTES {
        let mut bytes = vec![0; NAME_BYTES - talk.name.len()];
        let got = talk.link.receive(&[RegionMut::from_slice(&mut bytes)])?;
        talk.name.extend(&bytes[..got]);
        return Ok(got > 0);
    }
    let name = u64::from_le_bytes(talk.name[..].try_into().unwrap());
    assert!(names.contains(&name), "server {host} has come upon a stream that nobody has begun");
    if talk.got == 0 {
        // Positions are those of the caller's stream, behind the name.
        talk.got = NAME_BYTES;
    }
    let mut moved = false;
    if talk.sent < talk.got && dice.below(4) > 0 {
        moved |= talk.send(back(name), talk.got, dice)?;
    }
    if dice.below(4) > 0 {
        moved |= talk.receive(there(name), &format!("server {host}"), dice)?;
    }
    Ok(moved)
}

/// What somebody sleeps on.
#[derive(Default)]
struct Sleep<'a> {
    events: Vec<PollFd<'a>>,
    /// Something is there that no descriptor announces.
    is_awake: bool,
}

impl<'a> Sleep<'a> {
    fn on(&mut self, descriptor: BorrowedFd<'a>) {
        self.events.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    }

    fn on_link(&mut self, link: &'a mut dyn Link, has_more: bool) {
        self.is_awake |= link.arm() || link.holds_bytes();
        let wanted = link.awaits(Interest { readable: true, writable: has_more });
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wanted.readable);
        flags.set(PollFlags::OUT, wanted.writable);
        let descriptor = link.descriptor().expect("these links have descriptors");
        self.events.push(PollFd::from_borrowed_fd(descriptor, flags));
    }

    fn would_end(mut self) -> bool {
        self.is_awake || poll(&mut self.events, Some(&Timespec::default())).unwrap() > 0
    }
}

impl Job {
    /// Whether somebody who sleeps while there is nothing to do would be woken: servers first, and then ranks.
    fn is_woken(&mut self, actor: usize) -> bool {
        let Some(caller) = actor.checked_sub(self.hosts.len()) else {
            let Host { listener, talks, .. } = &mut self.hosts[actor];
            let mut sleep = Sleep::default();
            sleep.on(listener.descriptor().unwrap());
            for talk in talks {
                let has_more = talk.sent < talk.got;
                sleep.on_link(&mut *talk.link, has_more);
            }
            return sleep.would_end();
        };
        let Caller { netmod, talks, todo, .. } = &mut self.callers[caller];
        let intake = netmod.intake();
        let mut sleep = Sleep { is_awake: talks.len() < TALKS_MAX && !todo.is_empty(), ..Sleep::default() };
        if let Some(intake) = &intake {
            sleep.on(intake.descriptor());
        }
        for (_, bytes, _, talk) in talks {
            let has_more = talk.sent < *bytes;
            sleep.on_link(&mut *talk.link, has_more);
        }
        sleep.would_end()
    }
}

/// Runs a job over TCP in which everybody sleeps who is not woken. How many streams ended.
fn run_asleep(seed: u64) -> u64 {
    let plan = Plan { seed, over_tcp: true, cuts: 0 };
    let mut job = Job::new(plan);
    let actors = job.actors() as u64;
    let mut asleep = 0;
    while !job.is_over() {
        let first = job.dice.below(actors);
        let woken = (0..actors).map(|next| ((first + next) % actors) as usize).find(|actor| job.is_woken(*actor));
        let has_moved = match woken {
            Some(actor) => job.turn(actor),
            None => {
                std::thread::yield_now();
                false
            }
        };
        asleep = if has_moved { 0 } else { asleep + 1 };
        assert!(asleep < ASLEEP_MAX, "{plan:?} stands still, {woken:?} is woken:\n{}", job.show());
    }
    assert!(job.hangs_up || job.broken == 0, "{plan:?}: {} streams were broken by nobody", job.broken);
    job.be_forgotten(plan);
    job.done
}

/// Runs a job in which everybody looks in each turn. What became of it: streams that ended well, and such as were broken.
fn run(plan: Plan) -> (u64, u64) {
    let mut job = Job::new(plan);
    let streams: usize = job.callers.iter().map(|caller| caller.todo.len()).sum();
    let actors = job.actors() as u64;
    let mut turns = 0;
    while !job.is_over() {
        assert!(turns < TURNS_MAX, "{plan:?} does not end:\n{}", job.show());
        if job.cuts_left > 0 && job.dice.below(500) == 0 {
            job.cut();
        }
        let actor = job.dice.below(actors) as usize;
        let has_moved = job.turn(actor);
        turns = if has_moved { 0 } else { turns + 1 };
    }
    assert_eq!(job.done, streams as u64, "{plan:?}");
    assert!(plan.cuts > 0 || job.broken == 0, "{plan:?}: {} streams were broken by nobody", job.broken);
    job.be_forgotten(plan);
    (job.done, job.broken)
}

impl Job {
    /// Nothing is left of what has ended: each router has the lines of its ranks and trunks, and no channel.
    fn be_forgotten(&mut self, plan: Plan) {
        let mut left = Vec::new();
        for _ in 0..10_000 {
            for actor in 0..self.actors() {
                self.turn(actor);
            }
            let routers = self.hosts.iter().filter_map(|host| host.netmod.here.lock().upgrade());
            left = routers.map(|router| router.lock().channels()).collect();
            if left.iter().all(|left| *left == 0) {
                return;
            }
        }
        panic!("{plan:?}: channels are left: {left:?}");
    }
}

#[test]
fn streams_come_whole_whatever_links_take_and_whoever_has_a_turn() {
    for seed in 0..60 {
        let (done, broken) = run(Plan { seed, over_tcp: false, cuts: 0 });
        assert!(done > 0 && broken == 0);
    }
}

#[test]
fn streams_over_connections_that_break_come_whole_the_next_time() {
    let mut broken = 0;
    for seed in 0..60 {
        broken += run(Plan { seed, over_tcp: false, cuts: 6 }).1;
    }
    assert!(broken > 60, "{broken} streams were broken");
}

#[test]
fn whoever_sleeps_is_woken_for_all_that_comes() {
    let done: u64 = (0..40).map(run_asleep).sum();
    assert!(done > 40);
}
