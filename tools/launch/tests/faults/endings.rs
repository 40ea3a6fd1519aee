//! Worlds that end otherwise than by finalize, and often: dropped with handlers and a heap, copied by a fork, ended by a handler
//! that panics.

use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use longarm::{Compare, Heap, Window, World};

use super::outside::{Job, NO_HURRY};
use crate::{BODY, PARAMETERS};

/// The handler that does what it should.
const COUNTS: u32 = 1;
/// The handler that does not.
const PANICS: u32 = 2;
/// Who does not end well.
const CULPRIT: u32 = 1;
/// What `mpiexec -n 2` says to the first of its processes.
const MPIEXEC: [(&str, &str); 2] = [("PMI_RANK", "0"), ("PMI_SIZE", "2")];
/// How often one process joins its job.
const WORLDS: usize = 12;

/// The rank's side: what it does, by name.
pub fn body(parameters: &str) {
    match parameters {
        "often" => often(),
        "dropped" => dropped(),
        "forked" => forked(),
        "joins" => joins(),
        "panics while it waits" => panics(true, false),
        "panics while it computes" => panics(false, false),
        "panics and others go on" => panics(false, true),
        other => panic!("{other} is nothing to play"),
    }
}

/// A world with all that may hold one: windows, the heap, and handlers that hold these. All ranks have spoken with all.
fn busy_world() -> (World, Window<u64>, Arc<Heap>) {
    let world = longarm::init().expect("the launcher makes a world");
    let window = world.allocate_collective::<u64>(100_000).expect("memory is enough");
    let heap = world.heap_of_collective(1 << 20).expect("memory is enough");
    let (me, counted, held) = (world.rank(), window.clone(), (Arc::clone(&heap), world.group().clone()));
    let counts = move |_: &longarm::Message<'_>| {
        let (heap, group) = &held;
        assert!(heap.free_bytes() > 0 && group.rank() == me);
        counted.fetch_add(me, 0, 1).expect("a word of this rank");
    };
    world.register_handler(COUNTS, counts).expect("the first handler");
    let words = heap.window::<u64>();
    for rank in 0..world.size() {
        world.send_message(rank, COUNTS, &[], &[]).expect("all live");
        window.put(rank, 1, &vec![7; 99_999]).expect("all live");
        words.put_one(rank, me as usize, 1).expect("all live");
    }
    window.wait_until(0, Compare::Equal, u64::from(world.size())).expect("all live");
    world.barrier_collective().expect("all live");
    (world, window, heap)
}

/// Threads, mappings and descriptors of longarm in this process, when the threads that were joined are gone.
fn held() -> (Vec<String>, usize, Vec<String>) {
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").expect("the system has /proc").flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        let ours: Vec<String> = names.filter(|name| name.starts_with("longarm-")).collect();
        // That one hears of the launcher as long as the process lives.
        if ours.iter().any(|name| name.trim() != "longarm-control") {
            std::thread::yield_now();
            continue;
        }
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the system has /proc");
        let mapped = maps.lines().filter(|line| line.contains("memfd:longarm")).count();
        return (ours, mapped, descriptors());
    }
}

/// What the descriptors of this process are, without the numbers of sockets and pipes, which are new in each world, and without that by
/// which this thread is woken: the thread has it from the first time on that it sleeps, in whichever world that is.
fn descriptors() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").expect("the system has /proc").flatten();
    let what = open.filter_map(|one| std::fs::read_link(one.path()).ok());
    let mut kinds: Vec<String> = what
        .map(|one| one.to_string_lossy().trim_end_matches(|c: char| c.is_ascii_digit() || c == ']').into())
        .collect();
    kinds.sort();
    if let Some(waker) = kinds.iter().position(|kind| kind.starts_with("anon_inode:[eventfd")) {
        kinds.remove(waker);
    }
    kinds
}

