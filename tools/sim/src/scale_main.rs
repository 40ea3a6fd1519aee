//! `longarm-scale`: how long a job of so many ranks takes to start, to meet, to sum, to connect. See `longarm_sim::scale`.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::{Args, Parser, Subcommand, ValueEnum};
use longarm_sim::admission::{Coming, admit};
use longarm_sim::scale::{CONTACT, Contact, Op, Wanted, contact, is_timer, measure};
use longarm_sim::user::RANKS_MAX;
use longarm_sim::{Machine, run_on, simulated_time};
use peak_alloc::PeakAlloc;
use serde::Serialize;

/// Counts what a simulated job keeps.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const EXAMPLES: &str = "\
Examples:
  longarm-scale simulate                                    # 2 to 20,000 ranks that have a processor each: minutes
  longarm-scale simulate --on shared --ranks 8,64,256       # all of them on two processors
  longarm-scale simulate --set latency_ns=50000             # nodes that are far from each other
  longarm-scale simulate --routers --most 2000              # through routers
  longarm-scale admit --ranks 10000 --per-node 128          # how long rank 0 takes to let all in
  longarm run -n 64 --nodes 4 longarm-scale measure         # a real job, on this machine
  longarm run -n 256 --nodes 16 longarm-scale contact       # how long it takes to connect each to each
  longarm-scale simulate >lines; longarm perf draw lines --plot pictures";

/// Ranks of the jobs that are simulated where nobody says others.
const RANKS: [u32; 13] = [2, 4, 8, 20, 40, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000];

/// Measures how long jobs of few and of many ranks take, in the simulator or for real, as lines for programs and for pictures.
#[derive(Parser, Debug)]
#[command(name = "longarm-scale", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Simulates jobs, one after the other
    Simulate(Simulate),
    /// Simulates how the ranks of jobs that something else has started come in and leave: coordinator, relays and messages are the real ones
    Admit(Admit),
    /// The program of a real job, to be started by `longarm run`
    Measure(Measure),
    /// The program of a real job that connects each rank to each other one, and times it; to be started by `longarm run`
    Contact(ContactArguments),
}

#[derive(Args, Debug)]
struct Measure {
    /// Only this
    #[arg(long, value_name = "WHAT")]
    only: Option<Op>,
    /// Batches, of which the median counts
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batches: u32,
    /// What the ranks run on, as lines and pictures call it
    #[arg(long, default_value = "shared")]
    on: On,
    /// Only names the lines: the job was started with LONGARM_CONNECTIONS_MAX=0, so that everything goes through routers
    #[arg(long)]
    routers: bool,
}

#[derive(Args, Debug)]
struct ContactArguments {
    /// Each rank starts a get from each other one, in place of a put
    #[arg(long)]
    gets: bool,
    /// What the ranks run on, as lines and pictures call it
    #[arg(long, default_value = "shared")]
    on: On,
}

#[derive(Args, Debug)]
struct Admit {
    /// Ranks of each job
    #[arg(long, value_delimiter = ',', default_values_t = RANKS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)))]
    ranks: Vec<u32>,
    /// Ranks of a node at most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_node: u32,
    /// Each rank goes to rank 0 by itself, and not through the first one of its node
    #[arg(long)]
    by_themselves: bool,
    /// Another time than usual, more than one may be given: see the fields of `longarm_sim::Machine`
    #[arg(long = "set", value_name = "NAME=NANOSECONDS", value_parser = read_time)]
    set: Vec<(usize, u64)>,
}

#[derive(Args, Debug)]
struct Simulate {
    /// What the ranks run on
    #[arg(long, default_value = "cluster")]
    on: On,
    /// Processors where they are shared [default: 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processors: Option<u32>,
    /// Ranks of each job
    #[arg(long, value_delimiter = ',', default_values_t = RANKS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)))]
    ranks: Vec<u32>,
    /// Leave out jobs of more ranks than this
    #[arg(long, value_name = "RANKS", default_value_t = RANKS_MAX)]
    most: u32,
    /// Ranks of a node at most: jobs of no more have one node, and no network
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_node: u32,
    /// Nodes have routers, and everything goes through them, as with LONGARM_CONNECTIONS_MAX=0
    #[arg(long)]
    routers: bool,
    /// Only this
    #[arg(long, value_name = "WHAT")]
    only: Option<Op>,
    /// Another time than usual, more than one may be given: see the fields of `longarm_sim::Machine`
    #[arg(long = "set", value_name = "NAME=NANOSECONDS", value_parser = read_time)]
    set: Vec<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// Each rank and each server has a processor of its own, and nodes a network between them
    Cluster,
    /// All nodes are made up on one machine, as by `longarm run --nodes`
    Shared,
}

