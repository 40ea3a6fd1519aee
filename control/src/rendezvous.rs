//! How the ranks of a job find each other: the launcher's half of [`crate::messages`].
//!
//! Pure: it holds no socket, process or clock. Feed it with [`Rendezvous::handle_line`] and
//! [`Rendezvous::handle_end`], then drain [`Rendezvous::poll_message`] until it is `None`.
//!
//! A rank may also never join (`longarm run -n 4 hostname`). It then just runs; but if others join, a world without it
//! cannot work, so its end counts as a failure. When all have left they may join again, all of them, and make a new world:
//! the same holds for that one.
//!
//! Where survivors go on, the ranks of a node die with the one that hosts its server: see
//! `docs/src/decisions/0013-a-node-dies-with-its-server.md`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::how_ended::HowEnded;
use crate::messages::{CARDS_MAX, CONTROL_VERSION, FromRank, NodeCard, PeerTraffic, Start, ToRank, Wait};

use crate::node_of_rank::NodeOfRank;
use crate::plan::Plan;
use crate::said::{self, Counted};

/// What a rank says to the launcher must not be longer than this.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// How a rank has ended whose starter is gone.
const ORPHANED: &str = "has lost its process manager: the manager's process on its host is gone";

/// A failure of a rank, which ends the job, or that rank alone where survivors go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The rank.
    pub rank: u32,
    /// What the launcher should exit with.
    pub status: i32,
    /// What happened, as the rest of a sentence that begins with the rank.
    pub how: String,
    /// Whether the rank itself gave a reason, which people want to read even if it is not the first failure.
    pub has_reason: bool,
    /// The other ranks of its node, which have lost their server with it. They have to be ended.
    pub taken_along: Vec<u32>,
}

/// A rank said something that the launcher cannot accept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The rank was built with other messages.
    #[error("speaks version {theirs} of the launcher's messages, but this launcher speaks version {ours}")]
    Version {
        /// Version of the rank.
        theirs: u32,
        /// Version of the launcher.
        ours: u32,
    },
    /// The line is no message.
    #[error("sent a line that the launcher does not understand")]
    Malformed,
    /// What its relay sent is no frame of a relay, or does not fit the ones before.
    #[error("has a relay that sent what no relay sends")]
    Relay,
    /// The line has no end.
    #[error("sent a line of more than {LINE_BYTES_MAX} bytes")]
    Endless,
    /// A second world in one rank, before all have left the first.
    #[error("joined the job a second time")]
    JoinedTwice,
    /// Something else came before Join or after Leave.
    #[error("sent a message while it was not part of the job")]
    NotJoined,
    /// A card for a node that is not the sender's to announce, or for the second time.
    #[error("published a card for node {node}, which it may not")]
    WrongCard {
        /// The node on the card.
        node: u32,
    },
    /// A card of which no sound rank could have made that much.
    #[error("published a card for node {node} that is longer than any address")]
    LongCard {
        /// The node on the card.
        node: u32,
    },
    /// It sends without reading the answers.
    #[error("does not read what the launcher answers: {waiting} messages wait for it")]
    Deaf {
        /// How many messages wait.
        waiting: usize,
    },
    /// A node that does not exist.
    #[error("spoke of node {node}, but there are only {nodes} nodes")]
    NoSuchNode {
        /// The node that it named.
        node: u32,
        /// How many there are.
        nodes: u32,
    },
}

/// What is the same in the [`Start`] of every rank.
#[derive(Clone, Debug)]
pub struct Job {
    /// The job's number.
    pub number: u64,
    /// The job's secret, in hexadecimal.
    pub secret: String,
    /// The processors that the job may use on each machine, by the machines of the plan.
    pub processors: Vec<Vec<u32>>,
    /// Whether statistics are wanted.
    pub stats: bool,
    /// Whether a death leaves the others alive.
    pub survivors_go_on: bool,
}

/// Where a rank stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Started, nothing heard yet.
    Silent,
    /// Part of the job.
    Joined,
    /// Finalized, waits for the others.
    Left,
    /// The process is gone.
    Ended,
}

/// Where a rank stands, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It has not joined.
    Outside,
    /// It is part of the job.
    Inside,
    /// It has left, and waits for the others.
    Finished,
    /// It has failed, or its process is gone.
    Ended,
}

#[derive(Debug)]
struct RankState {
    phase: Phase,
    /// Set when the process ended before it joined.
    missed: bool,
    /// How it ended, where it has.
    how_ended: Option<HowEnded>,
    /// Whether it failed.
    failed: bool,
    counted: Counted,
    /// Nodes whose cards it has asked for in this world: each is told once.
    fetched: BTreeSet<u32>,
    said_goodbye: bool,
}

/// The launcher's half of the conversation with all ranks.
#[derive(Debug)]
pub struct Rendezvous {
    plan: Plan,
    /// What every rank is told of the plan.
    node_of_rank: NodeOfRank,
    job: Job,
    /// The rank that leads each node.
    leaders: Vec<u32>,
    /// How many ranks each machine has.
    ranks_on: Vec<u32>,
    ranks: Vec<RankState>,
    /// How many of them are silent, and how many part of the job.
    silent: u32,
    joined: u32,
    /// Whether a rank has left since the last goodbye.
    one_has_left: bool,
    cards: Vec<Option<NodeCard>>,
    /// Who waits for the card of each node.
    waiting: Vec<Vec<u32>>,
    messages: VecDeque<(u32, ToRank)>,
    /// Answers to inquiries: the rank, the inquiry, and who waits there.
    waits: VecDeque<(u32, u64, Vec<Wait>)>,
    /// Who failed and how, in this order, for those who join later: the first is the cause of the others.
    failures: Vec<(u32, String)>,
    /// Which rank of this world can reach which node no more, and why: for those of the node who join later.
    cut_off: BTreeMap<(u32, u32), String>,
    started: Option<Instant>,
    left: Option<Instant>,
    /// Any rank has ended. As long as none has, nobody is looked through for those who are missed.
    any_ended: bool,
}

