//! Where it all happens: the turns of the two threads, and what ranks, strangers and faults do in theirs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use longarm_control::arrival::Met;
use longarm_control::coordinator::{Coordinator, Effect, Settings};
use longarm_control::messages::{CONTROL_VERSION, FromRank, ToRank};
use longarm_control::proof::{Caller, NONCE_BYTES, RankProof, Ticket};
use longarm_control::relay::{self, LAST, Relay};
use serde::{Deserialize, Serialize};

use super::network::{Event, Fault, Network, Thread};
use super::rank::{Rank, Step, arrival, card};
use super::{Coming, MEET_NS, Outcome, ns};
use crate::dice::Dice;
use crate::fault::FaultSet;
use crate::plan::Shape;
use crate::user::Machine;

/// As `runtime/src/bootstrap`, its configuration and the system have them.
const CHUNK_BYTES: usize = 64 << 10;
const ACCEPTED_MAX: usize = 64;
const BACKLOG: usize = 4096;
const HALF_OPEN_MAX: usize = 64;
const PROOF: Duration = Duration::from_secs(10);
const REPORT: Duration = Duration::from_millis(700);
const ATTEMPT_NS: u64 = 2_000_000_000;
const PAUSE_MIN_NS: u64 = 5_000_000;
const PAUSE_MAX_NS: u64 = 500_000_000;
const LEADER_NS: u64 = 2_000_000_000;
const SPARE_NS: u64 = 10_000_000_000;
const FLUSH_NS: u64 = 1_000_000_000;
/// Who finds no place to wait at is told nothing, and calls again after a second, and then after twice as long each time.
const CALL_AGAIN_NS: u64 = 1_000_000_000;
/// What the coordinator computes for a message that comes and the one that answers it: `cargo run --release -p longarm-control --example starts`.
const ANSWER_NS: u64 = 3_000;
/// Ranks whose whole start is read: what all are told of the nodes is as long as there are ranks.
const READ_MAX: u32 = 1000;

/// A thread that serves connections.
#[derive(Default)]
struct Server {
    ready: BTreeSet<u32>,
    backlog: VecDeque<u32>,
    turn_ns: Option<u64>,
    busy_until_ns: u64,
    paused_until_ns: u64,
    /// For how long it has worked.
    worked_ns: u64,
    has_ended: bool,
}

struct RelayThread {
    relay: Relay,
    server: Server,
    leader: u32,
    /// That leads to the coordinator.
    up: u32,
    to_coordinator: Vec<u8>,
    members: BTreeMap<u32, u32>,
    member_of: BTreeMap<u32, u32>,
    is_open: bool,
    /// Its process ends when those behind it are gone, or then.
    lingers_until_ns: Option<u64>,
}

/// What is read of a start of many.
#[derive(Deserialize)]
struct BriefStart {
    #[serde(rename = "Start")]
    start: BriefRank,
}

#[derive(Deserialize)]
struct BriefRank {
    rank: u32,
}

/// See the module.
pub struct Stage {
    coming: Coming,
    shape: Shape,
    machine: Machine,
    network: Network,
    began: Instant,
    ticket: Ticket,
    coordinator: Coordinator,
    desk: Server,
    /// The coordinator's number of each connection, and back.
    number_of: BTreeMap<u32, u64>,
    connection_of: BTreeMap<u64, u32>,
    relays: BTreeMap<u32, RelayThread>,
    ranks: Vec<Rank>,
    /// How many ranks have come in, how many were let go, and of how many nothing more comes.
    pub came_in: u32,
    pub gone: u32,
    pub over: u32,
    nonces: u64,
    dice: Option<Dice>,
    /// What a rank was told that it should not be.
    wrong: Option<String>,
    /// How far the rank was that was killed.
    had_left: bool,
    pub met_ns: u64,
    pub outcome: Outcome,
}

impl Stage {
    pub fn new(coming: Coming, machine: Machine, mut dice: Option<Dice>) -> Stage {
        let Coming { ranks, nodes, .. } = coming;
        assert!(ranks >= nodes && nodes > 0, "{nodes} nodes: {ranks} ranks are on 1 to {ranks}");
        let ticket = Ticket { assembly: 1, size: ranks, secret: [7; 32] };
        let began = Instant::now();
        let settings = Settings {
            ticket: ticket.clone(),
            job: u64::MAX / 3,
            survivors_go_on: false,
            arrival: Duration::from_nanos(MEET_NS),
            proof: PROOF,
            half_open_max: HALF_OPEN_MAX + ranks as usize,
            report: REPORT,
            watchdog_s: 0,
            pid: 1,
            command: String::new(),
            is_stopped: |_| false,
        };
        let shape = Shape::of_program(1, ranks, nodes, FaultSet::NONE);
        let mut stage = Stage {
            network: Network::new(machine, dice.as_mut().map(|dice| Dice::of(dice.roll(), 81, 0))),
            coordinator: Coordinator::new(settings, began),
            ranks: (0..ranks).map(|_| Rank::new()).collect(),
            coming,
            shape,
            machine,
            began,
            ticket,
            desk: Server::default(),
            number_of: BTreeMap::new(),
            connection_of: BTreeMap::new(),
            relays: BTreeMap::new(),
            came_in: 0,
            gone: 0,
            over: 0,
            nonces: 0,
            dice: dice.clone(),
            wrong: None,
            had_left: false,
            met_ns: 0,
            outcome: Outcome::default(),
        };
        match dice {
            None => (0..ranks).for_each(|rank| stage.network.at(0, Event::Begin(rank))),
            Some(dice) => stage.plan_faults(dice),
        }
        stage
    }

