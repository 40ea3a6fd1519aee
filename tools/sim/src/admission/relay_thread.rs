//! The thread of a relay: its turns are those of `runtime/src/bootstrap/relay.rs`.

use longarm_control::relay::{self, LAST};

use super::gathering::Gathering;
use super::job::CHUNK_BYTES;
use super::network::Thread;
use super::serving::RelayThread;

impl Gathering {
    pub(super) fn turn_of_relay(&mut self, node: u32) {
        let began_ns = self.network.now_ns();
        if !self.takes_turn(Thread::Relay(node)) {
            return;
        }
        let Some(mut relay) = self.relays.remove(&node) else { return };
        while let Some(connection) = relay.serving.backlog.pop_front() {
            self.take_in(&mut relay, connection);
        }
        for connection in std::mem::take(&mut relay.serving.ready) {
            let is_up = connection == relay.up;
            let end = usize::from(!is_up);
            let (bytes, is_over) = self.network.receive(connection, end, CHUNK_BYTES);
            if is_up {
                if relay.relay.handle_root_bytes(&bytes).is_err() {
                    self.wrong = Some(format!("the relay of node {node} does not understand the coordinator"));
                }
            } else if let Some(member) = relay.member_of.get(&connection).copied() {
                if !bytes.is_empty() {
                    relay.relay.handle_bytes(member, &bytes);
                }
                if is_over {
                    relay.relay.handle_hang_up(member);
                    relay.member_of.remove(&connection);
                    relay.members.remove(&member);
                    self.network.close(connection, 1);
                }
            }
            self.do_effects_of(&mut relay);
            if is_up && is_over {
                self.end_relay(&mut relay);
            } else if !is_over && !self.network.connections[connection as usize].inbox[end].is_empty() {
                relay.serving.ready.insert(connection);
            }
        }
        self.send_up(&mut relay);
        let now_ns = self.network.now_ns();
        if relay.lingers_until_ns.is_some_and(|until_ns| until_ns <= now_ns || relay.members.is_empty()) {
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
        match relay.relay.handle_member().filter(|_| relay.is_open) {
            Some(member) => {
                relay.members.insert(member, connection);
                relay.member_of.insert(connection, member);
                self.network.send(connection, 1, &relay.leader.to_le_bytes());
                self.do_effects_of(relay);
            }
            None => self.network.close(connection, 1),
        }
    }

    pub(super) fn do_effects_of(&mut self, relay: &mut RelayThread) {
        while let Some(effect) = relay.relay.poll_effect() {
            match effect {
                relay::Effect::ToCoordinator(bytes) => relay.to_coordinator.extend_from_slice(&bytes),
                relay::Effect::ToMember { member, bytes } => {
                    if let Some(connection) = relay.members.get(&member) {
                        self.network.send(*connection, 1, &bytes);
                    }
                }
                relay::Effect::Close { member } => self.close_member(relay, member),
            }
        }
    }

    pub(super) fn send_up(&mut self, relay: &mut RelayThread) {
        if !relay.to_coordinator.is_empty() {
            let bytes = std::mem::take(&mut relay.to_coordinator);
            self.network.send(relay.up, 0, &bytes);
        }
    }

    /// In good order.
    pub(super) fn close_member(&mut self, relay: &mut RelayThread, member: u32) {
        if let Some(connection) = relay.members.remove(&member) {
            relay.member_of.remove(&connection);
            self.network.send(connection, 1, &[LAST]);
            self.network.close(connection, 1);
        }
    }

    /// Its process wants it so, or the coordinator is gone: all members hear that the relay's process has not ended by itself.
    pub(super) fn end_relay(&mut self, relay: &mut RelayThread) {
        self.send_up(relay);
        for member in relay.members.keys().copied().collect::<Vec<_>>() {
            self.close_member(relay, member);
        }
        for connection in std::mem::take(&mut relay.serving.backlog) {
            self.network.close(connection, 1);
        }
        self.network.close(relay.up, 0);
        (relay.is_open, relay.serving.has_ended) = (false, true);
    }
}
