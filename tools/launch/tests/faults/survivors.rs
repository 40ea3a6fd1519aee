//! Ranks die and the others go on: with `LONGARM_ON_FAILURE=continue` only what needs a dead rank fails.
//!
//! A rank that takes its node's server along cuts the server off before it dies, so that what is put meanwhile is certain
//! not to be confirmed:
//!
//! ```text
//!   survivor   READY ──► answered: STEP            ──► put to the victim, which goes nowhere: STEP
//!   victim                               cuts ──► GO                                                ──► dies
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use longarm::{Compare, Group, Mutexes, Reduction, Update, Window, World};
use nix::sys::socket::{Shutdown, SockaddrIn, getsockname, shutdown};

use super::deaths::{Unheard, die, traces_of};
use super::outside::Job;

/// Where those who are ready are counted, at the victim.
const READY: usize = 0;
/// Where nothing ever happens.
const SILENT: usize = 1;
/// At a survivor: in how many rounds it may put.
const GO: usize = 2;
/// At a survivor: two a round, one when it has counted itself and one when it has put.
const STEP: usize = 3;
/// The first of the words of each round that are worked on.
const WORK: usize = 8;
const WORDS_A_ROUND: usize = 8;
/// Words that do not go by messages between nodes.
const MUCH: usize = 20_000;

/// What is known of one death before it happens.
struct Round {
    number: usize,
    victim: u32,
    /// Ranks that end in this round: the victim, and those of its node if it hosts their server.
    dying: Vec<u32>,
    survivors: Vec<u32>,
    /// The victim hosts its node's server.
    is_host: bool,
}

fn rounds(world_size: u32, node_of: impl Fn(u32) -> u32, victims: &[u32]) -> Vec<Round> {
    let mut alive: Vec<u32> = (0..world_size).collect();
    let mut rounds = Vec::new();
    for (number, victim) in victims.iter().copied().enumerate() {
        let node = node_of(victim);
        let is_host = (0..world_size).find(|rank| node_of(*rank) == node) == Some(victim);
        let ends = |rank: &u32| *rank == victim || (is_host && node_of(*rank) == node);
        let (mut dying, survivors): (Vec<u32>, Vec<u32>) = alive.iter().partition(|rank| ends(rank));
        // In the order in which they are told: the one that is the reason comes first, and is the lowest.
        dying.sort_unstable();
        alive.clone_from(&survivors);
        rounds.push(Round { number, victim, dying, survivors, is_host });
    }
    rounds
}

/// The rank's side. Parameters: the victims, one after the other, and how they die.
pub fn body(world: World, parameters: &str) {
    let (victims, way) = parameters.split_once(' ').expect("victims and a way to die");
    let victims: Vec<u32> = victims.split(',').map(|victim| victim.parse().expect("a rank")).collect();
    let window = world.allocate_collective::<u64>(WORK + WORDS_A_ROUND * victims.len()).expect("memory is enough");
    let mutexes = world.mutexes_collective(1).expect("memory is enough");
    if victims.contains(&world.rank()) {
        mutexes.lock(world.rank(), 0).expect("it is free").keep();
    }
    let node_of = |rank| world.node_of(rank).expect("a rank of the world");
    let mut dead = 0;
    let mut alive = world.group().clone();
    for round in rounds(world.size(), node_of, &victims) {
        alive.barrier_collective().expect("all members live");
        much(&alive);
        if world.rank() == round.victim {
            let others = u64::from(alive.size()) - 1;
            window.wait_until(READY, Compare::GreaterOrEqual, others).expect("nobody dies before this one");
            lead_on(&world, &window, &round);
            die(way);
        }
        dead += round.dying.len();
        if !round.survivors.contains(&world.rank()) {
            let _ = window.fetch_add(round.victim, READY, 1);
            // Ended with the victim.
            loop {
                std::thread::park();
            }
        }
        alive = survive(&world, (&window, &mutexes), &round, dead);
    }
    let me = world.rank();
    world.finalize().expect("the survivors meet");
    println!("rank {me} finished");
}

