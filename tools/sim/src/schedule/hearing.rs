//! Who is told of what happens within a node: by eventcounts in its memory, and where nodes have routers by descriptors.

use longarm_client::RestOn;

use super::Scheduler;
use crate::job;
use crate::network::{self, Event};
use crate::routed::Router;
use crate::trace::{What, Who};

impl Scheduler {
    /// Wakes the ranks of a node whose eventcounts were notified.
    pub fn hear_eventcounts(&mut self, node: u32) {
        let ranks = self.shape.ranks_of(node);
        for rank in ranks.clone() {
            let Some(state) = self.ranks.get_mut(rank as usize) else { return };
            let (segment, local) = (state.client.segment(), rank - ranks.start);
            let mail = segment.eventcount(local).sequence();
            let rests_on_mail = matches!(state.resting, Some((RestOn::Mail, _)));
            if std::mem::replace(&mut state.mail_seen, mail) != mail && !rests_on_mail && !state.dead {
                let after_ns = 1_000 + self.dice.below(30_000);
                network::with(|network| network.after(after_ns, Event::Attend(rank)));
            }
            let Some((on, seen)) = state.resting else { continue };
            let notified = match on {
                RestOn::Links => continue,
                RestOn::Mail => segment.eventcount(local).sequence(),
                RestOn::Windows => segment.window_eventcount(local).sequence(),
            };
            if notified == seen || state.dead {
                continue;
            }
            state.resting = None;
            let after_ns = 50 + self.dice.below(400);
            self.useful_ns = network::now_ns();
            network::with(|network| {
                network.note(What::Wakeup, Who::Rank(rank), 0);
                network.after(after_ns, Event::Wake(rank, state.ticket));
            });
        }
    }

    pub(super) fn hear_all(&mut self, node: u32) {
        self.hear_eventcounts(node);
        self.hear_descriptors(node);
    }

    /// Where nodes have routers: wakes the server and the ranks of a node whose descriptors have something to tell.
    pub(super) fn hear_descriptors(&mut self, node: u32) {
        if !self.shape.plan.routed {
            return;
        }
        if job::with_node(node, |node| node.hears()) {
            job::schedule_turn(node, 200 + self.dice.below(300));
        }
        for rank in job::with_node(node, |node| node.router.as_ref().map(Router::told)).into_iter().flatten() {
            let routed =
                self.ranks.get(rank as usize).filter(|state| !state.dead).and_then(|state| state.routed.as_ref());
            if routed.is_some_and(|routed| routed.hears()) {
                self.tell_rank(rank);
            }
        }
    }
}