impl On {
    fn name(self) -> &'static str {
        match self {
            On::Cluster => "cluster",
            On::Shared => "shared",
        }
    }

    /// The same where nodes may have routers.
    fn called(self, routers: bool) -> String {
        format!("{}{}", self.name(), if routers { "-routers" } else { "" })
    }
}

type Field = fn(&mut Machine) -> &mut u64;

/// The times that a machine has.
const TIMES: [(&str, Field); 10] = [
    ("latency_ns", |machine| &mut machine.latency_ns),
    ("link_kib_ns", |machine| &mut machine.link_kib_ns),
    ("send_ns", |machine| &mut machine.send_ns),
    ("receive_ns", |machine| &mut machine.receive_ns),
    ("copy_kib_ns", |machine| &mut machine.copy_kib_ns),
    ("turn_ns", |machine| &mut machine.turn_ns),
    ("step_ns", |machine| &mut machine.step_ns),
    ("wake_rank_ns", |machine| &mut machine.wake_rank_ns),
    ("wake_socket_ns", |machine| &mut machine.wake_socket_ns),
    ("switch_ns", |machine| &mut machine.switch_ns),
];

/// The number of a time in [`TIMES`], and nanoseconds.
fn read_time(text: &str) -> Result<(usize, u64), String> {
    let (name, ns) =
        text.split_once('=').ok_or("it is the name of a time, = and nanoseconds, as in latency_ns=50000")?;
    let names = || TIMES.map(|(name, _)| name).join(", ");
    let number = TIMES.iter().position(|(known, _)| *known == name);
    let number = number.ok_or_else(|| format!("there is no time {name}; there are {}", names()))?;
    let ns = ns.parse().map_err(|_| format!("{ns} is no number of nanoseconds"))?;
    Ok((number, ns))
}

/// A line, as those of `longarm perf --json`: times in microseconds, or what is no time as its bytes.
#[derive(Serialize, Default)]
struct Line<'a> {
    peer: &'a str,
    transport: &'a str,
    op: &'a str,
    bytes: u64,
    np: u32,
    lat_us: f64,
    lat_min_us: f64,
    mbps: f64,
    rate: f64,
    window: u32,
}

fn print(line: &Line<'_>) {
    println!("{}", serde_json::to_string(line).expect("numbers and names have a JSON form"));
}

/// Of which job lines are.
#[derive(Clone, Copy)]
struct Source<'a> {
    peer: &'a str,
    transport: &'a str,
    np: u32,
}

impl Source<'_> {
    fn simulated(transport: &str, np: u32) -> Source<'_> {
        Source { peer: "simulated", transport, np }
    }

    fn print_times(self, times: &[(Op, f64)]) {
        for (op, lat_us) in times {
            self.print_time((op.name(), op.bytes()), *lat_us);
        }
    }

    fn print_time(self, (op, bytes): (&str, u64), lat_us: f64) {
        let (mbps, rate) = (bytes as f64 / lat_us, 1e6 / lat_us);
        print(&Line { op, bytes, lat_us, lat_min_us: lat_us, mbps, rate, ..self.line() });
    }

    fn print_counts(self, counts: &[(&str, u64)]) {
        for &(op, bytes) in counts {
            print(&Line { op, bytes, ..self.line() });
        }
    }

    fn line<'a>(&'a self) -> Line<'a> {
        let Source { peer, transport, np } = *self;
        Line { peer, transport, np, window: 1, ..Line::default() }
    }
}

