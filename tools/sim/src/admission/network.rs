//! The connections between threads: streams of bytes that arrive in order, whole or in pieces, and events in the order of their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::dice::{Dice, mix};
use crate::user::Machine;

/// What a connection within a node takes from one end to the other.
const NEAR_NS: u64 = 2_000;
/// Most bytes that arrive at once where pieces are cut.
const PIECE_MAX: u64 = 600;

/// A thread at the end of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thread {
    /// That of the coordinator, in the process of rank 0.
    Coordinator,
    /// That of the relay of a node, in the process of its leader.
    Relay(u32),
    /// That of a rank.
    Rank(u32),
    /// Somebody who has no business here.
    Stranger(u32),
}

/// Something that happens.
#[derive(Debug)]
pub enum Event {
    /// The process of a rank begins.
    Begin(u32),
    /// A stranger calls.
    Stranger(u32),
    /// A call arrives where the coordinator listens, after so many calls that found no room.
    Call(u32, u32),
    /// The caller knows that it is connected, or that nobody listens.
    Connected(u32, bool),
    /// Bytes arrive at one end of a connection.
    Arrive(u32, usize, Vec<u8>),
    /// The end of a connection arrives at one end.
    End(u32, usize),
    /// A thread takes a turn.
    Turn(Thread),
    /// A rank has waited as long as it wanted to, if it still waits for the same.
    Patience(u32, u32),
    /// A rank that is in leaves.
    Leave(u32),
    /// A fault.
    Fault(Fault),
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A connection that is not let in yet breaks.
    Break,
    /// A thread does nothing for so long.
    Pause(Thread, u64),
    /// The process of a rank is killed.
    Kill(u32),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Who called, and who was called.
    pub ends: [Thread; 2],
    /// What has arrived at each end, and was not read.
    pub inbox: [Vec<u8>; 2],
    /// The end has arrived there.
    pub ended: [bool; 2],
    /// This end is closed.
    pub closed: [bool; 2],
    /// When the last byte towards each end arrives.
    arrives_ns: [u64; 2],
    is_near: bool,
}

/// See the module.
pub struct Network {
    machine: Machine,
    now_ns: u64,
    /// What the thread has done in its turn so far.
    work_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    waiting: Vec<Option<Event>>,
    free: Vec<usize>,
    count: u64,
    pub connections: Vec<Connection>,
    /// With faults, what arrives is cut and late as they say.
    cuts: Option<Dice>,
    pub hash: u64,
}

impl Network {
    pub fn new(machine: Machine, cuts: Option<Dice>) -> Network {
        Network {
            machine,
            now_ns: 0,
            work_ns: 0,
            events: BinaryHeap::new(),
            waiting: Vec::new(),
            free: Vec::new(),
            count: 0,
            connections: Vec::new(),
            cuts,
            hash: 0,
        }
    }

    /// The time, with what the thread whose turn it is has done.
    pub fn now_ns(&self) -> u64 {
        self.now_ns + self.work_ns
    }

    /// The thread whose turn it is works for so long.
    pub fn work(&mut self, work_ns: u64) {
        self.work_ns += work_ns;
    }

    /// Has something happen at a time.
    pub fn at(&mut self, at_ns: u64, event: Event) {
        let place = match self.free.pop() {
            Some(place) => {
                self.waiting[place] = Some(event);
                place
            }
            None => {
                self.waiting.push(Some(event));
                self.waiting.len() - 1
            }
        };
        self.events.push(Reverse((at_ns.max(self.now_ns), self.count, place)));
        self.count += 1;
    }

    /// Has something happen in so many nanoseconds.
    pub fn after(&mut self, after_ns: u64, event: Event) {
        self.at(self.now_ns() + after_ns, event);
    }

    /// Goes on to what happens next, unless that is later than `until_ns`.
    pub fn advance(&mut self, until_ns: u64) -> Option<Event> {
        let Reverse((at_ns, number, place)) = *self.events.peek().filter(|Reverse((at_ns, ..))| *at_ns <= until_ns)?;
        self.events.pop();
        self.free.push(place);
        (self.now_ns, self.work_ns) = (at_ns, 0);
        self.hash = mix(self.hash ^ mix(at_ns) ^ number);
        self.waiting[place].take()
    }

    /// A connection, with nothing sent yet. `is_near`: within a node.
    pub fn connect(&mut self, from: Thread, to: Thread, is_near: bool) -> u32 {
        self.connections.push(Connection {
            ends: [from, to],
            inbox: Default::default(),
            ended: [false; 2],
            closed: [false; 2],
            arrives_ns: [0; 2],
            is_near,
        });
        self.connections.len() as u32 - 1
    }

    /// How long the first byte takes.
    pub fn latency_ns(&self, is_near: bool) -> u64 {
        if is_near { NEAR_NS } else { self.machine.latency_ns }
    }

    /// Sends from one end. What is closed at either end takes nothing.
    pub fn send(&mut self, number: u32, end: usize, bytes: &[u8]) {
        self.work_ns += self.machine.send_ns + self.copying_ns(bytes.len());
        if self.connections[number as usize].closed[end] || bytes.is_empty() {
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = match &mut self.cuts {
                Some(dice) => (1 + dice.below(PIECE_MAX) as usize).min(rest.len()),
                None => rest.len(),
            };
            let late_ns = self.cuts.as_mut().map_or(0, |dice| if dice.one_in(8) { dice.below(3_000_000) } else { 0 });
            let at_ns = self.arrival_ns(number, 1 - end, piece as u64) + late_ns;
            self.connections[number as usize].arrives_ns[1 - end] = at_ns;
            self.at(at_ns, Event::Arrive(number, 1 - end, rest[..piece].to_vec()));
            rest = &rest[piece..];
        }
    }

    fn arrival_ns(&self, number: u32, to: usize, bytes: u64) -> u64 {
        let connection = &self.connections[number as usize];
        let link_ns = if connection.is_near { 0 } else { bytes * self.machine.link_kib_ns / 1024 };
        let sent_ns = self.now_ns() + self.latency_ns(connection.is_near);
        sent_ns.max(connection.arrives_ns[to]) + link_ns
    }

    /// Takes what has arrived at an end, up to so many bytes; gives that, and whether the end of the connection has come behind it.
    pub fn receive(&mut self, number: u32, end: usize, most: usize) -> (Vec<u8>, bool) {
        let connection = &mut self.connections[number as usize];
        let inbox = &mut connection.inbox[end];
        let rest = inbox.split_off(most.min(inbox.len()));
        let bytes = std::mem::replace(inbox, rest);
        let is_over = connection.inbox[end].is_empty() && connection.ended[end];
        self.work_ns += self.machine.receive_ns + self.copying_ns(bytes.len());
        (bytes, is_over)
    }

    /// Whether something has arrived at an end and was not read, or the end of the connection.
    pub fn has_come(&self, number: u32, end: usize) -> bool {
        let connection = &self.connections[number as usize];
        !connection.inbox[end].is_empty() || connection.ended[end]
    }

    /// Closes an end: what was sent arrives, and then the end.
    pub fn close(&mut self, number: u32, end: usize) {
        if std::mem::replace(&mut self.connections[number as usize].closed[end], true) {
            return;
        }
        let at_ns = self.arrival_ns(number, 1 - end, 0);
        self.at(at_ns, Event::End(number, 1 - end));
    }

    fn copying_ns(&self, bytes: usize) -> u64 {
        bytes as u64 * self.machine.copy_kib_ns / 1024
    }
}
