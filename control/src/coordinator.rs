//! The launcher's half for a job that something else has started: what happens in rank 0's process, to which all ranks connect.
//!
//! ```text
//!   connection ── hello, proof ──▶ arrival ──▶ all there? ──▶ rendezvous, watchdog
//! ```
//!
//! Pure: it holds no socket, thread or clock. Feed it with the `handle_*` functions, then drain [`Coordinator::poll_effect`] until
//! it is `None`. Nothing of a connection is read before it has proven that it knows the job's secret. Who has not in time is cut
//! off, and of those who have not yet only a few are kept. The ranks of a machine may come through one of them
//! ([`crate::relay`]): then each of them is a connection of its own here all the same.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::arrival::{Arrival, Layout, Met, show_missing};
use crate::how_ended::HowEnded;
use crate::messages::{ToRank, Wait, Whom};
use crate::proof::{Caller, CoordinatorProof, HELLO_BYTES, NONCE_BYTES, PROOF_BYTES, ProofError, Ticket, refusal};
use crate::rendezvous::{Failure, Job, LINE_BYTES_MAX, Membership, Rendezvous, Violation};
use crate::standing::{RankStanding, Report, State, Summary};
use crate::watchdog::{Answers, Watchdog};

mod connection;
mod relays;
mod standing;

use connection::{Connection, ConnectionPhase, RelayConnection, Through};

/// What a rank may have sent before it is known that all have come: its first line, and that it joins.
const EARLY_BYTES_MAX: usize = 1 << 20;

