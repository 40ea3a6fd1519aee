//! Where the ranks of a running job stand: what the watchdog prints and `longarm ps` shows.

use std::collections::{BTreeMap, BTreeSet};

use crate::messages::{Wait, Whom};
use comfy_table::Cell;
use serde::{Deserialize, Serialize};

use crate::spelling;

/// A running job in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The launcher's process, by which the job is called.
    pub pid: u32,
    /// How many ranks it has.
    pub ranks: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// On how many hosts, where they are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// For how long it has run.
    pub seconds: f64,
    /// The program with its arguments.
    pub command: String,
}

/// A running job, rank by rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The job.
    pub job: Summary,
    /// Its ranks, ascending.
    pub ranks: Vec<RankStanding>,
}

/// Where a rank stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankStanding {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Its host, as the user calls it, where the job has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its process, on its host.
    pub pid: u32,
    /// What it does.
    pub state: State,
    /// The calls that its threads wait in, the longest wait first.
    pub waits: Vec<Wait>,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Some thread of it waits in a call.
    Waiting,
    /// It answers, and no thread of it waits in a call.
    Computing,
    /// It does not answer because its process is stopped.
    Stopped,
    /// It does not answer.
    Silent,
    /// It has not joined the job, or never will.
    Outside,
    /// It has finalized and waits for the others.
    Finished,
    /// It has failed, or its process is gone.
    Ended,
}

/// What makes one report another one than that before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gist {
    /// Who has waited for too long, in which call and for whom.
    stuck: BTreeSet<(u32, String, Whom)>,
    /// Who does not answer.
    silent: Vec<(u32, State)>,
}

impl Report {
    /// The wait that has lasted longest, and at which rank.
    pub fn longest_wait(&self) -> Option<(u32, &Wait)> {
        let waits = self.ranks.iter().flat_map(|rank| rank.waits.iter().map(|wait| (rank.rank, wait)));
        waits.max_by_key(|(rank, wait)| (wait.waited_ms, std::cmp::Reverse(*rank)))
    }

    /// The report without its times, and without the waits of less than `waited_ms`.
    pub fn gist(&self, waited_ms: u64) -> Gist {
        let waits = self.ranks.iter().flat_map(|rank| rank.waits.iter().map(|wait| (rank.rank, wait)));
        let stuck = waits.filter(|(_, wait)| wait.waited_ms >= waited_ms);
        let silent = self.ranks.iter().filter(|rank| matches!(rank.state, State::Silent | State::Stopped));
        Gist {
            stuck: stuck.map(|(rank, wait)| (rank, wait.call.clone(), wait.whom)).collect(),
            silent: silent.map(|rank| (rank.rank, rank.state)).collect(),
        }
    }

    /// A table of the waits, a line for each other state that ranks are in, and one of the hosts where there are several.
    pub fn render(&self) -> String {
        let mut lines = Vec::new();
        if self.longest_wait().is_some() {
            lines.push(self.render_waits());
        }
        let states = [
            (State::Computing, "computing, in no call of longarm that waits"),
            (State::Stopped, "stopped by a signal, no answer"),
            (State::Silent, "no answer"),
            (State::Outside, "not part of the job"),
            (State::Finished, "finished, waiting for the others"),
            (State::Ended, "ended"),
        ];
        for (state, meaning) in states {
            let ranks: Vec<u32> = self.ranks.iter().filter(|rank| rank.state == state).map(|rank| rank.rank).collect();
            if !ranks.is_empty() {
                lines.push(format!(" {meaning}: {}", spelling::ranks(&ranks)));
            }
        }
        lines.extend(self.render_hosts());
        lines.join("\n")
    }

    fn render_waits(&self) -> String {
        let has_hosts = self.ranks.iter().any(|rank| rank.host.is_some());
        let mut table = spelling::plain_table();
        let names =
            [Some("rank"), Some("node"), has_hosts.then_some("host"), Some("waits in"), Some("for"), Some("since")];
        table.set_header(names.into_iter().flatten());
        for rank in &self.ranks {
            for wait in &rank.waits {
                let cells = [
                    Some(rank.rank.to_string()),
                    Some(rank.node.to_string()),
                    has_hosts.then(|| rank.host.clone().unwrap_or_default()),
                    Some(wait.call.clone()),
                    Some(self.show_whom(wait.whom)),
                    Some(show_seconds(wait.waited_ms)),
                ];
                table.add_row(cells.into_iter().flatten().map(Cell::new));
            }
        }
        spelling::trimmed(&table)
    }