fn often() {
    let mut first = None;
    for round in 0..WORLDS {
        let (world, window, heap) = busy_world();
        let me = world.rank();
        world.finalize().expect("nobody has died");
        drop((window, heap));
        let held = held();
        assert_eq!(held.1, 0, "rank {me}: windows and the node's segment are unmapped");
        // What is made once a process is there after the first world.
        assert_eq!(first.get_or_insert_with(|| held.clone()), &held, "rank {me}, round {round}");
    }
}

/// Returns at `rank` when all have left the barrier before this: one who leaves it first may end while others are still in it.
fn all_have_passed(world: &World, window: &Window<u64>, rank: u32) {
    // Who has counted may hear of an end before it hears that it has.
    let _ = window.fetch_add(rank, 0, 1);
    if world.rank() == rank {
        window.wait_until(0, Compare::Equal, 2 * u64::from(world.size())).expect("all live");
    }
}

fn dropped() {
    let (world, window, heap) = busy_world();
    all_have_passed(&world, &window, CULPRIT);
    if world.rank() == CULPRIT {
        drop((world, window, heap));
        // It does not end by itself, which would be noticed too.
        loop {
            std::thread::park();
        }
    }
    let error = world.barrier_collective().expect_err("not all come");
    println!("barrier: {error}");
}

fn joins() {
    match longarm::init() {
        Ok(world) => {
            println!("one of {}", world.size());
            world.finalize().expect("nobody has died");
        }
        Err(error) => println!("refused: {error}"),
    }
}

fn forked() {
    let (world, window, heap) = busy_world();
    if world.rank() == CULPRIT {
        match fork::fork().expect("the system has room for a process") {
            fork::Fork::Child => {
                let refused = world.clone().finalize();
                println!("child: {}", refused.expect_err("the world is its parent's"));
                drop((window, heap, world));
                std::process::exit(0);
            }
            fork::Fork::Parent(child) => {
                let child = rustix::process::Pid::from_raw(child);
                let ended = rustix::process::waitpid(child, rustix::process::WaitOptions::empty());
                println!("child ended: {:?}", ended.expect("it is a child").map(|(_, status)| status.exit_status()));
            }
        }
    }
    // All goes on, what the server and the messages do for others included.
    let (me, size) = (world.rank(), world.size());
    for rank in 0..size {
        world.send_message(rank, COUNTS, &[], &[]).expect("all live");
        heap.window::<u64>().put_one(rank, me as usize, 2).expect("all live");
    }
    window.wait_until(0, Compare::Equal, 2 * u64::from(size)).expect("all live");
    world.barrier_collective().expect("all live");
    assert_eq!(heap.window::<u64>().get_vec(me, 0..size as usize).expect("its own"), vec![2; size as usize]);
    world.finalize().expect("nobody has died");
}

fn panics(waits: bool, others_go_on: bool) {
    let (world, window, _heap) = busy_world();
    world.register_handler(PANICS, |_| panic!("on purpose")).expect("the first of this number");
    world.barrier_collective().expect("all live");
    all_have_passed(&world, &window, 0);
    if world.rank() == CULPRIT {
        if waits {
            let _ = window.wait_until(1, Compare::Equal, 0);
        }
        loop {
            std::thread::park();
        }
    }
    if world.rank() == 0 {
        world.send_message(CULPRIT, PANICS, &[], &[]).expect("it lives");
    }
    let error = window.wait_until(1, Compare::Equal, 0).expect_err("nobody changes this word");
    println!("wait: {error}");
    if others_go_on {
        world.finalize().expect("the survivors meet");
        println!("finished");
    }
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let layouts = [(3, 1), (4, 2)];
    let named = |name: &str, (ranks, nodes): (u32, u32)| format!("{name} ({nodes} x {})", ranks / nodes);
    let managed = "who_is_started_by_a_process_manager_is_told_that_longarm_joins_nobody";
    let mut trials = vec![Trial::test(managed, run_managed)];
    for layout in layouts {
        let mut trial = |name: &str, run: fn((u32, u32)) -> Result<(), Failed>| {
            trials.push(Trial::test(named(name, layout), move || run(layout)));
        };
        trial("a_process_that_joins_often_keeps_nothing_of_the_worlds_before", run_often);
        trial("a_world_that_is_dropped_with_handlers_and_heap_ends_the_job", run_dropped);
        trial("a_child_of_a_fork_that_drops_its_copy_of_the_world_ends_nothing", run_forked);
        trial("a_handler_that_panics_ends_the_job_with_its_reason", run_panics);
        trial("where_survivors_go_on_a_handler_that_panics_ends_its_rank", run_panics_alone);
    }
    trials
}

