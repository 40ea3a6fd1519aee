//! Tables that people read.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::bars::{BARS, Bar, Rule};
use crate::line::{Key, LIMIT, LONGARM, Line};

/// What one peer measured, each key once, whatever the number of rounds.
pub(crate) fn merge(lines: &[Line], peer: &str) -> Vec<Line> {
    let mut merged: Vec<Line> = Vec::new();
    for line in lines.iter().filter(|line| line.peer == peer) {
        if !merged.iter().any(|known| known.is(peer, line.key())) {
            let rounds: Vec<&Line> = lines.iter().filter(|other| other.is(peer, line.key())).collect();
            merged.extend(Line::merged(&rounds));
        }
    }
    merged
}

/// The rows with a bar, then everything that was measured.
pub(crate) fn tables(ours: &[Line], limits: &[Line], markdown: bool) -> String {
    format!("{}\n\n{}", bar_table(ours, limits, markdown), full_table(ours, limits, markdown))
}

fn empty(header: &[&str], markdown: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(if markdown { presets::ASCII_MARKDOWN } else { presets::UTF8_FULL_CONDENSED });
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

fn numbers_to_the_right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn find<'a>(lines: &'a [Line], peer: &str, key: Key<'_>) -> Option<&'a Line> {
    lines.iter().find(|line| line.is(peer, key))
}

fn bar_table(ours: &[Line], limits: &[Line], markdown: bool) -> Table {
    let header = ["what", "bar", "longarm", "best batch", "limit", "ratio", "ratio of bests", ""];
    let mut table = empty(&header, markdown);
    for Bar { what, ours: key, limit, rule } in &BARS {
        let limit = limit.and_then(|key| find(limits, LIMIT, key));
        let Some(line) = find(ours, LONGARM, *key) else {
            table.add_row([what, bar_text(*rule).as_str(), "not measured"]);
            continue;
        };
        let verdict = match rule.passed(line, limit) {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "no limit",
        };
        let ratio = |of: &dyn Fn(&Line) -> Line| rule.ratio(&of(line), limit.map(of).as_ref());
        table.add_row([
            (*what).to_owned(),
            bar_text(*rule),
            value(*rule, line),
            value(*rule, &best(line)),
            limit.map_or_else(String::new, |limit| value(*rule, limit)),
            ratio(&Line::clone).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            ratio(&best).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            verdict.to_owned(),
        ]);
    }
    numbers_to_the_right(&mut table, 1);
    table
}

/// The quickest batch in place of the median.
fn best(line: &Line) -> Line {
    let (lat_us, bytes) = (line.lat_min_us, line.bytes as f64);
    Line { lat_us, mbps: bytes / lat_us, rate: 1e6 / lat_us, ..line.clone() }
}

fn bar_text(rule: Rule) -> String {
    match rule {
        Rule::MicrosecondsMax(most) => format!("≤ {}", time(most)),
        Rule::TimesMax(most) => format!("≤ {most} × limit"),
        Rule::ShareMin(least) => format!("≥ {least} × limit"),
        Rule::CpuPercentMax(_) => "0 % CPU".to_owned(),
    }
}

fn value(rule: Rule, line: &Line) -> String {
    match (rule, line.cpu_percent) {
        (Rule::CpuPercentMax(_), Some(percent)) => format!("{percent:.2} %"),
        (Rule::ShareMin(_), _) => bandwidth(line),
        _ => time(line.lat_us),
    }
}

fn full_table(ours: &[Line], limits: &[Line], markdown: bool) -> Table {
    let header = ["transport", "op", "bytes", "longarm", "best batch", "p99", "MB/s", "limit", "ratio", "bests"];
    let mut table = empty(&header, markdown);
    for line in ours {
        let limit = find(limits, LIMIT, line.key());
        table.add_row([
            line.transport.clone(),
            line.op.clone(),
            line.bytes.to_string(),
            line.cpu_percent.map_or_else(|| time(line.lat_us), |percent| format!("{percent:.2} % CPU")),
            time(line.lat_min_us),
            line.p99_us.map_or_else(String::new, time),
            if line.bytes > 0 { bandwidth(line) } else { String::new() },
            limit.map_or_else(String::new, |limit| time(limit.lat_us)),
            limit.map_or_else(String::new, |limit| format!("{:.2}", line.lat_us / limit.lat_us)),
            limit.map_or_else(String::new, |limit| format!("{:.2}", line.lat_min_us / limit.lat_min_us)),
        ]);
    }
    numbers_to_the_right(&mut table, 2);
    table
}

/// The limits alone.
pub(crate) fn limit_table(limits: &[Line], markdown: bool) -> String {
    let mut table = empty(&["transport", "op", "bytes", "limit", "best batch", "p99", "MB/s"], markdown);
    for line in limits {
        table.add_row([
            line.transport.clone(),
            line.op.clone(),
            line.bytes.to_string(),
            time(line.lat_us),
            time(line.lat_min_us),
            line.p99_us.map_or_else(String::new, time),
            if line.bytes > 0 { bandwidth(line) } else { String::new() },
        ]);
    }
    numbers_to_the_right(&mut table, 2);
    table.to_string()
}

pub(crate) fn bandwidth(line: &Line) -> String {
    if line.mbps < 10.0 { format!("{:.2} MB/s", line.mbps) } else { format!("{:.0} MB/s", line.mbps) }
}

/// A time in the unit that suits it.
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        us if us < 1.0 => format!("{:.1} ns", us * 1e3),
        us if us < 1e3 => format!("{us:.2} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::sample::Sample;

    fn line(peer: &str, op: &str, bytes: u64, seconds: f64) -> Line {
        let sample = Sample { seconds, seconds_min: seconds, seconds_p99: None, seconds_p999: None };
        Line::new(peer, Key { transport: "shm", op, bytes }, &sample)
    }

    #[test]
    fn a_row_over_its_bar_says_fail_and_one_below_says_pass() {
        let slow = [line(LONGARM, "put", 8, 31e-9), line(LONGARM, "get", 8, 29e-9)];
        let text = tables(&slow, &[line(LIMIT, "store", 8, 2e-9)], false);
        let row = |what: &str| text.lines().find(|line| line.contains(what)).unwrap().to_owned();
        assert!(row("put 8 B + quiet").contains("FAIL") && row("put 8 B + quiet").contains("15.50"));
        assert!(row("get 8 B, same node").contains("pass"));
        assert!(row("put 1 MiB, same node").contains("not measured"));
    }

    #[test]
    fn each_result_is_one_row_whatever_the_number_of_rounds() {
        let lines = [line(LIMIT, "put", 8, 1e-9), line(LONGARM, "put", 8, 9e-9), line(LIMIT, "put", 8, 3e-9)];
        let merged = merge(&lines, LIMIT);
        assert_eq!(merged.len(), 1);
        assert!((merged[0].lat_us - 0.003).abs() < 1e-12);
    }

    #[test]
    fn times_have_a_unit_that_suits_them() {
        assert_eq!([0.0021, 5.0, 2500.0, 1.5e6].map(time), ["2.1 ns", "5.00 us", "2.50 ms", "1.50 s"]);
    }
}
