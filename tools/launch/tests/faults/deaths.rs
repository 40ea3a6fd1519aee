//! A rank dies while all others wait for it, in every call there is: each names it, except the calls for mutexes that it
//! held and did not host, which go to others.

use std::convert::Infallible;

use libtest_mimic::{Failed, Trial};
use longarm::error::MutexError;
use longarm::{Compare, Group, MutexGuard, Mutexes, Question, Update, Window, World};
use serde::{Deserialize, Serialize};

use super::outside::{Job, NO_HURRY};

/// Words of each part: large transfers are streamed.
const WORDS: usize = 1 << 17;
/// Where those who are ready are counted, at the victim.
const READY: usize = 0;
/// Where nothing ever happens.
const SILENT: usize = 1;
/// The first of the words that are worked on.
const BUSY: usize = 64;
/// Nobody registers it: messages to it are kept.
const HANDLER: u32 = 9;
/// The mutex that the victim holds and hosts, for those who await it.
const STARTED: u64 = 4;

/// A question that nobody answers: it is kept, as its handler is never registered.
#[derive(Serialize, Deserialize)]
pub struct Unheard;

impl Question for Unheard {
    const NUMBER: u32 = 8;
    type Answer = ();
    type Error = ();
}

/// Calls that wait for the victim as the holder of a mutex that another rank hosts, perhaps.
const LOCK_AT_FIRST: &str = "lock at rank 0";
const LOCK_AT_LAST: &str = "lock at the last rank";
/// What they say who get it after the victim, and after each other.
const INHERITED: &str = "taken from a holder that died";
const GIVEN: &str = "taken after it was given back";

/// What a rank of the job has in its hands.
#[derive(Clone)]
struct Setting {
    world: World,
    window: Window<u64>,
    mutexes: Mutexes,
    victim: u32,
}

type Never = Result<Infallible, String>;
type NextCall = fn(&Setting) -> Result<(), String>;
type Call = fn(&Setting, &Group) -> Never;

/// Calls that wait for others, or come back to the victim again and again.
const COLLECTIVES: [(&str, Call); 20] = [
    ("barrier", |_, group| once(group.barrier_collective())),
    ("sync", |_, group| once(group.sync_collective())),
    ("broadcast", |setting, group| once(group.broadcast_collective(setting.victim, &mut [0_u64; 3000]))),
    ("allreduce", |_, group| once(group.allreduce_collective(longarm::Reduction::Sum, &mut [1_u64]))),
    ("alltoall", |_, group| once(group.alltoall_collective(&vec![1_u64; group.size() as usize]))),
    ("large broadcast", |setting, group| once(group.broadcast_collective(setting.victim, &mut vec![0_u64; WORDS]))),
    ("large allreduce", |_, group| once(group.allreduce_collective(longarm::Reduction::Sum, &mut vec![1_u64; WORDS]))),
    ("large alltoall", |_, group| once(group.alltoall_collective(&vec![1_u64; WORDS * group.size() as usize]))),
    ("allocate", |_, group| once(group.allocate_collective::<u64>(100))),
    ("split", |_, group| once(group.split_collective(Some(1), 0))),
    ("wait_until", |setting, _| once(setting.window.wait_until(SILENT, Compare::NotEqual, 0))),
    ("lock at the victim", |setting, _| once(setting.mutexes.lock(setting.victim, 0).map(drop))),
    (LOCK_AT_FIRST, |setting, _| taken(setting.mutexes.lock(0, 1))),
    (LOCK_AT_LAST, |setting, _| taken(setting.mutexes.lock(setting.world.size() - 1, 2))),
    ("message", |setting, _| again(|| setting.world.send_message(setting.victim, HANDLER, &[1], &[7; 100]))),
    ("started barrier", |_, group| once(group.start_barrier_collective().wait())),
    ("started broadcast", |setting, group| {
        once(group.start_broadcast_collective(setting.victim, vec![0_u64; 3000]).wait())
    }),
    ("started wait", |setting, _| once(setting.window.start_wait_until(SILENT, Compare::NotEqual, 0).wait())),
    ("started lock", |setting, _| once(setting.mutexes.start_lock(setting.victim, STARTED).wait().map(drop))),
    ("question", |setting, _| once(setting.world.ask(setting.victim, &Unheard).wait())),
];

