//! What goes wrong in a run, and when: one fault after the other, as dice choose from the kinds that are allowed.

use std::rc::Rc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Link, LinkError, TRUNK_SESSION};
use longarm_proto::{CHALLENGE_BYTES, Identity, InitiatorHandshake, NodeId, Rank, Secret, Session, WELCOME_BYTES};

use crate::book;
use crate::dice::Dice;
use crate::fault::Fault;
use crate::hooks::{SimLink, nonce_of};
use crate::job::{self, SECRET};
use crate::network::{self, Event, Owner};
use crate::plan::Shape;
use crate::trace::{What, Who};

/// Faults that are noted on links' ends later on: kinds that begin and end.
#[derive(Clone, Copy)]
enum Later {
    /// A link's direction is read as usual again.
    FastAgain(u32, usize),
    /// A stranger hangs up.
    HangUp(u32),
}

/// Somebody who calls a server and is no rank of the job, or is one already.
struct Stranger {
    link: Option<SimLink>,
    kind: Fault,
    handshake: InitiatorHandshake,
    /// What came so far.
    input: Vec<u8>,
    proven: bool,
    node: u32,
}

/// Whom faults happen to.
pub trait Victims {
    /// The process of a rank ends.
    fn die(&mut self, rank: u32);

    /// A rank does nothing until then.
    fn pause(&mut self, rank: u32, until_ns: u64);

    /// A server does nothing until then.
    fn pause_server(&mut self, node: u32, until_ns: u64);

    /// The clock of a server goes on by so much.
    fn jump_clock(&mut self, node: u32, jump_ms: u64);

    /// Ranks that are known to have a mutex.
    fn holders(&self) -> Vec<u32>;

    /// Something is late by so much.
    fn note_pause(&mut self, pause_ns: u64);

    /// Whether the next fault may happen already.
    fn may_fault(&self) -> bool {
        true
    }

    /// A fault has happened.
    fn count(&mut self, fault: Fault);
}

/// When faults happen.
#[derive(Clone, Copy)]
pub struct Pace {
    /// The first one.
    pub first_ns: u64,
    /// Mean time between two.
    pub pause_ns: u64,
    /// How many ranks are killed at most.
    pub kills_max: u32,
}

/// See the module.
pub struct Faults {
    shape: Rc<Shape>,
    dice: Dice,
    /// Kinds that may happen at any time, those that break nothing first.
    mild: Vec<Fault>,
    breaking: Vec<Fault>,
    /// How many faults that break something may still happen.
    breaks_left: u32,
    /// No connection breaks before.
    whole_until_ns: u64,
    /// No connection falls silent before, and no clock jumps.
    heard_until_ns: u64,
    /// How many ranks may still be killed.
    kills_left: u32,
    strangers: Vec<Stranger>,
    later: Vec<Later>,
    /// Mean time between two faults.
    pace_ns: u64,
}

/// Between two connections that break: long enough for one to be made anew most of the time, and not always.
const GAP_NS_MIN: u64 = 500_000;
const GAP_NS_MAX: u64 = 8_000_000;
/// So many times as long between two trunks that break.
const TRUNK_GAPS: u64 = 4;
/// Between two connections that fall silent: longer than it takes to find one out, and to make another.
const SILENCE_GAP_NS_MIN: u64 = 3_500_000_000;
const SILENCE_GAP_NS_MAX: u64 = 10_000_000_000;
/// How long what was sent may take over a connection that broke and was made anew.
const RESUME_NS: u64 = 20_000_000_000;
/// The number of every rank's session.
const SESSION: u64 = 1;
/// More than a caller says before its first frame.
const HANDSHAKE_BYTES: u64 = 200;
/// The number of the event that stands for the next fault.
const NEXT: u32 = u32::MAX;

