//! The thread of the coordinator: its turns are those of `runtime/src/bootstrap/coordinator.rs`.

use longarm_control::coordinator::Effect;

use super::gathering::Gathering;
use super::job::{ACCEPTED_MAX, ANSWER_NS, CHUNK_BYTES, ns};
use super::network::Thread;
use super::rank::Step;

impl Gathering {
    pub(super) fn turn_of_coordinator(&mut self) {
        let began_ns = self.network.now_ns();
        if !self.takes_turn(Thread::Coordinator) {
            return;
        }
        for _ in 0..ACCEPTED_MAX {
            let Some(connection) = self.coordinator_thread.backlog.pop_front() else { break };
            self.network.work(self.machine.receive_ns + self.machine.send_ns);
            let (nonce, now) = (self.nonce(), self.now());
            match self.coordinator.handle_connection(nonce, now) {
                Some(number) => {
                    self.number_of.insert(connection, number);
                    self.connection_of.insert(number, connection);
                    let state = &self.network.connections[connection as usize];
                    if !state.inbox[1].is_empty() || state.ended[1] {
                        self.coordinator_thread.ready.insert(connection);
                    }
                }
                None => self.network.close(connection, 1),
            }
        }
        for connection in std::mem::take(&mut self.coordinator_thread.ready) {
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
                self.coordinator_thread.ready.insert(connection);
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

    pub(super) fn hang_up_on_waiting(&mut self) {
        for connection in std::mem::take(&mut self.coordinator_thread.backlog) {
            self.network.close(connection, 1);
        }
    }

    pub(super) fn forget(&mut self, connection: u32) {
        if let Some(number) = self.number_of.remove(&connection) {
            self.connection_of.remove(&number);
        }
    }

    pub(super) fn do_effects(&mut self) {
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

    pub(super) fn send_unsent(&mut self, number: Option<u64>, bytes: &mut Vec<u8>) {
        if let Some(connection) = number.and_then(|number| self.connection_of.get(&number)) {
            self.network.send(*connection, 1, bytes);
        }
        bytes.clear();
    }

    /// The manager ends all that are left.
    pub(super) fn end_by_manager(&mut self) {
        for rank in 0..self.coming.ranks {
            if !self.ranks[rank as usize].step.is_over() {
                let lost = self.outcome.lost.unwrap_or(u32::MAX);
                self.set(rank, Step::Told(format!("the manager ends the job: rank {lost} has ended")));
            }
        }
    }
}