    /// Everything that goes wrong, and when ranks begin.
    fn plan_faults(&mut self, mut dice: Dice) {
        let (ranks, nodes) = (self.coming.ranks, self.coming.nodes);
        let spread_ns = 1 + (1_000_000 << dice.below(13));
        let lost = dice.one_in(3).then(|| dice.below(ranks.into()) as u32);
        let never_comes = lost.is_some() && dice.one_in(3);
        for rank in 0..ranks {
            let at_ns = dice.below(spread_ns);
            // Rank 0 has said where the others find it before they know.
            if rank == 0 {
                self.network.at(0, Event::Begin(0));
            } else if lost == Some(rank) && never_comes {
                self.lose(rank);
            } else {
                self.network.at(at_ns, Event::Begin(rank));
            }
        }
        if let Some(rank) = lost.filter(|rank| *rank == 0 || !never_comes) {
            let at_ns = dice.below(2 * spread_ns + 20_000_000);
            self.network.at(at_ns, Event::Fault(Fault::Kill(rank)));
        }
        let strangers = match dice.below(8) {
            0 => HALF_OPEN_MAX as u64 + u64::from(ranks) + 20,
            1..=4 => dice.below(20),
            _ => 0,
        };
        for stranger in 0..strangers as u32 {
            self.network.at(dice.below(spread_ns), Event::Stranger(stranger));
        }
        for _ in 0..dice.below(12) {
            self.network.at(dice.below(spread_ns + 5_000_000), Event::Fault(Fault::Break));
        }
        for _ in 0..dice.below(4) {
            let thread = match dice.one_in(2) {
                true => Thread::Coordinator,
                false => Thread::Relay(dice.below(nodes.into()) as u32),
            };
            let pause = Fault::Pause(thread, dice.below(3_000_000_000));
            self.network.at(dice.below(spread_ns + 5_000_000), Event::Fault(pause));
        }
        self.dice = Some(dice);
    }

    pub fn now_us(&self) -> f64 {
        self.network.now_ns() as f64 / 1e3
    }

    /// For how long the thread of the coordinator has worked.
    pub fn busy_us(&self) -> f64 {
        self.desk.worked_ns as f64 / 1e3
    }

    pub fn connections_of_coordinator(&self) -> u32 {
        self.number_of.len() as u32
    }

    /// Goes on until all is as wanted, or until a time.
    pub fn run_until(&mut self, until_ns: u64, is_wanted: impl Fn(&Stage) -> bool) {
        while !is_wanted(self)
            && let Some(event) = self.network.advance(until_ns)
        {
            self.handle(event);
        }
    }

    /// All ranks that are in leave.
    pub fn all_leave(&mut self) {
        (0..self.coming.ranks).for_each(|rank| self.network.after(0, Event::Leave(rank)));
    }

