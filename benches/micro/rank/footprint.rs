//! How much memory the runtime takes: of a process at the start, for each node that it talks to, for each window.
//!
//! Private memory of rank 0 as the kernel counts it, without that of the sockets, which is the kernel's own. Collectives have
//! connected it to some nodes before; the difference is that of those it had not talked to.

use longarm::World;

use super::Job;
use crate::Failure;
use crate::line::{Key, LONGARM, Line};
use crate::micro::sample::Sample;

/// Windows that are made to measure one.
const WINDOWS: usize = 256;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let world = job.world;
    world.barrier_collective()?;
    let at_start = private_bytes()?;
    let window = world.allocate_collective::<u64>(1)?;
    // Nothing of what is measured next is new to this process.
    window.put_one(world.rank(), 0, 1)?;
    world.barrier_collective()?;
    let before = private_bytes()?;
    let known: Vec<Option<u32>> = world.traffic().iter().map(|peer| world.node_of(peer.peer)).collect();
    let is_new = |node: Option<u32>| node != Some(world.node()) && !known.contains(&node);
    let others: Vec<u32> = first_ranks(world).into_iter().filter(|rank| is_new(world.node_of(*rank))).collect();
    if job.measures() {
        for rank in &others {
            window.put_one(*rank, 0, 2)?;
        }
        world.quiet()?;
    }
    world.barrier_collective()?;
    let connected = private_bytes()?;
    let windows =
        (0..WINDOWS).map(|_| Ok(world.allocate_collective::<u64>(1)?)).collect::<Result<Vec<_>, Failure>>()?;
    world.barrier_collective()?;
    let with_windows = private_bytes()?;
    if job.measures() {
        tell(job, "memory_start", at_start);
        if !others.is_empty() {
            tell(job, "memory_peer_node", connected.saturating_sub(before) / others.len() as u64);
        }
        tell(job, "memory_window", with_windows.saturating_sub(connected) / WINDOWS as u64);
    }
    for window in windows {
        window.free_collective()?;
    }
    Ok(())
}

/// The first rank of each node.
fn first_ranks(world: &World) -> Vec<u32> {
    (0..world.node_count())
        .filter_map(|node| (0..world.size()).find(|rank| world.node_of(*rank) == Some(node)))
        .collect()
}

/// Bytes that this process alone has.
fn private_bytes() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kilobytes = text
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kilobytes.sum::<u64>() << 10)
}

fn tell(job: &Job<'_>, op: &str, bytes: u64) {
    let key = Key { transport: &job.arguments.transport, op, bytes };
    // No time is measured; every line has one.
    let sample = Sample::of_batches(vec![f64::EPSILON]);
    let line = Line {
        lat_us: 0.0,
        lat_min_us: 0.0,
        mbps: 0.0,
        rate: 0.0,
        np: job.world.size(),
        ..Line::new(LONGARM, key, &sample)
    };
    println!("{}", line.to_json());
}