/// What is fixed from the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Lets processes in.
    pub ticket: Ticket,
    /// The number of the first world's job.
    pub job: u64,
    /// Whether a death leaves the others alive.
    pub survivors_go_on: bool,
    /// How long all ranks may take to come.
    pub arrival: Duration,
    /// How long a proof may take.
    pub proof: Duration,
    /// How many connections may be without a proof at a time.
    pub half_open_max: usize,
    /// How long the others have to say what they know of a death before the job is ended.
    pub report: Duration,
    /// After how long in one call a rank is reported; 0 for never.
    pub watchdog_s: u64,
    /// The process, and its command, for whoever asks.
    pub pid: u32,
    /// The program with its arguments.
    pub command: String,
    /// Whether a process of this machine is stopped.
    pub is_stopped: fn(u32) -> bool,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bytes for a connection.
    Send {
        /// Which one.
        connection: u64,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// A connection is of no more use, once what was to be sent is. It is not spoken of again.
    Close {
        /// Which one.
        connection: u64,
    },
    /// A line for people.
    Say(String),
    /// What a connection did wrong before anybody knew who it was: a matter of the log.
    Refused {
        /// Which one.
        connection: u64,
        /// What.
        error: ProofError,
    },
    /// An answer for who has asked a question.
    Answer {
        /// Who.
        asker: u64,
        /// One JSON object.
        text: String,
    },
    /// The job has to be ended, by whatever has started it.
    End {
        /// With this status.
        status: i32,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    since: Instant,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    half_open: usize,
    /// Connections that are cut off if they do not prove themselves by a time, in the order of these times. The first one has not; others
    /// behind it may have, or be gone.
    unproven: VecDeque<(u64, Instant)>,
    phase: Phase,
    effects: VecDeque<Effect>,
    /// The first failure's status, and when the job is ended.
    ending: Option<(i32, Instant)>,
    failed: bool,
    watchdog: Watchdog,
    askers: Vec<u64>,
    /// Ranks that have given the reason for the job's end, with a relay in their process, which wait until it has come back through that.
    waiting_for_telling: Vec<u32>,
}

/// How far the job is.
#[derive(Debug)]
enum Phase {
    /// Who has come, and over which connection.
    Gathering { arrivals: Vec<Option<(u64, Arrival)>>, missing: u32, until: Instant },
    /// All have come.
    Met { arrivals: Vec<Arrival>, connections: Vec<Option<u64>>, rendezvous: Box<Rendezvous>, layout: Layout },
    /// They did not.
    Failed,
}

impl Coordinator {
    /// Nobody has come.
    pub fn new(settings: Settings, now: Instant) -> Coordinator {
        let size = settings.ticket.size;
        Coordinator {
            since: now,
            connections: HashMap::new(),
            next_connection: 0,
            half_open: 0,
            unproven: VecDeque::new(),
            phase: Phase::Gathering {
                arrivals: vec![None; size as usize],
                missing: size,
                until: now + settings.arrival,
            },
            effects: VecDeque::new(),
            ending: None,
            failed: false,
            watchdog: Watchdog::new(settings.watchdog_s, now),
            askers: Vec::new(),
            waiting_for_telling: Vec::new(),
            settings,
        }
    }

    /// Somebody has connected. `None`: there are too many that have not proven themselves; it is to be closed.
    pub fn handle_connection(&mut self, nonce: [u8; NONCE_BYTES], now: Instant) -> Option<u64> {
        if !self.is_open() || self.half_open >= self.settings.half_open_max {
            return None;
        }
        let number = self.next_connection;
        self.next_connection += 1;
        self.half_open += 1;
        let until = now + self.settings.proof;
        self.connections.insert(number, Connection::new(nonce, until));
        self.unproven.push_back((number, until));
        Some(number)
    }

    /// Bytes came over a connection.
    pub fn handle_bytes(&mut self, number: u64, bytes: &[u8], now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.received.extend_from_slice(bytes);
        while self.take_one(number, now) {}
        self.settle(now);
    }

    /// A connection has ended.
    pub fn handle_hang_up(&mut self, number: u64, now: Instant) {
        self.lose(number, now);
        self.settle(now);
    }

    /// A connection does not take what is sent to it: so many bytes wait for it.
    pub fn handle_deaf(&mut self, number: u64, waiting: usize, now: Instant) {
        self.be_deaf(number, waiting, now);
        self.settle(now);
    }

    /// Somebody wants to know something. The answer comes as an effect.
    pub fn handle_question(&mut self, asker: u64, is_report: bool, now: Instant) {
        if !is_report {
            let text = serde_json::to_string(&self.summary(now)).expect("summaries have only names as keys");
            self.effects.push_back(Effect::Answer { asker, text });
        } else if let Some(report) = self.report_before_start(now) {
            let text = serde_json::to_string(&report).expect("reports have only names as keys");
            self.effects.push_back(Effect::Answer { asker, text });
        } else {
            self.askers.push(asker);
            self.ask_ranks(now);
        }
        self.settle(now);
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Instant) {
        while let Some((number, _)) = self.unproven.front().copied().filter(|(_, until)| *until <= now) {
            self.close(number);
            self.forget_proven();
        }
        if let Phase::Gathering { until, .. } = self.phase
            && until <= now
        {
            self.give_up();
        }
        if self.watchdog.is_due(now) {
            self.ask_ranks(now);
        }
        if let Some((status, at)) = self.ending
            && at <= now
        {
            self.ending = None;
            self.effects.push_back(Effect::End { status });
        }
        self.settle(now);
    }

    /// When [`Coordinator::handle_time`] has something to do without anything else happening.
    pub fn deadline(&self) -> Option<Instant> {
        let proof = self.unproven.front().map(|(_, until)| *until);
        let gathering = if let Phase::Gathering { until, .. } = self.phase { Some(until) } else { None };
        let met = if matches!(self.phase, Phase::Met { .. }) { self.watchdog.deadline() } else { None };
        [proof, gathering, met, self.ending.map(|(_, at)| at)].into_iter().flatten().min()
    }

    /// The next thing to do. `None` when there is none left.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether whoever connects is let in: all have not come yet.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Gathering { .. })
    }

    fn be_deaf(&mut self, number: u64, waiting: usize, now: Instant) {
        match self.connections.get(&number).map(|connection| &connection.phase) {
            Some(ConnectionPhase::Rank(rank)) if self.is_open() => {
                let rank = *rank;
                self.close(number);
                self.handle_gone(rank, number, now);
            }
            Some(ConnectionPhase::Rank(rank)) => self.violate(*rank, &Violation::Deaf { waiting }, now),
            Some(ConnectionPhase::Relay(_)) => self.drop_relay(number, &Violation::Deaf { waiting }, now),
            _ => self.close(number),
        }
    }

    /// A connection is gone, and those that came through it.
    fn lose(&mut self, number: u64, now: Instant) {
        self.fail_with_relay(number);
        let through = self.through(number);
        if let Some(rank) = self.forget(number) {
            self.handle_gone(rank, number, now);
        }
        for one in through {
            if let Some(rank) = self.forget(one) {
                self.handle_gone(rank, one, now);
            }
        }
    }

    /// Takes one message off what has come. Whether there may be another one.
    fn take_one(&mut self, number: u64, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        match connection.phase {
            ConnectionPhase::Hello { until } => {
                let Some(hello) = connection.take::<HELLO_BYTES>() else { return false };
                match CoordinatorProof::start(&self.settings.ticket, connection.nonce, &hello) {
                    Ok((proof, challenge)) => {
                        connection.phase = ConnectionPhase::Proof { proof, until };
                        self.send(number, challenge.to_vec());
                    }
                    Err(error) => {
                        self.send(number, refusal(&error).to_vec());
                        self.refuse(number, error);
                    }
                }
            }
            ConnectionPhase::Proof { ref proof, .. } => {
                let Some((checked, rest)) = connection.received.split_first_chunk::<PROOF_BYTES>() else {
                    return false;
                };
                let is_relay = proof.caller() == Caller::Relay;
                match proof.check(checked) {
                    // A relay behind a relay is none of ours.
                    Ok(_) if is_relay && connection.through.is_some() => self.close(number),
                    Ok((rank, welcome)) => {
                        connection.received = rest.to_vec();
                        connection.phase = match is_relay {
                            true => ConnectionPhase::Relay(Box::new(RelayConnection::new(rank))),
                            false => ConnectionPhase::Arriving { rank },
                        };
                        self.half_open -= 1;
                        self.send(number, welcome.to_vec());
                    }
                    Err(error) => self.refuse(number, error),
                }
            }
            ConnectionPhase::Arriving { rank } => match connection.take_line(EARLY_BYTES_MAX) {
                Ok(None) => return false,
                Ok(Some(line)) => self.handle_arrival(number, rank, &line, now),
                Err(_) => self.fail_connection(number, format!("rank {rank} sent a first line without an end")),
            },
            ConnectionPhase::Rank(rank) => return self.take_line_of_rank(number, rank, now),
            ConnectionPhase::Relay(_) => return self.take_frame(number, now),
        }
        true
    }

    fn take_line_of_rank(&mut self, number: u64, rank: u32, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        let Phase::Met { rendezvous, .. } = &mut self.phase else {
            // What it says is read when all are there.
            if connection.received.len() > EARLY_BYTES_MAX {
                self.close(number);
                self.handle_gone(rank, number, now);
            }
            return false;
        };
        match connection.take_line(LINE_BYTES_MAX) {
            Ok(None) => false,
            Ok(Some(line)) => {
                if let Some(failure) = rendezvous.handle_line(rank, &line, now) {
                    self.handle_failure(&failure, now);
                }
                true
            }
            Err(violation) => {
                self.violate(rank, &violation, now);
                false
            }
        }
    }

    fn handle_arrival(&mut self, number: u64, rank: u32, line: &[u8], now: Instant) {
        let Phase::Gathering { arrivals, missing, .. } = &mut self.phase else {
            self.close(number);
            return;
        };
        match (Arrival::read(line), &arrivals[rank as usize]) {
            (Err(reason), _) => self.fail_connection(number, format!("rank {rank} {reason}")),
            (Ok(arrival), Some((_, first))) => {
                let (one, two) = (show_process(first), show_process(&arrival));
                let reason = format!("two processes call themselves rank {rank}: {one} and {two}");
                self.fail_connection(number, reason);
            }
            (Ok(arrival), None) => {
                arrivals[rank as usize] = Some((number, arrival));
                *missing -= 1;
                let are_all_there = *missing == 0;
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.phase = ConnectionPhase::Rank(rank);
                }
                if are_all_there {
                    self.begin(now);
                }
            }
        }
    }

    /// All have come.
    fn begin(&mut self, now: Instant) {
        let Phase::Gathering { arrivals, .. } = std::mem::replace(&mut self.phase, Phase::Failed) else { return };
        let (connections, arrivals): (Vec<_>, Vec<_>) =
            arrivals.into_iter().flatten().map(|(number, arrival)| (Some(number), arrival)).unzip();
        let layout = Layout::of(&arrivals, arrivals[0].nodes);
        let job = Job {
            number: self.settings.job,
            // Not over a connection that others may listen to: each rank derives it from its ticket.
            secret: String::new(),
            processors: layout.processors.clone(),
            stats: false,
            survivors_go_on: self.settings.survivors_go_on,
        };
        let rendezvous = Box::new(Rendezvous::new(layout.plan.clone(), job));
        let on_several = layout.processors.len() > 1;
        let met = Met::All { host: arrivals[0].host.clone(), on_several };
        connections.iter().flatten().for_each(|number| self.send_line(*number, &met));
        let is_stranger =
            |connection: &Connection| !matches!(connection.phase, ConnectionPhase::Rank(_) | ConnectionPhase::Relay(_));
        let strangers = self.connections.iter().filter(|(_, connection)| is_stranger(connection));
        let strangers: BTreeSet<u64> = strangers.map(|(number, _)| *number).collect();
        self.phase = Phase::Met { arrivals, connections: connections.clone(), rendezvous, layout };
        strangers.into_iter().for_each(|number| self.close(number));
        // What they have said meanwhile.
        for number in connections.into_iter().flatten() {
            while self.take_one(number, now) {}
        }
    }

    /// The time is over, and some have not come.
    fn give_up(&mut self) {
        let Phase::Gathering { arrivals, .. } = &self.phase else { return };
        let missing: Vec<u32> = (0..).zip(arrivals).filter(|(_, one)| one.is_none()).map(|(rank, _)| rank).collect();
        self.fail_all(show_missing(&missing, self.settings.ticket.size, self.settings.arrival.as_secs()));
    }

    /// The ranks will not be together: all that have come are told why.
    fn fail_all(&mut self, reason: String) {
        self.phase = Phase::Failed;
        let mut numbers: Vec<u64> = self.connections.keys().copied().collect();
        // A relay may end as soon as its own rank hears it, and what is said to those behind it goes through it, together.
        numbers.sort_by_key(|number| {
            let connection = &self.connections[number];
            let place = match connection.phase {
                ConnectionPhase::Relay(_) => 2,
                ConnectionPhase::Rank(rank) if self.is_relays_own(*number, rank) => 1,
                _ => 0,
            };
            (place, connection.through.map(|through| through.relay), *number)
        });
        for number in numbers {
            let is_rank =
                matches!(self.connections[&number].phase, ConnectionPhase::Rank(_) | ConnectionPhase::Arriving { .. });
            if is_rank {
                self.send_line(number, &Met::Failed { reason: reason.clone() });
            }
            self.close(number);
        }
    }

    fn fail_connection(&mut self, number: u64, reason: String) {
        self.send_line(number, &Met::Failed { reason });
        self.close(number);
    }

    /// The connection of a rank has ended: so has the rank.
    fn handle_gone(&mut self, rank: u32, number: u64, now: Instant) {
        match &mut self.phase {
            Phase::Gathering { arrivals, .. } => {
                let Some((_, arrival)) = arrivals[rank as usize].take_if(|(own, _)| *own == number) else { return };
                self.fail_all(format!("rank {rank} ({}) has ended before all had come", show_process(&arrival)));
            }
            Phase::Met { connections, rendezvous, .. } => {
                connections[rank as usize] = None;
                self.watchdog.handle_end(rank);
                if let Some(failure) = rendezvous.handle_end(rank, HowEnded::Gone) {
                    self.handle_failure(&failure, now);
                }
            }
            Phase::Failed => {}
        }
    }

    fn violate(&mut self, rank: u32, violation: &Violation, now: Instant) {
        let Phase::Met { rendezvous, .. } = &mut self.phase else { return };
        let failure = rendezvous.handle_violation(rank, violation);
        self.handle_failure(&failure, now);
    }

    fn handle_failure(&mut self, failure: &Failure, now: Instant) {
        let Phase::Met { arrivals, layout, .. } = &self.phase else { return };
        let is_first = !std::mem::replace(&mut self.failed, true);
        let goes_on = self.settings.survivors_go_on;
        // Who gives a reason says it where its process can be heard even if this one cannot; those after it only follow.
        if goes_on || (is_first && !failure.has_reason) {
            let (rank, node) = (failure.rank, layout.plan.node_of_rank[failure.rank as usize]);
            let then = match (goes_on, is_first) {
                (true, _) => "; the others go on",
                (false, true) => "; ending the job",
                (false, false) => "",
            };
            let process = show_process(&arrivals[rank as usize]);
            self.effects.push_back(Effect::Say(format!("rank {rank} (node {node}, {process}) {}{then}", failure.how)));
        }
        if is_first && !goes_on {
            self.ending = Some((failure.status, now + self.settings.report));
        }
        if failure.has_reason {
            self.waiting_for_telling.push(failure.rank);
        }
        let Phase::Met { connections, .. } = &self.phase else { return };
        // One that has given a reason ends by itself. The others are cut off, and end for that.
        let with_it: Vec<u32> = if goes_on { failure.taken_along.clone() } else { Vec::new() };
        let violator = Some(failure.rank).filter(|_| !failure.has_reason);
        let cut: Vec<u64> =
            with_it.iter().copied().chain(violator).filter_map(|rank| connections[rank as usize]).collect();
        for number in cut {
            let Some(ConnectionPhase::Rank(rank)) = self.connections.get(&number).map(|connection| &connection.phase)
            else {
                continue;
            };
            let rank = *rank;
            if rank != failure.rank {
                self.send_line(number, &ToRank::Died { rank: failure.rank, how: failure.how.clone() });
            }
            self.close(number);
            self.handle_gone(rank, number, now);
        }
    }

    /// Those in front that have proven themselves, or are gone, have no time limit.
    fn forget_proven(&mut self) {
        while let Some((first, _)) = self.unproven.front()
            && self.connections.get(first).and_then(Connection::until).is_none()
        {
            self.unproven.pop_front();
        }
    }

    /// What follows from what has happened: messages to ranks, and answers that are complete.
    fn settle(&mut self, now: Instant) {
        self.forget_proven();
        self.pass_messages();
        self.look_at_answers(now);
        self.pass_messages();
        self.release_those_who_gave_a_reason();
    }

    fn pass_messages(&mut self) {
        // The process of a relay, or of rank 0, which this is, may end as soon as it hears something: those behind it first.
        let (mut later, mut rank_0) = (Vec::new(), None);
        while let Phase::Met { rendezvous, connections, arrivals, layout } = &mut self.phase
            && let Some((rank, mut message)) = rendezvous.poll_message()
        {
            let Some(number) = connections[rank as usize] else { continue };
            if let ToRank::Died { rank: dead, how } = &mut message
                && layout.processors.len() > 1
            {
                *how = format!("{how} (on host {})", arrivals[*dead as usize].host);
            }
            match message {
                ToRank::Goodbye if rank == 0 => rank_0 = Some(number),
                message if self.is_relays_own(number, rank) => later.push((number, message)),
                message => self.send_line(number, &message),
            }
        }
        // Rank 0 is the last to be let go, unless it is behind another rank's relay itself.
        let at = if rank_0.is_some_and(|rank_0| self.is_behind_another(rank_0, 0)) { 0 } else { later.len() };
        rank_0.into_iter().for_each(|rank_0| later.insert(at, (rank_0, ToRank::Goodbye)));
        for (number, message) in later {
            self.send_line(number, &message);
        }
    }

    fn send_line(&mut self, connection: u64, message: &impl serde::Serialize) {
        let mut bytes = serde_json::to_vec(message).expect("these messages have only names as keys");
        bytes.push(b'\n');
        self.send(connection, bytes);
    }

    fn send(&mut self, connection: u64, bytes: Vec<u8>) {
        match self.connections.get(&connection).and_then(|connection| connection.through) {
            Some(through) => self.send_through(through, &bytes),
            None => self.effects.push_back(Effect::Send { connection, bytes }),
        }
    }

    fn refuse(&mut self, connection: u64, error: ProofError) {
        self.effects.push_back(Effect::Refused { connection, error });
        self.close(connection);
    }

    fn close(&mut self, connection: u64) {
        let through = self.connections.get(&connection).and_then(|connection| connection.through);
        self.forget(connection);
        match through {
            Some(through) => self.close_through(through),
            None => self.effects.push_back(Effect::Close { connection }),
        }
    }

    /// The rank that a connection is of, if it has come that far. It is not known any more.
    fn forget(&mut self, number: u64) -> Option<u32> {
        let connection = self.connections.remove(&number)?;
        if let Some(through) = connection.through {
            self.forget_member(through);
        }
        match connection.phase {
            ConnectionPhase::Hello { .. } | ConnectionPhase::Proof { .. } => {
                self.half_open -= 1;
                None
            }
            ConnectionPhase::Arriving { .. } | ConnectionPhase::Relay(_) => None,
            ConnectionPhase::Rank(rank) => Some(rank),
        }
    }
}

fn show_process(arrival: &Arrival) -> String {
    format!("pid {} on {}", arrival.pid, arrival.host)
}

#[cfg(test)]
mod tests;