    /// Whether everybody was told what he had to be.
    pub fn check(&mut self) -> Result<(), String> {
        self.outcome.hash = self.network.hash;
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let of =
            |rank: u32, what: &str| format!("rank {rank} {what}, {} s after the first one called", self.now_us() / 1e6);
        for (number, rank) in (0..).zip(&self.ranks) {
            match (&rank.step, self.outcome.lost) {
                (Step::Gone, None) | (Step::Lost, _) => {}
                (Step::Gone, Some(_)) if self.had_left => {}
                (Step::Gone, Some(lost)) => {
                    return Err(of(number, &format!("was let go although rank {lost} had not left")));
                }
                (Step::Told(reason), None) => return Err(of(number, &format!("was told without need: {reason}"))),
                (Step::Told(reason), Some(lost)) => {
                    let ends_more = lost == 0 || (self.coming.by_relays && self.leader_of(lost) == lost);
                    let names_it = reason.contains(&format!("rank {lost} ")) || reason.contains("nobody listens");
                    // Rank 0, or the leader of its node, may have been told sooner, and have ended.
                    let may_be_behind = !rank.was_started || self.coming.by_relays;
                    let is_behind = may_be_behind && reason.contains("has ended, ");
                    if reason.contains("exited with status") {
                        return Err(of(number, &format!("was told what nobody knows: {reason}")));
                    }
                    if !ends_more && !names_it && !is_behind {
                        return Err(of(number, &format!("was not told of rank {lost}: {reason}")));
                    }
                }
                (step, _) => return Err(of(number, step.name())),
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(rank) => self.begin(rank),
            Event::Stranger(stranger) => self.begin_stranger(stranger),
            Event::Call(connection, again) => self.arrive_call(connection, again),
            Event::Connected(connection, is_taken) => self.connected(connection, is_taken),
            Event::Arrive(connection, end, bytes) => self.arrive(connection, end, &bytes),
            Event::End(connection, end) => {
                self.network.connections[connection as usize].ended[end] = true;
                self.tell(connection, end);
            }
            Event::Turn(Thread::Coordinator) => self.turn_of_coordinator(),
            Event::Turn(Thread::Relay(node)) => self.turn_of_relay(node),
            Event::Turn(_) => unreachable!("ranks do what they do when it comes"),
            Event::Patience(rank, wait) => self.lose_patience(rank, wait),
            Event::Leave(rank) => self.leave(rank),
            Event::Fault(fault) => self.happen(fault),
        }
    }

    fn arrive(&mut self, connection: u32, end: usize, bytes: &[u8]) {
        let state = &mut self.network.connections[connection as usize];
        if !state.closed[end] {
            state.inbox[end].extend_from_slice(bytes);
            self.tell(connection, end);
        }
    }

    /// Something has arrived at an end.
    fn tell(&mut self, connection: u32, end: usize) {
        let state = &self.network.connections[connection as usize];
        if state.closed[end] {
            return;
        }
        match state.ends[end] {
            Thread::Rank(rank) => self.hear(rank, connection, end),
            Thread::Stranger(_) => {}
            server => self.be_ready(server, connection),
        }
    }

    fn server(&mut self, thread: Thread) -> Option<&mut Server> {
        match thread {
            Thread::Coordinator => Some(&mut self.desk),
            Thread::Relay(node) => self.relays.get_mut(&node).map(|relay| &mut relay.server),
            Thread::Rank(_) | Thread::Stranger(_) => None,
        }
    }

    fn be_ready(&mut self, thread: Thread, connection: u32) {
        let wake_ns = self.machine.wake_socket_ns;
        if let Some(server) = self.server(thread) {
            server.ready.insert(connection);
            self.schedule(thread, wake_ns);
        }
    }

    fn schedule(&mut self, thread: Thread, after_ns: u64) {
        let now_ns = self.network.now_ns();
        let Some(server) = self.server(thread) else { return };
        let at_ns = (now_ns + after_ns).max(server.busy_until_ns).max(server.paused_until_ns);
        if !server.has_ended && server.turn_ns.is_none_or(|due_ns| due_ns > at_ns) {
            server.turn_ns = Some(at_ns);
            self.network.at(at_ns, Event::Turn(thread));
        }
    }

    /// Whether a thread is to take this turn. One that rests takes it later.
    fn takes_turn(&mut self, thread: Thread) -> bool {
        let now_ns = self.network.now_ns();
        let Some(server) = self.server(thread).filter(|server| server.turn_ns == Some(now_ns) && !server.has_ended)
        else {
            return false;
        };
        server.turn_ns = None;
        if server.paused_until_ns > now_ns {
            self.schedule(thread, 0);
            return false;
        }
        self.network.work(self.machine.turn_ns);
        true
    }

    fn end_turn(&mut self, thread: Thread, began_ns: u64) {
        let now_ns = self.network.now_ns();
        let Some(server) = self.server(thread) else { return };
        server.busy_until_ns = now_ns;
        server.worked_ns += now_ns - began_ns;
        if !server.ready.is_empty() || !server.backlog.is_empty() {
            self.schedule(thread, 0);
        }
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_nanos(self.network.now_ns())
    }

    fn nonce(&mut self) -> [u8; NONCE_BYTES] {
        self.nonces += 1;
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.nonces.to_le_bytes());
        nonce
    }
}

/// The coordinator's thread: `runtime/src/bootstrap/coordinator.rs`.
impl Stage {
    fn turn_of_coordinator(&mut self) {
        let began_ns = self.network.now_ns();
        if !self.takes_turn(Thread::Coordinator) {
            return;
        }
        for _ in 0..ACCEPTED_MAX {
            let Some(connection) = self.desk.backlog.pop_front() else { break };
            self.network.work(self.machine.receive_ns + self.machine.send_ns);
            let (nonce, now) = (self.nonce(), self.now());
            match self.coordinator.handle_connection(nonce, now) {
                Some(number) => {
                    self.number_of.insert(connection, number);
                    self.connection_of.insert(number, connection);
                    let state = &self.network.connections[connection as usize];
                    if !state.inbox[1].is_empty() || state.ended[1] {
                        self.desk.ready.insert(connection);
                    }
                }
                None => self.network.close(connection, 1),
            }
        }
        for connection in std::mem::take(&mut self.desk.ready) {
            let Some(number) = self.number_of.get(&connection).copied() else { continue };
            let (bytes, is_over) = self.network.receive(connection, 1, CHUNK_BYTES);
            let now = self.now();
            if !bytes.is_empty() {
                self.coordinator.handle_bytes(number, &bytes, now);
            }
            if is_over {
                self.forget(connection);
                self.network.close(connection, 1);
                self.coordinator.handle_hang_up(number, now);
            } else if !self.network.connections[connection as usize].inbox[1].is_empty() {
                self.desk.ready.insert(connection);
            }
            self.do_effects();
        }
        let now = self.now();
        if self.coordinator.deadline().is_some_and(|at| at <= now) {
            self.coordinator.handle_time(now);
            self.do_effects();
        }
        if !self.coordinator.is_open() {
            self.hang_up_on_waiting();
        }
        self.end_turn(Thread::Coordinator, began_ns);
        if let Some(at) = self.coordinator.deadline() {
            let after_ns = ns(at.saturating_duration_since(now));
            self.schedule(Thread::Coordinator, after_ns);
        }
    }

    fn hang_up_on_waiting(&mut self) {
        for connection in std::mem::take(&mut self.desk.backlog) {
            self.network.close(connection, 1);
        }
    }

    fn forget(&mut self, connection: u32) {
        if let Some(number) = self.number_of.remove(&connection) {
            self.connection_of.remove(&number);
        }
    }

