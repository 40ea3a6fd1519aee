//! Measures the limits and longarm in one go, round after round.

use std::io::Write;

use crate::Failure;
use crate::cli::AllArguments;
use crate::job::{JOBS, find_longarm};
use crate::line::{LIMIT, LONGARM, Line};
use crate::micro::limits;
use crate::micro::sample::Effort;
use crate::report;

/// Limits and longarm, compared.
pub(crate) fn all(arguments: &AllArguments) -> Result<(), Failure> {
    let longarm = find_longarm(arguments.longarm.as_deref())?;
    let mut lines = Lines { arguments, lines: Vec::new() };
    let mut failed = Vec::new();
    for _ in 0..arguments.rounds {
        lines.limits()?;
        for job in JOBS.iter().filter(|job| wanted(arguments, job.name)) {
            eprintln!("longarm-bench: {}", job.name);
            match job.run(&longarm, arguments.quick) {
                Ok(measured) => measured.into_iter().for_each(|line| lines.add(line)),
                // The other jobs still tell something.
                Err(failure) => {
                    eprintln!("longarm-bench: {failure}");
                    failed.push(job.name);
                }
            }
        }
    }
    lines.show(true)?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("not measured, because they failed: {}", failed.join(", ")).into())
}

/// Limits only.
pub(crate) fn limits_only(arguments: &AllArguments) -> Result<(), Failure> {
    let mut lines = Lines { arguments, lines: Vec::new() };
    for _ in 0..arguments.rounds {
        lines.limits()?;
    }
    lines.show(false)
}

fn wanted(arguments: &AllArguments, name: &str) -> bool {
    arguments.only.is_empty() || arguments.only.iter().any(|part| name.contains(part.as_str()))
}

struct Lines<'a> {
    arguments: &'a AllArguments,
    lines: Vec<Line>,
}

impl Lines<'_> {
    fn add(&mut self, line: Line) {
        if self.arguments.json {
            println!("{}", line.to_json());
        }
        self.lines.push(line);
    }

    fn limits(&mut self) -> Result<(), Failure> {
        let (arguments, effort) = (self.arguments, Effort::new(self.arguments.quick));
        let jobs = || JOBS.iter().filter(|job| wanted(arguments, job.name));
        if jobs().any(|job| job.nodes == 1) {
            eprintln!("longarm-bench: what the memory allows");
            // On a thread of its own, because it stays on one processor.
            let measure = || {
                let mut measured = Vec::new();
                limits::measure_memory(effort, &mut |line| measured.push(line)).map(|()| measured)
            };
            let measured = std::thread::scope(|scope| scope.spawn(measure).join());
            measured.map_err(|_| "a limit has panicked")??.into_iter().for_each(|line| self.add(line));
        }
        if jobs().any(|job| job.nodes > 1) {
            eprintln!("longarm-bench: what the sockets allow");
            limits::measure_sockets(effort, arguments.quick, &mut |line| self.add(line))?;
        }
        Ok(())
    }

    /// Prints the tables: on stdout, or on stderr when the lines are there.
    fn show(&self, with_longarm: bool) -> Result<(), Failure> {
        let limits = report::merge(&self.lines, LIMIT);
        let markdown = self.arguments.markdown;
        let text = if with_longarm {
            report::tables(&report::merge(&self.lines, LONGARM), &limits, markdown)
        } else {
            report::limit_table(&limits, markdown)
        };
        if self.arguments.json {
            eprintln!("{text}");
            return Ok(());
        }
        Ok(writeln!(std::io::stdout(), "{text}")?)
    }
}