fn simulate(arguments: &Simulate) -> Result<(), String> {
    let &Simulate { on, processors, per_node, only, routers, .. } = arguments;
    let mut machine = match (on, processors) {
        (On::Cluster, None) => Machine::cluster(),
        (On::Cluster, Some(_)) => {
            return Err("--processors is for --on shared: on a cluster each rank has its own".into());
        }
        (On::Shared, count) => Machine::shared(count.unwrap_or(2)),
    };
    set_times(&mut machine, &arguments.set);
    machine.routers = routers;
    let transport = on.called(routers);
    // One thread runs at a time, and the next one goes on sooner on the same processor.
    longarm_client::use_processors(&[rustix::thread::sched_getcpu() as u32]);
    for &np in arguments.ranks.iter().filter(|np| **np <= arguments.most) {
        eprintln!("longarm-scale: {np} simulated ranks, {per_node} on a node");
        let simulated = simulate_one(machine, np, np.div_ceil(per_node), only)?;
        let source = Source::simulated(&transport, np);
        source.print_time(("scale_start", 0), simulated.start_us);
        source.print_times(&simulated.times);
        if on == On::Cluster && only.is_none() && !routers {
            admit_one(machine, Coming { ranks: np, nodes: np.div_ceil(per_node), by_relays: true })?;
        }
        source.print_counts(&simulated.counts);
    }
    Ok(())
}

fn set_times(machine: &mut Machine, times: &[(usize, u64)]) {
    for (number, ns) in times {
        *TIMES[*number].1(machine) = *ns;
    }
}

fn admit_all(arguments: &Admit) -> Result<(), String> {
    let mut machine = Machine::cluster();
    set_times(&mut machine, &arguments.set);
    for &ranks in &arguments.ranks {
        let nodes = ranks.div_ceil(arguments.per_node);
        admit_one(machine, Coming { ranks, nodes, by_relays: !arguments.by_themselves })?;
    }
    Ok(())
}

fn admit_one(machine: Machine, coming: Coming) -> Result<(), String> {
    let admitted = admit(coming, machine)?;
    let source = Source::simulated(On::Cluster.name(), coming.ranks);
    let ops = if coming.by_relays {
        ["scale_admission", "scale_leave"]
    } else {
        ["scale_admission_alone", "scale_leave_alone"]
    };
    source.print_time((ops[0], 0), admitted.started_us);
    source.print_time((ops[1], 0), admitted.left_us);
    Ok(())
}

