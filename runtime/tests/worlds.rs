//! Worlds of one that come and go in one process: what each of them has is gone with it.
#![forbid(unsafe_code)]

use std::fs;
use std::sync::Arc;
use std::sync::mpsc;

use longarm::error::{InitError, MessageError};
use longarm::{Heap, Window, World};
use parking_lot::Mutex;

/// A process has one world at a time, and what it has is counted.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What longarm has of this process.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    threads: usize,
    memory: usize,
    descriptors: usize,
}

impl Held {
    fn now() -> Held {
        let tasks = fs::read_dir("/proc/self/task").expect("the system has /proc").flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        let maps = fs::read_to_string("/proc/self/maps").expect("the system has /proc");
        Held {
            threads: names.filter(|name| name.starts_with("longarm-")).count(),
            memory: maps.lines().filter(|line| line.contains("memfd:longarm")).count(),
            descriptors: fs::read_dir("/proc/self/fd").expect("the system has /proc").count(),
        }
    }

    /// A thread that was joined may be listed for a moment more.
    fn after_threads() -> Held {
        loop {
            let held = Held::now();
            if held.threads == 0 {
                return held;
            }
            std::thread::yield_now();
        }
    }
}

/// A world with all that may hold one: windows, the heap, and handlers that hold these. A message was handled.
fn busy_world() -> (World, Window<u64>, Arc<Heap>) {
    let world = longarm::init().expect("a world of one");
    let window = world.allocate_collective::<u64>(1000).expect("memory is enough");
    let heap = world.heap_of_collective(1 << 20).expect("memory is enough");
    let block = heap.allocate_collective(8).expect("the heap has room");
    heap.window::<u64>().put_one(0, heap.index_of::<u64>(&block), 1).expect("a word of the heap");
    let (kept, also_kept, group) = (window.clone(), Arc::clone(&heap), world.group().clone());
    let (sender, handled) = mpsc::channel();
    let handler = move |_: &longarm::Message<'_>| {
        kept.fetch_add(0, 0, also_kept.free_bytes() as u64 + u64::from(group.rank())).expect("a word of the window");
        sender.send(()).expect("somebody listens");
    };
    world.register_handler(1, handler).expect("the first handler");
    world.send_message(0, 1, &[], &[]).expect("this rank is there");
    handled.recv().expect("the handler runs");
    (world, window, heap)
}

#[test]
fn many_worlds_of_one_process_leave_nothing_of_themselves() {
    let _alone = ONE_AT_A_TIME.lock();
    drop(busy_world());
    let before = Held::after_threads();
    assert_eq!(before.memory, 0, "windows and the node's segment are unmapped: {before:?}");
    for round in 0..10 {
        let (world, window, heap) = busy_world();
        match round % 3 {
            0 => world.finalize().expect("nobody has died"),
            1 => drop(world),
            _ => drop((world.clone(), world)),
        }
        drop((window, heap));
        assert_eq!(Held::after_threads(), before, "round {round}");
    }
}

#[test]
fn what_outlives_its_world_keeps_none_from_being_made() {
    let _alone = ONE_AT_A_TIME.lock();
    let (world, window, heap) = busy_world();
    drop(world);
    let next = longarm::init().expect("the first world is gone");
    assert!(matches!(longarm::init(), Err(InitError::Twice)), "this one is not");
    next.finalize().expect("nobody has died");
    drop((window, heap));
}

#[test]
fn no_handler_is_kept_by_a_world_that_is_finalized() {
    let _alone = ONE_AT_A_TIME.lock();
    let world = longarm::init().expect("a world of one");
    let late = world.clone();
    world.finalize().expect("nobody has died");
    let kept = Arc::new(());
    let held = Arc::clone(&kept);
    let refused = late.register_handler(1, move |_| drop(Arc::clone(&held)));
    assert!(matches!(refused, Err(MessageError::Finalized { handler: 1 })), "{refused:?}");
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn the_heap_is_the_same_for_who_comes_when_nobody_has_it() {
    let _alone = ONE_AT_A_TIME.lock();
    let (world, _window, heap) = busy_world();
    let free_bytes = heap.free_bytes();
    drop((heap, _window));
    assert_eq!(world.heap_collective().expect("it is there").free_bytes(), free_bytes);
    world.finalize().expect("nobody has died");
}