impl Faults {
    /// The faults of a run; the first one is on its way.
    pub fn new(shape: &Rc<Shape>) -> Faults {
        let pause_ns = 300_000 / u64::from(1 + shape.plan.ranks / 64);
        let kills_max = Dice::of(shape.plan.seed, 60, 0).below(2) as u32;
        Faults::at(shape, Pace { first_ns: 50_000, pause_ns: pause_ns.max(20_000), kills_max })
    }

    /// The faults of a run, at another pace.
    pub fn at(shape: &Rc<Shape>, pace: Pace) -> Faults {
        let plan = &shape.plan;
        let mut dice = Dice::of(plan.seed, 60, 0);
        let _ = dice.roll(); // That of `new`.
        // Those happen in the programs themselves.
        let elsewhere = [Fault::StaleWindow, Fault::WrongKey, Fault::NoMemory];
        let (breaking, mild): (Vec<Fault>, Vec<Fault>) =
            plan.faults.iter().filter(|fault| !elsewhere.contains(fault)).partition(|fault| fault.breaks());
        let breaks_left = if breaking.is_empty() { 0 } else { 1000 };
        let faults = Faults {
            shape: Rc::clone(shape),
            mild,
            breaking,
            breaks_left,
            whole_until_ns: 0,
            heard_until_ns: 0,
            kills_left: pace.kills_max,
            dice,
            strangers: Vec::new(),
            later: Vec::new(),
            pace_ns: pace.pause_ns,
        };
        if !(faults.mild.is_empty() && faults.breaks_left == 0) {
            network::with(|network| network.after(pace.first_ns, Event::Fault(NEXT)));
        }
        faults
    }

    /// A fault is due, or one that has begun ends.
    pub fn happen(&mut self, number: u32, ranks: &mut dyn Victims) {
        if number != NEXT {
            return self.end(number);
        }
        let pause_ns = self.dice.between(self.pace_ns / 2, 3 * self.pace_ns / 2);
        network::with(|network| network.after(pause_ns, Event::Fault(NEXT)));
        if !ranks.may_fault() {
            return;
        }
        let may_break = self.breaks_left > 0 && network::now_ns() >= self.whole_until_ns;
        let breaks = may_break && (self.mild.is_empty() || self.dice.one_in(3));
        let kinds = if breaks { &self.breaking } else { &self.mild };
        if kinds.is_empty() {
            return;
        }
        let fault = *self.dice.pick(kinds);
        let kills = matches!(fault, Fault::KillRank | Fault::KillServer);
        if kills && (self.kills_left == 0 || !self.may_kill(fault, ranks)) {
            return;
        }
        let Some(who) = self.inject(fault, ranks) else { return };
        self.kills_left -= u32::from(kills);
        if breaks {
            self.breaks_left -= 1;
            let gap_ns = self.dice.between(GAP_NS_MIN, GAP_NS_MAX);
            let gap_ns = if self.shape.plan.routed {
                // What many share breaks for all of them.
                gap_ns * TRUNK_GAPS
            } else {
                // In a large job the next one is somewhere else.
                gap_ns / u64::from(1 + self.shape.plan.ranks / 32)
            };
            self.whole_until_ns = network::now_ns() + gap_ns;
            // Nobody is told of anything until the connection is there again.
            ranks.note_pause(RESUME_NS);
        }
        ranks.count(fault);
        network::with(|network| network.note(What::Fault, who, fault as u64));
    }

    fn end(&mut self, number: u32) {
        match self.later[number as usize] {
            Later::FastAgain(link, end) => network::with(|network| network.sip(link, end, None)),
            Later::HangUp(stranger) => self.strangers[stranger as usize].link = None,
        }
    }

    fn later(&mut self, after_ns: u64, later: Later) {
        let number = self.later.len() as u32;
        self.later.push(later);
        network::with(|network| network.after(after_ns, Event::Fault(number)));
    }

    /// How long something lasts: short times are as likely as long ones.
    fn duration_ns(&mut self) -> u64 {
        10_000 << self.dice.below(11)
    }

