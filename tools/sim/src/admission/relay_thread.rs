//! The thread of a relay: when it takes turns, and what it finds. What it does in them stands in `longarm_control::desk`.

use std::convert::Infallible;

use longarm_control::desk::Readiness;

use super::gathering::Gathering;
use super::network::Thread;
use super::serving::RelayThread;
use super::sockets::SimSockets;

impl Gathering {
    pub(super) fn turn_of_relay(&mut self, node: u32) {
        let began_ns = self.network.now_ns();
        if !self.takes_turn(Thread::Relay(node)) {
            return;
        }
        let Some(mut relay) = self.relays.remove(&node) else { return };
        relay.desk.begin_turn();
        while let Some(connection) = relay.serving.backlog.pop_front() {
            self.take_in(&mut relay, connection);
        }
        for connection in std::mem::take(&mut relay.serving.ready) {
            let Some(number) = relay.numbers.number_of(connection) else { continue };
            let mut sockets = self.sockets_of(&mut relay.numbers);
            if relay.desk.handle_ready(&mut sockets, number, Readiness::READABLE).is_err() {
                self.wrong = Some(format!("the relay of node {node} does not understand the coordinator"));
            }
            let end = usize::from(connection != relay.up);
            if relay.numbers.number_of(connection).is_some() && self.network.has_come(connection, end) {
                relay.serving.ready.insert(connection);
            }
        }
        relay.desk.end_turn(&mut self.sockets_of(&mut relay.numbers));
        let now_ns = self.network.now_ns();
        let lingers_no_more = |until_ns| until_ns <= now_ns || relay.desk.is_alone();
        if relay.desk.is_cut_off() || relay.lingers_until_ns.is_some_and(lingers_no_more) {
            self.end_relay(&mut relay);
        }
        let lingers_until_ns = relay.lingers_until_ns;
        self.relays.insert(node, relay);
        self.end_turn(Thread::Relay(node), began_ns);
        if let Some(until_ns) = lingers_until_ns {
            self.schedule(Thread::Relay(node), until_ns.saturating_sub(now_ns));
        }
    }

    pub(super) fn take_in(&mut self, relay: &mut RelayThread, connection: u32) {
        if relay.is_open {
            let added = relay.desk.take_in(&mut self.sockets_of(&mut relay.numbers), |sockets, number| {
                sockets.numbers.insert(number, connection, 1);
                Ok::<_, Infallible>(())
            });
            let Ok(()) = added;
        }
        if relay.numbers.number_of(connection).is_none() {
            self.network.close(connection, 1);
        }
    }

    /// Its process wants it so, or the coordinator is gone: all members hear that the relay's process has not ended by itself.
    pub(super) fn end_relay(&mut self, relay: &mut RelayThread) {
        relay.desk.end(&mut self.sockets_of(&mut relay.numbers));
        for connection in std::mem::take(&mut relay.serving.backlog) {
            self.network.close(connection, 1);
        }
        (relay.is_open, relay.serving.has_ended) = (false, true);
    }

    pub(super) fn sockets_of<'stage>(
        &'stage mut self,
        numbers: &'stage mut super::sockets::Numbers,
    ) -> SimSockets<'stage> {
        SimSockets::new(&mut self.network, numbers, self.began)
    }
}
