//! What the start of a job costs that something else has started, by the number of its ranks: the coordinator itself, and the messages
//! that ranks send it, without sockets. Counted is all that goes over the connections until each rank knows its own node's server;
//! every other node with which a rank speaks later costs a question and a card more.
//!
//! Each rank has a connection of its own, or the ranks of a host come through a relay ([`crate::relay`]).

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;

use crate::arrival::{Arrival, Met};
use crate::coordinator::{Coordinator, Effect, Settings};
use crate::frames::{Decoder, Frame};
use crate::messages::{CONTROL_VERSION, FromRank, NodeCard, Start, ToRank};
use crate::proof::{CHALLENGE_BYTES, Caller, NONCE_BYTES, RankProof, Ticket};
use crate::relay::{FromRelay, ToRelay};

/// A job as its ranks describe it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number.
    pub number: u64,
    /// What each rank says of itself.
    pub arrivals: Vec<Arrival>,
    /// What the host of each node's server says of it.
    pub cards: Vec<NodeCard>,
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many messages.
    pub messages: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What one rank and the coordinator say to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// What the rank says.
    pub to_coordinator: Traffic,
    /// What it hears.
    pub from_coordinator: Traffic,
}

impl Traffic {
    fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

impl std::iter::Sum for Exchange {
    fn sum<I: Iterator<Item = Exchange>>(exchanges: I) -> Exchange {
        let plus = |one: Traffic, other: Traffic| Traffic {
            messages: one.messages + other.messages,
            bytes: one.bytes + other.bytes,
        };
        exchanges.fold(Exchange::default(), |sum, exchange| Exchange {
            to_coordinator: plus(sum.to_coordinator, exchange.to_coordinator),
            from_coordinator: plus(sum.from_coordinator, exchange.from_coordinator),
        })
    }
}

impl Job {
    /// A job of hosts as clusters have them, with so many ranks on each.
    pub fn typical(ranks: u32, per_host: u32) -> Job {
        let arrivals = (0..ranks).map(|rank| arrival(rank / per_host, rank % per_host, per_host));
        let cards = (0..ranks.div_ceil(per_host)).map(card);
        Job { number: u64::MAX / 3, arrivals: arrivals.collect(), cards: cards.collect() }
    }

    /// What each of its ranks and the coordinator say to each other at the start, each over a connection of its own.
    ///
    /// # Panics
    /// When the coordinator and the ranks do not understand each other.
    pub fn start(&self, now: Instant) -> Vec<Exchange> {
        self.start_over(None, now)
    }

    /// The same where so many ranks, one after the other, come through the relay of the first of them, whose own proof is counted with what
    /// that rank says.
    ///
    /// # Panics
    /// See [`Job::start`].
    pub fn start_through_relays(&self, per_relay: u32, now: Instant) -> Vec<Exchange> {
        self.start_over(Some(per_relay), now)
    }

    fn start_over(&self, per_relay: Option<u32>, now: Instant) -> Vec<Exchange> {
        let size = self.arrivals.len() as u32;
        let ticket = Ticket { assembly: 1, size, secret: [7; 32] };
        let coordinator = Coordinator::new(settings(&ticket, self.number), now);
        let (exchanges, nodes, frames) = (vec![Exchange::default(); size as usize], Vec::new(), HashMap::new());
        let mut simulation = Simulation { coordinator, now, exchanges, nodes, per_relay, routes: Vec::new(), frames };
        for (rank, arrival) in (0..size).zip(&self.arrivals) {
            simulation.connect(&ticket, rank);
            simulation.prove(&ticket, Caller::Rank, rank);
            simulation.say(rank, arrival);
        }
        for (rank, arrival) in (0..size).zip(&self.arrivals) {
            simulation.say(rank, &FromRank::Join { version: CONTROL_VERSION, pid: arrival.pid });
        }
        let nodes = std::mem::take(&mut simulation.nodes);
        assert_eq!(nodes.len(), size as usize, "every rank is told where all are");
        let mut led = vec![false; self.cards.len()];
        for (rank, node) in (0..size).zip(nodes) {
            let message = match std::mem::replace(&mut led[node as usize], true) {
                false => FromRank::Publish { card: self.cards[node as usize].clone() },
                true => FromRank::Fetch { first: node, count: 1 },
            };
            simulation.say(rank, &message);
        }
        simulation.exchanges
    }
}

/// What a rank says of itself on a host as clusters have them, where so many ranks run.
pub fn arrival(node: u32, place: u32, ranks_of_node: u32) -> Arrival {
    Arrival {
        version: CONTROL_VERSION,
        // A boot's number and those of the namespaces.
        machine: format!("{node:08x}-5b2c-4d1e-9f3a-0c6e7b8a9d10 4026531840 4026531839 4026532080"),
        host: host(node),
        pid: 100_000 + place,
        processors: (0..ranks_of_node).collect(),
        nodes: 1,
    }
}

/// What the leader of such a node says of it.
pub fn card(node: u32) -> NodeCard {
    NodeCard {
        node,
        server_pid: 100_000,
        address: format!("10.{}.{}.17:40123, 192.168.{}.17:40124", node >> 8, node & 255, node & 255),
        host: host(node),
        door: format!("longarm-{:016x}-{node}", u64::MAX / 3),
    }
}

fn host(number: u32) -> String {
    format!("node{number:05}.cluster.example")
}

fn settings(ticket: &Ticket, job: u64) -> Settings {
    let long = std::time::Duration::from_secs(3600);
    Settings {
        ticket: ticket.clone(),
        job,
        survivors_go_on: false,
        arrival: long,
        proof: long,
        half_open_max: ticket.size as usize,
        report: long,
        watchdog_s: 0,
        pid: 0,
        command: String::new(),
        is_stopped: |_| false,
    }
}

/// How a rank comes to the coordinator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Over this connection, which is its own.
    Own(u64),
    /// Over that of a relay, as the member with this number.
    Through(u64, u32),
}