impl Rendezvous {
    /// Nobody has joined.
    pub fn new(plan: Plan, job: Job) -> Rendezvous {
        let silent = || RankState {
            phase: Phase::Silent,
            missed: false,
            how_ended: None,
            failed: false,
            counted: Counted::default(),
            fetched: BTreeSet::new(),
            said_goodbye: false,
        };
        Rendezvous {
            ranks: std::iter::repeat_with(silent).take(plan.ranks() as usize).collect(),
            silent: plan.ranks(),
            joined: 0,
            one_has_left: false,
            cards: vec![None; plan.nodes as usize],
            waiting: vec![Vec::new(); plan.nodes as usize],
            messages: VecDeque::new(),
            waits: VecDeque::new(),
            failures: Vec::new(),
            cut_off: BTreeMap::new(),
            any_ended: false,
            started: None,
            left: None,
            leaders: plan.leaders(),
            ranks_on: plan.ranks_on_machines(),
            node_of_rank: plan.node_of_rank.clone().into(),
            plan,
            job,
        }
    }

    /// A rank wrote a line, given without its end. Returns the failure that it reports or commits.
    pub fn handle_line(&mut self, rank: u32, line: &[u8], now: Instant) -> Option<Failure> {
        if self.job.survivors_go_on && self.ranks[rank as usize].failed {
            // The others take it for dead, and it is being ended.
            return None;
        }
        let message = serde_json::from_slice(line).map_err(|_| Violation::Malformed);
        match message.and_then(|message| self.handle_message(rank, message, now)) {
            Ok(failure) => failure,
            Err(violation) => Some(self.handle_violation(rank, &violation)),
        }
    }

    /// A rank broke the rules: for the others it is as if it had died.
    pub fn handle_violation(&mut self, rank: u32, violation: &Violation) -> Failure {
        self.fail(rank, 1, violation.to_string())
    }

    /// The process of a rank ended. Returns the failure if that was not in order.
    pub fn handle_end(&mut self, rank: u32, how: HowEnded) -> Option<Failure> {
        let others_joined = self.started.is_some();
        // Nobody was inside when it heard goodbye.
        let others_began_again = self.ranks[rank as usize].said_goodbye && self.joined > 0;
        self.any_ended = true;
        let before = self.enter(rank, Phase::Ended);
        let state = &mut self.ranks[rank as usize];
        state.missed = before == Phase::Silent;
        state.how_ended = Some(how);
        if state.failed {
            // It said why before it went.
            self.say_goodbye();
            return None;
        }
        let is_quiet = matches!(how, HowEnded::Exited(0) | HowEnded::Gone);
        let failure = match before {
            _ if !is_quiet => Some(self.fail(rank, how.status(), how.to_string())),
            Phase::Left if others_began_again => {
                Some(self.fail(rank, 1, format!("{how} without joining the others again")))
            }
            Phase::Left => None,
            Phase::Silent if !others_joined => None,
            Phase::Silent => Some(self.fail(rank, 1, format!("{how} without joining the others"))),
            _ => Some(self.fail(rank, 1, format!("{how} without finalizing"))),
        };
        self.say_goodbye();
        failure
    }

    /// A rank is out of reach for ever, with its host. Returns the failure if it had not failed before.
    pub fn handle_loss(&mut self, rank: u32, how: &str) -> Option<Failure> {
        self.any_ended = true;
        let before = self.enter(rank, Phase::Ended);
        let state = &mut self.ranks[rank as usize];
        state.missed |= before == Phase::Silent;
        let is_news = before != Phase::Ended && !state.failed;
        let failure = is_news.then(|| self.fail(rank, 1, how.to_owned()));
        self.say_goodbye();
        failure
    }

    /// A machine has said which processors the job may use there. It says so before its ranks say anything.
    pub fn know_processors(&mut self, machine: u32, processors: Vec<u32>) {
        self.job.processors[machine as usize] = processors;
    }

    /// The next message to send, and to whom. `None` when there is none left.
    pub fn poll_message(&mut self) -> Option<(u32, ToRank)> {
        self.messages.pop_front()
    }

    /// The ranks that are part of the job and answer inquiries.
    pub fn present(&self) -> Vec<u32> {
        let ranks = 0..self.plan.ranks();
        ranks.filter(|rank| matches!(self.membership(*rank), Membership::Inside | Membership::Finished)).collect()
    }

    /// Where a rank stands.
    pub fn membership(&self, rank: u32) -> Membership {
        let state = &self.ranks[rank as usize];
        match state.phase {
            _ if state.failed => Membership::Ended,
            Phase::Silent => Membership::Outside,
            Phase::Joined => Membership::Inside,
            Phase::Left => Membership::Finished,
            Phase::Ended => Membership::Ended,
        }
    }

    /// Asks ranks who waits in a call there. The answers come with [`Rendezvous::poll_waits`].
    pub fn inquire(&mut self, ranks: &[u32], inquiry: u64) {
        self.messages.extend(ranks.iter().map(|rank| (*rank, ToRank::Inquire { inquiry })));
    }

    /// The next answer to an inquiry: the rank, the inquiry, and who waits there. `None` when there is none left.
    pub fn poll_waits(&mut self) -> Option<(u32, u64, Vec<Wait>)> {
        self.waits.pop_front()
    }

    /// From the first start to the last leave.
    pub fn time_in_job(&self) -> Duration {
        match (self.started, self.left) {
            (Some(started), Some(left)) => left.saturating_duration_since(started),
            _ => Duration::ZERO,
        }
    }

    /// Takes what each rank counted, indexed by rank. Empty for ranks that have not left.
    pub fn take_traffic(&mut self) -> Vec<Vec<PeerTraffic>> {
        self.ranks.iter_mut().map(|state| state.counted.take_traffic()).collect()
    }

    /// The same for what their networks counted.
    pub fn take_network(&mut self) -> Vec<Vec<(String, u64)>> {
        self.ranks.iter_mut().map(|state| state.counted.take_network()).collect()
    }