    fn do_effects(&mut self) {
        let (mut unsent, mut bytes_unsent) = (None, Vec::new());
        while let Some(effect) = self.coordinator.poll_effect() {
            let to = if let Effect::Send { connection, .. } = &effect { Some(*connection) } else { None };
            if unsent != to {
                self.send_unsent(unsent, &mut bytes_unsent);
                unsent = to;
            }
            match effect {
                Effect::Send { bytes, .. } => {
                    self.network.work(ANSWER_NS);
                    bytes_unsent.extend_from_slice(&bytes);
                }
                Effect::Close { connection } => {
                    if let Some(connection) = self.connection_of.get(&connection).copied() {
                        self.forget(connection);
                        self.network.close(connection, 1);
                    }
                }
                Effect::End { .. } => self.end_by_manager(),
                Effect::Say(_) | Effect::Refused { .. } => {}
                Effect::Answer { .. } => unreachable!("nobody asks"),
            }
        }
        self.send_unsent(unsent, &mut bytes_unsent);
    }

    fn send_unsent(&mut self, number: Option<u64>, bytes: &mut Vec<u8>) {
        if let Some(connection) = number.and_then(|number| self.connection_of.get(&number)) {
            self.network.send(*connection, 1, bytes);
        }
        bytes.clear();
    }

    /// The manager ends all that are left.
    fn end_by_manager(&mut self) {
        for rank in 0..self.coming.ranks {
            if !self.ranks[rank as usize].step.is_over() {
                let lost = self.outcome.lost.unwrap_or(u32::MAX);
                self.set(rank, Step::Told(format!("the manager ends the job: rank {lost} has ended")));
            }
        }
    }
}

/// The thread of a relay: `runtime/src/bootstrap/relay.rs`.
impl Stage {
    fn turn_of_relay(&mut self, node: u32) {
        let began_ns = self.network.now_ns();
        if !self.takes_turn(Thread::Relay(node)) {
            return;
        }
        let Some(mut relay) = self.relays.remove(&node) else { return };
        while let Some(connection) = relay.server.backlog.pop_front() {
            self.take_in(&mut relay, connection);
        }
        for connection in std::mem::take(&mut relay.server.ready) {
            let is_up = connection == relay.up;
            let end = usize::from(!is_up);
            let (bytes, is_over) = self.network.receive(connection, end, CHUNK_BYTES);
            if is_up {
                if relay.relay.handle_root_bytes(&bytes).is_err() {
                    self.wrong = Some(format!("the relay of node {node} does not understand the coordinator"));
                }
            } else if let Some(member) = relay.member_of.get(&connection).copied() {
                if !bytes.is_empty() {
                    relay.relay.handle_bytes(member, &bytes);
                }
                if is_over {
                    relay.relay.handle_hang_up(member);
                    relay.member_of.remove(&connection);
                    relay.members.remove(&member);
                    self.network.close(connection, 1);
                }
            }
            self.do_effects_of(&mut relay);
            if is_up && is_over {
                self.end_relay(&mut relay);
            } else if !is_over && !self.network.connections[connection as usize].inbox[end].is_empty() {
                relay.server.ready.insert(connection);
            }
        }
        self.send_up(&mut relay);
        let now_ns = self.network.now_ns();
        if relay.lingers_until_ns.is_some_and(|until_ns| until_ns <= now_ns || relay.members.is_empty()) {
            self.end_relay(&mut relay);
        }
        let lingers_until_ns = relay.lingers_until_ns;
        self.relays.insert(node, relay);
        self.end_turn(Thread::Relay(node), began_ns);
        if let Some(until_ns) = lingers_until_ns {
            self.schedule(Thread::Relay(node), until_ns.saturating_sub(now_ns));
        }
    }

    fn take_in(&mut self, relay: &mut RelayThread, connection: u32) {
        match relay.relay.handle_member().filter(|_| relay.is_open) {
            Some(member) => {
                relay.members.insert(member, connection);
                relay.member_of.insert(connection, member);
                self.network.send(connection, 1, &relay.leader.to_le_bytes());
                self.do_effects_of(relay);
            }
            None => self.network.close(connection, 1),
        }
    }

    fn do_effects_of(&mut self, relay: &mut RelayThread) {
        while let Some(effect) = relay.relay.poll_effect() {
            match effect {
                relay::Effect::ToCoordinator(bytes) => relay.to_coordinator.extend_from_slice(&bytes),
                relay::Effect::ToMember { member, bytes } => {
                    if let Some(connection) = relay.members.get(&member) {
                        self.network.send(*connection, 1, &bytes);
                    }
                }
                relay::Effect::Close { member } => self.close_member(relay, member),
            }
        }
    }

    fn send_up(&mut self, relay: &mut RelayThread) {
        if !relay.to_coordinator.is_empty() {
            let bytes = std::mem::take(&mut relay.to_coordinator);
            self.network.send(relay.up, 0, &bytes);
        }
    }

    /// In good order.
    fn close_member(&mut self, relay: &mut RelayThread, member: u32) {
        if let Some(connection) = relay.members.remove(&member) {
            relay.member_of.remove(&connection);
            self.network.send(connection, 1, &[LAST]);
            self.network.close(connection, 1);
        }
    }

    /// Its process wants it so, or the coordinator is gone: all members hear that the relay's process has not ended by itself.
    fn end_relay(&mut self, relay: &mut RelayThread) {
        self.send_up(relay);
        for member in relay.members.keys().copied().collect::<Vec<_>>() {
            self.close_member(relay, member);
        }
        for connection in std::mem::take(&mut relay.server.backlog) {
            self.network.close(connection, 1);
        }
        self.network.close(relay.up, 0);
        (relay.is_open, relay.server.has_ended) = (false, true);
    }
}