    /// "hosts: a (ranks 0-3), b (ranks 4-7)".
    fn render_hosts(&self) -> Option<String> {
        let mut ranks_of: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for rank in &self.ranks {
            ranks_of.entry(rank.host.as_deref()?).or_default().push(rank.rank);
        }
        let mut hosts: Vec<_> = ranks_of.into_iter().collect();
        hosts.sort_by_key(|(_, ranks)| ranks[0]);
        let hosts: Vec<String> =
            hosts.iter().map(|(host, ranks)| format!("{host} ({})", spelling::ranks(ranks))).collect();
        (!hosts.is_empty()).then(|| format!(" hosts: {}", hosts.join(", ")))
    }

    fn show_whom(&self, whom: Whom) -> String {
        match whom {
            Whom::Rank(rank) => {
                let place = self.ranks.iter().find(|other| other.rank == rank).map(|other| match &other.host {
                    Some(host) => format!(" (node {}, host {host})", other.node),
                    None => format!(" (node {})", other.node),
                });
                format!("rank {rank}{}", place.unwrap_or_default())
            }
            Whom::HolderAt(host) => format!("the holder of a mutex of rank {host}"),
            Whom::Anyone => "any rank".to_owned(),
        }
    }
}

/// "12.3 s".
pub fn show_seconds(milliseconds: u64) -> String {
    format!("{:.1} s", milliseconds as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(call: &str, whom: Whom, waited_ms: u64) -> Wait {
        Wait { call: call.to_owned(), whom, waited_ms }
    }

    fn report() -> Report {
        let job = Summary { pid: 7, ranks: 5, nodes: 2, hosts: None, seconds: 20.0, command: "program".to_owned() };
        let standing =
            |rank, state, waits| RankStanding { rank, node: rank / 3, host: None, pid: 100 + rank, state, waits };
        let ranks = vec![
            standing(0, State::Waiting, vec![wait("lock", Whom::HolderAt(1), 12_340), wait("wait", Whom::Anyone, 500)]),
            standing(1, State::Waiting, vec![wait("barrier", Whom::Rank(4), 11_000)]),
            standing(2, State::Computing, vec![]),
            standing(3, State::Computing, vec![]),
            standing(4, State::Stopped, vec![]),
        ];
        Report { job, ranks }
    }

    #[test]
    fn a_report_says_who_waits_for_whom_and_what_the_others_do() {
        let expected = "\
 rank  node  waits in  for                             since
 0     0     lock      the holder of a mutex of rank 1  12.3 s
 0     0     wait      any rank                         0.5 s
 1     0     barrier   rank 4 (node 1)                  11.0 s
 computing, in no call of longarm that waits: ranks 2-3
 stopped by a signal, no answer: rank 4";
        let squeezed = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&report().render()), squeezed(expected));
    }

    #[test]
    fn where_there_are_several_hosts_a_report_says_where_each_rank_is() {
        let mut report = report();
        for rank in &mut report.ranks {
            rank.host = Some(["z", "b"][rank.node as usize].to_owned());
        }
        let shown = report.render();
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["rank", "node", "host", "waits", "in", "for", "since"]);
        assert_eq!(lines[3], ["1", "0", "z", "barrier", "rank", "4", "(node", "1,", "host", "b)", "11.0", "s"]);
        assert_eq!(shown.lines().last(), Some(" hosts: z (ranks 0-2), b (ranks 3-4)"));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn time_alone_makes_no_new_report_but_another_place_or_rank_does() {
        let (before, mut after) = (report(), report());
        after.ranks[1].waits[0].waited_ms += 5000;
        after.ranks[0].waits[1].waited_ms += 100;
        assert_eq!(before.gist(10_000), after.gist(10_000));
        after.ranks[0].waits[1].waited_ms += 10_000;
        assert_ne!(before.gist(10_000), after.gist(10_000), "a second thread has waited too long");
        let mut after = report();
        after.ranks[4].state = State::Computing;
        assert_ne!(before.gist(10_000), after.gist(10_000), "it goes on");
        let mut after = report();
        after.ranks[2].state = State::Waiting;
        assert_eq!(before.gist(10_000), after.gist(10_000), "who computes and who waits a little changes all the time");
    }

    #[test]
    fn the_longest_wait_is_found_wherever_it_is() {
        let (rank, longest) = report().longest_wait().map(|(rank, wait)| (rank, wait.waited_ms)).unwrap();
        assert_eq!((rank, longest), (0, 12_340));
    }

    #[test]
    fn a_report_comes_back_from_its_json_as_it_was() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
        assert!(text.contains(r#"{"call":"lock","whom":{"holder_at":1},"waited_ms":12340}"#), "{text}");
        assert!(!text.contains("host\""), "{text}");
    }
}