/// The victim's last steps: the survivors put, to a server that nothing reaches any more if it dies too.
fn lead_on(world: &World, window: &Window<u64>, round: &Round) {
    let now = round.number as u64 + 1;
    let await_step = |step| {
        for survivor in &round.survivors {
            while window.get_one(*survivor, STEP).expect("it lives") < step {}
        }
    };
    await_step(2 * now - 1);
    if round.is_host && !round.survivors.is_empty() {
        cut_server_off();
    }
    for survivor in &round.survivors {
        window.put_one(*survivor, GO, now).expect("it lives");
    }
    world.quiet().expect("all live");
    await_step(2 * now);
}

/// Has the server that this process hosts take in no more connections, and ends those that it has. Those of this rank to
/// other servers stay.
///
/// Returns once the server has let go of each of them: an RDMA device goes on with what peers ask of it until then.
pub(super) fn cut_server_off() {
    let before = descriptors();
    let port = |number: i32| getsockname::<SockaddrIn>(number).ok().map(|address| address.port());
    let listening = listening_sockets();
    let listens = |number: &i32| listening.contains(&before[number]);
    let sockets = before.keys().copied().filter(|number| port(*number).is_some());
    let (listeners, others): (Vec<i32>, Vec<i32>) = sockets.partition(listens);
    let [listener] = listeners[..] else { panic!("one server listens in this process, not {}", listeners.len()) };
    let served: Vec<i32> = others.into_iter().filter(|connection| port(*connection) == port(listener)).collect();
    assert!(!served.is_empty(), "the others have counted themselves here");
    shutdown(listener, Shutdown::Both).expect("nobody else ends it");
    // One may have been ended by its own rank, or anew: who is not connected any more does not matter.
    for connection in &served {
        let _ = shutdown(*connection, Shutdown::Both);
    }
    let is_open = |number, now: &BTreeMap<i32, PathBuf>| now.get(number) == before.get(number);
    while served.iter().any(|number| is_open(number, &descriptors())) {
        std::thread::yield_now();
    }
}

/// What the descriptors of sockets lead to that listen. A socket that is being connected has no peer either.
fn listening_sockets() -> Vec<PathBuf> {
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/self/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines());
    let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    // 0A: it listens.
    let inodes = fields.filter(|fields| fields.get(3) == Some(&"0A")).filter_map(|fields| fields.get(9).copied());
    inodes.map(|inode| format!("socket:[{inode}]").into()).collect()
}

/// The descriptors of this process, and which socket each of them is: a number may soon be that of another one.
fn descriptors() -> BTreeMap<i32, PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("Linux has it").flatten();
    let open = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    open.filter_map(|(number, path)| Some((number, std::fs::read_link(path).ok()?))).collect()
}

/// From before a death to after it, at a rank that goes on. Gives the group of those who live.
fn survive(world: &World, (window, mutexes): (&Window<u64>, &Mutexes), round: &Round, dead: usize) -> Group {
    let (me, number) = (world.rank(), round.number);
    let early = world.subgroup_collective(&round.survivors).expect("all of them live");
    std::thread::scope(|scope| {
        // Collectives of those who live, over the moment of the death.
        let busy = scope.spawn(|| {
            let mut seen = [0_u64];
            while seen[0] == 0 {
                seen = [u64::from(world.deaths().len() >= dead)];
                early.allreduce_collective(Reduction::Min, &mut seen).expect("no member dies");
            }
        });
        // What others bring to its end, over the same moment: it has to be told of the death.
        let lock = scope.spawn(|| mutexes.start_lock(round.victim, 0).wait().map(drop));
        let question = world.ask(round.victim, &Unheard);
        window.fetch_add(round.victim, READY, 1).expect("the victim waits for more");
        let now = number as u64 + 1;
        window.put_one(me, STEP, 2 * now - 1).expect("one's own");
        window.wait_until(GO, Compare::Equal, now).expect("the victim waits for more");
        window.put_one(round.victim, WORK, 1).expect("nobody knows yet that it cannot arrive");
        window.put_one(me, STEP, 2 * now).expect("one's own");
        let error = window.wait_until(SILENT, Compare::NotEqual, 0).expect_err("nobody changes this word");
        println!("rank {me}, round {number}, wait: {error}");
        busy.join().expect("collectives do not panic");
        let error = lock.join().expect("locks do not panic").expect_err("its host has died");
        println!("rank {me}, round {number}, lock: {error}");
        let error = question.wait().expect_err("nobody answers");
        println!("rank {me}, round {number}, question: {error}");
    });
    let known = world.acknowledge_deaths();
    let told: Vec<String> =
        known.iter().map(|death| format!("{} of node {} {}", death.rank, death.node, death.how)).collect();
    println!("rank {me}, round {number}, deaths: {}", told.join("; "));
    let lost = world.quiet().err().map_or("nothing is lost".into(), |error| error.to_string());
    println!("rank {me}, round {number}, quiet: {lost}");
    world.quiet().expect("a loss is told once");
    let needed = window.get_one(round.victim, WORK).expect_err("it is dead");
    println!("rank {me}, round {number}, get: {needed}");
    let needed = world.barrier_collective().expect_err("a member is dead");
    println!("rank {me}, round {number}, barrier: {needed}");
    let group = world.subgroup_collective(&round.survivors).expect("all of them live");
    work(&group, window, round);
    group
}

