//! How fast: the same perf programs on several runtimes in one go, as one table.
//!
//! The programs are those of the classic ARMCI and of Global Arrays, and one of our own for rmw. Every round runs every
//! runtime once, so that what else the machine does meets all of them; of the rounds the best figure counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::{Arguments, Launcher, SpeedArguments};
use crate::list::{self, Program};
use crate::run::Runner;
use crate::verdict::Verdict;

/// The runs of a round: a program, as a line of a list, and on how many ranks.
const PROGRAMS: [(&str, u32); 5] = [
    ("perf armci/testing label=armci-perf limit=300", 2),
    ("perf_rmw armci limit=300", 2),
    ("ngatest global/testing limit=300", 2),
    ("test global/testing limit=300 allow=\"SHOULD FAIL\" allow=\"failure\"", 2),
    ("perf global/testing label=ga-perf limit=300", 4),
];

/// The sizes shown, in bytes: those of the perf program that are nearest to round ones.
const SIZES_SHOWN: [u64; 9] = [8, 128, 1152, 12800, 32768, 66248, 131072, 996872, 2097152];

/// What a figure is about: the part of the table, then the row.
type Row = (&'static str, String);

/// The least figure of every row, for every runtime.
#[derive(Debug, Default)]
struct Figures {
    best: BTreeMap<(usize, String), BTreeMap<usize, f64>>,
    parts: Vec<&'static str>,
}

impl Figures {
    fn take(&mut self, runtime: usize, (part, row): Row, value: f64) {
        let place = self.parts.iter().position(|known| *known == part).unwrap_or_else(|| {
            self.parts.push(part);
            self.parts.len() - 1
        });
        let best = self.best.entry((place, row)).or_default().entry(runtime).or_insert(f64::INFINITY);
        *best = best.min(value);
    }

    /// A table a part. The first runtime is compared with the best of the others.
    fn markdown(&self, names: &[String]) -> String {
        let mut text = String::new();
        for (place, part) in self.parts.iter().enumerate() {
            text.push_str(&format!("\n### {part}\n\n| | {} | {} / best other |\n", names.join(" | "), names[0]));
            text.push_str(&format!("|---{}|\n", "|---:".repeat(names.len() + 1)));
            for ((_, row), figures) in self.best.iter().filter(|((other, _), _)| *other == place) {
                let bytes = row.trim().split(' ').next().and_then(|word| word.parse().ok());
                let cells = (0..names.len()).map(|runtime| match figures.get(&runtime) {
                    Some(figure) => cell(*figure, bytes),
                    None => "-".to_owned(),
                });
                let cells: Vec<String> = cells.collect();
                let others = figures.iter().filter(|(runtime, _)| **runtime > 0).map(|(_, figure)| *figure);
                let best = others.fold(f64::INFINITY, f64::min);
                let ratio = match figures.get(&0) {
                    Some(first) if best.is_finite() && best > 0.0 => format!("{:.2}", first / best),
                    _ => "-".to_owned(),
                };
                text.push_str(&format!("| {} | {} | {ratio} |\n", row.trim(), cells.join(" | ")));
            }
        }
        text
    }
}

/// A time, and from a page on also the rate.
fn cell(figure: f64, bytes: Option<u64>) -> String {
    let digits = if figure < 10.0 { 3 } else { 1 };
    match bytes {
        Some(bytes) if bytes >= 4096 => format!("{figure:.digits$} ({:.1} GB/s)", bytes as f64 / figure / 1e3),
        _ => format!("{figure:.digits$}"),
    }
}

/// One of the runtimes that are compared.
struct Runtime {
    name: String,
    runner: Runner,
}

/// Measures, and returns the page.
pub fn measure(arguments: &SpeedArguments) -> Result<String, String> {
    let runtimes = arguments.runtime.iter().map(|text| runtime(text, arguments)).collect::<Result<Vec<_>, _>>()?;
    let mut figures = Figures::default();
    let mut notes = String::new();
    for round in 0..arguments.rounds {
        for (line, ranks) in PROGRAMS {
            let program = list::parse(line).map_err(|error| error.to_string())?.remove(0);
            if !arguments.only.is_empty() && !arguments.only.contains(&program.name) {
                continue;
            }
            for (index, runtime) in runtimes.iter().enumerate() {
                let note = measure_one(runtime, index, (&program, ranks), &arguments.logs, &mut figures)?;
                println!("round {round}: {:12} {:12} {note}", runtime.name, program.name);
                let line = format!("- {} on {}: {note}\n", program.name, runtime.name);
                if note != "ok" && !notes.contains(&line) {
                    notes.push_str(&line);
                }
            }
        }
    }
    let names: Vec<String> = runtimes.into_iter().map(|runtime| runtime.name).collect();
    let rounds = arguments.rounds;
    let page = format!("Best of {rounds} rounds; times in microseconds, wall times in seconds.\n");
    let notes = if notes.is_empty() { notes } else { format!("\nNot measured:\n\n{notes}") };
    Ok(page + &figures.markdown(&names) + &notes)
}

/// `NAME=FOLDER` or `NAME=FOLDER:EXTRA`.
fn runtime(text: &str, arguments: &SpeedArguments) -> Result<Runtime, String> {
    let (name, rest) = text.split_once('=').ok_or_else(|| format!("\"{text}\" is not NAME=FOLDER"))?;
    let (folder, extra) = rest.split_once(':').unwrap_or((rest, "0"));
    let extra_ranks = extra.parse().map_err(|_| format!("\"{extra}\" is no number of ranks"))?;
    let of_suite = Arguments {
        build: PathBuf::from(folder),
        list: PathBuf::new(),
        mpi: arguments.mpi,
        launcher: Launcher::Mpi,
        longarm: PathBuf::new(),
        ranks: vec![2],
        nodes: vec![1],
        extra_ranks,
        hosts: arguments.hosts.clone(),
        only: Vec::new(),
        quick: false,
        limit_seconds: 120,
        say_finalize: None,
        sources: None,
        logs: Some(arguments.logs.join(name)),
        json: None,
        markdown: None,
    };
    Ok(Runtime { name: name.to_owned(), runner: Runner::new(&of_suite)? })
}

/// Runs one program once and takes its figures. Says what went wrong, or "ok".
fn measure_one(
    runtime: &Runtime,
    index: usize,
    (program, ranks): (&Program, u32),
    logs: &Path,
    figures: &mut Figures,
) -> Result<String, String> {
    let nodes = runtime.runner.hosts().unwrap_or(1);
    let outcome = runtime.runner.run(program, ranks, nodes)?;
    // What a runtime leaves behind is its own affair here.
    if !matches!(outcome.verdict, Verdict::Passed | Verdict::LeftBehind(_)) {
        return Ok(outcome.verdict.to_string());
    }
    let log = logs.join(&runtime.name).join(format!("{}-{ranks}x{nodes}.log", program.name));
    let text = fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    for (row, figure) in match program.name.as_str() {
        "armci-perf" => perf_figures(&text),
        "perf_rmw" => rmw_figures(&text),
        name => vec![(("wall time, s", format!("{name}, {ranks} ranks")), outcome.took.as_secs_f64())],
    } {
        figures.take(index, row, figure);
    }
    Ok("ok".to_owned())
}

/// The two tables of the classic perf program: bytes, loops, then time and rate of get, put and accumulate.
fn perf_figures(text: &str) -> Vec<(Row, f64)> {
    const PARTS: [[&str; 3]; 2] =
        [["contiguous get", "contiguous put", "contiguous accumulate"], ["2-D get", "2-D put", "2-D accumulate"]];
    let mut parts = None;
    let mut figures = Vec::new();
    for line in text.lines() {
        if line.contains("correctness") {
            break;
        }
        if line.contains("Contiguous Data Transfer") {
            parts = Some(PARTS[0]);
        } else if line.contains("Strided Data Transfer") {
            parts = Some(PARTS[1]);
        }
        let words: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let (Some(parts), [bytes, _, get, _, put, _, accumulate, _]) = (parts, words.as_slice()) else { continue };
        if !SIZES_SHOWN.contains(&(*bytes as u64)) {
            continue;
        }
        for (part, figure) in parts.iter().zip([get, put, accumulate]) {
            // So wide that they sort by size.
            figures.push(((*part, format!("{bytes:8} bytes")), *figure));
        }
    }
    figures
}

/// `rmw long together 0.123`.
fn rmw_figures(text: &str) -> Vec<(Row, f64)> {
    let figures = text.lines().filter_map(|line| {
        let (what, figure) = line.strip_prefix("rmw ")?.rsplit_once(' ')?;
        Some((("rmw", what.to_owned()), figure.parse().ok()?))
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERF: &str = "\
\t\t\tContiguous Data Transfer
bytes   loop      usec      MB/s      usec      MB/s      usec      MB/s
8\t550\t8.01e-02  9.99e+01  6.66e-02  1.20e+02  7.34e-02  1.09e+02
72\t183\t5.73e-02  1.26e+03  5.60e-02  1.29e+03  7.02e-02  1.03e+03
\t\t\tStrided Data Transfer
131072\t4\t1.80e+01  7.27e+03  2.01e+01  6.53e+03  1.94e+01  6.76e+03
------------ Now we test the same data transfer for correctness ----------
8\t550\t9.99e-02  9.99e+01  9.99e-02  1.20e+02  9.99e-02  1.09e+02
";

    #[test]
    fn the_tables_of_the_perf_program_are_read() {
        let figures = perf_figures(PERF);
        assert_eq!(figures.len(), 6);
        assert_eq!(figures[1], (("contiguous put", "       8 bytes".to_owned()), 0.0666));
        assert_eq!(figures[5], (("2-D accumulate", "  131072 bytes".to_owned()), 19.4));
    }

    #[test]
    fn the_lines_of_the_rmw_program_are_read() {
        let figures = rmw_figures("hello\nrmw int alone 0.0200\nrmw long together 1.5\n");
        assert_eq!(figures[1], (("rmw", "long together".to_owned()), 1.5));
    }

    #[test]
    fn the_page_compares_the_first_runtime_with_the_best_of_the_others() {
        let mut figures = Figures::default();
        for (runtime, value) in [(0, 2.0), (0, 1.0), (1, 4.0), (2, 2.0)] {
            figures.take(runtime, ("put", "    8192 bytes".to_owned()), value);
        }
        let page = figures.markdown(&["one".to_owned(), "two".to_owned(), "three".to_owned()]);
        let row = "| 8192 bytes | 1.000 (8.2 GB/s) | 4.000 (2.0 GB/s) | 2.000 (4.1 GB/s) | 0.50 |";
        assert!(page.contains(row), "{page}");
    }
}
