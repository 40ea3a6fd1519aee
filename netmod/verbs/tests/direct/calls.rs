//! The system calls that transfers make, as strace sees them.

use std::io::Read;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};

use longarm_memory::Region;
use longarm_netmod::{DeviceRmw, DirectOutcome, DirectSource, Netmod, Reach, Wish};
use longarm_proto::{WindowId, WindowRef};
use longarm_verbs::Watched;

use crate::{Memory, PART, Pair, step};

/// Watches the thread that made it.
struct SystemCalls {
    strace: Child,
    log: PathBuf,
}

/// Made by nothing that is counted here.
const MARK: &str = "getppid(";

impl SystemCalls {
    /// `None` where there is no strace, or where it may not watch.
    fn of_this_thread() -> Option<SystemCalls> {
        let thread = rustix::thread::gettid();
        let log = std::env::temp_dir().join(format!("system-calls-{thread}"));
        let mut command = Command::new("strace");
        command.args(["-qq", "-o"]).arg(&log).args(["-p", &thread.to_string()]).stderr(Stdio::piped());
        let Ok(mut strace) = command.spawn() else {
            crate::skipped::skipped("strace is not installed");
            return None;
        };
        let watcher = format!("TracerPid:\t{}", strace.id());
        let watched = || {
            let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
            status.expect("this thread lives").lines().any(|line| line == watcher)
        };
        while !watched() {
            if strace.try_wait().expect("it is our child").is_some() {
                let mut why = String::new();
                let _ = strace.stderr.take().expect("it is piped").read_to_string(&mut why);
                crate::skipped::skipped(&format!("strace watches nothing ({})", why.trim()));
                return None;
            }
            std::thread::yield_now();
        }
        Some(SystemCalls { strace, log })
    }

    /// Between a first and a second, a third and a fourth of these, calls are counted.
    fn mark(&self) {
        let _ = rustix::process::getppid();
    }

    /// What was called between each pair of marks.
    fn between_marks(mut self) -> Vec<Vec<String>> {
        // It lets go of us, and writes what it has.
        let strace = rustix::process::Pid::from_child(&self.strace);
        rustix::process::kill_process(strace, rustix::process::Signal::INT).expect("it is our child");
        self.strace.wait().expect("it is our child");
        let text = std::fs::read_to_string(&self.log).expect("strace has written it");
        let _ = std::fs::remove_file(&self.log);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let parts: Vec<&[String]> = lines.split(|line| line.starts_with(MARK)).collect();
        parts.into_iter().skip(1).step_by(2).map(<[String]>::to_vec).collect()
    }
}

/// What is done, whether the kernel is asked if memory is about to change, and how it is done.
type Path<'a> = (&'a str, bool, &'a dyn Fn(&mut Pair));

/// How often something is done whose system calls are counted.
const CALLS: u64 = 20;

/// Only the origin moves, and looks without asking the system for anything.
fn outcome(pair: &mut Pair) -> DirectOutcome {
    loop {
        step(&mut *pair.caller);
        if let Some((_, outcome)) = pair.caller.direct().and_then(|access| access.take_outcome()) {
            return outcome;
        }
        std::hint::spin_loop();
    }
}

/// The origin's device is made of software: of such the kernel says which interface they are on, or they are on none of the
/// machine's buses.
fn origin_is_soft() -> bool {
    let name = &longarm_verbs::device_names()[0];
    let folder = FilePath::new("/sys/class/infiniband").join(name);
    folder.join("parent").exists() || !folder.join("device").exists()
}

/// Over iWARP a read behind each put tells that it has arrived.
fn requests_of(what: &str) -> u64 {
    1 + u64::from(Pair::is_iwarp() && what.contains("put"))
}