/// What survivors do with each other: all of it works as if the dead had never been there.
fn work(group: &Group, window: &Window<u64>, round: &Round) {
    let word = WORK + WORDS_A_ROUND * round.number;
    let (place, size) = (group.rank(), group.size());
    let next = group.world_rank((place + 1) % size).expect("a place");
    let mine = u64::from(place) + 100;
    window.put_one(next, word, mine).expect("it lives");
    window.accumulate(next, word + 1, Update::Sum, &[mine]).expect("it lives");
    window.fetch_add(next, word + 2, mine).expect("it lives");
    group.barrier_collective().expect("nothing was issued to the dead");
    let before = u64::from((place + size - 1) % size) + 100;
    let me = round.survivors[place as usize];
    assert_eq!(window.get_vec(me, word..word + 3).expect("one's own"), [before; 3]);
    // One after the other waits for its turn; the deaths are known and end no wait.
    if place > 0 {
        window.wait_until(word + 3, Compare::Equal, 1).expect("all who could change it live");
    }
    if place + 1 < size {
        window.fetch_add(next, word + 3, 1).expect("it lives");
    }
    let fresh = group.allocate_collective::<u64>(4).expect("memory is enough");
    fresh.put_one(next, 0, mine).expect("it lives");
    group.barrier_collective().expect("all members live");
    assert_eq!(fresh.get_one(me, 0).expect("one's own"), before);
    fresh.free_collective().expect("all members live");
    let half = group.split_collective(Some(place % 2), 0).expect("all members live").expect("a member");
    assert_eq!(half.size(), (size + 1 - place % 2) / 2);
    much(group);
    much(&half);
    println!("rank {me}, round {} done", round.number);
}

/// Collectives on much data.
fn much(group: &Group) {
    let (place, size) = (u64::from(group.rank()), u64::from(group.size()));
    let mut sum = vec![place; MUCH];
    group.allreduce_collective(Reduction::Sum, &mut sum).expect("all members live");
    assert_eq!(sum, vec![size * (size - 1) / 2; MUCH]);
    let all = group.allgather_collective(&vec![place; MUCH]).expect("all members live");
    assert!(all.into_iter().eq((0..size).flat_map(|from| std::iter::repeat_n(from, MUCH))));
}

struct Case {
    layout: (u32, u32),
    victims: &'static [u32],
    way: &'static str,
}

const CASES: [Case; 7] = [
    Case { layout: (4, 1), victims: &[3], way: "exits" },
    Case { layout: (4, 2), victims: &[3], way: "killed" },
    Case { layout: (4, 2), victims: &[1], way: "panics" },
    Case { layout: (5, 2), victims: &[3], way: "killed" },
    Case { layout: (4, 2), victims: &[0], way: "killed" },
    Case { layout: (4, 4), victims: &[1, 3], way: "returns" },
    Case { layout: (6, 3), victims: &[5, 2], way: "killed" },
];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let name = |case: &Case| {
        let Case { layout: (ranks, nodes), victims, way } = case;
        let victims: Vec<String> = victims.iter().map(u32::to_string).collect();
        let victims = victims.join("_and_");
        format!("rank_{victims}_of_{ranks}_on_{nodes}_nodes_{way}_and_the_others_go_on_to_their_end")
    };
    let mut trials: Vec<Trial> = CASES.into_iter().map(|case| Trial::test(name(&case), move || run(&case))).collect();
    trials.push(Trial::test("where_the_only_node_loses_its_server_nobody_is_left", lose_the_only_node));
    trials
}

