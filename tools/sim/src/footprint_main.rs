//! `longarm-footprint`: how much memory a job of thousands of ranks takes. See `longarm_sim::footprint`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use longarm_sim::footprint::{Footprint, measure};
use peak_alloc::PeakAlloc;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Counts what a job takes in memory, with real clients and servers over a simulated network.
#[derive(Parser, Debug)]
#[command(name = "longarm-footprint", version)]
struct Arguments {
    /// Ranks of the job.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    ranks: u32,

    /// Print lines for programs.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let Arguments { ranks, json } = Arguments::parse();
    match measure(ranks, || ALLOCATOR.current_usage()) {
        Ok(found) => {
            println!("{}", if json { lines(&found) } else { table(&found) });
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("longarm-footprint: {message}");
            ExitCode::from(2)
        }
    }
}

/// What was counted: what it is called where lines are read, what it is, and how many bytes.
fn rows(found: &Footprint) -> [(&'static str, &'static str, f64); 9] {
    [
        ("memory_start", "a process, before it has talked to anybody", found.client as f64),
        ("memory_rank", "the same, for each rank of the job", found.rank),
        ("memory_peer_node", "a node that it is connected to, both ends together", found.peer as f64),
        ("memory_peer_node_encrypted", "the same, encrypted", found.encrypted_peer as f64),
        ("memory_window", "a window with equal parts, at the process and its node's server", found.window as f64),
        ("memory_window_listed", "a window whose parts differ", found.listed_window as f64),
        ("memory_window_rank", "the same, for each rank of the job", found.window_rank),
        ("memory_segment", "what the ranks of a node share", found.segment as f64),
        ("memory_segment_rank", "the same, for each rank of the job", found.segment_rank),
    ]
}

fn lines(found: &Footprint) -> String {
    let line = |(op, _, bytes): (&str, &str, f64)| {
        let bytes = bytes.ceil() as u64;
        json!({ "peer": "longarm", "transport": "sim", "op": op, "bytes": bytes, "lat_us": 0.0, "mbps": 0.0, "rate": 0.0,
            "lat_min_us": 0.0, "window": 1, "np": found.ranks })
        .to_string()
    };
    rows(found).map(line).join("\n")
}

fn table(found: &Footprint) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([format!("{} ranks, {} of them on the node", found.ranks, found.node_ranks), "bytes".into()]);
    for (_, what, bytes) in rows(found) {
        let digits = if bytes < 1000.0 { 1 } else { 0 };
        table.add_row([what.to_owned(), format!("{bytes:.digits$}")]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
