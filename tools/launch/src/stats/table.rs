//! The report as tables that people read.

use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};

use super::{MATRIX_RANKS_MAX, Matrix, Report};
use crate::units;

/// More columns than this are not readable; the files hold all.
const COLUMNS_MAX: usize = 32;

/// Both tables, ready to print.
pub fn render(report: &Report) -> String {
    if report.flows.is_empty() {
        return format!("longarm: no traffic was counted\n{}", network(report));
    }
    let (ranks, nodes, time_s) = (report.ranks, report.nodes, report.time_s);
    let matrix = report.matrix(MATRIX_RANKS_MAX);
    format!(
        "longarm: {ranks} ranks on {nodes} {}, {time_s:.3} s from start to finalize\n{}\n{}{}",
        if nodes == 1 { "node" } else { "nodes" },
        kinds(report),
        if matrix.bytes.len() > COLUMNS_MAX { String::new() } else { traffic(&matrix) },
        network(report)
    )
}

/// What the ranks' devices did; nothing where no network counts.
fn network(report: &Report) -> String {
    if report.network.is_empty() {
        return String::new();
    }
    let mut table = ruled_table();
    table.set_header([Cell::new("network devices"), right("all ranks"), right("most of a rank")]);
    for counted in &report.network {
        let shown =
            |count: u64| right(if counted.name.starts_with("bytes") { units::bytes(count) } else { count.to_string() });
        table.add_row([Cell::new(&counted.name), shown(counted.total), shown(counted.most)]);
    }
    format!("\n{table}\n")
}

fn kinds(report: &Report) -> String {
    let mut table = ruled_table();
    let counted = ["operations", "bytes", "bytes each", "operations/s", "bytes/s"].map(right);
    table.set_header(std::iter::once(Cell::new("kind")).chain(counted));
    for kind in report.kinds.iter().filter(|kind| kind.operations > 0) {
        table.add_row([
            Cell::new(kind.kind),
            right(kind.operations),
            right(units::bytes(kind.bytes)),
            right(units::bytes(kind.bytes / kind.operations)),
            right(units::count(kind.operations_per_s)),
            right(units::bytes(kind.bytes_per_s as u64)),
        ]);
    }
    format!("{table}\n")
}

fn traffic(matrix: &Matrix) -> String {
    let unit = matrix.unit;
    let mut table = ruled_table();
    let columns = (0..matrix.bytes.len()).map(|column| right(format!("{unit} {column}")));
    table.set_header(std::iter::once(Cell::new("from \\ to")).chain(columns));
    for (row, bytes) in matrix.bytes.iter().enumerate() {
        // A dot for nothing keeps the pattern visible.
        let cells = bytes.iter().map(|bytes| right(if *bytes == 0 { "·".to_owned() } else { units::bytes(*bytes) }));
        table.add_row(std::iter::once(Cell::new(format!("{unit} {row}"))).chain(cells));
    }
    format!("bytes between {unit}s (row: who asked; column: whose memory)\n{table}\n")
}

/// Rules above, below and under the header, none between rows.
fn ruled_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.remove_style(TableComponent::HorizontalLines).remove_style(TableComponent::MiddleIntersections);
    table
}

fn right(content: impl ToString) -> Cell {
    Cell::new(content).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use super::super::tests::ring;
    use super::*;

    #[test]
    fn the_tables_show_kinds_that_occurred_and_who_talked_to_whom() {
        let text = render(&ring(4));
        assert!(text.contains("4 ranks on 2 nodes"), "{text}");
        assert!(text.contains("put") && text.contains("3.91 KiB"), "{text}");
        assert!(!text.contains("get"), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with("rank 3")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["rank", "3", "1000", "B", "·", "·", "·"]);
    }

    #[test]
    fn what_devices_did_is_shown_where_they_were_used() {
        let mut report = ring(2);
        assert!(!render(&report).contains("network devices"));
        let counted = vec![("writes".to_owned(), 1234), ("bytes copied".to_owned(), 4096)];
        report.network = super::super::network_totals(&[counted.clone(), counted]);
        let text = render(&report);
        let cells_of = |name: &str| {
            let row = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells_of("writes"), ["writes", "2468", "1234"]);
        assert_eq!(cells_of("bytes copied"), ["bytes", "copied", "8.00", "KiB", "4.00", "KiB"]);
    }

    #[test]
    fn many_ranks_are_shown_by_node() {
        let text = render(&ring(20));
        assert!(text.contains("bytes between nodes"), "{text}");
    }
}
