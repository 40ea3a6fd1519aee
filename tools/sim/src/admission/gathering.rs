//! Where it all happens: what there is, whom an event concerns, and whether all were told what they had to be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longarm_control::coordinator::Settings;
use longarm_control::desk::CoordinatorDesk;
use longarm_control::proof::{NONCE_BYTES, Ticket};

use super::job::{Coming, HALF_OPEN_MAX, MEET_NS, Outcome, PROOF, REPORT};
use super::network::{Event, Network, Thread};
use super::rank::{Rank, Step};
use super::serving::{RelayThread, Serving};
use super::sockets::Numbers;
use crate::dice::Dice;
use crate::fault::FaultSet;
use crate::plan::Shape;
use crate::user::Machine;

/// See the module.
pub(super) struct Gathering {
    /// Who comes.
    pub(super) coming: Coming,
    /// Which ranks are on which node.
    pub(super) shape: Shape,
    pub(super) machine: Machine,
    pub(super) network: Network,
    /// What the coordinator takes for the time when the first one called.
    pub(super) began: Instant,
    pub(super) ticket: Ticket,
    pub(super) coordinator: CoordinatorDesk,
    pub(super) coordinator_thread: Serving,
    /// Of the coordinator's connections.
    pub(super) numbers: Numbers,
    /// By node, once their leaders were let in.
    pub(super) relays: BTreeMap<u32, RelayThread>,
    pub(super) ranks: Vec<Rank>,
    /// How many ranks have come in, how many were let go, and of how many nothing more comes.
    pub(super) came_in: u32,
    pub(super) gone: u32,
    pub(super) over: u32,
    /// Random numbers that were given out.
    pub(super) nonces: u64,
    /// Of faults, if there are any.
    pub(super) dice: Option<Dice>,
    /// What a rank was told that it should not be.
    pub(super) wrong: Option<String>,
    /// Whether the rank that was killed had left before.
    pub(super) had_left: bool,
    /// When the last rank has heard that all have come.
    pub(super) met_ns: u64,
    pub(super) outcome: Outcome,
}

impl Gathering {
    pub(super) fn new(coming: Coming, machine: Machine, mut dice: Option<Dice>) -> Gathering {
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
        let mut stage = Gathering {
            network: Network::new(machine, dice.as_mut().map(|dice| Dice::of(dice.roll(), 81, 0))),
            coordinator: CoordinatorDesk::new(settings, began),
            ranks: (0..ranks).map(|_| Rank::new()).collect(),
            coming,
            shape,
            machine,
            began,
            ticket,
            coordinator_thread: Serving::default(),
            numbers: Numbers::default(),
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

    pub(super) fn now_us(&self) -> f64 {
        self.network.now_ns() as f64 / 1e3
    }

    /// For how long the thread of the coordinator has worked.
    pub(super) fn busy_us(&self) -> f64 {
        self.coordinator_thread.worked_ns as f64 / 1e3
    }

    pub(super) fn connections_of_coordinator(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// Goes on until all is as wanted, or until a time.
    pub(super) fn run_until(&mut self, until_ns: u64, is_wanted: impl Fn(&Gathering) -> bool) {
        while !is_wanted(self)
            && let Some(event) = self.network.advance(until_ns)
        {
            self.handle(event);
        }
    }

    /// All ranks that are in leave.
    pub(super) fn all_leave(&mut self) {
        (0..self.coming.ranks).for_each(|rank| self.network.after(0, Event::Leave(rank)));
    }

    /// Whether each rank was told what it had to be.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let of =
            |rank: u32, what: &str| format!("rank {rank} {what}, {} s after the first one called", self.now_us() / 1e6);
        for (number, rank) in (0..).zip(&self.ranks) {
            match (&rank.step, self.outcome.lost) {
                (Step::LetGo, None) | (Step::Lost, _) => {}
                (Step::LetGo, Some(_)) if self.had_left => {}
                (Step::LetGo, Some(lost)) => {
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

    pub(super) fn handle(&mut self, event: Event) {
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

    pub(super) fn arrive(&mut self, connection: u32, end: usize, bytes: &[u8]) {
        let state = &mut self.network.connections[connection as usize];
        if !state.closed[end] {
            state.inbox[end].extend_from_slice(bytes);
            self.tell(connection, end);
        }
    }

    /// Something has arrived at an end.
    pub(super) fn tell(&mut self, connection: u32, end: usize) {
        let state = &self.network.connections[connection as usize];
        if state.closed[end] {
            return;
        }
        match state.ends[end] {
            Thread::Rank(rank) => self.hear(rank, connection),
            Thread::Stranger(_) => {}
            server => self.be_ready(server, connection),
        }
    }

    pub(super) fn serving(&mut self, thread: Thread) -> Option<&mut Serving> {
        match thread {
            Thread::Coordinator => Some(&mut self.coordinator_thread),
            Thread::Relay(node) => self.relays.get_mut(&node).map(|relay| &mut relay.serving),
            Thread::Rank(_) | Thread::Stranger(_) => None,
        }
    }

    pub(super) fn be_ready(&mut self, thread: Thread, connection: u32) {
        let wake_ns = self.machine.wake_socket_ns;
        if let Some(server) = self.serving(thread) {
            server.ready.insert(connection);
            self.schedule(thread, wake_ns);
        }
    }

    pub(super) fn schedule(&mut self, thread: Thread, after_ns: u64) {
        let now_ns = self.network.now_ns();
        let Some(server) = self.serving(thread) else { return };
        let at_ns = (now_ns + after_ns).max(server.busy_until_ns).max(server.paused_until_ns);
        if !server.has_ended && server.turn_ns.is_none_or(|due_ns| due_ns > at_ns) {
            server.turn_ns = Some(at_ns);
            self.network.at(at_ns, Event::Turn(thread));
        }
    }

    /// Whether a thread is to take this turn. One that rests takes it later.
    pub(super) fn takes_turn(&mut self, thread: Thread) -> bool {
        let now_ns = self.network.now_ns();
        let Some(server) = self.serving(thread).filter(|server| server.turn_ns == Some(now_ns) && !server.has_ended)
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

    pub(super) fn end_turn(&mut self, thread: Thread, began_ns: u64) {
        let now_ns = self.network.now_ns();
        let Some(server) = self.serving(thread) else { return };
        server.busy_until_ns = now_ns;
        server.worked_ns += now_ns - began_ns;
        if !server.ready.is_empty() || !server.backlog.is_empty() {
            self.schedule(thread, 0);
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.began + Duration::from_nanos(self.network.now_ns())
    }

    pub(super) fn nonce(&mut self) -> [u8; NONCE_BYTES] {
        self.nonces += 1;
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.nonces.to_le_bytes());
        nonce
    }
}
