//! What moves a rank from one step to the next, as `runtime/src/bootstrap/assembly.rs`, `neighbours.rs` and `launcher.rs` do it.

use longarm_control::arrival::Met;
use longarm_control::messages::{CONTROL_VERSION, FromRank, ToRank};
use longarm_control::proof::{Caller, RankProof};
use longarm_control::relay::LAST;
use longarm_control::scale::{arrival, card};
use serde::{Deserialize, Serialize};

use super::gathering::Gathering;
use super::job::{
    ATTEMPT_NS, BACKLOG, CALL_AGAIN_NS, FLUSH_NS, HALF_OPEN_MAX, LEADER_NS, MEET_NS, PAUSE_MAX_NS, PAUSE_MIN_NS,
    READ_MAX, SPARE_NS,
};
use super::network::{Event, Thread};
use super::rank::Step;
use super::serving::RelayThread;

/// What is read of a start of many.
#[derive(Deserialize)]
struct StartLine {
    #[serde(rename = "Start")]
    start: OwnRank,
}

#[derive(Deserialize)]
struct OwnRank {
    rank: u32,
}

impl Gathering {
    pub(super) fn leader_of(&self, rank: u32) -> u32 {
        self.shape.ranks_of(self.shape.node_of(rank)).start
    }

    pub(super) fn set(&mut self, rank: u32, step: Step) {
        let is_over = step.is_over();
        self.came_in += u32::from(matches!(step, Step::In));
        self.gone += u32::from(matches!(step, Step::LetGo));
        self.over += u32::from(is_over);
        let state = &mut self.ranks[rank as usize];
        state.step = step;
        state.wait += 1;
        if is_over {
            self.end_process(rank);
        }
    }

    pub(super) fn wait(&mut self, rank: u32, patience_ns: u64) {
        let wait = self.ranks[rank as usize].wait;
        self.network.after(patience_ns, Event::Patience(rank, wait));
    }

    pub(super) fn begin(&mut self, rank: u32) {
        if !matches!(self.ranks[rank as usize].step, Step::Absent) {
            return;
        }
        let leader = self.leader_of(rank);
        let of_node = self.shape.ranks_of(self.shape.node_of(rank));
        if !self.coming.by_relays || of_node.len() < 2 || rank == leader {
            self.call(rank);
            if rank == leader && self.coming.by_relays {
                // It knocks.
                let is_behind = |other: &u32| matches!(self.ranks[*other as usize].step, Step::Behind);
                let others: Vec<u32> = of_node.skip(1).filter(is_behind).collect();
                others.into_iter().for_each(|other| self.come_to_relay(other));
            }
            return;
        }
        self.set(rank, Step::Behind);
        match &self.ranks[leader as usize].step {
            Step::Absent | Step::Told(_) | Step::Lost | Step::LetGo => self.wait(rank, LEADER_NS),
            _ => self.come_to_relay(rank),
        }
    }

    /// The leader of its node listens. It takes in whoever comes once it is let in itself.
    pub(super) fn come_to_relay(&mut self, rank: u32) {
        let node = self.shape.node_of(rank);
        let connection = self.network.connect(Thread::Rank(rank), Thread::Relay(node), true);
        self.ranks[rank as usize].connection = Some(connection);
        self.ranks[rank as usize].wait += 1;
        self.wait(rank, MEET_NS / 2);
        if let Some(relay) = self.relays.get_mut(&node) {
            match relay.is_open {
                true => {
                    relay.serving.backlog.push_back(connection);
                    self.schedule(Thread::Relay(node), self.machine.wake_socket_ns);
                }
                false => self.network.close(connection, 1),
            }
        }
    }

    /// Whether what a rank calls for is to be the relay of its node.
    pub(super) fn is_to_be_relay(&self, rank: u32) -> bool {
        let (node, state) = (self.shape.node_of(rank), &self.ranks[rank as usize]);
        self.coming.by_relays
            && !state.through_relay
            && !state.by_itself
            && self.leader_of(rank) == rank
            && self.shape.ranks_of(node).len() > 1
            && !self.relays.contains_key(&node)
    }

    /// Calls rank 0.
    pub(super) fn call(&mut self, rank: u32) {
        let connection = self.network.connect(Thread::Rank(rank), Thread::Coordinator, false);
        self.set(rank, Step::Calling);
        let state = &mut self.ranks[rank as usize];
        (state.connection, state.through_relay) = (Some(connection), false);
        state.heard.clear();
        self.network.work(self.machine.send_ns);
        self.network.after(self.network.latency_ns(false), Event::Call(connection, 0));
        self.wait(rank, ATTEMPT_NS);
    }

