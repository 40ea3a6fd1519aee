//! What the demo programs share: how they start, how they share work out, and how they end.
//!
//! Each of them checks its answer on rank 0 against a serial computation. [`conclude`] tells the verdict to all
//! ranks, so that the whole job ends with the same exit status.

use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use longarm::World;
use longarm::error::CollectiveError;

/// Joins the job, reads the command line, runs `program` and turns what it says into an exit status.
///
/// Only rank 0 speaks of a wrong command line, and only it answers `--help`.
pub fn start<Options: Parser>(program: impl FnOnce(&World, Options) -> Result<Verdict, Box<dyn Error>>) -> ExitCode {
    let world = match longarm::init() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("cannot join the job: {error}");
            return ExitCode::FAILURE;
        }
    };
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            if world.rank() == 0 {
                let _ = error.print();
            }
            // A failed farewell changes nothing any more.
            let _ = world.finalize();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match program(&world, options).and_then(|verdict| Ok(conclude(world.clone(), verdict)?)) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("rank {}: {error}", world.rank());
            ExitCode::FAILURE
        }
    }
}

/// What a rank found; one that checked nothing says `Right`.
pub enum Verdict {
    /// The answer is the serial one.
    Right,
    /// It is not; the reason, for people.
    Wrong(String),
    /// There is no answer, for a reason that every rank finds alike: only rank 0 speaks of it.
    Unusable(Box<dyn Error>),
}

/// Tells every rank what rank 0 found, and leaves the job.
fn conclude(world: World, verdict: Verdict) -> Result<ExitCode, CollectiveError> {
    let reason = match verdict {
        Verdict::Right => None,
        Verdict::Wrong(reason) => Some(format!("WRONG: {reason}")),
        Verdict::Unusable(error) => Some(error.to_string()),
    };
    let mut failed = [u32::from(reason.is_some())];
    world.broadcast_collective(0, &mut failed)?;
    if let Some(reason) = reason.filter(|_| world.rank() == 0) {
        eprintln!("{reason}");
    }
    world.finalize()?;
    Ok(if failed[0] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many ranks and nodes there are, in words.
pub fn layout_of(world: &World) -> String {
    let plural = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{} on {}", plural(world.size(), "rank"), plural(world.node_count(), "node"))
}

/// Numbers `0..total` cut in `parts` runs of nearly equal length.
#[derive(Clone, Copy)]
pub struct Shares {
    pub total: usize,
    pub parts: usize,
}

impl Shares {
    /// The numbers of a part; empty where there are fewer numbers than parts.
    pub fn range(&self, part: usize) -> Range<usize> {
        self.total * part / self.parts..self.total * (part + 1) / self.parts
    }

    /// The part that has a number: the last one that starts at or before it.
    #[allow(dead_code)] // Not every program asks.
    pub fn part_of(&self, number: usize) -> usize {
        ((number + 1) * self.parts - 1) / self.total
    }
}

/// Rows and columns of a grid of ranks that is as square as their number allows.
#[allow(dead_code)] // Not every program has a grid.
pub fn grid_of(ranks: usize) -> (usize, usize) {
    let rows = (1..=ranks).take_while(|rows| rows * rows <= ranks).filter(|rows| ranks.is_multiple_of(*rows)).last();
    let rows = rows.unwrap_or(1);
    (rows, ranks / rows)
}