/// What ranks do.
impl Stage {
    fn leader_of(&self, rank: u32) -> u32 {
        self.shape.ranks_of(self.shape.node_of(rank)).start
    }

    fn set(&mut self, rank: u32, step: Step) {
        let is_over = step.is_over();
        self.came_in += u32::from(matches!(step, Step::In));
        self.gone += u32::from(matches!(step, Step::Gone));
        self.over += u32::from(is_over);
        let state = &mut self.ranks[rank as usize];
        state.step = step;
        state.wait += 1;
        if is_over {
            self.end_process(rank);
        }
    }

    fn wait(&mut self, rank: u32, patience_ns: u64) {
        let wait = self.ranks[rank as usize].wait;
        self.network.after(patience_ns, Event::Patience(rank, wait));
    }

    fn begin(&mut self, rank: u32) {
        if !matches!(self.ranks[rank as usize].step, Step::Absent) {
            return;
        }
        let leader = self.leader_of(rank);
        let of_node = self.shape.ranks_of(self.shape.node_of(rank));
        if !self.coming.by_relays || of_node.len() < 2 || rank == leader {
            self.call(rank);
            if rank == leader && self.coming.by_relays {
                // It knocks.
                for other in of_node
                    .skip(1)
                    .filter(|other| matches!(self.ranks[*other as usize].step, Step::Behind))
                    .collect::<Vec<_>>()
                {
                    self.come_to_relay(other);
                }
            }
            return;
        }
        self.set(rank, Step::Behind);
        match &self.ranks[leader as usize].step {
            Step::Absent => self.wait(rank, LEADER_NS),
            Step::Told(_) | Step::Lost | Step::Gone => self.wait(rank, LEADER_NS),
            _ => self.come_to_relay(rank),
        }
    }

    /// The leader of its node listens. It takes in whoever comes once it is let in itself.
    fn come_to_relay(&mut self, rank: u32) {
        let node = self.shape.node_of(rank);
        let connection = self.network.connect(Thread::Rank(rank), Thread::Relay(node), true);
        self.ranks[rank as usize].connection = Some(connection);
        self.ranks[rank as usize].wait += 1;
        self.wait(rank, MEET_NS / 2);
        if let Some(relay) = self.relays.get_mut(&node) {
            match relay.is_open {
                true => {
                    relay.server.backlog.push_back(connection);
                    self.schedule(Thread::Relay(node), self.machine.wake_socket_ns);
                }
                false => self.network.close(connection, 1),
            }
        }
    }

    /// Whether what a rank begins now is to be the relay of its node.
    fn is_to_be_relay(&self, rank: u32) -> bool {
        let node = self.shape.node_of(rank);
        self.coming.by_relays
            && self.leader_of(rank) == rank
            && self.shape.ranks_of(node).len() > 1
            && !self.relays.contains_key(&node)
    }

    /// Calls rank 0.
    fn call(&mut self, rank: u32) {
        let connection = self.network.connect(Thread::Rank(rank), Thread::Coordinator, false);
        self.set(rank, Step::Calling);
        let state = &mut self.ranks[rank as usize];
        (state.connection, state.through_relay) = (Some(connection), false);
        state.heard.clear();
        self.network.work(self.machine.send_ns);
        self.network.after(self.network.latency_ns(false), Event::Call(connection, 0));
        self.wait(rank, ATTEMPT_NS);
    }

    fn arrive_call(&mut self, connection: u32, again: u32) {
        if self.network.connections[connection as usize].closed[0] {
            return;
        }
        let latency_ns = self.network.latency_ns(false);
        if self.desk.has_ended || !self.coordinator.is_open() {
            self.network.after(latency_ns, Event::Connected(connection, false));
        } else if self.desk.backlog.len() >= BACKLOG {
            self.network.after(CALL_AGAIN_NS << again, Event::Call(connection, again + 1));
        } else {
            self.desk.backlog.push_back(connection);
            self.schedule(Thread::Coordinator, self.machine.wake_socket_ns);
            self.network.after(latency_ns, Event::Connected(connection, true));
        }
    }

    fn connected(&mut self, connection: u32, is_taken: bool) {
        match self.network.connections[connection as usize].ends[0] {
            Thread::Rank(rank) if self.ranks[rank as usize].connection == Some(connection) => match is_taken {
                true => self.greet(rank),
                false => self.set(rank, Step::Told("nobody listens there any more".to_owned())),
            },
            Thread::Stranger(stranger) if is_taken => self.speak_as_stranger(stranger, connection),
            _ => {}
        }
    }

    /// How long a rank waits for the answers to its proof: with the relay of its own process for as long as it takes.
    fn patience_ns(&self, rank: u32) -> u64 {
        let is_own_relay = self.ranks[rank as usize].through_relay && self.leader_of(rank) == rank;
        if is_own_relay { MEET_NS.saturating_sub(self.network.now_ns()).max(ATTEMPT_NS) } else { ATTEMPT_NS }
    }

