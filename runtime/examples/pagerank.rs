//! PageRank of the airports of the United States: where does a traveller end up who takes any flight, again and again?
//!
//! ```text
//! cargo build --release -p longarm --examples
//! longarm run -n 4 --nodes 2 target/release/examples/pagerank --top 10
//! ```
//!
//! The flights are spread over the ranks. The scores live in a window, cut in blocks of airports. In each round a
//! rank reads the scores of the airports from which its flights leave, adds up what each destination receives, and
//! accumulates that into the blocks of their owners, who need not do anything for it. The ranks meet twice a round:
//! once when everything has arrived, and once to agree on whether the scores still change.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use longarm::error::TransferError;
use longarm::{Reduction, Update, Window, World};

use crate::common::{Shares, Verdict, layout_of, start};

const FLIGHTS: &str = include_str!("data/flights-airport.csv");
const AIRPORTS: &str = include_str!("data/airports.csv");
/// Largest difference of a score from the serial one. Sums are added in another order, so a few bits may differ.
const DIFFERENCE_MAX: f64 = 1e-9;

/// Ranks airports by PageRank over a table of flights.
#[derive(Parser)]
#[command(name = "pagerank")]
struct Options {
    /// Table of flights: origin,destination,count [default: flights of 2008 in the United States]
    #[arg(long, value_name = "FILE")]
    flights: Option<PathBuf>,
    /// Table of airports: iata,name,city,state and more columns [default: those of the United States]
    #[arg(long, value_name = "FILE")]
    airports: Option<PathBuf>,
    /// Chance that the traveller takes a flight, and does not start anew at any airport
    #[arg(long, default_value_t = 0.85, value_parser = chance)]
    damping: f64,
    /// Stop when the scores together change by less than this in a round
    #[arg(long, default_value_t = 1e-12, value_parser = chance)]
    tolerance: f64,
    /// Give up after so many rounds
    #[arg(long, default_value_t = 1000)]
    rounds_max: u32,
    /// How many airports to print
    #[arg(long, default_value_t = 10)]
    top: usize,
}

fn chance(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err("it is not between 0 and 1".into()) }
}

/// Flights from one airport to another in a year.
#[derive(Clone, Copy)]
struct Edge {
    from: usize,
    to: usize,
    flights: u64,
}

/// The airports that flights name, in the order of their codes, and the flights.
struct Graph {
    codes: Vec<String>,
    edges: Vec<Edge>,
}

#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error("line {line} of the flights is not `origin,destination,count`")]
    BadFlight { line: usize },
    #[error("the table of flights is empty")]
    NoFlights,
    #[error("the scores still changed by {change:.1e} after {rounds} rounds")]
    NoConvergence { change: f64, rounds: u32 },
}

fn main() -> ExitCode {
    start(run)
}

fn run(world: &World, options: Options) -> Result<Verdict, Box<dyn Error>> {
    let tables = table(options.flights.as_deref(), FLIGHTS)
        .and_then(|flights| Ok((Graph::read(&flights)?, names_of(&table(options.airports.as_deref(), AIRPORTS)?))));
    let (graph, names) = match tables {
        Ok(tables) => tables,
        Err(error) => return Ok(Verdict::Unusable(error)),
    };
    let begin = Instant::now();
    let ranking = Ranking::new(world, &graph, &options)?;
    let rounds = ranking.converge()?;
    let elapsed = begin.elapsed();
    if world.rank() != 0 {
        return Ok(Verdict::Right);
    }

    let scores = ranking.all_scores()?;
    let (airports, flights) = (graph.codes.len(), graph.edges.iter().map(|edge| edge.flights).sum::<u64>());
    println!("{airports} airports, {} routes, {flights} flights; {}", graph.edges.len(), layout_of(world));
    println!("{rounds} rounds in {:.1} ms", elapsed.as_secs_f64() * 1e3);
    print_top(&graph, &scores, &names, options.top);

    let serial = serial(&graph, &options);
    let difference = scores.iter().zip(&serial).map(|(score, serial)| (score - serial).abs()).fold(0.0, f64::max);
    println!("largest difference from the serial scores: {difference:.1e}");
    // Asked this way round, a score that is no number is wrong too.
    if difference <= DIFFERENCE_MAX && scores.iter().all(|score| score.is_finite()) {
        return Ok(Verdict::Right);
    }
    Ok(Verdict::Wrong(format!("a score differs by {difference:e}; {DIFFERENCE_MAX:e} is allowed")))
}

/// What one rank knows while the scores are found.
struct Ranking<'a> {
    world: &'a World,
    options: &'a Options,
    /// Which airports each rank owns.
    shares: Shares,
    /// This rank's flights, ordered by origin, each with its part of all flights from there.
    routes: Vec<(Edge, f64)>,
    /// The airports from which they leave, and those between.
    origins: Range<usize>,
    scores: Window<f64>,
    /// What each airport has received in this round.
    received: Window<f64>,
    /// Of this rank's airports, those from which no flight leaves: their score goes to everybody.
    dead_ends: Vec<usize>,
}

