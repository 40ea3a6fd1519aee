//! Questions to a node that is lost without a death that anybody hears of, or to which the asker's node is lost, and calls that were started and panic.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use libtest_mimic::{Failed, Trial};
use longarm::{Compare, Question, World};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::deaths::Unheard;
use super::outside::{Job, NO_HURRY};
use super::survivors::cut_server_off;

/// Who falls silent, and who panics.
const CULPRIT: u32 = 1;

/// The rank's side.
pub fn body(world: World, parameters: &str) {
    match parameters {
        "asked" => asked(&world),
        "meets" => meets(&world),
        "cut off" => cut_off(&world),
        "tries" => tries(&world),
        "panics" => panics(&world),
        "panics in the helper" => panics_in_helper(&world),
        other => panic!("{other} is nothing to play"),
    }
}

fn asked(world: &World) {
    if world.rank() == CULPRIT {
        println!("pid {}", std::process::id());
        loop {
            std::thread::park();
        }
    }
    let question = world.ask(CULPRIT, &Unheard);
    // Nothing is under way towards it any more: only the question is left.
    for _ in 0..2 {
        world.quiet().expect("it lives");
    }
    println!("asked");
    println!("answer: {}", question.wait().expect_err("nobody answers"));
}

/// The first of the other node falls silent. That rank 1 hears of it can only be by rank 0, which has a connection there.
fn meets(world: &World) -> ! {
    if world.rank() == 2 {
        println!("pid {}", std::process::id());
    }
    if world.rank() >= 2 {
        world.allocate_collective::<u64>(1).expect("all have come");
        loop {
            std::thread::park();
        }
    }
    let window = world.allocate_collective::<u64>(1);
    // That was before all were there; from here on nobody of the other node comes.
    let window = window.expect("all have come");
    println!("asked");
    let barrier = || println!("answer: {}", world.barrier_collective().expect_err("not all come"));
    barrier();
    // The first is ahead by two collectives, and each rank still hears of each.
    if world.rank() == 0 {
        barrier();
        barrier();
        window.put_one(1, 0, 1).expect("it is of this node");
    } else {
        while window.get_one(1, 0).expect("it is this rank's") == 0 {
            std::thread::yield_now();
        }
        barrier();
        barrier();
    }
    // Nobody leaves: rank 0 would take rank 1 along, which may not have said all.
    loop {
        std::thread::park();
    }
}

/// A question that is answered.
#[derive(Serialize, Deserialize)]
struct Double(u32);

impl Question for Double {
    const NUMBER: u32 = 9;
    type Answer = u32;
    type Error = ();
}

/// Nothing reaches node 0 any more, and its ranks reach node 1: rank 1 asks rank 3, whose answer has no way back.
fn cut_off(world: &World) -> ! {
    world.answer::<Double>(|_, Double(number)| Ok(2 * number)).expect("a handler");
    let window = world.allocate_collective::<u64>(1).expect("all have come");
    let step = |due| {
        while window.get_one(1, 0).expect("it is on this node") < due {
            std::thread::yield_now();
        }
    };
    if world.rank() == 0 {
        step(1);
        cut_server_off();
        window.put_one(1, 0, 2).expect("it is on this node");
        step(3);
        println!("barrier: {}", world.barrier_collective().expect_err("nobody else comes"));
    }
    if world.rank() == 1 {
        assert_eq!(world.ask(3, &Double(4)).wait().expect("an answer"), 8);
        window.put_one(1, 0, 1).expect("it is this rank's");
        step(2);
        println!("answer: {}", world.ask(3, &Double(5)).wait().expect_err("it has no way back"));
        // It is known by now.
        println!("answer: {}", world.ask(3, &Double(6)).wait().expect_err("it has no way back"));
        window.put_one(1, 0, 3).expect("it is this rank's");
        println!("barrier: {}", world.barrier_collective().expect_err("nobody else comes"));
        println!("wait: {}", window.wait_until(0, Compare::Greater, 3).expect_err("rank 3 might have done it"));
    }
    loop {
        std::thread::park();
    }
}