    /// Says who it is.
    fn greet(&mut self, rank: u32) {
        let Some(connection) = self.ranks[rank as usize].connection else { return };
        let through_relay = self.ranks[rank as usize].through_relay;
        let caller = if !through_relay && self.is_to_be_relay(rank) && !self.ranks[rank as usize].by_itself {
            Caller::Relay
        } else {
            Caller::Rank
        };
        let nonce = self.nonce();
        let (proof, hello) = RankProof::start_as(caller, &self.ticket, rank, nonce);
        self.set(rank, Step::Greeted(Box::new(proof)));
        self.network.send(connection, 0, &hello);
        self.wait(rank, self.patience_ns(rank));
    }

    fn hear(&mut self, rank: u32, connection: u32, end: usize) {
        if self.ranks[rank as usize].connection != Some(connection) {
            return;
        }
        self.network.work(self.machine.wake_socket_ns);
        let (bytes, is_over) = self.network.receive(connection, end, usize::MAX);
        self.ranks[rank as usize].heard.extend_from_slice(&bytes);
        while self.ranks[rank as usize].connection == Some(connection) && self.understand(rank) {}
        if is_over && self.ranks[rank as usize].connection == Some(connection) {
            self.handle_hang_up(rank);
        }
    }

    /// Takes the next thing that was said to a rank. Whether there may be another one.
    fn understand(&mut self, rank: u32) -> bool {
        let state = &mut self.ranks[rank as usize];
        match &state.step {
            Step::Behind => {
                let Some(leader) = state.take::<4>() else { return false };
                if u32::from_le_bytes(leader) != self.leader_of(rank) {
                    self.wrong = Some(format!("rank {rank} came to the relay of another node"));
                }
                self.ranks[rank as usize].through_relay = true;
                self.greet(rank);
            }
            Step::Greeted(_) => {
                let Some(challenge) = state.take() else { return false };
                let Step::Greeted(proof) = std::mem::replace(&mut state.step, Step::Resting) else { return false };
                match proof.handle_challenge(&challenge) {
                    Ok((welcome, proof)) => {
                        let connection = state.connection;
                        self.set(rank, Step::Proven(welcome));
                        connection.into_iter().for_each(|connection| self.network.send(connection, 0, &proof));
                        self.wait(rank, self.patience_ns(rank));
                    }
                    Err(error) => self.set(rank, Step::Told(error.to_string())),
                }
            }
            Step::Proven(_) => {
                let Some(answer) = state.take() else { return false };
                let Step::Proven(welcome) = std::mem::replace(&mut state.step, Step::Resting) else { return false };
                match welcome.check(&answer) {
                    Ok(()) => self.be_let_in(rank),
                    Err(error) => self.set(rank, Step::Told(error.to_string())),
                }
            }
            Step::Arrived | Step::Joined | Step::Asked | Step::In | Step::Left => {
                let Some(line) = state.take_line() else { return false };
                self.read(rank, &line);
            }
            _ => return false,
        }
        true
    }

    fn be_let_in(&mut self, rank: u32) {
        if !self.ranks[rank as usize].through_relay && !self.ranks[rank as usize].by_itself && self.is_to_be_relay(rank)
        {
            return self.begin_relay(rank);
        }
        let node = self.shape.node_of(rank);
        self.set(rank, Step::Arrived);
        let ranks_of_node = self.shape.ranks_of(node).len() as u32;
        self.say(rank, &arrival(rank, node, ranks_of_node));
        self.wait(rank, MEET_NS + SPARE_NS);
    }

    /// The others of its node come through it from now on, and so does this rank.
    fn begin_relay(&mut self, leader: u32) {
        let node = self.shape.node_of(leader);
        let Some(up) = self.ranks[leader as usize].connection.take() else { return };
        self.network.connections[up as usize].ends[0] = Thread::Relay(node);
        let members_max = self.shape.ranks_of(node).len() + HALF_OPEN_MAX;
        let server = Server::default();
        let (relay, to_coordinator) = (Relay::new(members_max), Vec::new());
        let (members, member_of) = (BTreeMap::new(), BTreeMap::new());
        let mut thread = RelayThread {
            relay,
            server,
            leader,
            up,
            to_coordinator,
            members,
            member_of,
            is_open: true,
            lingers_until_ns: None,
        };
        let own = self.network.connect(Thread::Rank(leader), Thread::Relay(node), true);
        self.take_in(&mut thread, own);
        let others = self.shape.ranks_of(node).skip(1).map(|rank| &self.ranks[rank as usize]);
        let waiting = others.filter(|rank| matches!(rank.step, Step::Behind)).filter_map(|rank| rank.connection);
        thread.server.backlog.extend(waiting);
        self.relays.insert(node, thread);
        self.ranks[leader as usize].connection = Some(own);
        self.ranks[leader as usize].heard.clear();
        self.set(leader, Step::Behind);
        self.wait(leader, ATTEMPT_NS);
        self.be_ready(Thread::Relay(node), up);
    }

    fn say(&mut self, rank: u32, message: &impl Serialize) {
        let mut line = serde_json::to_vec(message).expect("these messages have only names as keys");
        line.push(b'\n');
        if let Some(connection) = self.ranks[rank as usize].connection {
            self.network.send(connection, 0, &line);
        }
    }