impl<'a> Ranking<'a> {
    /// Shares out the airports and the flights. Collective.
    fn new(world: &'a World, graph: &Graph, options: &'a Options) -> Result<Ranking<'a>, Box<dyn Error>> {
        let (me, ranks) = (world.rank() as usize, world.size() as usize);
        let shares = Shares { total: graph.codes.len(), parts: ranks };
        let edges = &graph.edges[Shares { total: graph.edges.len(), parts: ranks }.range(me)];
        let origins = match (edges.first(), edges.last()) {
            (Some(first), Some(last)) => first.from..last.from + 1,
            _ => 0..0,
        };
        let mine = shares.range(me);
        let scores = world.allocate_collective::<f64>(mine.len())?;
        let received = world.allocate_collective::<f64>(mine.len())?;
        let departures = world.allocate_collective::<u64>(mine.len())?;

        // The flights of an airport may lie with several ranks: they count its departures together.
        let mut counts = vec![0; origins.len()];
        for edge in edges {
            counts[edge.from - origins.start] += edge.flights;
        }
        for (rank, here, there) in pieces(shares, origins.clone()) {
            departures.accumulate(rank, there, Update::Sum, &counts[here])?;
        }
        scores.put(world.rank(), 0, &vec![1.0 / shares.total as f64; mine.len()])?;
        world.barrier_collective()?;

        let totals = read(&departures, shares, origins.clone())?;
        let share = |edge: &Edge| edge.flights as f64 / totals[edge.from - origins.start] as f64;
        let routes = edges.iter().map(|edge| (*edge, share(edge))).collect();
        let own = departures.get_vec(world.rank(), 0..mine.len())?;
        let dead_ends = (0..mine.len()).filter(|place| own[*place] == 0).collect();
        departures.free_collective()?;
        Ok(Ranking { world, options, shares, routes, origins, scores, received, dead_ends })
    }

    /// Repeats rounds until the scores stay, and tells how many that were. Collective.
    fn converge(&self) -> Result<u32, Box<dyn Error>> {
        let (me, airports) = (self.world.rank(), self.shares.total as f64);
        let count = self.shares.range(me as usize).len();
        let damping = self.options.damping;
        let mut own = self.scores.get_vec(me, 0..count)?;
        let mut change = f64::INFINITY;
        for round in 0..self.options.rounds_max {
            self.pass_on()?;
            let mut stranded = [self.dead_ends.iter().map(|place| own[*place]).sum::<f64>()];
            // First barrier: everything has arrived, and all scores have been read.
            self.world.allreduce_collective(Reduction::Sum, &mut stranded)?;
            let everybody = (1.0 - damping + damping * stranded[0]) / airports;
            let fresh: Vec<f64> =
                self.received.get_vec(me, 0..count)?.iter().map(|received| received + everybody).collect();
            let mut total = [fresh.iter().zip(&own).map(|(new, old)| (new - old).abs()).sum::<f64>()];
            self.scores.put(me, 0, &fresh)?;
            self.received.put(me, 0, &vec![0.0; count])?;
            self.world.quiet()?;
            // Second barrier: nobody reads or adds before the owners are done.
            self.world.allreduce_collective(Reduction::Sum, &mut total)?;
            (own, change) = (fresh, total[0]);
            if change < self.options.tolerance {
                return Ok(round + 1);
            }
        }
        Err(TableError::NoConvergence { change, rounds: self.options.rounds_max }.into())
    }

    /// Hands what flows along this rank's flights to the owners of their destinations.
    fn pass_on(&self) -> Result<(), TransferError> {
        let scores = read(&self.scores, self.shares, self.origins.clone())?;
        let mut flow = vec![0.0; self.shares.total];
        for (edge, share) in &self.routes {
            flow[edge.to] += scores[edge.from - self.origins.start] * share;
        }
        let damped = Update::Scaled(self.options.damping);
        // All at once: the scope ends when all owners have theirs.
        self.world.scope(|scope| {
            for (rank, here, there) in pieces(self.shares, 0..self.shares.total) {
                if flow[here.clone()].iter().any(|flow| *flow != 0.0) {
                    scope.accumulate(&self.received, rank, there, damped, &flow[here]);
                }
            }
        })
    }

    fn all_scores(&self) -> Result<Vec<f64>, TransferError> {
        read(&self.scores, self.shares, 0..self.shares.total)
    }
}