struct Simulation {
    coordinator: Coordinator,
    now: Instant,
    exchanges: Vec<Exchange>,
    /// The node of each rank, as it is told.
    nodes: Vec<u32>,
    per_relay: Option<u32>,
    /// How each rank comes. While a relay proves itself it is that of its rank.
    routes: Vec<Route>,
    /// What has come for the relay at each connection, and the rank of its first member.
    frames: HashMap<u64, (u32, Decoder)>,
}

impl Simulation {
    /// Ranks come in their order, and a relay before its members.
    fn connect(&mut self, ticket: &Ticket, rank: u32) {
        let Some(per_relay) = self.per_relay else {
            let own = self.coordinator.handle_connection([1; NONCE_BYTES], self.now);
            return self.routes.push(Route::Own(own.expect("there is room")));
        };
        let member = rank % per_relay;
        if member == 0 {
            let relay = self.coordinator.handle_connection([1; NONCE_BYTES], self.now).expect("there is room");
            self.routes.push(Route::Own(relay));
            self.prove(ticket, Caller::Relay, rank);
            self.frames.insert(relay, (rank, Decoder::default()));
            self.routes[rank as usize] = Route::Through(relay, 0);
        } else {
            let Route::Through(relay, _) = self.routes[rank as usize - 1] else {
                unreachable!("it is behind the same relay")
            };
            self.routes.push(Route::Through(relay, member));
        }
        self.pass(rank, &FromRelay::Member { member });
    }

    fn prove(&mut self, ticket: &Ticket, caller: Caller, rank: u32) {
        let (proof, hello) = RankProof::start_as(caller, ticket, rank, [2; NONCE_BYTES]);
        let challenge = self.send(rank, &hello).expect("who greets is challenged");
        let challenge: [u8; CHALLENGE_BYTES] = challenge.try_into().expect("a challenge has its length");
        let (welcome, proof) = proof.handle_challenge(&challenge).expect("both are of one job");
        let answer = self.send(rank, &proof).expect("who proves himself is welcomed");
        welcome.check(&answer.try_into().expect("a welcome has its length")).expect("both know the secret");
    }

    fn say(&mut self, rank: u32, message: &impl Serialize) {
        let mut line = serde_json::to_vec(message).expect("these messages have only names as keys");
        line.push(b'\n');
        self.send(rank, &line);
    }

    /// Sends something of a rank. The last that this rank is told for it comes back.
    fn send(&mut self, rank: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.routes[rank as usize] {
            Route::Own(connection) => self.give(rank, connection, bytes),
            Route::Through(_, member) => self.pass(rank, &FromRelay::Bytes { member, bytes: bytes.to_vec() }),
        }
    }

    fn pass(&mut self, rank: u32, frame: &FromRelay) -> Option<Vec<u8>> {
        let (Route::Own(connection) | Route::Through(connection, _)) = self.routes[rank as usize];
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.give(rank, connection, &bytes)
    }

    /// Gives bytes to the coordinator, and counts what all are told for it.
    fn give(&mut self, rank: u32, connection: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        self.exchanges[rank as usize].to_coordinator.add(bytes.len());
        self.coordinator.handle_bytes(connection, bytes, self.now);
        let mut told = None;
        while let Some(effect) = self.coordinator.poll_effect() {
            let Effect::Send { connection, bytes } = effect else { panic!("a start without failures: {effect:?}") };
            let (whom, message) = self.read(connection, &bytes);
            self.exchanges[whom as usize].from_coordinator.add(bytes.len());
            self.note_node(&message);
            if whom == rank {
                told = Some(message);
            }
        }
        told
    }