    fn inject(&mut self, fault: Fault, ranks: &mut dyn Victims) -> Option<Who> {
        match fault {
            Fault::PauseRank => self.pause_rank(ranks),
            Fault::PauseServer => self.pause_server(ranks),
            // Whoever finds a silence out calls again seconds later; hundreds of jumps a second would outlast the time for which sessions are kept.
            Fault::ClockJump if network::now_ns() < self.heard_until_ns => None,
            Fault::ClockJump => {
                let node = self.dice.below(self.shape.nodes().into()) as u32;
                let jump_ms = 1 << self.dice.below(13);
                ranks.jump_clock(node, jump_ms);
                Some(Who::Server(node))
            }
            Fault::KillRank => self.kill_rank(ranks),
            Fault::KillServer => {
                let node = self.dice.below(self.shape.nodes().into()) as u32;
                ranks.die(self.shape.host_of(node));
                Some(Who::Server(node))
            }
            Fault::SilentLink => self.silence_link(),
            Fault::DuplicateConnect | Fault::ForgedPeer | Fault::SilentPeer => self.call_as_stranger(fault),
            Fault::PartitionOneWay | Fault::PartitionTwoWay | Fault::RestartLink => self.between_nodes(fault, ranks),
            _ => self.on_link(fault, ranks),
        }
    }

    /// Whether it is time. Not at once: something should be under way by then, and of ranks rather one that has a mutex dies.
    fn may_kill(&mut self, fault: Fault, ranks: &dyn Victims) -> bool {
        match fault {
            Fault::KillRank if self.holders(ranks).is_empty() => self.dice.one_in(8),
            Fault::KillRank => self.dice.one_in(2),
            _ => self.dice.one_in(4),
        }
    }

    fn hosts(&self, rank: u32) -> bool {
        self.shape.host_of(self.shape.node_of(rank)) == rank
    }

    /// Ranks that have a mutex and host no server.
    fn holders(&self, ranks: &dyn Victims) -> Vec<u32> {
        ranks.holders().into_iter().filter(|rank| !self.hosts(*rank)).collect()
    }

    /// Kills a rank that hosts no server, preferably one that has a mutex.
    fn kill_rank(&mut self, ranks: &mut dyn Victims) -> Option<Who> {
        let rank = match self.holders(ranks).as_slice() {
            [] => self.dice.below(self.shape.plan.ranks.into()) as u32,
            holders => *self.dice.pick(holders),
        };
        if self.hosts(rank) {
            return None;
        }
        ranks.die(rank);
        Some(Who::Rank(rank))
    }

    fn pause_rank(&mut self, ranks: &mut dyn Victims) -> Option<Who> {
        let rank = self.dice.below(self.shape.plan.ranks.into()) as u32;
        let pause_ns = self.duration_ns();
        ranks.note_pause(pause_ns);
        ranks.pause(rank, network::now_ns() + pause_ns);
        Some(Who::Rank(rank))
    }

    fn pause_server(&mut self, ranks: &mut dyn Victims) -> Option<Who> {
        let node = self.dice.below(self.shape.nodes().into()) as u32;
        let pause_ns = self.duration_ns();
        ranks.note_pause(pause_ns);
        ranks.pause_server(node, network::now_ns() + pause_ns);
        Some(Who::Server(node))
    }

    /// A link that is whole, and one of its ends. As often as not one over which a transfer is under way with no server involved,
    /// if there is one: for most of the time there is none. Of those as often as not one over which a word is updated.
    fn link(&mut self) -> Option<(u32, usize)> {
        let wants_busy = self.shape.direct && self.dice.one_in(2);
        let wants_update = wants_busy && self.dice.one_in(2);
        network::with(|network| {
            let mut busy = if wants_busy { network.transferring() } else { Vec::new() };
            let updating = if wants_update { network.updating(&busy) } else { Vec::new() };
            if !updating.is_empty() {
                busy = updating;
            }
            let links = if busy.is_empty() { network.whole_links() } else { busy.as_slice() };
            if links.is_empty() {
                return None;
            }
            Some((*self.dice.pick(links), self.dice.below(2) as usize))
        })
    }

