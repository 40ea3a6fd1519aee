//! Where the ranks stand, for the watchdog and for `longarm ps`.

use std::collections::BTreeSet;

use super::*;

impl Coordinator {
    /// Asks all ranks what they wait for, unless that is under way.
    pub(super) fn ask_ranks(&mut self, now: Instant) {
        let Phase::Met { rendezvous, .. } = &mut self.phase else {
            // The time that they may take to come is another one.
            self.watchdog = Watchdog::new(self.settings.watchdog_s, now);
            return;
        };
        let ranks = rendezvous.present();
        if let Some(inquiry) = self.watchdog.ask(ranks.iter().copied(), now) {
            rendezvous.inquire(&ranks, inquiry);
        }
    }

    /// Collects the answers, and uses them once they are complete.
    pub(super) fn look_at_answers(&mut self, now: Instant) {
        let Phase::Met { rendezvous, .. } = &mut self.phase else { return };
        while let Some((rank, inquiry, waits)) = rendezvous.poll_waits() {
            self.watchdog.handle_answer(rank, inquiry, waits);
        }
        let Some(answers) = self.watchdog.poll_answers(now) else { return };
        let Some(report) = self.report(&answers, now) else { return };
        // A job that is being ended stands still, and everybody knows why.
        if answers.is_routine
            && (!self.failed || self.settings.survivors_go_on)
            && let Some(headline) = self.watchdog.headline(&report)
        {
            self.effects.push_back(Effect::Say(format!("{headline}\n{}", report.render())));
        }
        let text = serde_json::to_string(&report).expect("reports have only names as keys");
        for asker in std::mem::take(&mut self.askers) {
            self.effects.push_back(Effect::Answer { asker, text: text.clone() });
        }
    }

    pub(super) fn summary(&self, now: Instant) -> Summary {
        let nodes = if let Phase::Met { layout, .. } = &self.phase { layout.plan.nodes } else { 0 };
        Summary {
            pid: self.settings.pid,
            ranks: self.settings.ticket.size,
            nodes,
            hosts: self.hosts(),
            seconds: now.saturating_duration_since(self.since).as_secs_f64(),
            command: self.settings.command.clone(),
        }
    }

    /// On how many hosts the ranks are, if there are several. One may be several machines, which share no memory.
    fn hosts(&self) -> Option<u32> {
        let Phase::Met { arrivals, .. } = &self.phase else { return None };
        let hosts: BTreeSet<&str> = arrivals.iter().map(|arrival| arrival.host.as_str()).collect();
        Some(hosts.len() as u32).filter(|hosts| *hosts > 1)
    }

    /// Who has come and waits for whom, as long as not all have.
    pub(super) fn report_before_start(&self, now: Instant) -> Option<Report> {
        let Phase::Gathering { arrivals, .. } = &self.phase else { return None };
        let first_missing = arrivals.iter().position(Option::is_none).unwrap_or_default() as u32;
        let waited_ms = now.saturating_duration_since(self.since).as_millis() as u64;
        let ranks = (0..).zip(arrivals).map(|(rank, arrival)| {
            let wait = Wait { call: "init".to_owned(), whom: Whom::Rank(first_missing), waited_ms };
            let pid = arrival.as_ref().map_or(0, |(_, arrival)| arrival.pid);
            let (state, waits) = match arrival {
                Some(_) => (State::Waiting, vec![wait]),
                None => (State::Outside, Vec::new()),
            };
            RankStanding { rank, node: 0, host: None, pid, state, waits }
        });
        Some(Report { job: self.summary(now), ranks: ranks.collect() })
    }

    fn report(&self, answers: &Answers, now: Instant) -> Option<Report> {
        let Phase::Met { rendezvous, arrivals, layout, .. } = &self.phase else { return None };
        let (home, hosts) = (layout.plan.machine_of_node.first(), self.hosts());
        let ranks = (0..).zip(&layout.plan.node_of_rank).map(|(rank, node)| {
            let pid = arrivals[rank as usize].pid;
            let waits = answers.waits.get(&rank).cloned().unwrap_or_default();
            let is_here = layout.plan.machine_of_node.get(*node as usize) == home;
            let state = match rendezvous.membership(rank) {
                Membership::Ended => State::Ended,
                Membership::Outside => State::Outside,
                Membership::Inside | Membership::Finished if answers.silent.contains(&rank) => {
                    if is_here && (self.settings.is_stopped)(pid) { State::Stopped } else { State::Silent }
                }
                Membership::Finished => State::Finished,
                Membership::Inside if waits.is_empty() => State::Computing,
                Membership::Inside => State::Waiting,
            };
            let host = hosts.map(|_| arrivals[rank as usize].host.clone());
            RankStanding { rank, node: *node, host, pid, state, waits }
        });
        Some(Report { job: self.summary(now), ranks: ranks.collect() })
    }
}
