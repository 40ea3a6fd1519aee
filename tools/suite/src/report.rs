//! What came out, for people, for programs and for the docs.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};
use serde::Serialize;

use crate::list::Program;
use crate::verdict::Verdict;

/// One run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which program.
    pub name: String,
    /// On how many ranks.
    pub ranks: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// What it was worth.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
    /// The end of its output, if it failed.
    pub last_lines: Vec<String>,
}

/// All runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order they were made.
    pub outcomes: Vec<Outcome>,
    /// How long all took.
    pub wall: Duration,
}

/// One run, as JSON.
#[derive(Serialize)]
struct OutcomeRecord<'a> {
    program: &'a str,
    ranks: u32,
    nodes: u32,
    verdict: &'static str,
    detail: String,
    seconds: f64,
    last_lines: &'a [String],
}

impl Outcome {
    /// A run that took no time.
    pub fn new(program: &Program, ranks: u32, nodes: u32, verdict: Verdict) -> Outcome {
        let name = program.name.clone();
        Outcome { name, ranks, nodes, verdict, took: Duration::ZERO, last_lines: Vec::new() }
    }

    /// What is shown as soon as it is over.
    pub fn line(&self) -> String {
        let Outcome { name, ranks, nodes, verdict, took, last_lines } = self;
        let seconds = took.as_secs_f64();
        let mut line =
            format!("{:9} {name:28} {ranks} ranks, {nodes} nodes {seconds:7.1} s  {verdict}", verdict.word());
        for last in last_lines {
            line.push_str("\n        | ");
            line.push_str(last);
        }
        line.trim_end().to_owned()
    }

    fn layout(&self) -> (u32, u32) {
        (self.nodes, self.ranks)
    }
}

impl Report {
    /// Whether nothing failed.
    pub fn is_good(&self) -> bool {
        self.outcomes.iter().all(|outcome| !outcome.verdict.is_failure())
    }

    /// How many passed, failed and were skipped, in words.
    pub fn summary(&self) -> String {
        let count = |word: &str| self.outcomes.iter().filter(|outcome| outcome.verdict.word() == word).count();
        let (passed, failed, skipped, wrong) = (count("pass"), count("FAIL"), count("skipped"), count("own fault"));
        let standing = match count("MPI's fault") {
            0 => String::new(),
            standing => format!("{standing} done and standing in MPI_Finalize, "),
        };
        let (minutes, seconds) = (self.wall.as_secs() / 60, self.wall.as_secs() % 60);
        format!(
            "{passed} runs passed, {failed} failed, {wrong} failed by the program's own fault, {standing}{skipped} skipped, \
             in {minutes} min {seconds} s"
        )
    }