/// Rank 2 is alone on its node, and stopped while rank 0 tries for a mutex there and gives back one of its own, for which rank 1 waits.
fn tries(world: &World) -> ! {
    let mutexes = world.mutexes_collective(1).expect("memory is enough");
    // Before rank 1 wants it.
    let held = (world.rank() == 0).then(|| mutexes.lock(0, 0).expect("it is free"));
    world.barrier_collective().expect("all live");
    if world.rank() == 2 {
        println!("pid {}", std::process::id());
    }
    if world.rank() == 1 {
        mutexes.lock(0, 0).expect("it is given on").keep();
        println!("answer: it was given on");
    }
    if let Some(mut held) = held {
        std::io::stdin().read_line(&mut String::new()).expect("the trial says that rank 2 is stopped");
        let _asked = mutexes.start_try_lock(2, 0);
        // Until rank 1 waits, which an unlock shows that is not done at once.
        while held.start_unlock().test() {
            held = mutexes.lock(0, 0).expect("it comes");
        }
        loop {
            std::thread::park();
        }
    }
    loop {
        std::thread::park();
    }
}

/// What an executor of the program's may do.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

fn panics(world: &World) {
    let window = world.allocate_collective::<u64>(1).expect("memory is enough");
    world.barrier_collective().expect("all live");
    if world.rank() == CULPRIT {
        let mut barrier = std::pin::pin!(world.start_barrier_collective());
        let waker = Waker::from(Arc::new(Panics));
        let polled = Future::poll(barrier.as_mut(), &mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending), "the others come later");
        window.fetch_add(0, 0, 1).expect("it lives");
        loop {
            std::thread::park();
        }
    }
    if world.rank() == 0 {
        window.wait_until(0, Compare::Equal, 1).expect("all live");
    }
    // Which ends the barrier, and so the culprit.
    let _ = world.barrier_collective();
    let error = window.wait_until(0, Compare::Greater, 1).expect_err("nobody changes this word");
    println!("wait: {error}");
}

/// A mutex comes, which nobody waits for in a call: the helper thread takes the news in.
fn panics_in_helper(world: &World) {
    let window = world.allocate_collective::<u64>(2).expect("memory is enough");
    let mutexes = world.mutexes_collective(1).expect("memory is enough");
    let culprit = world.size() - 1;
    if world.rank() == 0 {
        mutexes.lock(0, 0).expect("it is free").keep();
    }
    world.barrier_collective().expect("all live");
    if world.rank() == culprit {
        let mut lock = std::pin::pin!(mutexes.start_lock(0, 0));
        let waker = Waker::from(Arc::new(Panics));
        let polled = Future::poll(lock.as_mut(), &mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending), "it is held");
        window.put_one(0, 0, 1).expect("it lives");
        loop {
            std::thread::park();
        }
    }
    if world.rank() == 0 {
        window.wait_until(0, Compare::Equal, 1).expect("all live");
        mutexes.unlock(0, 0).expect("it is held");
    }
    let error = window.wait_until(1, Compare::Greater, 0).expect_err("nobody changes this word");
    println!("wait: {error}");
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_question_to_a_node_that_falls_silent_ends_with_an_error_that_names_it", run_asked),
        Trial::test(
            "a_question_whose_answer_has_no_way_back_ends_with_an_error_that_names_who_cannot_send_it",
            run_cut_off,
        ),
        Trial::test("a_mutex_that_a_task_gives_back_is_given_on_while_another_node_leaves_a_try_unanswered", run_tries),
        Trial::test("all_ranks_of_a_node_hear_in_a_collective_that_another_node_has_fallen_silent", run_meets),
        Trial::test("a_started_call_that_panics_ends_the_job_with_its_reason (1 x 3)", || {
            run_panics((3, 1), "panics", "a thread that runs calls which were started")
        }),
        Trial::test("a_started_call_that_panics_ends_the_job_with_its_reason (2 x 2)", || {
            run_panics((4, 2), "panics", "a thread that runs calls which were started")
        }),
        Trial::test("a_waker_that_panics_where_transfers_are_moved_ends_the_job_with_its_reason", || {
            run_panics((4, 2), "panics in the helper", "the thread that moves transfers")
        }),
    ]
}

