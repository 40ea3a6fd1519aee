//! What goes wrong.

use longarm_control::proof::{Caller, RankProof, Ticket};

use super::gathering::Gathering;
use super::job::HALF_OPEN_MAX;
use super::network::{Event, Fault, Thread};
use super::rank::{Rank, Step};
use crate::dice::Dice;

impl Gathering {
    /// Everything that goes wrong, and when ranks begin.
    pub(super) fn plan_faults(&mut self, mut dice: Dice) {
        let (ranks, nodes) = (self.coming.ranks, self.coming.nodes);
        let spread_ns = 1 + (1_000_000 << dice.below(13));
        let lost = dice.one_in(3).then(|| dice.below(ranks.into()) as u32);
        let never_comes = lost.is_some() && dice.one_in(3);
        for rank in 0..ranks {
            let at_ns = dice.below(spread_ns);
            // Rank 0 has said where the others find it before they know.
            if rank == 0 {
                self.network.at(0, Event::Begin(0));
            } else if lost == Some(rank) && never_comes {
                self.lose(rank);
            } else {
                self.network.at(at_ns, Event::Begin(rank));
            }
        }
        if let Some(rank) = lost.filter(|rank| *rank == 0 || !never_comes) {
            let at_ns = dice.below(2 * spread_ns + 20_000_000);
            self.network.at(at_ns, Event::Fault(Fault::Kill(rank)));
        }
        let strangers = match dice.below(8) {
            0 => HALF_OPEN_MAX as u64 + u64::from(ranks) + 20,
            1..=4 => dice.below(20),
            _ => 0,
        };
        for stranger in 0..strangers as u32 {
            self.network.at(dice.below(spread_ns), Event::Stranger(stranger));
        }
        for _ in 0..dice.below(12) {
            self.network.at(dice.below(spread_ns + 5_000_000), Event::Fault(Fault::Break));
        }
        for _ in 0..dice.below(4) {
            let thread = match dice.one_in(2) {
                true => Thread::Coordinator,
                false => Thread::Relay(dice.below(nodes.into()) as u32),
            };
            let pause = Fault::Pause(thread, dice.below(3_000_000_000));
            self.network.at(dice.below(spread_ns + 5_000_000), Event::Fault(pause));
        }
        self.dice = Some(dice);
    }

    pub(super) fn begin_stranger(&mut self, stranger: u32) {
        self.outcome.strangers += 1;
        let connection = self.network.connect(Thread::Stranger(stranger), Thread::Coordinator, false);
        self.network.after(self.network.latency_ns(false), Event::Call(connection, 0));
    }

    pub(super) fn speak_as_stranger(&mut self, stranger: u32, connection: u32) {
        let Some(mut dice) = self.dice.clone().map(|mut dice| Dice::of(dice.roll(), 82, stranger.into())) else {
            return;
        };
        let rank = dice.below(self.coming.ranks.into()) as u32;
        let other = Ticket { secret: [8; 32], ..self.ticket.clone() };
        let nonce = self.nonce();
        let (_, hello) = RankProof::start_as(Caller::Rank, &other, rank, nonce);
        match dice.below(5) {
            0 => {} // It says nothing.
            1 => {
                let noise: Vec<u8> = (0..dice.below(500)).map(|_| dice.roll() as u8).collect();
                self.network.send(connection, 0, &noise);
            }
            2 => {
                self.network.send(connection, 0, &hello[..20]);
                self.network.close(connection, 0);
            }
            // It knows all but the secret.
            3 => self.network.send(connection, 0, &hello),
            _ => {
                self.network.send(connection, 0, &hello);
                self.network.send(connection, 0, &[1; 32]);
            }
        }
    }

    pub(super) fn happen(&mut self, fault: Fault) {
        match fault {
            Fault::Break => self.break_one(),
            Fault::Pause(thread, pause_ns) => {
                let until_ns = self.network.now_ns() + pause_ns;
                let Some(server) = self.serving(thread) else { return };
                server.paused_until_ns = server.paused_until_ns.max(until_ns);
                self.outcome.pauses += 1;
            }
            Fault::Kill(rank) => self.kill(rank),
        }
    }

    /// A connection that leads to the coordinator and is not let in breaks, for both ends.
    pub(super) fn break_one(&mut self) {
        let is_such = |rank: &&Rank| matches!(rank.step, Step::Greeted(_) | Step::Proven(_)) && !rank.through_relay;
        let such: Vec<u32> = self.ranks.iter().filter(is_such).filter_map(|rank| rank.connection).collect();
        let Some(dice) = self.dice.as_mut().filter(|_| !such.is_empty()) else { return };
        let connection = *dice.pick(&such);
        self.outcome.broken += 1;
        for end in [0, 1] {
            self.network.connections[connection as usize].ended[end] = true;
            self.tell(connection, end);
        }
    }

    pub(super) fn lose(&mut self, rank: u32) {
        self.outcome.lost = Some(rank);
        self.over += 1;
        self.ranks[rank as usize].step = Step::Lost;
    }

    /// Its process ends, with the threads in it, and nothing that was not sent is.
    pub(super) fn kill(&mut self, rank: u32) {
        if self.ranks[rank as usize].step.is_over() {
            return;
        }
        self.had_left = matches!(self.ranks[rank as usize].step, Step::Left);
        self.lose(rank);
        self.ranks[rank as usize].wait += 1;
        self.drop_connection(rank);
        let node = self.shape.node_of(rank);
        if let Some(relay) = self.relays.get_mut(&node).filter(|relay| relay.leader == rank && !relay.serving.has_ended)
        {
            let ends = relay.be_killed();
            ends.into_iter().for_each(|(connection, end)| self.network.close(connection, end));
        }
        // Those that wait for it to be let in wait at its listener.
        let of_node = self.shape.ranks_of(node).filter(|other| *other != rank && self.leader_of(rank) == rank);
        let waiting: Vec<u32> = of_node
            .filter(|other| matches!(self.ranks[*other as usize].step, Step::Behind))
            .filter_map(|other| self.ranks[other as usize].connection)
            .collect();
        waiting.into_iter().for_each(|connection| self.network.close(connection, 1));
        if rank == 0 {
            self.end_coordinator();
        }
    }
}
