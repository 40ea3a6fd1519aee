//! What the start of a job costs that something else has started, by the number of its ranks: the coordinator itself, and the messages
//! that ranks send it, without sockets. Counted is all that goes over the connections until each rank knows its own node's server;
//! every other node with which a rank speaks later costs a question and a card more.

use std::time::Instant;

use serde::Serialize;

use crate::arrival::{Arrival, Met};
use crate::coordinator::{Coordinator, Effect, Settings};
use crate::messages::{CONTROL_VERSION, FromRank, NodeCard, Start, ToRank};
use crate::proof::{CHALLENGE_BYTES, NONCE_BYTES, RankProof, Ticket};

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
pub struct Talk {
    /// What the rank says.
    pub to_root: Traffic,
    /// What it hears.
    pub from_root: Traffic,
}

impl Traffic {
    fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

impl std::iter::Sum for Talk {
    fn sum<I: Iterator<Item = Talk>>(talks: I) -> Talk {
        let plus = |one: Traffic, other: Traffic| Traffic {
            messages: one.messages + other.messages,
            bytes: one.bytes + other.bytes,
        };
        talks.fold(Talk::default(), |sum, talk| Talk {
            to_root: plus(sum.to_root, talk.to_root),
            from_root: plus(sum.from_root, talk.from_root),
        })
    }
}

impl Job {
    /// A job of hosts as clusters have them, with so many ranks on each.
    pub fn typical(ranks: u32, per_host: u32) -> Job {
        let host = |number: u32| format!("node{number:05}.cluster.example");
        let arrivals = (0..ranks).map(|rank| Arrival {
            version: CONTROL_VERSION,
            // A boot's number and those of the namespaces.
            machine: format!("{:08x}-5b2c-4d1e-9f3a-0c6e7b8a9d10 4026531840 4026531839 4026532080", rank / per_host),
            host: host(rank / per_host),
            pid: 100_000 + rank % per_host,
            processors: (0..per_host).collect(),
            nodes: 1,
        });
        let cards = (0..ranks.div_ceil(per_host)).map(|node| NodeCard {
            node,
            server_pid: 100_000,
            address: format!("10.{}.{}.17:40123, 192.168.{}.17:40124", node >> 8, node & 255, node & 255),
            host: host(node),
            door: format!("longarm-{:016x}-{node}", u64::MAX / 3),
        });
        Job { number: u64::MAX / 3, arrivals: arrivals.collect(), cards: cards.collect() }
    }

    /// What each of its ranks and the coordinator say to each other at the start.
    ///
    /// # Panics
    /// When the coordinator and the ranks do not understand each other.
    pub fn start(&self, now: Instant) -> Vec<Talk> {
        let size = self.arrivals.len() as u32;
        let ticket = Ticket { assembly: 1, size, secret: [7; 32] };
        let coordinator = Coordinator::new(settings(&ticket, self.number), now);
        let mut course = Course { coordinator, now, talks: vec![Talk::default(); size as usize], nodes: Vec::new() };
        for (rank, arrival) in (0..size).zip(&self.arrivals) {
            course.prove(&ticket, rank);
            course.say(rank, arrival);
        }
        for (rank, arrival) in (0..size).zip(&self.arrivals) {
            course.say(rank, &FromRank::Join { version: CONTROL_VERSION, pid: arrival.pid });
        }
        let nodes = std::mem::take(&mut course.nodes);
        assert_eq!(nodes.len(), size as usize, "every rank is told where all are");
        let mut led = vec![false; self.cards.len()];
        for (rank, node) in (0..size).zip(nodes) {
            let message = match std::mem::replace(&mut led[node as usize], true) {
                false => FromRank::Publish { card: self.cards[node as usize].clone() },
                true => FromRank::Fetch { node },
            };
            course.say(rank, &message);
        }
        course.talks
    }
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

struct Course {
    coordinator: Coordinator,
    now: Instant,
    talks: Vec<Talk>,
    /// The node of each rank, as it is told.
    nodes: Vec<u32>,
}

impl Course {
    /// Connections have the numbers of the ranks, as these come in their order.
    fn prove(&mut self, ticket: &Ticket, rank: u32) {
        let number = self.coordinator.handle_connection([1; NONCE_BYTES], self.now);
        assert_eq!(number, Some(u64::from(rank)));
        let (proof, hello) = RankProof::start(ticket, rank, [2; NONCE_BYTES]);
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

    /// Sends, and counts what all are told for it. The last that this rank is told comes back.
    fn send(&mut self, rank: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        self.talks[rank as usize].to_root.add(bytes.len());
        self.coordinator.handle_bytes(u64::from(rank), bytes, self.now);
        let mut told = None;
        while let Some(effect) = self.coordinator.poll_effect() {
            let Effect::Send { connection, bytes } = effect else { panic!("a start without failures: {effect:?}") };
            self.talks[connection as usize].from_root.add(bytes.len());
            self.note_node(&bytes);
            if connection == u64::from(rank) {
                told = Some(bytes);
            }
        }
        told
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
        Ok(ToRank::Card { card }) => card.node == node,
        Ok(_) => false,
        Err(_) => serde_json::from_slice::<Met>(line).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(ranks: u32, per_host: u32) -> Talk {
        Job::typical(ranks, per_host).start(Instant::now()).into_iter().sum()
    }

    #[test]
    fn every_rank_says_five_things_and_hears_four_or_five() {
        let talks = Job::typical(6, 3).start(Instant::now());
        for (rank, talk) in talks.iter().enumerate() {
            // Hello, proof, arrival, join, card or question; challenge, welcome, met, start, and the card for who asks.
            let asks = u64::from(rank % 3 != 0);
            assert_eq!((talk.to_root.messages, talk.from_root.messages), (5, 4 + asks), "rank {rank}");
        }
    }

    #[test]
    fn what_a_rank_says_and_hears_does_not_depend_on_how_many_there_are() {
        let (few, many) = (total(64, 16), total(4096, 16));
        assert!(many.to_root.bytes <= few.to_root.bytes * 64 * 101 / 100, "{few:?} {many:?}");
        assert!(many.from_root.bytes <= few.from_root.bytes * 64 * 105 / 100, "{few:?} {many:?}");
    }
}
