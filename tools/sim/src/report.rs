//! What people and programs read of some runs.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::fault::{FAULTS, Fault};
use crate::run::{Outcome, by_kind};

/// The sum of some runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    seeds: u64,
    first_seed: Option<u64>,
    ranks: u32,
    counts: Vec<u64>,
    lost: u64,
    values_lost: u64,
    fates_unknown: u64,
    faults: [u64; FAULTS],
    virtual_ns: u64,
    longest_ns: u64,
    events: u64,
    deaths: u64,
    hash: u64,
}

#[derive(Serialize)]
struct Json {
    first_seed: u64,
    seeds: u64,
    ranks: u32,
    operations: u64,
    lost: u64,
    values_lost: u64,
    fates_unknown: u64,
    by_kind: std::collections::BTreeMap<&'static str, u64>,
    faults: std::collections::BTreeMap<&'static str, u64>,
    deaths: u64,
    events: u64,
    virtual_ms: u64,
    wall_ms: u64,
    trace_hash: String,
}

impl Report {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.first_seed = Some(self.first_seed.map_or(outcome.plan.seed, |seed| seed.min(outcome.plan.seed)));
        self.ranks = self.ranks.max(outcome.plan.ranks);
        self.counts.resize(outcome.counts.len(), 0);
        self.counts.iter_mut().zip(&outcome.counts).for_each(|(sum, count)| *sum += count);
        self.faults.iter_mut().zip(&outcome.faults).for_each(|(sum, count)| *sum += count);
        self.lost += outcome.lost;
        self.values_lost += outcome.values_lost;
        self.fates_unknown += outcome.fates_unknown;
        self.virtual_ns += outcome.virtual_ns;
        self.longest_ns = self.longest_ns.max(outcome.virtual_ns);
        self.events += outcome.events;
        self.deaths += u64::from(outcome.deaths);
        // In any order of the runs the same.
        self.hash = self.hash.wrapping_add(outcome.hash);
    }

    /// Simulated time of the run that took most.
    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Operations that were checked.
    pub fn operations(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many runs there were.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// How many kinds of fault happened.
    pub fn fault_kinds(&self) -> usize {
        self.faults.iter().filter(|count| **count > 0).count()
    }

    fn fault_counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Fault::ALL.iter().map(|fault| fault.name()).zip(self.faults).filter(|(_, count)| *count > 0)
    }

    /// As JSON.
    pub fn json(&self, wall_ms: u64) -> String {
        let json = Json {
            first_seed: self.first_seed.unwrap_or(0),
            seeds: self.seeds,
            ranks: self.ranks,
            operations: self.operations(),
            lost: self.lost,
            values_lost: self.values_lost,
            fates_unknown: self.fates_unknown,
            by_kind: by_kind(&self.counts).collect(),
            faults: self.fault_counts().collect(),
            deaths: self.deaths,
            events: self.events,
            virtual_ms: self.virtual_ns / 1_000_000,
            wall_ms,
            trace_hash: format!("{:016x}", self.hash),
        };
        serde_json::to_string_pretty(&json).expect("numbers and names")
    }

    /// As tables.
    pub fn text(&self, wall_ms: u64) -> String {
        let mut text = String::new();
        let operations = self.operations();
        let rate = operations as f64 / (wall_ms.max(1) as f64 / 1000.0);
        let mut whole = table();
        for (name, value) in [
            ("seeds", format!("{}, from {}", self.seeds, self.first_seed.unwrap_or(0))),
            ("ranks", self.ranks.to_string()),
            ("operations checked", operations.to_string()),
            ("operations that a death or a broken link ended", self.lost.to_string()),
            ("old values of device updates that a broken link took", self.values_lost.to_string()),
            ("device updates that may have been done or not", self.fates_unknown.to_string()),
            ("ranks killed", self.deaths.to_string()),
            ("events", self.events.to_string()),
            ("simulated time", format!("{:.3} s", self.virtual_ns as f64 / 1e9)),
            ("wall time", format!("{:.1} s, {rate:.0} operations/s", wall_ms as f64 / 1000.0)),
            ("trace hash", format!("{:016x}", self.hash)),
        ] {
            whole.add_row([name.to_owned(), value]);
        }
        let _ = writeln!(text, "{whole}");
        let counts: Vec<(&str, u64)> = by_kind(&self.counts).collect();
        let faults: Vec<(&str, u64)> = self.fault_counts().collect();
        let mut kinds = table();
        for row in 0..counts.len().max(faults.len()) {
            let pair = |list: &[(&str, u64)]| {
                list.get(row)
                    .map_or((String::new(), String::new()), |(name, count)| ((*name).to_owned(), count.to_string()))
            };
            let ((kind, count), (fault, times)) = (pair(&counts), pair(&faults));
            kinds.add_row([kind, count, fault, times]);
        }
        kinds.set_header(["operation", "checked", "fault", "injected"]);
        for column in [1, 3] {
            if let Some(column) = kinds.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let _ = write!(text, "\n{kinds}");
        text
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}