/// How a run of airports lies at their owners: each rank, the places in the run, and the first index at that rank.
fn pieces(shares: Shares, run: Range<usize>) -> impl Iterator<Item = (u32, Range<usize>, usize)> {
    let owners = if run.is_empty() { 0..0 } else { shares.part_of(run.start)..shares.part_of(run.end - 1) + 1 };
    owners.filter_map(move |owner| {
        let owned = shares.range(owner);
        let both = owned.start.max(run.start)..owned.end.min(run.end);
        let here = both.start - run.start..both.end.max(both.start) - run.start;
        (!here.is_empty()).then(|| (owner as u32, here, both.start - owned.start))
    })
}

/// Reads a run of airports from their owners, from all of them at the same time.
fn read<T: longarm::Element>(window: &Window<T>, shares: Shares, run: Range<usize>) -> Result<Vec<T>, TransferError> {
    let parts = pieces(shares, run).map(|(rank, here, there)| {
        let target = vec![T::new_zeroed(); here.len()];
        window.start_get(rank, there, target)
    });
    let handles = parts.collect::<Result<Vec<_>, _>>()?;
    Ok(longarm::wait_all(handles)?.concat())
}

/// The same by one process, without windows: what the answer has to be.
fn serial(graph: &Graph, options: &Options) -> Vec<f64> {
    let airports = graph.codes.len();
    let mut departures = vec![0_u64; airports];
    graph.edges.iter().for_each(|edge| departures[edge.from] += edge.flights);
    let mut scores = vec![1.0 / airports as f64; airports];
    for _ in 0..options.rounds_max {
        let stranded: f64 = (0..airports).filter(|place| departures[*place] == 0).map(|place| scores[place]).sum();
        let everybody = (1.0 - options.damping + options.damping * stranded) / airports as f64;
        let mut fresh = vec![everybody; airports];
        for edge in &graph.edges {
            let share = edge.flights as f64 / departures[edge.from] as f64;
            fresh[edge.to] += options.damping * scores[edge.from] * share;
        }
        let change: f64 = fresh.iter().zip(&scores).map(|(new, old)| (new - old).abs()).sum();
        scores = fresh;
        if change < options.tolerance {
            break;
        }
    }
    scores
}

impl Graph {
    /// Every rank reads the whole table, because it is small, and keeps its part of the flights.
    fn read(text: &str) -> Result<Graph, TableError> {
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let fields = fields_of(line);
            let [from, to, flights] = &fields[..] else { return Err(TableError::BadFlight { line: number + 1 }) };
            let flights: u64 = flights.parse().map_err(|_| TableError::BadFlight { line: number + 1 })?;
            rows.push((from.clone(), to.clone(), flights));
        }
        let codes: BTreeSet<&String> = rows.iter().flat_map(|(from, to, _)| [from, to]).collect();
        let places: HashMap<&String, usize> = codes.iter().enumerate().map(|(place, code)| (*code, place)).collect();
        let edge = |(from, to, flights): &(String, String, u64)| Edge {
            from: places[from],
            to: places[to],
            flights: *flights,
        };
        let mut edges: Vec<Edge> = rows.iter().map(edge).filter(|edge| edge.flights > 0).collect();
        edges.sort_unstable_by_key(|edge| (edge.from, edge.to));
        if edges.is_empty() {
            return Err(TableError::NoFlights);
        }
        Ok(Graph { codes: codes.into_iter().cloned().collect(), edges })
    }
}

fn table(file: Option<&Path>, default: &str) -> Result<String, Box<dyn Error>> {
    let Some(file) = file else { return Ok(default.to_owned()) };
    Ok(std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?)
}

/// Name and town of each airport, by its code.
fn names_of(text: &str) -> HashMap<String, (String, String)> {
    let rows = text.lines().skip(1).map(fields_of);
    let named = rows.filter_map(|row| match &row[..] {
        [code, name, city, state, ..] => {
            // The table writes NA where it knows no town.
            let town = if city == "NA" { String::new() } else { format!("{city}, {state}") };
            Some((code.clone(), (name.clone(), town)))
        }
        _ => None,
    });
    named.collect()
}

/// The fields of one line of comma-separated values. Quoted ones may hold commas, and quotes that are doubled.
fn fields_of(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut letters = line.trim_end_matches('\r').chars().peekable();
    while let Some(letter) = letters.next() {
        let field = fields.last_mut().expect("there is always a field");
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => field.push(letter),
        }
    }
    fields
}

fn print_top(graph: &Graph, scores: &[f64], names: &HashMap<String, (String, String)>, count: usize) {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]));
    println!();
    println!("  {:>3}  {:<4}  {:<36}  {:<24}  {:>7}", "", "code", "airport", "city", "score");
    for (place, airport) in order.into_iter().take(count).enumerate() {
        let code = &graph.codes[airport];
        let (name, town) = names.get(code).map_or(("", ""), |(name, town)| (name, town));
        println!("  {:>3}  {code:<4}  {name:<36}  {town:<24}  {:>7.5}", place + 1, scores[airport]);
    }
    println!();
}