/// A server that is cut off is called again for longer than anything here takes: only deaths end what waits for it.
const GO_ON: &[(&str, &str)] = &[("LONGARM_ON_FAILURE", "continue"), ("LONGARM_RECONNECT_S", "3600")];

fn run(case: &Case) -> Result<(), Failed> {
    let Case { layout: (ranks, nodes), victims, way } = case;
    let list: Vec<String> = victims.iter().map(u32::to_string).collect();
    let job = Job::start((*ranks, *nodes), "survivors", &format!("{} {way}", list.join(",")), GO_ON)?;
    let ended = job.end()?;
    let (status, how) = traces_of(way);
    ended.expect_status(status)?;
    // As the launcher spreads them.
    let (each, larger) = (ranks / nodes, ranks % nodes);
    let node_of = |rank| if rank < larger * (each + 1) { rank / (each + 1) } else { (rank - larger) / each };
    let mut told = Vec::new();
    let rounds = rounds(*ranks, node_of, victims);
    let finished = &rounds.last().expect("somebody dies").survivors;
    for Round { number, victim, dying, survivors, is_host } in &rounds {
        let node = node_of(*victim);
        told.push(format!("{victim} of node {node} {how}"));
        let along = format!("was ended because rank {victim}, the host of its node's server, {how}");
        told.extend(dying[1..].iter().map(|rank| format!("{rank} of node {node} {along}")));
        let lines = ended.stderr.lines().filter(|line| line.starts_with(&format!("longarm: rank {victim} ")));
        let [line] = lines.collect::<Vec<_>>()[..] else {
            return Err(format!("the launcher does not speak once of rank {victim}:\n{}", ended.stderr).into());
        };
        let along =
            if dying.len() > 1 { " along, whose server it hosted; the others go on" } else { "; the others go on" };
        if !line.contains(how) || !line.ends_with(along) || line.contains("along") != (dying.len() > 1) {
            return Err(format!("the launcher says `{line}`").into());
        }
        for rank in survivors {
            let start = format!("rank {rank}, round {number}");
            ended.expect_line(&format!("{start}, wait: "), &format!("rank {victim} (node {node}) {how}"))?;
            ended.expect_line(&format!("{start}, get: "), &format!("rank {victim} (node {node}) {how}"))?;
            // The server may have known of it first, and not how.
            ended.expect_line(&format!("{start}, lock: "), &format!("rank {victim} (node {node}) "))?;
            ended.expect_line(&format!("{start}, question: "), &format!("rank {victim} (node {node}) {how}"))?;
            // What was put between nodes is lost with the server that could not confirm it.
            let part = format!("rank {victim} (node {node}) {how}");
            ended.expect_line(&format!("{start}, quiet: "), if *is_host { &part } else { "nothing is lost" })?;
            ended.expect_line(&format!("{start}, barrier: "), "failed: rank ")?;
            ended.expect_line(&format!("{start}, deaths: "), &format!(": {}", told.join("; ")))?;
            ended.expect_line(&format!("{start} done"), "")?;
        }
    }
    finished.iter().try_for_each(|rank| ended.expect_line(&format!("rank {rank} finished"), ""))
}

fn lose_the_only_node() -> Result<(), Failed> {
    let ended = Job::start((3, 1), "survivors", "0 killed", GO_ON)?.end()?;
    ended.expect_status(137)?;
    let part =
        "was killed by signal 9 (SIGKILL), and takes ranks 1-2 of node 0 along, whose server it hosted; nobody is left";
    if ended.stderr.lines().count() != 1 || !ended.stderr.contains(part) {
        return Err(format!("the launcher does not say `{part}`, and nothing else, but:\n{}", ended.stderr).into());
    }
    Ok(())
}
