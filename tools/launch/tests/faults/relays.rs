//! Jobs that something else has started, whose ranks speak with rank 0 through the first of their node.

use std::net::SocketAddr;

use libtest_mimic::{Failed, Trial};
use longarm::World;

use super::started_by_others::{Coming, Told};
use super::witness;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (coming, ranks, nodes, connections) in
        [(Coming::Together, 8, 1, 1), (Coming::Together, 12, 3, 3), (Coming::Alone, 6, 2, 6)]
    {
        let name = format!("rank_0_has_{connections}_connections_of_{ranks}_ranks_on_{nodes}_nodes{coming}");
        trials.push(Trial::test(name, move || connect(coming, ranks, nodes, connections)));
    }
    trials.push(Trial::test("a_node_whose_first_rank_is_not_where_the_others_look_goes_rank_by_rank", miss));
    for victim in 2..4 {
        let name = format!("those_who_are_to_go_on_outlive_rank_{victim}, through one of a node");
        trials.push(Trial::test(name, move || go_on(victim)));
    }
    trials
}

/// Rank 0 says how many connections it has to its own door.
pub fn count(world: World) {
    world.barrier_collective().expect("all live");
    if world.rank() == 0 {
        let root = std::env::var("LONGARM_ROOT").expect("the trial has set it");
        let port = root.parse::<SocketAddr>().expect("an address and a port").port();
        println!("connections: {}", established(port));
    }
    world.barrier_collective().expect("all live");
    world.finalize().expect("all live");
}

/// Connections of this machine whose near end is a port.
fn established(port: u16) -> usize {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the system tells its connections");
    let near = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|address| address.ends_with(&near)) && words.get(3) == Some(&ESTABLISHED)
    };
    table.lines().filter(is_one).count()
}

fn connect(coming: Coming, ranks: u32, nodes: u32, connections: u32) -> Result<(), Failed> {
    let ended = Told::start(coming, ranks, nodes, "count", &[])?.end()?;
    if let Some(rank) = ended.iter().find(|rank| !rank.success || !rank.errors.is_empty()) {
        return Err(format!("a rank complains: {}", rank.errors).into());
    }
    ended[0].expect(&format!("connections: {connections}\n"))
}

/// The first rank says nothing of its neighbours, as if it were in another container.
fn miss() -> Result<(), Failed> {
    let mut job = Told::new(Coming::Together)?;
    job.add(0, 3, 1, "count", &[("LONGARM_LOCAL_SIZE", "1")])?;
    for rank in 1..3 {
        job.add(rank, 3, 1, "count", &[])?;
    }
    job.end()?[0].expect("connections: 3\n")
}

/// All who are on another node than the victim, or not behind it, say it to rank 0 once the victim is dead, and go on to the end.
pub fn outlive(world: World, victim: u32) {
    let window = witness::window(&world);
    if world.rank() == victim {
        witness::await_others(&world, &window);
        super::deaths::die("killed");
    }
    witness::be_counted(&window, victim);
    let node_of = |rank| world.node_of(rank).expect("a rank of the world");
    let is_first = |rank: u32| (0..rank).all(|other| node_of(other) != node_of(rank));
    let dies = |rank: u32| rank == victim || (is_first(victim) && node_of(rank) == node_of(victim));
    if dies(world.rank()) {
        let error = window.wait_until(0, longarm::Compare::Equal, u64::MAX).expect_err("nobody writes this");
        println!("wait: {error}");
        witness::stay();
    }
    while window.get_one(victim, 0).is_ok() {
        std::thread::yield_now();
    }
    window.fetch_add(0, 1, 1).expect("rank 0 lives");
    let survivors = (0..world.size()).filter(|rank| !dies(*rank)).count() as u64;
    while window.get_one(0, 1).expect("rank 0 lives") < survivors {
        std::thread::yield_now();
    }
    println!("rank {} goes on", world.rank());
    drop(window);
    let _ = world.finalize();
}

/// Of three nodes with two ranks each a rank of the second dies: its first one, through which the other one comes, or that one.
fn go_on(victim: u32) -> Result<(), Failed> {
    let variables = [("LONGARM_ON_FAILURE", "continue"), ("LONGARM_REPORT_MS", "200")];
    let ended = Told::start(Coming::Together, 6, 3, &format!("outlive {victim}"), &variables)?.end()?;
    let with_it = if victim == 2 { 2..4 } else { 3..4 };
    for (rank, one) in (0..).zip(&ended) {
        if !with_it.contains(&rank) {
            one.expect(&format!("rank {rank} goes on"))?;
        } else if one.success {
            return Err(format!("rank {rank} ended as if nothing had been").into());
        }
    }
    if victim == 2 {
        ended[3].expect("wait: ")?;
        ended[3].expect("rank 2 ")?;
    }
    ended[0].expect(&format!("rank {victim} (node 1, "))?;
    ended[0].expect("; the others go on")
}
