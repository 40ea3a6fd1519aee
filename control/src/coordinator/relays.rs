//! Connections that come through the relay of a node. A member's end comes as [`FromRelay::Gone`], and goes by `lose` and `handle_gone` to the
//! rendezvous.

use super::*;
use crate::frames::Frame;
use crate::relay::{FromRelay, ToRelay};

impl Coordinator {
    /// How many connections come over this one. What may wait for it is bounded for each of them.
    pub fn connections_over(&self, number: u64) -> usize {
        self.relay(number).map_or(1, |relay| relay.members.len().max(1))
    }

    fn relay(&self, number: u64) -> Option<&RelayConnection> {
        match &self.connections.get(&number)?.phase {
            ConnectionPhase::Relay(relay) => Some(relay),
            _ => None,
        }
    }

    fn relay_mut(&mut self, number: u64) -> Option<&mut RelayConnection> {
        match &mut self.connections.get_mut(&number)?.phase {
            ConnectionPhase::Relay(relay) => Some(relay),
            _ => None,
        }
    }

    /// The connections that come through this one: first that of the rank whose process ended, if it did.
    pub(super) fn through(&self, number: u64) -> Vec<u64> {
        let Some(relay) = self.relay(number) else { return Vec::new() };
        let mut through: Vec<u64> = relay.members.values().copied().collect();
        through.sort_by_key(|one| !self.is_rank(*one, relay.rank));
        through
    }

    fn is_rank(&self, number: u64, rank: u32) -> bool {
        self.connections.get(&number).is_some_and(|one| matches!(one.phase, ConnectionPhase::Rank(own) if own == rank))
    }

    /// Whether this rank has the relay in its process through which it comes.
    pub(super) fn is_relays_own(&self, number: u64, rank: u32) -> bool {
        self.rank_of_relay(number) == Some(rank)
    }

    /// Whether this rank comes through the relay in another one's process.
    pub(super) fn is_behind_another(&self, number: u64, rank: u32) -> bool {
        self.rank_of_relay(number).is_some_and(|of_relay| of_relay != rank)
    }

    fn rank_of_relay(&self, number: u64) -> Option<u32> {
        Some(self.relay(self.connections.get(&number)?.through?.relay)?.rank)
    }

    /// Before all have come: with a relay's connection those go that have come through it, and it is the relay's own rank whose process has
    /// ended, also where that one had not come itself. Where nobody had, its rank may still come by itself.
    pub(super) fn fail_with_relay(&mut self, number: u64) {
        let Phase::Gathering { arrivals, .. } = &self.phase else { return };
        let Some(relay) = self.relay(number) else { return };
        let is_rank =
            |one: &u64| matches!(self.connections.get(one).map(|one| &one.phase), Some(ConnectionPhase::Rank(_)));
        if relay.members.values().any(is_rank) {
            let rank = relay.rank;
            let process = arrivals[rank as usize].as_ref().map(|(_, own)| format!(" ({})", show_process(own)));
            let reason = format!("rank {rank}{} has ended before all had come", process.unwrap_or_default());
            self.forget(number);
            self.fail_all(reason);
        }
    }

    /// What was said of the end of ranks that gave a reason is on its way to those behind them: they may end.
    pub(super) fn release_those_who_gave_a_reason(&mut self) {
        for rank in std::mem::take(&mut self.waiting_for_telling) {
            let Phase::Met { connections, .. } = &self.phase else { continue };
            // Rank 0's process has the coordinator too, and sees by itself what has left.
            if let Some(number) =
                connections[rank as usize].filter(|number| self.is_relays_own(*number, rank) && rank != 0)
            {
                self.send_line(number, &ToRank::Told);
            }
        }
    }

    /// Takes one frame off what has come from a relay. Whether there may be another one.
    pub(super) fn take_frame(&mut self, number: u64, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else { return false };
        let received = std::mem::take(&mut connection.received);
        let ConnectionPhase::Relay(relay) = &mut connection.phase else { return false };
        relay.frames.feed(&received);
        match relay.frames.next_frame() {
            Ok(None) => false,
            Ok(Some(frame)) => {
                self.handle_frame(number, frame, now);
                true
            }
            Err(_) => {
                self.drop_relay(number, &Violation::Relay, now);
                false
            }
        }
    }

    fn handle_frame(&mut self, number: u64, frame: FromRelay, now: Instant) {
        let Some(relay) = self.relay(number) else { return };
        let known = |member: u32| relay.members.get(&member).copied();
        match frame {
            FromRelay::Member { member } if known(member).is_some() => self.drop_relay(number, &Violation::Relay, now),
            FromRelay::Member { member } => self.take_member(Through { relay: number, member }, now),
            // It may not have heard yet that a member was closed.
            FromRelay::Bytes { member, bytes } => {
                let Some(one) = known(member) else { return };
                if let Some(connection) = self.connections.get_mut(&one) {
                    connection.received.extend_from_slice(&bytes);
                }
                while self.take_one(one, now) {}
            }
            FromRelay::Gone { member } => {
                if let Some(one) = known(member) {
                    self.lose(one, now);
                }
            }
            FromRelay::Deaf { member, waiting } => {
                if let Some(one) = known(member) {
                    self.be_deaf(one, waiting as usize, now);
                }
            }
        }
    }

    /// Somebody has connected to a relay.
    fn take_member(&mut self, through: Through, now: Instant) {
        let Some(connection) = self.connections.get(&through.relay) else { return };
        let nonce = self.nonce_of_member(through, connection.nonce);
        let Some(number) = self.handle_connection(nonce, now) else { return self.close_through(through) };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.through = Some(through);
        }
        if let Some(relay) = self.relay_mut(through.relay) {
            relay.members.insert(through.member, number);
        }
    }

    /// That of the relay's connection is random, and the number of a connection comes once: so nobody knows this one before, and
    /// it is never the same.
    fn nonce_of_member(&self, through: Through, own: [u8; NONCE_BYTES]) -> [u8; NONCE_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.settings.ticket.secret);
        hasher.update(b"longarm coordinator v1 nonce of a member").update(&own);
        hasher.update(&through.member.to_le_bytes()).update(&self.next_connection.to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Ends the connection of a relay that breaks the rules, which is its rank's fault.
    pub(super) fn drop_relay(&mut self, number: u64, violation: &Violation, now: Instant) {
        if let Some(rank) = self.relay(number).map(|relay| relay.rank) {
            self.violate(rank, violation, now);
        }
        self.lose(number, now);
        self.effects.push_back(Effect::Close { connection: number });
    }

    pub(super) fn send_through(&mut self, through: Through, bytes: &[u8]) {
        // What is said to a rank whose relay is gone is lost, as it is.
        if self.connections.contains_key(&through.relay) {
            let bytes = ToRelay::message(through.member, bytes);
            self.effects.push_back(Effect::Send { connection: through.relay, bytes });
        }
    }

    pub(super) fn close_through(&mut self, through: Through) {
        if self.connections.contains_key(&through.relay) {
            let mut bytes = Vec::new();
            ToRelay::Close { member: through.member }.encode(&mut bytes);
            self.effects.push_back(Effect::Send { connection: through.relay, bytes });
        }
    }

    pub(super) fn forget_member(&mut self, through: Through) {
        if let Some(relay) = self.relay_mut(through.relay) {
            relay.members.remove(&through.member);
        }
    }
}