    fn handle_message(&mut self, rank: u32, message: FromRank, now: Instant) -> Result<Option<Failure>, Violation> {
        let phase = self.ranks[rank as usize].phase;
        match (message, phase) {
            (FromRank::Join { version, .. }, Phase::Silent) => self.handle_join(rank, version, now),
            (FromRank::Join { version, .. }, Phase::Left) if self.ranks[rank as usize].said_goodbye => {
                self.handle_join(rank, version, now)
            }
            (FromRank::Join { .. }, _) => Err(Violation::JoinedTwice),
            // A rank may notice trouble at any time.
            (FromRank::Abort { reason, status }, _) => {
                // A rank may also end the job because all is done: `shmem_global_exit(0)`. What only looks like 0 is not.
                let status = if status != 0 && status & 0xff == 0 { 1 } else { status & 0xff };
                let how = if status == 0 { "is done" } else { "aborted" };
                let failure = self.fail(rank, status, format!("{how}: {}", said::reason(&reason)));
                Ok(Some(Failure { has_reason: true, ..failure }))
            }
            // What is left of it on its host ends as well, and is no loss then.
            (FromRank::Orphaned, _) if self.ranks[rank as usize].said_goodbye => Ok(None),
            (FromRank::Orphaned, _) => Ok(Some(self.fail(rank, 1, ORPHANED.to_owned()))),
            (FromRank::Publish { card }, Phase::Joined) => self.handle_publish(rank, card).map(|()| None),
            (FromRank::Fetch { first, count }, Phase::Joined) => self.handle_fetch(rank, first, count).map(|()| None),
            (FromRank::CannotReach { node, how }, Phase::Joined) => self.handle_cut(rank, node, &how).map(|()| None),
            (FromRank::Waits { inquiry, waits }, Phase::Joined | Phase::Left) => {
                self.waits.push_back((rank, inquiry, said::waits(waits)));
                Ok(None)
            }
            (FromRank::Leave { traffic, network }, Phase::Joined) => {
                let ranks = self.plan.ranks();
                self.enter(rank, Phase::Left);
                self.one_has_left = true;
                let state = &mut self.ranks[rank as usize];
                state.counted.add_traffic(traffic, ranks);
                state.counted.add_network(network);
                self.left = Some(now);
                self.say_goodbye();
                Ok(None)
            }
            // Another thread of it has noticed on its way out that a connection is gone. Nobody waits for it, nor it for a card.
            (FromRank::CannotReach { .. } | FromRank::Fetch { .. }, Phase::Left) => Ok(None),
            _ => Err(Violation::NotJoined),
        }
    }

    /// Sets where a rank stands, and gives where it stood.
    fn enter(&mut self, rank: u32, phase: Phase) -> Phase {
        let before = std::mem::replace(&mut self.ranks[rank as usize].phase, phase);
        self.silent -= u32::from(before == Phase::Silent);
        self.joined -= u32::from(before == Phase::Joined);
        self.joined += u32::from(phase == Phase::Joined);
        before
    }

    fn handle_join(&mut self, rank: u32, version: u32, now: Instant) -> Result<Option<Failure>, Violation> {
        if version != CONTROL_VERSION {
            return Err(Violation::Version { theirs: version, ours: CONTROL_VERSION });
        }
        self.enter(rank, Phase::Joined);
        let again = std::mem::take(&mut self.ranks[rank as usize].said_goodbye);
        self.started.get_or_insert(now);
        let machine = self.plan.machine_of(rank);
        let start = Start {
            version: CONTROL_VERSION,
            job: self.job.number,
            secret: self.job.secret.clone(),
            rank,
            node_of_rank: self.node_of_rank.clone(),
            machines: self.job.processors.len() as u32,
            ranks_on_machine: self.ranks_on[machine as usize],
            processors: self.job.processors[machine as usize].clone(),
            stats: self.job.stats,
            survivors_go_on: self.job.survivors_go_on,
        };
        self.messages.push_back((rank, ToRank::Start(Box::new(start))));
        // Not of its own: it may have failed before, by what it said instead.
        let dead = self.failures.iter().filter(|(dead, _)| *dead != rank).cloned();
        self.messages.extend(dead.map(|(dead, how)| (rank, ToRank::Died { rank: dead, how })));
        // Someone who ended well without joining can never be part of this world.
        let is_gone = |state: &RankState| state.missed || (again && state.phase == Phase::Ended);
        let ranks = if self.any_ended { self.ranks.as_slice() } else { &[] };
        let missed = ranks.iter().position(|state| is_gone(state) && !state.failed);
        let again = if again { " again" } else { "" };
        let how = missed.map(|missed| {
            format!("{} without joining the others{again}", ranks[missed].how_ended.unwrap_or(HowEnded::Gone))
        });
        let failure = missed.zip(how).map(|(missed, how)| self.fail(missed as u32, 1, how));
        // Nor is it part of the job then, or if it was taken along just now.
        if !self.ranks[rank as usize].failed {
            let node = self.plan.node_of_rank[rank as usize];
            let cut_off = self.cut_off.iter().filter(|((_, to), _)| *to == node);
            self.messages.extend(cut_off.map(|((other, _), how)| (rank, cannot_reach_you(*other, how))));
        }
        Ok(failure)
    }

    fn handle_publish(&mut self, rank: u32, card: NodeCard) -> Result<(), Violation> {
        let node = card.node;
        let own = self.leaders.get(node as usize) == Some(&rank);
        if !own || self.cards[node as usize].is_some() {
            return Err(Violation::WrongCard { node });
        }
        if !said::is_card_short(&card) {
            return Err(Violation::LongCard { node });
        }
        for waiting in std::mem::take(&mut self.waiting[node as usize]) {
            self.messages.push_back((waiting, ToRank::Cards { cards: vec![card.clone()] }));
        }
        self.cards[node as usize] = Some(card);
        Ok(())
    }

    fn handle_fetch(&mut self, rank: u32, first: u32, count: u32) -> Result<(), Violation> {
        let (all, own) = (self.plan.nodes, self.plan.node_of_rank[rank as usize]);
        if first >= all {
            return Err(Violation::NoSuchNode { node: first, nodes: all });
        }
        let asked = (0..count.min(all).min(CARDS_MAX)).map(|next| (first + next) % all);
        let mut cards = Vec::new();
        // Its own node's card a rank gets only if it asks for that first: no rank calls its own node.
        for node in asked.filter(|node| *node == first || *node != own) {
            match &self.cards[node as usize] {
                // Threads of a rank may ask for the same; the answer is for all of them, and does not come a second time.
                _ if !self.ranks[rank as usize].fetched.insert(node) => {}
                Some(card) => cards.push(card.clone()),
                None => self.waiting[node as usize].push(rank),
            }
        }
        if !cards.is_empty() {
            self.messages.push_back((rank, ToRank::Cards { cards }));
        }
        Ok(())
    }

