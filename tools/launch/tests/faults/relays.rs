//! Jobs that something else has started, whose ranks speak with rank 0 through the first of their node.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Failed, Trial};
use longarm::World;

use super::crowd::OTHER_USER;
use super::started_by_others::{Coming, ExplicitJob};
use super::witness;
use crate::{BODY, PARAMETERS};

/// Namespaces that the second half of a host's ranks has for itself, and the connections that rank 0 has then.
const CONTAINERS: [(&str, usize); 4] =
    [("--ipc", 1), ("--mount", 1), ("--ipc --mount --pid --fork --kill-child", 3), ("--user", 3)];

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
    trials.push(Trial::test("strangers_who_fill_a_relays_queue_keep_no_rank_of_its_node_from_it", crowd));
    for (kinds, connections) in CONTAINERS {
        let name = format!("ranks_of_a_host_in_several_containers_make_a_world ({kinds})");
        trials.push(Trial::test(name, move || contain(kinds, connections)));
    }
    trials.push(Trial::test("ranks_of_a_host_in_a_container_without_a_way_out_are_named_and_say_so", be_apart));
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
        let coordinator = std::env::var("LONGARM_ROOT").expect("the trial has set it");
        let port = coordinator.parse::<SocketAddr>().expect("an address and a port").port();
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
    let ended = ExplicitJob::start(coming, ranks, nodes, "count", &[])?.end()?;
    if let Some(rank) = ended.iter().find(|rank| !rank.success || !rank.errors.is_empty()) {
        return Err(format!("a rank complains: {}", rank.errors).into());
    }
    ended[0].expect(&format!("connections: {connections}\n"))
}

/// The first rank says nothing of its neighbours, as if it were in another container.
fn miss() -> Result<(), Failed> {
    let mut job = ExplicitJob::new(Coming::Together)?;
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
    let ended = ExplicitJob::start(Coming::Together, 6, 3, &format!("outlive {victim}"), &variables)?.end()?;
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

/// A process of another user: it fills the queue at a name until nobody waits there any more, and says when it was full.
pub fn fill(name: &str) -> ExitCode {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    assert_eq!(rustix::process::geteuid().as_raw(), OTHER_USER);
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is a name");
    let mut was_full = false;
    loop {
        // What is closed stays in the queue.
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None);
        let socket = socket.expect("the system gives a socket");
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN) if !was_full => {
                println!("full");
                was_full = true;
            }
            Err(rustix::io::Errno::AGAIN) => {}
            Err(_) => return ExitCode::SUCCESS,
        }
    }
}

/// The name at which the relay in a process listens, as everybody sees it.
fn name_of_relay(pid: u32) -> Option<String> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let own: Vec<String> = links
        .filter_map(|link| Some(std::fs::read_link(link.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/net/unix").ok()?;
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find_map(|row| {
        let (inode, name) = (row.get(6)?, row.get(7)?.strip_prefix('@')?);
        (name.starts_with("longarm-relay-") && own.iter().any(|one| one == inode)).then(|| name.to_owned())
    })
}

/// The second node's relay waits for rank 0, and its queue is full of strangers before the other rank of its node comes.
fn crowd() -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can be another user: nothing is tested");
        return Ok(());
    }
    let mut job = ExplicitJob::new(Coming::Together)?;
    job.add(2, 4, 2, "count", &[])?;
    let pid = job.last_pid();
    let name = loop {
        match name_of_relay(pid) {
            Some(name) => break name,
            None => std::thread::yield_now(),
        }
    };
    let mut command = Command::new("/proc/self/exe");
    command.uid(OTHER_USER).env(BODY, "relay stranger").env(PARAMETERS, name).current_dir("/").stdout(Stdio::piped());
    let mut stranger = command.spawn()?;
    let mut line = String::new();
    BufReader::new(stranger.stdout.as_mut().expect("stdout is piped")).read_line(&mut line)?;
    job.add(3, 4, 2, "count", &[])?;
    job.add(0, 4, 2, "count", &[])?;
    job.add(1, 4, 2, "count", &[])?;
    let ended = job.end()?;
    let status = stranger.wait()?;
    if line != "full\n" || !status.success() {
        return Err(format!("the stranger says `{line}` and ends with {status}").into());
    }
    // In this order they were added.
    ended[2].expect("connections: 2\n")
}

/// The other half of a host's ranks is in a container with a network of its own, from which no way leads to rank 0.
fn be_apart() -> Result<(), Failed> {
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: no network of its own can be made here");
        return Ok(());
    }
    let mut job = ExplicitJob::new(Coming::Together)?;
    for rank in 0..4 {
        let starter = if rank < 2 { &[][..] } else { &["unshare", "--net"] };
        job.add_inside(starter, rank, 4, (1, "count"), &[("LONGARM_MEET_TIMEOUT_S", "3")])?;
    }
    let coordinator = job.coordinator().to_owned();
    let ended = job.end()?;
    for rank in 0..2 {
        ended[rank].expect("ranks 2-3 of 4 did not call longarm::init within 3 s")?;
        ended[rank + 2].expect(&coordinator)?;
    }
    Ok(())
}

/// Half of a host's ranks are in another container.
fn contain(kinds: &str, connections: usize) -> Result<(), Failed> {
    let starter: Vec<&str> = ["unshare"].into_iter().chain(kinds.split(' ')).collect();
    if !Command::new(starter[0]).args(&starter[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: no container can be made here with {kinds}");
        return Ok(());
    }
    let mut job = ExplicitJob::new(Coming::Together)?;
    for rank in 0..4 {
        let starter = if rank < 2 { &[][..] } else { &starter };
        job.add_inside(starter, rank, 4, (1, "count"), &[])?;
    }
    let ended = job.end()?;
    if let Some((rank, one)) = ended.iter().enumerate().find(|(_, rank)| !rank.success) {
        return Err(format!("rank {rank} ended with {}{}", one.said, one.errors).into());
    }
    ended[0].expect(&format!("connections: {connections}\n"))
}