    fn read(&mut self, rank: u32, line: &[u8]) {
        if matches!(self.ranks[rank as usize].step, Step::Arrived) {
            return match serde_json::from_slice(line) {
                Ok(Met::All { .. }) => {
                    self.met_ns = self.network.now_ns();
                    let relay = self.relays.get_mut(&self.shape.node_of(rank)).filter(|relay| relay.leader == rank);
                    relay.into_iter().for_each(|relay| relay.is_open = false);
                    self.set(rank, Step::Joined);
                    self.say(rank, &FromRank::Join { version: CONTROL_VERSION, pid: 100_000 + rank });
                }
                Ok(Met::Failed { reason }) => self.set(rank, Step::Told(reason)),
                Err(_) => self.wrong = Some(format!("rank {rank} does not understand whether all have come")),
            };
        }
        if line.starts_with(b"{\"Start\"") {
            return self.be_started(rank, line);
        }
        match serde_json::from_slice(line) {
            Ok(ToRank::Cards { cards }) if matches!(self.ranks[rank as usize].step, Step::Asked) => {
                let node = self.shape.node_of(rank);
                if cards != [card(node)] {
                    self.wrong = Some(format!("rank {rank} was told cards of others: {cards:?}"));
                }
                self.be_in(rank);
            }
            Ok(ToRank::Died { rank: dead, how }) => self.set(rank, Step::Told(format!("rank {dead} {how}"))),
            Ok(ToRank::Goodbye) if matches!(self.ranks[rank as usize].step, Step::Left) => self.set(rank, Step::Gone),
            other => {
                self.wrong =
                    Some(format!("rank {rank}, which {}, was told {other:?}", self.ranks[rank as usize].step.name()))
            }
        }
    }

    fn be_started(&mut self, rank: u32, line: &[u8]) {
        let node = self.shape.node_of(rank);
        let is_last = rank + 1 == self.coming.ranks;
        let is_right = match self.coming.ranks <= READ_MAX || is_last {
            true => matches!(serde_json::from_slice(line), Ok(ToRank::Start(start))
                if start.rank == rank && start.is_sound() && start.node_of_rank.iter().copied().eq(self.shape.node_of_rank.iter().map(|node| node.0))),
            false => serde_json::from_slice::<BriefStart>(line).is_ok_and(|brief| brief.start.rank == rank),
        };
        if !is_right || !matches!(self.ranks[rank as usize].step, Step::Joined) {
            self.wrong = Some(format!("rank {rank} was told another one's start, or one too many"));
        }
        self.ranks[rank as usize].was_started = true;
        if self.leader_of(rank) == rank {
            self.say(rank, &FromRank::Publish { card: card(node) });
            self.be_in(rank);
        } else {
            self.set(rank, Step::Asked);
            self.say(rank, &FromRank::Fetch { first: node, count: 1 });
        }
    }

    fn be_in(&mut self, rank: u32) {
        self.set(rank, Step::In);
        if let Some(dice) = &mut self.dice {
            let after_ns = dice.below(1_000_000_000);
            self.network.after(after_ns, Event::Leave(rank));
        }
    }

    fn leave(&mut self, rank: u32) {
        if matches!(self.ranks[rank as usize].step, Step::In) {
            self.set(rank, Step::Left);
            self.say(rank, &FromRank::Leave { traffic: Vec::new(), network: Vec::new() });
        }
    }

    /// What led to the coordinator is gone.
    fn handle_hang_up(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        let connection = state.connection.take();
        connection.into_iter().for_each(|connection| self.network.close(connection, 0));
        let state = &mut self.ranks[rank as usize];
        let is_relays = state.through_relay || matches!(state.step, Step::Behind);
        let heard_last = state.heard.last() == Some(&LAST);
        let leader = self.leader_of(rank);
        let state = &mut self.ranks[rank as usize];
        match state.step {
            Step::Behind | Step::Greeted(_) | Step::Proven(_) if is_relays => {
                state.by_itself = true;
                self.call(rank);
            }
            Step::Greeted(_) | Step::Proven(_) | Step::Calling => self.rest(rank),
            _ if is_relays && !heard_last => {
                self.set(rank, Step::Told(format!("rank {leader} has ended, through which this one came")));
            }
            _ => self.set(rank, Step::Told("rank 0 has ended, or has cut this rank off".to_owned())),
        }
    }

    fn rest(&mut self, rank: u32) {
        self.outcome.tries_again += 1;
        let connection = self.ranks[rank as usize].connection.take();
        connection.into_iter().for_each(|connection| self.network.close(connection, 0));
        self.set(rank, Step::Resting);
        let state = &mut self.ranks[rank as usize];
        state.pause_ns = (state.pause_ns * 2).clamp(PAUSE_MIN_NS, PAUSE_MAX_NS);
        let pause_ns = state.pause_ns;
        self.wait(rank, pause_ns);
    }

    fn lose_patience(&mut self, rank: u32, wait: u32) {
        if self.ranks[rank as usize].wait != wait {
            return;
        }
        match self.ranks[rank as usize].step {
            Step::Resting if self.network.now_ns() < MEET_NS => self.call(rank),
            Step::Resting => self.set(rank, Step::Told("rank 0 cannot be reached".to_owned())),
            Step::Calling => self.rest(rank),
            Step::Behind => self.go_by_itself(rank),
            Step::Greeted(_) | Step::Proven(_) if self.ranks[rank as usize].through_relay => self.go_by_itself(rank),
            Step::Greeted(_) | Step::Proven(_) => self.rest(rank),
            Step::Arrived => self.set(rank, Step::Told("rank 0 says nothing".to_owned())),
            _ => {}
        }
    }

    fn go_by_itself(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.by_itself = true;
        let connection = state.connection.take();
        connection.into_iter().for_each(|connection| self.network.close(connection, 0));
        self.call(rank);
    }