    /// A rank can reach a node no more. It says so once, and hears nothing of it.
    fn handle_cut(&mut self, rank: u32, node: u32, how: &str) -> Result<(), Violation> {
        if node >= self.plan.nodes {
            return Err(Violation::NoSuchNode { node, nodes: self.plan.nodes });
        }
        let how = said::reason(how);
        if let Entry::Vacant(place) = self.cut_off.entry((rank, node)) {
            let told = self.ranks.iter().zip(&self.plan.node_of_rank).zip(0..).filter(|((state, own), other)| {
                **own == node && *other != rank && state.phase == Phase::Joined && !state.failed
            });
            self.messages.extend(told.map(|(_, other)| (other, cannot_reach_you(rank, &how))));
            place.insert(how);
        }
        Ok(())
    }

    /// Marks a rank as failed, with all that cannot go on without it, and tells the others that are part of the job.
    fn fail(&mut self, rank: u32, status: i32, how: String) -> Failure {
        let was_failed = std::mem::replace(&mut self.ranks[rank as usize].failed, true);
        let mut taken_along = Vec::new();
        if !was_failed {
            taken_along = self.lost_with(rank);
            for mate in &taken_along {
                self.ranks[*mate as usize].failed = true;
            }
            self.tell_of_death(rank, &how);
            let reason = format!("was ended because rank {rank}, the host of its node's server, {how}");
            for mate in &taken_along {
                self.tell_of_death(*mate, &reason);
            }
        }
        Failure { rank, status, how, has_reason: false, taken_along }
    }

    /// The ranks that lose their node's server with this one and still need it. Where the job ends they are no matter.
    fn lost_with(&self, rank: u32) -> Vec<u32> {
        let node = self.plan.node_of_rank[rank as usize];
        let is_host = self.leaders[node as usize] == rank;
        // After goodbye nobody needs a server, and programs that never joined have none.
        let is_needed = self.started.is_some() && !self.ranks[rank as usize].said_goodbye;
        if !self.job.survivors_go_on || !is_host || !is_needed {
            return Vec::new();
        }
        let alive = |state: &RankState| !state.failed && state.phase != Phase::Ended;
        let ranks = (0..).zip(&self.ranks).zip(&self.plan.node_of_rank);
        ranks.filter(|((_, state), own)| **own == node && alive(state)).map(|((mate, _), _)| mate).collect()
    }

    fn tell_of_death(&mut self, rank: u32, how: &str) {
        self.failures.push((rank, how.to_owned()));
        let present = |state: &RankState| matches!(state.phase, Phase::Joined | Phase::Left) && !state.failed;
        let others = self.ranks.iter().zip(0..).filter(|(state, other)| *other != rank && present(state));
        let told = others.map(|(_, other)| (other, ToRank::Died { rank, how: how.to_owned() }));
        self.messages.extend(told);
    }

    /// Lets those who left go, once nobody is part of the job any more, and nobody may still join it.
    fn say_goodbye(&mut self) {
        if self.silent + self.joined > 0 || !std::mem::take(&mut self.one_has_left) {
            return;
        }
        let mut is_over = false;
        for (state, rank) in self.ranks.iter_mut().zip(0..) {
            if state.phase == Phase::Left && !state.said_goodbye {
                state.said_goodbye = true;
                is_over = true;
                self.messages.push_back((rank, ToRank::Goodbye));
            }
        }
        if is_over {
            // Who joins from now on makes a new world, which has servers and a number of its own.
            self.cards.fill(None);
            self.waiting.iter_mut().for_each(Vec::clear);
            self.cut_off.clear();
            self.ranks.iter_mut().for_each(|state| state.fetched.clear());
            self.job.number = self.job.number.wrapping_add(1);
        }
    }
}

fn cannot_reach_you(rank: u32, how: &str) -> ToRank {
    ToRank::CannotReachYou { rank, how: how.to_owned() }
}

#[cfg(test)]
mod tests {
    use crate::messages::KindTraffic;

    use super::*;

    struct Pair {
        rendezvous: Rendezvous,
        now: Instant,
    }

    impl Pair {
        fn new(ranks: u32, nodes: u32) -> Pair {
            Pair::with_policy(ranks, nodes, false)
        }

        fn surviving(ranks: u32, nodes: u32) -> Pair {
            let mut pair = Pair::with_policy(ranks, nodes, true);
            pair.join_all();
            pair
        }

        fn with_policy(ranks: u32, nodes: u32, survivors_go_on: bool) -> Pair {
            let plan = Plan::new(ranks, Some(nodes), None).unwrap();
            let job =
                Job { number: 5, secret: "ab".to_owned(), processors: vec![vec![0, 1]], stats: true, survivors_go_on };
            Pair { rendezvous: Rendezvous::new(plan, job), now: Instant::now() }
        }

        fn say(&mut self, rank: u32, message: &FromRank) -> Option<Failure> {
            self.rendezvous.handle_line(rank, &serde_json::to_vec(message).unwrap(), self.now)
        }

        fn join(&mut self, rank: u32) -> Option<Failure> {
            self.say(rank, &FromRank::Join { version: CONTROL_VERSION, pid: 1 })
        }

        fn join_all(&mut self) {
            for rank in 0..self.rendezvous.plan.ranks() {
                assert_eq!(self.join(rank), None);
            }
            self.drain();
        }

        fn leave(&mut self, rank: u32) -> Option<Failure> {
            self.say(rank, &FromRank::Leave { traffic: vec![], network: vec![] })
        }

        fn end(&mut self, rank: u32, how: HowEnded) -> Option<Failure> {
            self.rendezvous.handle_end(rank, how)
        }

        fn drain(&mut self) -> Vec<(u32, ToRank)> {
            std::iter::from_fn(|| self.rendezvous.poll_message()).collect()
        }
    }