#[test]
fn each_path_makes_the_system_calls_that_the_book_says() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    let Some(calls) = SystemCalls::of_this_thread() else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    let (word, page) = ([5; 8], vec![6; 4096]);
    let (known, known_too) = (Memory::new(64 << 10).fill(1), Memory::new(1 << 20).fill(2));
    let in_window = Memory::new(64 << 10).fill(3);
    let _held = pair.origin.remote_memory().unwrap().hold(in_window.0);
    let paths: [Path<'_>; 8] = [
        ("inline put of 8 B", false, &|pair| pair.put(1, 64, DirectSource::Copied(Region::from_slice(&word)), 8)),
        ("put of 4 KiB through a buffer", false, &|pair| {
            pair.put(1, 64, DirectSource::Copied(Region::from_slice(&page)), 4096);
        }),
        ("get of 8 B through a buffer", false, &|pair| pair.get(1, 64, Memory(known.0.slice(0, 8)))),
        ("put of 64 KiB of known memory", true, &|pair| pair.put(1, 64, DirectSource::Lent(Box::new(known)), 64 << 10)),
        ("get of 64 KiB into known memory", true, &|pair| pair.get(1, 64, known)),
        ("put of 64 KiB of a window", false, &|pair| {
            pair.put(1, 64, DirectSource::Lent(Box::new(in_window)), 64 << 10);
        }),
        ("get of 64 KiB into a window", false, &|pair| pair.get(1, 64, in_window)),
        ("put of 1 MiB of known memory", true, &|pair| {
            pair.put(1, 64, DirectSource::Lent(Box::new(known_too)), 1 << 20)
        }),
    ];
    for (what, _, path) in &paths {
        let once = |pair: &mut Pair| {
            path(pair);
            assert_eq!(outcome(pair), DirectOutcome::Done, "{what}");
        };
        // What memory there is, and which is registered, is settled by the first.
        once(&mut pair);
        let before = pair.origin.counts().unwrap();
        calls.mark();
        for _ in 0..CALLS {
            once(&mut pair);
        }
        calls.mark();
        let doorbells = pair.origin.counts().unwrap().doorbells - before.doorbells;
        assert_eq!(doorbells, CALLS * requests_of(what), "{what}");
    }
    let watch = pair.origin.cache_statistics().unwrap().watch;
    // A card's doorbell is a store. Who has no card asks the kernel.
    let rings_due = |what: &str| if origin_is_soft() { CALLS * requests_of(what) } else { 0 };
    let made = calls.between_marks();
    assert_eq!(made.len(), paths.len());
    for ((what, asks, _), mut made) in paths.iter().zip(made) {
        // Who looks again and again asks the connection manager once in a while, which has nothing to say.
        made.retain(|call| !(Pair::is_iwarp() && call.contains("EAGAIN")));
        if *asks && watch == Watched::Off {
            eprintln!("{what}: this system lets nobody watch memory: every transfer registers anew");
            continue;
        }
        let count = |start: &str| made.iter().filter(|call| call.contains(start)).count() as u64;
        let (rings, questions) = (count("write("), count("UFFDIO_WRITEPROTECT"));
        // A device that follows the memory by itself needs no question.
        let questions_due = if *asks && watch == Watched::Userfaultfd { CALLS } else { 0 };
        assert_eq!((rings, questions), (rings_due(what), questions_due), "{what}: {made:?}");
        assert_eq!(made.len() as u64, rings + questions, "{what}: {made:?}");
    }
}

#[test]
fn an_update_of_a_word_asks_the_system_for_nothing() {
    const WORDS: WindowRef = WindowRef { window: WindowId(8), ..PART };
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    let Some(calls) = SystemCalls::of_this_thread() else { return };
    if pair.origin.device_rmw().is_err() {
        crate::skipped::skipped("no device that updates words");
        return;
    }
    let words = Memory::new(4096);
    let _published = pair.target.remote_memory().unwrap().publish(WORDS, words.0);
    while pair.caller.direct().is_none_or(|access| access.reach(&WORDS, Wish::Rmw) != Reach::Yes) {
        step(&mut *pair.caller);
        step(&mut *pair.called);
    }
    let add = |pair: &mut Pair, old| {
        pair.caller.direct().unwrap().rmw(1, &WORDS, 64, DeviceRmw::FetchAdd(1)).unwrap();
        assert_eq!(outcome(pair), DirectOutcome::Value(old));
    };
    add(&mut pair, 0);
    calls.mark();
    (1..=CALLS).for_each(|old| add(&mut pair, old));
    calls.mark();
    let made = calls.between_marks().remove(0);
    let rings_due = if origin_is_soft() { CALLS as usize } else { 0 };
    assert_eq!(made.iter().filter(|call| call.contains("write(")).count(), rings_due, "{made:?}");
    assert_eq!(made.len(), rings_due, "{made:?}");
}

#[test]
fn who_has_one_thread_asks_nothing() {
    let Some(mut pair) = Pair::new(|_| ()) else { return };
    let Some(calls) = SystemCalls::of_this_thread() else { return };
    assert_eq!(pair.reach(), Reach::Yes);
    pair.origin.remote_memory().unwrap().rely_on_one_thread();
    let known = Memory::new(64 << 10).fill(1);
    let put = |pair: &mut Pair| {
        pair.put(1, 64, DirectSource::Lent(Box::new(known)), 64 << 10);
        assert_eq!(outcome(pair), DirectOutcome::Done);
    };
    put(&mut pair);
    calls.mark();
    (0..CALLS).for_each(|_| put(&mut pair));
    calls.mark();
    if pair.origin.cache_statistics().unwrap().watch.to_string() != "userfaultfd" {
        eprintln!("this system lets nobody watch memory: every transfer registers anew");
        return;
    }
    let mut made = calls.between_marks().remove(0);
    made.retain(|call| !(Pair::is_iwarp() && call.contains("EAGAIN")));
    let rings_due = if origin_is_soft() { (CALLS * requests_of("put")) as usize } else { 0 };
    assert_eq!(made.iter().filter(|call| call.contains("write(")).count(), rings_due, "{made:?}");
    assert_eq!(made.len(), rings_due, "{made:?}");
}
