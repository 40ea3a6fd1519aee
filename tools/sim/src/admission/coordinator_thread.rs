//! The thread of the coordinator: when it takes turns, and what it finds. What it does in them stands in `longarm_control::desk`.

use longarm_control::desk::Readiness;

use super::gathering::Gathering;
use super::job::{ACCEPTED_MAX, ns};
use super::network::Thread;
use super::rank::Step;
use super::sockets::SimSockets;

impl Gathering {
    pub(super) fn turn_of_coordinator(&mut self) {
        let began_ns = self.network.now_ns();
        if !self.takes_turn(Thread::Coordinator) {
            return;
        }
        for _ in 0..ACCEPTED_MAX {
            let Some(connection) = self.coordinator_thread.backlog.pop_front() else { break };
            self.take_in_at_coordinator(connection);
        }
        let mut sockets = SimSockets::new(&mut self.network, &mut self.numbers, self.began);
        for connection in std::mem::take(&mut self.coordinator_thread.ready) {
            if let Some(number) = sockets.numbers.number_of(connection) {
                self.coordinator.handle_ready(&mut sockets, number, Readiness::READABLE);
                if sockets.numbers.number_of(connection).is_some() && sockets.network.has_come(connection, 1) {
                    self.coordinator_thread.ready.insert(connection);
                }
            }
        }
        self.coordinator.end_turn(&mut sockets, false);
        if sockets.ends_job {
            self.end_by_manager();
        }
        if !self.coordinator.is_open() {
            self.hang_up_on_waiting();
        }
        let now = self.now();
        self.end_turn(Thread::Coordinator, began_ns);
        if let Some(at) = self.coordinator.deadline() {
            let after_ns = ns(at.saturating_duration_since(now));
            self.schedule(Thread::Coordinator, after_ns);
        }
    }

    fn take_in_at_coordinator(&mut self, connection: u32) {
        self.network.work(self.machine.receive_ns + self.machine.send_ns);
        let nonce = self.nonce();
        let mut sockets = SimSockets::new(&mut self.network, &mut self.numbers, self.began);
        self.coordinator.take_in(&mut sockets, nonce, |sockets, number| {
            sockets.numbers.insert(number, connection, 1);
            true
        });
        if self.numbers.number_of(connection).is_none() {
            self.network.close(connection, 1);
        } else if self.network.has_come(connection, 1) {
            self.coordinator_thread.ready.insert(connection);
        }
    }

    pub(super) fn hang_up_on_waiting(&mut self) {
        for connection in std::mem::take(&mut self.coordinator_thread.backlog) {
            self.network.close(connection, 1);
        }
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