    /// Whom the coordinator tells something, and what. Each message for a member goes out by itself.
    fn read(&mut self, connection: u64, bytes: &[u8]) -> (u32, Vec<u8>) {
        let Some((first, decoder)) = self.frames.get_mut(&connection) else {
            // Who has none yet is the relay that proves itself.
            let latest = self.routes.len() as u32 - 1;
            let whom = if self.per_relay.is_some() { latest } else { connection as u32 };
            return (whom, bytes.to_vec());
        };
        decoder.feed(bytes);
        let (mut member, mut message) = (None, Vec::new());
        while let Some(frame) = decoder.next_frame().expect("the coordinator speaks as it should") {
            let ToRelay::Bytes { member: whom, bytes } = frame else { panic!("a start without failures: {frame:?}") };
            assert!(member.is_none_or(|member| member == whom), "it is one member's message");
            member = Some(whom);
            message.extend(bytes);
        }
        (*first + member.expect("it is told something"), message)
    }

    /// Ranks are told in their order. All are told the same nodes, so that one line is enough to read.
    fn note_node(&mut self, line: &[u8]) {
        if !self.nodes.is_empty() || !line.starts_with(b"{\"Start\"") {
            return;
        }
        if let Ok(ToRank::Start(start)) = serde_json::from_slice(line) {
            let Start { node_of_rank, .. } = *start;
            self.nodes = node_of_rank.to_vec();
        }
    }
}

/// Whether a line from the coordinator is part of the start of a rank of this node.
pub fn is_of_start(line: &[u8], node: u32) -> bool {
    match serde_json::from_slice::<ToRank>(line) {
        Ok(ToRank::Start(_)) => true,
        Ok(ToRank::Cards { cards }) => cards.iter().any(|card| card.node == node),
        Ok(_) => false,
        Err(_) => serde_json::from_slice::<Met>(line).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::{HELLO_BYTES, PROOF_BYTES};

    fn total(ranks: u32, per_host: u32) -> Exchange {
        Job::typical(ranks, per_host).start(Instant::now()).into_iter().sum()
    }

    #[test]
    fn every_rank_says_five_things_and_hears_four_or_five() {
        let exchanges = Job::typical(6, 3).start(Instant::now());
        for (rank, exchange) in exchanges.iter().enumerate() {
            // Hello, proof, arrival, join, card or question; challenge, welcome, met, start, and the card for who asks.
            let asks = u64::from(rank % 3 != 0);
            assert_eq!(
                (exchange.to_coordinator.messages, exchange.from_coordinator.messages),
                (5, 4 + asks),
                "rank {rank}"
            );
        }
    }

    #[test]
    fn through_relays_each_message_has_the_head_of_a_frame_and_a_relay_proves_itself_once() {
        let job = Job::typical(7, 3);
        let (alone, relayed) = (job.start(Instant::now()), job.start_through_relays(3, Instant::now()));
        for (rank, (alone, relayed)) in alone.iter().zip(&relayed).enumerate() {
            let is_first = rank % 3 == 0;
            let proof = |alone: u64| if is_first { alone } else { 0 };
            // That it has come is a message more, and so are the relay's hello and proof, and what answers these.
            assert_eq!(relayed.to_coordinator.messages, alone.to_coordinator.messages + 1 + proof(2), "rank {rank}");
            assert_eq!(relayed.from_coordinator.messages, alone.from_coordinator.messages + proof(2), "rank {rank}");
            let heads = 9 * (alone.to_coordinator.messages + 1);
            let hello = proof((HELLO_BYTES + PROOF_BYTES) as u64);
            assert_eq!(relayed.to_coordinator.bytes, alone.to_coordinator.bytes + heads + hello, "rank {rank}");
            let heads = 9 * alone.from_coordinator.messages;
            let answers = proof((CHALLENGE_BYTES + PROOF_BYTES) as u64);
            assert_eq!(relayed.from_coordinator.bytes, alone.from_coordinator.bytes + heads + answers, "rank {rank}");
        }
    }

    #[test]
    fn what_a_rank_says_and_hears_does_not_depend_on_how_many_there_are() {
        let (few, many) = (total(64, 16), total(4096, 16));
        assert!(many.to_coordinator.bytes <= few.to_coordinator.bytes * 64 * 101 / 100, "{few:?} {many:?}");
        assert!(many.from_coordinator.bytes <= few.from_coordinator.bytes * 64 * 105 / 100, "{few:?} {many:?}");
    }
}