    /// A row a program, a column a layout, and below why what did not pass did not.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.remove_style(TableComponent::HorizontalLines).remove_style(TableComponent::MiddleIntersections);
        table.set_header(self.header());
        for row in self.rows() {
            let cells = row.into_iter().enumerate();
            table.add_row(cells.map(|(column, text)| {
                let side = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
                Cell::new(text).set_alignment(side)
            }));
        }
        let mut text = format!("{table}\n");
        for (reason, runs) in self.reasons() {
            text.push_str(&format!("{reason}\n    {runs}\n"));
        }
        text + &self.summary() + "\n"
    }

    /// The same as a page for the docs.
    pub fn markdown(&self) -> String {
        let header = self.header();
        let mut text = format!("{}\n\n| {} |\n", self.summary(), header.join(" | "));
        text.push_str(&format!("|---{}|\n", "|---:".repeat(header.len() - 1)));
        for row in self.rows() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        let reasons = self.reasons();
        if !reasons.is_empty() {
            text.push('\n');
        }
        for (reason, runs) in reasons {
            text.push_str(&format!("- {}: {runs}\n", reason.replace('|', "\\|")));
        }
        text
    }

    /// The same for programs, one object a run.
    pub fn json(&self) -> String {
        let records: Vec<OutcomeRecord> = self
            .outcomes
            .iter()
            .map(|outcome| OutcomeRecord {
                program: &outcome.name,
                ranks: outcome.ranks,
                nodes: outcome.nodes,
                verdict: outcome.verdict.word(),
                detail: outcome.verdict.to_string(),
                seconds: outcome.took.as_secs_f64(),
                last_lines: &outcome.last_lines,
            })
            .collect();
        serde_json::to_string_pretty(&records).expect("strings and numbers can always be written") + "\n"
    }

    /// The layouts that occur.
    fn layouts(&self) -> Vec<(u32, u32)> {
        let mut layouts: Vec<(u32, u32)> = self.outcomes.iter().map(Outcome::layout).collect();
        layouts.sort_unstable();
        layouts.dedup();
        layouts
    }

    fn header(&self) -> Vec<String> {
        let columns = self.layouts().into_iter().map(|(nodes, ranks)| match nodes {
            1 => format!("{ranks} ranks"),
            _ => format!("{ranks} on {nodes} nodes"),
        });
        std::iter::once("program".to_owned()).chain(columns).collect()
    }

    /// A program's seconds in every layout where it passed, a word where it did not, nothing where it was not run.
    fn rows(&self) -> Vec<Vec<String>> {
        let mut names: Vec<&str> = Vec::new();
        let mut cells: BTreeMap<(&str, (u32, u32)), String> = BTreeMap::new();
        for outcome in &self.outcomes {
            if !names.contains(&outcome.name.as_str()) {
                names.push(&outcome.name);
            }
            let cell = match &outcome.verdict {
                Verdict::Passed => format!("{:.1} s", outcome.took.as_secs_f64()),
                verdict => verdict.word().to_owned(),
            };
            cells.insert((&outcome.name, outcome.layout()), cell);
        }
        let layouts = self.layouts();
        let row = |name: &&str| {
            let row = layouts.iter().map(|layout| cells.get(&(*name, *layout)).cloned().unwrap_or_default());
            std::iter::once((*name).to_owned()).chain(row).collect()
        };
        names.iter().map(row).collect()
    }

    /// Every failure and every skip, those alike together: why, and which.
    fn reasons(&self) -> Vec<(String, String)> {
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.verdict != Verdict::Passed) {
            let reason = format!("{} {}: {}", outcome.verdict.word(), outcome.name, outcome.verdict);
            let run = format!("{} on {}", outcome.ranks, outcome.nodes);
            match reasons.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, runs)) => runs.push(run),
                None => reasons.push((reason, vec![run])),
            }
        }
        reasons.into_iter().map(|(reason, runs)| (reason, format!("ranks on nodes: {}", runs.join(", ")))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list;
    use crate::verdict::Ending;

    fn report() -> Report {
        let programs = list::parse("one a\ntwo a\n").unwrap();
        let mut outcomes = vec![
            Outcome::new(&programs[0], 2, 1, Verdict::Passed),
            Outcome::new(&programs[0], 2, 2, Verdict::Ended(Ending::Status(3))),
            Outcome::new(&programs[1], 2, 1, Verdict::Skipped("four ranks".to_owned())),
            Outcome::new(&programs[1], 2, 2, Verdict::Skipped("four ranks".to_owned())),
        ];
        outcomes[0].took = Duration::from_millis(1500);
        Report { outcomes, wall: Duration::from_secs(61) }
    }

    #[test]
    fn the_table_has_a_column_a_layout_and_names_what_did_not_pass() {
        let text = report().table();
        assert!(text.contains("2 on 2 nodes"), "{text}");
        assert!(
            text.lines().any(|line| line.contains("one") && line.contains("1.5 s") && line.contains("FAIL")),
            "{text}"
        );
        assert!(text.contains("FAIL one: exit status 3\n    ranks on nodes: 2 on 2"), "{text}");
        assert!(text.contains("skipped two: four ranks\n    ranks on nodes: 2 on 1, 2 on 2"), "{text}");
        assert!(text.ends_with("1 failed, 0 failed by the program's own fault, 2 skipped, in 1 min 1 s\n"), "{text}");
        assert!(!report().is_good());
    }

    #[test]
    fn the_page_of_markdown_holds_the_same() {
        let text = report().markdown();
        assert!(
            text.contains("| program | 2 ranks | 2 on 2 nodes |\n|---|---:|---:|\n| one | 1.5 s | FAIL |"),
            "{text}"
        );
        assert!(text.contains("- skipped two: four ranks: ranks on nodes: 2 on 1, 2 on 2"), "{text}");
    }

    #[test]
    fn programs_can_read_the_outcome() {
        let value: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(value[1]["verdict"], "FAIL");
        assert_eq!(value[1]["detail"], "exit status 3");
        assert_eq!(value[0]["seconds"], 1.5);
    }

    #[test]
    fn a_failed_run_is_shown_with_the_end_of_its_output() {
        let mut outcome = report().outcomes[1].clone();
        outcome.last_lines = vec!["boom".to_owned()];
        assert!(outcome.line().starts_with("FAIL      one"), "{}", outcome.line());
        assert!(outcome.line().ends_with("exit status 3\n        | boom"), "{}", outcome.line());
    }
}
