//! The loop's part in finding out where the ranks stand: for the watchdog, and for `longarm ps`.

use std::time::Instant;

use tokio::sync::oneshot;

use super::{Site, Supervisor};
use crate::run::questions::Question;
use longarm_control::rendezvous::Membership;
use longarm_control::standing::{RankStanding, Report, State, Summary};
use longarm_control::watchdog::Answers;

/// Letters of the program's command line that are told.
const COMMAND_LETTERS_MAX: usize = 200;

impl Supervisor<'_> {
    /// Somebody wants to know something.
    pub(super) fn handle_question(&mut self, question: Question, now: Instant) {
        if question.is_report {
            self.askers.push(question.answer);
            self.ask_ranks(now);
        } else {
            let summary = serde_json::to_string(&self.summary(now));
            answer(question.answer, summary);
        }
    }

    /// Asks all ranks what they wait for, unless that is under way.
    pub(super) fn ask_ranks(&mut self, now: Instant) {
        let ranks = self.rendezvous.present();
        if let Some(inquiry) = self.watchdog.ask(ranks.iter().copied(), now) {
            self.rendezvous.inquire(&ranks, inquiry);
        }
    }

    /// Collects the answers, and uses them once they are complete.
    pub(super) fn look_at_answers(&mut self, now: Instant) {
        while let Some((rank, inquiry, waits)) = self.rendezvous.poll_waits() {
            self.watchdog.handle_answer(rank, inquiry, waits);
        }
        let Some(answers) = self.watchdog.poll_answers(now) else { return };
        let report = self.report(&answers, now);
        // A job that is being ended stands still, and everybody knows why.
        if answers.is_routine
            && self.ending.deadline().is_none()
            && let Some(headline) = self.watchdog.headline(&report)
        {
            self.console.say(&format!("{headline}\n{}", report.render()));
        }
        for asker in std::mem::take(&mut self.askers) {
            answer(asker, serde_json::to_string(&report));
        }
    }

    fn summary(&self, now: Instant) -> Summary {
        let words: Vec<_> = self.arguments.command.iter().map(|word| word.to_string_lossy()).collect();
        Summary {
            pid: std::process::id(),
            ranks: self.plan.ranks(),
            nodes: self.plan.nodes,
            hosts: Some(self.machines.len() as u32).filter(|hosts| *hosts > 1),
            seconds: now.saturating_duration_since(self.since).as_secs_f64(),
            command: words.join(" ").chars().take(COMMAND_LETTERS_MAX).collect(),
        }
    }

    fn report(&self, answers: &Answers, now: Instant) -> Report {
        let ranks = (0..).zip(&self.plan.node_of_rank).map(|(rank, node)| {
            let pid = self.ranks[rank as usize].pid;
            let waits = answers.waits.get(&rank).cloned().unwrap_or_default();
            let state = match self.rendezvous.membership(rank) {
                Membership::Ended => State::Ended,
                Membership::Outside => State::Outside,
                Membership::Inside | Membership::Finished if answers.silent.contains(&rank) => self.silence(rank),
                Membership::Finished => State::Finished,
                Membership::Inside if waits.is_empty() => State::Computing,
                Membership::Inside => State::Waiting,
            };
            RankStanding { rank, node: *node, host: self.host_of(rank).map(str::to_owned), pid, state, waits }
        });
        Report { job: self.summary(now), ranks: ranks.collect() }
    }

    /// Why a rank does not answer.
    fn silence(&self, rank: u32) -> State {
        let is_stopped = match &self.sites[self.plan.machine_of(rank) as usize] {
            Site::Here(here) => here.is_stopped(rank),
            // Its agent was asked when the rank was.
            Site::There { .. } => self.stopped.contains(&rank),
        };
        if is_stopped { State::Stopped } else { State::Silent }
    }
}

fn answer(asker: oneshot::Sender<String>, report: serde_json::Result<String>) {
    // Who does not wait any more gets no answer.
    let _ = asker.send(report.expect("reports have only names as keys"));
}