const TRANSFERS: [(&str, Call); 11] = [
    ("get", |setting, _| again(|| setting.window.get_one(setting.victim, BUSY))),
    ("large get", |setting, _| again(|| setting.window.get_vec(setting.victim, BUSY..BUSY + WORDS - BUSY))),
    ("put", |setting, _| {
        let large = vec![1; WORDS - BUSY];
        again(|| setting.window.put(setting.victim, BUSY, &large))
    }),
    ("quiet_rank", |setting, _| {
        again(|| {
            setting.window.put_one(setting.victim, BUSY, 1)?;
            setting.world.quiet_rank(setting.victim)
        })
    }),
    ("quiet", |setting, _| {
        again(|| {
            setting.window.put_one(setting.victim, BUSY, 1)?;
            setting.world.quiet()
        })
    }),
    ("started quiet", |setting, _| {
        again(|| {
            setting.window.put_one(setting.victim, BUSY, 1)?;
            setting.world.start_quiet().wait()
        })
    }),
    ("rmw", |setting, _| again(|| setting.window.fetch_add(setting.victim, BUSY, 1))),
    ("accumulate", |setting, _| {
        let large = vec![1; 50_000];
        again(|| setting.window.accumulate(setting.victim, BUSY, Update::Sum, &large))
    }),
    ("handle", |setting, _| again(|| setting.window.start_get(setting.victim, BUSY, vec![0; 1000])?.wait())),
    ("await", |setting, _| {
        again(|| futures_lite::future::block_on(setting.window.start_get(setting.victim, BUSY, vec![0; 1000])?))
    }),
    ("scope", |setting, _| {
        let source = [1; 500];
        again(|| setting.world.scope(|scope| scope.put(&setting.window, setting.victim, BUSY, &source)))
    }),
];

/// What a rank that knows of the death calls next.
const NEXT: [(&str, NextCall); 13] = [
    ("put", |setting| said(setting.window.put_one(setting.victim, BUSY, 1))),
    ("get", |setting| said(setting.window.get_one(setting.victim, BUSY))),
    ("accumulate", |setting| said(setting.window.accumulate(setting.victim, BUSY, Update::Sum, &[1]))),
    ("rmw", |setting| said(setting.window.fetch_add(setting.victim, BUSY, 1))),
    ("started get", |setting| said(setting.window.start_get(setting.victim, BUSY, vec![0]).and_then(|get| get.wait()))),
    ("lock", |setting| said(setting.mutexes.lock(setting.victim, 3).map(drop))),
    ("started lock", |setting| said(setting.mutexes.start_lock(setting.victim, STARTED).wait().map(drop))),
    ("started barrier", |setting| said(setting.world.start_barrier_collective().wait())),
    ("question", |setting| said(setting.world.ask(setting.victim, &Unheard).wait())),
    ("message", |setting| said(setting.world.send_message(setting.victim, HANDLER, &[], &[]))),
    ("quiet_rank", |setting| said(setting.world.quiet_rank(setting.victim))),
    ("barrier", |setting| said(setting.world.barrier_collective())),
    ("wait_until", |setting| said(setting.window.wait_until(SILENT, Compare::NotEqual, 0))),
];

fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.to_string())
}