    fn on_link(&mut self, fault: Fault, ranks: &mut dyn Victims) -> Option<Who> {
        let (link, end) = self.link()?;
        let duration_ns = self.duration_ns();
        let until_ns = network::now_ns() + duration_ns;
        let bytes = 1 << self.dice.below(8);
        let after = self.dice.below(3000) as usize;
        let luck = self.dice.roll();
        if fault == Fault::BitFlip
            && !(self.shape.encrypted
                && !self.shape.plan.routed
                && network::with(|network| network.flip(link, end, luck)))
        {
            return None;
        }
        network::with(|network| match fault {
            Fault::Delay => network.hold(link, end, until_ns),
            Fault::Reorder => {
                // All links of the one at this end but this one are held back.
                let owner = network.owners(link)[end];
                for other in network.whole_links().to_vec() {
                    let ends = network.owners(other);
                    if other != link && ends.contains(&owner) && other % 2 == 0 {
                        network.hold(other, usize::from(ends[1] == owner), until_ns);
                    }
                }
            }
            Fault::Drop => network.break_link(link),
            Fault::HalfOpen => network.break_half(link, end, 50 * duration_ns),
            Fault::Truncate => network.break_after(link, end, after),
            Fault::SlowReader => network.sip(link, end, Some(bytes)),
            _ => {}
        });
        ranks.note_pause(duration_ns);
        if fault == Fault::SlowReader {
            ranks.note_pause(10_000_000);
            self.later(duration_ns, Later::FastAgain(link, end));
        }
        Some(Who::Link(link, end as u8))
    }

    /// A link that is whole, one direction of which falls silent for good. Not one of devices: they find that out by themselves.
    fn silence_link(&mut self) -> Option<Who> {
        if self.shape.direct || network::now_ns() < self.heard_until_ns {
            return None;
        }
        let (link, end) = self.link()?;
        let is_stranger = |owner: &Owner| matches!(owner, Owner::Stranger(_));
        if network::with(|network| network.owners(link).iter().any(is_stranger)) {
            return None;
        }
        self.heard_until_ns = network::now_ns() + self.dice.between(SILENCE_GAP_NS_MIN, SILENCE_GAP_NS_MAX);
        network::with(|network| network.silence(link, end));
        Some(Who::Link(link, end as u8))
    }

    /// What happens to all links between two nodes, or to all of one node.
    fn between_nodes(&mut self, fault: Fault, ranks: &mut dyn Victims) -> Option<Who> {
        let (first, _) = self.link()?;
        let duration_ns = self.duration_ns();
        let until_ns = network::now_ns() + duration_ns;
        ranks.note_pause(duration_ns);
        let shape = Rc::clone(&self.shape);
        let nodes_of = |ends: [Owner; 2]| {
            ends.map(|owner| match owner {
                Owner::Rank(rank) => shape.node_of(rank),
                Owner::Server(node) => node,
                Owner::Stranger(_) => u32::MAX,
            })
        };
        network::with(|network| {
            let [from, to] = nodes_of(network.owners(first));
            for link in network.whole_links().to_vec() {
                let [caller, called] = nodes_of(network.owners(link));
                if fault == Fault::RestartLink {
                    if called == to || caller == to {
                        network.break_link(link);
                    }
                    continue;
                }
                for end in [0, 1] {
                    let (source, target) = if end == 0 { (caller, called) } else { (called, caller) };
                    let both = fault == Fault::PartitionTwoWay && (source, target) == (to, from);
                    if both || (source, target) == (from, to) {
                        network.hold(link, end, until_ns);
                    }
                }
            }
        });
        Some(Who::Link(first, 0))
    }
}