    fn card(node: u32) -> NodeCard {
        NodeCard {
            node,
            server_pid: 1,
            address: "127.0.0.1:1".to_owned(),
            host: String::new(),
            door: "door".to_owned(),
        }
    }

    #[test]
    fn a_join_is_answered_with_who_and_where() {
        let mut pair = Pair::new(3, 2);
        assert_eq!(pair.join(2), None);
        let messages = pair.drain();
        let [(2, ToRank::Start(start))] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((start.rank, start.job, start.ranks_on_machine), (2, 5, 3));
        assert_eq!(*start.node_of_rank, [0, 0, 1]);
        assert!(start.stats);
    }

    #[test]
    fn a_card_asked_for_early_comes_once_it_is_published() {
        let mut pair = Pair::new(4, 2);
        pair.join_all();
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 1, count: 1 }), None);
        assert_eq!(pair.drain(), []);
        assert_eq!(pair.say(2, &FromRank::Publish { card: card(1) }), None);
        assert_eq!(pair.drain(), [(0, ToRank::Cards { cards: vec![card(1)] })]);
        assert_eq!(pair.say(3, &FromRank::Fetch { first: 1, count: 1 }), None);
        assert_eq!(pair.drain(), [(3, ToRank::Cards { cards: vec![card(1)] })]);
    }

    #[test]
    fn cards_of_many_nodes_come_together_and_those_that_are_not_known_yet_later() {
        let mut pair = Pair::new(4, 4);
        pair.join_all();
        for node in [0, 2, 3] {
            assert_eq!(pair.say(node, &FromRank::Publish { card: card(node) }), None);
        }
        // From the third one on, the first behind the last, and as many as there are at most.
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 2, count: 2 }), None);
        assert_eq!(pair.drain(), [(0, ToRank::Cards { cards: vec![card(2), card(3)] })]);
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 3, count: u32::MAX }), None);
        assert_eq!(pair.drain(), [], "its own node it has not asked for");
        assert_eq!(pair.say(1, &FromRank::Publish { card: card(1) }), None);
        assert_eq!(pair.drain(), [(0, ToRank::Cards { cards: vec![card(1)] })]);
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 0, count: 0 }), None);
        assert_eq!(pair.drain(), [], "who asks for none is told of none");
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 0, count: 1 }), None);
        assert_eq!(pair.drain(), [(0, ToRank::Cards { cards: vec![card(0)] })]);
    }

    #[test]
    fn a_card_with_a_long_text_is_refused_as_many_may_go_in_one_message() {
        let texts: [fn(&mut NodeCard) -> &mut String; 3] =
            [|card| &mut card.address, |card| &mut card.host, |card| &mut card.door];
        for text in texts {
            let mut pair = Pair::new(2, 2);
            pair.join_all();
            let mut long = card(1);
            *text(&mut long) = "x".repeat(5000);
            assert!(pair.say(1, &FromRank::Publish { card: long }).is_some());
        }
    }

    #[test]
    fn a_card_is_told_once_in_each_world_however_often_it_is_asked_for() {
        let mut pair = Pair::new(2, 2);
        pair.join_all();
        (0..3).for_each(|_| assert_eq!(pair.say(0, &FromRank::Fetch { first: 1, count: 1 }), None));
        assert_eq!(pair.say(1, &FromRank::Publish { card: card(1) }), None);
        (0..3).for_each(|_| assert_eq!(pair.say(0, &FromRank::Fetch { first: 1, count: 1 }), None));
        assert_eq!(pair.drain(), [(0, ToRank::Cards { cards: vec![card(1)] })]);
        (0..2).for_each(|rank| assert_eq!(pair.leave(rank), None));
        pair.join_all();
        assert_eq!(pair.say(1, &FromRank::Publish { card: card(1) }), None);
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 1, count: 1 }), None);
        assert_eq!(pair.drain(), [(0, ToRank::Cards { cards: vec![card(1)] })]);
    }

    #[test]
    fn a_card_longer_than_any_address_fails_its_rank() {
        let mut pair = Pair::new(2, 2);
        pair.join_all();
        let long = NodeCard { address: "1".repeat(1 << 20), ..card(0) };
        let failure = pair.say(0, &FromRank::Publish { card: long }).unwrap();
        assert_eq!(failure.how, "published a card for node 0 that is longer than any address");
    }

    #[test]
    fn only_the_leader_publishes_and_only_once() {
        let mut pair = Pair::new(4, 2);
        pair.join_all();
        let wrong = [(1, 0), (0, 1), (3, 1), (0, 9)];
        for (rank, node) in wrong {
            let failure = pair.say(rank, &FromRank::Publish { card: card(node) }).unwrap();
            assert_eq!((failure.rank, failure.status), (rank, 1));
        }
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        assert_eq!(pair.say(0, &FromRank::Publish { card: card(0) }), None);
        assert!(pair.say(0, &FromRank::Publish { card: card(0) }).is_some());
    }

    #[test]
    fn goodbye_waits_for_the_last_one_to_leave() {
        let mut pair = Pair::new(2, 1);
        pair.join(0);
        pair.leave(0);
        assert!(pair.drain().iter().all(|(_, message)| *message != ToRank::Goodbye), "rank 1 may still join");
        pair.join(1);
        pair.drain();
        pair.leave(1);
        assert_eq!(pair.drain(), [(0, ToRank::Goodbye), (1, ToRank::Goodbye)]);
        assert_eq!(pair.end(0, HowEnded::Exited(0)), None);
        assert_eq!(pair.end(1, HowEnded::Exited(0)), None);
        assert_eq!(pair.drain(), []);
    }

    #[test]
    fn when_all_have_left_all_may_join_again_and_make_a_new_world() {
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        pair.say(0, &FromRank::Publish { card: card(0) });
        pair.leave(0);
        assert!(pair.join(0).is_some(), "rank 1 is still inside");
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        pair.say(0, &FromRank::Publish { card: card(0) });
        (0..2).for_each(|rank| assert_eq!(pair.leave(rank), None));
        pair.drain();
        assert_eq!(pair.join(1), None);
        let messages = pair.drain();
        let [(1, ToRank::Start(start))] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(start.job, 6);
        assert_eq!(pair.say(1, &FromRank::Fetch { first: 0, count: 1 }), None);
        assert_eq!(pair.drain(), [], "the card of the first world is no more");
        assert_eq!(pair.join(0), None);
        assert_eq!(pair.say(0, &FromRank::Publish { card: card(0) }), None);
        let messages = pair.drain();
        assert!(matches!(&messages[..], [(0, ToRank::Start(start)), (1, ToRank::Cards { .. })] if start.job == 6));
        pair.leave(1);
        assert_eq!(pair.drain(), []);
        pair.leave(0);
        assert_eq!(pair.drain(), [(0, ToRank::Goodbye), (1, ToRank::Goodbye)]);
        assert_eq!(pair.end(0, HowEnded::Exited(0)), None);
    }

    #[test]
    fn a_rank_that_ends_where_others_join_again_fails_the_job() {
        let left = || {
            let mut pair = Pair::new(2, 1);
            pair.join_all();
            (0..2).for_each(|rank| assert_eq!(pair.leave(rank), None));
            pair.drain();
            pair
        };
        let mut before = left();
        assert_eq!(before.end(0, HowEnded::Exited(0)), None);
        assert_eq!(before.join(1).map(|failure| (failure.rank, failure.status)), Some((0, 1)));
        let mut behind = left();
        assert_eq!(behind.join(1), None);
        behind.drain();
        let failure = behind.end(0, HowEnded::Exited(0)).unwrap();
        assert_eq!(failure.how, "exited with status 0 without joining the others again");
        assert!(matches!(&behind.drain()[..], [(1, ToRank::Died { rank: 0, .. })]));
    }

    #[test]
    fn nobody_claims_to_know_how_a_process_has_ended_that_it_does_not_see() {
        for (how, text) in [
            (HowEnded::Exited(0), "exited with status 0 without joining the others"),
            (HowEnded::Gone, "has ended without joining the others"),
        ] {
            let mut pair = Pair::new(2, 1);
            assert_eq!(pair.end(0, how), None, "nobody has joined");
            assert_eq!(pair.join(1).map(|failure| failure.how), Some(text.to_owned()));
        }
    }

    #[test]
    fn what_a_rank_counts_in_two_worlds_is_added_up() {
        let traffic = |peer, operations| {
            vec![PeerTraffic { peer, kinds: vec![KindTraffic { operations, bytes: 10 * operations }] }]
        };
        let mut pair = Pair::new(1, 1);
        for (peer, operations) in [(0, 2), (0, 3)] {
            pair.join_all();
            let network = vec![("puts".to_owned(), operations)];
            pair.say(0, &FromRank::Leave { traffic: traffic(peer, operations), network });
        }
        assert_eq!(pair.rendezvous.take_traffic(), [traffic(0, 5)]);
        assert_eq!(pair.rendezvous.take_network(), [[("puts".to_owned(), 5)]]);
    }

    #[test]
    fn a_rank_that_is_killed_is_named_to_all_others_and_to_late_ones() {
        let mut pair = Pair::new(4, 1);
        for rank in 0..3 {
            pair.join(rank);
        }
        pair.drain();
        let failure = pair.end(1, HowEnded::Killed(9)).unwrap();
        assert_eq!((failure.rank, failure.status), (1, 137));
        assert_eq!(failure.how, "was killed by signal 9 (SIGKILL)");
        let died = ToRank::Died { rank: 1, how: failure.how };
        assert_eq!(pair.drain(), [(0, died.clone()), (2, died.clone())]);
        pair.join(3);
        assert_eq!(pair.drain()[1], (3, died));
    }

    #[test]
    fn a_rank_that_joins_after_it_has_failed_does_not_hear_of_its_own_death() {
        let mut pair = Pair::new(2, 1);
        let now = pair.now;
        assert!(pair.rendezvous.handle_line(0, b"hello", now).is_some());
        pair.join(0);
        assert!(matches!(&pair.drain()[..], [(0, ToRank::Start(_))]));
    }

    #[test]
    fn a_late_rank_hears_of_deaths_in_the_order_in_which_they_happened() {
        let mut pair = Pair::new(3, 1);
        pair.end(1, HowEnded::Killed(9));
        pair.end(0, HowEnded::Exited(1));
        pair.join(2);
        let died = |message| if let (2, ToRank::Died { rank, .. }) = message { Some(rank) } else { None };
        assert_eq!(pair.drain().into_iter().filter_map(died).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn ending_well_without_finalizing_is_a_failure() {
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        let failure = pair.end(0, HowEnded::Exited(0)).unwrap();
        assert_eq!((failure.status, failure.how.as_str()), (1, "exited with status 0 without finalizing"));
    }

    #[test]
    fn ranks_that_never_join_may_end_but_not_once_others_joined() {
        let mut pair = Pair::new(2, 1);
        assert_eq!(pair.end(0, HowEnded::Exited(0)), None);
        assert_eq!(pair.end(1, HowEnded::Exited(0)), None);
        let mut pair = Pair::new(2, 1);
        pair.join(0);
        assert_eq!(pair.end(1, HowEnded::Exited(0)).map(|failure| failure.rank), Some(1));
        let mut pair = Pair::new(2, 1);
        assert_eq!(pair.end(1, HowEnded::Exited(0)), None);
        assert_eq!(pair.join(0).map(|failure| (failure.rank, failure.status)), Some((1, 1)));
        assert!(matches!(&pair.drain()[..], [(0, ToRank::Start(_)), (0, ToRank::Died { rank: 1, .. })]));
    }

    #[test]
    fn an_abort_is_that_ranks_failure_and_its_end_is_no_second_one() {
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        let abort = FromRank::Abort { reason: "no memory".to_owned(), status: 256 };
        let failure = pair.say(1, &abort).unwrap();
        let (how, taken_along) = ("aborted: no memory".to_owned(), vec![]);
        assert_eq!(failure, Failure { rank: 1, status: 1, how, has_reason: true, taken_along });
        assert!(matches!(&pair.drain()[..], [(0, ToRank::Died { rank: 1, .. })]));
        assert_eq!(pair.end(1, HowEnded::Exited(1)), None);
        assert_eq!(pair.drain(), []);
    }

    #[test]
    fn a_rank_whose_starter_is_gone_has_failed_for_that_reason_unless_it_has_taken_leave() {
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        let failure = pair.say(1, &FromRank::Orphaned).unwrap();
        assert_eq!((failure.rank, failure.how.as_str(), failure.has_reason), (1, ORPHANED, false));
        assert!(matches!(&pair.drain()[..], [(0, ToRank::Died { rank: 1, how })] if how == ORPHANED));
        assert_eq!(pair.end(1, HowEnded::Gone), None, "its end is no second failure");
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        (0..2).for_each(|rank| assert_eq!(pair.leave(rank), None));
        assert_eq!(pair.say(1, &FromRank::Orphaned), None);
    }

    #[test]
    fn a_rank_may_end_the_job_in_good_order() {
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        let failure = pair.say(1, &FromRank::Abort { reason: "all is done".to_owned(), status: 0 });
        assert_eq!(failure.map(|failure| failure.status), Some(0));
    }

    fn deaths(messages: &[(u32, ToRank)], to: u32) -> Vec<u32> {
        let died = |message: &ToRank| if let ToRank::Died { rank, .. } = message { Some(*rank) } else { None };
        messages.iter().filter(|(rank, _)| *rank == to).filter_map(|(_, message)| died(message)).collect()
    }

    #[test]
    fn where_survivors_go_on_a_node_dies_with_the_host_of_its_server() {
        let mut pair = Pair::surviving(6, 2);
        let failure = pair.end(3, HowEnded::Killed(9)).unwrap();
        assert_eq!((failure.rank, failure.taken_along), (3, vec![4, 5]));
        let messages = pair.drain();
        assert!([0, 1, 2].iter().all(|rank| deaths(&messages, *rank) == [3, 4, 5]), "{messages:?}");
        assert!([4, 5].iter().all(|rank| deaths(&messages, *rank).is_empty()), "they end anyway: {messages:?}");
        assert_eq!(pair.end(4, HowEnded::Killed(9)), None, "known already");
        // Their ends are waited for, then those who have left may go.
        (0..3).for_each(|rank| assert_eq!(pair.leave(rank), None));
        assert_eq!(pair.drain(), []);
        assert_eq!(pair.end(5, HowEnded::Killed(9)), None);
        assert_eq!(pair.drain(), [0, 1, 2].map(|rank| (rank, ToRank::Goodbye)));
        assert_eq!(pair.end(0, HowEnded::Exited(4)).map(|failure| failure.taken_along), Some(vec![]), "all have left");
    }

    #[test]
    fn where_survivors_go_on_nothing_is_heard_of_a_rank_that_is_taken_for_dead() {
        let mut pair = Pair::surviving(4, 2);
        let now = pair.now;
        assert!(pair.rendezvous.handle_line(2, b"nonsense", now).is_some());
        pair.drain();
        assert_eq!(pair.rendezvous.handle_line(2, b"nonsense", now), None, "said once");
        let abort = FromRank::Abort { reason: "rank 2 is dead".to_owned(), status: 1 };
        assert_eq!((pair.say(3, &abort), pair.drain()), (None, vec![]), "it was taken along");
    }

    #[test]
    fn where_survivors_go_on_any_other_rank_dies_alone() {
        let mut pair = Pair::surviving(4, 2);
        assert_eq!(pair.end(3, HowEnded::Exited(1)).map(|failure| failure.taken_along), Some(vec![]));
        let mut pair = Pair::with_policy(4, 2, true);
        let failure = pair.end(2, HowEnded::Exited(1)).unwrap();
        assert_eq!(failure.taken_along, [0; 0], "there is no server: nobody has joined");
    }

    #[test]
    fn where_survivors_go_on_those_who_have_left_wait_for_the_living() {
        let mut pair = Pair::surviving(3, 1);
        pair.leave(0);
        pair.end(1, HowEnded::Killed(9));
        assert!(pair.drain().iter().all(|(_, message)| *message != ToRank::Goodbye), "rank 2 may still need rank 0");
        pair.leave(2);
        assert_eq!(pair.drain(), [(0, ToRank::Goodbye), (2, ToRank::Goodbye)]);
    }

    #[test]
    fn a_rank_that_has_left_may_still_notice_that_a_connection_is_gone() {
        let mut pair = Pair::new(2, 2);
        (0..2).for_each(|rank| assert_eq!(pair.join(rank), None));
        pair.leave(0);
        pair.drain();
        assert_eq!(pair.say(0, &FromRank::CannotReach { node: 1, how: "it is silent".into() }), None);
        assert_eq!(pair.say(0, &FromRank::Fetch { first: 1, count: 1 }), None);
        assert_eq!(pair.drain(), [], "the others are told nothing of it");
        assert_eq!(pair.leave(1), None);
        assert_eq!(pair.drain(), [(0, ToRank::Goodbye), (1, ToRank::Goodbye)]);
    }

    #[test]
    fn those_who_are_part_of_the_job_are_asked_what_they_wait_for_and_answer() {
        let mut pair = Pair::new(4, 1);
        (0..3).for_each(|rank| assert_eq!(pair.join(rank), None));
        pair.leave(1);
        pair.drain();
        assert_eq!(pair.rendezvous.present(), [0, 1, 2]);
        let places = [0, 1, 2, 3].map(|rank| pair.rendezvous.membership(rank));
        assert_eq!(places, [Membership::Inside, Membership::Finished, Membership::Inside, Membership::Outside]);
        pair.rendezvous.inquire(&[0, 1], 7);
        assert_eq!(pair.drain(), [0, 1].map(|rank| (rank, ToRank::Inquire { inquiry: 7 })));
        assert_eq!(pair.say(0, &FromRank::Waits { inquiry: 7, waits: vec![] }), None);
        assert_eq!(pair.rendezvous.poll_waits(), Some((0, 7, vec![])));
        assert_eq!(pair.rendezvous.poll_waits(), None);
        pair.end(2, HowEnded::Killed(9));
        assert_eq!((pair.rendezvous.membership(2), pair.rendezvous.present()), (Membership::Ended, vec![0, 1]));
        assert!(pair.say(3, &FromRank::Waits { inquiry: 7, waits: vec![] }).is_some(), "it has not joined");
    }

    fn cut(node: u32, how: &str) -> FromRank {
        FromRank::CannotReach { node, how: how.to_owned() }
    }

    #[test]
    fn the_ranks_of_a_node_that_a_rank_cannot_reach_are_told_once_and_nobody_else_is() {
        let mut pair = Pair::surviving(6, 3);
        pair.leave(0);
        pair.drain();
        assert_eq!(pair.say(4, &cut(0, "it is \u{1b}[31mdown")), None);
        let told = ToRank::CannotReachYou { rank: 4, how: "it is [31mdown".to_owned() };
        assert_eq!(pair.drain(), [(1, told)], "rank 0 has left");
        assert_eq!(pair.say(4, &cut(0, "once more")), None);
        assert_eq!(pair.drain(), []);
        pair.end(3, HowEnded::Killed(9));
        pair.drain();
        assert_eq!(pair.say(5, &cut(1, "down")), None);
        assert_eq!(pair.drain(), [(2, cannot_reach_you(5, "down"))], "the dead hear nothing");
        let failure = pair.say(5, &cut(3, "down")).unwrap();
        assert!(failure.how.contains("node 3") && failure.how.contains("only 3"), "{}", failure.how);
    }

    #[test]
    fn who_joins_later_hears_which_ranks_cannot_reach_its_node_and_in_the_next_world_all_can() {
        let mut pair = Pair::new(4, 2);
        (1..4).for_each(|rank| assert_eq!(pair.join(rank), None));
        pair.drain();
        assert!(pair.say(0, &cut(1, "down")).is_some(), "it has not joined");
        let mut pair = Pair::new(4, 2);
        (0..3).for_each(|rank| assert_eq!(pair.join(rank), None));
        assert_eq!(pair.say(1, &cut(1, "down")), None);
        pair.drain();
        pair.join(3);
        let heard: Vec<_> = pair.drain();
        assert!(matches!(heard[0], (3, ToRank::Start(_))), "{heard:?}");
        assert_eq!(heard[1..], [(3, cannot_reach_you(1, "down"))]);
        let mut failing = Pair::with_policy(4, 2, true);
        (0..3).for_each(|rank| assert_eq!(failing.join(rank), None));
        assert_eq!(failing.say(1, &cut(1, "down")), None);
        assert!(failing.say(3, &cut(0, "down")).is_some(), "it has not joined");
        failing.drain();
        failing.join(3);
        let heard = failing.drain();
        assert!(!heard.contains(&(3, cannot_reach_you(1, "down"))), "it has failed: {heard:?}");
        (0..4).for_each(|rank| assert_eq!(pair.leave(rank), None));
        pair.drain();
        pair.join(3);
        assert!(matches!(pair.drain()[..], [(3, ToRank::Start(_))]));
    }

    #[test]
    fn what_cannot_be_understood_fails_the_rank_that_said_it() {
        let mut pair = Pair::new(2, 1);
        let now = pair.now;
        assert_eq!(pair.rendezvous.handle_line(0, b"\xff{", now).unwrap().rank, 0);
        let failure = pair.say(1, &FromRank::Join { version: 99, pid: 1 }).unwrap();
        assert!(failure.how.contains("version 99"), "{}", failure.how);
        let mut pair = Pair::new(1, 1);
        assert!(pair.leave(0).is_some());
        pair.join(0);
        assert!(pair.join(0).is_some());
        assert!(pair.say(0, &FromRank::Fetch { first: 1, count: 1 }).is_some());
    }

    #[test]
    fn ranks_that_are_lost_with_their_host_have_died_of_it_and_are_not_lost_twice() {
        let mut pair = Pair::new(3, 1);
        pair.join_all();
        let failure = pair.rendezvous.handle_loss(1, "was lost with host b").unwrap();
        assert_eq!((failure.rank, failure.status, failure.how.as_str()), (1, 1, "was lost with host b"));
        assert_eq!(pair.rendezvous.handle_loss(1, "was lost with host b"), None);
        assert_eq!(pair.rendezvous.membership(1), Membership::Ended);
        let heard: Vec<_> = pair.drain();
        assert!(
            matches!(&heard[..], [(0, ToRank::Died { rank: 1, .. }), (2, ToRank::Died { rank: 1, .. })]),
            "{heard:?}"
        );
        pair.leave(0);
        pair.leave(2);
        assert!(pair.drain().iter().all(|(_, message)| *message == ToRank::Goodbye), "nobody waits for the lost");
    }

    #[test]
    fn a_rank_is_told_the_processors_that_its_machine_has_said() {
        let plan = Plan::on_machines(&[1, 1], None, None).unwrap();
        let processors = vec![vec![0], Vec::new()];
        let job = Job { number: 5, secret: "ab".to_owned(), processors, stats: false, survivors_go_on: false };
        let mut rendezvous = Rendezvous::new(plan, job);
        rendezvous.know_processors(1, vec![4, 5]);
        let join = serde_json::to_vec(&FromRank::Join { version: CONTROL_VERSION, pid: 1 }).unwrap();
        assert_eq!(rendezvous.handle_line(1, &join, Instant::now()), None);
        let Some((1, ToRank::Start(start))) = rendezvous.poll_message() else { panic!("it joined") };
        assert_eq!((start.processors, start.machines, start.ranks_on_machine), (vec![4, 5], 2, 1));
    }

    #[test]
    fn a_rank_that_fails_after_leaving_fails_the_job_and_lets_the_others_go() {
        let mut pair = Pair::new(2, 1);
        pair.join_all();
        pair.leave(0);
        assert!(pair.end(1, HowEnded::Exited(3)).is_some());
        let messages = pair.drain();
        assert!(matches!(&messages[..], [(0, ToRank::Died { rank: 1, .. }), (0, ToRank::Goodbye)]), "{messages:?}");
        assert_eq!(pair.end(0, HowEnded::Exited(7)).map(|failure| failure.status), Some(7));
    }
}