fn run_asked() -> Result<(), Failed> {
    let answers = silenced((2, 2), "asked", 1, 1)?;
    let line = &answers[0];
    if !line.starts_with("answer: message failed: rank 1 (node 1) ") || !line.ends_with("within 1 s") {
        return Err(format!("who asked says `{line}`").into());
    }
    Ok(())
}

fn run_cut_off() -> Result<(), Failed> {
    let variables = [("LONGARM_ON_FAILURE", "continue"), ("LONGARM_RECONNECT_S", "1")];
    let mut job = Job::start((4, 2), "unanswered", "cut off", &variables)?;
    let mut lines = (0..5).map(|_| job.line()).collect::<Result<Vec<_>, _>>()?;
    job.interrupt()?;
    lines.sort();
    let calls = ["answer: message", "answer: message", "barrier: collective", "barrier: collective", "wait: wait"];
    let are_right = lines.iter().zip(calls).all(|(line, call)| {
        // Rank 2, whose connection is cut too, matters to all but the questions, and may notice before them.
        let ranks = if call.starts_with("answer") { 3..=3 } else { 2..=3 };
        let of = |rank| format!("{call} failed: rank {rank} (node 1) cannot reach this node any more: ");
        ranks.into_iter().any(|rank| line.starts_with(&of(rank)))
            && line.ends_with("it could not be made anew within 1 s")
    });
    if are_right { Ok(()) } else { Err(format!("the ranks of the lost node say {lines:?}").into()) }
}

fn run_tries() -> Result<(), Failed> {
    // Longer than the job may last: nothing but the way by another lane ends the wait.
    let variables = [("LONGARM_SILENCE_MS", "600000"), ("LONGARM_WATCHDOG_S", "0")];
    let mut job = Job::start((3, 2), "unanswered", "tries", &variables)?;
    let mut pid = job.line()?;
    let pid = pid.split_off(pid.find(' ').ok_or("the culprit has no number")?);
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).ok_or("the culprit has no number")?;
    kill_process(pid, Signal::STOP)?;
    job.say("it is stopped")?;
    let line = job.line()?;
    kill_process(pid, Signal::CONT)?;
    job.interrupt()?;
    if line == "answer: it was given on" { Ok(()) } else { Err(format!("rank 1 says `{line}`").into()) }
}

fn run_meets() -> Result<(), Failed> {
    let answers = silenced((4, 2), "meets", 2, 6)?;
    let are_right = answers.iter().all(|line| line.starts_with("answer: collective failed: rank 2 (node 1) "));
    let are_said = answers.iter().filter(|line| line.ends_with("says rank 0, which speaks for this node")).count();
    if !are_right || are_said != 3 {
        return Err(format!("those who met say {answers:?}").into());
    }
    Ok(())
}

/// So many ranks wait for one that is stopped. Their answers.
fn silenced(layout: (u32, u32), way: &str, askers: usize, answers: usize) -> Result<Vec<String>, Failed> {
    let variables = [("LONGARM_ON_FAILURE", "continue"), ("LONGARM_SILENCE_MS", "200"), ("LONGARM_RECONNECT_S", "1")];
    let mut job = Job::start(layout, "unanswered", way, &variables)?;
    let (mut pid, mut asked) = (None, 0);
    while pid.is_none() || asked < askers {
        let line = job.line()?;
        asked += usize::from(line == "asked");
        pid = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok()).or(pid);
    }
    let pid = pid.and_then(Pid::from_raw).ok_or("the culprit has no number")?;
    kill_process(pid, Signal::STOP)?;
    let answers = (0..answers).map(|_| job.line()).collect::<Result<_, _>>()?;
    kill_process(pid, Signal::CONT)?;
    job.interrupt()?;
    Ok(answers)
}

fn run_panics(layout: (u32, u32), way: &str, thread: &str) -> Result<(), Failed> {
    let how = format!("aborted: {thread} panicked: on purpose");
    let mut job = Job::start(layout, "unanswered", way, &[NO_HURRY])?;
    for _ in 0..layout.0 - 1 {
        let line = job.line()?;
        if !line.starts_with("wait: ") || !line.contains(&how) {
            return Err(format!("a rank says `{line}`").into());
        }
    }
    let ended = job.end()?;
    ended.expect_status(101)?;
    ended.expect_error(&how)
}