/// What a simulated job took, in microseconds.
#[derive(Default)]
struct Simulated {
    /// Until all ranks have met for the first time.
    start_us: f64,
    times: Vec<(Op, f64)>,
    /// As lines call it, and how many.
    counts: Vec<(&'static str, u64)>,
}

/// What lines call the connections of the server that has most of them.
const CONNECTIONS: &str = "scale_connections";
/// The sockets of the node that has most of them.
const SOCKETS: &str = "scale_sockets";
/// What a node keeps in memory on average, in bytes.
const MEMORY: &str = "scale_memory";

fn simulate_one(machine: Machine, ranks: u32, nodes: u32, only: Option<Op>) -> Result<Simulated, String> {
    let found = Arc::new(Mutex::new(Simulated::default()));
    let (its, before) = (Arc::clone(&found), ALLOCATOR.current_usage());
    let program = move |world: longarm::World| {
        world.barrier_collective()?;
        let start_us = simulated_time().as_secs_f64() * 1e6;
        let mut memory = 0;
        let count = || memory = ALLOCATOR.current_usage().saturating_sub(before) as u64 / u64::from(nodes);
        let times = measure(&world, simulated_time, Wanted { batches: 1, only }, count)?;
        if is_timer(&world) {
            let counts = vec![(MEMORY, memory)];
            *its.lock().unwrap_or_else(PoisonError::into_inner) = Simulated { start_us, times, counts };
        }
        Ok::<(), longarm::Error>(world.finalize()?)
    };
    let report = run_on(machine, ranks, nodes, program).map_err(|failure| failure.to_string())?;
    let mut found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    found.counts.extend([(CONNECTIONS, report.connections_max.into()), (SOCKETS, report.sockets_max.into())]);
    Ok(found)
}

fn measure_here(arguments: &Measure) -> longarm::Result<()> {
    let before = anonymous_bytes();
    let world = longarm::init()?;
    let began = Instant::now();
    let wanted = Wanted { batches: arguments.batches, only: arguments.only };
    let mut memory = 0;
    let count = || memory = anonymous_bytes().saturating_sub(before);
    let times = measure(&world, || began.elapsed(), wanted, count)?;
    // Of each rank: its sockets, and what it kept since it began.
    let all = world.allgather_collective(&[open_sockets(), memory])?;
    if is_timer(&world) {
        let transport = arguments.on.called(arguments.routers);
        let source = Source { peer: "longarm", transport: &transport, np: world.size() };
        source.print_times(&times);
        let mut nodes = vec![[0; 2]; world.node_count() as usize];
        for (rank, [sockets, memory]) in (0..).zip(all.as_chunks().0) {
            let node = &mut nodes[world.node_of(rank).unwrap_or_default() as usize];
            *node = [node[0] + sockets, node[1] + memory];
        }
        let most = nodes.iter().map(|[sockets, _]| *sockets).max().unwrap_or(0);
        let memory: u64 = nodes.iter().map(|[_, memory]| *memory).sum();
        source.print_counts(&[(SOCKETS, most), (MEMORY, memory / nodes.len() as u64)]);
    }
    Ok(world.finalize()?)
}

/// Sockets of this process. 0: the system does not say.
fn open_sockets() -> u64 {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:")).count() as u64
}

/// Memory of this process that belongs to no file. 0: the system does not say.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn contact_here(arguments: &ContactArguments) -> longarm::Result<()> {
    let world = longarm::init()?;
    let began = Instant::now();
    let how = if arguments.gets { Contact::Gets } else { Contact::Puts };
    let lat_us = contact(&world, how, || began.elapsed())?;
    if is_timer(&world) {
        Source { peer: "longarm", transport: arguments.on.name(), np: world.size() }.print_time(CONTACT, lat_us);
    }
    Ok(world.finalize()?)
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().what {
        What::Simulate(arguments) => simulate(&arguments),
        What::Admit(arguments) => admit_all(&arguments),
        What::Measure(arguments) => measure_here(&arguments).map_err(|error| error.to_string()),
        What::Contact(arguments) => contact_here(&arguments).map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("longarm-scale: {message}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_time_that_does_not_exist_is_refused_and_the_others_are_named() {
        assert_eq!(read_time("switch_ns=5").unwrap(), (9, 5));
        let refused = read_time("latncy_ns=5").unwrap_err();
        assert!(refused.starts_with("there is no time latncy_ns; there are latency_ns, link_kib_ns"), "{refused}");
        assert_eq!(read_time("latency_ns=x").unwrap_err(), "x is no number of nanoseconds");
        assert!(read_time("latency_ns").is_err());
    }

    #[test]
    fn each_reaches_each_other_over_the_network() {
        for how in [Contact::Puts, Contact::Gets] {
            let program = move |world: longarm::World| {
                let took_us = contact(&world, how, simulated_time)?;
                // Connections are made side by side: a few answers each, 10 us away.
                assert!((20.0..200.0).contains(&took_us), "{how:?}: {took_us} us");
                Ok::<(), longarm::Error>(world.finalize()?)
            };
            let report = run_on(Machine::cluster(), 12, 4, program).unwrap();
            assert_eq!(report.connections_max, 9, "of every rank of another node");
        }
    }

    #[test]
    fn what_is_simulated_takes_longer_where_the_network_is_slower() {
        let time = |latency_ns| {
            let machine = Machine { latency_ns, ..Machine::cluster() };
            let Simulated { start_us, times, counts } = simulate_one(machine, 6, 3, Some(Op::Alltoall)).unwrap();
            let counts: HashMap<&str, u64> = counts.into_iter().collect();
            // Other tests allocate and free at the same time.
            assert!(start_us > 0.0 && counts.contains_key("scale_memory"));
            // The leaders of three nodes call each other.
            assert_eq!([counts["scale_connections"], counts["scale_sockets"]], [2, 4]);
            assert!(matches!(times[..], [(Op::Alltoall, _)]), "{times:?}");
            times[0].1
        };
        assert!(time(1_000_000) > time(10_000) + 900.0);
    }
}
