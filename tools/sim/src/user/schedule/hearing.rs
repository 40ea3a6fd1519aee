//! Who is told of what: by links, by eventcounts in the memory of a node, and where nodes have routers by descriptors.

use std::sync::Arc;

use longarm_client::RestOn;

use super::Scheduler;
use crate::dice::Dice;
use crate::network::{self, Event, News, Owner};
use crate::routed::RankNetwork;
use crate::trace::{What, Who};
use crate::user::job::Job;
use crate::user::machine::Machine;

impl Scheduler {
    /// Somebody's link has news.
    pub(super) fn tell(&mut self, news: Option<News>) {
        match news {
            Some(Owner::Rank(rank)) => self.tell_rank(rank),
            Some(Owner::Server(node)) => {
                let after_ns = delay_ns(&mut self.dice, (200, 300), &self.job, |machine| machine.wake_socket_ns);
                self.job.schedule_turn(node, after_ns);
            }
            Some(Owner::Stranger(_)) | None => {}
        }
    }

    pub(super) fn tell_rank(&mut self, rank: u32) {
        {
            let state = self.job.state.lock();
            let mine = &state.ranks[rank as usize];
            if mine.dead || mine.client.is_none() {
                return;
            }
        }
        if !self.wake_from_links(rank)
            && !std::mem::replace(&mut self.job.state.lock().ranks[rank as usize].help_due, true)
        {
            let after_ns = self.job.machine.map_or(500, |machine| machine.wake_socket_ns);
            network::with(|network| network.after(after_ns, Event::Help(rank)));
        }
    }

    /// Wakes the threads of a rank that rest on links. False: there are none.
    pub(super) fn wake_from_links(&mut self, rank: u32) -> bool {
        let mut state = self.job.state.lock();
        let state = &mut *state;
        let mut woken = false;
        for number in state.ranks[rank as usize].threads.iter().copied() {
            let thread = &mut state.threads[number];
            if let Some((RestOn::Links, _)) = thread.resting {
                woken = true;
                thread.resting = None;
                let after_ns = delay_ns(&mut self.dice, (100, 200), &self.job, |machine| machine.wake_socket_ns);
                network::with(|network| network.after(after_ns, Event::Wake(number as u32, thread.ticket)));
            }
        }
        woken
    }

    /// Wakes the threads of a node that rest on an eventcount which was notified.
    pub(super) fn hear_eventcounts(&mut self, node: u32) {
        let ranks = self.job.shape.ranks_of(node);
        let mut state = self.job.state.lock();
        let state = &mut *state;
        let of_node = state.ranks[ranks.start as usize..ranks.end as usize].iter().filter(|rank| !rank.dead);
        for number in of_node.flat_map(|rank| rank.threads.iter().copied()) {
            let thread = &mut state.threads[number];
            let Some((on @ (RestOn::Mail | RestOn::Windows), seen)) = thread.resting else { continue };
            if self.job.notified(&state.segments, thread.rank, on) == seen {
                continue;
            }
            thread.resting = None;
            let after_ns = delay_ns(&mut self.dice, (50, 400), &self.job, |machine| machine.wake_rank_ns);
            network::with(|network| {
                network.note(What::Wakeup, Who::Rank(thread.rank), number as u64);
                network.after(after_ns, Event::Wake(number as u32, thread.ticket));
            });
        }
    }

    pub(super) fn is_routed(&self) -> bool {
        self.job.shape.plan.routed
    }

    fn routed(&self, rank: u32) -> Option<Arc<RankNetwork>> {
        if !self.is_routed() {
            return None;
        }
        self.job.state.lock().ranks[rank as usize].routed.clone()
    }

    /// What has come over a rank's line is taken in, as who sleeps on it does.
    pub(super) fn turn_line(&self, rank: u32) {
        self.routed(rank).iter().for_each(|routed| routed.turn());
    }

    /// A rank has looked at all of its links.
    pub(super) fn note_look(&self, rank: u32) {
        self.routed(rank).iter().for_each(|routed| routed.note_look());
    }

    /// The process of a rank has ended.
    pub(super) fn cut_off(&self, rank: u32) {
        self.routed(rank).iter().for_each(|routed| routed.cut_off());
    }

    pub(super) fn hear_all(&mut self, node: u32) {
        self.hear_eventcounts(node);
        self.hear_descriptors(node);
    }

    /// Where nodes have routers: wakes the server and the ranks of a node whose descriptors have something to tell.
    pub(super) fn hear_descriptors(&mut self, node: u32) {
        if !self.is_routed() {
            return;
        }
        if self.job.nodes[node as usize].lock().hears() {
            let after_ns = delay_ns(&mut self.dice, (200, 300), &self.job, |machine| machine.wake_socket_ns);
            self.job.schedule_turn(node, after_ns);
        }
        for rank in self.job.routers[node as usize].told() {
            if self.routed(rank).is_some_and(|routed| routed.hears()) {
                self.tell_rank(rank);
            }
        }
    }
}

/// A time that a machine says, else one from some nanoseconds on in a range. Dice are thrown either way.
fn delay_ns(dice: &mut Dice, (least_ns, range_ns): (u64, u64), job: &Job, of: impl Fn(&Machine) -> u64) -> u64 {
    let diced_ns = least_ns + dice.below(range_ns);
    job.machine.as_ref().map_or(diced_ns, of)
}