    /// Its process ends by itself, and what it has of threads says what it has to say before.
    fn end_process(&mut self, rank: u32) {
        let connection = self.ranks[rank as usize].connection.take();
        connection.into_iter().for_each(|connection| self.network.close(connection, 0));
        let node = self.shape.node_of(rank);
        if let Some(mut relay) = self.relays.remove(&node) {
            if relay.leader == rank && !relay.server.has_ended {
                self.do_effects_of(&mut relay);
                self.send_up(&mut relay);
                if self.ranks[rank as usize].by_itself {
                    relay.lingers_until_ns = Some(self.network.now_ns() + FLUSH_NS);
                } else {
                    self.end_relay(&mut relay);
                }
            }
            self.relays.insert(node, relay);
            self.schedule(Thread::Relay(node), 0);
        }
        if rank == 0 && !self.desk.has_ended {
            self.do_effects();
            self.end_coordinator();
        }
    }

    fn end_coordinator(&mut self) {
        self.desk.has_ended = true;
        self.hang_up_on_waiting();
        for connection in std::mem::take(&mut self.number_of).into_keys() {
            self.network.close(connection, 1);
        }
        self.connection_of.clear();
    }
}

/// What goes wrong.
impl Stage {
    fn begin_stranger(&mut self, stranger: u32) {
        self.outcome.strangers += 1;
        let connection = self.network.connect(Thread::Stranger(stranger), Thread::Coordinator, false);
        self.network.after(self.network.latency_ns(false), Event::Call(connection, 0));
    }

    fn speak_as_stranger(&mut self, stranger: u32, connection: u32) {
        let Some(mut dice) = self.dice.clone().map(|mut dice| Dice::of(dice.roll(), 82, stranger.into())) else {
            return;
        };
        let rank = dice.below(self.coming.ranks.into()) as u32;
        let other = Ticket { secret: [8; 32], ..self.ticket.clone() };
        let nonce = self.nonce();
        let (_, hello) = RankProof::start_as(Caller::Rank, &other, rank, nonce);
        match dice.below(5) {
            0 => {} // It says nothing.
            1 => {
                let noise: Vec<u8> = (0..dice.below(500)).map(|_| dice.roll() as u8).collect();
                self.network.send(connection, 0, &noise);
            }
            2 => {
                self.network.send(connection, 0, &hello[..20]);
                self.network.close(connection, 0);
            }
            // It knows all but the secret.
            3 => self.network.send(connection, 0, &hello),
            _ => {
                self.network.send(connection, 0, &hello);
                self.network.send(connection, 0, &[1; 32]);
            }
        }
    }

    fn happen(&mut self, fault: Fault) {
        match fault {
            Fault::Break => self.break_one(),
            Fault::Pause(thread, pause_ns) => {
                let until_ns = self.network.now_ns() + pause_ns;
                let Some(server) = self.server(thread) else { return };
                server.paused_until_ns = server.paused_until_ns.max(until_ns);
                self.outcome.pauses += 1;
            }
            Fault::Kill(rank) => self.kill(rank),
        }
    }

    /// A connection that leads to the coordinator and is not let in breaks, for both ends.
    fn break_one(&mut self) {
        let is_such = |rank: &&Rank| matches!(rank.step, Step::Greeted(_) | Step::Proven(_)) && !rank.through_relay;
        let such: Vec<u32> = self.ranks.iter().filter(is_such).filter_map(|rank| rank.connection).collect();
        let Some(dice) = self.dice.as_mut().filter(|_| !such.is_empty()) else { return };
        let connection = *dice.pick(&such);
        self.outcome.broken += 1;
        for end in [0, 1] {
            self.network.connections[connection as usize].ended[end] = true;
            self.tell(connection, end);
        }
    }

    fn lose(&mut self, rank: u32) {
        self.outcome.lost = Some(rank);
        self.over += 1;
        self.ranks[rank as usize].step = Step::Lost;
    }

    /// Its process ends, with the threads in it, and nothing that was not sent is.
    fn kill(&mut self, rank: u32) {
        if self.ranks[rank as usize].step.is_over() {
            return;
        }
        self.had_left = matches!(self.ranks[rank as usize].step, Step::Left);
        self.lose(rank);
        self.ranks[rank as usize].wait += 1;
        let connection = self.ranks[rank as usize].connection.take();
        connection.into_iter().for_each(|connection| self.network.close(connection, 0));
        let node = self.shape.node_of(rank);
        if let Some(relay) = self.relays.get_mut(&node).filter(|relay| relay.leader == rank && !relay.server.has_ended)
        {
            (relay.is_open, relay.server.has_ended) = (false, true);
            let members = std::mem::take(&mut relay.members).into_values();
            let ends: Vec<u32> = members.chain(std::mem::take(&mut relay.server.backlog)).collect();
            self.network.close(relay.up, 0);
            ends.into_iter().for_each(|connection| self.network.close(connection, 1));
        }
        // Those that wait for it to be let in wait at its listener.
        let of_node = self.shape.ranks_of(node).filter(|other| *other != rank && self.leader_of(rank) == rank);
        let waiting: Vec<u32> = of_node
            .filter(|other| matches!(self.ranks[*other as usize].step, Step::Behind))
            .filter_map(|other| self.ranks[other as usize].connection)
            .collect();
        waiting.into_iter().for_each(|connection| self.network.close(connection, 1));
        if rank == 0 {
            self.end_coordinator();
        }
    }
}