fn run_often(layout: (u32, u32)) -> Result<(), Failed> {
    Job::start(layout, "ending", "often", &[])?.end()?.expect_status(0)
}

/// What `mpiexec -n 2` tells a process, with another variable.
fn alone_under_mpiexec(other: (&str, &str)) -> Result<String, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(BODY, "ending").env(PARAMETERS, "joins").envs(MPIEXEC).env(other.0, other.1);
    let output = command.output()?;
    Ok(String::from_utf8(output.stdout)?)
}

fn run_managed() -> Result<(), Failed> {
    let refused = alone_under_mpiexec(("LONGARM_ALONE", "no"))?;
    if !["refused: ", "PMI_SIZE=2", "longarm run", "LONGARM_ALONE=yes"].iter().all(|part| refused.contains(part)) {
        return Err(format!("a process of two is told `{refused}`").into());
    }
    let meant = alone_under_mpiexec(("LONGARM_ALONE", "yes"))?;
    let single = alone_under_mpiexec(("PMI_SIZE", "1"))?;
    if [&meant, &single].iter().any(|said| *said != "one of 1\n") {
        return Err(format!("one that is to be alone says `{meant}`, one that is `{single}`").into());
    }
    // A job inside of one process of theirs is a job of ours.
    let launched = Job::start((2, 1), "ending", "joins", &MPIEXEC)?.end()?;
    launched.expect_status(0)?;
    launched.expect_line("one of ", "one of 2")
}

fn run_dropped(layout: (u32, u32)) -> Result<(), Failed> {
    let ended = Job::start(layout, "ending", "dropped", &[])?.end()?;
    ended.expect_status(1)?;
    ended.expect_error("aborted: it left its world without finalize")?;
    ended.expect_line("barrier: ", "rank 1")
}

fn run_forked(layout: (u32, u32)) -> Result<(), Failed> {
    let ended = Job::start(layout, "ending", "forked", &[])?.end()?;
    ended.expect_status(0)?;
    ended.expect_line("child: ", "the world is that of its parent")?;
    ended.expect_line("child ended: ", "Some(Some(0))")
}

fn run_panics(layout: (u32, u32)) -> Result<(), Failed> {
    const HOW: &str = "aborted: handler 2 panicked, at a message from rank 0: on purpose";
    for way in ["panics while it waits", "panics while it computes"] {
        let mut job = Job::start(layout, "ending", way, &[NO_HURRY])?;
        for _ in 0..layout.0 - 1 {
            let line = job.line()?;
            if !line.starts_with("wait: ") || !line.contains(HOW) {
                return Err(format!("a rank says `{line}`").into());
            }
        }
        let ended = job.end()?;
        ended.expect_status(101)?;
        ended.expect_error(HOW)?;
    }
    Ok(())
}

fn run_panics_alone(layout: (u32, u32)) -> Result<(), Failed> {
    let variables = [("LONGARM_ON_FAILURE", "continue")];
    let ended = Job::start(layout, "ending", "panics and others go on", &variables)?.end()?;
    ended.expect_status(101)?;
    let others = ended.stdout.lines().filter(|line| *line == "finished").count();
    if others as u32 != layout.0 - 1 {
        return Err(format!("{others} others have finished: {ended:?}").into());
    }
    ended.expect_line("wait: ", "aborted: handler 2 panicked, at a message from rank 0: on purpose")
}
