//! What the engine does when ranks die.

use longarm_proto::Rank;
use longarm_shm::{Popped, Producer};

use super::{Engine, Peer};
use crate::connection::Ended;

impl Engine {
    /// A rank of the job died. Its sessions end, those with a link when what it sent has been taken in; its mutexes go to
    /// others, see `inherit`. If it was one of this node, its mail is thrown away from now on: in its inbox it would keep
    /// the cells that others need.
    pub fn note_death(&mut self, rank: Rank) {
        self.shared.note_death(rank);
        self.forget_lost_of(rank);
        if let Some(local) = self.shared.local_of_rank.get(&rank)
            && !self.dead.contains(local)
        {
            self.dead.push(*local);
            self.shared.node.take_over(*local);
        }
    }

    pub(super) fn empty_inboxes_of_the_dead(&self) -> bool {
        let mut progress = false;
        let node = &self.shared.node;
        let dead = |producer| matches!(producer, Producer::Local(local) if self.dead.contains(&local));
        for local in &self.dead {
            loop {
                match node.try_pop(*local, &mut |_, _| {}) {
                    Popped::Taken => progress = true,
                    // It died, or another did, in the middle of something.
                    Popped::Broken if node.take_over(*local) || node.mend(*local, dead) => progress = true,
                    Popped::Empty | Popped::Broken => break,
                }
            }
        }
        progress
    }

    /// Hands on the mutexes of those dead ranks from whom nothing comes any more.
    pub(super) fn settle_deaths(&mut self, now_ms: u64) -> bool {
        if !self.shared.mutexes.get_mut().deaths.is_settling() {
            return false;
        }
        let sessions_of = &self.sessions_of;
        let connected = |rank| sessions_of.contains_key(&rank);
        let gone = self.shared.mutexes.get_mut().deaths.settle(now_ms, connected);
        let of_gone = |peer: &Peer| gone.contains(&peer.connection.peer.rank);
        let cut: Vec<usize> = self.peers.iter().filter(|(_, peer)| of_gone(peer)).map(|(number, _)| number).collect();
        cut.into_iter().for_each(|number| self.end_peer(number, &Ended::Dead));
        if !gone.is_empty() {
            self.shared.hand_on_mutexes();
        }
        !gone.is_empty()
    }
}