    pub(super) fn arrive_call(&mut self, connection: u32, again: u32) {
        if self.network.connections[connection as usize].closed[0] {
            return;
        }
        let latency_ns = self.network.latency_ns(false);
        if self.coordinator_thread.has_ended || !self.coordinator.is_open() {
            self.network.after(latency_ns, Event::Connected(connection, false));
        } else if self.coordinator_thread.backlog.len() >= BACKLOG {
            self.network.after(CALL_AGAIN_NS << again, Event::Call(connection, again + 1));
        } else {
            self.coordinator_thread.backlog.push_back(connection);
            self.schedule(Thread::Coordinator, self.machine.wake_socket_ns);
            self.network.after(latency_ns, Event::Connected(connection, true));
        }
    }

    pub(super) fn connected(&mut self, connection: u32, is_taken: bool) {
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
    pub(super) fn patience_ns(&self, rank: u32) -> u64 {
        let is_own_relay = self.ranks[rank as usize].through_relay && self.leader_of(rank) == rank;
        if is_own_relay { MEET_NS.saturating_sub(self.network.now_ns()).max(ATTEMPT_NS) } else { ATTEMPT_NS }
    }

    /// Says who it is.
    pub(super) fn greet(&mut self, rank: u32) {
        let Some(connection) = self.ranks[rank as usize].connection else { return };
        let caller = if self.is_to_be_relay(rank) { Caller::Relay } else { Caller::Rank };
        let nonce = self.nonce();
        let (proof, hello) = RankProof::start_as(caller, &self.ticket, rank, nonce);
        self.set(rank, Step::Greeted(Box::new(proof)));
        self.network.send(connection, 0, &hello);
        self.wait(rank, self.patience_ns(rank));
    }

    pub(super) fn hear(&mut self, rank: u32, connection: u32) {
        if self.ranks[rank as usize].connection != Some(connection) {
            return;
        }
        self.network.work(self.machine.wake_socket_ns);
        let (bytes, is_over) = self.network.receive(connection, 0, usize::MAX);
        self.ranks[rank as usize].heard.extend_from_slice(&bytes);
        while self.ranks[rank as usize].connection == Some(connection) && self.understand(rank) {}
        if is_over && self.ranks[rank as usize].connection == Some(connection) {
            self.handle_hang_up(rank);
        }
    }

    /// Takes the next thing that was said to a rank. Whether there may be another one.
    pub(super) fn understand(&mut self, rank: u32) -> bool {
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

    pub(super) fn be_let_in(&mut self, rank: u32) {
        if self.is_to_be_relay(rank) {
            return self.begin_relay(rank);
        }
        let node = self.shape.node_of(rank);
        self.set(rank, Step::Arrived);
        let of_node = self.shape.ranks_of(node);
        self.say(rank, &arrival(node, rank - of_node.start, of_node.len() as u32));
        self.wait(rank, MEET_NS + SPARE_NS);
    }

    /// The others of its node come through it from now on, and so does this rank.
    pub(super) fn begin_relay(&mut self, leader: u32) {
        let node = self.shape.node_of(leader);
        let Some(up) = self.ranks[leader as usize].connection.take() else { return };
        self.network.connections[up as usize].ends[0] = Thread::Relay(node);
        let members_max = self.shape.ranks_of(node).len() + HALF_OPEN_MAX;
        let mut thread = RelayThread::new(leader, up, members_max);
        let own = self.network.connect(Thread::Rank(leader), Thread::Relay(node), true);
        self.take_in(&mut thread, own);
        let others = self.shape.ranks_of(node).skip(1).map(|rank| &self.ranks[rank as usize]);
        let waiting = others.filter(|rank| matches!(rank.step, Step::Behind)).filter_map(|rank| rank.connection);
        thread.serving.backlog.extend(waiting);
        self.relays.insert(node, thread);
        self.ranks[leader as usize].connection = Some(own);
        self.ranks[leader as usize].heard.clear();
        self.set(leader, Step::Behind);
        self.wait(leader, ATTEMPT_NS);
        self.be_ready(Thread::Relay(node), up);
    }

    pub(super) fn say(&mut self, rank: u32, message: &impl Serialize) {
        let mut line = serde_json::to_vec(message).expect("these messages have only names as keys");
        line.push(b'\n');
        if let Some(connection) = self.ranks[rank as usize].connection {
            self.network.send(connection, 0, &line);
        }
    }

    pub(super) fn read(&mut self, rank: u32, line: &[u8]) {
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
            Ok(ToRank::Goodbye) if matches!(self.ranks[rank as usize].step, Step::Left) => self.set(rank, Step::LetGo),
            other => {
                self.wrong =
                    Some(format!("rank {rank}, which {}, was told {other:?}", self.ranks[rank as usize].step.name()))
            }
        }
    }

    pub(super) fn be_started(&mut self, rank: u32, line: &[u8]) {
        let node = self.shape.node_of(rank);
        let is_last = rank + 1 == self.coming.ranks;
        let is_right = match self.coming.ranks <= READ_MAX || is_last {
            true => matches!(serde_json::from_slice(line), Ok(ToRank::Start(start))
                if start.rank == rank && start.is_sound() && start.node_of_rank.iter().copied().eq(self.shape.node_of_rank.iter().map(|node| node.0))),
            false => serde_json::from_slice::<StartLine>(line).is_ok_and(|line| line.start.rank == rank),
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

    pub(super) fn be_in(&mut self, rank: u32) {
        self.set(rank, Step::In);
        if let Some(dice) = &mut self.dice {
            let after_ns = dice.below(1_000_000_000);
            self.network.after(after_ns, Event::Leave(rank));
        }
    }

    pub(super) fn leave(&mut self, rank: u32) {
        if matches!(self.ranks[rank as usize].step, Step::In) {
            self.set(rank, Step::Left);
            self.say(rank, &FromRank::Leave { traffic: Vec::new(), network: Vec::new() });
        }
    }

    /// What led to the coordinator is gone.
    pub(super) fn handle_hang_up(&mut self, rank: u32) {
        self.drop_connection(rank);
        let state = &self.ranks[rank as usize];
        let is_relays = state.through_relay || matches!(state.step, Step::Behind);
        let heard_last = state.heard.last() == Some(&LAST);
        let leader = self.leader_of(rank);
        match state.step {
            Step::Behind | Step::Greeted(_) | Step::Proven(_) if is_relays => self.go_by_itself(rank),
            Step::Greeted(_) | Step::Proven(_) | Step::Calling => self.rest(rank),
            _ if is_relays && !heard_last => {
                self.set(rank, Step::Told(format!("rank {leader} has ended, through which this one came")));
            }
            _ => self.set(rank, Step::Told("rank 0 has ended, or has cut this rank off".to_owned())),
        }
    }

    pub(super) fn rest(&mut self, rank: u32) {
        self.outcome.tries_again += 1;
        self.drop_connection(rank);
        self.set(rank, Step::Resting);
        let state = &mut self.ranks[rank as usize];
        state.pause_ns = (state.pause_ns * 2).clamp(PAUSE_MIN_NS, PAUSE_MAX_NS);
        let pause_ns = state.pause_ns;
        self.wait(rank, pause_ns);
    }

    pub(super) fn lose_patience(&mut self, rank: u32, wait: u32) {
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

    pub(super) fn go_by_itself(&mut self, rank: u32) {
        self.ranks[rank as usize].by_itself = true;
        self.drop_connection(rank);
        self.call(rank);
    }

    /// Its process ends by itself, and what it has of threads says what it has to say before.
    pub(super) fn end_process(&mut self, rank: u32) {
        self.drop_connection(rank);
        let node = self.shape.node_of(rank);
        if let Some(mut relay) = self.relays.remove(&node) {
            if relay.leader == rank && !relay.serving.has_ended {
                relay.desk.end_turn(&mut self.sockets_of(&mut relay.numbers));
                let state = &self.ranks[rank as usize];
                if state.by_itself && matches!(state.step, Step::LetGo) {
                    relay.lingers_until_ns = Some(self.network.now_ns() + FLUSH_NS);
                } else {
                    self.end_relay(&mut relay);
                }
            }
            self.relays.insert(node, relay);
            self.schedule(Thread::Relay(node), 0);
        }
        if rank == 0 && !self.coordinator_thread.has_ended {
            self.end_coordinator();
        }
    }

    pub(super) fn drop_connection(&mut self, rank: u32) {
        if let Some(connection) = self.ranks[rank as usize].connection.take() {
            self.network.close(connection, 0);
        }
    }

    pub(super) fn end_coordinator(&mut self) {
        self.coordinator_thread.has_ended = true;
        self.hang_up_on_waiting();
        for (connection, end) in self.numbers.take() {
            self.network.close(connection, end);
        }
    }
}