fn once<T, E: std::fmt::Display>(result: Result<T, E>) -> Never {
    match result {
        Ok(_) => Err("it came back as if nothing had happened".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn taken(lock: Result<MutexGuard<'_>, MutexError>) -> Never {
    Err(match lock {
        Ok(guard) if guard.previous_holder_died() => INHERITED.into(),
        Ok(_) => GIVEN.into(),
        Err(error) => error.to_string(),
    })
}

fn again<T, E: std::fmt::Display>(mut call: impl FnMut() -> Result<T, E>) -> Never {
    loop {
        call().map_err(|error| error.to_string())?;
    }
}

/// The rank's side. Parameters: the victim, how it dies, and which calls wait for it.
pub fn body(world: World, parameters: &str) {
    let mut words = parameters.split(' ');
    let victim = words.next().and_then(|word| word.parse().ok()).expect("the victim's number");
    let (way, calls) = (words.next().expect("a way to die"), words.next().expect("calls"));
    let calls: &[(&str, Call)] = if calls == "collectives" { &COLLECTIVES } else { &TRANSFERS };
    let groups: Vec<Group> =
        calls.iter().map(|_| world.split_collective(Some(0), 0).expect("all live").expect("a member")).collect();
    let window = world.allocate_collective(WORDS).expect("memory is enough");
    let mutexes = world.mutexes_collective(STARTED + 1).expect("memory is enough");
    let setting = Setting { window, mutexes, victim, world: world.clone() };
    let others = world.size() - 1;
    if world.rank() == victim {
        for (host, number) in [(victim, 0), (0, 1), (others, 2), (victim, STARTED)] {
            // A guard would unlock when the victim panics.
            setting.mutexes.lock(host, number).expect("it is free").keep();
        }
    }
    world.barrier_collective().expect("all live");
    if world.rank() == victim {
        let all = u64::from(others) * calls.len() as u64;
        setting.window.wait_until(READY, Compare::GreaterOrEqual, all).expect("all live");
        die(way);
    }
    let me = world.rank();
    std::thread::scope(|scope| {
        for ((name, call), group) in calls.iter().zip(&groups) {
            let setting = &setting;
            scope.spawn(move || {
                // The victim may be gone before it has answered.
                let _ = setting.window.fetch_add(victim, READY, 1);
                let Err(error) = call(setting, group);
                println!("rank {me}, {name}: {error}");
            });
        }
    });
    while world.deaths().is_empty() {
        std::thread::yield_now();
    }
    for (name, call) in NEXT {
        let error = call(&setting).err().unwrap_or("it came back as if nothing had happened".into());
        println!("rank {me}, next {name}: {error}");
    }
    // A rank that leaves would be missed by others, who would speak of it instead of the victim. The test ends us.
    loop {
        std::thread::park();
    }
}

/// A rank's side, where the first thing that is asked of a server is asked when it has died.
pub fn first_call_body(world: World) {
    let mutexes = world.mutexes_collective(1).expect("memory is enough");
    let last = world.size() - 1;
    if world.rank() == 0 {
        mutexes.lock(last, 0).expect("it is free").keep();
    }
    world.barrier_collective().expect("all live");
    if world.rank() != 0 {
        // The memory is mapped here from now on: the server does not have to be asked where it is.
        assert!(mutexes.try_lock(last, 0).expect("all live").is_none());
    }
    world.barrier_collective().expect("all live");
    if world.rank() == 0 {
        die("killed");
    }
    // Deaths are told one after the other: who knows of the second one has done all that the first one asks for.
    let known = if world.rank() == 1 { 1 } else { 2 };
    while world.deaths().len() < known {
        std::thread::yield_now();
    }
    if world.rank() == 1 {
        die("killed");
    }
    let Err(error) = taken(mutexes.lock(last, 0));
    println!("rank {}, lock: {error}", world.rank());
    loop {
        std::thread::park();
    }
}

/// Ends this process.
pub fn die(way: &str) -> ! {
    match way {
        "exits" => std::process::exit(3),
        "panics" => panic!("this is the end of the victim"),
        "returns" => {
            // As a program does that forgets to finalize: no destructor runs either.
            std::process::exit(0)
        }
        "killed" => {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).expect("one may kill oneself");
            unreachable!("no one survives this signal")
        }
        other => panic!("{other} is no way to die"),
    }
}

/// Status of the launcher, and what others are told.
pub fn traces_of(way: &str) -> (i32, &'static str) {
    match way {
        "exits" => (3, "exited with status 3"),
        "panics" => (101, "aborted: it panicked"),
        "returns" => (1, "exited with status 0 without finalizing"),
        _ => (137, "was killed by signal 9 (SIGKILL)"),
    }
}

struct Case {
    layout: (u32, u32),
    victim: u32,
    way: &'static str,
    calls: &'static str,
    /// Where nodes have routers: how many connections a node may have.
    connections_max: Option<&'static str>,
}

/// Leaders host the servers of their nodes; with 4 ranks on 2 nodes these are 0 and 2.
const CASES: [Case; 15] = [
    Case { layout: (4, 2), victim: 2, way: "killed", calls: "collectives", connections_max: None },
    Case { layout: (4, 2), victim: 2, way: "killed", calls: "transfers", connections_max: None },
    Case { layout: (4, 2), victim: 3, way: "killed", calls: "collectives", connections_max: None },
    Case { layout: (4, 2), victim: 3, way: "killed", calls: "transfers", connections_max: None },
    Case { layout: (4, 2), victim: 2, way: "exits", calls: "collectives", connections_max: None },
    Case { layout: (4, 2), victim: 1, way: "exits", calls: "transfers", connections_max: None },
    Case { layout: (4, 2), victim: 3, way: "panics", calls: "collectives", connections_max: None },
    Case { layout: (4, 2), victim: 2, way: "panics", calls: "transfers", connections_max: None },
    Case { layout: (4, 1), victim: 0, way: "killed", calls: "collectives", connections_max: None },
    Case { layout: (4, 1), victim: 1, way: "returns", calls: "transfers", connections_max: None },
    Case { layout: (4, 4), victim: 1, way: "killed", calls: "collectives", connections_max: None },
    Case { layout: (4, 2), victim: 2, way: "killed", calls: "transfers", connections_max: Some("0") },
    Case { layout: (4, 2), victim: 3, way: "killed", calls: "transfers", connections_max: Some("0") },
    Case { layout: (4, 4), victim: 1, way: "killed", calls: "collectives", connections_max: Some("0") },
    Case { layout: (4, 4), victim: 1, way: "killed", calls: "transfers", connections_max: Some("2") },
];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let name = |case: &Case| {
        let Case { layout: (ranks, nodes), victim, way, calls, connections_max } = case;
        let kind = match connections_max {
            None => "",
            Some("0") => "routed_",
            Some(_) => "partly_routed_",
        };
        format!("rank_{victim}_of_{ranks}_on_{nodes}_{kind}nodes_{way}_and_all_{calls}_name_it")
    };
    let mut trials: Vec<Trial> = CASES.into_iter().map(|case| Trial::test(name(&case), move || run(&case))).collect();
    trials.push(Trial::test("a_server_that_has_died_is_not_called_for_the_first_time", run_first_call));
    trials
}

fn run_first_call() -> Result<(), Failed> {
    // Who calls it tries for longer than the job may take.
    let variables = [NO_HURRY, ("LONGARM_CONNECT_TIMEOUT_S", "3600")];
    let ended = Job::start((4, 1), "first call", "", &variables)?.end_after(2, |line| line.contains(", lock: "))?;
    ended.expect_status(137)?;
    (2..4).try_for_each(|survivor| ended.expect_line(&format!("rank {survivor}, lock: "), "rank 0 (node 0) was killed"))
}

fn run(case: &Case) -> Result<(), Failed> {
    let Case { layout, victim, way, calls, connections_max } = case;
    let mut variables = vec![NO_HURRY];
    variables.extend(connections_max.map(|max| ("LONGARM_CONNECTIONS_MAX", max)));
    let job = Job::start(*layout, "death", &format!("{victim} {way} {calls}"), &variables)?;
    let last = format!(", next {}: ", NEXT[NEXT.len() - 1].0);
    let ended = job.end_after(layout.0 as usize - 1, |line| line.contains(&last))?;
    let (status, how) = traces_of(way);
    ended.expect_status(status)?;
    let node = victim / (layout.0 / layout.1);
    let said = ended
        .stderr
        .lines()
        .any(|line| line.starts_with(&format!("longarm: rank {victim} (node {node}, pid ")) && line.contains(how));
    if !said {
        return Err(format!("the launcher does not say that rank {victim} {how}: {}", ended.stderr).into());
    }
    let calls: &[(&str, Call)] = if *calls == "collectives" { &COLLECTIVES } else { &TRANSFERS };
    for survivor in (0..layout.0).filter(|rank| rank != victim) {
        for (name, _) in calls.iter().filter(|(name, _)| !is_inherited(case, name)) {
            ended.expect_line(&format!("rank {survivor}, {name}: "), &format!("rank {victim} (node {node})"))?;
        }
        for (name, _) in NEXT {
            let part = format!("rank {victim} (node {node}) {how}");
            ended.expect_line(&format!("rank {survivor}, next {name}: "), &part)?;
        }
    }
    for (name, _) in calls.iter().filter(|(name, _)| is_inherited(case, name)) {
        let said =
            |what: &str| ended.stdout.lines().filter(|line| line.ends_with(&format!(", {name}: {what}"))).count();
        let (inherited, given) = (said(INHERITED), said(GIVEN));
        if (inherited, given) != (1, layout.0 as usize - 2) {
            let reason = format!("{name}: {inherited} inherited it, and {given} got it from a living one");
            return Err(format!("{reason}; all of it:\n{}\n{}", ended.stdout, ended.stderr).into());
        }
    }
    Ok(())
}

/// Whether the call waits for a mutex that outlives the victim: neither its host nor the server of its node is gone.
fn is_inherited(case: &Case, call: &str) -> bool {
    let (ranks, nodes) = case.layout;
    let host = match call {
        LOCK_AT_FIRST => 0,
        LOCK_AT_LAST => ranks - 1,
        _ => return false,
    };
    let server = host - host % (ranks / nodes);
    case.victim != host && case.victim != server
}