/// Those who call without belonging there.
impl Faults {
    fn call_as_stranger(&mut self, kind: Fault) -> Option<Who> {
        let (link, _) = self.link()?;
        let ends = network::with(|network| network.owners(link));
        // A rank calls a server, or a router another one, in the name of its node's first rank.
        let (rank, node, of_trunk) = match ends {
            [Owner::Rank(rank), Owner::Server(node)] => (rank, node, false),
            [Owner::Server(from), Owner::Server(node)] => (self.shape.host_of(from), node, true),
            _ => return None,
        };
        // Later than its handshake: the server knows the session.
        let is_old = network::with(|network| network.has_read(link, HANDSHAKE_BYTES));
        if kind == Fault::DuplicateConnect && !is_old {
            return None;
        }
        let number = self.strangers.len() as u32;
        // Where that link was called.
        let called =
            network::with(|network| network.call_at(Owner::Stranger(number), node, network.port_of(link))).ok()?;
        let secret = if kind == Fault::ForgedPeer { Secret([0x17; 32]) } else { SECRET.clone() };
        let identity = Identity { job: job::id(), rank: Rank(rank), node: NodeId(self.shape.node_of(rank)) };
        if of_trunk {
            network::with(|network| network.strangers_at_routers += 1);
        }
        // The call that was made first, which a network may bring once more; a stranger knows of none.
        let number_of_session = match kind {
            Fault::DuplicateConnect if of_trunk => TRUNK_SESSION,
            Fault::DuplicateConnect => SESSION,
            _ => self.dice.roll(),
        };
        let session = Session { number: number_of_session, attempt: 1, is_known: false, received_bytes: 0 };
        let nonce = nonce_of(&mut self.dice);
        // What goes over a trunk is encrypted already.
        let encrypted = self.shape.encrypted && !of_trunk;
        let (handshake, hello) = InitiatorHandshake::start(&secret, identity, NodeId(node), session, encrypted, nonce);
        let mut link = SimLink::new(network::current(), called, 0);
        if kind != Fault::SilentPeer {
            let _ = link.send(&[Region::from_slice(&hello)]);
        }
        let input = Vec::new();
        self.strangers.push(Stranger { link: Some(link), kind, handshake, input, proven: false, node });
        let stays_ns = self.duration_ns();
        self.later(stays_ns, Later::HangUp(number));
        Some(Who::Server(node))
    }

    /// A stranger's link has news.
    pub fn turn_stranger(&mut self, number: u32) {
        let stranger = &mut self.strangers[number as usize];
        let Some(link) = &mut stranger.link else { return };
        loop {
            let mut bytes = [0; 64];
            match link.receive(&[RegionMut::from_slice(&mut bytes)]) {
                Ok(0) => break,
                Ok(got) => stranger.input.extend_from_slice(&bytes[..got]),
                Err(LinkError::Closed | LinkError::Reset) | Err(_) => {
                    stranger.link = None;
                    return;
                }
            }
        }
        if !stranger.proven && stranger.input.len() >= CHALLENGE_BYTES {
            stranger.proven = true;
            let challenge: [u8; CHALLENGE_BYTES] = stranger.input[..CHALLENGE_BYTES].try_into().expect("as long");
            if let Ok(proof) = stranger.handshake.handle_challenge(&challenge) {
                let _ = link.send(&[Region::from_slice(&proof)]);
            }
        }
        let is_welcome = stranger.input.len() >= CHALLENGE_BYTES + WELCOME_BYTES;
        let what = match stranger.kind {
            Fault::ForgedPeer => "somebody in who does not know the secret",
            Fault::DuplicateConnect => "a call in that is older than the session's connection",
            _ => return,
        };
        if is_welcome {
            book::violate(&[], format!("node {} let {what}", stranger.node));
        }
    }
}
